"""A product that sums over the rows, left^T right, as plain data: which tensors, which blocks of the sum a CTA takes,
what else is made of the same tiles, and what follows the sum.

    dW[m, n] = sum over rows r of left[r, m] * right[r, n]

The right tile may be computed elementwise from loaded ones; a second product, right W, may take it too: one tile in
shared memory, two consumers. Where it is the left one that is computed, the sum is computed transposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.loops import is_zero
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import is_elementwise
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning.target import Target

from .cluster import MOST_CTAS
from .fragments import BLOCK, is_packed
from .tma import TensorMap
from .wgmma import CHUNK, MOST_COLUMNS, ROWS

GROUPS = 2  # warpgroups that share a block, 64 of its rows each
BLOCK_ROWS = GROUPS * ROWS
TILE_ROWS = 64  # of left and right, in a slot
BOX_BYTES = TILE_ROWS * CHUNK * 2
MOST_SLOTS, LEAST_SLOTS = 8, 2
BARRIER_BYTES = 1024
MOST_SUMS = 176  # of a thread
SHARED = ("dsmem", "l2")  # transports of tiles that CTAs compute by shares


@dataclass(frozen=True)
class Total:
    """The sum of all partial sums and what is made of it. `value` is what the reduce stage gets, `stored` what it
    stores, `result` the whole of that around the pipeline and `end` what is written in its place."""

    value: ir.Value
    stored: ir.Value
    result: kitsune.ResultOp
    end: ir.Value

    @property
    def transport(self) -> str:
        """The transport of the partial sums, once placed."""
        return rows.producer(rows.producer(self.value).operands[0]).opview.transport


@dataclass(frozen=True)
class Beside:
    """A product of the right tile with a weight: `op`, of which `stored` is made and stored. `transposed` says that the
    weight is (outputs, inputs). Each warpgroup of a group of CTAs computes `columns` columns."""

    op: ir.Operation
    stored: ir.Value
    result: kitsune.ResultOp
    residents: list[ir.Value]
    transposed: bool
    columns: int

    @property
    def end(self) -> ir.Value:
        return self.result.results[0]

    @property
    def boxes(self) -> int:
        """How many boxes of 64 columns a CTA has."""
        return GROUPS * self.columns // CHUNK


class Accumulation:
    """A pipeline around one product that sums over the rows. Raises UnsupportedError for any other."""

    def __init__(self, pipeline: kitsune.PipelineOp):
        stages = pipeline.stages
        sums = [accumulate for stage in stages for accumulate in stage.accumulates]
        last = [stage for stage in stages if stage.reduces]
        if len(sums) != 1 or len(last) != 1 or len(last[0].reduces) != 1:
            raise UnsupportedError("warpgroups add up one sum over the rows in a pipeline")
        self.tensors = [value for value in pipeline.inputs if rows.is_tensor(value)]
        self._numbers = {hash(value): number for number, value in enumerate(self.tensors)}
        self.op = sum_product(sums[0])
        tiles = [queue for queue in pipeline.queues if queue.results[0] != sums[0].operands[0]]
        self.tiles = tiles[0].transport if tiles and pipeline.shape != "spatial" else None
        left, right = (tile_of(operand) for operand in list(self.op.operands)[:2])
        self.transposed = not is_load(left)
        if self.transposed:
            left, right = right, left
        if not is_load(left):
            raise UnsupportedError("a sum over the rows of two computed tiles is not split over warpgroups")
        self.left, self.right = left, right
        self.m, self.n = (prod(shape_of(tile)[1:]) for tile in (left, right))
        self.loads = _unique(loads_of(right))
        self.total = total_of(pipeline, last[0])
        self.blocks_down, self.blocks_across = -(-self.m // BLOCK_ROWS), -(-self.n // MOST_COLUMNS)
        self.columns = -(-self.n // (self.blocks_across * CHUNK)) * CHUNK  # of a block
        self.beside = self._beside(pipeline, [stage for stage in stages if stage != last[0]])
        made = [self.total, *([self.beside] if self.beside else [])]
        self.outputs = sorted(made, key=lambda output: output.result.position)  # in the order of the kernel's
        self.maps = [self._tile_map(tile) for tile in (left, *self.loads)]
        if self.beside:
            self.weight_map, self.output_map = len(self.maps), len(self.maps) + 1
            self.maps += [self._weight_map(self.beside), self._output_map(self.beside)]

    @property
    def element(self) -> str:
        return str(element_of(self.right))

    @property
    def computes(self) -> bool:
        """Whether the right tile is not just loaded."""
        return not is_load(self.right)

    @property
    def blocks(self) -> int:
        return self.blocks_down * self.blocks_across

    @property
    def right_boxes(self) -> int:
        return self.columns // CHUNK

    @property
    def share(self) -> int:
        """Boxes of the right tile that each of the CTAs of a partial sum could compute for all; 0 where they cannot."""
        whole = self.computes and 1 < self.blocks == self.blocks_down and self.right_boxes % self.blocks == 0
        return self.right_boxes // self.blocks if whole else 0

    @property
    def own_boxes(self) -> int:
        """Boxes of the right tile that a CTA loads, or computes from as many of each load."""
        return self.share if self.tiles in SHARED else self.right_boxes

    def box(self, load: int, number: int, first: Int) -> Int:
        """Where in a slot own box `number` of a load lies: of load 0 in place of the tile's boxes, of which the own
        ones begin at `first`; of others after the tile."""
        if load == 0:
            return device.add(first, GROUPS + number)
        return GROUPS + self.right_boxes + (load - 1) * self.own_boxes + number

    @property
    def slot_bytes(self) -> int:
        """After the right tile lie other loads' boxes; the output of the product beside leaves from there."""
        others = (len(self.loads) - 1) * self.own_boxes
        return (GROUPS + self.right_boxes + max(others, self.beside.boxes if self.beside else 0)) * BOX_BYTES

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weight's columns that a CTA keeps in shared memory."""
        return self.right_boxes * self.beside.boxes * BOX_BYTES if self.beside else 0

    def slots(self, target: Target) -> int:
        return min(MOST_SLOTS, (target.shared_bytes - BARRIER_BYTES - self.weight_bytes) // self.slot_bytes)

    def number(self, tensor: ir.Value) -> int:
        """The number of a tensor among the kernel's arguments."""
        return self._numbers[hash(tensor)]

    def _tile_map(self, tile: ir.Value) -> TensorMap:
        width = prod(shape_of(tile)[1:])
        number = self.number(rows.producer(tile).operands[0])
        return TensorMap(number, self.element, (width, None), (width * 2,), (CHUNK, TILE_ROWS))

    def _weight_map(self, beside: Beside) -> TensorMap:
        """Boxes of 64 inputs by 64 outputs."""
        weight = beside.op.operands[1]
        sizes = tuple(reversed(shape_of(weight)))
        return TensorMap(self.number(weight), self.element, sizes, (sizes[0] * 2,), (CHUNK, CHUNK))

    def _output_map(self, beside: Beside) -> TensorMap:
        tile, number = beside.stored, len(self.tensors) + self.outputs.index(beside)
        width = shape_of(tile)[1]
        return TensorMap(number, str(element_of(tile)), (width, None), (width * 2,), (CHUNK, TILE_ROWS))

    def _beside(self, pipeline: kitsune.PipelineOp, stages: list[kitsune.StageOp]) -> Beside | None:
        stores = [(stage, store) for stage in stages for store in stage.stores]
        if not stores:
            return None
        stage, store = stores[0]
        products = [op.operation for op in stage.block.operations if op.operation.name == "linalg.matmul"]
        results = [result for result in pipeline.result_ops if result.position == store.position]
        if len(stores) > 1 or len(products) != 1 or len(results) != 1:
            raise UnsupportedError("beside a sum over the rows, warpgroups compute one product")
        (op,) = products
        width, element = shape_of(op.results[0])[1], element_of(store.operands[0])
        if tile_of(op.operands[0]) != self.right or op.operands[1] not in stage.residents or not _from_zero(op):
            raise UnsupportedError("the product beside a sum over the rows is not one of the same tile with a weight")
        if str(element_of(op.operands[1])) != self.element or not is_packed(element):
            raise UnsupportedError("the product beside a sum over the rows is not of the same 16-bit elements")
        if self.blocks_across > 1 or width % (self.blocks_down * GROUPS * CHUNK):
            raise UnsupportedError(f"{width} columns beside a sum of {self.m} by {self.n} are not shared evenly")
        columns = width // (self.blocks_down * GROUPS)
        if (columns + self.columns) // 2 > MOST_SUMS:
            raise UnsupportedError("the sums of two products are more than a thread of a warpgroup has registers")
        check_epilogue(store.operands[0], op.results[0], stage)
        transposed = _positions(op)[1] == [1, 2]
        if not transposed and _positions(op)[1] != [2, 1] or self.n % 8:
            raise UnsupportedError("a weight of this order is not read by tensor copies")
        return Beside(op, store.operands[0], results[0], stage.residents, transposed, columns)


def fit(pipeline: kitsune.PipelineOp, target: Target, cluster: int) -> Accumulation:
    """The accumulation that the target holds, `cluster` partial sums added at once. Raises UnsupportedError when it
    does not."""
    found = Accumulation(pipeline)
    if cluster > MOST_CTAS or found.columns // BLOCK % cluster:
        raise UnsupportedError(f"a cluster of {cluster} CTAs does not share {found.columns} columns of a sum evenly")
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
    if _positions(op) != [[2, 0], [2, 1], [0, 1]]:
        raise UnsupportedError("a product that does not sum over both operands' rows is not split over warpgroups")
    a, b, total = (element_of(value) for value in (*list(op.operands)[:2], op.results[0]))
    if a != b or not is_packed(a) or not isinstance(total, ir.F32Type):
        raise UnsupportedError(f"sums over the rows of {a} with {b} into {total} are not split over warpgroups")
    if not _from_zero(op):
        raise UnsupportedError("a sum over the rows that does not start from zero is not split over warpgroups")
    for operand in list(op.operands)[:2]:
        width = prod(shape_of(operand)[1:])
        if width * 2 % 16:
            raise UnsupportedError(f"rows of {width} elements of 16 bits are not read by tensor copies")
    return op


def tile_of(value: ir.Value) -> ir.Value:
    """Where a tile is made: through queues back to the stage that puts it there."""
    op = rows.producer(value)
    if op is None or op.name != kitsune.GetOp.OPERATION_NAME:
        return value
    queue = rows.producer(op.operands[0]).opview
    (put,) = [put for put in queue.producers[0].puts if put.operands[0] == queue.results[0]]
    return tile_of(put.operands[1])


def is_load(tile: ir.Value) -> bool:
    op = rows.producer(tile)
    return op is not None and op.name == kitsune.LoadOp.OPERATION_NAME


def loads_of(tile: ir.Value) -> Iterator[ir.Value]:
    """The loaded tiles that a tile is computed from, element by element; all are of its shape and of 16 bits."""
    if is_load(tile):
        if not is_packed(element_of(tile)):
            raise UnsupportedError(f"tiles of {element_of(tile)} are not computed in place by warpgroups")
        yield tile
        return
    op = rows.producer(tile)
    identity = ir.AffineMap.get_identity(2)
    if op is None or not is_elementwise(op) or any(map_ != identity for map_ in rows.Structured(op).maps):
        raise UnsupportedError("a tile that is not computed element by element is not multiplied across its rows")
    for operand in list(op.operands)[: rows.Structured(op).inputs]:
        yield from loads_of(operand)


def check_epilogue(value: ir.Value, total: ir.Value, stage: kitsune.StageOp) -> None:
    """Raises UnsupportedError unless `value` is made element by element of `total` and residents."""
    if value == total or value in stage.residents:
        return
    op = rows.producer(value)
    if op is None or not is_elementwise(op):
        raise UnsupportedError("what follows a product beside a sum over the rows is not elementwise")
    for operand in list(op.operands)[: rows.Structured(op).inputs]:
        check_epilogue(operand, total, stage)


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


def _positions(product: ir.Operation) -> list[list[int]]:
    """The loops, of m, n and k, that walk each operand's dimensions."""
    return [[ir.AffineDimExpr(expr).position for expr in map_.results] for map_ in rows.Structured(product).maps]


def _from_zero(product: ir.Operation) -> bool:
    init = rows.init_of(product.operands[2])
    return init.scalar is not None and is_zero(init.scalar)


def _unique(values: Iterator[ir.Value]) -> list[ir.Value]:
    return list({hash(value): value for value in values}.values())
