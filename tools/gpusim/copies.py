"""Asynchronous copies (PTX ISA, cp.async.bulk and its kin): checked when they are issued, done at a later turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .barriers import MBarrier, known
from .clocks import EngineClock
from .cta import BulkGroups, CtaState
from .faults import MemoryFault
from .lanes import spread
from .memory import Places, Region, ascending, each_byte, ends, pieces
from .tma import MAP_BYTES, Box, laid_out, read_box, stored_places

if TYPE_CHECKING:
    from .assembler import Assembler

MAPS_AT = 1 << 60  # the address of the kernel's parameter of tensor maps


class Copy:
    """A copy in flight. Its bytes are there, and counted, when it gets its turn."""

    def __init__(self, region: Region, places: Any, content: np.ndarray, land: Callable[[], None]):
        self._region, self._places, self._content, self._land = region, places, content, land

    def turn(self) -> bool:
        self._region.bytes[self._places] = self._content
        self._land()
        return False


def _start(
    run: Assembler,
    mask: np.ndarray,
    to: CtaState,
    places: Places,
    content: np.ndarray,
    barrier: MBarrier,
    source: Any,
    released: np.ndarray | None = None,
    nbytes: int | None = None,
) -> None:
    """A copy to places in shared memory, that counts on an mbarrier. `source`: the CTA it comes from, or
    None. `released`: what came before it is seen with it. `nbytes` are the bytes that count, where these are not all:
    not what lies beside rows that are narrower than a swizzle."""
    agent, nbytes = run.agent, len(content) if nbytes is None else nbytes
    first, end = ends(places)
    if first < 0 or end > len(to.shared.bytes):
        raise MemoryFault(f"a copy to {first:#x} goes beyond the end of shared memory")
    clock = _clock(run, mask, barrier)
    to.shared.engine_write(places, clock)
    each = each_byte(places)
    to.shared.bytes[each] = 0xFF
    for cta in {to, source} - {None}:
        cta.reach(clock.component, clock.now)

    def land() -> None:
        agent.scheduler.add(barrier.land(nbytes, released, to is not run.cta))

    agent.scheduler.add([Copy(to.shared, each, content, land)])
    agent.pause = True


def _clock(run: Assembler, mask: np.ndarray, barrier: MBarrier) -> EngineClock:
    known(barrier)
    return run.agent.engine_clock(barrier.component, barrier.completed + 1, mask)


def tensor_map(run: Assembler, mask: np.ndarray, operand: Any) -> Box:
    number, rest = divmod(run.number(operand, mask) - MAPS_AT, MAP_BYTES)
    if rest or not 0 <= number < len(run.cta.maps):
        raise MemoryFault(f"there is no tensor map {number}")
    if run.cta.maps[number] is None:
        raise MemoryFault(f"{run.agent} uses tensor map {number}, of a tensor without rows")
    return run.cta.maps[number]


def _box(run: Assembler, mask: np.ndarray, rank: int, operand: list[Any], place: int) -> tuple[Box, list[int]]:
    """A tensor map and coordinates; `place` is the box's in shared memory."""
    map_, at = operand
    box = tensor_map(run, mask, map_)
    if not len(at) == len(box.dims) == rank:
        raise MemoryFault(f"{len(at)} coordinates in a tensor of {len(box.dims)} dimensions")
    if place % box.align:
        raise MemoryFault(f"a box at {place:#x} is not aligned to {box.align} bytes")
    numbers = [run.number(x, mask) for x in at]
    if numbers[0] * box.itemsize % 16:
        raise MemoryFault(f"a box begins at element {numbers[0]} of a row, which is no multiple of 16 bytes")
    return box, numbers


