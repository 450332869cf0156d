"""Boxes of tensors between global and shared memory (PTX ISA, cp.async.bulk.tensor; CUDA Driver API,
cuTensorMapEncodeTiled)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .arithmetic import DTYPES
from .faults import MemoryFault
from .memory import Region

MAP_BYTES = 128


@dataclass(frozen=True)
class Box:
    """A tensor map, encoded for a call. `pointer` is an address of global memory; dimension 0 is the fastest."""

    pointer: int
    itemsize: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes, of every dimension
    box: tuple[int, ...]
    swizzle: int

    @property
    def nbytes(self) -> int:
        return prod(self.box) * self.itemsize

    @property
    def align(self) -> int:
        """What its place in shared memory is a multiple of: a swizzle's pattern repeats after as many rows of 128
        bytes."""
        return max(8 * self.swizzle, 128)


def encode(described: dict[str, Any], pointer: int, rows: int) -> Box:
    """From a launch's description, checked as the driver does."""
    itemsize = np.dtype(DTYPES[described["element"]]).itemsize
    dims = tuple(rows if size is None else size for size in described["dims"])
    strides, box, swizzle = (itemsize, *described["strides"]), tuple(described["box"]), described["swizzle"]
    inner = box[0] * itemsize
    assert 1 <= len(dims) == len(strides) == len(box) <= 5
    assert pointer % 16 == 0 and all(stride % 16 == 0 and stride < 1 << 40 for stride in strides[1:])
    assert all(1 <= size <= 1 << 32 for size in dims) and all(1 <= size <= 256 for size in box) and inner % 16 == 0
    assert swizzle in (0, 32, 64, 128)
    assert swizzle in (0, inner), f"rows of {inner} bytes in a box with a swizzle of {swizzle} are not known here"
    return Box(pointer, itemsize, dims, strides, box, swizzle)


def _elements(box: Box, at: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """For elements of the box in its order: byte offsets from the tensor's pointer, and which exist."""
    offset, exists = np.zeros(1, np.int64), np.ones(1, np.bool_)
    for first, size, stride, length in zip(at, box.dims, box.strides, box.box, strict=True):
        index = first + np.arange(length)
        inside = (index >= 0) & (index < size)
        offset = (np.where(inside, index, 0)[:, None] * stride + offset).reshape(-1)
        exists = (inside[:, None] & exists).reshape(-1)
    return offset, exists


@functools.cache
def swizzled(nbytes: int, swizzle: int) -> np.ndarray:
    """Where each 16-byte chunk of a box lies, counted in chunks: address bits 4.. change by bits 7.. ."""
    chunk = np.arange(nbytes // 16)
    return chunk ^ (chunk >> 3 & swizzle // 16 - 1) if swizzle else chunk


def box_places(region: Region, box: Box, at: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """[elements that exist, bytes of one]: places in the region; and which elements of the box exist."""
    offset, exists = _elements(box, at)
    found = box.pointer - region.start + offset[exists]
    if len(found) and found.max() + box.itemsize > len(region.bytes):
        raise MemoryFault(f"a tensor map goes beyond the end of {region.name}")
    return found[:, None] + np.arange(box.itemsize), exists


def read_box(region: Region, box: Box, at: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The bytes as they lie in shared memory, and, [elements, bytes of one], where they are in the region."""
    taken, exists = box_places(region, box, at)
    elements = np.zeros((len(exists), box.itemsize), np.uint8)
    elements[exists] = region.bytes[taken]
    chunks = elements.reshape(-1, 16)
    content = np.empty_like(chunks)
    content[swizzled(box.nbytes, box.swizzle)] = chunks
    return content.reshape(-1), taken


def laid_out(box: Box) -> np.ndarray:
    """[elements, bytes of one]: where the elements of the box lie in shared memory, from its start."""
    places = swizzled(box.nbytes, box.swizzle)[:, None] * 16 + np.arange(16)
    return places.reshape(-1, box.itemsize)
