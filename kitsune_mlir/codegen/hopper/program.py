"""What the warpgroups of a chained pipeline do to one tile, as plain data: blocks of stages, the products of
each, and which boxes of weights the products take in which order. Producer and consumers both follow it.

In a cluster, each CTA computes its share of the columns of every product for the same rows. A tile that is a
product's operand is then *exchanged*: every CTA gets the other shares into its shared memory (exchange.py).
Or, with *multicast*, each CTA computes tiles of its own and they share the boxes of weights: each loads a piece of
every box for all.

Consecutive stages that differ only in what they name as residents form one block and one loop: ten
equal layers are assembled once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import PRODUCT, REDUCTION, Nest, StageNests, kitsune_label
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning.columns import choose_columns
from kitsune_mlir.precision import tensor_work, tf32_pieces
from kitsune_mlir.traffic import element_bytes

from . import stash
from .chainable import check_stage
from .equal_stages import equal_runs
from .fragments import BLOCK
from .maps import TILE_ROWS, Maps
from .operands import (
    is_exchanged,
    is_handed_on,
    is_held,
    is_inside,
    is_loaded,
    is_multiplied,
    is_operand,
    is_read_here,
    is_streamed,
    parts_of,
    reads_held,
    row_bytes,
)
from .own_columns import spread_columns
from .packing import GROUP, Columns, Packing
from .pressure import check_pressure
from .product_plan import Product, Segment
from .steps import steps
from .stores import boxes_of
from .tile_ring import crosses, ring_places
from .tma import TensorMap
from .vectors import Vector
from .wgmma import CHUNK, MOST_COLUMNS, ROWS, STEP

SET_COLUMNS = 128  # products of more are computed in two sets of registers
MOST_HELD_COLUMNS = 384  # of a product whose sums a warpgroup keeps in registers
MOST_F32_COLUMNS = 256  # of a product of f32 elements; in full precision every piece takes its part of the registers
MOST_READ_COLUMNS = 320  # the same where more than products read the tile, as f32
LEAST_ROW_BYTES = 64  # of an output that leaves row by row
MOST_VECTOR_BYTES = 16384  # of one resident kept in shared memory
CLUSTERS = (1, 2, 4)  # CTAs that may share a tile's columns, or boxes of weights


@dataclass
class Block:
    """Equal stages, run as a loop when there are several; `products` by the key of their result in the first.
    From one stage to the next, tensor maps are `map_step` further, vectors `vector_step` bytes. `spread` are the
    columns of tiles in registers that are read all over a row, by the tile's key (own_columns.py)."""

    stages: list[kitsune.StageOp]
    nests: StageNests
    products: dict[int, Product] = field(default_factory=dict)
    vectors: dict[int, int] = field(default_factory=dict)  # resident -> byte offset among the vectors
    map_step: int = 0
    vector_step: int = 0
    spread: dict[int, set[int]] = field(default_factory=dict)

    @property
    def stage(self) -> kitsune.StageOp:
        return self.stages[0]


