"""What is chosen where the call decides how many rows there are: forms for those of the example, with more in view."""

import pytest

from kitsune_mlir.planning import product_tiles, target
from kitsune_mlir.planning.cost import StageCost
from kitsune_mlir.planning.cut import cut
from kitsune_mlir.planning.open_rows import MANY, NEAR, UNKNOWN_ROWS, Rows, nearly_fastest
from kitsune_mlir.planning.place import Chained, place

GPU = target.load("sm_90a")
FORMS = Chained(tile_rows=128), Chained(tile_rows=64)
STAGES = [StageCost("s0", "tensor", product_flops=2.0 * 256 * 256, row_bytes=1024.0)]


def test_of_nearly_equal_forms_the_one_is_chosen_that_is_fastest_for_many_rows():
    assert nearly_fastest([1.0, NEAR, NEAR + 0.1], [9.0, 3.0, 1.0]) == 1
    assert nearly_fastest([2.0, 1.0], [1.0, 9.0]) == 1
    assert Rows(None, 200).tiles(64) == 4 and Rows(100, 200).tiles(64) == 2 and Rows(0).tiles(64) == 1


@pytest.mark.parametrize("size", [(2048, 256, 256), (2048, 384, 1536), (64, 1024, 1024), (65536, 256, 256)])
@pytest.mark.parametrize("pairs", [1, 6])
def test_tiles_of_open_rows_are_nearly_the_fastest(size, pairs):
    chosen, fastest = (product_tiles.choose(1, *size, False, pairs, GPU, open_=which) for which in ("m", ""))
    assert fastest.microseconds <= chosen.microseconds <= NEAR * fastest.microseconds


def test_tiles_of_a_chain_are_those_of_the_example():
    few, many, unknown = (place(STAGES, [], None, GPU, chained=FORMS, example=n) for n in (2048, 1 << 20, UNKNOWN_ROWS))
    fixed = place(STAGES, [], 2048, GPU, chained=FORMS)
    assert fixed.predicted_us <= few.predicted_us <= NEAR * fixed.predicted_us
    assert few.predicted_us < unknown.predicted_us < many.predicted_us
    assert unknown == place(STAGES, [], None, GPU, chained=FORMS)
    assert few.replicas == (GPU.sms,), "a call may have many rows"


def test_a_cut_is_priced_for_the_example():
    few, many = (cut(STAGES, [], None, GPU, lambda first, last: FORMS, example=n) for n in (2048, MANY * 2048))
    assert few.predicted_us < many.predicted_us / 2
