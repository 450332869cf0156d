"""Systems of equations, and the factors of matrices."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from typing import Any

from kitsune_mlir.mlir import ext, ir
from kitsune_mlir.planning.systems import most_rows

from .checks import check_kind, fail
from .types import Kitsune


class CholeskyOp(Kitsune.Operation, name="cholesky", traits=[ext.Pure]):
    """The lower triangles L of matrices, the last two dimensions of a tensor, of which L L^T are these; above their
    diagonal they are zero. What stands above the diagonal of `matrix` is not read. The factor of a matrix that is not
    positive definite has numbers that are none."""

    matrix: ext.Operand[Any]
    factor: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        (matrix,) = self.operands
        return is_square(self, matrix.type) and gives(self, matrix.type)


class SubstituteOp(Kitsune.Operation, name="substitute", traits=[ext.Pure]):
    """Solutions X of T X = `right`, of triangles T of matrices: the lower one, or, with the unit attribute `upper`, the
    upper one; with `transposed` T is the transpose of that triangle, and with `unit` its diagonal is taken to be ones.
    What stands in the other triangle is not read. Both tensors have the same dimensions but the last one."""

    right: ext.Operand[Any]
    matrix: ext.Operand[Any]
    solution: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        for name in ("upper", "transposed", "unit"):
            if not check_kind(self, name, ir.UnitAttr, "said without a value"):
                return False
        return verify_system(self)


class SolveOp(Kitsune.Operation, name="solve", traits=[ext.Pure]):
    """Solutions X of A X = `right`, of square matrices A: rows that are divided by are those whose number in the column
    is the largest. Of a matrix that has no inverse some numbers are infinite, or none. Both tensors have the same
    dimensions but the last one."""

    right: ext.Operand[Any]
    matrix: ext.Operand[Any]
    solution: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        return verify_system(self)


class PivotsOp(Kitsune.Operation, name="pivots", traits=[ext.Pure]):
    """What elimination divides the rows of square matrices by, column after column, with the sign that the rows' order
    gives: their product is the determinant. A column that has no other number than zero gives zero."""

    matrix: ext.Operand[Any]
    pivots: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        (matrix,) = self.operands
        if not is_square(self, matrix.type):
            return False
        with self.operation.location:
            kind = matrix.type
            return gives(self, ir.RankedTensorType.get(list(kind.shape)[:-1], kind.element_type))


def is_square(op, kind: ir.Type) -> bool:
    """Whether a type is one of square matrices that such an operation takes; it says so where that is not so."""
    if not isinstance(kind, ir.RankedTensorType) or not isinstance(kind.element_type, ir.F32Type | ir.F64Type):
        return fail(op, f"takes matrices of f32 or f64, found {kind}")
    most, sizes = most_rows(kind.element_type.width // 8), list(kind.shape)
    if kind.rank < 2 or sizes[-1] != sizes[-2] or not 0 < sizes[-1] <= most:
        return fail(op, f"takes square matrices of 1 to {most} rows, found {kind}")
    return True


def verify_system(op) -> bool:
    """Whether an operation's right sides fit its matrices, and its solutions these."""
    right, matrix = (value.type for value in op.operands)
    if not is_square(op, matrix):
        return False
    if not isinstance(right, ir.RankedTensorType) or list(right.shape)[:-1] != list(matrix.shape)[:-1]:
        return fail(op, f"takes right sides of as many rows as {matrix} has, found {right}")
    if right.element_type != matrix.element_type:
        return fail(op, f"takes numbers of one type, found {right} and {matrix}")
    return gives(op, right)


def gives(op, wanted: ir.Type) -> bool:
    """Whether the only result has a type."""
    (found,) = (value.type for value in op.operation.results)
    return found == wanted or fail(op, f"gives a tensor of type {wanted}, found {found}")


SYSTEMS = tuple(str(own.OPERATION_NAME) for own in (CholeskyOp, SubstituteOp, SolveOp, PivotsOp))
