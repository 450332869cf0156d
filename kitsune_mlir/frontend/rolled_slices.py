"""Two slices of a tensor that are its parts in the other order are that tensor rolled, as grids with no edges shift:

    %1 = slice(%x, 1, 1, %size)                   =>      %3 = rolled(%x, [-1], [1])
    %2 = slice(%x, 1, 0, 1)
    %3 = cat([%1, %2], 1)

Elements that are rolled along dimensions of open sizes are read where they lie, also along several at once, where a
concatenation of such sizes is a copy for each of its parts. Of known sizes maps read its parts where they lie
(passes/rolled_reads.py).
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .own_operators import ROLLED

aten = torch.ops.aten


def roll_slices(graph: Graph) -> None:
    """Puts `kitsune.rolled` in the place of such concatenations, one where several stand one behind the other."""
    for joined in graph.find_nodes(op="call_function", target=aten.cat.default):
        found = _rolled(joined)
        if found is None:
            continue
        x, dim, shift = found
        shifts, dims = [shift], [dim]
        if x.op == "call_function" and x.target is ROLLED and dim not in x.args[2]:
            shifts, dims = [*x.args[1], shift], [*x.args[2], dim]
            x = x.args[0]
        with graph.inserting_before(joined):
            made = graph.call_function(ROLLED, (x, shifts, dims))
        made.meta = dict(joined.meta)
        joined.replace_all_uses_with(made)
    graph.eliminate_dead_code()


def _rolled(joined: Node) -> tuple[Node, int, int] | None:
    """The tensor whose end and begin are joined, the dimension, and by how many elements it is rolled up; None for any
    other concatenation, and where the numbers do not say that each element is there once whatever the size is."""
    parts, dim = joined.args[0], joined.args[1] if len(joined.args) > 1 else joined.kwargs.get("dim", 0)
    if len(parts) != 2:
        return None
    dim %= joined.meta["val"].dim()
    behind, before = (_slice(part, dim) for part in parts)
    if behind is None or before is None or behind[0] is not before[0]:
        return None
    (x, cut, end), (_, begin, last) = behind, before
    size = x.meta["val"].shape[dim]
    if isinstance(size, int) or not statically_known_true(begin == 0) or not statically_known_true(end == size):
        return None
    if not statically_known_true(cut == last):
        return None
    for shift in (-cut, size - cut):
        number = shift if isinstance(shift, int) else _constant(shift)
        if number is not None and statically_known_true(size >= abs(number)):
            return x, dim, number
    return None


def _slice(node: Node, dim: int) -> tuple[Node, Any, Any] | None:
    """What a node is a slice of along this dimension, where that begins, and where it ends; None for any other."""
    if node.op != "call_function" or node.target is not aten.slice.Tensor:
        return None
    x, own, begin, end, step = (*node.args, *(None, 0, None, None, 1)[len(node.args) :])
    size = x.meta["val"].shape[own]
    if own % x.meta["val"].dim() != dim or step != 1:
        return None
    begin, end = (at.meta["val"] if isinstance(at, Node) else at for at in (begin, end))
    begin = begin or 0 if isinstance(begin, int | None) else begin
    if end is None or isinstance(end, int) and end == sys.maxsize:
        end = size
    return x, *(size + at if isinstance(at, int) and at < 0 else at for at in (begin, end))


def _constant(number: torch.SymInt) -> int | None:
    """A number that is computed of sizes and is the same whatever these are."""
    expr = number.node.expr
    return int(expr) if expr.is_Integer else None
