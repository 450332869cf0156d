"""What an operator computes and has in two places, as a step's state in a series of all and by itself, it stores twice.

    linalg.generic ... outs(%part)                           // of a buffer of all steps
    memref.copy %part, %state                                // a dense one, for the next step's product
  =>
    linalg.generic ... outs(%part, %state)

A copy of its own would be a launch, which waits for the operator and reads what that has in registers.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import func, ir
from kitsune_mlir.operations import end_of, operations_of

from .gpu_buffers import VIEWS, ancestor_in, is_alloc, root_of, uses_of
from .gpu_generic import Generic
from .gpu_parts import is_untouched, needed
from .gpu_word_access import bytes_of

_MOST_BYTES = 1 << 20  # of known sizes: more takes longer than a launch, however it is written


def store_twice(main: func.FuncOp) -> None:
    """Rewrites such copies of @main."""
    block = main.body.blocks[0]
    for copy in operations_of(block, "memref.copy"):
        source, target = copy.operands
        writer = _writer(source, copy) if is_alloc(target) else None  # parts of buffers are filled together
        brought = None if writer is None else needed(target, writer)
        if writer is None or brought is None or root_of(source) == root_of(target) or not _is_small(target):
            continue
        if _is_overwritten(source, writer, copy) or not is_untouched(target, writer, copy):
            continue
        for op in brought:
            op.move_before(writer)
        _store(writer, source, target)
        copy.erase()


def _writer(value: ir.Value, copy: ir.Operation) -> ir.Operation | None:
    """The last elementwise operator before a copy that gives all elements of a value."""
    found = None
    for use in value.uses:
        op = use.owner.operation
        if op.name != "linalg.generic" or op.block != copy.block or not op.is_before_in_block(copy):
            continue
        generic, number = Generic(op), use.operand_number
        output = number - len(generic.inputs)
        if output < 0 or generic.reduction or generic.reads(output):
            continue
        found = op if found is None or found.is_before_in_block(op) else found
    return found


def _is_small(value: ir.Value) -> bool:
    kind = ir.MemRefType(value.type)
    return prod(size for size in kind.shape if size != rows.DYNAMIC) * (bytes_of(kind) or 8) <= _MOST_BYTES


def _is_overwritten(source: ir.Value, first: ir.Operation, last: ir.Operation) -> bool:
    """Whether another operation may write a value between two, or what stands in the region of one."""
    for use in uses_of(root_of(source)):
        op = use.owner.operation
        outer = ancestor_in(first.block, op)
        if outer in (first, last) or outer.is_before_in_block(first):
            continue
        if outer.is_before_in_block(last) and not _reads_alone(op, use.operand_number):
            return True
    return False


def _reads_alone(op: ir.Operation, number: int) -> bool:
    if op.name == "linalg.generic":
        return number < len(Generic(op).inputs)
    return number == 0 and op.name in ("memref.copy", "memref.load", "memref.dim", *VIEWS)


def _store(writer: ir.Operation, source: ir.Value, target: ir.Value) -> None:
    """Puts an operator that stores a result at a second place too in the place of one that does not."""
    generic = Generic(writer)
    output = list(generic.outputs).index(source)
    inputs, outputs = list(writer.operands)[: len(generic.inputs)], [*generic.outputs, target]
    maps = [*generic.maps, generic.out_maps[output]]
    with writer.context, writer.location, ir.InsertionPoint(writer):
        made = ir.Operation.create(
            "linalg.generic",
            operands=[*inputs, *outputs],
            attributes={
                **{name: writer.attributes[name] for name in writer.attributes},
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(outputs)]),
            },
            regions=1,
        )
        body = writer.regions[0].blocks[0]
        body.append_to(made.regions[0])
        body.add_argument(ir.MemRefType(target.type).element_type, writer.location)
        end = end_of(body)
        with ir.InsertionPoint(end):
            values = [*end.operands, end.operands[output]]
            ir.Operation.create("linalg.yield", operands=values)
        end.erase()
    writer.erase()
