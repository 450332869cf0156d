"""An address space of regions (memory.py): what threads load, store and add to, by address."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .faults import MemoryFault
from .lanes import least, most
from .memory import AnyClock, Region


class Space:
    """An address space: regions that do not overlap. It is `early` for threads that have not waited for the kernel
    before: what that one may still write is not there yet."""

    def __init__(self, regions: Sequence[Region], early: bool = False):
        self._early = early
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
        if self._early and self._regions[number].pending:
            raise MemoryFault(f"{self._regions[number].name} is used before the wait for the kernel before")
        return self._regions[number]

    @property
    def before_wait(self) -> Space:
        """The same, for threads that have not waited for the kernel before."""
        return Space(self._regions, early=True)

    def _split(self, addresses: np.ndarray, nbytes: int) -> Iterator[tuple[Region, Any]]:
        """Regions and which addresses lie in each. Raises MemoryFault for those in none."""
        region = self.find(int(addresses[0]))
        if least(addresses) >= region.start and most(addresses) + nbytes <= region.end:
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
        _aligned(addresses, align, nbytes)
        result = None
        for region, inside in self._split(addresses, nbytes):
            whole = isinstance(inside, slice)
            starts = (addresses if whole else addresses[inside]) - region.start
            region.read(starts, nbytes, clock, threads if whole else threads[inside])
            if np.bitwise_or.reduce(starts) & nbytes - 1:
                found = region.bytes[starts[:, None] + np.arange(nbytes)]
            else:
                found = region.words(nbytes).take(starts // nbytes)
            found = found.view(dtype).reshape(-1, count)
            if whole:
                return found
            result = np.empty((len(addresses), count), dtype) if result is None else result
            result[inside] = found
        return result

    def prefetch(self, addresses: np.ndarray, nbytes: np.ndarray) -> None:
        """Looks whether there is memory: bringing it to L2 changes nothing."""
        for address, count in zip(addresses.astype(np.int64), nbytes.astype(np.int64), strict=True):
            _aligned(np.array([address, count]), 16, 16)
            self.find(int(address))
            self.find(int(address + count - 1))

    def add(self, addresses: np.ndarray, values: np.ndarray) -> None:
        """Adds rows of `values` to what lies at the addresses, atomically: what nobody else reads or writes."""
        nbytes = values.dtype.itemsize * values.shape[1]
        _aligned(addresses, nbytes, nbytes)
        for region, inside in self._split(addresses, nbytes):
            if region.tracked or not region.writable:
                raise MemoryFault(f"rows are added to {region.name}, which is not zero before")
            for start, row in zip(addresses[inside] - region.start, values[inside], strict=True):
                region.bytes[start : start + nbytes].view(values.dtype)[:] += row

    def store(
        self, addresses: np.ndarray, values: np.ndarray, align: int, clock: AnyClock, threads: np.ndarray
    ) -> None:
        """The inverse of `load`."""
        nbytes = values.dtype.itemsize * values.shape[1]
        _aligned(addresses, align, nbytes)
        content = np.ascontiguousarray(values).view(np.uint8).reshape(len(addresses), nbytes)
        for region, inside in self._split(addresses, nbytes):
            starts = addresses[inside] - region.start
            region.write(starts, nbytes, clock, threads[inside])
            if np.bitwise_or.reduce(starts) & nbytes - 1:
                region.bytes[starts[:, None] + np.arange(nbytes)] = content[inside]
            else:
                words = region.words(nbytes)
                words[starts // nbytes] = content[inside].view(words.dtype)[:, 0]


def _aligned(addresses: np.ndarray, align: int, nbytes: int) -> None:
    assert not align & align - 1 and not nbytes & nbytes - 1, "only accesses of a power of two of bytes are known"
    if np.bitwise_or.reduce(addresses) & align - 1:
        raise MemoryFault(f"address {int(addresses[np.argmax(addresses % align)]):#x} is not aligned to {align} bytes")
