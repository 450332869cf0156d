"""Sizes of inputs that are open until the call: which are equal, and those of index_put's broadcasts.

Inputs' sizes of one symbol are equal in every call: `share_sizes` says so, and has one of them asked for in place of
all, so that what is made of two inputs is seen to have one size. What takes rows out of an input counts from the end of
that one.

torch-mlir takes the sizes of index_put's broadcasts to be at least 1: no row would become one.

%n = arith.index_cast (tensor.dim %x, %c0)
%m = arith.maxsi %n, %c1                    ->  %n in its place
%e = tensor.empty(index_cast %m)
%y = linalg.generic outs(%e) {
  %i = arith.select (tensor.dim %x, %c0 == 1), %c0, %index
  linalg.yield (tensor.extract %x[%i, ...])
}
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.mlir import arith, attr_int, func, ir, tensor, walk
from kitsune_mlir.operations import made_by
from kitsune_mlir.program import NO_SYMBOL, SYMBOLS, TensorSpec


def allow_no_rows(module: ir.Module) -> None:
    """Rewrites, in place, the sizes of generics that broadcast a tensor by reading it element by element."""
    for generic in walk(module, "linalg.generic"):
        empty = made_by(generic.operands[0], "tensor.empty")
        names = {op.operation.name for op in generic.regions[0].blocks[0].operations}
        if empty is None or len(generic.operands) != 1 or not names >= {"tensor.extract", "arith.select"}:
            continue
        for size in empty.operands:
            cast = made_by(size, "arith.index_cast")
            largest = None if cast is None else made_by(cast.operands[0], "arith.maxsi")
            if largest is not None:
                largest.results[0].replace_all_uses_with(_size(largest))


def share_sizes(module: ir.Module, specs: Sequence[TensorSpec]) -> None:
    """Says which sizes of the arguments of @main are equal, these being the arguments, and has it ask the first one for
    each size that others have, too."""
    (main,) = (op for op in module.body.operations if isinstance(op, func.FuncOp) and op.name.value == "main")
    arguments = list(main.body.blocks[0].arguments)
    first: dict[str, tuple[int, int]] = {}
    for number, spec in enumerate(specs):
        for axis, symbol in enumerate(spec.symbols):
            if symbol is not None and arguments[number].type.is_dynamic_dim(axis):
                first.setdefault(symbol, (number, axis))
    if first:
        numbers = {symbol: number for number, symbol in enumerate(first)}
        found = [[numbers.get(symbol or "", NO_SYMBOL) for symbol in spec.symbols] for spec in specs]
        attributes = [ir.DenseI64ArrayAttr.get(own, module.context) for own in found]
        main.attributes[SYMBOLS] = ir.ArrayAttr.get(attributes, module.context)
    for op in walk(module, "tensor.dim"):
        index = made_by(op.operands[1], "arith.constant")
        if index is None or op.operands[0] not in arguments or op.parent.name == "linalg.generic":
            continue
        number, axis = arguments.index(op.operands[0]), attr_int(index, "value")
        symbols = specs[number].symbols
        place = first.get(symbols[axis] or "") if axis is not None and axis < len(symbols) else None
        if place is not None and place != (number, axis):
            with op.location, ir.InsertionPoint(op):
                size = tensor.dim(arguments[place[0]], arith.ConstantOp.create_index(place[1]).result)
            op.results[0].replace_all_uses_with(size)
            op.erase()


def _size(largest: ir.Operation) -> ir.Value:
    """What is not the constant 1, in a maximum of one or several; several are equal, or else 1."""
    for value in largest.operands:
        if inner := made_by(value, "arith.maxsi"):
            return _size(inner)
        if made_by(value, "arith.constant") is None:
            return value
    return largest.results[0]
