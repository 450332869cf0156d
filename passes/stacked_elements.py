"""Tensors stacked along a last dimension of their own are elements of one operator, which stores them together.

    %a1 = tensor.expand_shape %a ... into tensor<8x64x1xf32>        // the numbers that a rotation turns, two by two
    %y = tensor.concat dim(2) %a1, %b1
  =>
    %y = linalg.generic {(i, j, k)} ins(%a1 by (i, j, 0), %b1 by (i, j, 0)) { select(k = 0, %a1, %b1) } : 8x64x2

A thread has all of a place in a word then, and knows which is which (codegen/gpu_words.py). Written one after another
they would share sectors of memory that are written as often as there are tensors.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.generics import generic, sizes_of
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import made_by
from kitsune_mlir.traffic import element_bytes

from .row_groups import root

_COUNTS = (2, 4)
_WORD = 16  # bytes


def stack_elements(main: ir.Operation) -> None:
    """Rewrites such concatenations of @main."""
    for op in walk(main, "tensor.concat"):
        kind = ir.RankedTensorType(op.results[0].type)
        if attr_int(op, "dim") == kind.rank - 1 > 0 and _is_word(op, kind) and not _are_of_kernels(op):
            with op.location, ir.InsertionPoint(op):
                replace_op(op, _stacked(op, kind))


def is_stack(op: ir.Operation) -> bool:
    """Whether an operator is such a one: which of its operands an element is of its last loop alone says."""
    s = rows.Structured(op)
    last = len(s.iterators) - 1
    asked = [attr_int(index, "dim") for index in s.index_ops()]
    apart = all(last not in rows.loops_of(expr) for map_ in s.maps[: s.inputs] for expr in map_.results)
    return asked == [last] and apart and rows.shape_of(op.results[0])[-1] in _COUNTS


def _is_word(op: ir.Operation, kind: ir.RankedTensorType) -> bool:
    """Whether each operand is one of the elements of a word."""
    ones = all(ir.RankedTensorType(value.type).shape[-1] == 1 for value in op.operands)
    return ones and len(op.operands) in _COUNTS and len(op.operands) * element_bytes(kind.element_type) <= _WORD


def _are_of_kernels(op: ir.Operation) -> bool:
    """Whether a kernel makes one of them, and may write it where it belongs."""
    makers = (rows.producer(root(value)) for value in op.operands)
    return any(maker is not None and maker.name == "func.call" for maker in makers)


def _stacked(op: ir.Operation, kind: ir.RankedTensorType) -> ir.Value:
    rank, operands = kind.rank, list(map(_read_plainly, op.operands))
    dims = [ir.AffineDimExpr.get(d) for d in range(rank)]
    ends = [[ir.AffineConstantExpr.get(0)] * (ir.RankedTensorType(value.type).rank - rank + 1) for value in operands]
    maps = [ir.AffineMap.get(rank, 0, [*dims[:-1], *end]) for end in ends]
    start = tensor.empty([*sizes_of(op.operands[0])[:-1], len(operands)], kind.element_type)

    def body(*given: ir.Value) -> ir.Value:
        place, found = linalg.IndexOp(rank - 1).result, given[len(operands) - 1]
        for number in reversed(range(len(operands) - 1)):
            here = arith.cmpi(arith.CmpIPredicate.eq, place, arith.ConstantOp.create_index(number).result)
            found = arith.select(here, given[number], found)
        return found

    return generic(operands, [start], [*maps, ir.AffineMap.get_identity(rank)], ["parallel"] * rank, body).results[0]


def _read_plainly(value: ir.Value) -> ir.Value:
    """A tensor without its last dimension of one element, where that was put behind it."""
    op = made_by(value, "tensor.expand_shape")
    if op is None:
        return value
    kind, groups = ir.RankedTensorType(value.type), rows.groups_of(op)
    ends = [group[-1] for group in groups]
    return op.operands[0] if ends == [*range(kind.rank - 2), kind.rank - 1] else value
