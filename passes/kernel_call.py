"""A kernel that was built, and the call that stands in the place of what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.example_sizes import SIZES_FROM
from kitsune_mlir.mlir import func, ir


def built(kernel: Any) -> tuple[Any, ir.Operation]:
    """A kernel, and its gpu.module, which stands nowhere yet."""
    scratch = ir.Module.create()
    with ir.InsertionPoint(scratch.body):
        return kernel, kernel.build().detach_from_parent()


def declare(
    module: ir.Module,
    name: str,
    operands: Sequence[ir.Value],
    ends: Sequence[ir.Value],
    kernel: Any,
    gpu_module: ir.Operation,
) -> None:
    """Puts a kernel into the module, and the function `name`, of these operands and of results as `ends`, that calls of
    it name."""
    gpu_module.attributes["kitsune.pipeline"] = ir.StringAttr.get(name)
    gpu_module.attributes["kitsune.launch"] = ir.StringAttr.get(kernel.launch())
    with ir.InsertionPoint.at_block_begin(module.body):
        type_ = ir.FunctionType.get([value.type for value in operands], [end.type for end in ends])
        function = func.FuncOp(name, type_, visibility="private")
        if any(sources := [kernel.sizes_from(number, end.type) for number, end in enumerate(ends)]):
            pairs = [ir.DenseI64ArrayAttr.get([n for source in own for n in source]) for own in sources]
            function.attributes[SIZES_FROM] = ir.ArrayAttr.get(pairs)
        ir.InsertionPoint.current.insert(gpu_module)


def call(
    op: ir.OpView, name: str, operands: Sequence[ir.Value], results: Sequence[ir.OpView], ends: Sequence[ir.Value]
) -> None:
    """Puts a call in the place of a pipeline or kernel, whose results (kitsune.result) end there. `ends` are the values
    that the call's results replace: those of `results`, or what a kernel makes of them besides."""
    with ir.InsertionPoint(op):
        made = func.CallOp([end.type for end in ends], name, operands)
    for result, end, value in zip(results, ends, made.results):
        end.replace_all_uses_with(value)
        while end != result.results[0]:
            made_of = end.owner.operation.operands[0]
            end.owner.erase()
            end = made_of
        result.operation.erase()
    op.operation.erase()
