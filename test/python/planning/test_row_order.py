"""Whether rows are put into the order of their receivers."""

import pytest

from kitsune_mlir.planning import target
from kitsune_mlir.planning.row_order import Moved, RowSpace, Sums, order_us, pays, saved_us

H100 = target.load("sm_90a")
INDICES = (Moved(8), Moved(8))


def edges(rows, places, width, blocks, leaves=True):
    """The edges of a graph network: `blocks` sums at the nodes, edges that come in and leave."""
    return RowSpace(rows, (Sums(width, places),) * blocks, (*INDICES, Moved(2 * width), *[Moved(2 * width)] * leaves))


@pytest.mark.parametrize(
    "space, wanted",
    [
        (edges(1_310_720, 218_453, 128, 2), True),
        (edges(1_310_720, 218_453, 128, 1), True),
        (edges(10_788, 1_876, 128, 15), False),  # the L2 holds the table
        (edges(327_660, 40_962, 512, 2), True),
        (edges(400_000, 400_000, 128, 2), False),  # no rows meet
        (edges(20_000, 2_000_000, 128, 15), False),
        # Wide rows, narrow sums.
        (RowSpace(1_310_720, (Sums(16, 500_000),), (*INDICES, Moved(2048), Moved(2048))), False),
    ],
)
def test_pays(space, wanted):
    assert pays(space, H100) == wanted


def test_what_is_saved_grows_with_the_sums_and_what_it_costs_does_not():
    once, often = edges(1_310_720, 218_453, 128, 1), edges(1_310_720, 218_453, 128, 15)
    assert saved_us(often, H100) == pytest.approx(15 * saved_us(once, H100))
    assert order_us(often, H100) == order_us(once, H100)


def test_rows_that_are_used_in_both_orders_are_written_twice():
    inside, outside = (RowSpace(10**6, (), (Moved(256, here),)) for here in (True, False))
    assert order_us(outside, H100) > order_us(inside, H100) + 2 * 256 * 10**6 / 3.1e6 / 2
