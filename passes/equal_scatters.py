"""Scatters of the same updates by the same numbers are done once: each layer of a graph network counts the edges of
nodes anew, and each of several aggregations sums the same messages.

    %a = tm_tensor.scatter {...} ins(%ones, %to) outs(%zeros)
    %b = tm_tensor.scatter {...} ins(%ones, %to) outs(%zeros)    =>    %b is %a

CSE does that for operators of linalg, and leaves scatters alone.
"""

from __future__ import annotations

from kitsune_mlir.mlir import ir, replace_op, run_passes, walk
from kitsune_mlir.operations import operations_of

from .row_scatters import SCATTER


def merge_equal_scatters(module: ir.Module) -> None:
    """Does so until none are left: what is made of equal results is equal, too."""
    while _merge(walk(module, SCATTER)):
        run_passes(module, "builtin.module(canonicalize,cse)")


def _merge(scatters: list[ir.Operation]) -> bool:
    kept: list[ir.Operation] = []
    for op in scatters:
        first = next((other for other in kept if _are_equal(other, op)), None)
        if first is None:
            kept.append(op)
            continue
        replace_op(op, first.results[0])
    return len(kept) < len(scatters)


def _are_equal(a: ir.Operation, b: ir.Operation) -> bool:
    """Whether two operations of a block do the same to the same values."""
    if a.block != b.block or list(a.operands) != list(b.operands) or _described(a) != _described(b):
        return False
    return [_numbered(op, a) for op in _inner(a)] == [_numbered(op, b) for op in _inner(b)]


def _described(op: ir.Operation) -> tuple[object, ...]:
    return (
        op.name,
        [str(result.type) for result in op.results],
        {name: str(op.attributes[name]) for name in op.attributes},
    )


def _inner(op: ir.Operation) -> list[ir.Operation]:
    return operations_of(op.regions[0].blocks[0])


def _numbered(op: ir.Operation, scatter: ir.Operation) -> tuple[object, ...]:
    """An operation of a scatter's body, with its operands as places in the body, or as themselves from outside."""
    block = scatter.regions[0].blocks[0]
    own = [*block.arguments, *(result for one in _inner(scatter) for result in one.results)]
    places = [own.index(operand) if operand in own else hash(operand) for operand in op.operands]
    return *_described(op), places
