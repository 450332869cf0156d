"""The code of an agent of one warp that multiplies rows which it loads straight into registers (kitsune.dots).

The order of k in a product is free as long as both operands agree, so lane 4g + q loads 16 bytes of rows g, g + 8, and
so on, of each 64 its own quarter: words that are its part of either operand of mma.sync, for A's rows and B's columns
lie alike in lanes (ampere/mma_sync.py). Neither operand passes shared memory; where both are one it is loaded once.
A tile's rows are loaded while the one before leaves; more of k than registers hold comes piece by piece.

A tile that leaves goes through shared memory (kitsune.stash), out of which lanes store neighbouring elements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.ampere import mma_sync
from kitsune_mlir.codegen.hopper import waits, warps
from kitsune_mlir.codegen.hopper.fragments import Lanes, blocks_of, is_packed, pack
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.memory import Memory
from kitsune_mlir.dialects.dots import DotsOp, StashOp
from kitsune_mlir.dialects.schedule import AgentOp, ReadOp, WriteOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, location, walk
from kitsune_mlir.operations import operations_of
from kitsune_mlir.planning.dots import LANES, most_steps, sums_of
from kitsune_mlir.precision import tf32_pieces
from kitsune_mlir.rows import Structured, shape_of

from .agent import AgentCode
from .quads import Fragment, fragments, multiplied
from .row_sources import LaneRows, sources

QUAD, LOAD = 4, 16  # lanes that have a row together, bytes that one loads of it
_SPREAD = 8  # elements between rows of a stash, besides its columns: spreads the banks


def stash_bytes(agent: AgentOp) -> int:
    """Shared memory that an agent's tiles take."""
    return sum(_stash_of(op).nbytes for op in walk(agent, StashOp.OPERATION_NAME))


@dataclass(frozen=True)
class _Stash:
    rows: int
    stride: int  # elements
    nbytes: int


