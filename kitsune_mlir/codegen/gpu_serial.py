"""What is left of a host function after its linalg has become kernels: single elements, loops."""

from __future__ import annotations

from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import func, ir, location, memref, scf, walk
from kitsune_mlir.operations import operations_of

from .gpu_buffers import root_of, written
from .gpu_kernel import Kernel, Kernels, as_value, extent


def lower_serial(op: ir.Operation, kernels: Kernels) -> None:
    """A memref.store, or a loop or branch over elements, becomes a kernel of one thread: the last resort.

    What a loop computes besides is kept in memory for those who use it.
    """
    for inner in walk(op, "memref.alloc"):
        raise UnsupportedError(
            f"{location(inner.location)}: a loop that allocates a tensor in each turn cannot be compiled"
        )
    with op.context, op.location, ir.InsertionPoint(op):
        cells = [memref.AllocOp(ir.MemRefType.get([], result.type), [], []) for result in op.results]
    kernel = Kernel(kernels, op, "serial", threads=1)
    with kernel.body():
        copy = op.clone()
        inside = {hash(result) for inner in walk(op) for result in inner.results}
        inside |= {
            hash(a) for inner in walk(op) for region in inner.regions for b in region.blocks for a in b.arguments
        }
        for old, new in zip(walk(op), walk(copy), strict=True):
            for i, operand in enumerate(old.operands):
                if hash(operand) not in inside:
                    new.operands[i] = kernel.inside(operand)
        for inner in walk(copy, "memref.copy"):
            _copy_elements(inner)
        for result, cell in zip(copy.results, cells, strict=True):
            memref.store(result, kernel.inside(cell.result), [])
    kernel.launch(1)
    with op.context, op.location, ir.InsertionPoint(op):
        for result, cell in zip(op.results, cells, strict=True):
            if list(result.uses):
                result.replace_all_uses_with(memref.load(cell.result, []))
    op.erase()


def _copy_elements(op: ir.Operation) -> None:
    """Makes a memref.copy inside a kernel loops of one thread: the device has no function for strided ones."""
    source, target = op.operands
    with op.context, op.location:
        point, position = ir.InsertionPoint(op), []
        for dim in range(ir.MemRefType(target.type).rank):
            with point:
                loop = scf.ForOp(as_value(0), as_value(extent(target, dim)), as_value(1))
            with ir.InsertionPoint(loop.body):
                end = scf.YieldOp([])
            point = ir.InsertionPoint(end)
            position.append(loop.induction_variable)
        with point:
            memref.store(memref.load(source, position), target, position)
    op.erase()


def keep_loaded(main: func.FuncOp, kernels: Kernels) -> None:
    """Kernels load again the elements that the host function loads (see `Kernel.inside`). Where the buffer
    is written afterwards, a kernel first keeps the element in a buffer of its own."""
    operations = operations_of(main.body.blocks[0])
    for place, op in enumerate(operations):
        if op.name != "memref.load":
            continue
        if root_of(op.operands[0]) not in [root_of(value) for later in operations[place:] for value in written(later)]:
            continue
        following = operations[place + 1]
        with op.context, op.location, ir.InsertionPoint(following):
            cell = memref.alloc(ir.MemRefType.get([], op.results[0].type), [], [])
            kernel = Kernel(kernels, following, "keep", threads=1)
            with kernel.body():
                memref.store(kernel.inside(op.results[0]), kernel.inside(cell), [])
            kernel.launch(1)
            op.results[0].replace_all_uses_with(memref.load(cell, []))
        op.erase()


def check_host(main: func.FuncOp) -> None:
    """Erases the loads that only kernels needed. Raises UnsupportedError when the host needs one."""
    for op in reversed(walk(main)):
        dead = bool(op.results) and not any(True for result in op.results for _ in result.uses)
        if dead and op.name.startswith(("arith.", "math.", "memref.load")):
            op.erase()
        elif op.name == "memref.load":
            raise UnsupportedError(
                f"{location(op.location)}: an element of a tensor decides what the host does next, and only the GPU"
                " knows it"
            )
