"""Clones a region's body into a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.mlir import ir, walk

from .gpu_kernel import Kernel


def clone_into(
    block: ir.Block, kernel: Kernel, values: dict[int, ir.Value], indices: Sequence[ir.Value] = ()
) -> list[ir.Value]:
    """Clones a block's operations at the insertion point; gives what its terminator yields.

    `values` maps the block's arguments; `indices` are what linalg.index gives. Anything else from
    outside the block is brought into the kernel.
    """
    inside = {hash(result) for op in block.operations for inner in walk(op) for result in inner.results}
    inside |= {
        hash(argument)
        for op in block.operations
        for inner in walk(op)
        for region in inner.regions
        for nested in region.blocks
        for argument in nested.arguments
    }

    def see(value: ir.Value) -> ir.Value:
        if hash(value) in values:
            return values[hash(value)]
        return value if hash(value) in inside else kernel.inside(value)

    *body, terminator = list(block.operations)
    for op in body:
        if op.operation.name == "linalg.index":
            values[hash(op.results[0])] = indices[ir.IntegerAttr(op.operation.attributes["dim"]).value]
            continue
        copy = op.operation.clone()
        for old, new in zip(walk(op), walk(copy), strict=True):
            for i, operand in enumerate(old.operands):
                mapped = see(operand)
                if mapped != operand:
                    new.operands[i] = mapped
        for old, new in zip(op.operation.results, copy.results, strict=True):
            values[hash(old)] = new
        if copy.name == "memref.load":
            values[hash(op.results[0])] = kernel.check_load(op.operation, copy)
    return [see(value) for value in terminator.operands]
