"""`as_strided` says where elements lie in memory, as torch has it: it becomes an index of the elements in the order of
memory, which after a transpose is not that of the dimensions. torch-mlir takes them in the order of the dimensions, of
whatever tensor it is a view of.

    %t = transpose(%x, 0, 1)                             %f = view(permute(%t, [1, 0, 2]), [-1])
    %y = as_strided(%t, [8, 7, 4, 8], [8, 128, 64, 1])   =>  %y = index(%f, 8 i + 128 j + 64 k + l)
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from .graph_values import call, is_written
from .shapes import line_along

aten = torch.ops.aten


def reads_by_strides(node: Node) -> bool:
    """Whether it is such a node, of known sizes, or of open ones of a tensor that lies row by row. An index is a copy,
    which what is written later would not reach."""
    if not _is_strided(node) or is_written([node], node):
        return False
    return _is_known(node) or (node.args[0].meta["val"].is_contiguous() and isinstance(_offset(node), int))


def asks_stride(node: Node) -> bool:
    """Whether it asks a tensor that lies row by row for a stride that is open, as such a node may be given it."""
    asks = node.op == "call_function" and node.target is aten.sym_stride.int
    return asks and node.args[0].meta["val"].is_contiguous()


def by_sizes(node: Node) -> Node | int:
    """The stride as the product of the sizes behind its dimension."""
    source, dim = node.args
    value, found = source.meta["val"], 1
    with node.graph.inserting_before(node):
        for behind in range(dim % value.dim() + 1, value.dim()):
            size = value.shape[behind]
            if isinstance(size, torch.SymInt):
                size = call(node.graph, aten.sym_size.int, (source, behind), node)
            one = isinstance(found, int) and found == 1
            found = size if one else call(node.graph, operator.mul, (found, size), node)
    return found


def reaches_beyond(node: Node) -> bool:
    """Whether a node reads, or may read, elements that are none of the tensor that it is given."""
    if not _is_strided(node):
        return False
    value, size, stride = node.args[0].meta["val"], node.args[1], node.args[2]
    if not _is_known(node):
        return not value.is_contiguous()
    last = _offset(node) + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return 0 not in size and (_order(value) is None or not 0 <= _offset(node) <= last < value.numel())


def by_index(node: Node) -> Node:
    """The index that takes its place."""
    source, size, stride = node.args[:3]
    value, graph = source.meta["val"], node.graph
    whole = {"dtype": torch.int64, "device": value.device}
    with graph.inserting_before(node):
        if _is_known(node):
            source = call(graph, aten.permute.default, (source, _order(value)), node)
        flat = call(graph, aten.reshape.default, (source, [-1]), node)
        places = call(graph, aten.full.default, ([1] * len(size), _offset(node)), node, **whole)
        for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
            if step == 0:
                continue
            along = call(graph, aten.arange.default, (extent,), node, **whole)
            if step != 1:
                along = call(graph, aten.mul.Tensor, (along, step), node)
            along = call(graph, aten.view.default, (along, line_along(axis, len(size))), node)
            places = call(graph, aten.add.Tensor, (places, along), node)
        places = call(graph, aten.expand.default, (places, list(size)), node)
        return call(graph, aten.index.Tensor, (flat, [places]), node)


def _is_strided(node: Node) -> bool:
    return node.op == "call_function" and node.target is aten.as_strided.default


def _is_known(node: Node) -> bool:
    value = node.args[0].meta["val"]
    numbers = (*value.shape, *value.stride(), value.storage_offset(), *node.args[1], *node.args[2])
    return all(isinstance(number, int) for number in numbers)


def _offset(node: Node) -> Any:
    """Where it begins, in elements behind the first of the tensor; a node, or a symbol, where that is open."""
    given = node.args[3] if len(node.args) > 3 else node.kwargs.get("storage_offset")
    if given is None or isinstance(given, Node):
        return 0 if given is None else given
    return given - node.args[0].meta["val"].storage_offset()


def _order(value: torch.Tensor) -> list[int] | None:
    """The dimensions as they lie in memory, if they fill it without gaps."""
    order = sorted(range(value.dim()), key=lambda d: (value.stride(d), value.shape[d]), reverse=True)
    return order if value.permute(order).is_contiguous() else None
