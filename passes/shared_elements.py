"""An elementwise operator whose result others read, and one of those, at the same points: one operator of several
results.

    %c = linalg.generic ... ins(%f, %i)                 %c:2 = linalg.generic ... ins(%f, %i, %o) {
    %h = linalg.generic ... ins(%c, %o)            =>      ...
    ... %c ...                                             linalg.yield %0, %1
                                                        }

What is read by one operator alone has been put into it before. Here a kernel less is launched, and what it would read
is in registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, linalg, tensor, walk

from .schedule_build import cloned, empty_generic

MOST = 12  # tensors of one operator
_PLAIN = {"indexing_maps", "iterator_types", "operandSegmentSizes"}
_VIEWS = (*rows.RESHAPES, "tensor.extract_slice", "arith.constant")  # what may stand anywhere behind what it is of


def share_elements(main: ir.Operation) -> None:
    """Joins such operators of @main, until there are none."""
    while (pair := next(_pairs(main), None)) is not None:
        _join(*pair)


def _pairs(main: ir.Operation) -> Iterator[tuple[ir.Operation, ir.Operation, ir.Operation]]:
    """Operators, a reader of each, and at which of the two both may be computed."""
    places = {hash(op.operation): number for number, op in enumerate(main.regions[0].blocks[0].operations)}
    for first in walk(main, "linalg.generic"):
        if hash(first) not in places or not _is_elementwise(first):
            continue
        users = {use.owner.operation for result in first.results for use in result.uses}
        for second in users:
            if len(users) == 1 or hash(second) not in places or not _are_alike(first, second):
                continue
            given = [value for value in _used(second) if value not in list(first.results)]
            if all(_is_ready(value, places, places[hash(first)]) for value in given):
                yield first, second, first
            elif min(places.get(hash(user), -1) for user in users) == places[hash(second)]:
                yield first, second, second


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether it computes whole tensors of known sizes, each element of its own, and is nothing that others know."""
    if op.name != "linalg.generic" or {name for name, _ in op.attributes.items()} != _PLAIN:
        return False
    s, kinds = rows.Structured(op), [result.type for result in op.results]
    own = all(rows.is_tensor(result) and result.type.has_static_shape for result in op.results)
    same = own and all(ir.RankedTensorType(kind).shape == ir.RankedTensorType(kinds[0]).shape for kind in kinds)
    identity = ir.AffineMap.get_identity(len(s.iterators))
    parallel = set(s.iterators) == {"parallel"} and all(map_ == identity for map_ in s.maps[s.inputs :])
    return same and parallel and s.reads() == list(range(s.inputs))


def _are_alike(first: ir.Operation, second: ir.Operation) -> bool:
    """Whether an operator reads what another computes at its own points."""
    if not _is_elementwise(second) or rows.shape_of(first.results[0]) != rows.shape_of(second.results[0]):
        return False
    if len(first.operands) + len(second.operands) > MOST:
        return False
    s, made = rows.Structured(second), list(first.results)
    identity = ir.AffineMap.get_identity(len(s.iterators))
    read = [number for number in range(s.inputs) if second.operands[number] in made]
    elsewhere = any(value in made for value in rows.used_values(second)[len(second.operands) :])
    return bool(read) and not elsewhere and all(s.maps[number] == identity for number in read)


def _used(op: ir.Operation) -> list[ir.Value]:
    """What it reads, and not what its results are like."""
    values = rows.used_values(op)
    return values[: rows.Structured(op).inputs] + values[len(op.operands) :]


def _is_ready(value: ir.Value, places: dict[int, int], place: int) -> bool:
    """Whether it is there before a place of the block, or may be."""
    op = rows.producer(value)
    if op is None or places.get(hash(op), place) < place:
        return op is None or hash(op) in places
    return op.name in _VIEWS and all(_is_ready(operand, places, place) for operand in op.operands)


def _join(first: ir.Operation, second: ir.Operation, at: ir.Operation) -> None:
    """Both as one operator, in the place of one of them."""
    if at == first:
        for value in _used(second):
            _move(value, first)
    inputs: list[ir.Value] = []
    maps: list[ir.AffineMap] = []

    def number_of(value: ir.Value, map_: ir.AffineMap) -> int:
        known = [n for n, other in enumerate(inputs) if other == value and maps[n] == map_]
        if not known:
            inputs.append(value)
            maps.append(map_)
        return known[0] if known else len(inputs) - 1

    a, b, made = rows.Structured(first), rows.Structured(second), list(first.results)
    own = [number_of(first.operands[n], a.maps[n]) for n in range(a.inputs)]
    given = [None if (v := second.operands[n]) in made else number_of(v, b.maps[n]) for n in range(b.inputs)]
    results = [*made, *second.results]
    with second.location, ir.InsertionPoint(at):
        starts = [tensor.empty(rows.shape_of(value), value.type.element_type) for value in results]
        identity = [ir.AffineMap.get_identity(len(a.iterators))] * len(starts)
        joined = empty_generic(inputs, starts, [*maps, *identity], ["parallel"] * len(a.iterators))
        block = joined.regions[0].blocks[0]
        with ir.InsertionPoint(block):
            values = cloned(a.body, [*(block.arguments[n] for n in own), *[None] * len(made)])
            read = [
                values[made.index(second.operands[n])] if number is None else block.arguments[number]
                for n, number in enumerate(given)
            ]
            linalg.YieldOp([*values, *cloned(b.body, [*read, *[None] * len(second.results)])])
    for old, new in zip(results, joined.results, strict=True):
        old.replace_all_uses_with(new)
    second.erase()
    first.erase()


def _move(value: ir.Value, before: ir.Operation) -> None:
    """Has a view stand in front of an operation, and what it is of."""
    op = rows.producer(value)
    if op is not None and op.block == before.block and op.name in _VIEWS and not op.is_before_in_block(before):
        for operand in op.operands:
            _move(operand, before)
        op.move_before(before)
