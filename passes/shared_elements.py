"""An elementwise operator whose result others read, and one of those, at the same points: one operator of several
results.

    %c = linalg.generic ... ins(%f, %i)                 %c:2 = linalg.generic ... ins(%f, %i, %o) {
    %h = linalg.generic ... ins(%c, %o)            =>      ...
    ... %c ...                                             linalg.yield %0, %1
                                                        }

What is read by one operator alone has been put into it before. Here a kernel less is launched, and what it would read
is in registers. So all steps of a recurrence that is elementwise are one kernel, or a few. And so are operators that
read neighbours of elements of the same tensors, as the new quantities of a grid are made: each is loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_buffers import ancestor_in
from kitsune_mlir.generics import cloned, generic, sizes_of
from kitsune_mlir.mlir import ir, tensor
from kitsune_mlir.operations import operations_of, users_of

from .broadcast_reads import same_size
from .neighbour_arithmetic import at_known_places

MOST_BYTES = 3500  # of the parameters that one operator's tensors are: a kernel has 4096
MOST_JOINED = 5000  # operations of operators that are joined at all: more take too long to compile
MOST_BESIDE = 400  # operations of operators that are joined for what they read: registers hold what they have loaded
_TAKEN = "tensor.extract"
_PLAIN = {"indexing_maps", "iterator_types", "operandSegmentSizes"}
# What may stand anywhere behind what it is of.
_VIEWS = (*rows.RESHAPES, "tensor.extract_slice", "tensor.dim", "arith.constant")


def share_elements(main: ir.Operation) -> None:
    """Joins such operators of @main, from the first to the last, as long as there are any."""
    own = main.regions[0].blocks[0].operations
    waiting: list[ir.Operation | None] = [op.operation for op in own if _is_elementwise(op.operation)]
    # By its first result: an operation's hash changes with its operands. What is erased is taken out before.
    places = {op.results[0]: place for place, op in enumerate(waiting)}
    for number in range(len(waiting)):
        while (first := waiting[number]) is not None and (pair := next(_partners(first, places), None)) is not None:
            second, at = pair
            place = places[at.results[0]]
            for op in (first, second):
                waiting[places.pop(op.results[0])] = None
            joined = _join(first, second, at)
            waiting[place], places[joined.results[0]] = joined, place


def _partners(first: ir.Operation, places: dict[ir.Value, int]) -> Iterator[tuple[ir.Operation, ir.Operation]]:
    """Operators that wait behind one and read what it computes at their own points, or neighbours that it reads too,
    and at which of the two both may be computed."""
    made = list(first.results)
    users = list(dict.fromkeys(user for result in made for user in users_of(result)))
    beside = [op for op in _beside(first) if op not in users and _operations(first) + _operations(op) <= MOST_BESIDE]
    for second in [*users, *beside]:
        is_later = len(second.results) and places.get(second.results[0], -1) > places[first.results[0]]
        if not is_later or not _are_alike(first, second) or _operations(first) + _operations(second) > MOST_JOINED:
            continue
        if all(_is_ready(value, first) for value in _used(second) if value not in made):
            yield second, first
        elif all(user == second or _is_behind(user, second) for user in users):
            yield second, second


def _beside(first: ir.Operation) -> list[ir.Operation]:
    """The operators that read a tensor which one reads too, both with neighbours of some tensor's elements."""
    if not (tables := _tables(first)):
        return []
    read = [*tables, *rows.Structured(first).given]
    owners = [use.owner for x in dict.fromkeys(read) for use in x.uses]
    found = dict.fromkeys(op.parent.operation if op.name == _TAKEN else op.operation for op in owners)
    return [op for op in found if op != first and op.name == "linalg.generic" and _tables(op)]


def _tables(op: ir.Operation) -> list[ir.Value]:
    """The tensors of which the body of an operator takes elements at places that no data says."""
    inner = operations_of(rows.Structured(op).body)
    return [one.operands[0] for one in inner if one.name == _TAKEN and at_known_places(one)]


def _operations(op: ir.Operation) -> int:
    return len(rows.Structured(op).body.operations)


