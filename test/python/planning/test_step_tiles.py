"""Tiles of steps that are one kernel: which fit, and what is chosen."""

from dataclasses import replace
from itertools import product

import pytest

from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.step_tiles import CLUSTERS, COLUMNS, Recurrence, choose, shared_bytes

SM90 = targets.load("sm_90a")
LSTM = Recurrence(steps=32, rows=64, width=256, gates=4, pieces=1, work=90.0)


@pytest.mark.parametrize("width", [8, 64, 96, 128, 192, 256, 320, 512, 1024])
@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_all_columns_lie_in_a_cluster_that_fits(width, pieces):
    found = 0
    for rows, gates, steps in product([1, 16, 40, 64, 100, 512], [1, 2, 3, 4], [3, 100]):
        found += has_tiles(rows, width, gates, pieces, steps)
    assert bool(found) == (width in (64, 128, 256, 512) and (width, pieces) != (512, 3))


def has_tiles(rows, width, gates, pieces, steps):
    """Whether there are tiles, which then are as they should."""
    of = Recurrence(steps, rows, width, gates, pieces, 80.0)
    tiles = choose(of, SM90)
    if tiles is None:
        return False
    assert tiles.columns in COLUMNS and tiles.columns * tiles.cluster == width and tiles.cluster in CLUSTERS
    assert rows % tiles.rows == 0 or tiles.rows == 64
    assert shared_bytes(of, tiles.columns) <= SM90.shared_bytes
    longer = choose(replace(of, steps=2 * steps), SM90)
    assert longer is not None and longer.price.us > tiles.price.us
    return True


def test_few_rows_share_a_cluster_where_others_find_places():
    """A CTA gets a quarter of the bytes then."""
    assert choose(LSTM, SM90).rows == 16
    assert choose(replace(LSTM, rows=72), SM90).rows == 64  # no multiple of 16
    assert choose(replace(LSTM, rows=4096), SM90).rows > 16  # sixteen turns of seven clusters would be slower


@pytest.mark.parametrize(
    "of",
    [replace(LSTM, width=96), replace(LSTM, width=1024), replace(LSTM, width=512, pieces=3), replace(LSTM, width=32)],
)
def test_widths_without_tiles(of):
    """They are no multiple of a chunk, or weights do not fit shared memory."""
    assert choose(of, SM90) is None


def test_no_more_steps_than_are_proven():
    assert choose(replace(LSTM, steps=1000), SM90) is not None
    assert choose(replace(LSTM, steps=3000), SM90) is None


def test_chips_without_clusters():
    assert choose(LSTM, targets.load("sm_80")) is None
