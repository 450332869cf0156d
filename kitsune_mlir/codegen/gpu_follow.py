"""Elementwise operators behind a reduction, in its kernel: who has a result computes what is made of it.

    linalg.generic {reduction} ins(%x) outs(%sum)            kernel: sum = ...
    linalg.generic ins(%sum, %other) outs(%y)         =>             y[...] = f(sum, other[...])

The sum is in no memory then, and there is one launch less.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kitsune_mlir.mlir import ir, walk

from .gpu_buffers import ancestor_in, is_alloc, root_of, uses_of
from .gpu_generic import Generic, dims_of


def follower(operations: Sequence[ir.Operation], number: int, idle: Collection[str]) -> int | None:
    """Where in a block the operator stands that the kernel of reduction `number` may compute: between them are only
    operations of `idle` names, and nothing else reads behind the reduction what it makes."""
    if operations[number].name != "linalg.generic":
        return None
    generic = Generic(operations[number])
    if not generic.reduction or len(generic.outputs) != 1:
        return None
    if not _are_loops(generic.out_maps[0], generic.parallel, kept=True):
        return None
    place = next((n for n in range(number + 1, len(operations)) if operations[n].name not in idle), len(operations))
    if place == len(operations) or operations[place].name != "linalg.generic":
        return None
    after, (result,) = Generic(operations[place]), generic.outputs
    own = {root_of(value) for value in _used(generic.op)}
    if (
        not is_alloc(result)
        or after.reduction
        or any(after.reads(i) for i in range(len(after.outputs)))
        or result not in after.inputs
        or not _are_loops(after.maps[after.inputs.index(result)], after.parallel)
        or any(root_of(buffer) in own for buffer in after.outputs)
    ):
        return None
    block = generic.op.block
    users = (ancestor_in(block, use.owner.operation) for use in uses_of(result))
    readers = [user for user in users if generic.op.is_before_in_block(user)]
    return place if readers == [after.op] else None


def _are_loops(map_: ir.AffineMap, loops: Collection[int], kept: bool = False) -> bool:
    """Whether these loops, each once, are a map's results, besides the places of dimensions of one element, which are
    `kept` where something was summed."""
    dims = [result for result in map_.results if not (kept and isinstance(result, ir.AffineConstantExpr))]
    return all(isinstance(result, ir.AffineDimExpr) for result in dims) and sorted(dims_of(map_)) == sorted(loops)


def _used(op: ir.Operation) -> list[ir.Value]:
    """The buffers that an operation has to do with, views of them too."""
    return [value for one in walk(op) for value in one.operands if isinstance(value.type, ir.MemRefType)]
