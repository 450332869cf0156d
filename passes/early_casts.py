"""What rounds the results of a convolution, or of pools, does so behind reshapes: in front of them its kernel does.

    %c = linalg.depthwise_conv_2d_nchw_chw ... -> tensor<2x6x8x8xf32>     %c = linalg.depthwise_conv_2d_nchw_chw ...
    %v = tensor.collapse_shape %c ... into tensor<2x6x64xf32>        =>   %r = linalg.generic ins(%c) { arith.truncf }
    %r = linalg.generic ins(%v) { arith.truncf }                          %v = tensor.collapse_shape %r ...

MLIR's fusion brings reshapes in front of elementwise operators, and windows are read by one kernel with what follows
(window_reads.py).
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.generics import constant_index, generic
from kitsune_mlir.mlir import ir, replace_op, tensor, walk
from kitsune_mlir.operations import element_type

_WINDOWS = ("linalg.conv", "linalg.depthwise", "linalg.pooling")


def cast_early(main: ir.Operation) -> None:
    """Rewrites such casts of @main."""
    for op in walk(main, "linalg.generic"):
        reshapes, source = list[ir.Operation](), op.operands[0]
        while (made := rows.producer(source)) is not None and made.name in rows.RESHAPES and _is_read_once(source):
            reshapes.insert(0, made)
            source = made.operands[0]
        if reshapes and _is_read_once(source) and rounds_windows(op, source):
            _move(op, reshapes, source)


def rounds_windows(op: ir.Operation, source: ir.Value) -> bool:
    """Whether all that an operator does is to round the elements of `source`, which convolutions or pools give."""
    made = rows.producer(source)
    if made is None or not made.name.startswith(_WINDOWS) or op.name != "linalg.generic":
        return False
    s = rows.Structured(op)
    body = [one.operation.name for one in s.body.operations]
    plain = body == ["arith.truncf", "linalg.yield"] and s.is_elementwise() and s.inputs == 1
    return plain and s.maps[0] == s.maps[1]


def _is_read_once(value: ir.Value) -> bool:
    return len(list(value.uses)) == 1


def _move(op: ir.Operation, reshapes: list[ir.Operation], source: ir.Value) -> None:
    kind, element = ir.RankedTensorType(source.type), element_type(op.results[0])
    with op.location, ir.InsertionPoint(op):
        begin = list(source.owner.operands)[-1]  # for nothing else is to read the results
        sizes = [tensor.dim(begin, constant_index(d)) if n == rows.DYNAMIC else n for d, n in enumerate(kind.shape)]
        same = [ir.AffineMap.get_identity(kind.rank)] * 2
        starts, body = [tensor.empty(sizes, element)], rows.Structured(op).body
        value = generic([source], starts, same, ["parallel"] * kind.rank, body).results[0]
        for reshape in reshapes:
            copy = reshape.clone()
            copy.operands[0] = value
            copy.results[0].set_type(ir.RankedTensorType.get(reshape.results[0].type.shape, element))
            value = copy.results[0]
    replace_op(op, value)
    for reshape in reversed(reshapes):
        reshape.erase()
