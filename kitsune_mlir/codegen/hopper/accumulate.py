"""A product that sums over the rows, left^T right, as plain data: which tensors, which blocks of the sum a CTA takes,
and what follows the sum.

    dW[m, n] = sum over rows r of left[r, m] * right[r, n]
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.loops import is_zero
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning.target import Target

from .fragments import is_packed
from .tma import TensorMap
from .wgmma import CHUNK, MOST_COLUMNS, ROWS

GROUPS = 2  # warpgroups that share a block, 64 of its rows each
BLOCK_ROWS = GROUPS * ROWS
TILE_ROWS = 64  # of left and right, in a slot
BOX_BYTES = TILE_ROWS * CHUNK * 2
LEAST_SLOTS = 3
BARRIER_BYTES = 1024


@dataclass(frozen=True)
class Total:
    """The sum of all partial sums, m by n, and what is made of it. `value` is what the reduce stage gets, `stored` what
    it stores, `result` the whole of that around the pipeline and `end` what is written in its place."""

    value: ir.Value
    stored: ir.Value
    result: kitsune.ResultOp
    end: ir.Value

    @property
    def shape(self) -> tuple[int, int]:
        m, n = shape_of(self.value)
        return m, n


class Accumulation:
    """A pipeline of a stage that multiplies and one that adds up the partial sums. Raises UnsupportedError for any
    other."""

    def __init__(self, pipeline: kitsune.PipelineOp):
        stages = pipeline.stages
        if len(stages) != 2 or len(stages[0].accumulates) != 1 or len(stages[1].reduces) != 1 or stages[0].stores:
            raise UnsupportedError("sums over the rows are added up by warpgroups where a pipeline is one such product")
        self.tensors = [value for value in pipeline.inputs if rows.is_tensor(value)]
        self.op = sum_product(stages[0].accumulates[0])
        self.total = total_of(pipeline, stages[1])
        numbers = [hash(value) for value in self.tensors]
        self.left, self.right = (numbers.index(hash(_loaded(operand))) for operand in list(self.op.operands)[:2])
        self.blocks_down = -(-self.m // BLOCK_ROWS)
        self.blocks_across = -(-self.n // MOST_COLUMNS)
        self.columns = -(-self.n // (self.blocks_across * CHUNK)) * CHUNK  # of a block
        self.maps = [
            TensorMap(number, self.element, (width, None), (width * 2,), (CHUNK, TILE_ROWS))
            for number, width in ((self.left, self.m), (self.right, self.n))
        ]

    @property
    def element(self) -> str:
        return str(element_of(self.op.operands[0]))

    @property
    def m(self) -> int:
        return self.total.shape[0]

    @property
    def n(self) -> int:
        return self.total.shape[1]

    @property
    def blocks(self) -> int:
        return self.blocks_down * self.blocks_across

    @property
    def slot_bytes(self) -> int:
        return (GROUPS + self.columns // CHUNK) * BOX_BYTES

    def slots(self, target: Target) -> int:
        return min(8, (target.shared_bytes - BARRIER_BYTES) // self.slot_bytes)


def fit(pipeline: kitsune.PipelineOp, target: Target) -> Accumulation:
    """The accumulation that the target holds. Raises UnsupportedError when it does not."""
    found = Accumulation(pipeline)
    if found.blocks > target.sms:
        raise UnsupportedError(f"a sum of {found.m} by {found.n} has more blocks than {target.name} has SMs")
    if found.slots(target) < LEAST_SLOTS:
        raise UnsupportedError(f"shared memory does not hold {LEAST_SLOTS} tiles of {found.slot_bytes} bytes")
    return found


def sum_product(accumulate: kitsune.AccumulateOp) -> ir.Operation:
    """The product whose terms are accumulated: 16-bit floats, summed in f32 from zero."""
    op = rows.producer(accumulate.operands[1])
    if op is None or op.name != "linalg.matmul":
        raise UnsupportedError("a sum over the rows that is no product is not split over warpgroups")
    maps = [[ir.AffineDimExpr(expr).position for expr in map_.results] for map_ in rows.Structured(op).maps]
    if maps != [[2, 0], [2, 1], [0, 1]]:
        raise UnsupportedError(
            "a product that does not sum over the rows of both operands is not split over warpgroups"
        )
    a, b, total = (element_of(value) for value in (*list(op.operands)[:2], op.results[0]))
    if a != b or not is_packed(a) or not isinstance(total, ir.F32Type):
        raise UnsupportedError(f"sums over the rows of {a} with {b} into {total} are not split over warpgroups")
    init = rows.init_of(op.operands[2])
    if init.scalar is None or not is_zero(init.scalar):
        raise UnsupportedError("a sum over the rows that does not start from zero is not split over warpgroups")
    for operand in list(op.operands)[:2]:
        width = prod(shape_of(operand)[1:])
        if width * 2 % 16:
            raise UnsupportedError(f"rows of {width} elements of 16 bits are not read by tensor copies")
    return op


def total_of(pipeline: kitsune.PipelineOp, stage: kitsune.StageOp) -> Total:
    """What a stage that fires once makes of its sum. One elementwise operator that alone reads the output joins."""
    value = stage.reduces[0].results[0]
    if len(stage.stores) != 1:
        raise UnsupportedError("a sum over the rows that is not stored once is not added up by warpgroups")
    store = stage.stores[0]
    results = [result for result in pipeline.result_ops if result.position == store.position]
    if len(results) != 1:
        raise UnsupportedError("a sum over the rows that nobody reads is not added up by warpgroups")
    return Total(value, store.operands[0], results[0], _follower(results[0].results[0]))


def _follower(value: ir.Value) -> ir.Value:
    """The result of the elementwise operator that is the only reader of a value; the value if there is none."""
    uses = list(value.uses)
    if len(uses) != 1 or uses[0].owner.operation.name != "linalg.generic":
        return value
    op = uses[0].owner.operation
    s = rows.Structured(op)
    alone = s.inputs == 1 and len(op.results) == 1 and rows.init_of(op.operands[1]).tensor is None
    if not alone or "reduction" in s.iterators or s.index_ops():
        return value
    identity = ir.AffineMap.get_identity(len(s.iterators))
    return op.results[0] if all(map_ == identity for map_ in s.maps) else value


def _loaded(tile: ir.Value) -> ir.Value:
    """The whole tensor that a tile is loaded from."""
    op = rows.producer(tile)
    if op is None or op.name != kitsune.LoadOp.OPERATION_NAME:
        raise UnsupportedError("operands of a sum over the rows that are computed are not read by tensor copies")
    return op.operands[0]
