"""The tiles of a single product: the form that the model predicts to be fastest, k split only where that is allowed."""

from hypothesis import given
from hypothesis import strategies as st

from kitsune_mlir.planning.columns import CHOICES, MOST_SPLIT_COLUMNS, SPLITS, choose_columns, predicted_us

SIZES = st.integers(1, 20_000)


@given(SIZES, SIZES, st.integers(1, 5000), st.sampled_from((8, 78, 132)), st.integers(1, len(SPLITS)))
def test_no_form_is_predicted_to_be_faster(n, k, row_tiles, sms, count):
    splits = SPLITS[:count]
    columns, split = choose_columns(n, k, row_tiles, sms, splits)
    assert columns in CHOICES and split in splits and (split == 1 or columns <= MOST_SPLIT_COLUMNS)
    others = [(c, s) for c in CHOICES for s in splits if s == 1 or c <= MOST_SPLIT_COLUMNS]
    chosen = predicted_us(columns, split, n, k, row_tiles, sms)
    assert all(chosen <= predicted_us(*other, n, k, row_tiles, sms) for other in others)


@given(SIZES, SIZES, st.sampled_from(SPLITS))
def test_of_open_rows_k_is_split_when_that_is_asked_for(n, k, split):
    columns, found = choose_columns(n, k, None, 132, (split,))
    assert found == split and columns <= (256 if split == 1 else MOST_SPLIT_COLUMNS) and columns % 64 == 0


def test_few_rows_are_split_and_many_are_not():
    assert choose_columns(4096, 4096, 1, 132, SPLITS) == (64, 2)
    assert choose_columns(4096, 4096, 128, 132, SPLITS) == (256, 1)
