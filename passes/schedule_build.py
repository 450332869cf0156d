"""What passes build kernels at the schedule level of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, ir


def empty_generic(
    inputs: Sequence[ir.Value], starts: Sequence[ir.Value], maps: Sequence[ir.AffineMap], iterators: Sequence[str]
) -> ir.Operation:
    """A linalg.generic with an empty body."""
    kinds = [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in iterators]
    made = ir.Operation.create(
        "linalg.generic",
        [start.type for start in starts],
        [*inputs, *starts],
        {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
            "iterator_types": ir.ArrayAttr.get(kinds),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(starts)]),
        },
        regions=1,
    )
    elements = [v.type.element_type if rows.is_tensor(v) else v.type for v in (*inputs, *starts)]
    made.regions[0].blocks.append(*elements)
    return made


def constant_index(number: int) -> ir.Value:
    """A constant index."""
    return arith.ConstantOp.create_index(number).result


def i64(number: int) -> ir.IntegerAttr:
    """A number as an attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)


def clone_body(body: ir.Block, generic: ir.OpView) -> None:
    """The body of a linalg.generic as that of an empty one with as many arguments."""
    block = generic.regions[0].blocks[0]
    with ir.InsertionPoint(block):
        clone_operations(body.operations, dict(zip(body.arguments, block.arguments)))


def clone_operations(operations: Iterable[ir.OpView], values: dict[ir.Value, ir.Value]) -> None:
    """Operations once more, at the insertion point, on what `values` has for their operands; their results join it."""
    for inner in operations:
        clone = inner.operation.clone()
        for i, operand in enumerate(inner.operation.operands):
            clone.operands[i] = values.get(operand, operand)
        values.update(zip(inner.operation.results, clone.results))
