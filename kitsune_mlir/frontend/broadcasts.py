"""Sizes of index_put's broadcasts, which torch-mlir takes to be at least 1: no row would become one.

%n = arith.index_cast (tensor.dim %x, %c0)
%m = arith.maxsi %n, %c1                    ->  %n in its place
%e = tensor.empty(index_cast %m)
%y = linalg.generic outs(%e) {
  %i = arith.select (tensor.dim %x, %c0 == 1), %c0, %index
  linalg.yield (tensor.extract %x[%i, ...])
}
"""

from __future__ import annotations

from kitsune_mlir.mlir import ir, walk


def allow_no_rows(module: ir.Module) -> None:
    """Rewrites, in place, the sizes of generics that broadcast a tensor by reading it element by element."""
    for generic in walk(module, "linalg.generic"):
        empty = _maker(generic.operands[0], "tensor.empty")
        names = {op.operation.name for op in generic.regions[0].blocks[0].operations}
        if empty is None or len(generic.operands) != 1 or not names >= {"tensor.extract", "arith.select"}:
            continue
        for size in empty.operands:
            cast = _maker(size, "arith.index_cast")
            largest = None if cast is None else _maker(cast.operands[0], "arith.maxsi")
            if largest is not None:
                largest.results[0].replace_all_uses_with(_size(largest))


def _size(largest: ir.Operation) -> ir.Value:
    """What is not the constant 1, in a maximum of one or several; several are equal, or else 1."""
    for value in largest.operands:
        if inner := _maker(value, "arith.maxsi"):
            return _size(inner)
        if _maker(value, "arith.constant") is None:
            return value
    return largest.results[0]


def _maker(value: ir.Value, name: str) -> ir.Operation | None:
    """The operation of that name which makes the value."""
    return None if isinstance(value.owner, ir.Block) or value.owner.name != name else value.owner.operation
