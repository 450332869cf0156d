"""What is made of rows that a mask selects (selections.py), along the dimension that they are of: sums, norms, maxima
and softmax of all rows with a neutral number for those that are left out; how far the others are from their mean."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, Node

from .row_wise import DIM, REDUCED_ALONG

aten = torch.ops.aten

_DEVIATIONS = {aten.std.default, aten.std.dim, aten.std.correction}
SPREADS = _DEVIATIONS | {aten.var.default, aten.var.dim, aten.var.correction}
_WITH_PLACES = {aten.max.dim, aten.min.dim}


def dims_of(node: Node) -> list[int] | None:
    """The dimensions along which an operator of ALONG goes; None for all of them."""
    if node.target in (aten.std.default, aten.var.default):
        return None
    place = DIM.get(node.target, 1)
    argument = node.target._schema.arguments[place]
    dims = node.args[place] if len(node.args) > place else node.kwargs.get(argument.name, argument.default_value)
    if dims is None or dims == []:
        return None
    return [dim % node.args[0].meta["val"].dim() for dim in (dims if isinstance(dims, list | tuple) else [dims])]


def neutral_of(node: Node) -> float | None:
    """The number that changes nothing of what an operator makes along selected rows, where there is one. Places would
    be those among all rows."""
    if node.target is aten.linalg_vector_norm.default:
        order = node.args[1] if len(node.args) > 1 else 2
        return 0.0 if order >= 0 else math.inf
    if node.target in _WITH_PLACES and any(user.args[1] and user.users for user in node.users):
        return None
    return REDUCED_ALONG.get(node.target)


def spread(graph: Graph, node: Node, dims: list[int] | None, missing: Node) -> Node:
    """A variance or a standard deviation, at the insertion point, of the rows that are selected. `missing` says in the
    form of the operand which are not."""
    value = node.args[0].meta["val"]
    dims = list(range(value.dim())) if dims is None else dims
    names = [argument.name for argument in node.target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    keepdim, correction = given.get("keepdim", False), given.get("correction", int(given.get("unbiased", True)))
    kind = torch.promote_types(value.dtype, torch.float32)

    def call(target: Any, *args: Any) -> Node:
        return graph.call_function(target, args)

    def total(x: Node, keepdim: bool) -> Node:
        return call(aten.sum.dim_IntList, call(aten.masked_fill.Scalar, x, missing, 0), dims, keepdim)

    x = call(aten.to.dtype, node.args[0], kind)
    count = total(call(aten.ones_like.default, x), True)
    x = call(aten.sub.Tensor, x, call(aten.div.Tensor, total(x, True), count))
    squares = total(call(aten.mul.Tensor, x, x), keepdim)
    count = count if keepdim else total(call(aten.ones_like.default, x), False)
    correction = 1 if correction is None else correction
    free = call(aten.clamp_min.default, call(aten.sub.Tensor, count, correction), 0)
    found = call(aten.div.Tensor, squares, free)
    found = call(aten.sqrt.default, found) if node.target in _DEVIATIONS else found
    return call(aten.to.dtype, found, value.dtype)


def neutral_of_scatter(reduce: str, dtype: torch.dtype) -> float | None:
    """The number that changes nothing where it is scattered to, if there is one."""
    if reduce == "sum":
        return 0
    if reduce not in ("amax", "amin"):
        return None
    if dtype.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    limits = torch.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max
