"""Memory addressed by bytes. Finds accesses out of bounds, misaligned, unordered, and reads of what nobody wrote.

Races are found whether or not they show in the numbers. A CTA's clock is the number of barriers it has
passed. An access must come after every earlier one of another thread to the same byte, one of them a write:
in the same CTA a barrier later; in another CTA after a release that follows a barrier, an acquire, and a
barrier again. (PTX ISA, Memory Consistency Model: causality order.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .clocks import GROUP, EngineClock, WarpClock, in_groups
from .faults import MemoryFault
from .lanes import every, least, most, some

THREAD_BITS, CTA_BITS = 12, 12  # of a stamp; the clock is above them
MANY = (1 << THREAD_BITS) - 1  # several threads of a CTA


class Clock:
    """What one CTA's threads come after: accesses of CTA c up to its clock `seen[c]`."""

    def __init__(self, cta: int, ctas: int):
        self.cta, self.now = cta, 1
        self.seen = np.zeros(in_groups(ctas), np.int64)
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

    def all_come_after(self, stamp: int, threads: np.ndarray) -> bool:
        """Whether accesses by all of these threads come after that of a stamp, by what the whole CTA has seen."""
        return self.clock_of(stamp) <= int(self.seen[stamp >> THREAD_BITS & (1 << CTA_BITS) - 1])

    def seen_by(self, threads: np.ndarray, others: slice) -> np.ndarray:
        """Up to which clocks of others all of these threads come after them."""
        return self.seen[others]

    def own_seen(self, threads: np.ndarray) -> int:
        """Up to which clock each of these threads comes after accesses of its own reader."""
        return int(self.seen[self.cta])

    @staticmethod
    def clock_of(stamp: Any) -> Any:
        return stamp >> (THREAD_BITS + CTA_BITS)

    def readers(self, threads: np.ndarray) -> range:
        """Who is said to read where these threads do."""
        return range(self.cta, self.cta + 1)

    def reader_of(self, threads: np.ndarray) -> np.ndarray:
        """Which of them each thread is, counted from the first."""
        return np.zeros(len(threads), np.int64)

    def who(self, stamp: int) -> str:
        thread, cta = int(stamp) & MANY, (int(stamp) >> THREAD_BITS) & ((1 << CTA_BITS) - 1)
        return f"CTA {cta} " + ("several threads" if thread == MANY else f"thread {thread}")


