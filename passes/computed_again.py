"""What is summed along lines of an open length and read by element besides, such as a softmax's exponentials: both
readers compute it.

    %d = linalg.generic ... ins(%x, %max)                     %d = linalg.generic ... ins(%x, %max)
    %e = linalg.generic ... ins(%d)                           %e = linalg.generic ... ins(%d)
    %s = linalg.generic {... "reduction"} ins(%e)      =>     %s = linalg.generic {... "reduction"} ins(%e)
    %y = linalg.generic ... ins(%e, %s)                       %c = ...          // as %d
                                                              %f = ... ins(%c)  // as %e
                                                              %y = linalg.generic ... ins(%f, %s)

Each then becomes part of its reader. Lines of a known length are a row group's, whose kernel holds them in registers
(schedule-rows); those of an open length would be written, by a kernel of its own, and read twice.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.planning.kernel_cost import DEAR

MOST_WORK = 24  # instructions of an element that are worth it


def compute_again(main: ir.Operation) -> None:
    """Rewrites such operators of @main."""
    for op in walk(main, "linalg.generic"):
        if not _is_elementwise(op):
            continue
        readers = [use for use in op.results[0].uses if use.owner.name == "linalg.generic"]
        others = [use for use in readers if not _reduces(use.owner.operation)]
        if 0 < len(others) < len(readers) == len(list(op.results[0].uses)) and _work(op) <= MOST_WORK:
            for use in others:
                use.owner.operands[use.operand_number] = _again(op)


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether it computes the elements of one tensor, whose lines have an open length, of others."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    kind, s = ir.RankedTensorType(op.results[0].type), rows.Structured(op)
    open_ = kind.rank > 1 and kind.is_dynamic_dim(kind.rank - 1)
    return open_ and s.inputs > 0 and s.is_elementwise() and not list(list(s.body.arguments)[-1].uses)


def _reduces(op: ir.Operation) -> bool:
    return "reduction" in rows.Structured(op).iterators


def _before(op: ir.Operation) -> list[tuple[int, ir.Operation]]:
    """The operators that compute an operator's operands for it alone, each with the operand's number."""
    made = enumerate(map(rows.producer, list(op.operands)[: rows.Structured(op).inputs]))
    return [(n, one) for n, one in made if one and _is_elementwise(one) and len(list(one.results[0].uses)) == 1]


def _work(op: ir.Operation) -> int:
    own = sum(DEAR.get(inner.operation.name, 1) for inner in op.regions[0].blocks[0].operations) - 1
    return own + sum(_work(one) for _, one in _before(op))


def _again(op: ir.Operation) -> ir.Value:
    """What an operator gives, computed once more in front of it."""
    before = {number: _again(one) for number, one in _before(op)}
    with ir.InsertionPoint(op):
        copy = op.clone()
    for number, value in before.items():
        copy.operands[number] = value
    return copy.results[0]
