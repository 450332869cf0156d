"""Arithmetic of which operators read neighbours is computed by them, where that is less than to write and read it.

    %p = linalg.generic ins(%h, %u) { arith.mulf %in, %in_1 }
    %y = linalg.generic { arith.subf (tensor.extract %p[%0, %1 + 1]), (tensor.extract %p[%0, %1 - 1]) }
  =>
    %y = linalg.generic {
      arith.subf (arith.mulf (tensor.extract %h[%0, %1 + 1]), (tensor.extract %u[%0, %1 + 1])),
                 (arith.mulf (tensor.extract %h[%0, %1 - 1]), (tensor.extract %u[%0, %1 - 1]))
    }

So it is with fluxes between the cells of a grid, and with rolls of rolls: a step of a simulation is one kernel, not two
that wait for one another. What a tensor has around it, such as zeros, is no element of any: a diagonal of a dynamic
program that shifts is read where it lies. Places are those that loops, sizes and constants say; what data says is taken
in elements_taken.py.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.codegen.index_checks import KNOWN, origin
from kitsune_mlir.generics import all_hold, constant_index, generic
from kitsune_mlir.mlir import arith, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import operations_of, slice_of, users_of
from kitsune_mlir.planning.kernel_cost import ADDRESSED, DEAR

from .elements_taken import computed_there, is_place
from .padded_reads import Border, around_of

# Instructions for an element of the tensor, all that is computed of it together: about what it takes to write it and to
# read it again, of memory and of an H100.
MOST_WORK = 40
_MOST_ALONE = 100  # of what is computed once as before, but in a larger body


def compute_neighbours(main: ir.Operation) -> bool:
    """Rewrites such operators of @main, from the first to the last; whether there were any."""
    found = False
    for op in walk(main, "linalg.generic", "tensor.pad"):
        if op.name == "tensor.pad":
            found |= _read_within(op)
            continue
        uses = list(op.results[0].uses) if len(op.results) == 1 and rows.is_tensor(op.results[0]) else []
        extracts = [use.owner.operation for use in uses if use.owner.name == "tensor.extract"]
        if not extracts or not is_arithmetic(op) or not _is_worth_it(op, [use.owner.operation for use in uses]):
            continue
        for use in uses:
            if use.owner.operation in extracts:
                computed_there(use.owner.operation, op)
            else:
                with ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = op.clone().results[0]
        op.erase()
        found = True
    return found


def is_arithmetic(op: ir.Operation) -> bool:
    """Whether an operator computes each element of its inputs' elements, and of others at places that are known."""
    s = rows.Structured(op)
    if not s.is_elementwise() or list(s.body.arguments[s.inputs].uses) or not all(map(is_place, s.maps[: s.inputs])):
        return False
    if not all(map(rows.is_tensor, s.given)):
        return False
    inner = operations_of(s.body)
    names = ("arith.", "math.", "tensor.extract", "tensor.dim", "linalg.")
    return all(one.name.startswith(names) and not len(one.regions) and at_known_places(one) for one in inner)


def at_known_places(op: ir.Operation) -> bool:
    """Whether an operation of a body takes no element of a tensor at a place that data says."""
    if op.name != "tensor.extract":
        return True
    table, *places = op.operands
    return all(origin(place, size) == KNOWN for place, size in zip(places, table.type.shape, strict=True))


def arithmetic_of(op: ir.Operation) -> int:
    """Instructions of an element of a linalg.generic, without what loads it."""
    names = [inner.operation.name for inner in rows.Structured(op).body.operations]
    return sum(DEAR.get(name, 1) for name in names if name.startswith(("arith.", "math.")))


def _is_worth_it(op: ir.Operation, users: list[ir.Operation]) -> bool:
    """Whether elementwise operators alone read an operator's result, and to compute it for each takes less."""
    points, times = prod(example_sizes.shape_of(op.results[0])), 0.0
    for user in users:
        reader = user.parent.operation if user.name == "tensor.extract" else user
        if reader.name != "linalg.generic" or not at_known_places(user):
            return False
        if not rows.Structured(reader).is_elementwise():
            return False
        times += prod(example_sizes.shape_of(reader.results[0])) / max(1, points)
    body = [one.operation.name for one in rows.Structured(op).body.operations]
    loads = rows.Structured(op).inputs + body.count("tensor.extract")
    work = ADDRESSED * loads + arithmetic_of(op)
    if times <= 1:
        return work <= _MOST_ALONE
    return work * times <= MOST_WORK and not _is_made_beside(op)


