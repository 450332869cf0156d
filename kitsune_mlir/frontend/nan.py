"""NaN in what torch-mlir lowers to comparisons: torch lets it through, and takes it for the greatest number.

Run on linalg as torch-mlir made it, where an operator is still a body of its own and its form therefore tells it:

    %c = arith.cmpf ult, %x, %low        clamp                 ->  arith.maximumf %low, %x
    %y = arith.select %c, %low, %x
    %c = arith.cmpf ogt, %a, %b          maximum, hardtanh     ->  arith.maximumf %a, %b
    %y = arith.select %c, %a, %b
    %m = arith.maximumf %in, %out        max with its index    ->  NaN is greater than what is no NaN
    %c = arith.cmpf ogt, %in, %out
    %i = arith.select %c, %index, %before
    arith.cmpf oeq, %x, %pooled          where it was pooled   ->  the same, or %x is NaN (%x: a tensor.extract)
    arith.cmpf ole, %a, %b               a sort's order        ->  the same, or %b is NaN
    math.atan2 %y, %x                    an angle              ->  of zeros that of %y and 1, or -1, by the sign of %x

The same for minima, and for an order that goes down. MLIR folds the angle of two zeros that it knows to NaN.
"""

from __future__ import annotations

from kitsune_mlir.mlir import arith, attr_int, ir, math, walk
from kitsune_mlir.operations import made_by, operations_of

_P = arith.CmpFPredicate
_GREATER, _LESS = (_P.OGT, _P.UGT), (_P.OLT, _P.ULT)


_Comparison = tuple[ir.Operation, arith.CmpFPredicate]


def keep_nan(module: ir.Module) -> None:
    """Rewrites the bodies of linalg.generic and tm_tensor.sort in place."""
    for generic in walk(module, "linalg.generic"):
        for select in operations_of(generic.regions[0].blocks[0]):
            if select.name == "arith.select":
                is_number = isinstance(select.results[0].type, ir.FloatType)
                (_extremum if is_number else _index_of_extremum)(select)
    for angle in walk(module, "math.atan2"):
        _angle(angle)
    for sort in walk(module, "tm_tensor.sort"):
        for compare in operations_of(sort.regions[0].blocks[0]):
            if compare.name == "arith.cmpf":
                _order(compare)


def _compare(condition: ir.Value) -> _Comparison | None:
    """The comparison of real numbers that a condition is."""
    if made_by(condition, "arith.cmpf") is None:
        return None
    compare = condition.owner.operation
    return compare, _P(attr_int(compare, "predicate"))


def _angle(op: ir.Operation) -> None:
    y, x = op.operands
    with op.location, ir.InsertionPoint(op):
        zero, one = (arith.constant(x.type, number) for number in (0.0, 1.0))
        no_place = arith.andi(arith.cmpf(_P.OEQ, y, zero), arith.cmpf(_P.OEQ, x, zero))
        op.operands[1] = arith.select(no_place, math.copysign(one, x), x)


def _extremum(select: ir.Operation) -> None:
    condition, chosen, other = select.operands
    compare, predicate = _compare(condition) or (None, None)
    if compare is None or predicate not in (*_GREATER, *_LESS):
        return
    a, b = compare.operands
    if (chosen, other) != (a, b) and (chosen, other) != (b, a):
        return
    greatest = (predicate in _GREATER) == (chosen == a)
    with select.location, ir.InsertionPoint(select):
        value = (arith.maximumf if greatest else arith.minimumf)(chosen, other)
    select.results[0].replace_all_uses_with(value)
    select.erase()


def _index_of_extremum(select: ir.Operation) -> None:
    compare, predicate = _compare(select.operands[0]) or (None, None)
    if compare is None:
        return
    value, best = compare.operands
    with compare.location, ir.InsertionPoint(select):
        if predicate == _P.OEQ and _maker(value) == "tensor.extract":
            select.operands[0] = arith.ori(compare.results[0], arith.cmpf(_P.UNO, value, value))
        elif predicate in (_P.OGT, _P.OLT) and _maker_of_next(best) in ("arith.maximumf", "arith.minimumf"):
            better = arith.cmpf(_P.UGT if predicate == _P.OGT else _P.ULT, value, best)
            select.operands[0] = arith.andi(better, arith.cmpf(_P.ORD, best, best))


def _maker(value: ir.Value) -> str | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.name


def _maker_of_next(best: ir.Value) -> str | None:
    """What makes the value of a reduction that the body is given as `best` the next time."""
    if not isinstance(best.owner, ir.Block):
        return None
    *_, terminator = best.owner.operations
    number = ir.BlockArgument(best).arg_number - (len(best.owner.arguments) - len(terminator.operands))
    return _maker(terminator.operands[number]) if number >= 0 else None


def _order(compare: ir.Operation) -> None:
    predicate = _P(attr_int(compare, "predicate"))
    if predicate not in (_P.OLE, _P.OGE):
        return
    last = compare.operands[1 if predicate == _P.OLE else 0]
    uses = list(compare.results[0].uses)
    *_, terminator = compare.block.operations
    with compare.location, ir.InsertionPoint(terminator):
        either = arith.ori(compare.results[0], arith.cmpf(_P.UNO, last, last))
    for use in uses:
        use.owner.operands[use.operand_number] = either
