"""What the warpgroups of a chained pipeline do to one tile, as plain data: blocks of stages, the products of
each, and which boxes of weights the products take in which order. Producer and consumers both follow it.

Consecutive stages that differ only in what they name as residents form one block and one loop: ten
equal layers are assembled once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import MAP, PRODUCT, Nest, StageNests, kitsune_label
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.traffic import element_bytes

from .fragments import BLOCK, is_packed
from .tma import TensorMap
from .wgmma import CHUNK, MOST_COLUMNS, ROWS, STEP

TILE_ROWS = 128
STREAMED_COLUMNS = 128  # operands at least that wide come through shared memory
MOST_VECTOR_BYTES = 16384  # of one resident kept in shared memory
REGISTERS = 216  # of a thread, for tiles and sums; the rest are addresses and counters
_EQUAL_LEAST = 2


@dataclass(frozen=True)
class Segment:
    """`width` columns of a product's left operand: those of the tile `value`, which meet the columns of the weight
    from `start` on. `map` is the tensor map of the weight, `rows_map` that of the tile when it comes by TMA."""

    value: ir.Value
    start: int
    width: int
    map: int
    rows_map: int | None = None

    @property
    def chunks(self) -> int:
        return -(-self.width // CHUNK)

    def steps(self, chunk: int) -> int:
        return -(-min(CHUNK, self.width - chunk * CHUNK) // STEP)


@dataclass
class Product:
    """One product: `n` columns, computed `columns` at a time."""

    op: ir.Operation
    n: int
    columns: int
    segments: list[Segment]

    @property
    def passes(self) -> int:
        return -(-self.n // self.columns)


@dataclass
class Block:
    """Equal stages, run as a loop when there are several; `products` by the key of their result in the first.
    From one stage to the next, tensor maps are `map_step` further, vectors `vector_step` bytes."""

    stages: list[kitsune.StageOp]
    nests: StageNests
    products: dict[int, Product] = field(default_factory=dict)
    vectors: dict[int, int] = field(default_factory=dict)  # resident -> byte offset among the vectors
    map_step: int = 0
    vector_step: int = 0

    @property
    def stage(self) -> kitsune.StageOp:
        return self.stages[0]


@dataclass(frozen=True)
class Vector:
    """A small resident copied into shared memory when the kernel starts."""

    tensor: int
    nbytes: int
    offset: int


class Program:
    """`tensors` are the kernel's inputs, `results` its outputs. Raises UnsupportedError for what warpgroups cannot
    chain."""

    def __init__(self, pipeline: kitsune.PipelineOp):
        stages = pipeline.stages
        self.tensors = [value for value in pipeline.inputs if rows.is_tensor(value)]
        self.results = pipeline.result_ops
        self._numbers = {hash(value): number for number, value in enumerate(self.tensors)}
        self.maps: list[TensorMap] = []
        self.vectors: list[Vector] = []
        self.vector_bytes = 0
        self.padded: set[int] = set()
        self.on_chip = {kitsune_label(put.operands[0]) for stage in stages for put in stage.puts}
        for stage in stages:
            _check(stage)
        self.blocks = [self._block(group) for group in _equal_runs(stages)]
        self.store_maps = self._store_maps()
        check_pressure(self)

    def _block(self, stages: list[kitsune.StageOp]) -> Block:
        block = Block(stages, StageNests(stages[0], self.on_chip))
        for number, stage in enumerate(stages):
            first_map, first_byte = len(self.maps), self.vector_bytes
            nests = block.nests if number == 0 else StageNests(stage, self.on_chip)
            products = {
                hash(nest.op.results[0]): self._product(nest) for nest in nests if nest.kind == PRODUCT and nest.op
            }
            vectors = self._stage_vectors(stage)
            if number == 0:
                block.products, block.vectors = products, vectors
                block.map_step, block.vector_step = len(self.maps) - first_map, self.vector_bytes - first_byte
        return block

    def _product(self, nest: Nest) -> Product:
        op = nest.op
        assert op is not None
        weight, n = op.operands[1], shape_of(op.results[0])[1]
        passes = -(-n // MOST_COLUMNS)
        if passes > 1 and nest.local:
            raise UnsupportedError(f"{n} columns of a product are more than a warpgroup keeps in registers")
        unit = BLOCK if passes == 1 else CHUNK
        columns = -(-n // (passes * unit)) * unit
        segments, start = [], 0
        for value in parts_of(op.operands[0]):
            width = prod(shape_of(value)[1:])
            map_ = self._weight_map(weight, start + width, columns)
            segments.append(Segment(value, start, width, map_, self._rows_map(value)))
            start += width
        return Product(op, n, columns, segments)

    def _weight_map(self, weight: ir.Value, limit: int, columns: int) -> int:
        """Boxes of `columns` rows of the weight (n, k) by 64 of its columns, as if it had `limit` of these."""
        element, number = element_of(weight), self._numbers[hash(weight)]
        n, k = shape_of(weight)
        if k * element_bytes(element) % 16:
            self.padded.add(number)
            k = padded_columns(k, element)
        stride = k * element_bytes(element)
        self.maps.append(TensorMap(number, str(element), (limit, n), (stride,), (CHUNK, columns)))
        return len(self.maps) - 1

    def _rows_map(self, value: ir.Value) -> int | None:
        """Of a wide tile that is loaded as it is: 64 columns of a warpgroup tile's rows."""
        if not is_streamed(value):
            return None
        width = prod(shape_of(value)[1:])
        element = element_of(value)
        number = self._numbers[hash(rows.producer(value).operands[0])]
        self.maps.append(
            TensorMap(number, str(element), (width, None), (width * element_bytes(element),), (CHUNK, TILE_ROWS))
        )
        return len(self.maps) - 1

    def _store_maps(self) -> dict[int, int]:
        """By output, the maps of those that leave by TMA: 64 columns of a warpgroup's rows."""
        found = {}
        for number, result in enumerate(self.results, len(self.tensors)):
            tile = result.store.operands[0]
            element, width = element_of(tile), prod(shape_of(tile)[1:])
            stride = width * element_bytes(element)
            if is_packed(element) and stride % 16 == 0:
                found[result.position] = len(self.maps)
                self.maps.append(TensorMap(number, str(element), (width, None), (stride,), (CHUNK, ROWS)))
        return found

    def _stage_vectors(self, stage: kitsune.StageOp) -> dict[int, int]:
        """Puts the stage's small residents into shared memory."""
        weights = {
            hash(op.operation.operands[1]) for op in stage.block.operations if op.operation.name == "linalg.matmul"
        }
        found = {}
        for value in stage.residents:
            nbytes = prod(shape_of(value)) * element_bytes(element_of(value))
            if hash(value) in weights or nbytes > MOST_VECTOR_BYTES:
                continue
            found[hash(value)] = self.vector_bytes
            self.vectors.append(Vector(self._numbers[hash(value)], nbytes, self.vector_bytes))
            self.vector_bytes += -(-nbytes // 16) * 16
        return found

    @property
    def grid_product(self) -> Product | None:
        """The product whose columns the grid deals out as well as rows: the only one, of several passes."""
        products = [product for block in self.blocks for product in block.products.values()]
        only = len(products) == 1 and len(self.blocks[0].stages) == 1 and len(self.blocks) == 1
        return products[0] if only and products[0].passes > 1 else None

    @property
    def streams(self) -> bool:
        """Whether some operand comes through shared memory."""
        return any(segment.rows_map is not None for segment in self.segments())

    def segments(self) -> Iterator[Segment]:
        for block in self.blocks:
            for product in block.products.values():
                yield from product.segments

    @property
    def weight_columns(self) -> int:
        """The most rows of a weight in one box."""
        return max(product.columns for block in self.blocks for product in block.products.values())


def padded_columns(columns: int, element: ir.Type) -> int:
    """Columns of a weight whose rows are multiples of 16 bytes, as tensor maps want them."""
    each = 16 // element_bytes(element)
    return -(-columns // each) * each


def parts_of(value: ir.Value) -> list[ir.Value]:
    """The tiles that a product's left operand is a concatenation of."""
    op = rows.producer(value)
    if op is not None and op.name == "tensor.concat" and ir.IntegerAttr(op.attributes["dim"]).value == 1:
        return [part for operand in op.operands for part in parts_of(operand)]
    return [value]


def is_streamed(value: ir.Value) -> bool:
    op = rows.producer(value)
    if op is None or op.name != kitsune.LoadOp.OPERATION_NAME:
        return False
    width = prod(shape_of(value)[1:])
    return is_packed(element_of(value)) and width >= STREAMED_COLUMNS and width * 2 % 16 == 0


def _check(stage: kitsune.StageOp) -> None:
    if stage.reduces or stage.accumulates:
        raise UnsupportedError("sums over the rows are not chained")
    for op in stage.block.operations:
        op = op.operation
        if op.name != "linalg.matmul":
            continue
        a, b, total = (element_of(value) for value in (*op.operands[:2], op.results[0]))
        if a != b or not is_packed(a) or not isinstance(total, ir.F32Type | ir.BF16Type | ir.F16Type):
            raise UnsupportedError(f"products of {a} with {b} into {total} are not chained by warpgroups")
        if op.operands[1] not in stage.residents:
            raise UnsupportedError("a product with a weight that the stage computes is not chained by warpgroups")
        if "d2" not in str(list(rows.Structured(op).maps[1].results)[1]):
            raise UnsupportedError("a product with a weight of (inputs, outputs) is not chained by warpgroups")


def _equal_runs(stages: list[kitsune.StageOp]) -> Iterator[list[kitsune.StageOp]]:
    """Runs of stages that are equal but for their residents, each fed by the one before it alone."""
    at = 0
    while at < len(stages):
        end, key = at + 1, _form(stages[at])
        while end < len(stages) and _feeds_only(stages[end - 1], stages[end]) and _form(stages[end]) == key:
            end += 1
        run = stages[at:end]
        yield run if len(run) >= _EQUAL_LEAST and _is_link(run[0]) else run[:1]
        at += len(run) if _is_link(run[0]) else 1


def _is_link(stage: kitsune.StageOp) -> bool:
    """One tile in, one tile out, of the same type, on chip both."""
    if len(stage.gets) != 1 or len(stage.puts) != 1 or stage.loads or stage.stores:
        return False
    return stage.gets[0].results[0].type == stage.puts[0].operands[1].type


def _feeds_only(first: kitsune.StageOp, second: kitsune.StageOp) -> bool:
    if len(first.puts) != 1 or len(second.gets) != 1:
        return False
    queue = first.puts[0].operands[0]
    return queue == second.gets[0].operands[0] and len(rows.producer(queue).opview.consumers) == 1


def _form(stage: kitsune.StageOp) -> tuple:
    """A stage's body up to which tensors it names and which queues it uses."""
    names: dict[int, object] = {}

    def name(value: ir.Value) -> object:
        if hash(value) not in names:
            names[hash(value)] = len(names), str(value.type).replace("!kitsune.ring", "")
        return names[hash(value)]

    def form(op: ir.Operation) -> tuple:
        attributes = tuple(sorted((key, str(op.attributes[key])) for key in op.attributes))
        operands = tuple(name(value) for value in op.operands)
        results = tuple(name(value) for value in op.results)
        inner = tuple(
            (
                tuple(name(argument) for argument in block.arguments),
                tuple(form(inner.operation) for inner in block.operations),
            )
            for region in op.regions
            for block in region.blocks
        )
        return op.name, attributes, operands, results, inner

    return tuple(form(op.operation) for op in stage.block.operations)


def check_pressure(program: Program) -> None:
    """Raises UnsupportedError when tiles and sums alive together are more than a thread's registers."""
    born: dict[int, tuple[int, int]] = {}
    died: dict[int, int] = {}
    sums: dict[int, int] = {}
    alias: dict[str, int] = {}
    number = 0
    for block in program.blocks:
        for nest in block.nests:
            for key in _reads(block.nests, nest, alias):
                died[key] = number
            if nest.kind == PRODUCT and nest.op is not None:
                sums[number] = block.products[hash(nest.op.results[0])].columns // 2
            if is_held(nest):
                for value in nest.values:
                    born[hash(value)] = number, registers_of(value)
            number += 1
        for stage in block.stages:
            for put in stage.puts:
                source = block.stage.puts[0] if stage is not block.stage else put
                alias[kitsune_label(put.operands[0])] = hash(source.operands[1])
    for at in range(number):
        held = sum(size for key, (birth, size) in born.items() if birth < at <= died.get(key, birth))
        if held + sums.get(at, 0) > REGISTERS:
            raise UnsupportedError(
                f"{held} registers of tiles and {sums.get(at, 0)} of sums are more than a thread of a warpgroup has"
            )


def is_held(nest: Nest) -> bool:
    """Whether a nest's values stay in registers. An operand that only products read need not when it comes
    through shared memory or when its parts are operands of their own."""
    readers = {use.owner.operation.name for use in nest.value.uses} - {"tensor.dim"}
    if nest.kind == MAP and readers == {"linalg.matmul"}:
        return not is_streamed(nest.value) and len(parts_of(nest.value)) == 1
    return nest.local


def registers_of(value: ir.Value) -> int:
    """Of one thread, for a tile of 64 rows."""
    width = prod(shape_of(value)[1:])
    return -(-width // 8) * (2 if is_packed(element_of(value)) else 4)


def _reads(nests: StageNests, nest: Nest, alias: dict[str, int]) -> Iterator[int]:
    """Keys of the stored tiles that a nest reads, tiles got by the tile that was put."""
    gets = {hash(get.results[0]): kitsune_label(get.operands[0]) for get in nests.stage.gets}
    keys = nests.leaves(nest)
    if nest.kind == PRODUCT and nest.op is not None:
        keys |= {hash(part) for part in parts_of(nest.op.operands[0])}
    for key in keys:
        yield alias.get(gets[key], key) if key in gets else key
