"""Which elementwise operators become one loop, by MLIR's own pass: values behind calls keep what reads them apart.

    %1 = linalg.generic ins(%0) ... %999 = linalg.generic ins(%998)      // each of a few instructions

Fused to one loop, a thousand operators are a block of many thousand instructions, for which LLVM and ptxas take many
times as long as for the same instructions in several loops; a tensor between two costs less than they compute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from kitsune_mlir import rows
from kitsune_mlir.mlir import func, ir, replace_op, walk

MOST_FUSED = 2000  # instructions for one element of a loop
_MARK = "kitsune.apart"


def ends_of_loops(function: ir.Operation) -> list[ir.Value]:
    """The results of elementwise operators of a function that loops end with: what those that are fused with an
    operator compute for an element is too much to be computed with what reads it."""
    found: list[ir.Value] = []
    work: dict[ir.Value, int] = {}
    for op in walk(function, "linalg.generic"):
        s = rows.Structured(op)
        own = len(s.body.operations) - 1
        before = {value: work[value] for value in op.operands if value in work}
        while before and own + sum(before.values()) > MOST_FUSED:
            largest = max(before, key=before.__getitem__)
            found.append(largest)
            del before[largest], work[largest]
        if s.is_elementwise() and len(op.results) == 1 and len(list(op.results[0].uses)) == 1:
            work[op.results[0]] = own + sum(before.values())
    return found


@contextlib.contextmanager
def behind_calls(main: ir.Operation, made: Sequence[ir.Value]) -> Iterator[None]:
    """Within the `with` no operator of a function is fused with what reads these values."""
    for number, value in enumerate(made):
        _behind_call(value, f"{_MARK}_{ir.StringAttr(main.attributes['sym_name']).value}_{number}", main)
    yield
    for op in walk(main, "func.call"):
        if ir.FlatSymbolRefAttr(op.attributes["callee"]).value.startswith(_MARK):
            replace_op(op, op.operands[0])
    for op in walk(main.parent, "func.func"):
        if ir.StringAttr(op.attributes["sym_name"]).value.startswith(_MARK):
            op.erase()


def _behind_call(value: ir.Value, name: str, main: ir.Operation) -> None:
    uses = list(value.uses)
    with main.location, ir.InsertionPoint(main):
        kind = ir.FunctionType.get([value.type], [value.type])
        func.FuncOp(name, kind, visibility="private")
    with value.owner.location, ir.InsertionPoint.after(value.owner):
        call = func.CallOp([value.type], name, [value])
    for use in uses:
        use.owner.operands[use.operand_number] = call.results[0]
