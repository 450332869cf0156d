"""Where things lie in the shared memory of a chained kernel; the ring of weights takes what is left.

barriers | vectors | sums of rows | stashed tiles | other CTAs' tiles, or sums | outboxes | ring of tiles | ring of
weights
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.planning.target import Target

from . import exchange, stores, tma
from .maps import TILE_ROWS
from .program import CLUSTERS, Program
from .wgmma import BOX_ROW

VECTORS_AT = 1024
MOST_SLOTS = 12
MOST_TILE_SLOTS = 4
LEAST_SLOTS = 2


@dataclass(frozen=True)
class Layout:
    """Byte offsets and counts of slots."""

    sums: int
    stashes: int
    boxes: int
    outboxes: int
    tiles: int
    weights: int
    tile_slots: int
    tile_slot_bytes: int
    slots: int
    slot_bytes: int

    @property
    def nbytes(self) -> int:
        return self.weights + self.slots * self.slot_bytes


def lay_out(program: Program, shared_bytes: int) -> Layout:
    """Raises UnsupportedError when shared memory does not hold two slots of weights."""
    slot_bytes = _aligned(program.weight_columns * BOX_ROW)
    sums = VECTORS_AT + program.vector_bytes
    summed = program.consumers * exchange.sums_bytes(program.cluster) if program.cluster > 1 else 0
    stashes = _aligned(sums + summed)
    boxes = stashes + program.consumers * program.stash_boxes * stores.BOX_BYTES
    received = exchange.tiles_bytes(program.cluster, program.exchanged_boxes)
    outboxes = boxes + program.consumers * received
    leave = program.uses_outboxes or program.exchanged_boxes
    tiles = outboxes + (program.consumers * stores.BYTES if leave else 0)
    tile_slot = program.slot_rows * BOX_ROW if program.streams else 0
    most, fewest = MOST_TILE_SLOTS, LEAST_SLOTS
    if program.alone:  # as many as of weights
        most = max(most, min(MOST_SLOTS, (shared_bytes - tiles) // (tile_slot + slot_bytes)))
    for tile_slots in (most, fewest) if program.streams else (0,):
        weights = tiles + tile_slots * tile_slot
        slots = min(MOST_SLOTS, (shared_bytes - weights) // slot_bytes)
        if slots > LEAST_SLOTS or slots == LEAST_SLOTS and tile_slots <= fewest:
            return Layout(sums, stashes, boxes, outboxes, tiles, weights, tile_slots, tile_slot, slots, slot_bytes)
    raise UnsupportedError(f"{tiles} bytes of vectors and tiles leave no room for weights in shared memory")


def fit(
    pipeline: kitsune.PipelineOp,
    target: Target,
    cluster: int = 0,
    tile_rows: int = TILE_ROWS,
) -> Program:
    """The program of `cluster` CTAs, or of the fewest, whose registers and shared memory hold a tile of `tile_rows`
    rows. Raises UnsupportedError, with what stops the fewest, when none do."""
    first: UnsupportedError | None = None
    for ctas in (cluster,) if cluster else CLUSTERS:
        try:
            program = Program(pipeline, target.sms, ctas, tile_rows=tile_rows)
            lay_out(program, target.shared_bytes)
            return program
        except UnsupportedError as error:
            first = first or error
    assert first is not None
    raise first


def _aligned(nbytes: int) -> int:
    return -(-nbytes // tma.ALIGN) * tma.ALIGN