def _stash_of(op: ir.Operation) -> _Stash:
    kind = ir.RankedTensorType(op.results[0].type)
    count, columns = (-(-size // of) * of for size, of in zip(kind.shape, (mma_sync.ROWS, mma_sync.BLOCK), strict=True))
    stride = columns + _SPREAD
    return _Stash(count, stride, count * stride * kind.element_type.width // 8)


@dataclass
class DotsCode(AgentCode):
    """The code of one agent, whose threads begin at `first`."""

    rows_of: dict[int, list[LaneRows]] = field(default_factory=dict)  # of a tile that is multiplied
    now: _Now | None = None  # the turn of the loop
    words: dict[ir.Operation, list[_Word]] = field(default_factory=dict)  # by what writes them, where kept
    known: list[tuple[ir.Value, list[ir.Value], ir.Value]] = field(default_factory=list)  # elements, throughout

    def emit(self) -> None:
        lane = device.value(warps.lane())
        self.group, self.quarter = device.value(device.div(lane, QUAD)), device.value(device.mod(lane, QUAD))
        self.lane, self.pair = lane, device.value(device.mul(self.quarter, 2))
        self.values[hash(self.agent.block.arguments[0])] = 0
        for op in walk(self.agent, DotsOp.OPERATION_NAME):
            for tile in dict.fromkeys(op.operands):
                own = sources(tile)
                slots = [own[i : i + LANES] for i in range(0, len(own), LANES)]
                slots[-1] += [own[-1]] * (LANES - len(slots[-1]))
                pointers = self.around.pointers
                self.rows_of[hash(tile)] = [LaneRows.of(slot, pointers, self.group) for slot in slots]
        if any(op.operation.name == ReadOp.OPERATION_NAME for op in self.agent.block.operations):
            self.words = {op: self._words_of(op, lane) for op in walk(self.agent, WriteOp.OPERATION_NAME)}
        self._block(self.agent.block)

    def _scf_for(self, op: ir.Operation) -> None:
        """The loop over tiles carries what the next one's product wants, as far as registers hold it: the numbers of
        its rows, or its rows and the numbers of those behind them. So loads are on their way while a tile leaves."""
        block = op.regions[0].blocks[0]
        if any(inner.operation.name == "scf.for" for inner in block.operations):
            raise UnsupportedError(f"{location(op.location)}: a loop in a loop of an agent that multiplies alone")
        (dots,) = operations_of(block, DotsOp.OPERATION_NAME)
        product = _Product(dots, {hash(v): self.rows_of[hash(v)] for v in dots.operands}, self.quarter)
        self._tiles(op.operands[0])
        lower, upper, step = (self.number(bound) for bound in list(op.operands)[:3])
        last = device.sub(upper, 1)

        def tile(at: Int) -> ir.Value:
            return arith.extui(ir.IntegerType.get_signless(64), device.value(device.least(at, last)))

        numbers = product.numbers(tile(lower))
        held = product.load(tile(lower), numbers, 0) if product.is_held else []
        numbers = product.numbers(tile(device.add(lower, step))) if product.is_held else numbers

        def turn(counter: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            self.values[hash(block.arguments[0])] = counter
            self._turn()
            words, own = carried[: len(held)], carried[len(held) :]
            further = device.add(counter, step)
            self.now = _Now(product, words, own, tile(counter), tile(further), tile(device.add(further, step)))
            with waits.at_tile(counter):
                self._block(block)
            return [*self.now.held, *self.now.numbers]

        device.loop(lower, upper, step, turn, [*held, *numbers])

    def _block(self, block: ir.Block) -> None:
        in_loop = block.owner.operation.name == "scf.for"
        with index_checks.reported_behind() if in_loop else contextlib.nullcontext():
            super()._block(block)

    def _turn(self, *_: object) -> None:
        self.memories, self.halves = {}, []
        self.stashed = 0  # bytes

    # ---- products

    def _dots(self, op: ir.Operation) -> None:
        sums = self.now.multiply()
        blocks = blocks_of(shape_of(op.operands[1])[0])
        count = len(sums) // (blocks * mma_sync.SUMS)
        rows_ = [device.value(device.add(self.group, LANES * i)) for i in range(2 * count)]
        self.lanes = Lanes((rows_[0], rows_[1]), (rows_[0], rows_[1]), self.pair)
        for memory in self.memories.values():
            memory.pair = self.pair
        self.tile_rows, self.evaluator = rows_, Evaluator(self.memories)
        for i, x in enumerate(sums):
            at, rest = divmod(i, blocks * mma_sync.SUMS)
            block, (h, e) = rest // mma_sync.SUMS, divmod(rest % mma_sync.SUMS, 2)
            self.evaluator.know(op.results[0], [rows_[2 * at + h], self.lanes.column(block, e)], x)

    # ---- tiles that leave

    def _stash(self, op: ir.Operation) -> None:
        tile, kind = op.operands[0], ir.RankedTensorType(op.results[0].type)
        stash, element = _stash_of(op), kind.element_type
        pointer = device.shared(device.add(self.around.scratch, self.stashed))
        self.stashed += stash.nbytes
        for row in self.tile_rows:
            base = device.offset(pointer, device.add(device.mul(row, stash.stride), self.pair), element)
            for block in range(blocks_of(kind.shape[1])):
                both = [self.evaluator(tile, [row, self.lanes.column(block, e)]) for e in (0, 1)]
                place = device.offset(base, 8 * block, element)
                if is_packed(element):
                    device.store(pack(*both, element), place, align=4)
                else:
                    device.store_together(both, place)
        warps.sync()
        self.memories[hash(op.results[0])] = Memory(pointer, element, tuple(kind.shape), stash.stride)

    def _read(self, op: ir.Operation) -> None:
        """Lanes have columns beyond a tile's, which the tensor need not have. What stands before the loop, places of
        elements that leave, is loaded there: of each lane those of its words."""
        box = self._box(op)
        if op.parent == self.agent.operation:
            for index in (place for words in self.words.values() for word in words for place in word.places):
                self.known.append((op.results[0], [index], box.load([index])))
        else:
            self.memories[hash(op.results[0])] = box

    def _linalg_generic(self, op: ir.Operation) -> None:
        """Operators are computed where their elements are used."""
        if "reduction" in Structured(op).iterators:
            raise UnsupportedError(f"{location(op.location)}: a reduction of what a warp multiplies alone")

    def _tensor_concat(self, op: ir.Operation) -> None:
        """Rows of what is multiplied."""

    def _write(self, op: ir.Operation) -> None:
        """Lane l stores words number l, l + 32, ... of the tile's elements one behind the other."""
        tile, box = op.operands[0], self._box(op)
        for word in self.words.get(op) or self._words_of(op, warps.here(self.lane)):
            with contextlib.nullcontext() if word.inside is None else device.when(word.inside):
                found = self._elements(tile, word)
                box.store_vector([*word.outer, word.places[0]], found)
        warps.sync()  # nobody stashes the next tile before all have read this one

    def _elements(self, tile: ir.Value, word: _Word) -> list[ir.Value]:
        evaluator = Evaluator(self.memories)
        for value, index, x in self.known:
            evaluator.know(value, index, x)
        return [evaluator(tile, [*word.outer, place]) for place in word.places]

    @staticmethod
    def _words_of(op: ir.Operation, lane: ir.Value) -> list[_Word]:
        """A lane's words of what an operation writes."""
        shape = shape_of(op.operands[0])
        count = gcd(shape[-1], LOAD * 8 // ir.RankedTensorType(op.operands[0].type).element_type.width)
        across = shape[-1] // count
        words = across * (shape[0] if len(shape) == 2 else 1)
        found = []
        for start in range(0, words, warps.WARP):
            number = device.value(device.add(lane, start))
            inside = None if start + warps.WARP <= words else device.less(number, words)
            outer = [] if len(shape) == 1 else [device.value(device.div(number, across))]
            first = device.mul(number if len(shape) == 1 else device.mod(number, across), count)
            found.append(_Word(outer, [device.value(device.add(first, e)) for e in range(count)], inside))
        return found


@dataclass(frozen=True)
class _Word:
    """Neighbouring elements of a tile that a lane stores: their row, where the tile has rows, and their places in it;
    whether (i1) the tile has them, None where it does for every lane."""

    outer: list[ir.Value]
    places: list[ir.Value]
    inside: ir.Value | None


@dataclass(frozen=True)
class _Product:
    """A product of a tile: its rows as lanes find them, by operand, and what a lane loads of them."""

    op: ir.Operation
    rows: dict[int, list[LaneRows]]
    quarter: ir.Value

    @property
    def flat(self) -> list[LaneRows]:
        return [own for rows in self.rows.values() for own in rows]

    @property
    def element(self) -> ir.Type:
        return ir.RankedTensorType(self.op.operands[0].type).element_type

    @property
    def k(self) -> int:
        return shape_of(self.op.operands[0])[1]

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows of the left and of the right operand."""
        left, right = map(shape_of, self.op.operands)
        return left[0], right[0]

    @property
    def steps(self) -> int:
        """How many times the lanes of a row load 16 bytes each."""
        return -(-self.k * self.element.width // (8 * QUAD * LOAD))

    @property
    def together(self) -> int:
        """Steps of which registers hold the operands."""
        return min(self.steps, most_steps(len(self.flat), sums_of(*self.sizes), self.element.width // 8))

    @property
    def is_held(self) -> bool:
        """Whether registers hold all of them."""
        return self.together == self.steps

    def numbers(self, tile: ir.Value) -> list[ir.Value]:
        """Begins to load the numbers of a tile's rows."""
        return [own.load_numbers(tile) for own in self.flat if own.numbers is not None]

    def places(self, tile: ir.Value, numbers: Sequence[ir.Value]) -> list[ir.Value]:
        """Where the lane's rows of a tile begin, by `flat`."""
        given = iter(numbers)
        return [own.place(tile, None if own.numbers is None else next(given)) for own in self.flat]

    def load(self, tile: ir.Value, numbers: Sequence[ir.Value], first: int) -> list[ir.Value]:
        """Begins to load `together` steps of a tile's rows from the first on: 16 bytes of each, by step and `flat`."""
        return self.load_from(self.places(tile, numbers), first)

    def load_from(self, places: Sequence[ir.Value], first: int) -> list[ir.Value]:
        """The same of rows that begin there."""
        columns = QUAD * LOAD * 8 // self.element.width
        steps = range(first, min(first + self.together, self.steps))
        return [self._load(place, step * columns, self.k, self.element) for step in steps for place in places]

    def add(self, words: Sequence[ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
        """Adds the products of steps that `load` gave."""
        pieces, blocks, each = tf32_pieces(self.op), blocks_of(self.sizes[1]), len(self.flat)
        left, right = (hash(operand) for operand in self.op.operands)
        for start in range(0, len(words), each):
            given = iter(words[start : start + each])
            quads = {key: [_quads(next(given), self.element, pieces) for _ in rows] for key, rows in self.rows.items()}
            sums = _add(self.element, quads[left], quads[right], blocks, sums)
        return sums

    def zeros(self) -> list[ir.Value]:
        m, n = self.sizes
        return mma_sync.zeros(-(-m // mma_sync.ROWS) * blocks_of(n) * mma_sync.SUMS)

    def _load(self, place: ir.Value, column: int, k: int, element: ir.Type) -> ir.Value:
        """The lane's 16 bytes of those from a column on, zeros where the row has ended."""
        own = LOAD * 8 // element.width
        kind = ir.VectorType.get([own], element) if element.width == 32 else ir.VectorType.get([4], device.i32())
        first = device.mul(self.quarter, own)
        if column + QUAD * own <= k:
            return device.load(device.offset(place, device.add(first, column), element), kind, align=LOAD)
        inside = device.less(first, k - column)
        at = arith.select(inside, device.value(first), device.value(0))
        found = device.load(device.offset(place, device.add(at, column), element), kind, align=LOAD)
        zero = arith.constant(kind.element_type, 0.0 if element.width == 32 else 0)
        return device.whole([arith.select(inside, x, zero) for x in device.parts(found)])


@dataclass
class _Now:
    """A turn of the loop over tiles: what was carried into it, its own tile's number and those of the two behind it
    (i64). `multiply` leaves in `held` and `numbers` what the next turn is given."""

    product: _Product
    held: list[ir.Value]
    numbers: list[ir.Value]
    tile: ir.Value
    following: ir.Value
    second: ir.Value

    def multiply(self) -> list[ir.Value]:
        """The tile's sums; loads for the next tiles are on their way when they are there."""
        product = self.product
        if product.is_held:
            sums = product.add(self.held, product.zeros())
            self.held = product.load(self.following, self.numbers, 0)
            self.numbers = product.numbers(self.second)
            return sums
        places, sums = product.places(self.tile, self.numbers), product.zeros()
        self.numbers = product.numbers(self.following)
        for first in range(0, product.steps, product.together):
            sums = product.add(product.load_from(places, first), sums)
        return sums


def _quads(word: ir.Value, element: ir.Type, pieces: int) -> list[Fragment]:
    """16 bytes of a row as steps of a product: two of 16 bits, one of f32."""
    if element.width == 32:
        return [fragments(word, pieces)]
    words = device.parts(word)
    return [[words[:2]], [words[2:]]]


def _add(
    element: ir.Type, a: Sequence[list[Fragment]], b: Sequence[list[Fragment]], blocks: int, sums: list[ir.Value]
) -> list[ir.Value]:
    """Adds the products of what lanes have of their rows: of A every eighth, of B too."""
    found = list(sums)
    for part in range(len(a[0])):
        for tile in range(0, len(a), 2):
            halves = [a[tile][part], a[min(tile + 1, len(a) - 1)][part]]
            for block in range(blocks):
                at = (tile // 2 * blocks + block) * mma_sync.SUMS
                found[at : at + mma_sync.SUMS] = multiplied(
                    element, halves, b[block][part], found[at : at + mma_sync.SUMS]
                )
    return found
