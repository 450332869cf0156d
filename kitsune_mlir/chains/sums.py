"""What is known of a pipeline that sums over its rows before it is scheduled: the product across the rows, whose left
tile is loaded and whose right tile is loaded or computed, and a product beside it of the same right tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.fragments import is_packed
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import is_elementwise
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.kernels import COPY_ROWS
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import made_by, operations_of
from kitsune_mlir.schedule import numeric

from .product_plan import starts_from_zero

COPIES = 2  # warpgroups that share a block of the sum, 64 of its rows each
BLOCK_ROWS = COPIES * COPY_ROWS
TILE_ROWS = 64  # that are summed over at once
CHUNK = 64  # columns of a box of 16-bit elements
MOST_COLUMNS = 256  # of a block
MOST_SUMS = 160  # of a thread
MOST_BESIDE = 128  # columns of the product beside of a warpgroup: a box has 256 rows at most, a weight's of both
MOST_LOADS = 3  # that a tile is computed from: registers hold a chunk of each


@dataclass(frozen=True)
class Beside:
    """A product of the right tile with a weight: `op`, of which `stored` is made and stored. `turned` says that the
    weight is (outputs, inputs). Each warpgroup computes `columns` columns of those that the CTA of a block has."""

    op: ir.Operation
    stored: ir.Value
    result: kitsune.ResultOp
    turned: bool
    columns: int


class Summation:
    """A pipeline around one such product. Raises UnsupportedError for any other. The sum is of `m` columns of the left
    tile times `n` of the right one, in `down` times `across` blocks of 128 times `columns`; `transposed` says that the
    model has it the other way round."""

    def __init__(self, pipeline: kitsune.PipelineOp):
        stages = pipeline.stages
        sums = [accumulate for stage in stages for accumulate in stage.accumulates]
        last = [stage for stage in stages if stage.reduces]
        if len(sums) != 1 or len(last) != 1 or len(last[0].reduces) != 1:
            raise UnsupportedError("warpgroups add up one sum over the rows in a pipeline")
        op = sum_product(sums[0])
        left, right = (tile_of(operand) for operand in list(op.operands)[:2])
        self.transposed = not is_load(left)
        if self.transposed:
            left, right = right, left
        if not is_load(left):
            raise UnsupportedError("a sum over the rows of two computed tiles is not split over warpgroups")
        self.left, self.right = left, right
        self.m, self.n = (prod(shape_of(tile)[1:]) for tile in (left, right))
        self.loads = list({hash(load): load for load in loads_of(right)}.values())
        self.total = _total_of(pipeline, last[0])
        self.down, self.across = -(-self.m // BLOCK_ROWS), -(-self.n // MOST_COLUMNS)
        self.columns = -(-self.n // (self.across * CHUNK)) * CHUNK
        self.beside = self._beside(pipeline, [stage for stage in stages if stage != last[0]])
        if {str(element_of(load)) for load in self.loads} != {str(element_of(right))}:
            raise UnsupportedError("a tile of other elements than what it is computed from is not summed")
        if len(self.loads) > MOST_LOADS:
            raise UnsupportedError(f"registers do not hold the {len(self.loads)} tiles that one is computed from")
        if self.computes and not is_finite_of_zeros(right):
            raise UnsupportedError("a tile that is not finite where all that it is computed from is zero is not summed")

    @property
    def computes(self) -> bool:
        """Whether the right tile is not just loaded."""
        return not is_load(self.right)

    @property
    def blocks(self) -> int:
        return self.down * self.across

    def _beside(self, pipeline: kitsune.PipelineOp, stages: list[kitsune.StageOp]) -> Beside | None:
        stores = [(stage, store) for stage in stages for store in stage.stores]
        if not stores:
            return None
        stage, store = stores[0]
        products = operations_of(stage.block, "linalg.matmul")
        results = [result for result in pipeline.result_ops if result.position == store.position]
        if len(stores) > 1 or len(products) != 1 or len(results) != 1:
            raise UnsupportedError("beside a sum over the rows, warpgroups compute one product")
        (op,) = products
        width, element = shape_of(op.results[0])[1], element_of(store.operands[0])
        weight = op.operands[1]
        if not self.computes or tile_of(op.operands[0]) != self.right or weight not in stage.residents:
            raise UnsupportedError(
                "the product beside a sum over the rows is not one of its computed tile with a weight"
            )
        if not starts_from_zero(op) or element_of(weight) != element_of(self.right) or not is_packed(element):
            raise UnsupportedError("the product beside a sum over the rows is not of the same 16-bit elements")
        if self.across > 1 or width % (self.down * COPIES * CHUNK):
            raise UnsupportedError(f"{width} columns beside a sum of {self.m} by {self.n} are not shared evenly")
        columns = width // (self.down * COPIES)
        if columns > MOST_BESIDE or (columns + self.columns) // 2 > MOST_SUMS:
            raise UnsupportedError("the sums of two products are more than a thread of a warpgroup has registers")
        _check_epilogue(store.operands[0], op.results[0], stage)
        turned = _positions(op)[1] == [1, 2]
        if not turned and _positions(op)[1] != [2, 1] or shape_of(weight)[1] * 2 % 16:
            raise UnsupportedError("a weight of this order is not read by tensor copies")
        return Beside(op, store.operands[0], results[0], turned, columns)


def sum_product(accumulate: kitsune.AccumulateOp) -> ir.Operation:
    """The product whose terms are accumulated: 16-bit floats, summed in f32 from zero."""
    op = made_by(accumulate.operands[1], "linalg.matmul")
    if op is None:
        raise UnsupportedError("a sum over the rows that is no product is not split over warpgroups")
    if _positions(op) != [[2, 0], [2, 1], [0, 1]]:
        raise UnsupportedError("a product that does not sum over both operands' rows is not split over warpgroups")
    a, b, total = (element_of(value) for value in (*list(op.operands)[:2], op.results[0]))
    if a != b or not is_packed(a) or not isinstance(total, ir.F32Type):
        raise UnsupportedError(f"sums over the rows of {a} with {b} into {total} are not split over warpgroups")
    if not starts_from_zero(op):
        raise UnsupportedError("a sum over the rows that does not start from zero is not split over warpgroups")
    for operand in list(op.operands)[:2]:
        width = prod(shape_of(operand)[1:])
        if width * 2 % 16:
            raise UnsupportedError(f"rows of {width} elements of 16 bits are not read by tensor copies")
    return op


def tile_of(value: ir.Value) -> ir.Value:
    """Where a tile is made: through queues back to the stage that puts it there."""
    op = made_by(value, kitsune.GetOp.OPERATION_NAME)
    if op is None:
        return value
    queue = rows.producer(op.operands[0]).opview
    (put,) = [put for put in queue.producers[0].puts if put.operands[0] == queue.results[0]]
    return tile_of(put.operands[1])


def is_load(tile: ir.Value) -> bool:
    op = made_by(tile, kitsune.LoadOp.OPERATION_NAME)
    return op is not None


def whole_of(tile: ir.Value) -> ir.Value:
    """The tensor that a loaded tile is of."""
    return rows.producer(tile).operands[0]


def loads_of(tile: ir.Value) -> Iterator[ir.Value]:
    """The loaded tiles that a tile is computed from, element by element; all are of its shape and of 16 bits."""
    if is_load(tile):
        if not is_packed(element_of(tile)):
            raise UnsupportedError(f"tiles of {element_of(tile)} are not computed by warpgroups beside sums")
        yield tile
        return
    op = rows.producer(tile)
    identity = ir.AffineMap.get_identity(2)
    s = rows.Structured(op) if op is not None and is_elementwise(op) else None
    if s is None or s.index_ops() or s.gathers() or any(map_ != identity for map_ in s.maps):
        raise UnsupportedError("a tile that is not computed element by element is not multiplied across its rows")
    for operand in s.given:
        yield from loads_of(operand)


def is_finite_of_zeros(tile: ir.Value) -> bool:
    """Whether a tile is finite in rows behind a tensor's last, which are loaded as zeros: products with these, of the
    other operand, are zero then."""
    known: dict[int, object] = {}

    def compute(value: ir.Value) -> object:
        if hash(value) not in known:
            op = rows.producer(value)
            if not is_load(value) and op.name not in ("linalg.generic", "arith.constant"):
                known[hash(value)] = np.zeros((1, 1), np.float32)  # what a result begins with
            elif is_load(value):
                known[hash(value)] = np.zeros((1, 1), np.float32)
            else:
                (known[hash(value)],) = numeric.compile_op(op)([compute(x) for x in numeric.operands_of(op)])
        return known[hash(value)]

    with np.errstate(all="ignore"):
        return bool(np.isfinite(compute(tile)).all())


def _check_epilogue(value: ir.Value, total: ir.Value, stage: kitsune.StageOp) -> None:
    """Raises UnsupportedError unless `value` is made element by element of `total` and residents."""
    if value == total or value in stage.residents:
        return
    op = rows.producer(value)
    if op is None or not is_elementwise(op):
        raise UnsupportedError("what follows a product beside a sum over the rows is not elementwise")
    for operand in rows.Structured(op).given:
        _check_epilogue(operand, total, stage)


def _total_of(pipeline: kitsune.PipelineOp, stage: kitsune.StageOp) -> kitsune.ResultOp:
    """The whole sum around the pipeline, of which the stage that fires once makes nothing else."""
    stored = [store for store in stage.stores if store.operands[0] == stage.reduces[0].results[0]]
    results = [result for store in stored for result in pipeline.result_ops if result.position == store.position]
    if len(stage.stores) != 1 or len(results) != 1:
        raise UnsupportedError("a sum over the rows that is not stored once, and read, is not added up by warpgroups")
    return results[0]


def _positions(product: ir.Operation) -> list[list[int]]:
    """The loops, of m, n and k, that walk each operand's dimensions."""
    return [[ir.AffineDimExpr(expr).position for expr in map_.results] for map_ in rows.Structured(product).maps]