class Program:
    """`tensors` are the kernel's inputs, `results` its outputs. Raises UnsupportedError for what warpgroups cannot
    chain."""

    def __init__(
        self,
        pipeline: kitsune.PipelineOp,
        sms: int,
        cluster: int = 1,
        role: int | None = None,
        multicast: int = 1,
        tile_rows: int = TILE_ROWS,
    ):
        self._pipeline = pipeline.operation
        stages = [stage for stage in pipeline.stages if role in (None, stage.role)]
        self.cluster, self.multicast = cluster, multicast
        self.tile_rows = tile_rows
        self.rings = ring_places(pipeline)[0]
        self._sms, rows_known = sms, _row_count(stages)
        self.row_tiles = None if rows_known is None else -(-rows_known // tile_rows)
        # Rows of a box of a streamed tile: those beyond a tensor's last cost the copy engine as much time as others.
        self.box_rows = tile_rows
        if rows_known is not None and rows_known < tile_rows and not self.rings:
            self.box_rows = max(1, -(-rows_known // BLOCK)) * BLOCK
        products = [op for stage in stages for op in stage.block.operations if op.operation.name == "linalg.matmul"]
        # CTAs may share the columns of such a product: whatever else is stored, all of them would store.
        only = len(products) == len(stages) == 1 and cluster == 1 and not self.rings
        self.alone = only and all(_follows(store.operands[0], products[0]) for store in stages[0].stores)
        self.tensors = [value for value in pipeline.inputs if rows.is_tensor(value)]
        self.results = pipeline.result_ops
        self._maps = Maps(self.tensors, self.results, self.rings, self.box_rows, multicast)
        every = (op.operation for stage in pipeline.stages for op in stage.block.operations)
        self._weights = {hash(op.operands[1]) for op in every if op.name == "linalg.matmul"}
        self.vectors: list[Vector] = []
        self.vector_bytes = 0
        self._layouts: dict[int, Packing | None] = {}  # of weights, by their numbers
        self.pieces = tf32_pieces(pipeline.operation)
        self.on_chip = {queue.label for queue in pipeline.queues if not crosses(queue)}
        for stage in stages:
            check_stage(stage)
        if multicast > 1:
            self._check_multicast(products)
        self.blocks = [self._block(group) for group in equal_runs(stages)]
        for block in self.blocks:
            block.spread = spread_columns(self, block.nests)
        self.store_maps = self._maps.stores(stages)
        self.row_stores = self._row_stores(stages)
        self.moves_rows = any(not isinstance(store, kitsune.StoreOp) for stage in stages for store in stage.stores)
        self.put_maps = {
            kitsune_label(put.operands[0]): self._maps.put(put)
            for stage in stages
            for put in stage.puts
            if kitsune_label(put.operands[0]) in self.rings
        }
        self.stashes = stash.choose(self.blocks, self.pieces) if cluster == 1 else {}
        self.shares = self._shares()
        self.exchanged_boxes = self._check_exchanges() if cluster > 1 else 0
        self._check_streams()
        check_pressure(self)

    def _row_stores(self, stages: list[kitsune.StageOp]) -> set[int]:
        """The outputs that leave through shared memory, row by row: those that tensor copies do not store, but for
        narrow ones. A CTA that has a share of the columns stores it thread by thread."""
        if self.cluster > 1:
            return set()
        stores = [
            store
            for stage in stages
            for store in stage.stores
            if store.position not in self.store_maps and isinstance(store, kitsune.StoreOp)
        ]
        tiles = {store.position: store.operands[0] for store in stores}
        return {
            position
            for position, tile in tiles.items()
            if is_multiplied(element_of(tile)) and row_bytes(tile) >= LEAST_ROW_BYTES
        }

    @property
    def weights(self) -> set[int]:
        """The numbers of the tensors that products take boxes of weights from."""
        return set(self._layouts)

    @property
    def uses_outboxes(self) -> bool:
        """Whether tiles leave through boxes of their warpgroup."""
        return bool(self.store_maps or self.put_maps or self.row_stores or self.moves_rows)

    def _check_multicast(self, products: list[ir.OpView]) -> None:
        if self.multicast not in CLUSTERS:
            raise UnsupportedError(f"{self.multicast} CTAs do not share boxes of weights; {CLUSTERS[1:]} may")
        if self.cluster > 1:
            raise UnsupportedError("CTAs that share the columns of a tile have no boxes of weights in common")
        if self.rings:
            raise UnsupportedError("boxes of weights are not shared where stages have CTAs of their own")
        if not products:
            raise UnsupportedError("there are no weights to share")

    def _block(self, stages: list[kitsune.StageOp]) -> Block:
        block = Block(stages, StageNests(stages[0], self.on_chip))
        for number, stage in enumerate(stages):
            first_map, first_byte = len(self.maps), self.vector_bytes
            nests = block.nests if number == 0 else StageNests(stage, self.on_chip)
            products = {
                hash(nest.op.results[0]): self._product(nest, nests)
                for nest in nests
                if nest.kind == PRODUCT and nest.op
            }
            vectors = self._stage_vectors(stage)
            if number == 0:
                block.products, block.vectors = products, vectors
                block.map_step, block.vector_step = len(self.maps) - first_map, self.vector_bytes - first_byte
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
        unit = BLOCK * self.multicast if passes == 1 else CHUNK  # a piece of a box is whole swizzle atoms of 8 rows
        # Alone, nothing runs beside the first set: a second is for what one instruction does not multiply.
        if passes == 1 and n > (MOST_COLUMNS if self.alone else SET_COLUMNS) and nbytes == 2:
            sets = 2
        columns = -(-n // (passes * sets * unit)) * unit
        if self.cluster > 1 and passes > 1:
            columns = _pass_columns(n, passes)
        if self.alone and not kept and n > CHUNK:
            k = shape_of(op.operands[0])[1] * tensor_work(op)
            chosen = choose_columns(n, k, self.row_tiles, self._sms)
            columns = min(-(-columns // BLOCK) * BLOCK, chosen)
        tiles = parts_of(op.operands[0])
        if self.cluster > 1 and any(shape_of(tile)[1:] == (1,) and not is_loaded(tile) for tile in tiles):
            raise UnsupportedError("a cluster does not exchange tiles of one column")
        if nbytes == 4:
            return Product(op, n, columns, self._packed_segments(op, columns))
        packing = Packing(1, tuple(Columns(*at) for at in _columns_of(tiles)))
        whole = all(part.start % GROUP == 0 for part in packing.parts)
        self._lay_out(weight, None if whole else packing)
        segments = []
        for value, start, (_, width) in zip(tiles, packing.starts(), _columns_of(tiles)):
            map_ = self._maps.weight(weight, None if whole else packing, start + width, columns)
            parts = self.cluster if self.cluster > 1 and not is_loaded(value) else 1
            segments.append(Segment(value, start, width // parts, map_, self._maps.rows(value), parts))
        return Product(op, n, columns, segments, sets)

    def _packed_segments(self, op: ir.Operation, columns: int) -> list[Segment]:
        """The segments of a product of f32 elements, and how its weight is laid out for it. In full precision a product
        a kernel is faster than four CTAs that share its tile: 110 TFLOP/s beside 75, of 256 columns."""
        if self.cluster > 2 and self.pieces == 2:
            raise UnsupportedError(f"{self.cluster} CTAs do not share tiles of f32 in full precision")
        weight, tiles = op.operands[1], parts_of(op.operands[0])
        parts = [Columns(*at, not is_streamed(value)) for at, value in zip(_columns_of(tiles), tiles)]
        packing = Packing(self.pieces, tuple(parts))
        self._lay_out(weight, packing)
        map_ = self._maps.packed_weight(weight, packing, columns)
        shared = [1 if is_loaded(value) else self.cluster for value in tiles]
        return [
            Segment(value, start, part.width // ctas, map_, self._maps.rows(value), ctas, 4, self.pieces)
            for value, start, part, ctas in zip(tiles, packing.starts(), parts, shared)
        ]

    def _lay_out(self, weight: ir.Value, packing: Packing | None) -> None:
        """Notes how a weight lies for a product: as it is, or as `packing` says. Raises UnsupportedError where others
        read it in another way."""
        number = self._maps.numbers[hash(weight)]
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

    def _shares(self) -> set[int]:
        """The shares of all tiles that are computed column by column."""
        found = {product.n for product in self.products}
        for block in self.blocks:
            for nest in block.nests:
                values = [nest.op.operands[0]] if nest.kind == REDUCTION else nest.values
                found |= {self.share(prod(shape_of(value)[1:])) for value in values}
        return found

    def _check_exchanges(self) -> int:
        """The most boxes of a share that is exchanged. There is room for one exchanged tile at a time: each must
        have been read by its last product when the next is computed."""
        readers: dict[int, list[Product]] = {}
        widest, last = 0, None
        for step in steps(self.blocks):
            nest = step.nest
            if nest.kind == PRODUCT and nest.op is not None:
                product = step.block.products[hash(nest.op.results[0])]
                for segment in product.segments:
                    if segment.parts > 1:
                        key = step.tile(segment.value)
                        if key != last or len(product.segments) > 1:
                            raise UnsupportedError("a cluster exchanges one tile at a time")
                        readers.setdefault(key, []).append(product)
            if is_loaded(nest.value) and is_handed_on(nest.value):
                raise UnsupportedError("a cluster does not hand on a tile that each of its CTAs computes")
            if nest.kind != REDUCTION and is_exchanged(nest):
                columns = self.share(prod(shape_of(nest.value)[1:]))
                nbytes = element_bytes(element_of(nest.value))
                last, widest = hash(nest.value), max(widest, boxes_of(columns, nbytes))
        for products in readers.values():
            products[-1].frees = True
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
        streamed = sum(segment.chunks for segment in self.segments() if segment.rows_map is not None)
        exchanged = sum(segment.chunks * segment.parts for segment in self.segments() if segment.parts > 1)
        if exchanged and streamed > 2 * exchanged:
            raise UnsupportedError("a cluster that exchanges tiles has no room for operands streamed at length")

    def _stage_vectors(self, stage: kitsune.StageOp) -> dict[int, int]:
        """Puts the stage's small residents into shared memory."""
        found = {}
        for value in stage.residents:
            nbytes = prod(shape_of(value)) * element_bytes(element_of(value))
            is_open = rows.DYNAMIC in shape_of(value)  # a table's rows, till the call
            if hash(value) in self._weights or is_open or nbytes > MOST_VECTOR_BYTES:
                continue
            found[hash(value)] = self.vector_bytes
            self.vectors.append(Vector(self._maps.numbers[hash(value)], nbytes, self.vector_bytes))
            self.vector_bytes += -(-nbytes // 16) * 16
        return found

    @property
    def maps(self) -> list[TensorMap]:
        return self._maps.all

    @property
    def packed(self) -> dict[int, Packing]:
        """How weights are laid out anew, by the tensors' numbers."""
        return {number: packing for number, packing in self._layouts.items() if packing is not None}

    @property
    def padded(self) -> set[int]:
        """Numbers of tensors whose rows are to be made longer."""
        return self._maps.padded

    @property
    def grid_product(self) -> Product | None:
        """The product whose columns the grid deals out as well as rows: the only one, of several passes."""
        return self.products[0] if self.alone and self.products[0].passes > 1 else None

    @property
    def stash_boxes(self) -> int:
        """Boxes of a warpgroup for stashed tiles."""
        nbytes = {hash(nest.value): row_bytes(nest.value) for block in self.blocks for nest in block.nests}
        return max((box + boxes_of(nbytes[key], 1) for key, box in self.stashes.items()), default=0)

    @property
    def streams(self) -> bool:
        """Whether some operand comes through shared memory."""
        return any(segment.rows_map is not None for segment in self.segments())

    @property
    def consumers(self) -> int:
        """Warpgroups that have 64 rows of a tile each."""
        return self.tile_rows // ROWS

    @property
    def slot_rows(self) -> int:
        """The rows of a streamed tile in shared memory. Few rows are multiplied by both warpgroups: only one stores
        some."""
        return ROWS if self.box_rows <= ROWS else self.tile_rows

    @property
    def reads_tiles(self) -> bool:
        """Whether warps read such operands themselves: those of f32 elements."""
        return any(segment.rows_map is not None and segment.nbytes == 4 for segment in self.segments())

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
