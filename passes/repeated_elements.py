"""What several operators read, one of which sums it, is computed by each of them where that moves fewer bytes, or where
its lines have an open length.

    %c = linalg.generic ins(%x : bf16, %mean) -> f32           %s = linalg.generic {... "reduction"} ins(%x, %mean)
    %s = linalg.generic {... "reduction"} ins(%c)       =>     %y = linalg.generic ins(%x, %mean, %s)
    %y = linalg.generic ins(%c, %s)

So it is with norms of rows that no CTA holds: numbers without their mean are not written to be read again. And so it
is with a softmax's exponentials of open columns: lines of a known length are a row group's, whose kernel holds them in
registers (schedule-rows). A reader may read it in another shape. MLIR's fusion takes what one operator reads; what
elementwise operators alone read is of one kernel with them (shared_elements.py), unless it only repeats a smaller
tensor, such as numbers of rows of which each column is read: that is not written.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.planning.kernel_cost import DEAR
from kitsune_mlir.traffic import tensor_bytes

from .recomputed_elements import is_arithmetic

_FEWER = 2  # times as many elements there are as are repeated
MOST_WORK = 24  # instructions of an element that are worth it


def repeat_elements(main: ir.Operation) -> bool:
    """Gives the readers of such operators of @main one each; whether there were any."""
    found = False
    for op in walk(main, "linalg.generic"):
        readers = list(op.results[0].uses) if len(op.results) == 1 else []
        shaped = [use for reader in readers for use in _uses_in_any_shape(reader)]
        is_worth_it = len(shaped) > 1 and _is_worth_it(op, len(shaped)) and _are_fused(shaped)
        if is_worth_it or _is_spread(op, shaped):
            for use in readers:
                _repeat_in_shape(op, use)
            found = True
    return found


def _is_spread(op: ir.Operation, shaped: list[ir.OpOperand]) -> bool:
    """Whether an operator gives each element of a smaller tensor several times, to operators that can do so."""
    s = rows.Structured(op)
    given = [inner.operation.name for inner in s.body.operations] == ["linalg.yield"] and s.inputs == 1
    if not given or "reduction" in s.iterators or not rows.is_tensor(op.operands[0]):
        return False
    fewer = _FEWER * tensor_bytes(op.operands[0]) <= tensor_bytes(op.results[0])
    return fewer and len(shaped) > 1 and _can_be_fused(shaped)


def _uses_in_any_shape(use: ir.OpOperand) -> list[ir.OpOperand]:
    """A use, or those of the reshape that it is of."""
    return [*use.owner.results[0].uses] if use.owner.name in rows.RESHAPES else [use]


def _repeat_in_shape(op: ir.Operation, use: ir.OpOperand) -> None:
    """Gives what uses an operator's result, perhaps in another shape, one of its own."""
    for reader in _uses_in_any_shape(use):
        with ir.InsertionPoint(reader.owner):
            value = op.clone().results[0]
            if use.owner.name in rows.RESHAPES:
                reshape = use.owner.clone()
                reshape.operands[0] = value
                value = reshape.results[0]
            reader.owner.operands[reader.operand_number] = value


def _is_worth_it(op: ir.Operation, readers: int) -> bool:
    s = rows.Structured(op)
    if not s.is_elementwise() or list(s.body.arguments[s.inputs].uses):
        return False
    kind = ir.RankedTensorType(op.results[0].type)
    if s.inputs and kind.rank > 1 and kind.is_dynamic_dim(kind.rank - 1):
        return sum(DEAR.get(one.operation.name, 1) for one in s.body.operations) <= MOST_WORK
    return _is_cheap(op, readers)


def _is_cheap(op: ir.Operation, readers: int) -> bool:
    """Whether an elementwise operator is arithmetic whose operands are read by so many others sooner than by it, and
    what it gives by them."""
    s = rows.Structured(op)
    if not is_arithmetic(s):
        return False
    read = sum(tensor_bytes(value) for value in s.given if rows.is_tensor(value))
    return (readers - 1) * read <= (readers + 1) * tensor_bytes(op.results[0])


def _are_fused(readers: list[ir.OpOperand]) -> bool:
    """Whether what operators read can be put into them, and one of them sums it."""
    return _can_be_fused(readers) and any("reduction" in rows.Structured(use.owner).iterators for use in readers)


def _can_be_fused(readers: list[ir.OpOperand]) -> bool:
    """Whether operators, each once, are such that what they read can be put into them."""
    owners = [use.owner.operation for use in readers]
    if len(set(owners)) < len(owners) or any(op.name != "linalg.generic" for op in owners):
        return False
    return all(use.operand_number < rows.Structured(use.owner).inputs for use in readers)