def load_box(rank: int, run: Assembler, mask: np.ndarray, to: Any, source: list[Any], signal: Any, *_: Any) -> None:
    """[destination], [map, {coordinates}], [mbarrier], cache policy."""
    run.one(mask)
    owner, place, barrier = _target(run, mask, to, signal)
    box, at = _box(run, mask, rank, source, place)
    if box.steps:
        raise MemoryFault("a copy of a box has a tensor map of windows")
    region = run.agent.memory.find(box.pointer)
    content, read = read_box(region, box, at)
    if len(read[0]) and region.tracked:
        region.engine_read(ascending(pieces(*read)), _clock(run, mask, barrier))
    _start(run, mask, owner, slice(place, place + len(content)), content, barrier, None, nbytes=box.nbytes)
    barrier.behind = owner, place + len(content), box


def complete(run: Assembler, mask: np.ndarray, signal: Any, size: Any) -> None:
    """[mbarrier], bytes. They count as landed, though no copy brings them: those behind the last box that came for the
    mbarrier, which may hold anything from here on. They are no numbers, so that whatever is made of them shows."""
    run.one(mask)
    barrier, nbytes = run.mbarrier(signal, mask), run.number(size, mask)
    if barrier.behind is None:  # no box was copied before
        run.agent.scheduler.add(barrier.land(nbytes, None, False))
        return
    owner, place, box = barrier.behind
    room = nbytes // box.row * box.pitch
    _start(run, mask, owner, slice(place, place + room), np.full(room, 0xFF, np.uint8), barrier, None, nbytes=nbytes)


def load_windows(
    rank: int, run: Assembler, mask: np.ndarray, to: Any, source: list[Any], signal: Any, offsets: list[Any]
) -> None:
    """[destination], [map, {coordinates}], [mbarrier], {offsets}."""
    run.one(mask)
    owner, place, barrier = _target(run, mask, to, signal)
    box, at = _box(run, mask, rank, source, place)
    if not box.steps or len(offsets) != rank - 2:
        raise MemoryFault(f"a copy of windows in {rank} dimensions has {len(offsets)} offsets or a tensor map of boxes")
    region = run.agent.memory.find(box.pointer)
    content, read = read_box(region, box, [*at, *(run.number(x, mask) & 0xFFFF for x in offsets)])
    if len(read[0]) and region.tracked:
        region.engine_read(ascending(pieces(*read)), _clock(run, mask, barrier))
    _start(run, mask, owner, slice(place, place + len(content)), content, barrier, None, nbytes=box.nbytes)


def bulk_load(run: Assembler, mask: np.ndarray, to: Any, source: Any, size: Any, signal: Any, *_: Any) -> None:
    """Bytes of global memory go to shared memory, and are counted there."""
    run.one(mask)
    owner, place, barrier = _target(run, mask, to, signal)
    start, nbytes = run.number(source, mask), run.number(size, mask)
    _whole(place, start, nbytes)
    region = run.agent.memory.find(start)
    first = _within(region, start - region.start, nbytes)
    region.engine_read(slice(first, first + nbytes), _clock(run, mask, barrier))
    _start(run, mask, owner, slice(place, place + nbytes), region.bytes[first : first + nbytes].copy(), barrier, None)


def bulk_send(run: Assembler, mask: np.ndarray, to: Any, source: Any, size: Any, signal: Any) -> None:
    """A copy from the own shared memory to that of a CTA of the cluster."""
    run.one(mask)
    owner, place, barrier = _target(run, mask, to, signal)
    start, nbytes = run.cta.place(run.number(source, mask)), run.number(size, mask)
    _whole(place, start, nbytes)
    first = _within(run.cta.shared, start, nbytes)
    run.cta.shared.engine_read(slice(first, first + nbytes), _clock(run, mask, barrier))
    content = run.cta.shared.bytes[first : first + nbytes].copy()
    _start(run, mask, owner, slice(place, place + nbytes), content, barrier, run.cta)


