"""linalg.generics: how they are made, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, clone_on, ir, linalg, tensor
from kitsune_mlir.operations import operations_of


def empty_generic(
    inputs: Sequence[ir.Value], starts: Sequence[ir.Value], maps: Sequence[ir.AffineMap], iterators: Sequence[str]
) -> ir.Operation:
    """A linalg.generic with an empty body."""
    made = ir.Operation.create(
        "linalg.generic",
        [start.type for start in starts],
        [*inputs, *starts],
        {
            "indexing_maps": _maps_attribute(maps),
            "iterator_types": _kinds_attribute(iterators),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(starts)]),
        },
        regions=1,
    )
    elements = [v.type.element_type if rows.is_tensor(v) else v.type for v in (*inputs, *starts)]
    made.regions[0].blocks.append(*elements)
    return made


def generic(
    inputs: Sequence[ir.Value],
    starts: Sequence[ir.Value],
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    body: ir.Block | Callable[..., ir.Value | Sequence[ir.Value]],
) -> ir.Operation:
    """A linalg.generic with another's body, or one that yields what `body` computes of its arguments."""
    made = empty_generic(inputs, starts, maps, iterators)
    block = made.regions[0].blocks[0]
    with ir.InsertionPoint(block):
        found = cloned(body, list(block.arguments)) if isinstance(body, ir.Block) else body(*block.arguments)
        linalg.YieldOp([found] if isinstance(found, ir.Value) else found)
    return made


def elementwise(inputs: Sequence[ir.Value], element: ir.Type, body: Callable[..., ir.Value]) -> ir.Value:
    """A tensor of such elements, each of which `body` computes of those in its place of tensors of one shape."""
    sizes = sizes_of(inputs[0])
    same = [ir.AffineMap.get_identity(len(sizes))] * (len(inputs) + 1)
    starts, iterators = [tensor.empty(sizes, element)], ["parallel"] * len(sizes)
    return generic(inputs, starts, same, iterators, lambda *given: body(*given[:-1])).results[0]


def cloned_on(op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Operation:
    """An operator once more, at the insertion point, on other operands; its result is as the last of these."""
    made = op.operation.clone(ir.InsertionPoint.current).operation
    for i, operand in enumerate(operands):
        made.operands[i] = operand
    made.results[0].set_type(operands[-1].type)
    return made


def zero_tensor(sizes: Sequence[int | ir.Value], element: ir.Type) -> ir.Value:
    """A tensor of zeros."""
    zero = arith.constant(element, 0.0)
    return linalg.fill(zero, outs=[tensor.empty(list(sizes), element)])


def moved(value: ir.Value, start: ir.Value, dims: Sequence[int | None]) -> ir.Value:
    """The elements of a tensor, whose dimensions are these of the result (map_of), put where `start` stands."""
    rank = ir.RankedTensorType(start.type).rank
    maps = [map_of(rank, dims), map_of(rank, range(rank))]
    return generic([value], [start], maps, ["parallel"] * rank, lambda x, _: x).results[0]


def constant_index(number: int) -> ir.Value:
    """A constant index."""
    return arith.ConstantOp.create_index(number).result


def sizes_of(value: ir.Value, dims: Iterable[int] | None = None) -> list[int | ir.Value]:
    """The sizes of a tensor, or of these dimensions of it; open ones are asked for at the insertion point."""
    kind = ir.RankedTensorType(value.type)
    dims = range(kind.rank) if dims is None else dims
    return [rows.size_of(value, d) if kind.is_dynamic_dim(d) else kind.shape[d] for d in dims]


def extended(number: ir.Value, type_: ir.Type) -> ir.Value:
    """A number as one of a type that is as wide or wider, at the insertion point."""
    if number.type == type_:
        return number
    return (arith.extf if isinstance(type_, ir.FloatType) else arith.extsi)(type_, number)


def multiply_add(a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
    """The body of a product, whose sums may be wider than its factors."""
    a, b = (extended(factor, total.type) for factor in (a, b))
    return arith.addf(total, arith.mulf(a, b))


def all_hold(*conditions: ir.Value | None) -> ir.Value | None:
    """Whether all of these conditions hold, at the insertion point; None where there are none."""
    given = [condition for condition in conditions if condition is not None]
    return reduce(arith.andi, given) if given else None


def map_of(loops: int, dims: Sequence[int | None]) -> ir.AffineMap:
    """Where a tensor is read whose dimensions are these of so many loops; None for one of a single element."""
    results = [ir.AffineConstantExpr.get(0) if d is None else ir.AffineDimExpr.get(d) for d in dims]
    return ir.AffineMap.get(loops, 0, results)


def cloned(body: ir.Block, arguments: Sequence[ir.Value | None]) -> list[ir.Value]:
    """What a body yields, computed at the insertion point from these arguments; None for those that it does not use."""
    values = dict(zip(body.arguments, arguments, strict=True))
    *inner, end = operations_of(body)
    clone_operations(inner, values)
    return [values.get(value, value) for value in end.operands]


def clone_operations(operations: Iterable[ir.Operation], values: dict[ir.Value, ir.Value | None]) -> None:
    """Operations once more, at the insertion point, on what `values` has for their operands; their results join it."""
    for op in operations:
        clone_on(op.operation, values)


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap]:
    """One map an operand, iteration space to the operand's, of a named operation too."""
    return [attribute.value for attribute in op.attributes["indexing_maps"]]


def set_maps(op: ir.Operation, maps: Iterable[ir.AffineMap]) -> None:
    """Gives an operation these maps."""
    op.attributes["indexing_maps"] = _maps_attribute(maps)


def set_iterators(op: ir.Operation, kinds: Iterable[str]) -> None:
    """Gives an operation these loops, each "parallel" or "reduction"."""
    op.attributes["iterator_types"] = _kinds_attribute(kinds)


def _maps_attribute(maps: Iterable[ir.AffineMap]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps])


def _kinds_attribute(kinds: Iterable[str]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds])
