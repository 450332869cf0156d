"""Operations of ours as calls of functions that are declared alone while tensors become buffers: bufferization takes
these for code from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import func, ir, replace_op, walk


@dataclass(frozen=True)
class Call:
    """A call that stands for an operation, after bufferization, and the function that it names."""

    call: ir.Operation
    function: ir.Operation

    def replace(self, *results: ir.Value) -> None:
        """Puts results in the place of the call's."""
        replace_op(self.call, *results)
        self.function.erase()


def outlined(
    module: ir.Module, op: ir.Operation, name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type]
) -> tuple[func.FuncOp, func.CallOp]:
    """The function of a name, which the caller says more of, and a call of it in front of an operation."""
    with op.context, op.location:
        with ir.InsertionPoint.at_block_begin(module.body):
            own = func.FuncOp(name, ([value.type for value in operands], list(results)), visibility="private")
        with ir.InsertionPoint(op):
            return own, func.CallOp(list(results), name, list(operands))


def calls(module: ir.Module, prefix: str) -> Iterator[tuple[ir.Operation, ir.Operation]]:
    """The calls of functions whose names begin so, each with its function."""
    functions = {op.opview.name.value: op for op in walk(module, "func.func")}
    for op in walk(module, "func.call"):
        if callee(op).startswith(prefix):
            yield op, functions[callee(op)]


def callee(call: ir.Operation) -> str:
    """The name of the function that is called."""
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
