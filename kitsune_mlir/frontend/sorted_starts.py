"""Sorts of which only the first elements of each row are read:

    slice(getitem(sort(%x, 2), 0), 2, 0, 32)  =>  getitem(topk(%x, 32, 2, False), 0)

So the neighbours of a point, or the words of a nucleus, are found as people write them. Equal elements stay in their
order in both (sorts.py).
"""

from __future__ import annotations

import torch
from torch.fx import Node

aten = torch.ops.aten


def taken(node: Node) -> int | None:
    """How many of the first elements of rows are read of such a sort; None for any other node."""
    if node.target not in (aten.sort.default, aten.sort.stable):
        return None
    values = node.meta["val"][0]
    dim = argument(node, "dim", 1 if node.target is aten.sort.default else None, -1) % max(values.dim(), 1)
    size = values.shape[dim] if values.dim() else None
    ends = [_end(reader, dim) for user in node.users for reader in user.users]
    if not isinstance(size, int) or not ends or any(end is None or not 0 < end < size for end in ends):
        return None
    return max(ends)


def take(node: Node, count: int) -> None:
    """Puts what is read of such a sort in its place."""
    is_default = node.target is aten.sort.default
    dim = argument(node, "dim", 1 if is_default else None, -1)
    largest = argument(node, "descending", 2 if is_default else None, False)
    node.target, node.args, node.kwargs = aten.topk.default, (node.args[0], count, dim, largest), {}


def argument(node: Node, name: str, place: int | None, default: int) -> int:
    """What a sort is given by name, or at its place, where it has one."""
    given = node.args[place] if place is not None and len(node.args) > place else default
    return node.kwargs.get(name, given)


def _end(reader: Node, dim: int) -> int | None:
    """Where a slice of the first elements along a dimension ends."""
    if reader.target is not aten.slice.Tensor or len(reader.args) != 4:
        return None
    x, own, start, end = reader.args
    is_first = own % x.meta["val"].dim() == dim and start in (0, None) and isinstance(end, int)
    return end if is_first else None
