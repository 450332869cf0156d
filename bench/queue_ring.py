"""The ring that the queue benchmark compares others with: threads' ordinary loads and stores, through L2.

A ring of tiles in global memory that stays in L2, with a counter pair a slot.

Tile t lies in slot t mod depth, its turn is t div depth. `full` counts the turns filled, `empty` the
releases by consumers. A producer waits until every consumer released turn - 1, fills the slot, and
publishes turn + 1; a consumer waits for that. One thread waits and signals; a CTA barrier stands between
it and the other threads' accesses, and acquire and release at GPU scope order them across CTAs (PTX ISA,
Memory Consistency Model, release and acquire patterns). Paper: section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.counters import COUNTER_BYTES
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.watch import Answer, Watch
from kitsune_mlir.mlir import arith, ir, scf


@dataclass(frozen=True)
class QueueWatch:
    """The watch of one queue, for a CTA whose threads all wait for what one of them sees. Reports call the queue `name`
    and `location`; `flag` points to a word of shared memory that nothing else uses."""

    watch: Watch
    name: str
    location: str
    flag: ir.Value

    def ask(self, question: Callable[[], Answer], awaited: str, tile: ir.Value, wanted: Int) -> None:
        """One thread: waits, reports a wait in vain, and tells the CTA whether it was."""
        sentence = f"{awaited} of queue '{self.name}': its counter is {{0}}, wanted {{1}}"
        over, seen = self.watch.ask(question)
        late = arith.xori(over, arith.constant(over.type, 1))
        device.store(arith.extui(device.i32(), late), self.flag)
        with device.when(late):
            self.watch.tell([self.watch.waits.number(sentence, self.location), device.cta(), tile, seen, wanted])

    def leave_if_late(self) -> None:
        """All threads, after a barrier: ends them if the wait was in vain."""
        late = device.load(self.flag, device.i32())
        device.barrier()
        with device.when(device.less(0, late)):
            device.assembly("exit;")


@dataclass
class CounterRing:
    """`data` and `counters` are pointers into the workspace; tiles are so many `words`, of 32 bits."""

    data: ir.Value
    counters: ir.Value
    depth: int
    consumers: int
    words: int
    watch: QueueWatch | None = None

    def _counter(self, slot: Int, which: int) -> ir.Value:
        index = device.add(device.mul(slot, 2), which)
        return device.offset(self.counters, device.mul(index, COUNTER_BYTES // 4), device.i32())

    def slot(self, tile: ir.Value) -> ir.Value:
        """Where the tile lies."""
        return device.offset(self.data, device.mul(device.mod(tile, self.depth), self.words), device.i32())

    def wait_full(self, tile: ir.Value) -> None:
        """All threads: returns when the tile is there."""
        turn = device.add(device.div(tile, self.depth), 1)
        self._wait(tile, 0, turn)

    def wait_empty(self, tile: ir.Value) -> None:
        """All threads: returns when the tile's slot is free."""
        released = device.mul(device.div(tile, self.depth), self.consumers)
        self._wait(tile, 1, released)

    def _wait(self, tile: ir.Value, which: int, least: Int) -> None:
        counter = self._counter(device.mod(tile, self.depth), which)

        def ask() -> Answer:
            seen = _acquire(counter)
            return arith.cmpi(arith.CmpIPredicate.uge, seen, device.value(least)), seen

        with device.when(device.equal(device.thread(), 0)):
            if self.watch is not None:
                self.watch.ask(ask, ("the tile", "a free slot")[which], tile, least)
            else:
                _spin(ask)
        device.barrier()
        if self.watch is not None:
            self.watch.leave_if_late()

    def publish(self, tile: ir.Value) -> None:
        """All threads, after the last write to the slot."""
        self._signal(self._counter(device.mod(tile, self.depth), 0))

    def release(self, tile: ir.Value) -> None:
        """All threads, after the last read of the slot."""
        self._signal(self._counter(device.mod(tile, self.depth), 1))

    def _signal(self, counter: ir.Value) -> None:
        device.barrier()
        with device.when(device.equal(device.thread(), 0)):
            device.signal(counter)


def _acquire(counter: ir.Value) -> ir.Value:
    return device.assembly("ld.acquire.gpu.global.u32 $0, [$1];", counter, result=device.i32())


def _spin(ask: Callable[[], Answer]) -> None:
    loop = scf.WhileOp([], [])
    with ir.InsertionPoint(loop.before.blocks.append()):
        over, _ = ask()
        scf.ConditionOp(arith.xori(over, arith.constant(over.type, 1)), [])
    with ir.InsertionPoint(loop.after.blocks.append()):
        scf.YieldOp([])
