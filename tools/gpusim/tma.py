"""Boxes of tensors between global and shared memory (PTX ISA, cp.async.bulk.tensor; CUDA Driver API,
cuTensorMapEncodeTiled)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from kitsune_mlir.runtime.tensor_map import dims_at, strides_at

from .arithmetic import DTYPES
from .faults import MemoryFault
from .memory import Region
from .mma import to_tf32

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
    # Of a map of windows (PTX ISA, Im2col mode), whose box is of channels and windows: along each dimension of space,
    # where windows begin, relative to the image's first and last element, and how far they are apart.
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    rounds: bool = False  # f32 to tf32, on its way to shared memory

    @property
    def nbytes(self) -> int:
        return prod(self.box) * self.itemsize

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.box[0] * self.itemsize

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next in shared memory."""
        return max(self.row, self.swizzle)

    @property
    def room(self) -> int:
        """Bytes from the box's first in shared memory to behind its last row's."""
        return self.nbytes // self.row * self.pitch

    @property
    def align(self) -> int:
        """What its place in shared memory is a multiple of: a swizzle's pattern repeats after as many rows of 128
        bytes."""
        return max(8 * self.swizzle, 128)


def encode(described: dict[str, Any], pointer: int, sizes: Sequence[int]) -> Box:
    """Makes a box of a launch's description, for calls of these open sizes, and checks it as the driver does."""
    rounds = described["element"] == "tf32"
    itemsize = np.dtype(DTYPES["f32" if rounds else described["element"]]).itemsize
    dims = tuple(dims_at(described, sizes))
    strides, box, swizzle = (itemsize, *strides_at(described, dims)), tuple(described["box"]), described["swizzle"]
    corners = tuple(tuple(described.get(name, ())) for name in ("lower", "upper", "steps"))
    inner = box[0] * itemsize
    assert 1 <= len(dims) == len(strides) <= 5
    if corners[2]:
        most = 1 << {3: 15, 4: 7, 5: 4}[len(dims)]
        assert len(box) == 2 and all(len(corner) == len(dims) - 2 for corner in corners)
        assert all(-most <= x < most for corner in corners[:2] for x in corner)
        assert all(1 <= step <= 8 for step in corners[2]) and box[1] <= 1024
    else:
        assert len(box) == len(dims) and all(size <= 256 for size in box)
    assert pointer % 16 == 0 and all(stride % 16 == 0 and stride < 1 << 40 for stride in strides[1:])
    assert all(1 <= size <= 1 << 32 for size in dims) and min(box) >= 1 and box[0] <= 256 and inner % 16 == 0
    assert swizzle in (0, 32, 64, 128)
    assert not swizzle or inner <= swizzle, f"rows of {inner} bytes in a box with a swizzle of {swizzle}"
    return Box(pointer, itemsize, dims, strides, box, swizzle, *corners, rounds)


CHUNK = 16  # bytes that a swizzle leaves together, of which rows of a box are multiples


def _pieces(box: Box, at: Sequence[int]) -> tuple[np.ndarray, np.ndarray, int]:
    """For pieces of the box in its order: byte offsets from the tensor's pointer, and which exist; and the bytes of
    one: a chunk where rows are whole, else an element."""
    if box.steps:
        return *_elements_of_windows(box, at), box.itemsize
    strides, lengths, piece = box.strides, box.box, box.itemsize
    offset, exists = np.zeros(1, np.int64), np.ones(1, np.bool_)
    if 0 <= at[0] <= box.dims[0] - lengths[0]:
        piece, chunks = CHUNK, lengths[0] * box.itemsize // CHUNK
        offset, exists = at[0] * box.itemsize + CHUNK * np.arange(chunks), np.ones(chunks, np.bool_)
    outer = slice(1 if piece == CHUNK else 0, None)
    for first, size, stride, length in zip(at[outer], box.dims[outer], strides[outer], lengths[outer], strict=True):
        index = first + np.arange(length)
        inside = (index >= 0) & (index < size)
        offset = (np.where(inside, index, 0)[:, None] * stride + offset).reshape(-1)
        exists = (inside[:, None] & exists).reshape(-1)
    return offset, exists, piece