def store_async(run: Assembler, mask: np.ndarray, to: Any, value: Any, signal: Any) -> None:
    """Each thread's words to shared memory in the cluster, counted there; those of a warp land together. Their
    completion releases what the threads did before (PTX ISA, st.async)."""
    agent, resolve = run.agent, run.cta.cluster.resolve
    released = agent.clocks.release(agent.warps(mask))
    words = value if isinstance(value, tuple) else (value,)
    columns = [spread(run.read(word), mask.shape) for word in words]
    content = np.stack(columns, 1).astype(columns[0].dtype).view(np.uint8)
    ((register,), (barrier_register,)) = to, signal
    addresses, signals = (spread(run.read(x), mask.shape) for x in (register, barrier_register))
    nbytes = content.shape[1]
    for warp in np.unique(np.flatnonzero(mask) // 32):
        lanes = mask & (np.arange(len(mask)) // 32 == warp)
        for barrier_at in np.unique(signals[lanes]).tolist():
            some = lanes & (signals == barrier_at)
            first = int(addresses[some].min())
            owner, place = resolve(first)
            signalled, barrier_place = resolve(barrier_at)
            if signalled is not owner or resolve(int(addresses[some].max()))[0] is not owner:
                raise MemoryFault("a copy to one CTA counts on an mbarrier of another")
            starts = addresses[some] - (first - place)
            if (starts % nbytes).any():
                raise MemoryFault(f"st.async to {first:#x} is not aligned to {nbytes} bytes")
            order = np.argsort(starts)
            if (np.diff(starts[order]) < nbytes).any():
                raise MemoryFault(f"st.async of several threads to one place from {first:#x} on")
            barrier = agent.mbarrier(owner, barrier_place, some)
            _start(run, some, owner, (starts[order], nbytes), content[some][order].reshape(-1), barrier, None, released)


def _target(run: Assembler, mask: np.ndarray, to: Any, signal: Any) -> tuple[CtaState, int, MBarrier]:
    owner, place = run.cta.cluster.resolve(run.number(to, mask))
    signalled, barrier_place = run.cta.cluster.resolve(run.number(signal, mask))
    if signalled is not owner:
        raise MemoryFault("a copy to one CTA counts on an mbarrier of another")
    return owner, place, run.agent.mbarrier(owner, barrier_place, mask)


def _whole(*numbers: int) -> None:
    if any(number % 16 for number in numbers) or numbers[-1] <= 0:
        a, b, nbytes = numbers
        raise MemoryFault(f"a bulk copy of {nbytes} bytes between {a:#x} and {b:#x}: not of 16 bytes")


def _within(region: Region, first: int, nbytes: int) -> int:
    if first < 0 or first + nbytes > len(region.bytes):
        raise MemoryFault(f"a copy goes beyond the end of {region.name}")
    return first


# To global memory, in groups that a thread waits for.


def _groups(run: Assembler, mask: np.ndarray) -> list[BulkGroups]:
    """The groups of each thread of the mask that has stored."""
    return [run.cta.bulk[thread] for thread in run.agent.lanes(mask).threads.tolist() if thread in run.cta.bulk]


def store_box(rank: int, run: Assembler, mask: np.ndarray, to: list[Any], source: Any, *_: Any) -> None:
    run.one(mask)
    place = run.cta.place(run.number(source, mask))
    box, at = _box(run, mask, rank, to, place)
    region = run.agent.memory.find(box.pointer)
    first = _within(run.cta.shared, place, box.nbytes)
    starts, exists, piece = stored_places(region, box, at)
    source = first + laid_out(box, piece)[exists]  # what is beyond the tensor need not be there
    _store(run, mask, source, region, pieces(starts, piece))


def bulk_store(run: Assembler, mask: np.ndarray, to: Any, source: Any, size: Any, *_: Any) -> None:
    run.one(mask)
    start, place, nbytes = run.number(to, mask), run.cta.place(run.number(source, mask)), run.number(size, mask)
    _whole(start, place, nbytes)
    region = run.agent.memory.find(start)
    target, first = _within(region, start - region.start, nbytes), _within(run.cta.shared, place, nbytes)
    each = np.arange(nbytes).reshape(-1, 16)
    _store(run, mask, first + each, region, target + each)


def _store(run: Assembler, mask: np.ndarray, source: np.ndarray, region: Region, places: np.ndarray) -> None:
    """[pieces, bytes of one]: from places in shared memory to as many in a region."""
    (thread,), cta, scheduler = run.agent.lanes(mask).threads.tolist(), run.cta, run.agent.scheduler
    if thread not in cta.bulk:
        name = f"stores of CTA {cta.number} thread {thread}"
        cta.bulk[thread] = BulkGroups(name, run.agent.clocks, cta.number)
    groups = cta.bulk[thread]
    group = groups.closed + 1
    if len(places):
        cta.shared.engine_read(ascending(source), run.agent.engine_clock(groups.reads, group, mask))
        region.engine_write(ascending(places), run.agent.engine_clock(groups.writes, group, mask))
    content = cta.shared.bytes[source]
    groups.in_flight[group] = groups.in_flight.get(group, 0) + 1
    cta.reach(groups.reads, group)

    def land() -> None:
        groups.in_flight[group] -= 1
        waiters, groups.waiters = groups.waiters, []
        scheduler.add(waiters)

    scheduler.add([Copy(region, places, content, land)])
    run.agent.pause = True


def commit_stores(run: Assembler, mask: np.ndarray) -> None:
    for groups in _groups(run, mask):
        groups.closed += 1


def wait_stores(only_read: bool, run: Assembler, mask: np.ndarray, pending: Any) -> None:
    """Until all but so many groups are done; those that only read their source are taken to be done then too."""
    pending, warps, seen = run.number(pending, mask), run.agent.warps(mask), run.agent.clocks.seen
    for groups in _groups(run, mask):
        if not groups.done(pending):
            run.agent.wait(groups)
            return
        for component in (groups.reads,) if only_read else (groups.reads, groups.writes):
            seen[warps, component] = np.maximum(seen[warps, component], groups.closed - pending)


_LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
_SAVE = "cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group"
_BULK = ".mbarrier::complete_tx::bytes"
INSTRUCTIONS: dict[str, Callable[..., None]] = {
    f"cp.async.bulk.shared::cluster.global{_BULK}": bulk_load,
    f"cp.async.bulk.shared::cluster.global{_BULK}.L2::cache_hint": bulk_load,
    f"cp.async.bulk.shared::cluster.shared::cta{_BULK}": bulk_send,
    "cp.async.bulk.global.shared::cta.bulk_group": bulk_store,
    "mbarrier.complete_tx.relaxed.cta.shared::cta.b64": complete,
    "cp.async.bulk.commit_group": commit_stores,
    "cp.async.bulk.wait_group": partial(wait_stores, False),
    "cp.async.bulk.wait_group.read": partial(wait_stores, True),
}
for _rank in range(1, 6):
    for _hint in ("", ".L2::cache_hint"):
        INSTRUCTIONS[_LOAD.format(_rank) + _hint] = partial(load_box, _rank)
        INSTRUCTIONS[_SAVE.format(_rank) + _hint] = partial(store_box, _rank)
        INSTRUCTIONS[_SAVE.format(_rank).replace(".tile", "") + _hint] = partial(store_box, _rank)
for _rank in range(3, 6):
    INSTRUCTIONS[_LOAD.format(_rank).replace(".tile", ".im2col")] = partial(load_windows, _rank)
for _kind in ("b32", "u32", "s32", "f32", "b64"):
    for _count in ("", ".v2", ".v4"):
        INSTRUCTIONS[f"st.async.shared::cluster{_BULK}{_count}.{_kind}"] = store_async
        INSTRUCTIONS[f"st.async.weak.shared::cluster{_BULK}{_count}.{_kind}"] = store_async
