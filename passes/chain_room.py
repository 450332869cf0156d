"""What shared memory holds of a chain at the schedule level: how many slots, and whether weights stay there."""

from __future__ import annotations

from math import inf

from kitsune_mlir import rows
from kitsune_mlir.chains.program import Block, Program
from kitsune_mlir.codegen.pipeline.nests import REDUCTION
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.planning.target import Target

from .chain_tiles import engine_of
from .chain_vectors import Vectors

MOST_SLOTS, LEAST_SLOTS = 12, 2  # of weights that come while tiles are worked on
MOST_TILE_SLOTS = 4  # of streamed tiles; at least as many as of weights
LEAST_TILES = 3  # of a CTA, for weights to be kept
SLOT_ROW = 128  # bytes
_ALIGN = 1024  # bytes, of a slot
_BARRIER = 16  # bytes of a slot
_NUMBER = 4  # bytes of a row's
_SLOTS = 48  # at most, but for weights that are kept


class Room:
    """The shared memory of a CTA of a chain, one of `ctas`, that does what the program of a pipeline says. `stows` are
    the slots of tiles that wait for a product, by ring. Raises UnsupportedError where there is no room for two slots of
    weights and two of streamed tiles."""

    def __init__(
        self,
        pipeline: kitsune.PipelineOp,
        program: Program,
        target: Target,
        ctas: int,
        vectors: Vectors,
        stows: dict[int, int],
    ):
        self.pipeline, self.program, self.target, self.ctas = pipeline, program, target, ctas
        self.vectors, self.stows = vectors, stows
        self.cluster, self.copies, self.tile_rows = program.cluster, program.consumers, program.tile_rows
        streamed = LEAST_SLOTS * self.tile_rows * SLOT_ROW * program.streaming
        if self._free() - streamed < LEAST_SLOTS * program.weight_columns * SLOT_ROW:
            raise UnsupportedError("vectors and tiles leave no room for weights in shared memory")

    def _free(self, kept: int = 0) -> int:
        """Bytes for tiles and weights, of which so many boxes are kept."""
        program = self.program
        stores = [store for stage in program.stages for store in stage.stores]
        leave = (
            program.moves_rows
            or self.cluster > 1
            or any(engine_of(store.operands[0].type, self.target) for store in stores)
        )
        leave = leave or bool(program.puts)
        boxes = self.copies * schedule.MOST_OUTBOXES * schedule.OUTBOX_BYTES if leave else 0
        stowed = self.tile_rows * SLOT_ROW * sum(self.stows.values())
        barriers = _aligned(_BARRIER * (_SLOTS + kept))
        others = self.cluster - 1
        sent = self.tile_rows * SLOT_ROW * program.exchanged_boxes * others
        if others:
            barriers += _aligned(_BARRIER * self.copies * (program.exchanged_boxes * others + 1))
            sent += _aligned(2 * self.cluster * self.tile_rows * _NUMBER)
        room = self.target.shared_bytes - barriers - boxes - stowed - sent
        return room - sum(map(_aligned, self.vectors.nbytes()))

    def boxes(self) -> dict[int, int]:
        """How many boxes of weights there are, by their rows."""
        found: dict[int, int] = {}
        for block in self.program.blocks:
            for product in block.products.values():
                count = product.sets * product.chunks * product.segments[0].pieces * len(block.stages)
                found[product.columns] = found.get(product.columns, 0) + count
        return found

    @property
    def tiles_each(self) -> float:
        """The tiles of a CTA, in the mean; as many as one likes where that is open until the call."""
        whole = next(load.operands[0] for stage in self.pipeline.stages for load in stage.loads)
        size, grid = rows.shape_of(whole)[0], self.program.grid_product
        if size == rows.DYNAMIC:
            return inf
        return size * (grid.passes if grid else 1) / (self.tile_rows * self.ctas)

    def may_keep(self) -> bool:
        """Whether it holds all weights, and a CTA has tiles enough for it to matter. Equal stages that reduce rows
        stay a loop, whose weights are streamed: what they compute takes longer than that, and is long code many times
        over."""
        streamed = MOST_TILE_SLOTS * self.tile_rows * SLOT_ROW * self.program.streaming
        weights = sum(count * _aligned(columns * SLOT_ROW) for columns, count in self.boxes().items())
        several = self.cluster == 1 and self.tiles_each >= LEAST_TILES
        several = several and not any(len(block.stages) > 1 and _reduces(block) for block in self.program.blocks)
        several = several and all(product.passes == 1 for product in self.program.products)
        return several and weights + streamed <= self._free(sum(self.boxes().values()))

    def slots(self, keeps: bool) -> tuple[int, int]:
        """The slots of streamed tiles and, where these are not kept, of weights."""
        slot, room = self.program.weight_columns * SLOT_ROW, self._free()
        rings, tile = self.program.streaming, self.tile_rows * SLOT_ROW * max(1, self.program.streaming)
        if keeps:
            return MOST_TILE_SLOTS, 0
        streamed = MOST_TILE_SLOTS if room - MOST_TILE_SLOTS * tile >= (LEAST_SLOTS + 1) * slot else LEAST_SLOTS
        if self.program.alone:  # as many as of weights
            streamed = max(streamed, min(MOST_SLOTS, room // (slot + tile)))
        return streamed, min(MOST_SLOTS, (room - (streamed * tile if rings else 0)) // slot)


def _reduces(block: Block) -> bool:
    return any(nest.kind == REDUCTION for nest in block.nests)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
