"""Calls of functions without a body, after bufferization: the caller allocates what they give back."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kitsune_mlir.cpu_symbols import PLAN, PRODUCT
from kitsune_mlir.mlir import func, ir, memref, replace_op, walk

from .cpu_build import dim
from .cpu_products import result_sizes
from .outlined import callee


def pass_results_by_reference(module: ir.Module) -> None:
    """Turns the memref results of functions without a body into trailing arguments, and mends the calls."""
    missing = {op.opview.name.value: op.opview for op in walk(module, "func.func") if op.opview.is_external}
    for op in walk(module, "func.call"):
        name = callee(op)
        if name not in missing:
            continue
        with module.context, op.location, ir.InsertionPoint(op):
            outs = _allocate(missing[name], list(op.operands))
            func.CallOp([], name, [*op.operands, *outs])
        replace_op(op, *outs)
    with module.context:
        for function in missing.values():
            kind = ir.FunctionType.get([*function.type.inputs, *function.type.results], [])
            function.attributes["function_type"] = ir.TypeAttr.get(kind)
            for name in ("arg_attrs", "res_attrs"):
                if name in function.attributes:
                    del function.attributes[name]


def _allocate(function: func.FuncOp, operands: Sequence[ir.Value]) -> list[ir.Value]:
    outs = []
    for kind in function.type.results:
        if kind.has_static_shape:
            sizes = []
        elif PRODUCT in function.attributes:
            sizes = result_sizes(function, operands)
        else:  # a pipeline: only its rows can be dynamic
            sizes = [dim(operands[json.loads(function.attributes[PLAN].value)["rows_of"]], 0)]
        outs.append(memref.alloc(kind, sizes, [], alignment=64))
    return outs
