"""The order in which a product's tiles are taken (passes/tile_order.py)."""

import operator
from itertools import product

import pytest

from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.passes.tile_order import ceildiv, place_of

COMPUTED = {
    "arith.muli": operator.mul,
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.divui": operator.floordiv,
    "arith.remui": operator.mod,
    "arith.minui": min,
    "arith.ceildivui": lambda a, b: -(-a // b),
}


def number_of(value):
    op = value.owner
    if op.name == "arith.constant":
        return attr_int(op, "value")
    return COMPUTED[op.name](*map(number_of, op.operands))


def places(extents, sizes, share):
    """The number of each tile along each dimension, in the order in which tiles are taken."""
    with ir.Context(), ir.Location.unknown():
        with ir.InsertionPoint(ir.Module.create().body):
            roles = list(extents)
            sized = [constant_index(extents[role]) for role in roles]
            count = 1
            for extent, role in zip(sized, roles, strict=True):
                count *= number_of(ceildiv(extent, sizes[role]))
            found = [place_of(constant_index(n), roles, sized, sizes, share) for n in range(count)]
            for first, at in found:
                assert all(number_of(first[role]) == sizes[role] * number_of(at[role]) for role in roles)
            return [tuple(number_of(at[role]) for role in roles) for _, at in found]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("batch", [1, 5, 18])
@pytest.mark.parametrize("rows", [40, 300])
@pytest.mark.parametrize("columns", [64, 96, 256])
def test_each_tile_is_taken_once(columns, rows, batch, share):
    extents, sizes = {"b": batch, "m": rows, "n": 300}, {"b": 1, "m": 64, "n": columns}
    found = places(extents, sizes, share)
    wanted = set(product(range(batch), range(-(-rows // 64)), range(-(-300 // columns))))
    assert len(found) == len(wanted) and set(found) == wanted


def test_batches_that_share_a_matrix_are_taken_together():
    """Sixteen of them, before the next columns."""
    extents, sizes = {"b": 37, "m": 64, "n": 512}, {"b": 1, "m": 64, "n": 128}
    assert places(extents, sizes, share=True)[:17] == [*((b, 0, 0) for b in range(16)), (0, 0, 1)]
    assert places(extents, sizes, share=False)[:5] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 0, 0)]
