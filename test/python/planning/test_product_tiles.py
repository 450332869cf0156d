"""Tiles of products, beside what some of them took on an H200."""

import pytest

from kitsune_mlir.planning import target
from kitsune_mlir.planning.product_tiles import choose

GPU = target.load("sm_90a")
# b, m, n, k, whether the right operand's columns are neighbours; microseconds of the fastest tiles.
MEASURED = {
    (2, 4096, 4096, 4096, True): 360.6,
    (2, 4096, 4096, 4096, False): 360.5,
    (8, 2048, 2048, 2048, True): 182.7,
    (4, 1024, 1024, 1024, True): 13.7,
    (32, 1000, 1000, 1000, False): 155.5,
    (64, 512, 512, 512, True): 30.0,
    (96, 256, 256, 256, False): 8.2,
    (2, 2048, 512, 8192, False): 45.4,
    (2048, 27, 27, 128, False): 8.2,
    (1, 2048, 128, 256, False): 2.4,
}


@pytest.mark.parametrize("sizes", MEASURED, ids=str)
def test_as_measured(sizes):
    *sizes_of, across = sizes
    tiles = choose(*sizes_of, across, 1, GPU, 1)
    assert 1 / 1.25 < tiles.microseconds / MEASURED[sizes] < 1.25


def test_rows_that_begin_within_lines_take_twice_the_loads():
    whole, across_lines = (choose(32, 1024, 1024, k, False, 1, GPU, 1).microseconds for k in (1024, 1016))
    assert 1.2 * whole < across_lines < 2 * whole


def test_the_largest_tiles_for_the_largest_products():
    large, small = (choose(b, size, size, size, True, 1, GPU) for b, size in ((2, 4096), (64, 64)))
    assert (large.copies, large.columns) == (2, 256) and small.columns <= 64