def _elements_of_windows(box: Box, at: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The same for windows: `at` is where the first one begins, then how far the filter's element is from there."""
    rank, (channels, count) = len(box.dims), box.box
    begin, offsets = at[1 : rank - 1], at[rank:]
    number, counts = 0, []
    for first, size, low, high, step in reversed(list(zip(begin, box.dims[1:], box.lower, box.upper, box.steps))):
        last = size - 1 + high
        if not low <= first <= last or (first - low) % step:
            raise MemoryFault(f"windows begin at {first}, where none from {low} to {last} in steps of {step} does")
        counts.append((last - low) // step + 1)
        number = number * counts[-1] + (first - low) // step
    windows = number + np.arange(count)
    image = at[rank - 1] + windows // prod(counts)
    offset, exists = image * box.strides[rank - 1], (image >= 0) & (image < box.dims[rank - 1])
    for d, places in enumerate(reversed(counts)):
        index = box.lower[d] + windows % places * box.steps[d] + offsets[d]
        windows = windows // places
        exists = exists & (index >= 0) & (index < box.dims[1 + d])
        offset = offset + index * box.strides[1 + d]
    channel = at[0] + np.arange(channels)
    there = exists[:, None] & (channel >= 0) & (channel < box.dims[0])
    places = np.where(there, offset[:, None] + channel * box.itemsize, 0)
    return places.reshape(-1), there.reshape(-1)


@functools.cache
def swizzled(nbytes: int, swizzle: int, row: int) -> np.ndarray:
    """Where each 16-byte chunk of a box lies, counted in chunks: address bits 4.. change by bits 7.. . A `row` of
    fewer bytes than the swizzle leaves room for these."""
    chunk = np.arange(nbytes // CHUNK)
    if not swizzle:
        return chunk
    chunk = chunk // (row // CHUNK) * (swizzle // CHUNK) + chunk % (row // CHUNK)
    return chunk ^ (chunk >> 3 & swizzle // 16 - 1)


def box_places(region: Region, box: Box, at: Sequence[int]) -> tuple[np.ndarray, np.ndarray, int]:
    """Of the pieces of the box that exist, where they begin in the region; which of its pieces exist; the bytes of
    one."""
    offset, exists, piece = _pieces(box, at)
    found = box.pointer - region.start + offset[exists]
    if len(found) and found.max() + piece > len(region.bytes):
        raise MemoryFault(f"a tensor map goes beyond the end of {region.name}")
    return found, exists, piece


def stored_places(region: Region, box: Box, at: Sequence[int]) -> tuple[np.ndarray, np.ndarray, int]:
    """The same of pieces that a store writes: of a row that ends within 16 bytes all of these (causes.md)."""
    taken, exists, piece = box_places(region, box, at)
    if piece == CHUNK or box.steps:
        return taken, exists, piece
    places = np.zeros(len(exists), np.int64)
    places[exists] = taken
    first = places.reshape(-1, CHUNK // piece)[:, :1]
    begun = exists.reshape(-1, CHUNK // piece)[:, :1]
    places = first + piece * np.arange(CHUNK // piece)
    written = (begun & (places + piece <= len(region.bytes))).reshape(-1)
    return places.reshape(-1)[written], written, piece


def read_box(region: Region, box: Box, at: Sequence[int]) -> tuple[np.ndarray, tuple[np.ndarray, int]]:
    """The bytes as they lie in shared memory, and which the region's are: where pieces begin, and the bytes of one."""
    taken, exists, piece = box_places(region, box, at)
    pieces = np.zeros((len(exists), piece), np.uint8)
    if not (taken % piece).any():
        words = region.words(piece)
        pieces.view(words.dtype)[exists, 0] = words[taken // piece]
    else:
        pieces[exists] = region.bytes[taken[:, None] + np.arange(piece)]
    chunks = pieces.reshape(-1, CHUNK)
    if box.rounds:
        chunks = to_tf32(chunks.view(np.float32), ties_up=False).view(np.uint8)
    content = np.full((box.room // CHUNK, CHUNK), 0xFF, np.uint8)  # beside narrow rows nobody may read
    content[swizzled(box.nbytes, box.swizzle, box.row)] = chunks
    return content.reshape(-1), (taken, piece)


def laid_out(box: Box, piece: int) -> np.ndarray:
    """[pieces, bytes of one]: where the pieces of the box lie in shared memory, from its start."""
    places = swizzled(box.nbytes, box.swizzle, box.row)[:, None] * CHUNK + np.arange(CHUNK)
    return places.reshape(-1, piece)
