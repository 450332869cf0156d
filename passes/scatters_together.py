"""Scatters by the same numbers stand one after another where neither needs the other, for one kernel can do several.

    %a = tm_tensor.scatter ins(%x, %to) ...                 %a = tm_tensor.scatter ins(%x, %to) ...
    %m = linalg.generic ins(%a) ...                         %y = linalg.generic ins(%x) ...
    %y = linalg.generic ins(%x) ...                   =>    %b = tm_tensor.scatter ins(%y, %to) ...
    %b = tm_tensor.scatter ins(%y, %to) ...                 %m = linalg.generic ins(%a) ...

Several aggregations of one layer's messages (PNA) are so: the mean divides a sum before the largest is taken.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_buffers import behind
from kitsune_mlir.mlir import ir, walk

from .row_scatters import SCATTER


def bring_scatters_together(main: ir.Operation) -> None:
    """Moves scatters of @main, and what they need, up to the one before by the same numbers."""
    block = main.regions[0].blocks[0]
    last: list[ir.Operation] = []  # of each set of numbers and shape of updates
    for op in walk(main, SCATTER):
        if op.block != block:
            continue
        before = next((other for other in last if _are_alike(other, op)), None)
        if before is not None:
            last.remove(before)
            _follow(op, before)
        last.append(op)


def _are_alike(a: ir.Operation, b: ir.Operation) -> bool:
    return a.operands[1] == b.operands[1] and rows.shape_of(a.operands[0]) == rows.shape_of(b.operands[0])


def _follow(op: ir.Operation, before: ir.Operation) -> None:
    """Moves an operation to right behind one before it, if it does not need that."""
    used, needed = {hash(value) for value in rows.used_values(op)}, []
    for one in reversed(behind(before, op)):
        if any(hash(result) in used for result in one.results):
            needed.append(one)
            used |= {hash(value) for value in rows.used_values(one)}
    if hash(before.results[0]) in used:
        return
    for one in (*reversed(needed), op):
        one.move_after(before)
        before = one
