"""What is put around a tensor whose dimensions are joined then is put around the joined one, where it is in other
dimensions. MLIR's fusion of reshapes brings it in front of them, where nothing that reads windows finds it.

    %p = tensor.pad %x low[0, 0, 1] high[0, 0, 1] ... : tensor<2x4x56xf32> to tensor<2x4x58xf32>
    %y = tensor.collapse_shape %p [[0, 1], [2]] : tensor<2x4x58xf32> into tensor<8x58xf32>
  =>
    %j = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x4x56xf32> into tensor<8x56xf32>
    %y = tensor.pad %j low[0, 1] high[0, 1] ... : tensor<8x56xf32> to tensor<8x58xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, replace_op, tensor, walk
from kitsune_mlir.operations import filler_of, made_by, padding_of


def pad_joined(main: ir.Operation) -> None:
    """Rewrites such reshapes of @main."""
    for op in walk(main, "tensor.collapse_shape"):
        pad = made_by(op.operands[0], "tensor.pad")
        if pad is None or len(pad.operands) != 1 or len(list(pad.results[0].uses)) != 1:
            continue
        groups, kind = rows.groups_of(op), ir.RankedTensorType(pad.operands[0].type)
        low, high = padding_of(pad)
        apart = all(len(group) == 1 or not any(low[d] or high[d] for d in group) for group in groups)
        if apart and kind.has_static_shape:
            _exchange(op, pad, groups, low, high)


def _exchange(
    op: ir.Operation, pad: ir.Operation, groups: list[list[int]], low: Sequence[int], high: Sequence[int]
) -> None:
    kind = ir.RankedTensorType(pad.operands[0].type)
    sizes = [prod(kind.shape[d] for d in group) for group in groups]
    filler = filler_of(pad)
    with op.location, ir.InsertionPoint(op):
        joined = tensor.CollapseShapeOp(ir.RankedTensorType.get(sizes, kind.element_type), pad.operands[0], groups)
        sides = ([side[group[0]] for group in groups] for side in (low, high))
        made = tensor.PadOp(op.results[0].type, joined.result, [], [], *sides)
        block = made.regions[0].blocks.append(*[ir.IndexType.get()] * len(groups), arg_locs=[op.location] * len(groups))
        with ir.InsertionPoint(block):
            tensor.YieldOp(filler)
    replace_op(op, made.result)
    pad.erase()
