"""The code of an agent of one warp that multiplies rows which it loads straight into registers (kitsune.dots).

The order of k in a product is free as long as both operands agree, so lane 4g + q loads 16 bytes of rows g, g + 8, and
so on, of each 64 its own quarter: words that are its part of either operand of mma.sync, for A's rows and B's columns
lie alike in lanes (ampere/mma_sync.py). Neither operand passes shared memory; where both are one it is loaded once.
All of a tile's loads are on their way before the first product; more of k than registers hold comes piece by piece.

A tile that leaves goes through shared memory (kitsune.stash), out of which lanes store neighbouring elements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.ampere import mma_sync
from kitsune_mlir.codegen.hopper import warps
from kitsune_mlir.codegen.hopper.fragments import Lanes, blocks_of, is_packed, pack
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.memory import Memory
from kitsune_mlir.codegen.pipeline.products import Fragment, fragments, multiplied
from kitsune_mlir.dialects.dots import DotsOp, StashOp
from kitsune_mlir.dialects.schedule import AgentOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, location, vector, walk
from kitsune_mlir.planning.dots import LANES, most_steps, sums_of
from kitsune_mlir.precision import tf32_pieces
from kitsune_mlir.rows import Structured, shape_of

from .agent import AgentCode
from .boxes import GlobalBox
from .row_sources import LaneRows, sources

QUAD, LOAD = 4, 16  # lanes that have a row together, bytes that one loads of it
_SPREAD = 8  # elements between rows of a stash, besides its columns: spreads the banks


def multiplies_alone(agent: AgentOp) -> bool:
    """Whether an agent is of this kind."""
    return bool(walk(agent, DotsOp.OPERATION_NAME))


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

    def emit(self) -> None:
        lane = device.value(device.mod(warps.thread(), warps.WARP))
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
        self._block(self.agent.block)

    def _scf_for(self, op: ir.Operation) -> None:
        if any(inner.operation.name == "scf.for" for inner in op.regions[0].blocks[0].operations):
            raise UnsupportedError(f"{location(op.location)}: a loop in a loop of an agent that multiplies alone")
        super()._scf_for(op)

    def _block(self, block: ir.Block) -> None:
        in_loop = block.owner.operation.name == "scf.for"
        with index_checks.reported_behind() if in_loop else contextlib.nullcontext():
            super()._block(block)

    def _turn(self) -> None:
        super()._turn()
        self.stashed = 0  # bytes

    # ---- products

    def _dots(self, op: ir.Operation) -> None:
        left, right = op.operands
        (m, k), n = shape_of(left), shape_of(right)[0]
        element = ir.RankedTensorType(left.type).element_type
        step = QUAD * LOAD * 8 // element.width  # columns that the lanes of a row load together
        tile = arith.extui(ir.IntegerType.get_signless(64), device.value(self._own_number(op)))
        operands = {hash(v): self.rows_of[hash(v)] for v in (left, right)}
        flat = [lane_rows for own in operands.values() for lane_rows in own]
        numbers = [own.load_numbers(tile) for own in flat]
        places = dict(zip(map(id, flat), (own.place(tile, x) for own, x in zip(flat, numbers, strict=True))))
        together = most_steps(len(flat), sums_of(m, n))
        pieces = tf32_pieces(op)
        blocks = blocks_of(n)
        sums = mma_sync.zeros(-(-m // mma_sync.ROWS) * blocks * mma_sync.SUMS)
        for first in range(0, -(-k // step), together):
            steps = range(first, min(first + together, -(-k // step)))
            loaded = {
                key: [[self._load(places[id(o)], s * step, k, element) for o in own] for s in steps]
                for key, own in operands.items()
            }
            for number in range(len(steps)):
                a, b = ([_quads(word, element, pieces) for word in loaded[hash(v)][number]] for v in (left, right))
                sums = _add(element, a, b, blocks, sums)
        rows_ = [device.value(device.add(self.group, 8 * i)) for i in range(2 * -(-m // mma_sync.ROWS))]
        self.lanes = Lanes((rows_[0], rows_[1]), (rows_[0], rows_[1]), self.pair)
        for memory in self.memories.values():
            memory.pair = self.pair
        self.tile_rows, self.evaluator = rows_, Evaluator(self.memories)
        for i, x in enumerate(sums):
            at, rest = divmod(i, blocks * mma_sync.SUMS)
            block, (h, e) = rest // mma_sync.SUMS, divmod(rest % mma_sync.SUMS, 2)
            self.evaluator.know(op.results[0], [rows_[2 * at + h], self.lanes.column(block, e)], x)

    def _own_number(self, op: ir.Operation) -> ir.Value:
        """The tile's number: the counter of the loop around."""
        return self.number(op.parent.operation.regions[0].blocks[0].arguments[0])

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
        words = [arith.select(inside, vector.extract(found, [], [i]), zero) for i in range(kind.shape[0])]
        return vector.from_elements(kind, words)

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
                    device.store(vector.from_elements(ir.VectorType.get([2], element), both), place, align=8)
        warps.sync()
        self.memories[hash(op.results[0])] = Memory(pointer, element, tuple(kind.shape), stash.stride)

    def _read(self, op: ir.Operation) -> None:
        """Lanes have columns beyond a tile's, which the tensor need not have."""
        at = [self.number(offset) for offset in list(op.operands)[1:]]
        pointer = self.around.pointers[hash(op.operands[0])]
        box = GlobalBox(pointer, op.operands[0].type, self.around.rows, at, op.opview.axes)
        self.memories[hash(op.results[0])] = box

    def _linalg_generic(self, op: ir.Operation) -> None:
        """Operators are computed where their elements are used."""
        if "reduction" in Structured(op).iterators:
            raise UnsupportedError(f"{location(op.location)}: a reduction of what a warp multiplies alone")

    def _tensor_concat(self, op: ir.Operation) -> None:
        """Rows of what is multiplied."""

    def _write(self, op: ir.Operation) -> None:
        """Lane l stores words number l, l + 32, ... of the tile's elements one behind the other."""
        tile, offsets = op.operands[0], list(op.operands)[1:]
        shape = shape_of(tile)
        pointer, type_ = self.around.outputs[op.opview.position]
        box = GlobalBox(pointer, type_, self.around.rows, list(map(self.number, offsets)), op.opview.axes)
        count = gcd(shape[-1], LOAD * 8 // box.element.width)
        words = shape[-1] // count * (shape[0] if len(shape) == 2 else 1)
        for start in range(0, words, warps.WARP):
            word = device.add(self.lane, start)
            if start + warps.WARP <= words:
                self._store_word(box, tile, word, count)
            else:
                with device.when(device.less(word, words)):
                    self._store_word(box, tile, word, count)
        warps.sync()  # nobody stashes the next tile before all have read this one

    def _store_word(self, box: GlobalBox, tile: ir.Value, word: ir.Value, count: int) -> None:
        shape = shape_of(tile)
        outer = [] if len(shape) == 1 else [device.div(word, shape[1] // count)]
        place = word if len(shape) == 1 else device.mod(word, shape[1] // count)
        first = device.mul(place, count)
        evaluator = Evaluator(self.memories)
        found = [evaluator(tile, [*outer, device.add(first, e)]) for e in range(count)]
        box.store_vector([*outer, first], found)


def _quads(word: ir.Value, element: ir.Type, pieces: int) -> list[Fragment]:
    """16 bytes of a row as steps of a product: two of 16 bits, one of f32."""
    if element.width == 32:
        return [fragments(word, pieces)]
    words = [vector.extract(word, [], [i]) for i in range(4)]
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
