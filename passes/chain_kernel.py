"""The kernel of a chained pipeline at the schedule level: rings of streamed tiles and of weights, an agent that fills
them, and one of one or two warpgroups that carry 64 rows each of a tile through all stages in their registers
(schedule_chains.py). What is multiplied in which order is the program's (codegen/hopper/program.py); what warpgroups do
with it, piece by piece, chain_body.py's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TypeAlias

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.layout import LEAST_SLOTS, MOST_SLOTS, MOST_TILE_SLOTS
from kitsune_mlir.codegen.hopper.operands import is_multiplied, row_bytes
from kitsune_mlir.codegen.hopper.program import LEAST_ROW_BYTES, Block, Program
from kitsune_mlir.codegen.hopper.stage_code import starts_from_zero
from kitsune_mlir.codegen.pipeline.nests import PRODUCT
from kitsune_mlir.codegen.schedule.reductions import row_combiner
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.clusters import RankOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, scf, tensor, walk
from kitsune_mlir.planning.target import Target

from .chain_columns import check_leaves
from .chain_exchange import check_shared
from .chain_stows import slots_of_stows
from .chain_vectors import Vectors
from .operand_layout import laid_out, weight_laid_out
from .schedule_build import constant_index, i64
from .tile_order import ceildiv, in_groups

COPY_ROWS = 64  # of a tile that a warpgroup has
_REGISTERS = {1: (248, 248), 2: (24, 240)}  # of a thread that feeds, and multiplies, by warpgroups that multiply
_WARPS = 4
LEAST_LOOP = 3  # boxes that the feeding thread copies in a loop
LEAST_TILES = 3  # of a CTA, for weights to be kept
_SLOT_ROW = 128  # bytes
_ALIGN = 1024  # bytes, of a slot
_BARRIER = 16  # bytes of a slot
_NUMBER = 4  # bytes of a row's
_SLOTS = 48  # at most, but for weights that are kept
STREAMED, WEIGHTS, VECTORS, STOWED, SENT = "tiles", "weights", "vectors", "stowed", "sent"


@dataclass(frozen=True)
class Fill:
    """A slot that is filled: of which ring, with the box of a tensor from these places on, of so many rows; in a loop
    over layers with that of the layer's tensor. A streamed tile's rows are those of the tile that the CTA works on."""

    ring: str
    sources: tuple[ir.Value, ...]
    row: int  # from where a loop over passes is, on
    column: int | None  # None: where the loop over chunks is
    rows: int
    start: int = 0  # the first column, of which `column` or the loop counts on
    in_pass: bool = False
    share_rows: int = 0  # of a CTA of a cluster, behind those of the CTAs before
    part: tuple[int, int] | None = None  # how far behind the CTA is whose columns are meant, and how many each has


@dataclass(frozen=True)
class Fills:
    """Fills in a loop from `first` on to `last`: over "layers", that are equal, over "passes", the columns of a product
    that is computed in several, or over the columns of "chunks"."""

    over: str
    first: int
    last: int
    step: int
    body: Filling


Filling: TypeAlias = list[Fill | Fills]


class ChainKernel:
    """Builds the kernel in the place of a placed pipeline. Raises UnsupportedError for what has no such kernel."""

    def __init__(self, pipeline: kitsune.PipelineOp, target: Target):
        self.pipeline, self.target = pipeline, target
        shared = pipeline.cluster, None, pipeline.multicast
        self.program = Program(pipeline, target.sms, *shared, pipeline.tile_rows)
        self.cluster = self.program.cluster
        self.tile_rows, self.copies = self.program.tile_rows, self.program.consumers
        check(pipeline, self.program)
        self.chunk = self.program.products[0].segments[0].chunk_columns  # columns of a slot
        self.filling: Filling = []
        self.rings: dict[str, schedule.AllocRingOp] = {}
        self.vectors = Vectors(self.program.blocks)
        self.stows = slots_of_stows(self.program)
        self.open: dict[str, ir.Value] = {}  # the slots of vectors, by their elements
        self.keeps = self._may_keep()
        self.kept: list[tuple[Fill, ir.Value]] = []  # boxes of weights, with their slots
        self._sources: dict[int, ir.Value] = {}

    @property
    def gathers(self) -> bool:
        """Whether rows of tables are read."""
        generics = (op for stage in self.pipeline.stages for op in walk(stage, "linalg.generic"))
        return any(rows.Structured(op).gathers() for op in generics)

    def source(self, value: ir.Value) -> ir.Value:
        """A tensor as the copy engine reads it: rows of whole 16 bytes, columns of each part at such places."""
        number = next(i for i, own in enumerate(self.program.tensors) if own == value)
        if number not in self._sources:
            with ir.InsertionPoint(self.pipeline):
                packing = self.program.packed.get(number)
                packed = value if packing is None else packing.apply(value)
                self._sources[number] = weight_laid_out(packed, 1)[0]
        return self._sources[number]

    def build(self, body: Callable[[ChainKernel, ir.Value, ir.Value | None], None]) -> schedule.KernelOp:
        """The kernel, at the insertion point; `body` builds what a warpgroup does with a tile whose rows, and columns
        where these are dealt out, begin at an index."""
        index = ir.IndexType.get()
        self.extent = self._extent()
        for weight in self._weights():
            self.source(weight)
        vectors = [value for placed in self.vectors.placed.values() for value, _ in placed]
        self._padded = {hash(value): laid_out(value, 1)[0] for value in vectors}
        kernel = schedule.KernelOp(ir.StringAttr.get(self.pipeline.label), kitsune.Outputs.get())
        for name in ("target", "predicted_us", "limit"):
            if name in self.pipeline.attributes:
                kernel.attributes[name] = self.pipeline.attributes[name]
        if self.cluster > 1:
            kernel.attributes["cluster"] = i64(self.cluster)
        with ir.InsertionPoint(kernel.regions[0].blocks.append()):
            extents, sizes = [self.extent], [self.tile_rows]
            if (wide := self.program.grid_product) is not None:
                extents, sizes = [self.extent, constant_index(wide.n)], [self.tile_rows, wide.pass_columns]
            dealt = schedule.TilesOp(extents, index, index, index)
            dealt.attributes["tile"] = ir.DenseI64ArrayAttr.get(sizes)
            self._alloc_rings()
            feeds, multiplies = _REGISTERS[self.copies]
            feed = schedule.AgentOp(ir.StringAttr.get("feed"), *map(i64, (1, _WARPS, feeds)))
            math = schedule.AgentOp(ir.StringAttr.get("math"), *map(i64, (self.copies, _WARPS, multiplies)))
            for agent in (math, feed):  # the second does what the first asks for
                with ir.InsertionPoint(agent.regions[0].blocks.append(index)):
                    self._open_vectors() if agent is math else self._fill_vectors()
                    self._fill([fill for fill, _ in self.kept] if agent is feed else [], constant_index(0), {})
                    loop = scf.ForOp(*dealt.results)
                    self._before_tiles = ir.InsertionPoint(loop)
                    with ir.InsertionPoint(loop.body):
                        first, column = self._place(loop.induction_variable, extents)
                        if agent is math:
                            own = arith.muli(agent.regions[0].blocks[0].arguments[0], constant_index(COPY_ROWS))
                            body(self, arith.addi(first, own), column)
                        else:
                            self._fill(self.filling, first, {} if column is None else {"passes": column})
                        scf.yield_([])
                    slots = [*self.open.values(), *(slot for _, slot in self.kept)]
                    for slot in slots if agent is math else ():
                        schedule.ReleaseOp(slot, [])
        return kernel

    def _place(self, number: ir.Value, extents: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value | None]:
        """The first row of a tile, and its first column where the columns of a product are dealt out, too."""
        if (wide := self.program.grid_product) is None:
            return arith.muli(number, constant_index(self.tile_rows)), None
        sizes = self.tile_rows, wide.pass_columns
        counts = [ceildiv(extent, size) for extent, size in zip(extents, sizes, strict=True)]
        at = in_groups(number, *counts)
        row, column = (arith.muli(at[role], constant_index(size)) for role, size in zip("mn", sizes, strict=True))
        return row, column

    def _open_vectors(self) -> None:
        for element in self.vectors.placed:
            ring = self.rings[f"{VECTORS}_{element}"]
            self.open[element] = schedule.WaitOp(ring.results[0], schedule.Slot.get(ring.tile)).results[0]

    def _fill_vectors(self) -> None:
        for element, placed in self.vectors.placed.items():
            ring = self.rings[f"{VECTORS}_{element}"]
            slot = schedule.AcquireOp(ring.results[0], schedule.Slot.get(ring.tile)).results[0]
            done = []
            for value, first in placed:
                source = self._padded[hash(value)]
                copy = schedule.CopyOp(slot, source, [], ir.StringAttr.get("tma"), schedule.Token.get())
                copy.attributes["dims"], copy.attributes["into"] = ir.DenseI64ArrayAttr.get([]), i64(first)
                done.append(copy.results[0])
            schedule.CommitOp(slot, done)

    def vector(
        self,
        block: Block,
        value: ir.Value,
        layer: ir.Value | None,
        parts: int,
        first: Callable[[int], ir.Value],
    ) -> ir.Value | None:
        """A vector of a block's stage, or of the layer of a loop, as a tile; None where it is in no slot. Of `parts`
        equal parts that of the CTA in its cluster, which begins at `first`."""
        if (place := self.vectors.place(block, value)) is None:
            return None
        kind, at = ir.RankedTensorType(value.type), constant_index(place)
        if parts > 1 and kind.shape[0] > 1:
            kind = ir.RankedTensorType.get([kind.shape[0] // parts], kind.element_type)
            at = arith.addi(first(kind.shape[0]), at)
        if layer is not None:
            at = arith.addi(arith.muli(layer, constant_index(self.vectors.step(block, kind.element_type))), at)
        return schedule.ReadOp(self.open[str(kind.element_type)], [at], kind).results[0]

    def first_of_share(self, count: int) -> ir.Value:
        """The first of the columns that a CTA of a cluster has, of so many each. Its number is asked for where it is
        used: registers are few."""
        return arith.muli(RankOp(ir.IndexType.get()).results[0], constant_index(count))

    def _extent(self) -> ir.Value:
        whole = next(load.operands[0] for stage in self.pipeline.stages for load in stage.loads)
        size = rows.shape_of(whole)[0]
        return tensor.dim(whole, constant_index(0)) if size == rows.DYNAMIC else constant_index(size)

    def _room(self, kept: int = 0) -> int:
        """Bytes of shared memory for tiles and weights, of which so many boxes are kept."""
        stores = [store for stage in self.pipeline.stages for store in stage.stores]
        leave = self.program.moves_rows or self.cluster > 1 or any(engine_of(store.operands[0]) for store in stores)
        boxes = self.copies * schedule.OUTBOX_BYTES if leave else 0
        stowed = self.tile_rows * _SLOT_ROW * sum(self.stows.values())
        barriers = _aligned(_BARRIER * (_SLOTS + kept))
        others = self.cluster - 1
        sent = self.tile_rows * _SLOT_ROW * self.program.exchanged_boxes * others
        if others:
            barriers += _aligned(_BARRIER * self.copies * (self.program.exchanged_boxes * others + 1))
            sent += _aligned(2 * self.cluster * self.tile_rows * _NUMBER)
        room = self.target.shared_bytes - barriers - boxes - stowed - sent
        return room - sum(map(_aligned, self.vectors.nbytes()))

    def _boxes(self) -> dict[int, int]:
        """How many boxes of weights there are, by their rows."""
        found: dict[int, int] = {}
        for block in self.program.blocks:
            for product in block.products.values():
                count = product.sets * product.chunks * product.segments[0].pieces * len(block.stages)
                found[product.columns] = found.get(product.columns, 0) + count
        return found

    def _may_keep(self) -> bool:
        """Whether shared memory holds all weights, and a CTA has tiles enough for it to matter."""
        streamed = MOST_TILE_SLOTS * self.tile_rows * _SLOT_ROW if self.program.streams else 0
        weights = sum(count * _aligned(columns * _SLOT_ROW) for columns, count in self._boxes().items())
        whole = next(load.operands[0] for stage in self.pipeline.stages for load in stage.loads)
        size = rows.shape_of(whole)[0]
        several = size == rows.DYNAMIC or size >= LEAST_TILES * self.tile_rows * self.target.sms
        several = several and self.cluster == 1 and all(product.passes == 1 for product in self.program.products)
        return several and weights + streamed <= self._room(sum(self._boxes().values()))

    def _weights(self) -> list[ir.Value]:
        """What slots are filled from."""
        found = []
        for stage in self.pipeline.stages:
            products = [op for op in stage.block.operations if op.operation.name == "linalg.matmul"]
            found += [op.operands[1] for op in products] + [load.operands[0] for load in stage.loads]
        return found

    def _alloc_rings(self) -> None:
        program = self.program
        element = ir.RankedTensorType(program.products[0].op.operands[1].type).element_type
        slot, room = program.weight_columns * _SLOT_ROW, self._room()
        for kind, placed in self.vectors.placed.items():
            name, count = f"{VECTORS}_{kind}", self.vectors.ends[kind]
            self._alloc(name, 1, "all", 1, ir.RankedTensorType(placed[0][0].type).element_type, "dense", count)
        streamed = MOST_TILE_SLOTS
        if room - streamed * self.tile_rows * _SLOT_ROW < (LEAST_SLOTS + 1) * slot:
            streamed = LEAST_SLOTS
        if program.alone and not self.keeps:  # as many as of weights
            streamed = max(streamed, min(MOST_SLOTS, room // (slot + self.tile_rows * _SLOT_ROW)))
        if program.streams:
            streamed = MOST_TILE_SLOTS if self.keeps else streamed
            self._alloc(STREAMED, self.tile_rows, "split", streamed, element)
            room -= streamed * self.tile_rows * _SLOT_ROW
        for first, slots in self.stows.items():
            self._alloc(f"{STOWED}_{first}", self.tile_rows, "own", slots, element)
        for distance in range(1, self.cluster if program.exchanged_boxes else 1):
            self._alloc(f"{SENT}_{distance}", self.tile_rows, "own", program.exchanged_boxes, element, space="dsmem")
        if not self.keeps:
            self._alloc(WEIGHTS, program.weight_columns, "all", min(MOST_SLOTS, room // slot), element)
            return
        for columns, count in self._boxes().items():
            self._alloc(f"{WEIGHTS}_{columns}", columns, "all", count, element)

    def _alloc(
        self,
        name: str,
        count: int,
        share: str,
        slots: int,
        element: ir.Type,
        box: str = "rows",
        columns: int = 0,
        space: str = "smem",
    ) -> None:
        names = map(ir.StringAttr.get, (name, space, box, share))
        type_ = kitsune.ring_type(ir.RankedTensorType.get([count, columns or self.chunk], element), slots)
        self.rings[name] = schedule.AllocRingOp(*names, type_)

    def slot(self, name: str, count: int) -> ir.Type:
        """The type of a ring's slot of so many rows."""
        return schedule.Slot.get(ir.RankedTensorType.get([count, self.chunk], self.rings[name].tile.element_type))

    def wait(self, fill: Fill, into: Filling) -> ir.Value:
        """The next full slot of a ring, which the other agent fills so; that of a box that is kept."""
        if self.keeps and fill.ring != STREAMED:
            for known, slot in self.kept:
                if known == fill:
                    return slot
            with self._before_tiles:
                slot = schedule.WaitOp(self.rings[fill.ring].results[0], self.slot(fill.ring, fill.rows)).results[0]
            self.kept.append((fill, slot))
            return slot
        into.append(fill)
        return schedule.WaitOp(self.rings[fill.ring].results[0], self.slot(fill.ring, fill.rows)).results[0]

    def _fill(self, filling: Filling, first_row: ir.Value, counters: dict[str, ir.Value]) -> None:
        """Fills slots; `counters` are those of the loops around, by what they go over."""
        for fill in _rolled(filling, self.chunk):
            if isinstance(fill, Fills):
                loop = scf.ForOp(*map(constant_index, (fill.first, fill.last, fill.step)))
                with ir.InsertionPoint(loop.body):
                    self._fill(fill.body, first_row, counters | {fill.over: loop.induction_variable})
                    scf.yield_([])
                continue
            ring = self.rings[fill.ring]
            slot = schedule.AcquireOp(ring.results[0], self.slot(fill.ring, fill.rows)).results[0]
            row = first_row if fill.ring == STREAMED else _sum(counters["passes"] if fill.in_pass else None, fill.row)
            column = _sum(counters["chunks"] if fill.column is None else None, fill.start + (fill.column or 0))
            if fill.share_rows:
                row = arith.addi(self.first_of_share(fill.share_rows), row)
            if fill.part is not None:
                column = arith.addi(self._part(*fill.part), column)
            source = selected(fill.sources, counters.get("layers"))
            copy = schedule.CopyOp(slot, source, [row, column], ir.StringAttr.get("tma"), schedule.Token.get())
            copy.attributes["dims"] = ir.DenseI64ArrayAttr.get([0, 1])
            schedule.CommitOp(slot, [copy.results[0]])

    def _part(self, distance: int, width: int) -> ir.Value:
        """The first column of what the CTA so far behind has of an exchanged tile, of so many columns each."""
        behind = arith.addi(RankOp(ir.IndexType.get()).results[0], constant_index(distance))
        return arith.muli(arith.remui(behind, constant_index(self.cluster)), constant_index(width))


