"""Products that no scheduled kernel takes, such as those of two sizes that are open until the call, on tensor cores:
mma.sync on operands of any order, whose elements threads load one by one.

    block, of a tile of 64 x 64:   for k in 0, 32, ...:  barrier;  left[64][16], right[64][16] = pairs of elements;
                                                          barrier;  each of 4 warps: 32 x 32 sums += left right
                                   what follows, of each sum

A pair of neighbours along k is a word in shared memory; rows of words are so far apart that the lanes of a warp, which
have 8 rows and 4 words at once, read different banks. Numbers of f32 are pieces of bf16 (planning/product_tiles.py,
PAIRS), whose sums of a chunk are added outside of tensor cores. Numbers of f64 are words of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, prod

from kitsune_mlir import precision
from kitsune_mlir.mlir import arith, gpu, ir, memref, scf
from kitsune_mlir.operations import operations_of, producer
from kitsune_mlir.planning.open_rows import MANY
from kitsune_mlir.planning.product_tiles import PAIRS

from .affine_index import evaluate
from .ampere import mma_sync
from .bf16_pieces import pieces_of
from .gpu_generic import Generic, dims_of
from .gpu_kernel import WARP, Kernel, Size, as_value, ceildiv, delinearize, on_host, product
from .gpu_points import Nest, Point
from .pipeline import device

LEAST = 1 << 20  # multiply-adds, times the part of tiles that is used, from which on threads do not do them alone
LEAST_SIDE, LEAST_USED = 8, 1 / 16  # of what is summed, and which part of tiles: threads do the others sooner
SIDE, THREADS = 64, 128  # rows and columns of a tile, threads of a block
_OWN = 32  # rows and columns of a warp
_WORDS = 16  # of a chunk of k
_PITCH = _WORDS + 4  # words from a row to the next in shared memory
_STEPS = 2 * _WORDS // mma_sync.DEPTH
_KINDS = {  # of sums, by those of operands
    ir.BF16Type: ir.F32Type,
    ir.F16Type: ir.F32Type,
    ir.F32Type: ir.F32Type,
    ir.F64Type: ir.F64Type,
}


def is_product(generic: Generic) -> bool:
    """Whether it is a product that tensor cores multiply, of sizes that are worth it; open ones may be many times the
    example's."""
    loops = generic.product_loops()
    if not loops or len(generic.reduction) != 1 or not _multiplies_and_adds(generic):
        return False
    kinds = {ir.MemRefType(value.type).element_type for value in generic.inputs}
    result = ir.MemRefType(generic.outputs[0].type).element_type
    if len(kinds) > 1 or _KINDS.get(type(kinds.pop())) is not type(result):
        return False
    sizes = {d: generic.known_size(d) for d in (*generic.parallel, *generic.reduction)}
    sizes = {d: MANY * generic.example_size(d) if size is None else size for d, size in sizes.items()}
    used = prod(sizes[d] / (SIDE * ceil(sizes[d] / SIDE)) for d in loops)
    is_worth_it = used >= LEAST_USED and sizes[generic.reduction[0]] >= LEAST_SIDE
    return used * prod(sizes.values()) > LEAST and is_worth_it


def _multiplies_and_adds(generic: Generic) -> bool:
    """Whether the body adds the product of both inputs, perhaps widened, to the sum."""
    body = operations_of(generic.block)
    if [op.name for op in body if op.name != "arith.extf"] != ["arith.mulf", "arith.addf", "linalg.yield"]:
        return False
    left, right, total = generic.block.arguments
    multiplied, added = body[-3], body[-2]
    factors = [op.operands[0] if (op := producer(value)) is not None else value for value in multiplied.operands]
    return set(factors) == {left, right} and set(added.operands) == {total, multiplied.results[0]}


@dataclass(frozen=True)
class _Place:
    """An index along a loop, in the operand whatever it is, and whether the operand has it."""

    index: ir.Value
    inside: ir.Value

    @staticmethod
    def of(index: ir.Value, size: ir.Value) -> _Place:
        return _Place(arith.minui(index, arith.subi(size, as_value(1))), device.below(index, size))


