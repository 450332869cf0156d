"""Who has which columns of a row: what a plan promises code generation, over many sizes."""

from dataclasses import replace

import pytest

from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.row_tiles import MOST_COLUMNS, WARP, RowGroup, choose, widest

GPU = targets.load("sm_90a")


def group(rows, columns, nbytes=2, live=2.5):
    return RowGroup(rows, columns, nbytes, 2.0 * columns * nbytes, live, 12, 2)


@pytest.mark.parametrize("nbytes", [1, 2, 4])
@pytest.mark.parametrize("columns", [2, 3, 8, 100, 513, 1024, 2048, 5000, 16384])
@pytest.mark.parametrize("rows", [1, 7, 300, 8192, 1 << 20])
def test_a_plan_can_be_launched(rows, columns, nbytes):
    tiles = choose(group(rows, columns, nbytes), GPU)
    threads = tiles.copies * tiles.warps * WARP
    assert columns % tiles.vector == 0 and tiles.vector * nbytes <= 16
    assert -(-columns // (tiles.lanes * tiles.vector)) * tiles.vector <= MOST_COLUMNS
    assert tiles.lanes == tiles.warps * WARP or tiles.warps == 1
    assert tiles.copies == 1 or tiles.warps == 1
    assert threads * tiles.ctas <= 2048 and threads * tiles.registers * tiles.ctas <= 65536
    assert tiles.registers % 8 == 0 and 24 <= tiles.registers <= 255


def test_rows_that_no_cta_holds():
    assert choose(group(8, 40000), GPU) is None
    assert choose(group(8, 16384, live=20), GPU) is None


@pytest.mark.parametrize("columns, nbytes, found", [(1024, 2, 8), (100, 2, 4), (513, 2, 1), (6, 4, 2), (64, 4, 4)])
def test_vectors_are_as_wide_as_rows_allow(columns, nbytes, found):
    assert widest(columns, nbytes) == found


def test_few_rows_are_shared_by_many_threads():
    assert choose(group(8, 1024), GPU).lanes > choose(group(1 << 16, 1024), GPU).lanes


def test_blocks_that_begin_one_after_another_are_few():
    """Products of 17 rows, 256 columns and k 256: larger blocks do as well, of which there are fewer."""
    rows = group(17 * 256, 256)
    tiles = choose(rows, GPU)
    assert -(-rows.rows // tiles.rows) <= 8 * GPU.sms


def test_few_rows_need_few_ctas():
    assert choose(group(100, 1024), GPU).ctas == 1


def test_many_rows_have_ctas_of_their_own():
    """Of a few warps each, whether or not their number is known. Few rows overlap with the kernel before."""
    for rows, columns in ((1 << 18, 1024), (1 << 14, 1024), (1 << 16, 256)):
        tiles = choose(group(rows, columns), GPU)
        assert tiles.single and tiles.copies * tiles.warps <= 4
        assert choose(replace(group(rows, columns), is_open=True), GPU) == tiles
    assert choose(group(1 << 16, 16384, live=1.5), GPU).single  # rows of several warps
    assert not choose(group(1 << 12, 1024), GPU).single


def test_ctas_of_their_own_want_enough_to_do():
    """Rows of 16 columns: blocks would begin more slowly than they are done."""
    tiles = choose(group(1 << 23, 16), GPU)
    assert not tiles.single or tiles.rows >= 64


def test_tiles_have_rows_of_one_segment():
    """Of 16,384 times 16 rows no tile has more than 16 at once: the others' threads would have nothing to do."""
    short = replace(group(16384 * 16, 32), segments=16384)
    assert choose(group(16384 * 16, 32), GPU).rows > 16 >= choose(short, GPU).rows
    assert short.tiles(16) == short.tiles(128) == 16384 and short.tiles(8) == 2 * 16384
