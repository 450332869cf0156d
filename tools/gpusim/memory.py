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

from .clocks import EngineClock, WarpClock
from .faults import MemoryFault

THREAD_BITS, CTA_BITS = 12, 12  # of a stamp; the clock is above them
MANY = (1 << THREAD_BITS) - 1  # several threads of a CTA


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

    def seen_by(self, own: np.ndarray) -> np.ndarray:
        """What every access of these stamps comes after."""
        return self.seen

    @staticmethod
    def clock_of(stamp: int) -> int:
        return stamp >> (THREAD_BITS + CTA_BITS)

    def readers(self, own: np.ndarray) -> Iterator[tuple[int, Any]]:
        """Whose accesses these stamps are, and which of them."""
        yield self.cta, slice(None)

    def who(self, stamp: int) -> str:
        thread, cta = int(stamp) & MANY, (int(stamp) >> THREAD_BITS) & ((1 << CTA_BITS) - 1)
        return f"CTA {cta} " + ("several threads" if thread == MANY else f"thread {thread}")


class _Reads:
    """Stamps of one reader's last read of each unit, 0 outside of bytes `low` to `high`."""

    def __init__(self, units: int):
        self.stamps, self.low, self.high = np.zeros(units, np.int64), 1 << 62, 0

    def extend(self, low: int, high: int) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)


AnyClock = Clock | WarpClock
Places = slice | tuple[np.ndarray, int]  # ascending: from a byte to another, or so many bytes from each of some