class _Operand:
    """Input `number` of a product, whose tile begins at `first` of loop `side`, where the loops of the batch are at
    `dims`, and the words of its pieces in shared memory. Neighbouring threads have neighbours in memory."""

    def __init__(
        self, generic: Generic, number: int, kernel: Kernel, dims: dict[int, ir.Value], side: int, first: ir.Value
    ):
        self._generic, self._kernel, self._dims, self._side = generic, kernel, dims, side
        self._map, self._source = generic.maps[number], kernel.inside(generic.inputs[number])
        kind = ir.MemRefType(self._source.type).element_type
        count = precision.tf32_pieces(generic.op) + 1 if isinstance(kind, ir.F32Type) else 1
        self._each = _each(kind)
        self.pieces = [kernel.shared([SIDE, _PITCH], kind if self._each == 1 else device.i32()) for _ in range(count)]
        thread, (self._k,) = gpu.thread_id(gpu.Dimension.x), generic.reduction
        size, self._words = self._size(side), list[tuple[ir.Value, ir.Value, _Place]]()
        along = dims_of(self._map)[-1:] == [self._k]
        row, word = delinearize(thread, [THREADS // _WORDS, _WORDS]) if along else _turned(thread)
        for number in range(SIDE * _WORDS // THREADS):
            own_row = _add(row, number * (THREADS // _WORDS)) if along else row
            own_word = word if along else _add(word, number * (THREADS // SIDE))
            self._words.append((own_row, own_word, _Place.of(arith.addi(first, own_row), size)))

    def _size(self, loop: int) -> ir.Value:
        return as_value(self._generic.size(loop, self._kernel.inside))

    def fill(self, chunk: ir.Value) -> None:
        """A thread puts its words of a chunk of k into shared memory, zeros behind the ends of the operand."""
        length = self._size(self._k)
        found = []
        for row, word, place in self._words:
            columns = [_Place.of(_add(chunk, word, self._each, e), length) for e in range(self._each)]
            found.append((row, word, [self._element(place, column) for column in columns]))
        for row, word, elements in found:
            for piece, words in enumerate(self.pieces):
                own = [element[piece] for element in elements]
                memref.store(_packed(own) if len(own) > 1 else own[0], words, [row, word])

    def _element(self, row: _Place, column: _Place) -> list[ir.Value]:
        """The pieces of an element, 16 bits each, or the element."""
        at = {**self._dims, self._side: row.index, self._k: column.index}
        indices = evaluate(self._map, [at.get(d) for d in range(len(self._generic.parallel) + 1)])
        x = memref.load(self._source, indices)
        x = arith.select(arith.andi(row.inside, column.inside), x, arith.constant(x.type, 0.0))
        if len(self.pieces) == 1:
            return [x]
        return [arith.truncf(ir.BF16Type.get(), piece) for piece in pieces_of(x, len(self.pieces))]


def _each(kind: ir.Type) -> int:
    """The elements of a word in shared memory."""
    return 1 if isinstance(kind, ir.F64Type) else 2


def _turned(thread: ir.Value) -> list[ir.Value]:
    """A row and a word where neighbouring threads have neighbouring rows."""
    return delinearize(thread, [THREADS // SIDE, SIDE])[::-1]


def _add(index: ir.Value, further: ir.Value | int, times: int = 1, besides: int = 0) -> ir.Value:
    """An index so often another one further on, and some besides."""
    far = as_value(further)
    far = arith.muli(far, as_value(times)) if times > 1 else far
    far = arith.addi(far, as_value(besides)) if besides else far
    return arith.addi(index, far)


def _packed(pair: Sequence[ir.Value]) -> ir.Value:
    """Two elements of 16 bits as a word."""
    i16, i32 = (ir.IntegerType.get_signless(width) for width in (16, 32))
    low, high = (arith.extui(i32, arith.bitcast(i16, x)) for x in pair)
    return arith.ori(low, arith.shli(high, arith.constant(i32, 16)))


def lower(nest: Nest) -> None:
    """Puts the launch of the kernel before the operation."""
    generic = nest.generic
    rows, columns = generic.product_loops()
    batch = [d for d in generic.parallel if d not in (rows, columns)]
    kind = ir.MemRefType(generic.inputs[0].type).element_type

    def tiles(see) -> list[Size]:  # noqa: ANN001
        sides = [ceildiv(generic.size(d, see), SIDE) for d in (rows, columns)]
        return [*(generic.size(d, see) for d in batch), *sides]

    kernel = nest.kernel(threads=THREADS)
    with kernel.body():
        *outer, row, column = delinearize(gpu.block_id(gpu.Dimension.x), tiles(kernel.inside))
        dims = dict(zip(batch, outer, strict=True))
        first = {rows: arith.muli(row, as_value(SIDE)), columns: arith.muli(column, as_value(SIDE))}
        left_first = rows in dims_of(generic.maps[0])
        operands = [
            _Operand(generic, number, kernel, dims, side, first[side])
            for number, side in enumerate((rows, columns) if left_first else (columns, rows))
        ]
        left, right = operands if left_first else operands[::-1]
        count = SIDE * SIDE // THREADS
        loop = scf.ForOp(
            as_value(0),
            as_value(generic.size(generic.reduction[0], kernel.inside)),
            as_value(_WORDS * _each(kind)),
            mma_sync.zeros(count, ir.MemRefType(generic.outputs[0].type).element_type),
        )
        with ir.InsertionPoint(loop.body):
            gpu.barrier()
            for operand in (left, right):
                operand.fill(loop.induction_variable)
            gpu.barrier()
            multiplied = _multiplied_wide if _each(kind) == 1 else partial(_multiplied, kind)
            scf.yield_(multiplied(left.pieces, right.pieces, list(loop.inner_iter_args)))
        _finish(nest, kernel, dims, first, list(loop.results))
    kernel.launch(lambda: product(tiles(on_host)))


def _stands() -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """The first row and column of a warp in its tile, and a lane's group and number in it (ampere/mma_sync.py)."""
    thread = gpu.thread_id(gpu.Dimension.x)
    warp, group, own = delinearize(thread, [THREADS // WARP, WARP // 4, 4])
    row, column = delinearize(warp, [SIDE // _OWN, SIDE // _OWN])
    return arith.muli(row, as_value(_OWN)), arith.muli(column, as_value(_OWN)), group, own


def _multiplied(
    kind: ir.Type, left: Sequence[ir.Value], right: Sequence[ir.Value], sums: list[ir.Value]
) -> list[ir.Value]:
    """A warp's sums with the products of a chunk, which of pieces are added in f32."""
    row, column, group, own = _stands()
    element = "f16" if isinstance(kind, ir.F16Type) else "bf16"
    found = list(sums) if len(left) == 1 else mma_sync.zeros(len(sums))

    def words(shared: ir.Value, first: ir.Value, further: int, step: int, halves: Sequence[int]) -> list[ir.Value]:
        at = arith.addi(arith.addi(first, group), as_value(further))
        steps = [as_value(step * mma_sync.DEPTH // 2 + half) for half in halves]
        return [memref.load(shared, [at, arith.addi(own, one)]) for one in steps]

    for a, b in PAIRS[len(left)]:
        for step in range(_STEPS):
            lefts = []
            for tile in range(0, _OWN, mma_sync.ROWS):
                low, high = (words(left[a], row, tile + half, step, (0, 4)) for half in (0, mma_sync.BLOCK))
                lefts.append([low[0], high[0], low[1], high[1]])
            for block in range(_OWN // mma_sync.BLOCK):
                b_words = words(right[b], column, block * mma_sync.BLOCK, step, (0, 4))
                for tile, a_words in enumerate(lefts):
                    at = (tile * (_OWN // mma_sync.BLOCK) + block) * mma_sync.SUMS
                    own_sums = found[at : at + mma_sync.SUMS]
                    found[at : at + mma_sync.SUMS] = mma_sync.add_16_bit(element, a_words, b_words, own_sums)
    return found if len(left) == 1 else [arith.addf(a, b) for a, b in zip(sums, found, strict=True)]


def _multiplied_wide(left: Sequence[ir.Value], right: Sequence[ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
    """The same of f64. Sums are in the order of the others': of 16 rows those of the first 8, and then the rest."""
    row, column, group, own = _stands()
    found = list(sums)

    def elements(shared: ir.Value, first: ir.Value, step: int) -> list[ir.Value]:
        at = arith.addi(own, as_value(step * mma_sync.WIDE_DEPTH))
        first = arith.addi(first, group)
        return [memref.load(shared, [_add(first, rows), at]) for rows in range(0, _OWN, mma_sync.BLOCK)]

    for step in range(_WORDS // mma_sync.WIDE_DEPTH):
        lefts, rights = elements(left[0], row, step), elements(right[0], column, step)
        for number, a in enumerate(lefts):
            tile, half = divmod(number, 2)
            for block, b in enumerate(rights):
                at = ((tile * len(rights) + block) * 2 + half) * mma_sync.WIDE_SUMS
                found[at : at + mma_sync.WIDE_SUMS] = mma_sync.add_64_bit(a, b, found[at : at + mma_sync.WIDE_SUMS])
    return found


def _finish(
    nest: Nest, kernel: Kernel, dims: dict[int, ir.Value], first: dict[int, ir.Value], sums: list[ir.Value]
) -> None:
    """What becomes of a warp's sums."""
    generic = nest.generic
    (rows, first_row), (columns, first_column) = first.items()
    row, column, group, own = _stands()
    row, column = arith.addi(row, first_row), arith.addi(column, first_column)
    sizes = {d: as_value(generic.size(d, kernel.inside)) for d in first}
    rest = iter(sums)
    for tile in range(0, _OWN, mma_sync.ROWS):
        for block in range(0, _OWN, mma_sync.BLOCK):
            for half in (0, mma_sync.BLOCK):
                for e in (0, 1):
                    own_row, own_column = _add(row, group, 1, tile + half), _add(column, own, 2, block + e)
                    inside = arith.andi(device.below(own_row, sizes[rows]), device.below(own_column, sizes[columns]))
                    places = {rows: own_row, columns: own_column}
                    clamped = {d: arith.minui(at, arith.subi(sizes[d], as_value(1))) for d, at in places.items()}
                    nest.finish(kernel, [Point({**dims, **clamped}, inside)], [next(rest)])
