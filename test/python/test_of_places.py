"""Tensors that are computed of places alone: which they are, tiles of them, and the columns that masks leave."""

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitsune_mlir import mlir
from kitsune_mlir.mlir import arith, ir, walk
from kitsune_mlir.passes.of_places import is_of_places, range_of, tile_of_places
from kitsune_mlir.schedule import numeric

ORDERS = {"slt": operator.lt, "sle": operator.le, "sgt": operator.gt, "sge": operator.ge}
ROWS, COLUMNS = 23, 19
CONTEXT = mlir.context()


def text(first, second, join, kind):
    """A mask of two conditions, each (order, whether the row comes first, what is added), of numbers of a type."""

    def condition(number, order, row_first, added):
        names = ("%i", f"%j{number}") if row_first else (f"%j{number}", "%i")
        return f"""
    %a{number} = arith.constant {added} : {kind}
    %j{number} = arith.addi %j, %a{number} : {kind}
    %c{number} = arith.cmpi {order}, {names[0]}, {names[1]} : {kind}"""

    return f"""
#row = affine_map<(i, j) -> (i, 0)>
#column = affine_map<(i, j) -> (j)>
#both = affine_map<(i, j) -> (i, j)>
func.func @f() -> tensor<{ROWS}x{COLUMNS}xi1> {{
  %er = tensor.empty() : tensor<{ROWS}x{kind}>
  %rows = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
      outs(%er : tensor<{ROWS}x{kind}>) {{
  ^bb0(%o: {kind}):
    %n = linalg.index 0 : index
    %m = arith.index_cast %n : index to {kind}
    linalg.yield %m : {kind}
  }} -> tensor<{ROWS}x{kind}>
  %wide = tensor.expand_shape %rows [[0, 1]] output_shape [{ROWS}, 1] : tensor<{ROWS}x{kind}> into
  tensor<{ROWS}x1x{kind}> %ec = tensor.empty() : tensor<{COLUMNS}x{kind}>
  %columns = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}}
      outs(%ec : tensor<{COLUMNS}x{kind}>) {{
  ^bb0(%o: {kind}):
    %n = linalg.index 0 : index
    %m = arith.index_cast %n : index to {kind}
    linalg.yield %m : {kind}
  }} -> tensor<{COLUMNS}x{kind}>
  %e = tensor.empty() : tensor<{ROWS}x{COLUMNS}xi1>
  %mask = linalg.generic {{indexing_maps = [#row, #column, #both], iterator_types = ["parallel", "parallel"]}}
      ins(%wide, %columns : tensor<{ROWS}x1x{kind}>, tensor<{COLUMNS}x{kind}>)
      outs(%e : tensor<{ROWS}x{COLUMNS}xi1>) {{
  ^bb0(%i: {kind}, %j: {kind}, %o: i1):{condition(0, *first)}{condition(1, *second)}
    %c = arith.{join} %c0, %c1 : i1
    linalg.yield %c : i1
  }} -> tensor<{ROWS}x{COLUMNS}xi1>
  return %mask : tensor<{ROWS}x{COLUMNS}xi1>
}}
"""


def taken(condition):
    order, row_first, added = condition
    i, j = np.arange(ROWS)[:, None], np.arange(COLUMNS)[None] + added
    return ORDERS[order](i, j) if row_first else ORDERS[order](j, i)


conditions = st.tuples(st.sampled_from(list(ORDERS)), st.booleans(), st.integers(-9, 9))


@given(
    first=conditions,
    second=conditions,
    join=st.sampled_from(["andi", "ori"]),
    kind=st.sampled_from(["i64", "i32"]),
    negated=st.booleans(),
    at=st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLUMNS - 1)),
)
def test_masks_of_two_conditions(first, second, join, kind, negated, at):
    module = mlir.parse(text(first, second, join, kind), CONTEXT)
    mask = walk(module, "func.return")[0].operands[0]
    assert is_of_places(mask)
    wanted = (np.logical_and if join == "andi" else np.logical_or)(taken(first), taken(second))
    found = range_of(mask, 0, 1, negated)
    for i, row in enumerate(~wanted if negated else wanted):
        for j in np.flatnonzero(row):
            assert found.first is None or j >= i + found.first
            assert found.last is None or j <= i + found.last
    if join == ("ori" if negated else "andi"):  # each condition is an end, or both are one
        assert (found.first, found.last) != (None, None)

    with module.context, ir.Location.unknown(), ir.InsertionPoint(walk(module, "func.return")[0]):
        starts = [arith.ConstantOp.create_index(number).result for number in at]
        tile = tile_of_places(mask, [4, 3], starts, [0, 1])
    assert module.operation.verify()
    op = tile.owner.operation
    (made,) = numeric.compile_op(op)([np.zeros((4, 3), bool), *at])
    inside = wanted[at[0] : at[0] + 4, at[1] : at[1] + 3]
    np.testing.assert_array_equal(made[: inside.shape[0], : inside.shape[1]], inside)


@pytest.mark.parametrize(
    "old, new",
    [("arith.addi %j, %a0", "arith.muli %j, %a0"), ("arith.constant 3 : i64", "arith.constant 99999999 : i64")],
    ids=["a product", "a number far off"],
)
def test_what_may_leave_32_bits_is_none(old, new):
    source = text(("sle", True, 3), ("sle", False, 3), "andi", "i64")
    assert old in source
    module = mlir.parse(source.replace(old, new), CONTEXT)
    assert not is_of_places(walk(module, "func.return")[0].operands[0])