class Region:
    """Bytes at an address. `tracked`: written during the launch before it is read, and by ordered threads.

    Accesses are noted by units of bytes, as large as all accesses so far let them be."""

    def __init__(
        self, name: str, start: int, content: np.ndarray, writable: bool, tracked: bool, space: str = "global"
    ):
        self.name, self.start, self.bytes, self.writable, self.tracked = name, start, content, writable, tracked
        self.space = space
        self._unit = 16  # bytes
        self._written = np.zeros(-(-len(content) // self._unit) if tracked else 0, np.int64)
        self._reads: dict[int, _Reads] = {}

    @property
    def end(self) -> int:
        return self.start + len(self.bytes)

    def next_kernel(self) -> None:
        """A kernel of the launch has ended: the next one comes after all it did."""
        self._written, self._reads = np.minimum(self._written, 1), {}

    def words(self, nbytes: int) -> np.ndarray:
        """The bytes as words of so many; what is left at the end is not among them."""
        return self.bytes[: len(self.bytes) // nbytes * nbytes].view(np.dtype((np.void, nbytes)))

    def _fit(self, bits: int) -> None:
        """Makes units small enough for accesses from and to multiples of a number with these low bits."""
        while bits & self._unit - 1:
            self._unit //= 2
            self._written = np.repeat(self._written, 2)
            for reads in self._reads.values():
                reads.stamps = np.repeat(reads.stamps, 2)

    def _units(self, starts: np.ndarray, nbytes: int) -> np.ndarray:
        """Those of `nbytes` from each start, one after another."""
        self._fit(int(np.bitwise_or.reduce(starts)) | nbytes)
        first = starts // self._unit
        return first if nbytes == self._unit else (first[:, None] + np.arange(nbytes // self._unit)).reshape(-1)

    def _engine_units(self, places: Places) -> slice | np.ndarray:
        if not isinstance(places, slice):
            return self._units(*places)
        self._fit(places.start | places.stop)
        return slice(places.start // self._unit, places.stop // self._unit)

    def read(
        self, starts: np.ndarray, nbytes: int, clock: AnyClock, threads: np.ndarray, initial: bool = False
    ) -> None:
        """Notes a read of `nbytes` by each thread; of what was there before the launch if `initial`."""
        if not self.tracked:
            return
        units = self._units(starts, nbytes)
        own = np.repeat(clock.stamps(threads), nbytes // self._unit)
        written = self._written[units]
        if not initial:
            self._check(written != 0, units, own, clock, "reads what nobody wrote")
        self._check(clock.precedes(written, own), units, own, clock, "reads what is written at the same time", written)
        low, high = int(starts.min()), int(starts.max()) + nbytes
        for reader, which in clock.readers(own):
            reads = self._reads_of(reader)
            reads.extend(low, high)
            self._note(reads, units[which], own[which], clock)

    def _note(self, reads: _Reads, units: np.ndarray, own: np.ndarray, clock: AnyClock) -> None:
        before = reads.stamps[units]
        shared = ~clock.precedes(before, own)
        reads.stamps[units] = own
        shared |= reads.stamps[units] != own
        reads.stamps[units[shared]] |= MANY

    def _reads_of(self, reader: int) -> _Reads:
        if reader not in self._reads:
            self._reads[reader] = _Reads(len(self._written))
        return self._reads[reader]

    def write(self, starts: np.ndarray, nbytes: int, clock: AnyClock, threads: np.ndarray) -> None:
        if not self.writable:
            raise MemoryFault(f"CTA {clock.cta} writes to {self.name}")
        if not self.tracked:
            return
        units = self._units(starts, nbytes)
        own = np.repeat(clock.stamps(threads), nbytes // self._unit)
        before = self._written[units]
        self._check(clock.precedes(before, own), units, own, clock, "writes what is written at the same time", before)
        low, high = int(starts.min()), int(starts.max()) + nbytes
        seen = clock.seen_by(own)
        for reader, reads in self._reads.items():
            if reads.low < high and low < reads.high:
                before = reads.stamps[units]
                if clock.clock_of(before.max()) > seen[reader]:
                    good = clock.precedes(before, own)
                    self._check(good, units, own, clock, "writes what is read at the same time", before)
        self._written[units] = own
        self._check(self._written[units] == own, units, own, clock, "writes what is written at the same time")

    def _check(
        self,
        good: np.ndarray,
        units: np.ndarray,
        own: np.ndarray,
        clock: AnyClock,
        what: str,
        others: np.ndarray | None = None,
    ) -> None:
        if good.all():
            return
        i = int(np.argmin(good))
        by = f", by {clock.who(others[i])}" if others is not None else ""
        raise MemoryFault(f"{clock.who(own[i])} {what}{by}: byte {units[i] * self._unit} of {self.name}")

    def engine_read(self, places: Places, clock: EngineClock) -> None:
        """A read by a copy or a product."""
        if not self.tracked:
            return
        units = self._engine_units(places)
        written = self._written[units]
        self._engine_check(written != 0, units, clock, "reads what nobody wrote")
        self._engine_check(clock.precedes(written), units, clock, "reads what is written at the same time", written)
        said = "reads what no proxy fence made visible to it"
        self._engine_check(clock.proxied(written, self.space), units, clock, said, written)
        reads = self._reads_of(clock.component)
        reads.extend(*ends(places))
        reads.stamps[units] = clock.stamp

    def engine_write(self, places: Places, clock: EngineClock) -> None:
        """A write by a copy."""
        if not self.writable:
            raise MemoryFault(f"{clock.who(clock.stamp)} writes to {self.name}")
        if not self.tracked:
            return
        units = self._engine_units(places)
        before = self._written[units]
        self._engine_check(clock.precedes(before), units, clock, "writes what is written at the same time", before)
        low, high = ends(places)
        for reader, reads in self._reads.items():
            if reads.low < high and low < reads.high:
                before = reads.stamps[units]
                if clock.clock_of(before.max()) > clock.seen[reader]:
                    good = clock.precedes(before)
                    self._engine_check(good, units, clock, "writes what is read at the same time", before)
        self._written[units] = clock.stamp

    def _engine_check(
        self,
        good: np.ndarray,
        units: slice | np.ndarray,
        clock: EngineClock,
        what: str,
        others: np.ndarray | None = None,
    ) -> None:
        if good.all():
            return
        i = int(np.argmin(good))
        unit = units.start + i if isinstance(units, slice) else units[i]
        by = f", by {clock.who(others[i])}" if others is not None else ""
        raise MemoryFault(f"{clock.who(clock.stamp)} {what}{by}: byte {unit * self._unit} of {self.name}")


def ends(places: Places) -> tuple[int, int]:
    """The first byte, and the one behind the last."""
    if isinstance(places, slice):
        return places.start, places.stop
    starts, nbytes = places
    return int(starts[0]), int(starts[-1]) + nbytes


def each_byte(places: Places) -> slice | np.ndarray:
    """To index bytes with."""
    if isinstance(places, slice):
        return places
    starts, nbytes = places
    return (starts[:, None] + np.arange(nbytes)).reshape(-1)


def ascending(places: np.ndarray) -> Places:
    """Of [elements, bytes of one], elements in any order: by 16 bytes where they are whole."""
    if places.size % 16 == 0:
        chunks = places.reshape(-1, 16)
        if not (chunks[:, 0] % 16).any() and (np.diff(chunks) == 1).all():
            places = chunks
    return np.sort(places[:, 0]), places.shape[1]


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

    def _split(self, addresses: np.ndarray, nbytes: int) -> Iterator[tuple[Region, Any]]:
        """Regions and which addresses lie in each. Raises MemoryFault for those in none."""
        region = self.find(int(addresses[0]))
        if addresses.min() >= region.start and addresses.max() + nbytes <= region.end:
            yield region, slice(None)
            return
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
            starts = addresses[inside] - region.start
            region.read(starts, nbytes, clock, threads[inside])
            if (starts % nbytes).any():
                found = region.bytes[starts[:, None] + np.arange(nbytes)]
            else:
                found = region.words(nbytes)[starts // nbytes]
            result[inside] = found.view(dtype).reshape(-1, count)
        return result

    def store(
        self, addresses: np.ndarray, values: np.ndarray, align: int, clock: AnyClock, threads: np.ndarray
    ) -> None:
        """The inverse of `load`."""
        nbytes = values.dtype.itemsize * values.shape[1]
        _aligned(addresses, align)
        content = np.ascontiguousarray(values).view(np.uint8).reshape(len(addresses), nbytes)
        for region, inside in self._split(addresses, nbytes):
            starts = addresses[inside] - region.start
            region.write(starts, nbytes, clock, threads[inside])
            if (starts % nbytes).any():
                region.bytes[starts[:, None] + np.arange(nbytes)] = content[inside]
            else:
                region.words(nbytes)[starts // nbytes] = content[inside].view((np.void, nbytes))[:, 0]


def _aligned(addresses: np.ndarray, align: int) -> None:
    if np.any(addresses % align):
        raise MemoryFault(f"address {int(addresses[np.argmax(addresses % align)]):#x} is not aligned to {align} bytes")
