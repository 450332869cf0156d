"""Where things lie in the shared memory of a chained kernel; the ring of weights takes what is left.

barriers | vectors | sums of rows | stashed tiles | other CTAs' tiles | outboxes | ring of tiles | ring of weights
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.planning.target import Target

from . import exchange, stores, tma
from .program import CLUSTERS, TILE_ROWS, Program
from .wgmma import BOX_ROW

CONSUMERS = 2
VECTORS_AT = 1024
MOST_SLOTS = 12
MOST_TILE_SLOTS = 4
LEAST_SLOTS = 2
TILE_SLOT_BYTES = TILE_ROWS * BOX_ROW


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
    slots: int
    slot_bytes: int

    @property
    def nbytes(self) -> int:
        return self.weights + self.slots * self.slot_bytes


def lay_out(program: Program, shared_bytes: int) -> Layout:
    """Raises UnsupportedError when shared memory does not hold two slots of weights."""
    slot_bytes = _aligned(program.weight_columns * BOX_ROW)
    sums = VECTORS_AT + program.vector_bytes
    summed = CONSUMERS * exchange.sums_bytes(program.cluster) if program.cluster > 1 else 0
    stashes = _aligned(sums + summed)
    boxes = stashes + CONSUMERS * program.stash_boxes * stores.BOX_BYTES
    outboxes = boxes + CONSUMERS * exchange.tiles_bytes(program.cluster, program.exchanged_boxes)
    leave = program.store_maps or program.put_maps or program.exchanged_boxes
    tiles = outboxes + (CONSUMERS * stores.BYTES if leave else 0)
    fewest = MOST_TILE_SLOTS if program.alternating else LEAST_SLOTS  # a group of chunks stays for both sets
    for tile_slots in (MOST_TILE_SLOTS, fewest) if program.streams else (0,):
        weights = tiles + tile_slots * TILE_SLOT_BYTES
        slots = min(MOST_SLOTS, (shared_bytes - weights) // slot_bytes)
        if slots > LEAST_SLOTS or slots == LEAST_SLOTS and tile_slots <= fewest:
            return Layout(sums, stashes, boxes, outboxes, tiles, weights, tile_slots, slots, slot_bytes)
    raise UnsupportedError(f"{tiles} bytes of vectors and tiles leave no room for weights in shared memory")


def fit(pipeline: kitsune.PipelineOp, target: Target, cluster: int = 0, multicast: int = 1) -> Program:
    """The program of `cluster` CTAs, or of the fewest, whose registers and shared memory hold a tile; of one, where
    `multicast` CTAs share boxes of weights. Raises UnsupportedError, with what stops the fewest, when none do."""
    first: UnsupportedError | None = None
    fewest = (1,) if multicast > 1 else CLUSTERS
    for ctas in (cluster,) if cluster else fewest:
        try:
            program = Program(pipeline, target.sms, ctas, multicast=multicast)
            lay_out(program, target.shared_bytes)
            return program
        except UnsupportedError as error:
            first = first or error
    assert first is not None
    raise first


def _aligned(nbytes: int) -> int:
    return -(-nbytes // tma.ALIGN) * tma.ALIGN
