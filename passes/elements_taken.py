"""Elements that are taken by number of what is computed one by one are computed where they are taken. For
prepare-linalg.

    %p = linalg.generic {"parallel", "parallel"} ins(%x, %sum) { arith.subf %in, %in_1 }    // of all classes
    %l = linalg.generic ins(%label) { tensor.extract %p[%row, %class] }                    // of one
  =>
    %l = linalg.generic ins(%label) {
      arith.subf (tensor.extract %x[%row, %class]), (tensor.extract %sum[%row])
    }

So it is with what a loss takes of the logarithms of probabilities, which are then not written. What something else
reads too is taken as it is, unless it is arithmetic of what is written anyway: a product's kernel computes what follows
it, and would write its sums as well. A reduction alone writes nothing of what it reads: few elements are computed again
beside it, such as a softmax's exponentials beside their sum. What weights alone make is taken as it is, for it is
computed once, and what is rounded to 16 bits as its operands are: the others would find other numbers than those that
are taken, of operands that are not. Between what is computed and what takes of it there may be slices, and things
around it (taken_views.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.contraction import match_product
from kitsune_mlir.mlir import arith, attr_int, clone_on, ir, tensor, walk
from kitsune_mlir.operations import element_type, erase_unused, is_generic, users_of
from kitsune_mlir.weights import is_weight

from .recomputed_elements import is_arithmetic
from .taken_views import VIEWS, read_through, taken_of

_EXTRACT = "tensor.extract"
_FEWER = 2  # times as many there must be as are taken
_MOST_AROUND = 2  # times that an element may be asked whether it is of what stands around a tensor


def take_elements(module: ir.Module) -> None:
    """Rewrites a module in place."""
    waiting = walk(module, _EXTRACT)
    while waiting:
        op = waiting.pop()
        table = op.operands[0]
        made = taken_of(table)
        if made is None or not _is_taken(made) or _around(table, {}) > _MOST_AROUND:
            continue
        extracts = _extracts(made)
        waiting = [other for other in waiting if other not in extracts]
        for taker in extracts:
            waiting += computed_there(read_through(taker, made), made)
        erase_unused(made)


def _extracts(made: ir.Operation) -> list[ir.Operation]:
    """What takes elements of what an operator makes, of it or of views of it."""
    return [taker for value in _views(made) for use in value.uses if (taker := use.owner.operation).name == _EXTRACT]


def _views(made: ir.Operation) -> dict[ir.Value, None]:
    """What an operator makes, and its views through which elements may be read, in order."""
    found, last = {made.results[0]: None}, [made.results[0]]
    while last:
        uses = [user for value in last for user in users_of(value)]
        last = [op.results[0] for op in uses if op.name in VIEWS and taken_of(op.results[0]) is not None]
        found |= dict.fromkeys(last)
    return found


def _is_taken(made: ir.Operation) -> bool:
    """Whether few of the elements that an elementwise operator makes are taken, and no other reader wants more than
    arithmetic of it."""
    if not is_generic(made):
        return False
    s = rows.Structured(made)
    inputs = s.given
    if not s.is_elementwise() or s.gathers() or rows.init_of(made.operands[-1]).tensor is not None:
        return False
    if all(map(is_weight, inputs)) or not all(map(rows.is_tensor, inputs)):
        return False
    found = {rows.dim_of(expr) for map_ in s.maps[: s.inputs] for expr in map_.results}
    unread = {*range(len(s.iterators))} - found
    if not all(map(is_place, s.maps[: s.inputs])) or not all(_is_own(made, d) for d in unread):
        return False
    views = _views(made)
    uses = [user for value in views for user in users_of(value)]
    readers = [op for op in uses if not (op.name in VIEWS and op.results[0] in views)]
    takers, others = [taker for op in readers if (taker := _taker(op))], [op for op in readers if not _taker(op)]
    is_cheap = is_arithmetic(s)
    is_rounded = _is_narrow(made.results[0]) and any(map(_is_computed_narrow, inputs))
    is_unwritten = is_cheap or all(map(_is_reduction, others))
    if others and (not is_unwritten or is_rounded or _follows_product(made)):
        return False
    taken = sum(prod(example_sizes.shape_of(taker.results[0])) for taker in takers)
    return _FEWER * taken <= prod(example_sizes.shape_of(made.results[0]))


def _around(value: ir.Value, known: dict[ir.Value, int]) -> int:
    """How often it would be asked, of what an element is computed of: running sums are added up of sums of ever fewer
    numbers with zeros around, so that each of them would be computed for all that follow. `known` are those found."""
    if value not in known:
        made, found, view = taken_of(value), 0, rows.producer(value)
        while view is not None and view.name in VIEWS:
            found += view.name == "tensor.pad"
            view = rows.producer(view.operands[0])
        if made is not None and rows.Structured(made).is_elementwise():
            found += sum(_around(operand, known) for operand in list(made.operands)[: rows.Structured(made).inputs])
        known[value] = found
    return known[value]


def _is_reduction(op: ir.Operation) -> bool:
    """Whether an operator sums up what it reads, or joins it otherwise, and multiplies no matrices."""
    return op.name == "linalg.generic" and "reduction" in rows.Structured(op).iterators and match_product(op) is None


def _is_narrow(value: ir.Value) -> bool:
    kind = element_type(value)
    return isinstance(kind, ir.FloatType) and kind.width < 32


def _is_computed_narrow(value: ir.Value) -> bool:
    """Whether an elementwise operator, with which others may be fused, rounds what it gives."""
    op = rows.producer(value)
    while op is not None and op.name in rows.RESHAPES:
        op = rows.producer(op.operands[0])
    return op is not None and op.name == "linalg.generic" and _is_narrow(op.results[0])


def _follows_product(made: ir.Operation) -> bool:
    """Whether an elementwise operator is computed with a product, which nothing but it and what it takes reads."""
    for value in made.operands:
        readers = {user for user in users_of(value) if user.name != "tensor.extract"}
        op = rows.producer(value)
        if op is None or len(readers) != 1:
            continue
        if match_product(op) is not None:
            return True
        plain = op.name in rows.RESHAPES or op.name == "linalg.generic" and rows.Structured(op).is_elementwise()
        if plain and _follows_product(op):
            return True
    return False


def _is_own(made: ir.Operation, d: int) -> bool:
    """Whether elements are taken at their own places along a dimension that is the same everywhere, as class weights
    are for all rows: a number of a place that no operand has would not be checked."""
    extracts = _extracts(made)
    places = [rows.producer(op.operands[1 + d]) for op in extracts if op.operands[0] == made.results[0]]
    return len(places) == len(extracts) and all(place is not None and place.name == "linalg.index" for place in places)


def is_place(map_: ir.AffineMap) -> bool:
    """Whether a tensor is read in one place of each of its dimensions: a loop's, or the first one."""
    return all(rows.dim_of(expr) is not None or str(expr) == "0" for expr in map_.results)


