"""What a linalg.generic takes and gives: dead results go, constants move into the body, duplicates merge."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import end_of, made_by


def splat_of(value: ir.Value) -> ir.Attribute | None:
    """The element that a constant tensor is filled with; None when it is anything else."""
    constant = made_by(value, "arith.constant")
    if constant is None:
        return None
    attribute = constant.attributes["value"]
    dense = isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat
    return attribute.get_splat_value() if dense else None


def inline_constants(generic: ir.Operation) -> None:
    """Inputs of one value throughout become scalar constants that the body names."""
    block = generic.regions[0].blocks[0]
    for operand, argument in zip(generic.operands, block.arguments[: rows.Structured(generic).inputs], strict=False):
        element = splat_of(operand)
        if element is None or not list(argument.uses):
            continue
        constant = ir.Operation.create(
            "arith.constant",
            results=[argument.type],
            attributes={"value": element},
            loc=generic.location,
            ip=ir.InsertionPoint(generic),
        )
        argument.replace_all_uses_with(constant.result)


def prune(generic: ir.Operation) -> ir.Operation:
    """The operation without results nobody uses and inputs the body ignores or has twice.

    Operands stay that fix a loop's bound. Gives the operation that stands there afterwards.
    """
    s, operands = rows.Structured(generic), list(generic.operands)
    inputs, maps, block = s.inputs, s.maps, s.body
    first: dict[tuple[int, str], int] = {}
    for i in range(inputs):
        original = first.setdefault((hash(operands[i]), str(maps[i])), i)
        if original != i:
            block.arguments[i].replace_all_uses_with(block.arguments[original])

    kept = list(range(len(operands)))
    for i in reversed(range(len(operands))):
        idle = _idle_input(block, i) if i < inputs else _dead_result(generic, i - inputs)
        if idle and _bounded([maps[k] for k in kept if k != i]):
            kept.remove(i)
    return generic if len(kept) == len(operands) else _rebuild(generic, kept, [maps[k] for k in kept])


def _idle_input(block: ir.Block, index: int) -> bool:
    return not list(block.arguments[index].uses)


def _dead_result(generic: ir.Operation, index: int) -> bool:
    """Whether result `index` has no user and what it yields is no part of the other results."""
    if len(generic.results) == 1 or list(generic.results[index].uses):
        return False
    block = generic.regions[0].blocks[0]
    terminator = end_of(block)
    pending = [value for i, value in enumerate(terminator.operands) if i != index]
    argument = block.arguments[rows.Structured(generic).inputs + index]
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if value == argument:
            return False
        if hash(value) not in seen and not isinstance(value.owner, ir.Block):
            pending.extend(value.owner.operands)
        seen.add(hash(value))
    return True


def _bounded(maps: Sequence[ir.AffineMap]) -> bool:
    """Whether every loop's size can be read off an operand."""
    if not maps:
        return False
    found = {
        expression.position for map_ in maps for expression in map_.results if isinstance(expression, ir.AffineDimExpr)
    }
    return found == set(range(maps[0].n_dims))


def _rebuild(generic: ir.Operation, kept: list[int], maps: list[ir.AffineMap]) -> ir.Operation:
    inputs = rows.Structured(generic).inputs
    results = [k - inputs for k in kept if k >= inputs]
    attributes = {named: generic.attributes[named] for named in generic.attributes}
    attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps])
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(kept) - len(results), len(results)])
    slim = ir.Operation.create(
        "linalg.generic",
        results=[generic.results[i].type for i in results],
        operands=[generic.operands[k] for k in kept],
        attributes=attributes,
        regions=1,
        loc=generic.location,
        ip=ir.InsertionPoint(generic),
    )
    block = generic.regions[0].blocks[0]
    terminator = end_of(block)
    with ir.InsertionPoint(terminator):
        yielded = [terminator.operands[i] for i in results]
        ir.Operation.create("linalg.yield", operands=yielded, loc=terminator.location)
    terminator.erase()
    for op in reversed(list(block.operations)[:-1]):
        if not any(list(result.uses) for result in op.results):
            op.operation.erase()
    for i in reversed(range(len(generic.operands))):
        if i not in kept:
            block.erase_argument(i)
    block.append_to(slim.regions[0])
    for new, old in zip(slim.results, results, strict=True):
        generic.results[old].replace_all_uses_with(new)
    generic.erase()
    return slim
