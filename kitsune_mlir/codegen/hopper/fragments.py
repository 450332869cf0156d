"""Tiles of 64 rows in the registers of a warpgroup, and pairs of neighbouring columns in memory.

All tiles have the layout of a product's sums (wgmma.py): block j holds columns 8j to 8j + 7; a thread has of it
the columns 8j + 2q and 8j + 2q + 1 of two rows, *halves* 0 and 1. Tiles of 16-bit elements are kept as words of
two columns, the form in which they are the next product's operand; others as single f32 values.
Columns beyond the tile's width hold zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int, Offset
from kitsune_mlir.codegen.pipeline.memory import Memory, storage_type, widened
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, llvm, vector

from . import warps
from .quads import QUAD, transposed

BLOCK = 8  # columns
WIDE = QUAD * BLOCK  # columns that the threads of a row load together, 16 bytes each
ROW_THREADS = 4  # that have a row together
HALVES = (0, 1)


@dataclass(frozen=True)
class Lanes:
    """Where a thread stands. `rows` are its two rows in the tile, `loaded` the same but for rows that do not
    exist, which become the last that does; `pair` is 2q."""

    rows: tuple[ir.Value, ir.Value]
    loaded: tuple[Int, Int]
    pair: ir.Value

    def column(self, block: int, e: int) -> Offset:
        return Offset(self.pair, BLOCK * block + e, 2 * (ROW_THREADS - 1), WIDE)

    def half(self, row: Int) -> int:
        """Which of its rows an index names."""
        for h in HALVES:
            if row == self.rows[h]:
                return h
        raise UnsupportedError("a warpgroup reads rows of a tile that are not its own")

    def place(self, column: Int) -> tuple[int, int]:
        """Block and position in the pair of a column of a tile in registers."""
        if isinstance(column, Offset) and column.base == self.pair:
            block, e = divmod(column.constant, BLOCK)
            if e in (0, 1):
                return block, e
        raise UnsupportedError("a warpgroup reads columns of a tile in registers that lie in other threads")


def blocks_of(width: int) -> int:
    return -(-width // BLOCK)


@dataclass
class Fragment:
    """A tile in registers; reads like memory. `compute`, called with a block, makes the values of one that is asked for
    before they are there. `spread` are elements that all four threads of a row have. `loads`: its values are computed
    of what is loaded then, which is asked for by boxes."""

    lanes: Lanes
    element: ir.Type
    shape: tuple[int, ...]
    words: dict[tuple[int, int], ir.Value] = field(default_factory=dict)  # (block, half)
    values: dict[tuple[int, int, int], ir.Value] = field(default_factory=dict)  # (block, half, e)
    compute: Callable[[int], None] | None = None
    spread: dict[tuple[int, int], ir.Value] = field(default_factory=dict)  # (column, half)
    loads: bool = False

    def pin(self) -> None:
        """Has f32 elements kept as they are: LLVM would make a sum with one, where that is a product, a single
        instruction, and keep both factors for it."""
        for place, x in self.values.items():
            if not isinstance(x.type, ir.F32Type):
                continue
            self.values[place] = device.assembly("mov.b32 $0, $1;", x, result=x.type, memory=False)

    def put(self, block: int, half: int, pair: Sequence[ir.Value], packs: bool) -> None:
        """The two columns of a block that a thread has of one of its rows, as a word or as they are."""
        if packs:
            self.words[block, half] = pack(*pair, self.element)
        else:
            self.values[block, half, 0], self.values[block, half, 1] = pair

    @property
    def width(self) -> int:
        return prod(self.shape[1:])

    def load(self, index: Sequence[Int]) -> ir.Value:
        column = device.flattened(index[1:], self.shape[1:])
        half, single = self.lanes.half(index[0]), 0 if self.width == 1 else column
        if isinstance(single, int) and (single, half) in self.spread:
            return self.spread[single, half]
        block, e = self.lanes.place(column)
        return self.element_at(block, half, e)

    def spread_out(self, columns: Iterable[int]) -> None:
        """All threads of a warp: those that hold these columns tell the others of their rows."""
        for column in columns:
            block, place = divmod(column, BLOCK)
            for h in HALVES:
                if (column, h) not in self.spread:
                    x = self.element_at(block, h, place % 2)
                    self.spread[column, h] = _from_thread(x, place // 2)

    def element_at(self, block: int, half: int, e: int) -> ir.Value:
        self.make(block)
        if (block, half, e) in self.values:
            return self.values[block, half, e]
        return unpack(self.word(block, half), e, self.element)

    def compute_all(self, blocks: Iterable[int]) -> None:
        """Computes those of these blocks that the tile has."""
        for block in blocks:
            self.make(block)

    def step(self, number: int) -> list[ir.Value]:
        """The four words of a product's step; zeros beyond the tile. Of f32 elements the step's 8 columns come as 0, 2,
        4, 6, 1, 3, 5, 7: those that a thread has are neighbours (tf32.py)."""
        if not is_packed(self.element):
            return [self._bits(number, h, e) for e in (0, 1) for h in HALVES]
        return [self.word(2 * number + block, h) for block in (0, 1) for h in HALVES]

    def _bits(self, block: int, half: int, e: int) -> ir.Value:
        return arith.bitcast(device.i32(), self.f32(block, half, e))

    def f32(self, block: int, half: int, e: int) -> ir.Value:
        """An element of a tile of f32; zero beyond its columns."""
        self.make(block)
        x = self.values.get((block, half, e))
        return arith.constant(ir.F32Type.get(), 0.0) if x is None else x

    def make(self, block: int) -> None:
        """Makes the values of a block, if they are not there."""
        if self.compute is not None and (block, 0, 0) not in self.values and (block, 0) not in self.words:
            self.compute(block)

    def word(self, block: int, half: int) -> ir.Value:
        """Two neighbouring columns; zeros beyond the tile."""
        self.make(block)
        if (block, half) not in self.words:
            if (block, half, 0) not in self.values:
                return device.value(0)
            self.words[block, half] = pack(self.values[block, half, 0], self.values[block, half, 1], self.element)
        return self.words[block, half]


def _from_thread(x: ir.Value, number: int) -> ir.Value:
    """What thread `number` of the four of a row has in place of `x`."""
    lane = arith.ori(arith.andi(warps.thread(), device.value(warps.WARP - ROW_THREADS)), device.value(number))
    if isinstance(x.type, ir.FloatType):
        return arith.bitcast(x.type, warps.hand(arith.bitcast(device.i32(), x), lane))
    word = warps.hand(x if x.type == device.i32() else arith.extui(device.i32(), x), lane)
    return word if x.type == device.i32() else arith.trunci(x.type, word)


def is_packed(element: ir.Type) -> bool:
    return isinstance(element, ir.BF16Type | ir.F16Type)


def pack(low: ir.Value, high: ir.Value, element: ir.Type) -> ir.Value:
    """Two f32 rounded to 16 bits, in a word (PTX ISA, cvt)."""
    kind = "bf16x2" if isinstance(element, ir.BF16Type) else "f16x2"
    text = f"cvt.rn.{kind}.f32 $0, $2, $1;"
    return device.assembly(text, low, high, result=device.i32(), memory=False, effects=False)


def halves(low: ir.Value, high: ir.Value, element: ir.Type) -> list[ir.Value]:
    """Two f32 rounded to 16 bits at once, each as an element."""
    i16, word = ir.IntegerType.get_signless(16), pack(low, high, element)
    bits = [arith.trunci(i16, word), arith.trunci(i16, arith.shrui(word, device.value(16)))]
    return [arith.bitcast(element, each) for each in bits]


def unpack(word: ir.Value, e: int, element: ir.Type) -> ir.Value:
    """One f32 of a word of two 16-bit elements."""
    f32 = ir.F32Type.get()
    if isinstance(element, ir.BF16Type):
        if e:
            bits = arith.andi(word, device.value(-65536))
        else:
            bits = arith.shli(word, device.value(16))
        return arith.bitcast(f32, bits)
    pair = llvm.BitcastOp(ir.VectorType.get([2], element), word).result
    return arith.extf(f32, vector.extract(pair, [], [e]))


class PairedMemory(Memory):
    """A tensor in memory whose neighbouring columns are read together. `lanes` gives the rows that exist; `step`, by
    default the stride, divides the place of each row's first element."""

    def __init__(
        self,
        pointer: ir.Value,
        element: ir.Type,
        shape: tuple[int, ...],
        stride: int,
        lanes: Lanes | None = None,
        step: int | None = None,
    ):
        super().__init__(pointer, element, shape, stride)
        self._lanes, self.step = lanes, stride if step is None else step
        self._read: dict[tuple[ir.Block, Int, Int], ir.Value] = {}
        self._words: dict[tuple[ir.Block, Int, ir.Value, int], ir.Value] = {}  # by block of columns

    def load(self, index: Sequence[Int]) -> ir.Value:
        if not self.shape:
            return super().load(index)
        has_rows = len(self.shape) > 1 or self._lanes is not None
        row, inner, sizes = (index[0], index[1:], self.shape[1:]) if has_rows else (0, index, self.shape)
        if self._lanes is not None and isinstance(row, ir.Value):
            row = self._lanes.loaded[self._lanes.half(row)]
        return self.element_at(row, device.flattened(inner, sizes), prod(sizes))

    def from_row(self, row: ir.Value) -> PairedMemory:
        shape = self.shape if len(self.shape) > 1 else (1,)  # of a vector the one element, for its size may be open
        return PairedMemory(self._address(row), self.element, shape, self._step)

    def load_together(self, index: Sequence[Int]) -> ir.Value:
        """`load` where all threads of a warp are: those that have a row together load 16 bytes each of it."""
        row, column = index[0], index[-1]
        width = self.shape[-1]
        wide = isinstance(column, Offset) and column.step % WIDE == 0 and column.constant % BLOCK < 2
        if (
            not wide
            or len(index) != 2
            or len(self.shape) != 2
            or not is_packed(self.element)
            or width % WIDE
            or column.constant >= width  # beyond the last part of a concatenation, whose tile has whole blocks
            or self.step % BLOCK
        ):
            return self.load(index)
        if self._lanes is not None and isinstance(row, ir.Value):
            row = self._lanes.loaded[self._lanes.half(row)]
        block, e = divmod(column.constant, BLOCK)
        key = (ir.InsertionPoint.current.block, row, column.base, block)
        if key not in self._words:
            self._load_wide(row, column.base, block // QUAD * QUAD)
        return unpack(self._words[key], e, self.element)

    def _load_wide(self, row: Int, base: ir.Value, first: int) -> None:
        """Four blocks of a row from block `first` on: a thread loads one of them, and gives the others their pairs."""
        words = transposed(self._load_own(row, base, first), _lane(base))
        place = ir.InsertionPoint.current.block
        self._words.update(((place, row, base, first + number), word) for number, word in enumerate(words))

    def _load_own(self, row: Int, base: ir.Value, first: int) -> list[ir.Value]:
        """The one of four blocks of a row, from block `first` on, that a thread loads."""
        own = arith.addi(base, arith.muli(_lane(base), device.value(BLOCK - 2)))  # the base has 2 for each lane
        return device.load_together(self.place(row, Offset(own, BLOCK * first)), QUAD, device.i32())

    def load_rows(self, lanes: Lanes) -> LoadedRows:
        """Loads a thread's part of all columns of its rows now."""
        (_, width), words = self.shape, list[ir.Value]()
        step = BLOCK if is_packed(self.element) else 2
        if width % WIDE or self.step % step or not is_packed(self.element) and not isinstance(self.element, ir.F32Type):
            raise UnsupportedError(f"rows of {width} columns of {self.element} are not held as they are loaded")
        for row in self._lanes.loaded if self._lanes is not None else lanes.rows:
            if is_packed(self.element):
                for first in range(0, blocks_of(width), QUAD):
                    words += self._load_own(row, lanes.pair, first)
            else:
                for block in range(blocks_of(width)):
                    words += self._load_pair(row, lanes.column(block, 0))
        warps.sync()  # ptxas begins no load behind it that stands before
        return LoadedRows(lanes, self.element, width, words)

    def element_at(self, row: Int, column: Int, width: int) -> ir.Value:
        """The element of a row of `width` columns; beyond the last one of the row."""
        inside = device.is_less(column, width)
        if inside is False:
            column = width - 1
        key = (ir.InsertionPoint.current.block, row, column)  # itself: in Python -1 and -2 have one hash
        if key not in self._read:
            if isinstance(column, Offset) and self._pairs(column, width):
                e = column.constant % 2
                first = device.sub(column, e)
                pair = self._load_pair(row, device.least(first, width - 2) if inside is None else first)
                for i in (0, 1):
                    self._read[(*key[:2], device.add(column, i - e))] = pair[i]
            else:
                at = device.least(column, width - 1) if inside is None and not isinstance(column, int) else column
                self._read[key] = widened(device.load(self.place(row, at), storage_type(self.element)), self.element)
        return self._read[key]

    def _pairs(self, column: Offset, width: int) -> bool:
        """Whether a column and its neighbour lie in one aligned word; where rows have an even number of columns, either
        both exist or neither."""
        if self.step % 2 or not isinstance(self.element, ir.FloatType) or self.element.width not in (16, 32):
            return False
        return width % 2 == 0 or device.is_less(column, width - 1) is True

    def word(self, row: Int, column: Int) -> ir.Value:
        """Two neighbouring 16-bit elements, the first at an even column."""
        return device.load(self.place(row, column), device.i32(), align=4)

    def _load_pair(self, row: Int, column: Int) -> list[ir.Value]:
        if self.element.width == 32:
            return device.load_together(self.place(row, column), 2, self.element)
        word = self.word(row, column)
        return [unpack(word, e, self.element) for e in (0, 1)]


@dataclass(frozen=True)
class LoadedRows:
    """Rows of a tensor in the registers of a warpgroup as they were loaded: a thread's part of its first row, then of
    the second. Of 16-bit elements it has 16 bytes of every four blocks of columns, whose pairs the four threads of a
    row exchange where elements are used; of f32 its own pairs."""

    lanes: Lanes
    element: ir.Type
    width: int
    words: list[ir.Value]
    _exchanged: dict[tuple[ir.Block, int], list[ir.Value]] = field(default_factory=dict)  # by the first word

    def load(self, index: Sequence[Int]) -> ir.Value:
        """An element, where all threads of a warp are."""
        half, (block, e) = self.lanes.half(index[0]), self.lanes.place(index[1])
        number = half * blocks_of(self.width) + block
        if not is_packed(self.element):
            return self.words[2 * number + e]
        key = ir.InsertionPoint.current.block, number - number % QUAD
        if key not in self._exchanged:
            self._exchanged[key] = transposed(self.words[key[1] : key[1] + QUAD], _lane(self.lanes.pair))
        return unpack(self._exchanged[key][number % QUAD], e, self.element)

    def with_words(self, words: list[ir.Value]) -> LoadedRows:
        """The same rows of another tile."""
        return LoadedRows(self.lanes, self.element, self.width, words)


def _lane(base: ir.Value) -> ir.Value:
    """Which of the four threads of a row it is whose first column is `base`."""
    return arith.andi(arith.shrui(base, device.value(1)), device.value(QUAD - 1))
