"""A queue between any two CTAs: a ring in global memory that stays in L2, filled and emptied by bulk copies.

    sender's slots (shared) -> ring of `depth` payloads (global) -> receiver's slots (shared)

Two counters in global memory, a cache line each: payloads sent, payloads released. The sending thread waits for the
end of a copy `lag` payloads later, so that copies overlap, and writes `sent` for `lag` payloads at once: a release at
GPU scope takes half a microsecond. One thread of the receiver watches `sent`, copies into its slots, completing on
their full barriers, and writes `released` in the same way. Counters only grow during a launch; at its end the
sender, once everything was released, zeroes them for the next
(PTX ISA, Memory Consistency Model: release and acquire patterns; Async proxy).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kitsune_mlir.codegen.hopper import bulk, mbarrier, tma, waits
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

COUNTER_BYTES = 128  # a cache line: no false sharing


@dataclass(frozen=True)
class GlobalRing:
    """`depth` payloads of `nbytes` (a multiple of 16) at `data`, the counters at `counters`, zero between launches;
    both pointers to global memory."""

    data: ir.Value
    counters: ir.Value
    depth: int
    nbytes: int

    @property
    def sent(self) -> ir.Value:
        return self.counters

    @property
    def released(self) -> ir.Value:
        return device.offset(self.counters, COUNTER_BYTES, ir.IntegerType.get_signless(8))

    def place(self, number: Int) -> ir.Value:
        """Where payload `number` lies."""
        at = device.mul(device.mod(number, self.depth), self.nbytes)
        return device.offset(self.data, at, ir.IntegerType.get_signless(8))


@dataclass
class GlobalSender:
    """The sending end; see queue.py. `ring` is the sender's own, in shared memory: its empty barriers say that a
    slot was copied out."""

    ring: Ring
    link: GlobalRing
    lag: int = 1
    _seen: ir.Value | None = field(default=None, repr=False)  # of `released`

    def __post_init__(self) -> None:
        check_lag(self.lag, self.ring, self.link)

    def init(self) -> None:
        """One thread, before mbarrier.fence_init and a barrier."""
        self.ring.init(1, 1)

    def wait_free(self, slot: Slot) -> None:
        self.ring.wait_empty(slot)

    def place(self, slot: Slot) -> Int:
        return self.ring.place(slot)

    def send(self, slot: Slot, number: Int, leader: ir.Value) -> None:
        seen = self._known()
        self._seen = device.choose(leader, device.i32(), lambda: self._copy(slot, number, seen), lambda: seen)

    def _copy(self, slot: Slot, number: Int, seen: ir.Value) -> ir.Value:
        wanted = device.sub(number, self.link.depth - 1)
        seen = _catch_up(self.link.released, seen, wanted, "a place in the ring in L2")
        bulk.store(self.ring.place(slot), self.link.place(number), self.link.nbytes)
        tma.commit()
        with device.when(_at_least(number, self.lag)):
            bulk.wait(self.lag)
            self._publish(slot, number)
        return seen

    def _publish(self, slot: Slot, number: Int) -> None:
        """Payload `number` - lag is written: its staging is free; the receiver is told of `lag` at once."""
        behind = device.sub(slot.number, self.lag)
        wrapped = device.add(behind, self.ring.slots)
        place = arith.select(device.less(behind, 0), device.value(wrapped), device.value(behind))
        mbarrier.arrive(self.ring.empty(Slot(place, slot.parity)), _true())
        written = device.sub(number, self.lag - 1)
        with device.when(_whole(written, self.lag)):
            _set(self.link.sent, written)

    def finish(self, count: Int) -> None:
        bulk.wait(0)
        _set(self.link.sent, count)
        waits.on_counter(self.link.released, count, "the release of all payloads")
        _set(self.link.released, 0)
        _set(self.link.sent, 0)

    def _known(self) -> ir.Value:
        return device.value(0) if self._seen is None else self._seen

    def state(self) -> list[ir.Value]:
        return [self._known()]

    def resume(self, state: list[ir.Value]) -> None:
        (self._seen,) = state


@dataclass(frozen=True)
class GlobalReceiver:
    """The receiving end; see queue.py. `ring` is the receiver's own, in shared memory; releases of `consumers`
    threads free a slot of it."""

    ring: Ring
    link: GlobalRing
    consumers: int = 1
    lag: int = 1
    fetches = True

    def __post_init__(self) -> None:
        check_lag(self.lag, self.ring, self.link)

    def init(self) -> None:
        """One thread, before mbarrier.fence_init and a barrier."""
        self.ring.init(1, self.consumers)

    def fetch(self, count: Int) -> None:
        start = Slot.first()

        def payload(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot, behind, seen = Slot(*state[:2]), Slot(*state[2:4]), state[4]
            self.ring.wait_empty(slot)
            seen = _catch_up(self.link.sent, seen, device.add(number, 1), "a payload in the ring in L2")
            mbarrier.expect(self.ring.full(slot), self.link.nbytes)
            bulk.load(self.link.place(number), self.ring.place(slot), self.link.nbytes, self.ring.full(slot))
            behind = self._trail(behind, number)
            following = self.ring.advance(slot)
            return [following.number, following.parity, behind.number, behind.parity, seen]

        state = [start.number, start.parity, start.number, start.parity, device.value(0)]
        _, _, *behind, _ = device.loop(0, count, 1, payload, state)

        def rest(number: ir.Value, state: list[ir.Value]) -> list[ir.Value]:
            slot = Slot(*state)
            self.wait(slot)
            slot = self.ring.advance(slot)
            return [slot.number, slot.parity]

        first = arith.maxsi(device.value(device.sub(count, self.lag)), device.value(0))
        device.loop(first, count, 1, rest, behind)
        _set(self.link.released, count)

    def _trail(self, slot: Slot, number: ir.Value) -> Slot:
        """Waits for the copy, into the slot, of payload `number` - lag, if any; the sender is told of `lag` at once."""
        condition, copied = _at_least(number, self.lag), device.sub(number, self.lag - 1)
        with device.when(condition):
            self.wait(slot)
            with device.when(_whole(copied, self.lag)):
                _set(self.link.released, copied)
        following = self.ring.advance(slot)
        number = arith.select(condition, following.number, slot.number)
        return Slot(number, arith.select(condition, following.parity, slot.parity))

    def wait(self, slot: Slot) -> None:
        self.ring.wait_full(slot)

    def place(self, slot: Slot) -> Int:
        return self.ring.place(slot)

    def release(self, slot: Slot, leader: ir.Value) -> None:
        mbarrier.arrive(self.ring.empty(slot), leader)


def check_lag(lag: int, ring: Ring, link: GlobalRing) -> None:
    """Raises ValueError for a queue that would hang: the sender keeps up to 2 `lag` - 1 payloads back, and of those
    that it told of, a multiple of `lag`, the receiver `lag`."""
    kept = 3 * lag - 1
    if not lag < ring.slots or not kept < link.depth:
        raise ValueError(f"{lag} unfinished copies need more than {lag} slots and {kept} places in the ring")


def _catch_up(counter: ir.Value, seen: ir.Value, wanted: Int, awaited: str) -> ir.Value:
    """The last value seen of the counter if it is at least `wanted` (signed), else its value once it is."""

    def ask() -> ir.Value:
        found = waits.on_counter(counter, wanted, awaited)
        bulk.fence_global()
        return found

    return device.choose(device.less(seen, wanted), device.i32(), ask, lambda: seen)


def _set(counter: ir.Value, count: Int) -> None:
    """Releases at GPU scope; a counter has one writer."""
    text = "st.release.gpu.global.u32 [$0], $1;"
    device.assembly(text, counter, count)


def _at_least(number: Int, least: int) -> ir.Value:
    return device.less(device.value(least - 1), number)


def _whole(count: Int, lag: int) -> ir.Value:
    """Whether so many payloads are a multiple of `lag`."""
    return device.equal(device.mod(count, lag), 0)


def _true() -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(1), 1)
