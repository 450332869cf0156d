"""Boxes of tensors in global memory, as threads read and write them, element by element or in pairs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

from kitsune_mlir.codegen.hopper.fragments import BLOCK, is_packed, pack, unpack
from kitsune_mlir.codegen.hopper.quads import QUAD, transposed
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int, Offset
from kitsune_mlir.codegen.pipeline.memory import narrowed, storage_type, widened
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.columns import is_among_columns, open_behind, place_of, sizes_of, strides_of
from kitsune_mlir.mlir import arith, ir


class GlobalBox:
    """The box at `at` of a tensor, `axes` the dimensions of the box; `open_` are the tensor's sizes that are open
    until the call. It has all of the box along its dimensions in `whole`, which gives their sizes. Reads beyond
    the tensor give its last element. The rows of tiles, or their columns where it lies `across`, are places of a
    `patch`, if one is given, whose lines have so many: the box has a dimension more than indices then. An even
    column is `pair` and an even number: who reads it gets the next one with it."""

    pair: ir.Value | None = None
    aligned = False  # the box's columns begin at a multiple of a block
    even = True  # at an even one, so that pairs of them lie at multiples of their size

    def __init__(
        self,
        pointer: ir.Value,
        type_: ir.Type,
        open_: Sequence[ir.Value],
        at: Sequence[Int],
        axes: Sequence[int],
        whole: Mapping[int, int] = MappingProxyType({}),
        patch: int | None = None,
        across: bool = False,
    ):
        self._whole, self._patch, self._across = whole, patch, across
        kind = ir.RankedTensorType(type_)
        self.element, self._at, self._axes = kind.element_type, list(at), list(axes)
        self._sizes, self._strides, self._behind = sizes_of(kind, open_), strides_of(kind), open_behind(kind, open_)
        self._step = 0  # divides the place of each row's first element among longer rows; 0: the tensor is dense
        self._pointer = pointer
        if is_among_columns(kind):
            self._step = place_of(kind).step
            self._pointer = device.offset(pointer, place_of(kind).first, storage_type(self.element))
        self._bases: dict[tuple[ir.Block, Int | None], ir.Value] = {}
        self._moved_on: dict[tuple[ir.Block, int, ir.Value], ir.Value] = {}  # where a thread's columns begin
        self._pairs: dict[tuple[ir.Block, Int, int], list[ir.Value]] = {}
        self._words: dict[tuple[ir.Block, Int, int], ir.Value] = {}  # by the number of a block of columns
        self._places: dict[tuple[ir.Block, Int], tuple[Int, Int]] = {}  # of rows in a patch

    @property
    def takes_words(self) -> bool:
        """Whether 16 bytes of elements along the box's last dimension are stored together, at multiples of them."""
        last = self._axes[-1]
        size, count = self._sizes[last], 16 * 8 // storage_type(self.element).width
        whole = isinstance(size, int) and size % count == 0 and self._step % count == 0
        return is_packed(self.element) and whole and self._strides[last] == 1

    @property
    def takes_pairs(self) -> bool:
        """Whether two elements along the box's last dimension are stored together: neighbours, the first at an address
        that is a multiple of both."""
        return self._is_even and (is_packed(self.element) or self.element.width == 32)

    @property
    def _is_even(self) -> bool:
        """Whether neighbours along the box's last dimension, the first at an even place, are both there."""
        last = self._axes[-1]
        even = isinstance(self._sizes[last], int) and self._sizes[last] % 2 == 0 and self._step % 2 == 0
        return even and self._strides[last] == 1

    @property
    def _loads_pairs(self) -> bool:
        """Whether two neighbours are loaded together: those that are stored so, and bytes of conditions."""
        return self.even and (self.takes_pairs or self._is_even and self.element.width == 1)

    def _parts(self, dim: int, index: Int) -> list[tuple[int, Int]]:
        """An index along a tile's dimension as indices along the box's."""
        if self._patch is None:
            return [(dim, index)]
        own = len(self._axes) - 2 if self._across else 0  # the dimension whose places are the patch's
        if dim != own:
            return [(dim + (dim > own), index)]
        key = ir.InsertionPoint.current.block, index
        if key not in self._places:
            self._places[key] = device.div(index, self._patch), device.mod(index, self._patch)
        line, place = self._places[key]
        return [(own, line), (own + 1, place)]

    def surely_has(self, dim: int, index: Int) -> bool:
        """Whether it is known now that the tensor has the index along a tile's dimension `dim`."""
        return all(self._has(*part) for part in self._parts(dim, index))

    def _has(self, dim: int, index: Int) -> bool:
        size = self._sizes[self._axes[dim]]
        if dim in self._whole and self._is_in_box(dim, index):
            return True
        return isinstance(size, int) and device.is_less(self._along(dim, index), size) is True

    def _is_in_box(self, dim: int, index: Int) -> bool:
        """Whether an index is not one of those that a thread's columns go on to behind a box: of what stands beside
        others in a tile, they may end in the middle of a block of columns."""
        return not isinstance(index, Offset) or index.span is None or device.is_less(index, self._whole[dim]) is True

    def is_inside(self, dim: int, index: Int) -> ir.Value:
        """Whether the tensor has the index along a tile's dimension `dim`."""
        found = []
        for part, own in self._parts(dim, index):
            axis = self._axes[part]
            found.append(device.less(device.add(self._at[axis], own), self._sizes[axis]))
        return reduce(arith.andi, found)

    @contextlib.contextmanager
    def where_inside(self, dim: int, index: Int) -> Iterator[None]:
        """What is built inside happens where the tensor has that index."""
        with contextlib.nullcontext() if self.surely_has(dim, index) else device.when(self.is_inside(dim, index)):
            yield

    def load(self, index: Sequence[Int]) -> ir.Value:
        """The element at an index in the box, of the compute type."""
        last = index[-1] if index else None
        if isinstance(last, Offset) and self.pair is not None and last.base == self.pair and self._loads_pairs:
            return widened(self._load_of_pair(index[:-1], last), self.element)
        place = self._place(self._all_clamped(index))
        return widened(device.load(place, storage_type(self.element)), self.element)

    def load_together(self, index: Sequence[Int]) -> ir.Value:
        """`load` where all threads of a warp are: the four that have a row together load 16 bytes each of it, and give
        the others their pairs."""
        if len(index) != 2 or not self._takes_wide(index[1]):
            return self.load(index)
        row, column = index
        assert isinstance(column, Offset)
        block, e = divmod(column.constant, BLOCK)
        key = (ir.InsertionPoint.current.block, row, block)
        if key not in self._words:
            first, lane = block // QUAD * QUAD, device.div(column.base, 2)
            start = Offset(device.value(device.mul(column.base, BLOCK // 2)), BLOCK * first)
            place = self._place([*self._all_clamped([row]), self._along(len(self._axes) - 1, start)])
            words = transposed(device.load_together(place, QUAD, device.i32()), device.value(lane))
            self._words.update(((*key[:2], first + number), word) for number, word in enumerate(words))
        return unpack(self._words[key], e, self.element)

    def load_ahead(self, rows: Sequence[Int], columns: Sequence[Int]) -> None:
        """Loads these rows and columns, as far as it loads them together or in pairs."""
        for row in rows:
            for column in columns:
                if self._takes_wide(column) or self._loads_pairs:
                    self.load_together([row, column])

    def load_columns_ahead(self, columns: Sequence[Int]) -> None:
        """Loads these columns of a box without rows, where it loads them in pairs."""
        if self._loads_pairs:
            for column in columns:
                self.load([column])

    def _takes_wide(self, column: Int) -> bool:
        """Whether the tensor has all of the box's columns, four blocks of which begin at a multiple of 16 bytes."""
        own = isinstance(column, Offset) and self.pair is not None and column.base == self.pair
        whole = self._whole.get(len(self._axes) - 1, 1) % (QUAD * BLOCK) == 0 and self.aligned and self.takes_words
        return own and whole and column.constant % BLOCK < 2

    def _load_of_pair(self, outer: Sequence[Int], column: Offset) -> ir.Value:
        """An element of a column that is loaded together with its neighbour."""
        odd = column.constant % 2
        key = ir.InsertionPoint.current.block, *outer, column.constant - odd
        if key not in self._pairs:
            *lines, last = self._parts(len(outer), column.moved(-odd))
            rows = [*self._all_clamped(outer), *(self._clamped(*line) for line in lines)]
            first = self._clamped(*last, together=2)
            self._pairs[key] = device.load_together(self._place([*rows, first]), 2, storage_type(self.element))
        return self._pairs[key][odd]

    def store(self, index: Sequence[Int], x: ir.Value) -> None:
        """An element of the compute type, or as it is stored."""
        x = x if x.type == storage_type(self.element) else narrowed(x, self.element)
        device.store(x, self._place(self._all_along(index)))

    def store_pair(self, index: Sequence[Int], pair: Sequence[ir.Value]) -> None:
        """The element at the index and that behind it."""
        place = self._place(self._all_along(index))
        if is_packed(self.element):
            device.store(pack(*pair, self.element), place, align=4)
        else:
            device.store_together(pair, place)

    def store_word(self, index: Sequence[Int], words: Sequence[ir.Value]) -> None:
        """Words of elements, i32, from the element at the index on."""
        device.store_together(words, self._place(self._all_along(index)))

    def _all_along(self, index: Sequence[Int]) -> list[Int]:
        return [self._along(*part) for dim, i in enumerate(index) for part in self._parts(dim, i)]

    def _all_clamped(self, index: Sequence[Int]) -> list[Int]:
        return [self._clamped(*part) for dim, i in enumerate(index) for part in self._parts(dim, i)]

    def _along(self, dim: int, index: Int) -> Int:
        at = self._at[self._axes[dim]]
        if not isinstance(index, Offset) or isinstance(at, int):
            return device.add(at, index)
        key = ir.InsertionPoint.current.block, dim, index.base
        if key not in self._moved_on:
            self._moved_on[key] = arith.addi(device.value(at), index.base)
        return Offset(self._moved_on[key], index.constant)

    def _clamped(self, dim: int, index: Int, together: int = 1) -> Int:
        """Along the tensor, where it has so many neighbours from there on."""
        if self._has(dim, index):
            return self._along(dim, index)
        return device.least(self._along(dim, index), device.sub(self._sizes[self._axes[dim]], together))

    def _place(self, places: Sequence[Int]) -> ir.Value:
        """The address of an element whose indices along the box's dimensions are given."""
        *outer, last = places if places else [None]
        base = self._base(outer)
        if last is None:
            return base
        stride, behind = self._strides[self._axes[-1]], self._behind[self._axes[-1]]
        if isinstance(last, Offset) and not behind:
            base = self._moved(base, last.base, stride)
            return device.offset(base, last.constant * stride, storage_type(self.element))
        return self._moved(base, last, stride, behind)

    def _base(self, outer: Sequence[Int]) -> ir.Value:
        """The address of the row in which an element lies."""
        key = ir.InsertionPoint.current.block, *outer
        if key not in self._bases:
            pointer = self._pointer
            for axis, offset in enumerate(self._at):
                if axis not in self._axes:
                    pointer = self._moved(pointer, offset, self._strides[axis], self._behind[axis])
            for axis, index in zip(self._axes, outer):
                pointer = self._moved(pointer, index, self._strides[axis], self._behind[axis])
            self._bases[key] = pointer
        return self._bases[key]

    def _moved(self, pointer: ir.Value, count: Int, stride: int, behind: Sequence[ir.Value] = ()) -> ir.Value:
        """The address `count` times `stride` elements on, these times the sizes `behind` that are open until the call,
        computed in 64 bits."""
        if isinstance(count, int) and count == 0:
            return pointer
        return device.further(pointer, count, stride, storage_type(self.element), behind)


def patch_of(moves: ir.Operation) -> tuple[int | None, bool]:
    """The places of a line of the patch that a tile's rows or columns are, None where these are none; and whether it is
    columns."""
    if schedule.PATCH not in moves.attributes:
        return None, False
    return ir.DenseI64ArrayAttr(moves.attributes[schedule.PATCH])[1], schedule.ACROSS in moves.attributes
