"""The tiles of a single product in a pipeline: the form that the model predicts to be fastest."""

from hypothesis import given
from hypothesis import strategies as st

from kitsune_mlir.planning.columns import CHOICES, choose_columns, predicted_us

SIZES = st.integers(1, 20_000)


@given(SIZES, SIZES, st.integers(1, 5000), st.sampled_from((8, 78, 132)))
def test_no_form_is_predicted_to_be_faster(n, k, row_tiles, sms):
    columns = choose_columns(n, k, row_tiles, sms)
    chosen = predicted_us(columns, n, k, row_tiles, sms)
    assert columns in CHOICES
    assert all(chosen <= predicted_us(other, n, k, row_tiles, sms) for other in CHOICES)


@given(SIZES, SIZES)
def test_of_open_rows_tiles_are_wide(n, k):
    columns = choose_columns(n, k, None, 132)
    assert columns <= 256 and columns % 64 == 0


def test_few_rows_have_narrow_tiles():
    assert choose_columns(4096, 4096, 1, 132) == 64
    assert choose_columns(4096, 4096, 128, 132) == 256
