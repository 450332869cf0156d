"""Sizes that are open until the call, as numbers."""

from kitsune_mlir.planning.open_sizes import OpenSizes, factors, is_open, is_single


def test_fresh_sizes_are_single_and_differ():
    sizes = OpenSizes()
    a, b = sizes.fresh(), sizes.fresh()
    assert a != b and is_single(a) and is_single(b)
    assert not is_open(1 << 31) and not is_single(4 * a)


def test_factors_say_what_a_size_is_a_product_of():
    sizes = OpenSizes()
    a, b = sizes.fresh(), sizes.fresh()
    assert factors(12) == (12, [])
    assert factors(12 * b * a) == (12, [a, b])


def test_what_is_equal_is_one_size():
    sizes = OpenSizes()
    a, b, c = (sizes.fresh() for _ in range(3))
    sizes.equate(4 * b, 4 * a)
    assert sizes.plain(3 * b) == sizes.plain(3 * a)
    sizes.equate(c, 2 * b)  # a size is found to be a product
    assert sizes.plain(c) == sizes.plain(2 * a)
    sizes.equate(a, 8)  # and one to be known
    assert sizes.plain(c * b) == 128


def test_nothing_is_learnt_of_products_that_differ():
    sizes = OpenSizes()
    a, b = sizes.fresh(), sizes.fresh()
    sizes.equate(2 * a, 3 * b)
    assert sizes.plain(a) == a and sizes.plain(b) == b
