"""Queues between CTAs: a ring of tiles in global memory that stays in L2, with a counter pair a slot.

Tile t lies in slot t mod depth, its turn is t div depth. `full` counts the turns filled, `empty` the
releases by consumers. A producer waits until every consumer released turn - 1, fills the slot, and
publishes turn + 1; a consumer waits for that. One thread waits and signals; a CTA barrier stands between
it and the other threads' accesses, and acquire and release at GPU scope order them across CTAs (PTX ISA,
Memory Consistency Model, release and acquire patterns). Paper: section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.mlir import arith, ir, scf

from . import device
from .device import Int
from .memory import Memory
from .watch import Watch

COUNTER_BYTES = 128  # a cache line a counter: no false sharing


@dataclass
class Ring:
    """`data` and `counters` are pointers into the workspace; tiles are `shape` of `element`, contiguous."""

    data: ir.Value
    counters: ir.Value
    depth: int
    consumers: int
    shape: tuple[int, ...]
    element: ir.Type
    number: int = 0  # of the queue, in reports
    watch: Watch | None = None

    def _counter(self, slot: Int, which: int) -> ir.Value:
        index = device.add(device.mul(slot, 2), which)
        return device.offset(self.counters, device.mul(index, COUNTER_BYTES // 4), device.i32())

    def slot(self, tile: ir.Value) -> Memory:
        """Where the tile lies."""
        columns = 1
        for size in self.shape[1:]:
            columns *= size
        place = device.mul(device.mod(tile, self.depth), columns * self.shape[0])
        return Memory(device.offset(self.data, place, self.element), self.element, self.shape, columns)

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
        with device.when(device.equal(device.thread(), 0)):
            loop = scf.WhileOp([device.i32()], [device.value(0)])
            before = loop.before.blocks.append(device.i32())
            after = loop.after.blocks.append(device.i32())
            with ir.InsertionPoint(before):
                spins = before.arguments[0]
                waiting = _below(_acquire(counter), least)
                if self.watch is not None:
                    waiting = arith.andi(waiting, self.watch.goes_on(spins))
                scf.ConditionOp(waiting, [spins])
            with ir.InsertionPoint(after):
                scf.YieldOp([device.value(device.add(after.arguments[0], 1))])
            if self.watch is not None:
                seen = _acquire(counter)
                self.watch.settle(_below(seen, least), [self.number, 1 - which, device.cta(), tile, seen, least])
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
    return device.assembly("ld.acquire.gpu.global.u32 $0, [$1];", "=r,l,~{memory}", [counter], device.i32())


def _below(seen: ir.Value, least: Int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ult, seen, device.value(least))
