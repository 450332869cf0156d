"""Clones a region's body into a kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kitsune_mlir.mlir import ir, walk

from .gpu_generic import COLUMN
from .gpu_kernel import Kernel, See


def clone_into(
    block: ir.Block,
    kernel: Kernel,
    values: dict[int, ir.Value],
    indices: Sequence[ir.Value] = (),
    instead: Callable[[ir.Operation, See], ir.Value | None] = lambda op, see: None,
    later: Collection[int] = (),
) -> list[ir.Value]:
    """Clones a block's operations at the insertion point; gives what its terminator yields.

    `values` maps the block's arguments; `indices` are what linalg.index gives; `instead`, asked about each operation
    and given what shows a value in the kernel, may give what takes the place of its only result. The operations whose
    hashes are in `later` are cloned where their results are first asked for. Anything else from outside the block is
    brought into the kernel.
    """
    waiting: dict[int, ir.Operation] = {}  # by result

    def see(value: ir.Value) -> ir.Value:
        key = hash(value)
        if key not in values and key in waiting:
            clone(waiting[key])
        if key not in values:
            if _is_inside(value, block):
                return value
            values[key] = kernel.inside(value)
        return values[key]

    def clone(op: ir.Operation) -> None:
        if op.name == "linalg.index":
            values[hash(op.results[0])] = indices[ir.IntegerAttr(op.attributes["dim"]).value]
            return
        other = instead(op, see)
        if other is not None:
            values[hash(op.results[0])] = other
            return
        own = walk(op) if len(op.regions) else [op]
        seen = [[see(operand) for operand in each.operands] for each in own]
        copy = op.clone()
        if COLUMN in copy.attributes:  # else kernels that are alike would not be one
            del copy.attributes[COLUMN]
        for old, new, operands in zip(own, walk(copy) if len(op.regions) else [copy], seen, strict=True):
            for i, (operand, mapped) in enumerate(zip(old.operands, operands, strict=True)):
                if mapped != operand:
                    new.operands[i] = mapped
        for before, after in zip(op.results, copy.results, strict=True):
            values[hash(before)] = after
        if copy.name == "memref.load":
            values[hash(op.results[0])] = kernel.check_load(op, copy)

    *body, terminator = [op.operation for op in block.operations]
    for op in body:
        if hash(op) in later:
            waiting.update((hash(result), op) for result in op.results)
        else:
            clone(op)
    return [see(value) for value in terminator.operands]


def _is_inside(value: ir.Value, block: ir.Block) -> bool:
    """Whether a value is computed in a block, or in regions of its operations."""
    at = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
    while at != block and at.owner.operation.name != "func.func":
        at = at.owner.operation.block
    return at == block