def _is_behind(op: ir.Operation, other: ir.Operation) -> bool:
    """Whether an operation, or what it stands in, comes behind another one in its block."""
    return bool(other.is_before_in_block(ancestor_in(other.block, op)))


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether it computes whole tensors, each element of its own, and is nothing that others know."""
    if op.name != "linalg.generic" or {name for name, _ in op.attributes.items()} != _PLAIN:
        return False
    s, shapes = rows.Structured(op), [rows.shape_of(result) for result in op.results if rows.is_tensor(result)]
    same = len(shapes) == len(op.results) and all(shape == shapes[0] for shape in shapes)
    return same and bool(s.iterators) and s.is_elementwise() and s.reads() == list(range(s.inputs))


def _are_alike(first: ir.Operation, second: ir.Operation) -> bool:
    """Whether two operators are of the same points, and what the second reads of the first is at its own."""
    if rows.shape_of(first.results[0]) != rows.shape_of(second.results[0]):
        return False
    s, made = rows.Structured(second), list(first.results)
    if _tensors(first, second) * (3 + 2 * len(rows.shape_of(first.results[0]))) * 8 > MOST_BYTES:
        return False
    identity = ir.AffineMap.get_identity(len(s.iterators))
    read = [number for number in range(s.inputs) if second.operands[number] in made]
    elsewhere = any(value in made for value in rows.used_values(second)[len(second.operands) :])
    known = bool(read) or _are_of_a_size(first, second)
    return known and not elsewhere and all(s.maps[number] == identity for number in read)


def _are_of_a_size(first: ir.Operation, second: ir.Operation) -> bool:
    """Whether sizes of two operators that are open until the call are known to be the same. What pads a tensor, or
    takes a part, is not as large as what else reads it. Of an operator that reads the other at its own points they are.
    """
    result, start = first.results[0], second.operands[len(second.operands) - 1]
    return all(same_size(result, d, start, d) for d, size in enumerate(rows.shape_of(result)) if size == rows.DYNAMIC)


def _tensors(first: ir.Operation, second: ir.Operation) -> int:
    """How many tensors both as one read and write."""
    made, read = list(first.results), set()
    for op in (first, second):
        s = rows.Structured(op)
        read |= {(op.operands[n], str(s.maps[n])) for n in range(s.inputs) if op.operands[n] not in made}
        read |= {(table, "") for table in s.tables()}
    kept = [x for x in made if any(use.owner.operation != second for use in x.uses)]
    return len(read) + len(kept) + len(second.results)


def _used(op: ir.Operation) -> list[ir.Value]:
    """What it reads, and not what its results are like."""
    values = rows.used_values(op)
    return values[: rows.Structured(op).inputs] + values[len(op.operands) :]


def _is_ready(value: ir.Value, first: ir.Operation) -> bool:
    """Whether it is there before an operation, or may be."""
    op = rows.producer(value)
    if op is None or op.block != first.block or op.is_before_in_block(first):
        return True
    return op.name in _VIEWS and all(_is_ready(operand, first) for operand in op.operands)


def _join(first: ir.Operation, second: ir.Operation, at: ir.Operation) -> ir.Operation:
    """Both as one operator, in the place of one of them. What the second alone has read is no result of it."""
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
    kept = [number for number, x in enumerate(made) if any(use.owner.operation != second for use in x.uses)]
    results = [*(made[number] for number in kept), *second.results]

    def body(*arguments: ir.Value) -> list[ir.Value]:
        values = cloned(a.body, [*(arguments[n] for n in own), *[None] * len(made)])
        read = [
            values[made.index(second.operands[n])] if number is None else arguments[number]
            for n, number in enumerate(given)
        ]
        return [*(values[number] for number in kept), *cloned(b.body, [*read, *[None] * len(second.results)])]

    with second.location, ir.InsertionPoint(at):
        sizes = sizes_of(first.operands[a.inputs])
        starts = [tensor.empty(sizes, value.type.element_type) for value in results]
        identity = [ir.AffineMap.get_identity(len(a.iterators))] * len(starts)
        joined = generic(inputs, starts, [*maps, *identity], ["parallel"] * len(a.iterators), body)
    for old, new in zip(results, joined.results, strict=True):
        old.replace_all_uses_with(new)
    second.erase()
    first.erase()
    return joined.operation


def _move(value: ir.Value, before: ir.Operation) -> None:
    """Has a view stand in front of an operation, and what it is of."""
    op = rows.producer(value)
    if op is not None and op.block == before.block and op.name in _VIEWS and not op.is_before_in_block(before):
        for operand in op.operands:
            _move(operand, before)
        op.move_before(before)
