"""Rows that a chain loads as more dimensions than two and takes as one of columns: they are loaded so."""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir, tensor

COLLAPSE = "tensor.collapse_shape"


def flatten_loads(pipeline: kitsune.PipelineOp) -> None:
    """Loads the collapsed tensor, in the place of loads whose tiles are collapsed to rows of columns and nothing else:

    %t = "kitsune.load"(%x) : (tensor<130x4x64xbf16>) -> tensor<64x4x64xbf16>     %y = tensor.collapse_shape %x ...
    %c = tensor.collapse_shape %t [[0], [1, 2]] ... into tensor<64x256xbf16>   =>  %c = "kitsune.load"(%y) ...
    """
    for load in [load for stage in pipeline.stages for load in stage.loads]:
        uses = [use.owner.operation for use in load.results[0].uses]
        shape = rows.shape_of(load.results[0])
        if len(shape) < 3 or not uses or not all(map(_to_columns, uses)):
            continue
        whole = ir.RankedTensorType(load.operands[0].type)
        flat = ir.RankedTensorType.get([whole.shape[0], prod(shape[1:])], whole.element_type)
        groups = [[0], list(range(1, len(shape)))]
        with load.operation.location:
            with ir.InsertionPoint(pipeline):
                collapsed = tensor.collapse_shape(flat, load.operands[0], groups)
            with ir.InsertionPoint(load):
                loaded = kitsune.LoadOp(collapsed, uses[0].results[0].type).results[0]
        for use in uses:
            use.results[0].replace_all_uses_with(loaded)
            use.erase()
        load.operation.erase()


def _to_columns(op: ir.Operation) -> bool:
    """Whether an operation makes a tile's dimensions but the first one."""
    if op.name != COLLAPSE or len(rows.shape_of(op.results[0])) != 2:
        return False
    return rows.shape_of(op.results[0])[0] == rows.shape_of(op.operands[0])[0]
