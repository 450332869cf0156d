"""Memory addressed by bytes. Finds accesses out of bounds, misaligned, unordered, and reads of what nobody wrote.

Races are found whether or not they show in the numbers. A CTA's clock is the number of barriers it has
passed. An access must come after every earlier one of another thread to the same byte, one of them a write:
in the same CTA a barrier later; in another CTA after a release that follows a barrier, an acquire, and a
barrier again. (PTX ISA, Memory Consistency Model: causality order.)
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from simt_clocks import EngineClock, WarpClock

THREAD_BITS, CTA_BITS = 12, 12  # of a stamp; the clock is above them
MANY = (1 << THREAD_BITS) - 1  # several threads of a CTA


class MemoryFault(AssertionError):
    """An access that a GPU may answer with anything."""

    located = False  # whether the message says where


class Clock:
    """What one CTA's threads come after: accesses of CTA c up to its clock `seen[c]`."""

    def __init__(self, cta: int, ctas: int):
        self.cta, self.now = cta, 1
        self.seen = np.zeros(ctas, np.int64)
        self._acquired: dict[int, np.ndarray] = {}  # by a thread

    def acquire(self, released: np.ndarray, thread: int) -> None:
        """One thread acquired; the others follow at the next barrier."""
        self._acquired[thread] = np.maximum(self._acquired.get(thread, self.seen), released)

    def barrier(self) -> None:
        for acquired in self._acquired.values():
            self.seen = np.maximum(self.seen, acquired)
        self.seen[self.cta] = self.now
        self.now += 1

    def stamps(self, threads: np.ndarray) -> np.ndarray:
        return (((self.now << CTA_BITS) | self.cta) << THREAD_BITS) | threads.astype(np.int64)

    def precedes(self, stamps: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Whether accesses of these stamps (0: none) come before an access of `own` stamps."""
        ctas, clocks = (stamps >> THREAD_BITS) & ((1 << CTA_BITS) - 1), stamps >> (THREAD_BITS + CTA_BITS)
        good = (clocks <= self.seen[ctas]) | (stamps == own)
        for thread, acquired in self._acquired.items():
            good |= (own & MANY == thread) & (clocks <= acquired[ctas])
        return good

    def after(self, reader: int, latest: int, own: np.ndarray) -> bool:
        """Whether accesses of `own` stamps come after all of one reader's, of which the latest has this stamp. False
        where this alone does not say."""
        return latest >> (THREAD_BITS + CTA_BITS) <= self.seen[reader]

    def readers(self, own: np.ndarray) -> Iterator[tuple[int, Any]]:
        """Whose accesses these stamps are, and which of them."""
        yield self.cta, slice(None)

    def who(self, stamp: int) -> str:
        thread, cta = int(stamp) & MANY, (int(stamp) >> THREAD_BITS) & ((1 << CTA_BITS) - 1)
        return f"CTA {cta} " + ("several threads" if thread == MANY else f"thread {thread}")


class _Reads:
    """Stamps of one reader's last read of each byte, 0 outside of `low` to `high`."""

    def __init__(self, nbytes: int):
        self.stamps, self.low, self.high = np.zeros(nbytes, np.int64), nbytes, 0

    def extend(self, low: int, high: int) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)


AnyClock = Clock | WarpClock