def _taker(op: ir.Operation) -> ir.Operation | None:
    """The operator in whose body an extract stands."""
    around = op.parent
    return around.operation if op.name == _EXTRACT and around.operation.name == "linalg.generic" else None


def computed_there(op: ir.Operation, made: ir.Operation) -> list[ir.Operation]:
    """Puts what an elementwise operator computes in the place of an extract of it; the extracts that this takes."""
    s, places = rows.Structured(made), list(op.operands)[1:]
    with op.location, ir.InsertionPoint(op):
        arguments = list(s.body.arguments)
        values: dict[ir.Value, ir.Value | None] = {}
        used = [i for i in range(s.inputs) if list(arguments[i].uses)]
        for i in used:
            values[arguments[i]] = tensor.extract(made.operands[i], _index(s.maps[i], places))
        for inner in s.body.operations:
            inner = inner.operation
            if inner.name == "linalg.yield":
                found = values.get(inner.operands[0], inner.operands[0])
                assert found is not None
                op.results[0].replace_all_uses_with(found)
            elif inner.name == "linalg.index":
                values[inner.results[0]] = places[attr_int(inner, "dim")]
            else:
                clone_on(inner, values)
        extracts = [value.owner.operation for i in used if (value := values[arguments[i]]) is not None]
    op.erase()
    return extracts


def _index(map_: ir.AffineMap, places: Sequence[ir.Value]) -> list[ir.Value]:
    """Where a tensor is read at these places of a generic's loops."""
    dims = [rows.dim_of(expr) for expr in map_.results]
    return [arith.constant(ir.IndexType.get(), 0) if d is None else places[d] for d in dims]
