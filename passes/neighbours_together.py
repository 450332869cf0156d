"""Arithmetic of which operators read neighbours, and that is dear for each alone (neighbour_arithmetic.py), is computed
by them where all of it together loads no more than is loaded now.

    %f = linalg.generic ins(%h, %u) { arith.mulf }                   // fluxes of the cells of a grid
    %g = linalg.generic ins(%f, %u) { arith.mulf }
    %y = linalg.generic { ... (tensor.extract %h[%0, %1 + 1]) ... (tensor.extract %f[%0, %1 + 1]) ...
                              (tensor.extract %g[%0, %1 + 1]) ... }
  =>
    %y = linalg.generic { ... (tensor.extract %h[%0, %1 + 1]) ... (tensor.extract %u[%0, %1 + 1]) ... }

Each by itself would be two elements to load for one. A step of a simulation of several quantities is one kernel, which
reads and writes these alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.mlir import attr_int, ir, walk
from kitsune_mlir.operations import is_generic, made_by, operations_of, users_of

from .elements_taken import computed_there
from .neighbour_arithmetic import MOST_WORK, arithmetic_of, at_known_places, is_arithmetic

_EXTRACT = "tensor.extract"
Place = tuple[str, ...]  # an index of each dimension, as it is computed
Load = tuple[ir.Value, Place]


def compute_together(main: ir.Operation) -> bool:
    """Rewrites such operators of @main; whether there were any."""
    found = False
    for group in _groups(main):
        if _is_worth_it(group):
            _compute(group)
            found = True
    return found


def _groups(main: ir.Operation) -> Iterator[list[ir.Operation]]:
    """Arithmetic that common operators read neighbours of, and what nothing but such arithmetic reads, in order."""
    made = {op.results[0]: op for op in walk(main, "linalg.generic") if _is_candidate(op)}
    moves = {value for value, op in made.items() if _is_move(op)}
    waiting = [value for value in made if any(use.owner.name == _EXTRACT for use in value.uses)]
    while waiting:
        found, last = set[ir.Value](), [waiting[0]]
        while last:
            value = last.pop()
            if value not in found:
                found.add(value)
                readers = _readers(made[value])
                beside = [other for reader in _beside(readers) for other, _ in _loads(reader)]
                beside += [reader.results[0] for reader in readers]
                last += [other for other in beside if other in waiting or other in made and other in moves]
        for value in reversed(made):
            users = [user.results[0] for user in _readers(made[value]) if user.results]
            if users and all(user in found for user in users):
                found.add(value)
        waiting = [value for value in waiting if value not in found]
        group, made = (
            [op for value, op in made.items() if value in found],
            {value: op for value, op in made.items() if value not in found},
        )
        yield group


def _beside(readers: Sequence[ir.Operation]) -> list[ir.Operation]:
    """Readers, and others that take elements of the same tensors: they may be one operator (shared_elements.py)."""
    tables = {value for reader in readers for value, _ in _loads(reader)}
    takers = [use.owner.operation for value in tables for use in value.uses if use.owner.name == _EXTRACT]
    return [*readers, *{op.parent.operation for op in takers if op.parent.operation.name == "linalg.generic"}]


def _is_candidate(op: ir.Operation) -> bool:
    """Whether an operator is arithmetic of elements in the same place, and elementwise operators alone read it."""
    if len(op.results) != 1 or not rows.is_tensor(op.results[0]) or not is_arithmetic(op):
        return False
    users = users_of(op.results[0])
    return (
        bool(users)
        and (_is_move(op) or not any(inner.operation.name == _EXTRACT for inner in rows.Structured(op).body.operations))
        and all(at_known_places(user) for user in users if user.name == _EXTRACT)
        and all(reader.name == "linalg.generic" and rows.Structured(reader).is_elementwise() for reader in _readers(op))
    )


def _is_move(op: ir.Operation) -> bool:
    """Whether an operator does nothing but take an element."""
    *_, end = rows.Structured(op).body.operations
    taken = made_by(end.operation.operands[0], _EXTRACT)
    return taken is not None and taken.parent.operation == op


def _readers(op: ir.Operation) -> list[ir.Operation]:
    """The operators that read what one makes."""
    users = users_of(op.results[0])
    return [user.parent.operation if user.name == _EXTRACT else user for user in users]


def _loads(reader: ir.Operation) -> set[Load]:
    """What an elementwise operator loads, as its operands and in its body."""
    s = rows.Structured(reader)
    inputs = zip(s.given, s.maps)
    found = {(value, tuple(map(_loop, map_.results))) for value, map_ in inputs if rows.is_tensor(value)}
    for op in operations_of(s.body):
        if op.name == _EXTRACT:
            table, *places = op.operands
            found.add((table, tuple(map(_name, places))))
    return found


def _loop(expr: ir.AffineExpr) -> str:
    d = rows.dim_of(expr)
    return str(expr) if d is None else f"loop {d}"


def _name(index: ir.Value) -> str:
    """How an index is computed, the same for two that are the same."""
    op = rows.producer(index)
    if op is None:
        return str(hash(index))
    if op.name == "linalg.index":
        return f"loop {attr_int(op, 'dim')}"
    if op.name == "arith.constant":
        return str(attr_int(op, "value"))
    if not op.name.startswith("arith."):
        return str(hash(index))
    own = [str(op.attributes[name]) for name in sorted(op.attributes)]
    return f"{op.name}({', '.join([*own, *map(_name, op.operands)])})"


def _moved(index: str, place: Place) -> str:
    """An index of a body at one of its operator's places."""
    return re.sub(r"loop (\d+)", lambda loop: place[int(loop[1])], index)