class _Reads:
    """Stamps of the last read of each unit by each of a GROUP of readers; 0 outside of bytes `low` to `high`."""

    def __init__(self, group: int, units: int):
        self._first, self._end = GROUP, 0  # readers so far, counted in the group
        self._before, self.low, self.high = group * GROUP, 1 << 62, 0
        self.stamps = np.zeros((GROUP, units), np.int64)

    def extend(self, low: int, high: int, first: int, last: int) -> None:
        """Counts a read, from a byte to another, by readers of these numbers to what the group has had."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._first, self._end = min(self._first, first), max(self._end, last + 1)

    def latest(self, units: slice | np.ndarray) -> tuple[slice, np.ndarray, np.ndarray]:
        """Readers, for each its stamps of some units, and the greatest of these."""
        rows = self.stamps[self._first : self._end]
        stamps = rows[:, units] if isinstance(units, slice) else rows.take(units, axis=1)
        return slice(self._before + self._first, self._before + self._end), stamps, most(stamps, axis=1)

    def halve(self, unit: int) -> None:
        """Each unit, of so many bytes, becomes two. What was never touched is left alone."""
        before, self.stamps = self.stamps, np.zeros((GROUP, 2 * self.stamps.shape[1]), np.int64)
        first, end, rows = self.low // unit, -(-self.high // unit), slice(self._first, self._end)
        if first < end:
            self.stamps[rows, 2 * first : 2 * end] = np.repeat(before[rows, first:end], 2, axis=1)


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
        self._reads: dict[int, _Reads] = {}  # by group
        self.end = start + len(content)
        self._words: dict[int, np.ndarray] = {}
        self.pending = False  # whether a kernel before, which may not have ended, writes or reads it

    def fill(self) -> None:
        """What it holds was written before the launch."""
        self._written[:] = MANY

    def words(self, nbytes: int) -> np.ndarray:
        """The bytes as words of so many; what is left at the end is not among them."""
        if nbytes not in self._words:
            kind = np.dtype(f"u{nbytes}") if nbytes in (1, 2, 4, 8) else np.dtype((np.void, nbytes))
            self._words[nbytes] = self.bytes[: len(self.bytes) // nbytes * nbytes].view(kind)
        return self._words[nbytes]

    def _fit(self, bits: int) -> None:
        """Makes units small enough for accesses from and to multiples of a number with these low bits."""
        while bits & self._unit - 1:
            for reads in self._reads.values():
                reads.halve(self._unit)
            self._unit //= 2
            self._written = np.repeat(self._written, 2)

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
        units, own, times = self._access(starts, nbytes, clock, threads)
        written = self._written[units]
        if not initial and np.count_nonzero(written) < len(written):
            self._check(written != 0, units, own, clock, "reads what nobody wrote")
        if not _come_before(written, own, clock, threads):
            said = "reads what is written at the same time"
            self._check(clock.precedes(written, own), units, own, clock, said, written)
        low, high = int(least(starts)), int(most(starts)) + nbytes
        readers = clock.readers(threads)
        first, last = readers.start, readers.stop - 1
        if first == last:
            self._note(self._reads_of(first, last, low, high), first % GROUP, units, own, clock, threads)
        elif first // GROUP == last // GROUP:
            rows = clock.reader_of(threads) + first % GROUP
            rows = np.repeat(rows, times) if times > 1 else rows
            self._note(self._reads_of(first, last, low, high), rows, units, own, clock, threads)
        else:
            which = np.repeat(clock.reader_of(threads), times)
            for number, reader in enumerate(readers):
                if (some := which == number).any():
                    reads = self._reads_of(reader, reader, low, high)
                    self._note(reads, reader % GROUP, units[some], own[some], clock, threads)

    def _reads_of(self, first: int, last: int, low: int, high: int) -> _Reads:
        """Those of a group, of which some readers read from a byte to another."""
        group = first // GROUP
        if group not in self._reads:
            self._reads[group] = _Reads(group, len(self._written))
        self._reads[group].extend(low, high, first % GROUP, last % GROUP)
        return self._reads[group]

    def _access(
        self, starts: np.ndarray, nbytes: int, clock: AnyClock, threads: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The units of an access, their stamps, and how many units each thread has."""
        units, own = self._units(starts, nbytes), clock.stamps(threads)
        times = nbytes // self._unit
        return units, np.repeat(own, times) if times > 1 else own, times

    def _note(
        self, reads: _Reads, rows: Any, units: np.ndarray, own: np.ndarray, clock: AnyClock, threads: np.ndarray
    ) -> None:
        """Those that several threads do unordered get the stamp of several. `rows` are the readers, or one for all."""
        if isinstance(rows, int):
            stamps, places = reads.stamps[rows], units
        else:  # with one index numpy is several times faster than with two
            stamps, places = reads.stamps.reshape(-1), units + rows * reads.stamps.shape[1]
        before = stamps[places]
        stamps[places] = own
        shared = stamps[places] != own
        if clock.clock_of(int(most(before))) > clock.own_seen(threads):
            shared |= ~clock.precedes(before, own)
        if some(shared):
            stamps[places[shared]] |= MANY

    def write(self, starts: np.ndarray, nbytes: int, clock: AnyClock, threads: np.ndarray) -> None:
        if not self.writable:
            raise MemoryFault(f"CTA {clock.cta} writes to {self.name}")
        if not self.tracked:
            return
        units, own, _ = self._access(starts, nbytes, clock, threads)
        before, twice = self._written[units], "writes what is written at the same time"
        if not _come_before(before, own, clock, threads):
            self._check(clock.precedes(before, own), units, own, clock, twice, before)
        low, high = int(least(starts)), int(most(starts)) + nbytes
        for reads in self._reads.values():
            if reads.low < high and low < reads.high:
                readers, stamps, latest = reads.latest(units)
                for row in (clock.clock_of(latest) > clock.seen_by(threads, readers)).nonzero()[0]:
                    good, said = clock.precedes(stamps[row], own), "writes what is read at the same time"
                    self._check(good, units, own, clock, said, stamps[row])
        self._written[units] = own
        self._check(self._written[units] == own, units, own, clock, twice)

    def _check(
        self,
        good: np.ndarray,
        units: slice | np.ndarray,
        own: int | np.ndarray,
        clock: AnyClock | EngineClock,
        what: str,
        others: np.ndarray | None = None,
    ) -> None:
        """Raises MemoryFault for the first unit that is not good; `own` is the stamp of all of them, or of each."""
        if every(good):
            return
        i = int(np.argmin(good))
        unit = units.start + i if isinstance(units, slice) else units[i]
        by = f", by {clock.who(others[i])}" if others is not None else ""
        who = clock.who(own[i] if isinstance(own, np.ndarray) else own)
        raise MemoryFault(f"{who} {what}{by}: byte {unit * self._unit} of {self.name}")

    def engine_read(self, places: Places, clock: EngineClock) -> None:
        """A read by a copy or a product."""
        if not self.tracked:
            return
        units = self._engine_units(places)
        written = self._written[units]
        self._check(written != 0, units, clock.stamp, clock, "reads what nobody wrote")
        self._check(
            clock.precedes(written), units, clock.stamp, clock, "reads what is written at the same time", written
        )
        said = "reads what no proxy fence made visible to it"
        self._check(clock.proxied(written, self.space), units, clock.stamp, clock, said, written)
        reads = self._reads_of(clock.component, clock.component, *ends(places))
        reads.stamps[clock.component % GROUP][units] = clock.stamp

    def engine_write(self, places: Places, clock: EngineClock) -> None:
        """A write by a copy."""
        if not self.writable:
            raise MemoryFault(f"{clock.who(clock.stamp)} writes to {self.name}")
        if not self.tracked:
            return
        units = self._engine_units(places)
        before = self._written[units]
        self._check(
            clock.precedes(before), units, clock.stamp, clock, "writes what is written at the same time", before
        )
        asks_for_fences, known, unfenced = self.space == "global", clock.seen, "with no proxy fence between"
        if asks_for_fences:
            known, proxied = np.minimum(known, clock.fenced(self.space)), clock.proxied(before, self.space)
            self._check(proxied, units, clock.stamp, clock, f"writes what is written {unfenced}", before)
        low, high = ends(places)
        for reads in self._reads.values():
            if reads.low < high and low < reads.high:
                readers, stamps, latest = reads.latest(units)
                for row in (clock.clock_of(latest) > known[readers]).nonzero()[0]:
                    good, said = clock.precedes(stamps[row]), "writes what is read at the same time"
                    self._check(good, units, clock.stamp, clock, said, stamps[row])
                    if asks_for_fences:
                        good, said = clock.proxied(stamps[row], self.space), f"writes what is read {unfenced}"
                        self._check(good, units, clock.stamp, clock, said, stamps[row])
        self._written[units] = clock.stamp


def _come_before(stamps: np.ndarray, own: np.ndarray, clock: AnyClock, threads: np.ndarray) -> bool:
    """Whether accesses of these stamps all come before those of `own`, where that is seen at once: there is one
    stamp. False says nothing."""
    first = stamps[0]
    return not some(stamps != first) and clock.all_come_after(int(first), threads)


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
    return pieces(*places).reshape(-1)


def pieces(starts: np.ndarray, nbytes: int) -> np.ndarray:
    """[starts, nbytes]: the places of so many bytes from each start."""
    return starts[:, None] + np.arange(nbytes)


def ascending(places: np.ndarray) -> Places:
    """The places [pieces, bytes of one] of pieces in any order: by 16 bytes where they are whole."""
    if places.size % 16 == 0 and places.shape[1] < 16:
        chunks = places.reshape(-1, 16)
        if not (chunks[:, 0] % 16).any() and (np.diff(chunks) == 1).all():
            places = chunks
    return np.sort(places[:, 0]), places.shape[1]
