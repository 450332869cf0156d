"""Elements that are read by numbers which grow evenly with their place, as those of windows do, are read by maps.

    %n = linalg.generic outs(%e : tensor<7xi64>) { index 0 }                      // 0, 1, 2, ...
    %m = linalg.generic ins(%n, %o) outs(... tensor<7x28xi64>) { arith.addi }     // element + window
    %y = linalg.generic ins(%m) outs(%f : tensor<?x7x28xf32>) {
      linalg.yield (tensor.extract %x[linalg.index 0, %in])
    }
      =>
    %y = linalg.generic {maps = [(b, k, w) -> (b, k + w), (b, k, w) -> (b, k, w)]} ins(%x) outs(%f) {
      linalg.yield %in
    }

Whoever reads %y then knows that these are windows of %x, and how to read %x instead (window_reads.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.generics import clone_operations, empty_generic
from kitsune_mlir.mlir import attr_int, ir, replace_op
from kitsune_mlir.operations import end_of, made_by, operations_of
from kitsune_mlir.planning.linear_sums import LinearSum

from .broadcast_reads import same_size

_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui", "arith.trunci")
_LESS = 2  # the predicate a < b of arith.cmpi


class _Place(LinearSum):
    """A number of loops, whose own numbers are its terms."""

    def loop(self) -> int | None:
        """The loop whose number it is, if it is one."""
        return next(iter(self.terms)) if not self.known and [*self.terms.values()] == [1] else None

    def is_never_negative(self) -> bool:
        return self.known >= 0 and all(times > 0 for times in self.terms.values())

    def map(self) -> ir.AffineExpr:
        terms = [ir.AffineExpr.get_dim(d) * times for d, times in sorted(self.terms.items())]
        return (
            sum(terms, ir.AffineExpr.get_constant(self.known)) if self.known or not terms else sum(terms[1:], terms[0])
        )


def read_by_maps(op: ir.Operation) -> None:
    """Gives a linalg.generic an operand in the place of each tensor.extract of such numbers."""
    s = rows.Structured(op)
    body = operations_of(s.body)
    extracts = [inner for inner in body if inner.name == "tensor.extract"]
    if not extracts or "reduction" in s.iterators or len(op.results) != 1 or not _is_identity(s.maps[-1]):
        return
    loops = [_Place.of(d) for d in range(len(s.iterators))]
    found = {extract.results[0]: _numbers(list(extract.operands)[1:], s, loops) for extract in extracts}
    read = {result: each for result, each in found.items() if each is not None and _is_inside(result.owner, each, op)}
    if not read:
        return
    with op.location, ir.InsertionPoint(op):
        maps = [ir.AffineMap.get(len(loops), 0, [number.map() for number in each]) for each in read.values()]
        sources = [result.owner.operands[0] for result in read]
        inputs, start = s.given, op.operands[s.inputs]
        made = empty_generic([*inputs, *sources], [start], [*s.maps[: s.inputs], *maps, s.maps[-1]], s.iterators)
        *arguments, out = made.regions[0].blocks[0].arguments
        values = dict(
            zip([*s.body.arguments, *read], [*arguments[: s.inputs], out, *arguments[s.inputs :]], strict=True)
        )
        with ir.InsertionPoint(made.regions[0].blocks[0]):
            clone_operations([inner for inner in body if inner not in [result.owner for result in read]], values)
    replace_op(op, *made.results)


def _is_identity(map_: ir.AffineMap) -> bool:
    return map_ == ir.AffineMap.get_identity(map_.n_dims)


def _is_inside(extract: ir.Operation, numbers: Sequence[_Place], op: ir.Operation) -> bool:
    """Whether maps may say what is read: whole dimensions, as long as the loops are, or places within known ones."""
    source, result = extract.operands[0], op.results[0]
    sizes, loops = rows.shape_of(source), rows.shape_of(result)
    for d, (number, size) in enumerate(zip(numbers, sizes, strict=True)):
        if (loop := number.loop()) is not None and loops[loop] == size:
            if size == rows.DYNAMIC and not same_size(source, d, op.operands[len(op.operands) - 1], loop):
                return False
            continue
        lengths = [loops[each] for each in number.terms]
        if loop is not None or rows.DYNAMIC in (size, *lengths) or not number.is_never_negative():
            return False
        if number.known + sum(times * (loops[each] - 1) for each, times in number.terms.items()) >= size:
            return False
    return True


def _numbers(values: Sequence[ir.Value], s: rows.Structured, loops: Sequence[_Place]) -> list[_Place] | None:
    """What numbers are that a body computes, where the operator's loops are `loops`."""
    found = []
    for value in values:
        number = _number(value, s, loops)
        if number is None:
            return None
        found.append(number)
    return found


def _number(value: ir.Value, s: rows.Structured, loops: Sequence[_Place]) -> _Place | None:
    if (known := constant(value)) is not None:
        return _Place(known)
    if isinstance(value.owner, ir.Block):
        if value.owner != s.body or (argument := ir.BlockArgument(value).arg_number) >= s.inputs:
            return None
        places = [_composed(expr, loops) for expr in s.maps[argument].results]
        return None if None in places else _element(s.op.operands[argument], places)
    op = value.owner.operation
    if op.name == "linalg.index":
        return loops[attr_int(op, "dim")]
    if op.name in _CASTS:
        return _number(op.operands[0], s, loops)
    if op.name == "arith.select":
        return _number(op.operands[2], s, loops) if _is_never(op.operands[0], s, loops) else None
    if op.name not in ("arith.addi", "arith.subi", "arith.muli"):
        return None
    numbers = _numbers(list(op.operands), s, loops)
    if numbers is None:
        return None
    a, b = numbers
    if op.name != "arith.muli":
        return a.plus(b, 1 if op.name == "arith.addi" else -1)
    return b.scaled(a.known) if not a.terms else a.scaled(b.known) if not b.terms else None


def _is_never(condition: ir.Value, s: rows.Structured, loops: Sequence[_Place]) -> bool:
    """Whether a condition is that of a number below 0, which counts from the end, and the number is none."""
    op = made_by(condition, "arith.cmpi")
    if op is None or attr_int(op, "predicate") != _LESS or constant(op.operands[1]) != 0:
        return False
    number = _number(op.operands[0], s, loops)
    return number is not None and number.is_never_negative()


def _element(value: ir.Value, places: Sequence[_Place]) -> _Place | None:
    """What an element of a tensor of numbers is."""
    op = rows.producer(value)
    if op is None:
        return None
    if op.name == "linalg.generic":
        made = rows.Structured(op)
        if "reduction" in made.iterators or len(op.results) != 1 or not _is_identity(made.maps[-1]):
            return None
        return _number(end_of(made.body).operands[0], made, places)
    if op.name == "tensor.expand_shape":
        shape = rows.shape_of(value)
        return _element(
            op.operands[0], [_joined([places[d] for d in g], [shape[d] for d in g]) for g in rows.groups_of(op)]
        )
    return None


def _joined(places: Sequence[_Place], sizes: Sequence[int]) -> _Place:
    """A place in one dimension, that of these places in the ones it is made of; those of one element have none."""
    found, step = _Place(), 1
    for place, size in reversed([*zip(places, sizes, strict=True)]):
        if size != 1:
            found, step = found.plus(place, step), step * size
    return found


def _composed(expr: ir.AffineExpr, loops: Sequence[_Place]) -> _Place | None:
    if isinstance(expr, ir.AffineConstantExpr):
        return _Place(expr.value)
    if isinstance(expr, ir.AffineDimExpr):
        return loops[expr.position]
    return None
