"""The kernel of a chained pipeline at the schedule level: rings of streamed tiles and of weights, an agent that fills
them, and one of one or two warpgroups that carry 64 rows each of a tile through all stages in their registers
(schedule_chains.py). What is multiplied in which order is the program's (chains/program.py); what warpgroups do
with it, piece by piece, chain_body.py's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kitsune_mlir import rows
from kitsune_mlir.chains.program import CLUSTERS, Block, Program
from kitsune_mlir.codegen.pipeline.nests import kitsune_label
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, i64, ir, scf, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.target import Target

from .chain_ahead import Ahead
from .chain_checks import check
from .chain_fills import Fill, Filling, Fills, of_ring, place, rolled, selected, without_ring
from .chain_gathers import gather, wants_registers
from .chain_prefetch import gathers_of, leaves_registers, prefetch
from .chain_room import Room
from .chain_stows import slots_of_stows
from .chain_vectors import Vectors
from .kernel_build import (
    acquire_slot,
    body_of,
    copy_box,
    cta_rank,
    deal_tiles,
    empty_agent,
    fill_slot,
    new_agent,
    new_ring,
    turns,
    wait_slot,
)
from .operand_layout import laid_out, weight_laid_out

COPY_ROWS = 64  # of a tile that a warpgroup has
_REGISTERS = {1: (248, 248), 2: (24, 240)}  # of a thread that feeds, and multiplies, by warpgroups that multiply
_ASKING = {1: (248, 248), 2: (40, 232)}  # the same where warps beside the one that feeds ask for rows of tables
_WARPS = 4
STREAMED, GATHERED, WEIGHTS, VECTORS = "tiles", "gathered", "weights", "vectors"
STOWED, SENT, TURN = "stowed", "sent", "turn"

Body: TypeAlias = Callable[["ChainKernel", ir.Value], None]


class ChainKernel:
    """The kernel of a pipeline whose tiles have `tile_rows` rows, each shared by the CTAs of a cluster of so many; or
    what the CTAs of one `role` do, between whose stages and those of others `queues`, by their labels, are rings in L2
    (chain_roles.py). Raises UnsupportedError for what has no such kernel; what it takes it builds, once the pipeline is
    placed so."""

    def __init__(
        self,
        pipeline: kitsune.PipelineOp,
        target: Target,
        cluster: int,
        tile_rows: int,
        role: int | None = None,
        queues: Mapping[str, schedule.AllocRingOp] | None = None,
    ):
        self.pipeline, self.target, self.queues = pipeline, target, {} if queues is None else queues
        self.cluster, self.tile_rows = cluster, tile_rows
        self.ctas = target.sms if role is None else ctas_of(pipeline, role)
        self.program = Program(pipeline, target, cluster, role, tile_rows)
        self.copy_engine, products = schedule.engines(target.products)
        self.product_engine = ir.StringAttr.get(products)
        self.copies = self.program.consumers
        # Rows of a box of a streamed tile: those beyond a tensor's last cost the copy engine as much time as others.
        short = self.copies == 1 and target.has_warpgroups
        self.box_rows = self.program.box_rows if short else self.tile_rows
        check(self.program)
        self.chunk = self.program.products[0].segments[0].chunk_columns  # columns of a slot
        self.filling: Filling = []
        self.rings: dict[str, schedule.AllocRingOp] = {}
        self.vectors = Vectors(self.program.blocks)
        self.stows = slots_of_stows(self.program)
        self.open: dict[str, ir.Value] = {}  # the slots of vectors, by their elements
        self.grid = self.program.grid_product
        self.column: ir.Value | None = None
        self.kept: list[tuple[Fill, ir.Value]] = []  # boxes of weights, with their slots
        self._sources: dict[int, ir.Value] = {}
        self._taken: dict[int, ir.Value] = {}  # open slots of rings in L2, by these
        self.room = Room(pipeline, self.program, target, self.ctas, self.vectors, self.stows)

    def source(self, value: ir.Value) -> ir.Value:
        """A tensor as the copy engine reads it: rows of whole 16 bytes, columns of each part at such places."""
        number = self.program.numbers[hash(value)]
        if number not in self._sources:
            with ir.InsertionPoint(self.pipeline):
                packing = self.program.packed.get(number)
                packed = value if packing is None else packing.apply(value)
                longer = number in self.program.padded or number in self.program.weights
                self._sources[number] = weight_laid_out(packed) if longer else packed
        return self._sources[number]

    def build(self, body: Body) -> schedule.KernelOp:
        """The kernel, at the insertion point; `body` builds what a warpgroup does with its rows from an index on."""
        self.prepare()
        kernel = kernel_of(self.pipeline)
        if self.cluster > 1:
            kernel.attributes["cluster"] = i64(self.cluster)
        with ir.InsertionPoint(kernel.regions[0].blocks.append()):
            self.emit(body)
        return kernel

    def prepare(self) -> None:
        """Decides what shared memory and registers hold beside the tiles, and makes what the kernel reads from around
        it."""
        self.gathers = any(map(self.program.gathers, self.program.products))
        asks = self.room.tiles_each > 1 and self.target.has_warpgroups and not self.gathers
        self.asked = gathers_of(self.program) if asks else []
        self.keeps = not self.asked and self.room.may_keep()
        self.slots = self.room.slots(self.keeps)
        self.ahead = Ahead(self.program, self.room.tiles_each if self.grid is None else 0)
        self.extent = self._extent()
        for weight in self._weights():
            self.source(weight)
        vectors = [value for placed in self.vectors.placed.values() for value, _ in placed]
        self._padded = {hash(value): laid_out(value, 1)[0] for value in vectors}

    def emit(self, body: Body) -> None:
        """Tiles, rings and agents, at the insertion point."""
        extents = [self.extent, *([constant_index(self.grid.n)] if self.grid else [])]
        dealt = deal_tiles(extents, [self.tile_rows, *([self.grid.pass_columns] if self.grid else [])])
        self._alloc_rings()
        leaves = self.gathers and (leaves_registers(self.program) or wants_registers(self.program, self.slots[0]))
        feeds, multiplies = (_ASKING if self.asked or leaves else _REGISTERS)[self.copies]
        alone = not (self.asked or self.gathers)
        feed = empty_agent("feed", 1, _WARPS if alone else 1, feeds)
        beside = None if alone else empty_agent("ask" if self.asked else "gather", 1, _WARPS - 1, feeds)
        if self.asked:
            self._ask(beside, dealt)
        with new_agent("math", self.copies, _WARPS, multiplies) as copy:
            self._multiply(copy, dealt, body)
        if self.gathers:
            with body_of(beside):
                gather(self, of_ring(self.filling, GATHERED), dealt)
        self.filling = without_ring(self.filling, GATHERED)
        with body_of(feed):  # does what the one that multiplies asks for
            self._fill_vectors()
            self._fill([fill for fill, _ in self.kept], constant_index(0), {})
            with turns(*dealt.results) as number:
                first = self.start(number)
                taken = [wait_slot(self.queues[label]) for label in self._gotten]
                self._taken = {hash(slot.owner.operation.operands[0]): slot for slot in taken}
                self._fill(self.filling, first, {} if self.column is None else {"passes": self.column})
                for slot in taken:
                    schedule.ReleaseOp(slot, [])

    def acquire_queue(self, label: str) -> ir.Value:
        """The slot of the turn's tile in the ring between roles that is a queue's, to be filled."""
        return acquire_slot(self.queues[label])

    @property
    def _gotten(self) -> list[str]:
        """The queues from other roles, by their labels."""
        labels = [kitsune_label(get.operands[0]) for stage in self.program.stages for get in stage.gets]
        return [label for label in labels if label in self.queues]

    def _multiply(self, copy: ir.Value, dealt: schedule.TilesOp, body: Body) -> None:
        """What the agent of warpgroups does, each of which is the copy of it of this number."""
        number, end, step = dealt.results

        def row(number: ir.Value) -> ir.Value:
            return arith.addi(self.start(number), arith.muli(copy, constant_index(COPY_ROWS)))

        loaded = self.ahead.load(number, end, row)
        self._open_vectors()
        loop = scf.ForOp(number, end, step, loaded)
        self._before_tiles = ir.InsertionPoint(loop)
        with ir.InsertionPoint(loop.body):
            number, first = loop.induction_variable, row(loop.induction_variable)
            self._take_turn()
            self.ahead.begin(loop.inner_iter_args, lambda: self.ahead.load(arith.addi(number, step), end, row))
            body(self, first)
            scf.yield_(self.ahead.ended())
        for slot in [*self.open.values(), *(slot for _, slot in self.kept)]:
            schedule.ReleaseOp(slot, [])

    def start(self, number: ir.Value) -> ir.Value:
        """The first row of a tile; its first column, where tiles are of columns too, is `column`."""
        if self.grid is not None:
            passes = constant_index(self.grid.passes)
            self.column = arith.muli(arith.remui(number, passes), constant_index(self.grid.pass_columns))
            number = arith.divui(number, passes)
        return arith.muli(number, constant_index(self.tile_rows))

    def _ask(self, asking: schedule.AgentOp, dealt: schedule.TilesOp) -> None:
        """The agent that asks for the rows that each tile gathers."""
        with body_of(asking), turns(*dealt.results) as number:
            slot = self._turn(schedule.AcquireOp)
            first = self.start(number)
            for gather in self.asked:
                with gather.op.location:
                    prefetch(gather, slot, first, self.extent, self.tile_rows)
            schedule.CommitOp(slot, [])

    def _take_turn(self) -> None:
        """A tile begins: its rows have been asked for, those of the next may be."""
        if self.asked:
            schedule.ReleaseOp(self._turn(schedule.WaitOp), [])

    def _turn(self, opens: type) -> ir.Value:
        """The next slot of the ring of turns, which has no elements."""
        ring = self.rings[TURN]
        return opens(ring.results[0], schedule.Slot.get(ring.tile)).results[0]

    def _open_vectors(self) -> None:
        for element in self.vectors.placed:
            self.open[element] = wait_slot(self.rings[f"{VECTORS}_{element}"])

    def _fill_vectors(self) -> None:
        for element, placed in self.vectors.placed.items():
            slot, done = acquire_slot(self.rings[f"{VECTORS}_{element}"]), []
            for value, first in placed:
                copy = copy_box(slot, self._padded[hash(value)], [], [], self.copy_engine)
                copy.attributes["into"] = i64(first)
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
        return arith.muli(cta_rank(), constant_index(count))

    def _extent(self) -> ir.Value:
        whole = next(load.operands[0] for stage in self.pipeline.stages for load in stage.loads)
        size = rows.shape_of(whole)[0]
        return tensor.dim(whole, constant_index(0)) if size == rows.DYNAMIC else constant_index(size)

    def _weights(self) -> list[ir.Value]:
        """What slots are filled from."""
        streamed = [segment.value for segment in self.program.segments() if segment.streams and not segment.gathered]
        loads = [op for value in streamed if (op := rows.producer(value)).name == kitsune.LoadOp.OPERATION_NAME]
        found = [load.operands[0] for load in loads]
        for stage in self.program.stages:
            products = [op for op in stage.block.operations if op.operation.name == "linalg.matmul"]
            found += [op.operands[1] for op in products]
        return found

    def _alloc_rings(self) -> None:
        program = self.program
        element = element_type(program.products[0].op.operands[1])
        for kind, placed in self.vectors.placed.items():
            name, count = f"{VECTORS}_{kind}", self.vectors.ends[kind]
            self._alloc(name, 1, "all", 1, element_type(placed[0][0]), "dense", count)
        streamed, weights = self.slots
        if program.streams:
            self._alloc(STREAMED, self.tile_rows, "split", streamed, element)
        if self.gathers:
            self._alloc(GATHERED, self.tile_rows, "split", streamed, element)
        if self.asked:
            self._alloc(TURN, 1, "all", 1, ir.IntegerType.get_signless(8), "dense", 0)
        for first, slots in self.stows.items():
            self._alloc(f"{STOWED}_{first}", self.tile_rows, "own", slots, element)
        for distance in range(1, self.cluster if program.exchanged_boxes else 1):
            self._alloc(f"{SENT}_{distance}", self.tile_rows, "own", program.exchanged_boxes, element, space="dsmem")
        if not self.keeps:
            self._alloc(WEIGHTS, program.weight_columns, "all", weights, element)
            return
        for columns, count in self.room.boxes().items():
            self._alloc(f"{WEIGHTS}_{columns}", columns, "all", count, element)

    def _alloc(
        self,
        name: str,
        count: int,
        share: str,
        slots: int,
        element: ir.Type,
        box: str = "rows",
        columns: int | None = None,
        space: str = "smem",
    ) -> None:
        tile = count, self.chunk if columns is None else columns
        self.rings[name] = new_ring(name, tile, element, slots, share, box, space)

    def wait(self, fill: Fill, into: Filling) -> ir.Value:
        """The next full slot of a ring, which the other agent fills so; that of a box that is kept."""
        if self.keeps and fill.ring not in (STREAMED, GATHERED):
            for known, slot in self.kept:
                if known == fill:
                    return slot
            with self._before_tiles:
                slot = wait_slot(self.rings[fill.ring], fill.rows)
            self.kept.append((fill, slot))
            return slot
        into.append(fill)
        return wait_slot(self.rings[fill.ring], fill.rows)

    def _fill(self, filling: Filling, first_row: ir.Value, counters: dict[str, ir.Value]) -> None:
        """Fills slots; `counters` are those of the loops around, by what they go over."""
        for fill in rolled(filling):
            if isinstance(fill, Fills):
                with turns(*map(constant_index, (fill.first, fill.last, fill.step))) as counter:
                    self._fill(fill.body, first_row, counters | {fill.over: counter})
                continue
            slot = acquire_slot(self.rings[fill.ring], fill.rows)
            row = first_row if fill.ring == STREAMED else place(counters["passes"] if fill.in_pass else None, fill.row)
            column = place(counters["chunks"] if fill.column is None else None, fill.start + (fill.column or 0))
            if fill.share_rows:
                row = arith.addi(self.first_of_share(fill.share_rows), row)
            if fill.part is not None:
                column = arith.addi(self._part(*fill.part), column)
            source = selected(fill.sources, counters.get("layers"))
            if (slot_taken := self._taken.get(hash(source))) is not None:
                source, row = slot_taken, constant_index(0)
            fill_slot(slot, source, [row, column], [0, 1], self.copy_engine)

    def _part(self, distance: int, width: int) -> ir.Value:
        """The first column of what the CTA so far behind has of an exchanged tile, of so many columns each."""
        behind = arith.addi(cta_rank(), constant_index(distance))
        return arith.muli(arith.remui(behind, constant_index(self.cluster)), constant_index(width))


def fit(pipeline: kitsune.PipelineOp, target: Target, cluster: int, tile_rows: int) -> Program:
    """What the kernel of a pipeline does with a tile of so many rows, which `cluster` CTAs share, or, of 0, the fewest
    whose registers and shared memory hold it. Raises UnsupportedError, with what stops the fewest, when none do."""
    first: UnsupportedError | None = None
    asked = CLUSTERS if target.clusters and target.has_warpgroups else (1,)
    for ctas in (cluster,) if cluster else asked:
        try:
            return ChainKernel(pipeline, target, ctas, tile_rows).program
        except UnsupportedError as error:
            first = first or error
    assert first is not None
    raise first


def kernel_of(pipeline: kitsune.PipelineOp) -> schedule.KernelOp:
    """An empty kernel with a placed pipeline's name, target and price, at the insertion point."""
    kernel = schedule.KernelOp(ir.StringAttr.get(pipeline.label), kitsune.Outputs.get())
    for name in ("target", "predicted_us", "limit"):
        if name in pipeline.attributes:
            kernel.attributes[name] = pipeline.attributes[name]
    return kernel


def ctas_of(pipeline: kitsune.PipelineOp, role: int) -> int:
    """The CTAs of a role."""
    return next(stage.replicas for stage in pipeline.stages if stage.role == role) or 1