def _is_worth_it(group: Sequence[ir.Operation]) -> bool:
    """Whether the readers of a group, those of one shape together, load no more elements when they compute it, and
    compute little for what is written and read now."""
    made = {op.results[0]: op for op in group}
    readers = {reader.results[0]: reader for op in group for reader in _readers(op) if reader.results[0] not in made}
    points = min(prod(example_sizes.shape_of(value)) for value in made)
    loads: dict[str, set[Load]] = {}
    for value, reader in readers.items():
        if prod(example_sizes.shape_of(value)) > points:
            return False
        loads.setdefault(str(ir.RankedTensorType(value.type).shape), set()).update(_loads(reader))
    more = -sum(map(_arithmetic, group))
    for own in loads.values():
        (before, _), (after, work) = (_computing(own, those) for those in ({}, made))
        if len(after) > len(before):
            return False
        more += work
    return more <= MOST_WORK * len(group)


def _computing(loads: set[Load], made: Mapping[ir.Value, ir.Operation]) -> tuple[set[Load], int]:
    """What operators load that load these elements, but compute those that are `made`, and move what is moved; and how
    much that is to compute."""
    found, seen, last, work = set[Load](), set(loads), list(loads), 0
    while last:
        value, place = last.pop()
        op = made.get(value) or _move_of(value)
        if op is None:
            found.add((value, place))
            continue
        work += _arithmetic(op)
        own = {(one, tuple(_moved(index, place) for index in indices)) for one, indices in _loads(op)}
        last += own - seen
        seen |= own
    return found, work


def _move_of(value: ir.Value) -> ir.Operation | None:
    op = rows.producer(value)
    return op if is_generic(op) and _is_move(op) else None


def _arithmetic(op: ir.Operation) -> int:
    return 0 if _is_move(op) else arithmetic_of(op)


def _compute(group: Sequence[ir.Operation]) -> None:
    """Has the readers of a group compute it."""
    for op in reversed(group):
        for use in list(op.results[0].uses):
            reader = use.owner.operation
            if reader.name == _EXTRACT:
                computed_there(reader, op)
            else:
                with ir.InsertionPoint(reader):
                    use.owner.operands[use.operand_number] = op.clone().results[0]
        op.erase()
