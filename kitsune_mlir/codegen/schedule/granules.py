"""Granules of 16 bytes of a box in global memory, as threads copy them: where each is, and how many of its bytes the
tensor has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce

from kitsune_mlir.codegen.ampere.cp_async import NBYTES
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects.columns import open_behind, place_of, sizes_of, strides_of
from kitsune_mlir.dialects.windows import WindowsOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir

from .windows import first_of

Granule = tuple[ir.Value, ir.Value | None]  # its address, and how many bytes are there; None: all


@dataclass(frozen=True)
class TensorGranules:
    """Those of a box of a dense tensor, which begins at `at`, with rows along `outer` and neighbours along `inner`. The
    tensor has all of the box along its dimensions in `whole`; `open_` are its sizes that are open until the call. Lines
    of so many elements have been made `longer` where they have whole granules so.
    """

    pointer: ir.Value
    type_: ir.RankedTensorType
    open_: Sequence[ir.Value]
    at: Sequence[Int]
    outer: int
    inner: int
    whole: Collection[int]
    longer: bool = False

    def __post_init__(self) -> None:
        nbytes = self.type_.element_type.width // 8
        if self.type_.is_dynamic_dim(self.type_.rank - 1) and not self.longer:
            raise UnsupportedError(f"lines of {self.type_} are of an open length")
        if self.inner != self.type_.rank - 1 or place_of(self.type_).step * nbytes % NBYTES:
            raise UnsupportedError(f"rows of {self.type_} are no multiples of {NBYTES} bytes that a box lies along")

    def column(self, own_row: Int, column: Int) -> list[Granule]:
        """What `row` is given: a thread's granule in its first row."""
        place = device.offset(self.pointer, place_of(self.type_).first, self.type_.element_type)
        for dim, start in enumerate(self.at):
            index = start
            if dim == self.outer:
                index = device.add(start, own_row)
            elif dim == self.inner:
                index = device.add(start, column)
            place = _moved(place, index, strides_of(self.type_)[dim], self.type_.element_type, self._open_behind(dim))
        return [(place, None if self.inner in self.whole else self._there(column))]

    def _there(self, column: Int) -> ir.Value:
        """How many bytes of a granule the tensor's rows have."""
        columns, nbytes = self._size(self.inner), self.type_.element_type.width // 8
        first = device.add(self.at[self.inner], column)
        if isinstance(columns, int) and columns * nbytes % NBYTES == 0:
            return _bytes_where(device.less(first, columns), device.value(NBYTES))
        left = device.mul(device.sub(columns, first), nbytes)
        return arith.maxsi(device.value(device.least(left, NBYTES)), device.value(0))

    def row(self, own_row: Int, row: int, first: list[Granule]) -> Granule:
        """The granule so many rows further."""
        ((place, there),) = first
        stride = strides_of(self.type_)[self.outer]
        place = _moved(place, row, stride, self.type_.element_type, self._open_behind(self.outer))
        if self.outer not in self.whole:
            start = device.add(self.at[self.outer], own_row)
            here = device.less(start, device.sub(self._size(self.outer), row))
            there = _bytes_where(here, device.value(NBYTES) if there is None else there)
        return place, there

    def _open_behind(self, dim: int) -> list[ir.Value]:
        """The open sizes, or lengths of lines, that neighbours along a dimension are apart times."""
        found = open_behind(self.type_, self.open_)[dim]
        if found and self.longer:
            count = NBYTES * 8 // self.type_.element_type.width
            words = device.div(device.add(found[-1], count - 1), count)
            found[-1] = device.value(device.mul(words, count))
        return found

    def _size(self, dim: int) -> Int:
        return sizes_of(self.type_, self.open_)[dim]


@dataclass(frozen=True)
class WindowGranules:
    """Those of a box of a matrix of windows, at `at` in it: of images at `pointer`, `images` of which there are."""

    matrix: WindowsOp
    pointer: ir.Value
    images: Int
    at: Sequence[Int]

    def __post_init__(self) -> None:
        element = self._element
        if any(pitch * element.width // 8 % NBYTES for pitch in self.matrix.pitches[:-1]):
            raise UnsupportedError(f"elements of {self.matrix.operands[0].type} do not begin at {NBYTES} bytes")

    @property
    def _element(self) -> ir.Type:
        return ir.RankedTensorType(self.matrix.operands[0].type).element_type

    def column(self, own_row: Int, column: Int) -> Int:
        """What `row` is given: a thread's column in the matrix."""
        return device.add(self.at[-1], column)

    def row(self, own_row: Int, row: int, column: Int) -> Granule:
        """The granule so many rows below a thread's first, of the window that is there."""
        windows, element = self.matrix.windows, self._element
        index, axis = [*self.at[:-1], column], self.matrix.axes[0]
        index[axis] = device.add(device.add(self.at[axis], own_row), row)
        (image, *begin, channel), offsets = first_of(self.matrix, index)
        places = [device.add(start, offset) for start, offset in zip(begin, offsets, strict=True)]
        inside = [device.below(place, size) for place, size in zip(places, windows.sizes, strict=True)]
        inside.append(device.below(image, self.images))
        place = self.pointer
        for at, pitch in zip((image, *places, channel), self.matrix.pitches, strict=True):
            place = _moved(place, at, pitch, element)
        left = device.mul(device.sub(windows.channels, channel), element.width // 8)
        there = arith.maxsi(device.value(device.least(left, NBYTES)), device.value(0))
        return place, _bytes_where(reduce(arith.andi, inside), there)


def _bytes_where(inside: ir.Value, count: ir.Value) -> ir.Value:
    return arith.select(inside, count, device.value(0))


def _moved(pointer: ir.Value, count: Int, stride: int, element: ir.Type, sizes: Sequence[ir.Value] = ()) -> ir.Value:
    """The address `count` times `stride` elements on, and times these sizes, computed in 64 bits."""
    if isinstance(count, int) and not (count and sizes):
        return device.offset(pointer, count * stride, element)
    return device.further(pointer, count, stride, element, sizes, arith.extsi)
