"""Clones a region's body into a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kitsune_mlir.mlir import ir, walk

from .gpu_kernel import Kernel


def clone_into(
    block: ir.Block,
    kernel: Kernel,
    values: dict[int, ir.Value],
    indices: Sequence[ir.Value] = (),
    instead: Callable[[ir.Operation, list[ir.Value]], ir.Value | None] = lambda op, operands: None,
) -> list[ir.Value]:
    """Clones a block's operations at the insertion point; gives what its terminator yields.

    `values` maps the block's arguments; `indices` are what linalg.index gives; `instead`, asked about each operation
    and its operands in the kernel, may give what takes the place of its only result. Anything else from outside the
    block is brought into the kernel.
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
        other = instead(op.operation, [see(operand) for operand in op.operation.operands])
        if other is not None:
            values[hash(op.operation.results[0])] = other
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
