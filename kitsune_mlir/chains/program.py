"""What the warpgroups of a chained pipeline do to one tile, as plain data: blocks of stages, the products of
each, and which boxes of weights the products take in which order. Producer and consumers both follow it.

In a cluster, each CTA computes its share of the columns of every product for the same rows. A tile that is a
product's operand is then *exchanged*: every CTA gets the other shares into its shared memory (kitsune.send).

Consecutive stages that differ only in what they name as residents form one block and one loop: ten
equal layers are assembled once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.fragments import BLOCK
from kitsune_mlir.codegen.hopper.stores import boxes_of
from kitsune_mlir.codegen.hopper.tile_ring import crosses
from kitsune_mlir.codegen.hopper.wgmma import CHUNK, MOST_COLUMNS, ROWS, STEP
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import PRODUCT, REDUCTION, Nest, StageNests, kitsune_label
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning.columns import choose_columns
from kitsune_mlir.planning.target import Target
from kitsune_mlir.precision import tensor_work, tf32_pieces
from kitsune_mlir.traffic import element_bytes

from . import stash
from .chainable import check_stage
from .equal_stages import equal_runs
from .operands import (
    is_exchanged,
    is_gathered,
    is_handed_on,
    is_held,
    is_inside,
    is_loaded,
    is_operand,
    is_read_here,
    is_streamed,
    parts_of,
    reads_held,
    row_bytes,
)
from .own_columns import ColumnsRead, columns_read
from .packing import GROUP, Columns, Packing
from .pressure import check_pressure
from .product_plan import Product, Segment
from .steps import steps

LEAST_PASS_COLUMNS = 128  # of fewer, shared memory would be read for longer than they are multiplied
SET_COLUMNS = 128  # products of more are computed in two sets of registers
MOST_HELD_COLUMNS = 384  # of a product whose sums a warpgroup keeps in registers
MOST_F32_COLUMNS = 256  # of a product of f32 elements; in full precision every piece takes its part of the registers
MOST_READ_COLUMNS = 320  # the same where more than products read the tile, as f32
MOST_REDUCED_COLUMNS = 1024  # of a row: a thread has half as many elements, of which each is code of its own
LEAST_ROW_BYTES = 64  # of an output that leaves row by row
MOST_VECTOR_BYTES = 16384  # of one resident kept in shared memory
TILE_ROWS = 128
PAIR = 16  # columns of a product of warps: two blocks of 8
CLUSTERS = (1, 2, 4)  # CTAs that may share a tile's columns


@dataclass
class Block:
    """Equal stages, run as a loop when there are several; `products` by the key of their result in the first. `columns`
    says at which columns they read tiles (own_columns.py)."""

    stages: list[kitsune.StageOp]
    nests: StageNests
    products: dict[int, Product] = field(default_factory=dict)
    columns: ColumnsRead = field(default_factory=ColumnsRead)

    @property
    def stage(self) -> kitsune.StageOp:
        return self.stages[0]


class Program:
    """`tensors` are the kernel's inputs. Raises UnsupportedError for what warpgroups cannot chain."""

    def __init__(
        self,
        pipeline: kitsune.PipelineOp,
        target: Target,
        cluster: int = 1,
        role: int | None = None,
        tile_rows: int = TILE_ROWS,
    ):
        self._pipeline = pipeline.operation
        self.stages = stages = [stage for stage in pipeline.stages if role in (None, stage.role)]
        self.cluster = cluster
        self.tile_rows = tile_rows
        self.between = {queue.label for queue in pipeline.queues if crosses(queue)}  # roles
        self._target, rows_known = target, _row_count(stages)
        self.row_tiles = None if rows_known is None else -(-rows_known // tile_rows)
        # Rows of a box of a streamed tile: those beyond a tensor's last cost the copy engine as much time as others.
        self.box_rows = tile_rows
        if rows_known is not None and rows_known < tile_rows and not self.between:
            self.box_rows = max(1, -(-rows_known // BLOCK)) * BLOCK
        products = [op for stage in stages for op in stage.block.operations if op.operation.name == "linalg.matmul"]
        # CTAs may share the columns of such a product: whatever else is stored, all of them would store.
        only = len(products) == len(stages) == 1 and cluster == 1 and not self.between
        self.alone = only and all(_follows(store.operands[0], products[0]) for store in stages[0].stores)
        self.tensors = [value for value in pipeline.inputs if rows.is_tensor(value)]
        self.numbers = {hash(value): number for number, value in enumerate(self.tensors)}
        self.padded: set[int] = set()  # numbers of tensors whose rows are to be made longer
        self._layouts: dict[int, Packing | None] = {}  # of weights, by their numbers
        self.pieces = tf32_pieces(pipeline.operation)
        self.on_chip = {queue.label for queue in pipeline.queues} - self.between
        for stage in stages:
            check_stage(stage)
        self.blocks: list[Block] = []
        for group in equal_runs(stages):
            self.blocks.append(self._block(group))
        for block in self.blocks:
            block.columns = columns_read(self, block.nests)
        self.moves_rows = any(not isinstance(store, kitsune.StoreOp) for stage in stages for store in stage.stores)
        self.puts = [put for stage in stages for put in stage.puts if kitsune_label(put.operands[0]) in self.between]
        self.stashes = stash.choose(self.blocks, self.pieces) if cluster == 1 else {}
        self._check_shares()
        self.exchanged_boxes = self._check_exchanges() if cluster > 1 else 0
        self._check_streams()
        check_pressure(self)

    @property
    def weights(self) -> set[int]:
        """The numbers of the tensors that products take boxes of weights from."""
        return set(self._layouts)

    def _block(self, stages: list[kitsune.StageOp]) -> Block:
        block = Block(stages, StageNests(stages[0], self.on_chip))
        for number, stage in enumerate(stages):
            nests = block.nests if number == 0 else StageNests(stage, self.on_chip)
            products = {
                hash(nest.op.results[0]): self._product(nest, nests)
                for nest in nests
                if nest.kind == PRODUCT and nest.op
            }
            if number == 0:
                block.products = products
        return block

    def _product(self, nest: Nest, nests: StageNests) -> Product:
        op = nest.op
        assert op is not None
        weight, n = op.operands[1], self.share(shape_of(op.results[0])[1])
        nbytes = element_bytes(element_of(weight))
        most = MOST_COLUMNS if nbytes == 2 else MOST_F32_COLUMNS // self.pieces
        kept = nest.local or reads_held(nest, nests)  # then one pass has all columns
        if kept and nbytes == 2:
            most = MOST_READ_COLUMNS if is_read_here(nest.value) else MOST_HELD_COLUMNS
        passes, sets = -(-n // most), 1
        if passes > 1 and kept:
            raise UnsupportedError(f"{n} columns of a product are more than a warpgroup keeps in registers")
        block = BLOCK if self._target.has_warpgroups else PAIR
        unit = block if passes == 1 else CHUNK
        # Alone, nothing runs beside the first set: a second is for what one instruction does not multiply.
        if passes == 1 and n > (MOST_COLUMNS if self.alone else SET_COLUMNS) and nbytes == 2:
            sets = 2
        columns = -(-n // (passes * sets * unit)) * unit
        if passes > 1:
            columns = _pass_columns(n, passes) if self.cluster > 1 else self._streamed_columns(n, most)
        if self.alone and not kept and n > CHUNK:
            k = shape_of(op.operands[0])[1] * tensor_work(op)
            chosen = choose_columns(n, k, self.row_tiles, self._target.sms)
            columns = min(-(-columns // block) * block, chosen)
        tiles = parts_of(op.operands[0])
        if self.cluster > 1 and any(shape_of(tile)[1:] == (1,) and not is_loaded(tile) for tile in tiles):
            raise UnsupportedError("a cluster does not exchange tiles of one column")
        if nbytes == 4:
            return Product(op, n, columns, self._packed_segments(op))
        packing = Packing(1, tuple(Columns(*at) for at in _columns_of(tiles)))
        whole = all(part.start % GROUP == 0 for part in packing.parts)
        self._lay_out(weight, None if whole else packing)
        segments = []
        for value, start, (_, width) in zip(tiles, packing.starts(), _columns_of(tiles)):
            parts = self.cluster if self.cluster > 1 and not is_loaded(value) else 1
            streams, gathered = self._streams(value), is_gathered(value)
            segments.append(Segment(value, start, width // parts, streams, parts, gathered=gathered))
        product = Product(op, n, columns, segments, sets)
        if self.gathers(product) and (product.passes > 1 or not self._target.has_warpgroups):
            raise UnsupportedError("rows are gathered into shared memory for warpgroups, and for products of one pass")
        return product

    @staticmethod
    def gathers(product: Product) -> bool:
        """Whether rows of a table that a product multiplies come through shared memory."""
        return any(segment.gathered for segment in product.segments)

    def _streamed_columns(self, n: int, most: int) -> int:
        """Columns of each pass over n, at most so many: those of which the fewest beyond n are multiplied; and of these
        the most that fit the slots of weights of the products before."""
        counts = range(min(most, LEAST_PASS_COLUMNS), most + 1, CHUNK)
        least = min(-(-n // count) * count for count in counts)
        counts = [count for count in counts if -(-n // count) * count == least]
        before = max((product.columns for product in self.products), default=0)
        return max([count for count in counts if count <= before] or counts)

    def _packed_segments(self, op: ir.Operation) -> list[Segment]:
        """The segments of a product of f32 elements, and how its weight is laid out for it. In full precision a product
        a kernel is faster than four CTAs that share its tile: 110 TFLOP/s beside 75, of 256 columns."""
        if self.cluster > 2 and self.pieces == 2:
            raise UnsupportedError(f"{self.cluster} CTAs do not share tiles of f32 in full precision")
        weight, tiles = op.operands[1], parts_of(op.operands[0])
        parts = [Columns(*at, not is_streamed(value)) for at, value in zip(_columns_of(tiles), tiles)]
        packing = Packing(self.pieces, tuple(parts))
        self._lay_out(weight, packing)
        shared = [1 if is_loaded(value) else self.cluster for value in tiles]
        return [
            Segment(value, start, part.width // ctas, self._streams(value), ctas, 4, self.pieces)
            for value, start, part, ctas in zip(tiles, packing.starts(), parts, shared)
        ]

    def _streams(self, value: ir.Value) -> bool:
        """Whether a tile comes through shared memory; notes where the rows that it is loaded from are to be longer."""
        if not is_streamed(value):
            return False
        op = rows.producer(value)
        if op.name == kitsune.LoadOp.OPERATION_NAME and row_bytes(value) % 16:
            self.padded.add(self.numbers[hash(op.operands[0])])
        return True

    def _lay_out(self, weight: ir.Value, packing: Packing | None) -> None:
        """Notes how a weight lies for a product: as it is, or as `packing` says. Raises UnsupportedError where others
        read it in another way."""
        number = self.numbers[hash(weight)]
        if self._layouts.setdefault(number, packing) != packing or packing and not self._only_weight(weight):
            raise UnsupportedError("a weight that is read in two ways is not laid out for warpgroups")

    def _only_weight(self, value: ir.Value) -> bool:
        """Whether the pipeline's products alone read a resident, as their weight."""
        uses = (use for use in value.uses if is_inside(use.owner.operation, self._pipeline))
        return all(use.owner.operation.name == "linalg.matmul" and use.operand_number == 1 for use in uses)

    def share(self, width: int) -> int:
        """How many of a tile's columns one CTA of the cluster computes; each computes what is one number a row."""
        if self.cluster == 1 or width == 1:
            return width
        if width % (STEP * self.cluster):
            raise UnsupportedError(f"{width} columns are not shared evenly by a cluster of {self.cluster}")
        return width // self.cluster

    def holds(self, nest: Nest) -> bool:
        """Whether a nest's values stay in registers. Those that are elementwise in what is loaded do not where CTAs, or
        passes over a product, take a part of the columns each: products want all columns of such a tile, whatever else
        reads it those of its part; each computes them anew."""
        in_parts = self.cluster > 1 or any(product.passes > 1 for product in self.products)
        return is_held(nest) and not (in_parts and is_loaded(nest.value) and not is_handed_on(nest.value))

    def _check_shares(self) -> None:
        """Raises UnsupportedError for a tile, computed column by column, whose columns CTAs do not share, and for rows
        that are reduced over more columns than threads have code for."""
        for block in self.blocks:
            for nest in block.nests:
                for value in [nest.op.operands[0]] if nest.kind == REDUCTION else nest.values:
                    width = self.share(prod(shape_of(value)[1:]))
                    if nest.kind == REDUCTION and width > MOST_REDUCED_COLUMNS:
                        raise UnsupportedError(f"a warpgroup's threads do not reduce {width} columns of a row")

    def _check_exchanges(self) -> int:
        """The most boxes of a share that is exchanged. There is room for one exchanged tile at a time: each must
        have been read by its last product when the next is computed."""
        widest, last = 0, None
        for step in steps(self.blocks):
            nest = step.nest
            if nest.kind == PRODUCT and nest.op is not None:
                product = step.block.products[hash(nest.op.results[0])]
                for segment in product.segments:
                    if segment.parts > 1:
                        if step.tile(segment.value) != last or len(product.segments) > 1:
                            raise UnsupportedError("a cluster exchanges one tile at a time")
            if is_loaded(nest.value) and is_handed_on(nest.value):
                raise UnsupportedError("a cluster does not hand on a tile that each of its CTAs computes")
            if nest.kind != REDUCTION and is_exchanged(nest):
                columns = self.share(prod(shape_of(nest.value)[1:]))
                nbytes = element_bytes(element_of(nest.value))
                last, widest = hash(nest.value), max(widest, boxes_of(columns, nbytes))
        return widest

    @property
    def exchanged_queues(self) -> frozenset[str]:
        """Names of the queues whose tiles the CTAs of a cluster hand to one another."""
        puts = (put for block in self.blocks for stage in block.stages for put in stage.puts)
        return frozenset(
            kitsune_label(put.operands[0])
            for put in puts
            if is_operand(put.operands[1]) and not is_loaded(put.operands[1])
        )

    def _check_streams(self) -> None:
        """Beside a cluster's exchanged tiles there is room to stream three chunks ahead, too few for long products:
        1536 columns streamed before 512 exchanged ran at 490 TFLOP/s, as two kernels at 620."""
        streamed = sum(segment.chunks for segment in self.segments() if segment.streams)
        exchanged = sum(segment.chunks * segment.parts for segment in self.segments() if segment.parts > 1)
        if exchanged and streamed > 2 * exchanged:
            raise UnsupportedError("a cluster that exchanges tiles has no room for operands streamed at length")

    @property
    def packed(self) -> dict[int, Packing]:
        """How weights are laid out anew, by the tensors' numbers."""
        return {number: packing for number, packing in self._layouts.items() if packing is not None}

    @property
    def grid_product(self) -> Product | None:
        """The product whose columns the grid deals out as well as rows: the only one, of several passes."""
        return self.products[0] if self.alone and self.products[0].passes > 1 else None

    @property
    def streams(self) -> bool:
        """Whether some operand comes through shared memory by tensor copies."""
        return any(segment.streams and not segment.gathered for segment in self.segments())

    @property
    def streaming(self) -> int:
        """Rings of operands that come through shared memory: by tensor copies, and as rows that threads gather."""
        return self.streams + any(map(self.gathers, self.products))

    @property
    def consumers(self) -> int:
        """Warpgroups that have 64 rows of a tile each."""
        return self.tile_rows // ROWS

    def segments(self) -> Iterator[Segment]:
        for product in self.products:
            yield from product.segments

    @property
    def products(self) -> list[Product]:
        return [product for block in self.blocks for product in block.products.values()]

    @property
    def weight_columns(self) -> int:
        """The most rows of a weight in one box."""
        return max(product.columns for product in self.products)


def _pass_columns(n: int, passes: int) -> int:
    """Columns of each of at least so many passes over a CTA's share of n, the last of which must not reach into the
    next CTA's."""
    for count in range(passes, n // CHUNK + 1):
        if n % (count * BLOCK) == 0:
            return n // count
    raise UnsupportedError(f"a CTA's share of {n} columns does not divide into passes")


def _columns_of(tiles: list[ir.Value]) -> list[tuple[int, int]]:
    """First column and width of each of several tiles side by side."""
    widths = [prod(shape_of(value)[1:]) for value in tiles]
    return list(zip(accumulate(widths, initial=0), widths))


def _row_count(stages: list[kitsune.StageOp]) -> int | None:
    """The rows that the stages stream; None when they are open until the call."""
    sizes = [shape_of(load.operands[0])[0] for stage in stages for load in stage.loads]
    return sizes[0] if sizes and sizes[0] != rows.DYNAMIC else None


def _follows(value: ir.Value, product: ir.OpView) -> bool:
    """Whether a tile is computed from a product's."""
    values, seen = [value], set()
    while values:
        op = rows.producer(values.pop())
        if op is None or op in seen:
            continue
        if op == product.operation:
            return True
        seen.add(op)
        values += op.operands
    return False
