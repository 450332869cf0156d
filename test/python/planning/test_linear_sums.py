"""Sums of open numbers as plain data."""

from kitsune_mlir.planning.linear_sums import LinearSum


def test_what_cancels_is_no_term():
    n, m = LinearSum.of("n"), LinearSum.of("m")
    assert n.scaled(2).plus(m).plus(n, -2).plus(LinearSum(5)) == LinearSum(5, {"m": 1})
    assert n.scaled(0) == LinearSum(0)


def test_equal_sums_are_one_key_in_whatever_order_they_were_made():
    n, m = LinearSum.of("n"), LinearSum.of("m")
    assert {n.plus(m): 1}[m.plus(n)] == 1


def test_a_kind_of_sums_stays_that_kind():
    class Size(LinearSum):
        pass

    assert type(Size.of("n").plus(LinearSum(1)).scaled(3)) is Size
