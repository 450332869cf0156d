"""Products whose matrices are taken out of a tensor by number, as those of a mixture's experts are.

    %t = linalg.generic ins(%numbers : tensor<39xi64>) ... {        // tensor<39x1536x2048xbf16>
      tensor.extract %w[%number, %row, %column] }                   // of tensor<8x1536x2048xbf16>
    %p = linalg.batch_matmul ins(%x, %t)

The kernel looks up the number and copies boxes of %w, so that %t is made nowhere: neighbours of the batch with one
matrix read it from the L2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import NUMBERED, Contraction, Numbers, Roles
from kitsune_mlir.dialects.look_up import LookUpOp
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import attr_int, i64, ir
from kitsune_mlir.operations import element_type, end_of, is_generic, operations_of
from kitsune_mlir.row_numbers import row_number

from .reshapes import reshaped
from .row_groups import root

_MATRIX = 2  # the dimensions of one


def by_number(found: Contraction) -> Contraction:
    """The product with the tensor that holds its right matrices, or else its left ones, in the place of those that are
    taken out of it; new operations stand at the insertion point."""
    if (right := _taken(found.right, found.right_roles)) is not None:
        roles = (NUMBERED, *found.right_roles[-_MATRIX:])
        return replace(found, right=right[0], right_roles=roles, numbers=right[1])
    if (left := _taken(found.left, found.left_roles)) is not None:
        roles = (NUMBERED, *found.left_roles[-_MATRIX:])
        return replace(found, left=left[0], left_roles=roles, numbers=left[1])
    return found


def _taken(value: ir.Value, roles: Roles) -> tuple[ir.Value, Numbers] | None:
    """The tensor that has the matrices of a batch, and which of them these are; None where they are not taken so."""
    gather, sizes = rows.producer(root(value)), rows.shape_of(value)
    found, count = taken_by(gather), sizes[0] if roles[0] == "b" else 1
    if gather is None or found is None or "b" in roles[1:] or rows.DYNAMIC in (of := rows.shape_of(found.table)):
        return None
    *outer, _, _ = rows.shape_of(gather.results[0])
    if of[1:] != sizes[-_MATRIX:] or (gather.results[0] != value and prod(outer) != count):
        return None
    kind = element_type(found.numbers)
    if found.wrap not in (None, of[0]) or not isinstance(kind, ir.IntegerType) or kind.width not in (32, 64):
        return None
    numbers = reshaped(found.numbers, [None if count == rows.DYNAMIC else count])
    return found.table, Numbers(numbers, of[0], found.wrap is not None, gather.location)


def looked_up(numbers: Numbers | None, at: dict[str, ir.Value]) -> dict[str, ir.Value]:
    """Where a tile is, with the place of its matrix where a number says that."""
    if numbers is None:
        return at
    with numbers.location:
        number = at["b"] if "b" in at else constant_index(0)
        found = LookUpOp(numbers.tensor, number, i64(numbers.size), ir.IndexType.get())
        if numbers.wrapped:
            found.attributes["wrapped"] = ir.UnitAttr.get()
    return at | {NUMBERED: found.results[0]}


@dataclass(frozen=True)
class Taken:
    """Matrices that are taken out of a table by these numbers; `wrap` is added to negative ones."""

    table: ir.Value
    numbers: ir.Value
    wrap: int | None


def taken_by(gather: ir.Operation | None, dimensions: int = _MATRIX) -> Taken | None:
    """What an operator takes whole matrices out of, or other tensors of so many dimensions, one for each number of a
    tensor; None of any other."""
    if not is_generic(gather):
        return None
    s = rows.Structured(gather)
    extracts = operations_of(s.body, "tensor.extract")
    if len(extracts) != 1 or end_of(s.body).operands[0] != extracts[0].results[0]:
        return None
    table, number, *inside = extracts[0].operands
    outer, shape = len(s.iterators) - dimensions, rows.shape_of(gather.results[0])
    if s.maps[-1] != ir.AffineMap.get_identity(len(s.iterators)) or "reduction" in s.iterators or outer < 1:
        return None
    if not _are_loops(inside, outer, dimensions) or shape[outer:] != rows.shape_of(table)[1:]:
        return None
    found = row_number(number)
    argument = ir.BlockArgument(found.source).arg_number if isinstance(found.source.owner, ir.Block) else s.inputs
    if argument >= s.inputs or not _are_all(s.maps[argument].results, shape[:outer]):
        return None
    return Taken(table, gather.operands[argument], found.size)


def _are_all(exprs: Sequence[ir.AffineExpr], sizes: Sequence[int]) -> bool:
    """Whether these are the numbers of a generic's first loops, of so many turns each."""
    found = [size == 1 or rows.dim_of(expr) == d for d, (expr, size) in enumerate(zip(exprs, sizes, strict=False))]
    return len(exprs) == len(sizes) and all(found)


def _are_loops(indices: list[ir.Value], first: int, count: int) -> bool:
    """Whether these are the numbers of a generic's last dimensions, from `first` on."""
    made = [rows.producer(index) for index in indices]
    if len(made) != count or any(op is None or op.name != "linalg.index" for op in made):
        return False
    return [attr_int(op, "dim") for op in made if op is not None] == list(range(first, first + count))
