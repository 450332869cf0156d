"""What is part of several concatenations is written to each of them by the operator that computes it.

    %a = linalg.generic ...                          // elementwise
    %x = tensor.concat dim(1) %a, %b
    %y = tensor.concat dim(1) %a, %c
  =>
    %a:2 = linalg.generic ...                        // yields the same twice
    %x = tensor.concat dim(1) %a#0, %b
    %y = tensor.concat dim(1) %a#1, %c

So it is with the gradients of a GRU cell's gates, by its inputs and by its state, of which two are the same. A result
has one place in memory; the second concatenation would be a copy.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.generics import cloned, generic
from kitsune_mlir.mlir import ir, tensor, walk

_MOST = 8  # results of an operator


def write_to_each(main: ir.Operation) -> None:
    """Rewrites such operators of @main, of sizes that are known."""
    for op in walk(main, "linalg.generic"):
        s = rows.Structured(op)
        uses = [
            [use for use in result.uses if use.owner.name == "tensor.concat"][1:]
            for result in op.results
            if ir.RankedTensorType(result.type).has_static_shape
        ]
        count = sum(map(len, uses))
        if not count or set(s.iterators) != {"parallel"} or len(op.results) + count > _MOST:
            continue
        if len(uses) == len(op.results) and not any(list(a.uses) for a in list(s.body.arguments)[s.inputs :]):
            _repeat(op, s, [number for number, own in enumerate(uses) for _ in own])


def _repeat(op: ir.Operation, s: rows.Structured, again: list[int]) -> None:
    """Gives an operator the results of these numbers once more, each for the next concatenation that has it."""
    operands, count = list(op.operands), len(op.results)
    inputs, starts = operands[: s.inputs], operands[s.inputs :]

    def body(*arguments: ir.Value) -> list[ir.Value]:
        found = cloned(s.body, list(arguments[: s.inputs + count]))
        return [*found, *(found[number] for number in again)]

    with op.location, ir.InsertionPoint(op):
        kinds = [ir.RankedTensorType(op.results[number].type) for number in again]
        starts += [tensor.empty(kind.shape, kind.element_type) for kind in kinds]
        maps = [*s.maps, *(s.maps[s.inputs + number] for number in again)]
        made = generic(inputs, starts, maps, s.iterators, body)
    results = list(made.results)
    for number, own in zip(again, results[count:], strict=True):
        use = next(use for use in op.results[number].uses if use.owner.name == "tensor.concat")
        use.owner.operands[use.operand_number] = own
    for old, new in zip(op.results, results[:count], strict=True):
        old.replace_all_uses_with(new)
    op.erase()