def _rolled(filling: Filling, chunk: int) -> Filling:
    """Runs of boxes that are neighbours in a weight as loops: the feeding thread's code is small, so that it does not
    push that of warpgroups out of the instruction cache."""
    found: Filling = []
    for _, run in groupby(enumerate(filling), partial(_neighbours, chunk)):
        members = [fill for _, fill in run]
        first = members[0]
        if len(members) < LEAST_LOOP or not isinstance(first, Fill) or first.column is None:
            found += members
            continue
        end = first.column + len(members) * chunk
        found.append(Fills("chunks", first.column, end, chunk, [replace(first, column=None)]))
    return found


def _neighbours(chunk: int, place: tuple[int, Fill | Fills]) -> object:
    """A key that boxes have in common which lie one behind the other in columns, and are filled so."""
    number, fill = place
    if not isinstance(fill, Fill) or fill.column is None:
        return number
    sources = tuple(hash(source) for source in fill.sources)
    return sources, fill.ring, fill.row, fill.start, fill.part, fill.column - number * chunk


def _sum(counter: ir.Value | None, number: int) -> ir.Value:
    """A place that may depend on a loop's counter."""
    if counter is None:
        return constant_index(number)
    return arith.addi(counter, constant_index(number)) if number else counter


def selected(tensors: Sequence[ir.Value], layer: ir.Value | None) -> ir.Value:
    """The tensor of a layer, of one for each; the only one elsewhere."""
    if layer is None or len(tensors) == 1:
        return tensors[0]
    return schedule.SelectOp(layer, list(tensors), tensors[0].type).results[0]