def _is_made_beside(op: ir.Operation) -> bool:
    """Whether an operator may be computed with one that makes what it reads (shared_elements.py), and readers of
    neighbours would load more than now: they take no elements of that."""
    inputs = rows.Structured(op).given
    makers = [maker for value in inputs if (maker := rows.producer(value)) is not None]
    beside = any(maker.name == "linalg.generic" and rows.Structured(maker).is_elementwise() for maker in makers)
    return beside and not all(any(use.owner.name == "tensor.extract" for use in value.uses) for value in inputs)


def _read_within(pad: ir.Operation) -> bool:
    """Reads what a tensor has around it nowhere, and its elements where they lie, for operators that take them at
    places that are known, or read slices of open sizes; whether there were any."""
    around, source = around_of(pad), pad.operands[0]
    shape = rows.shape_of(source)
    if around is None or any(shape[d] == rows.DYNAMIC for d in _wider(around)):  # there may be none
        return False
    users = users_of(pad.results[0])
    takers = [op for op in users if op.name == "tensor.extract" and at_known_places(op)]
    takers = [op for op in takers if op.parent.operation.name == "linalg.generic"]
    slices = [op for op in users if rows.DYNAMIC in shape and _is_read_slice(op)]
    for op in takers:
        with op.location, ir.InsertionPoint(op):
            replace_op(op, _element(source, list(op.operands)[1:], around))
    for op in slices:
        with op.location, ir.InsertionPoint(op):
            replace_op(op, _slice(op, source, around))
    return bool(takers or slices)


def _wider(around: Border) -> list[int]:
    """The dimensions that have something around their elements."""
    low, high, _ = around
    return [d for d in range(len(low)) if low[d] or high[d]]


def _element(source: ir.Value, places: list[ir.Value], around: Border) -> ir.Value:
    """In a body, the element at these places of a tensor with something around it."""
    low, _, outside = around
    inside = None
    for d in _wider(around):
        place = arith.subi(places[d], constant_index(low[d]))
        fits = arith.cmpi(arith.CmpIPredicate.ult, place, constant_index(rows.shape_of(source)[d]))
        places[d] = arith.select(fits, place, constant_index(0))
        inside = all_hold(inside, fits)
    found = tensor.extract(source, places)
    return found if inside is None else arith.select(inside, found, arith.ConstantOp(found.type, outside).result)


def _is_read_slice(op: ir.Operation) -> bool:
    """Whether an operation is a slice with all between its ends, which elementwise operators alone read."""
    if op.name != "tensor.extract_slice" or len(rows.shape_of(op.results[0])) != len(rows.shape_of(op.operands[0])):
        return False
    cut, readers = slice_of(op), users_of(op.results[0])
    known = {*cut.strides} == {1} and rows.DYNAMIC not in cut.offsets
    return known and all(one.name == "linalg.generic" and rows.Structured(one).is_elementwise() for one in readers)


def _slice(op: ir.Operation, source: ir.Value, around: Border) -> ir.Value:
    """A slice of a tensor with something around it."""
    kind, offsets = ir.RankedTensorType(op.results[0].type), slice_of(op).offsets
    open_ = iter(list(op.operands)[1:])
    sizes = [next(open_) if size == rows.DYNAMIC else size for size in slice_of(op).sizes]

    def body(_: ir.Value) -> ir.Value:
        own = [linalg.IndexOp(d).result for d in range(kind.rank)]
        return _element(source, [arith.addi(at, constant_index(first)) for at, first in zip(own, offsets)], around)

    start, maps = tensor.empty(sizes, kind.element_type), [ir.AffineMap.get_identity(kind.rank)]
    return generic([], [start], maps, ["parallel"] * kind.rank, body).results[0]
