"""Sums of a row's and a column's number behind a product, and what else is computed of broadcasts alone.

    %s = linalg.generic {...} ins(%row, %column : tensor<300x1xf32>, tensor<64xf32>) ...     // a sum: 300 x 64
    %d = linalg.generic {...} ins(%s, %y : tensor<300x64xf32>, tensor<300x64xf32>) ...       // %y is a product
  =>
    %d = linalg.generic {...} ins(%row, %column, %y) ...

What reads such a tensor computes its elements by itself where that is cheap: its inputs are few numbers, it would be as
many as the product has. They are rounded as they were: of places 16 bits hold whole numbers up to 256 only. Dimensions
of one element on the way do not matter, as where a mask of lengths and one of places are joined for all heads.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.evaluate import ROUNDS
from kitsune_mlir.generics import cloned, generic
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import users_of
from kitsune_mlir.planning.kernel_cost import DEAR_EXACT

from .generic_operands import prune
from .of_places import MOST_OPERATIONS, is_of_places, matched_dims
from .product_follows import is_elementwise

_MOST = 8  # operations that are done once more by each reader
_Refused = dict[ir.Operation, int]  # of how many operations at most none are of broadcasts alone


def take_broadcasts(products: Sequence[ir.Operation], keep_places: bool = False) -> None:
    """Has the elementwise operators behind products compute for themselves what is cheap and of broadcasts alone; but
    for what is of places, if that is to be kept. Each value is looked at once, whichever products it is made of."""
    left, seen = [op.results[0] for op in reversed(products)], set[ir.Value]()
    refused: _Refused = {}
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        for op in dict.fromkeys(users_of(value)):
            if op.name in rows.RESHAPES:
                left.append(op.results[0])
            while op.block == value.owner.operation.block and is_elementwise(op, [value]):
                if (joined := _joined(op, value, seen, refused, keep_places)) is None:
                    left.append(op.results[0])
                    break
                op = joined
                refused.clear()  # what it takes is another, and what was erased is in no other's place


def _joined(
    op: ir.Operation, value: ir.Value, seen: set[ir.Value], refused: _Refused, keep_places: bool
) -> ir.Operation | None:
    """The operator with the first of its inputs computed inside that can and may be; None where none is. What is erased
    is taken out of `seen`: another value may come to lie in its place."""
    s = rows.Structured(op)
    for number, operand in enumerate(s.given):
        made, map_ = _without_ones(operand, s.maps[number])
        if made is None or not _is_of_broadcasts(made, refused) or list(op.operands).count(operand) > 1:
            continue
        if keep_places and is_of_places(operand):
            continue
        joined = _with_inside(op, number, made, map_)
        if not is_elementwise(joined, [value]):
            joined.erase()
            continue
        op.results[0].replace_all_uses_with(joined.results[0])
        seen.difference_update(op.results)
        op.erase()
        for unread in dict.fromkeys([operand.owner.operation, made]):
            if not list(unread.results[0].uses):
                seen.difference_update(unread.results)
                unread.erase()
        return joined
    return None


def _without_ones(value: ir.Value, map_: ir.AffineMap) -> tuple[ir.Operation | None, ir.AffineMap]:
    """What makes a tensor that is read with this map, and with which map that would be read: dimensions of one element
    are not looked at."""
    op = rows.producer(value)
    matched = matched_dims(op) if op is not None and op.name in rows.RESHAPES else None
    if op is None or matched is None:
        return op, map_
    zero = ir.AffineConstantExpr.get(0)
    found = [zero if d is None else map_.results[d] for d in matched]
    return rows.producer(op.operands[0]), ir.AffineMap.get(map_.n_dims, 0, found)


def _is_of_broadcasts(op: ir.Operation, refused: _Refused) -> bool:
    """Whether it is cheap, and made of nothing but what is the same along a loop of more than one turn, perhaps by
    others before it. More is done where nobody else reads what these make."""
    count, alone = _operations(op, MOST_OPERATIONS, refused)
    return count is not None and (alone or count <= _MOST)


def _operations(op: ir.Operation, most: int, refused: _Refused) -> tuple[int | None, bool]:
    """How many operations, `most` of them, make an element of broadcasts alone, None where others are wanted, more or
    dear ones; and whether one operator alone reads each tensor on the way. No longer chains are gone through, and what
    is refused is so once: it is asked again for each operator behind it."""
    if most < 0 or refused.get(op, -1) >= most:
        return None, False
    found = _counted(op, most, refused)
    if found[0] is None:
        refused[op] = most
    return found


def _counted(op: ir.Operation, most: int, refused: _Refused) -> tuple[int | None, bool]:
    if not is_elementwise(op, []):
        return None, False
    s, sizes = rows.Structured(op), list(ir.RankedTensorType(op.results[0].type).shape)
    names = [inner.operation.name for inner in s.body.operations]
    count, tensors = len(names) - 1, 0
    loops = {d for d, size in enumerate(sizes) if size != 1}
    alone = len(list(op.results[0].uses)) == 1
    for map_, operand in zip(s.maps[: s.inputs], op.operands):
        if not rows.is_tensor(operand):
            continue
        tensors += 1
        read = {expr.position for expr in map_.results if isinstance(expr, ir.AffineDimExpr)}
        if loops - read:
            continue
        made, _ = _without_ones(operand, map_)
        own, is_alone = (None, False) if made is None else _operations(made, most - max(1, count), refused)
        if own is None:
            return None, False
        count, alone = count + own, alone and is_alone
    cheap = tensors > 0 and count <= most and not any(name in DEAR_EXACT for name in names)
    return (count, alone) if cheap else (None, False)


def _with_inside(op: ir.Operation, number: int, made: ir.Operation, map_: ir.AffineMap) -> ir.Operation:
    """A linalg.generic that computes what `op` does, its input of this number in its own body, as `made` has it that
    would be read with this map."""
    s, inner = rows.Structured(op), rows.Structured(made)
    given = inner.given
    maps = [*s.maps[: s.inputs], *(_behind(own, map_) for own in inner.maps[: inner.inputs]), s.maps[-1]]
    inputs, starts = s.given, list(op.operands)[s.inputs :]

    def body(*arguments: ir.Value) -> list[ir.Value]:
        own = list(arguments[: s.inputs])
        (own[number],) = cloned(inner.body, [*arguments[s.inputs : s.inputs + len(given)], None])
        if (cast := rows.producer(own[number])) is not None and cast.name == "arith.truncf":
            cast.attributes[ROUNDS] = ir.UnitAttr.get()
        return cloned(s.body, [*own, *arguments[s.inputs + len(given) :]])

    with op.location, ir.InsertionPoint(op):
        return prune(generic([*inputs, *given], starts, maps, s.iterators, body))


def _behind(map_: ir.AffineMap, other: ir.AffineMap) -> ir.AffineMap:
    """Where a tensor is read with `map_` by what is read with `other`."""
    found = [other.results[e.position] if isinstance(e, ir.AffineDimExpr) else e for e in map_.results]
    return ir.AffineMap.get(other.n_dims, 0, found)