class Region:
    """Bytes at an address. `tracked`: written during the launch before it is read, and by ordered threads."""

    def __init__(
        self, name: str, start: int, content: np.ndarray, writable: bool, tracked: bool, space: str = "global"
    ):
        self.name, self.start, self.bytes, self.writable, self.tracked = name, start, content, writable, tracked
        self.space = space
        self._written = np.zeros(len(content) if tracked else 0, np.int64)
        self._reads: dict[int, _Reads] = {}

    @property
    def end(self) -> int:
        return self.start + len(self.bytes)

    def next_kernel(self) -> None:
        """A kernel of the launch has ended: the next one comes after all it did."""
        self._written, self._reads = np.minimum(self._written, 1), {}

    def read(self, places: np.ndarray, clock: AnyClock, threads: np.ndarray, initial: bool = False) -> None:
        """Notes a read of bytes at `places` (threads x bytes); of what was there before the launch if `initial`."""
        if not self.tracked:
            return
        places, own = _flat(places, clock.stamps(threads))
        written = self._written[places]
        if not initial:
            self._check(written != 0, places, own, clock, "reads what nobody wrote")
        self._check(clock.precedes(written, own), places, own, clock, "reads what is written at the same time", written)
        for reader, which in clock.readers(own):
            self._note(self._reads_of(reader), places[which], own[which], clock)

    def _note(self, reads: _Reads, places: np.ndarray, own: np.ndarray, clock: AnyClock) -> None:
        reads.extend(int(places.min()), int(places.max()) + 1)
        before = reads.stamps[places]
        shared = ~clock.precedes(before, own)
        reads.stamps[places] = own
        shared |= reads.stamps[places] != own
        reads.stamps[places[shared]] |= MANY

    def _reads_of(self, reader: int) -> _Reads:
        if reader not in self._reads:
            self._reads[reader] = _Reads(len(self.bytes))
        return self._reads[reader]

    def write(self, places: np.ndarray, clock: AnyClock, threads: np.ndarray) -> None:
        if not self.writable:
            raise MemoryFault(f"CTA {clock.cta} writes to {self.name}")
        if not self.tracked:
            return
        places, own = _flat(places, clock.stamps(threads))
        before = self._written[places]
        self._check(clock.precedes(before, own), places, own, clock, "writes what is written at the same time", before)
        low, high = int(places.min()), int(places.max()) + 1
        for reader, reads in self._reads.items():
            if reads.low < high and low < reads.high:
                before = reads.stamps[places]
                if not clock.after(reader, before.max(), own):
                    good = clock.precedes(before, own)
                    self._check(good, places, own, clock, "writes what is read at the same time", before)
        self._written[places] = own
        self._check(self._written[places] == own, places, own, clock, "writes what is written at the same time")

    def _check(
        self,
        good: np.ndarray,
        places: np.ndarray,
        own: np.ndarray,
        clock: AnyClock,
        what: str,
        others: np.ndarray | None = None,
    ) -> None:
        if np.all(good):
            return
        i = int(np.argmin(good))
        by = f", by {clock.who(others[i])}" if others is not None else ""
        raise MemoryFault(f"{clock.who(own[i])} {what}{by}: byte {places[i]} of {self.name}")

    def engine_read(self, places: slice | np.ndarray, clock: EngineClock) -> None:
        """A read by a copy or a product, of bytes in ascending places."""
        if not self.tracked:
            return
        written = self._written[places]
        self._engine_check(written != 0, places, clock, "reads what nobody wrote")
        self._engine_check(clock.precedes(written), places, clock, "reads what is written at the same time", written)
        said = "reads what no proxy fence made visible to it"
        self._engine_check(clock.proxied(written, self.space), places, clock, said, written)
        reads = self._reads_of(clock.component)
        reads.extend(*ends(places))
        reads.stamps[places] = clock.stamp

    def engine_write(self, places: slice | np.ndarray, clock: EngineClock) -> None:
        """A write by a copy."""
        if not self.writable:
            raise MemoryFault(f"{clock.who(clock.stamp)} writes to {self.name}")
        if not self.tracked:
            return
        before = self._written[places]
        self._engine_check(clock.precedes(before), places, clock, "writes what is written at the same time", before)
        low, high = ends(places)
        for reader, reads in self._reads.items():
            if reads.low < high and low < reads.high:
                before = reads.stamps[places]
                if not clock.after(reader, before.max()):
                    good = clock.precedes(before)
                    self._engine_check(good, places, clock, "writes what is read at the same time", before)
        self._written[places] = clock.stamp

    def _engine_check(
        self,
        good: np.ndarray,
        places: slice | np.ndarray,
        clock: EngineClock,
        what: str,
        others: np.ndarray | None = None,
    ) -> None:
        if good.all():
            return
        i = int(np.argmin(good))
        place = places.start + i if isinstance(places, slice) else places[i]
        by = f", by {clock.who(others[i])}" if others is not None else ""
        raise MemoryFault(f"{clock.who(clock.stamp)} {what}{by}: byte {place} of {self.name}")


def ends(places: slice | np.ndarray) -> tuple[int, int]:
    """The first of some ascending places, and the one behind the last."""
    return (places.start, places.stop) if isinstance(places, slice) else (int(places[0]), int(places[-1]) + 1)


def _flat(places: np.ndarray, stamps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return places.reshape(-1), np.repeat(stamps, places.shape[1])


class Space:
    """An address space: regions that do not overlap."""

    def __init__(self, regions: Sequence[Region]):
        self._regions = sorted((region for region in regions if len(region.bytes)), key=lambda r: r.start)
        self._starts = [region.start for region in self._regions]
        for a, b in zip(self._regions, self._regions[1:]):
            assert a.end <= b.start, f"{a.name} and {b.name} overlap"

    def find(self, address: int) -> Region:
        number = bisect.bisect_right(self._starts, address) - 1
        if number < 0 or address >= self._regions[number].end:
            near = self._regions[max(number, 0)] if self._regions else None
            where = f", {address - near.end + 1} bytes beyond the end of {near.name}" if near else ""
            raise MemoryFault(f"address {address:#x} is in no tensor{where}")
        return self._regions[number]

    def _split(self, addresses: np.ndarray, nbytes: int) -> Iterator[tuple[Region, np.ndarray]]:
        """Regions and which addresses lie in each. Raises MemoryFault for those in none."""
        left = np.ones(len(addresses), np.bool_)
        while np.any(left):
            region = self.find(int(addresses[np.argmax(left)]))
            inside = left & (addresses >= region.start) & (addresses + nbytes <= region.end)
            if not inside[np.argmax(left)]:
                raise MemoryFault(f"an access of {nbytes} bytes crosses the end of {region.name}")
            yield region, inside
            left &= ~inside

    def load(
        self, addresses: np.ndarray, dtype: np.dtype, count: int, align: int, clock: AnyClock, threads: np.ndarray
    ) -> np.ndarray:
        """`count` elements at each address: [threads, count]."""
        nbytes = dtype.itemsize * count
        _aligned(addresses, align)
        result = np.empty((len(addresses), count), dtype)
        for region, inside in self._split(addresses, nbytes):
            places = (addresses[inside] - region.start)[:, None] + np.arange(nbytes)
            region.read(places, clock, threads[inside])
            result[inside] = region.bytes[places].view(dtype)
        return result

    def store(
        self, addresses: np.ndarray, values: np.ndarray, align: int, clock: AnyClock, threads: np.ndarray
    ) -> None:
        """The inverse of `load`."""
        nbytes = values.dtype.itemsize * values.shape[1]
        _aligned(addresses, align)
        content = np.ascontiguousarray(values).view(np.uint8).reshape(len(addresses), nbytes)
        for region, inside in self._split(addresses, nbytes):
            places = (addresses[inside] - region.start)[:, None] + np.arange(nbytes)
            region.write(places, clock, threads[inside])
            region.bytes[places] = content[inside]


def _aligned(addresses: np.ndarray, align: int) -> None:
    if np.any(addresses % align):
        raise MemoryFault(f"address {int(addresses[np.argmax(addresses % align)]):#x} is not aligned to {align} bytes")