def engine_of(tile: ir.Value) -> str | None:
    """What stores a tile: the copy engine where its rows are whole 16 bytes, else warps, but for narrow ones."""
    kind = ir.RankedTensorType(tile.type)
    if kind.rank != 2 or not is_multiplied(kind.element_type):
        return None
    if row_bytes(tile) % schedule.GRANULE == 0:
        return schedule.COPIED
    return schedule.BY_ROWS if row_bytes(tile) >= LEAST_ROW_BYTES else None


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN


def check(pipeline: kitsune.PipelineOp, program: Program) -> None:
    """Raises UnsupportedError for a pipeline that is not chained at the schedule level."""
    if program.multicast > 1 or len({s.role for s in pipeline.stages}) > 1:
        raise UnsupportedError("CTAs that share boxes of weights, or stages, are not scheduled")
    if len({product.nbytes for product in program.products}) > 1:
        raise UnsupportedError("products of 16 and of 32 bits in one chain are not scheduled")
    for stage in pipeline.stages:
        for op in stage.block.operations:
            _check_operation(op.operation)
            if program.cluster > 1:
                check_shared(op.operation)
    for block in program.blocks:
        for nest in block.nests:
            if nest.op is None or nest.kind != PRODUCT:
                continue
            product = block.products[hash(nest.op.results[0])]
            if product.passes > 1:
                check_leaves(nest)
            if not starts_from_zero(nest.op) and product.n != product.columns * product.sets:
                raise UnsupportedError("sums that begin with a tile of other columns than theirs are not scheduled")


def _check_operation(op: ir.Operation) -> None:
    for value in (*op.operands, *op.results):
        if rows.is_tensor(value) and ir.RankedTensorType(value.type).rank > 2:
            raise UnsupportedError(f"tiles of type {value.type} are not scheduled")
    if op.name == "linalg.generic" and "reduction" in (s := rows.Structured(op)).iterators:
        row_combiner(s)
