"""Rows of most of a tensor, as those of all tokens but the last are that a model of language is trained with: what goes
row by row is computed of all rows, where the tensor lies, and results are taken of the rows that are wanted.

    %s = slice(%x, 1, 0, T - 1)        [B, T - 1, C]      %v = view(%x, [B T, C])
    %v = view(clone(%s), [B (T - 1), C])                  %y = sum(exp(%v), 1)
    %y = sum(exp(%v), 1)                                  %z = slice(view(%y, [B, T]), 1, 0, T - 1)

A gradient of the rows that is written into zeros is chosen instead: there are zeros in the rows that nobody asked for.
Otherwise the rows, which lie in pieces, would be copied, and their gradients twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from .chosen_elements import number_of
from .graph_values import bounds_of, call, value_of
from .shapes import are_known

aten, prims = torch.ops.aten, torch.ops.prims

_FEW = 16  # numbers of a row that may be moved for it
_CASTS = (aten.clone.default, aten.alias.default, aten._to_copy.default, prims.convert_element_type.default)
_REDUCTIONS = (aten.sum.dim_IntList, aten.amax.default, aten.amin.default, aten.mean.dim, aten.argmax.default)
_SQUEEZES = (aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, prims.squeeze.default)


@dataclass(frozen=True)
class Rows:
    """Rows [first, last) along dimension `dim` of the leading sizes `sizes`, taken as one dimension."""

    sizes: tuple[int, ...]
    dim: int
    first: int
    last: int

    @property
    def taken(self) -> list[int]:
        return [self.last - self.first if d == self.dim else size for d, size in enumerate(self.sizes)]

    @property
    def count(self) -> int:
        return math.prod(self.taken)


def compute_whole_rows(graph: Graph) -> None:
    """Changes a functional graph of aten operators, whose nodes carry fake values, in place."""
    found: dict[Rows, dict[Node, tuple[Node, list[Node]]]] = {}
    for node in graph.find_nodes(op="call_function", target=aten.view.default):
        if (entry := _entry(node)) is not None:
            found.setdefault(entry[0], {})[node] = entry[1:]
    for rows, entries in found.items():
        _Whole(graph, rows, entries).run()
    graph.eliminate_dead_code()


def _entry(view: Node) -> tuple[Rows, Node, list[Node]] | None:
    """The rows that a view has one below the other, the tensor that has them and others, and what is done between."""
    between, node = [], view.args[0]
    while node.op == "call_function" and node.target in _CASTS:
        between.append(node)
        node = node.args[0]
    if node.op != "call_function" or node.target is not aten.slice.Tensor or (len(node.args) > 4 and node.args[4] != 1):
        return None
    whole, taken, shape = node.args[0], node.meta["val"].shape, view.meta["val"].shape
    sizes, dim = whole.meta["val"].shape, (node.args[1] if len(node.args) > 1 else 0) % len(taken)
    if not are_known((*sizes, *taken, *shape)) or len(shape) < 2 or not shape[0]:
        return None
    merged = next((k for k in range(2, len(taken)) if list(taken[k:]) == list(shape[1:])), 0)
    start, end = (*node.args[2:4], None, None)[:2]
    bounds = bounds_of(start, end, sizes[dim])
    if bounds is None or not 0 < dim < merged or math.prod(sizes[:dim]) == 1 or 8 * sizes[dim] > 9 * taken[dim]:
        return None
    if math.prod(shape[1:]) <= _FEW:
        return None
    return Rows(tuple(sizes[:merged]), dim, *bounds), whole, between


def _has_rows(value: object, count: int) -> bool:
    """Whether a value is a tensor of known sizes, the first of which is this one."""
    if not isinstance(value, torch.Tensor) or not are_known(value.shape):
        return False
    return value.dim() > 0 and value.shape[0] == count


def _keeps_rows(reduction: Node) -> bool:
    """Whether a reduction is over other dimensions than the first."""
    dims = reduction.args[1] if len(reduction.args) > 1 else None
    dims = [dims] if isinstance(dims, int) else dims
    return bool(dims) and all(d % reduction.args[0].meta["val"].dim() for d in dims)


class _Whole:
    """Rows of tensors that lie alike. `made` holds what becomes of each node that goes row by row."""

    def __init__(self, graph: Graph, rows: Rows, entries: dict[Node, tuple[Node, list[Node]]]):
        self.graph, self.rows, self.entries = graph, rows, entries
        self.own: set[Node] = set()
        self.made: dict[Node, Node] = {}
        self.pointwise: dict[Node, bool] = {}

    def run(self) -> None:
        order = list(self.graph.nodes)
        for node in order:
            if node in self.entries or self._goes_by_rows(node):
                self.own.add(node)
        scatters = {node: found for node in order if (found := self._written(node)) is not None}
        if not all(self._may_leave(node, scatters) for node in self.own):
            return
        for node in order:
            if node in self.own:
                with self.graph.inserting_before(node):
                    self.made[node] = self._remade(node)
        for node, (source, casts) in scatters.items():
            with self.graph.inserting_before(node):
                found = self._chosen(node, self.made[source], casts)
            node.replace_all_uses_with(found)
        for node in order:
            leaving = [user for user in node.users if user not in self.own and user not in self.made.values()]
            if node not in self.own or not leaving or not self._is_few(node):
                continue
            with self.graph.inserting_before(node):
                taken = self._taken(self.made[node], node)
            node.replace_all_uses_with(taken, lambda user, leaving=leaving: user in leaving)

    def _goes_by_rows(self, node: Node) -> bool:
        """Whether each row of the node's is of the same row of operands, or of what all rows have alike."""
        value = node.meta.get("val")
        given = [operand for operand in node.all_input_nodes if operand in self.own]
        if node.op != "call_function" or not given or not _has_rows(value, self.rows.count):
            return False
        first = node.args[0]
        rank = first.meta["val"].dim() if isinstance(first, Node) else 0
        if node.target in _REDUCTIONS:
            return _keeps_rows(node)
        if node.target in _SQUEEZES:
            dims = [node.args[1]] if isinstance(node.args[1], int) else node.args[1]
            return all(d % (rank + (node.target is aten.unsqueeze.default)) for d in dims)
        if node.target is aten.gather.default:
            return first in self.own and node.args[1] % rank != 0 and self._fits(node.args[2], value.dim())
        if node.target in _CASTS:
            return True
        return self._is_pointwise(node)

    def _is_pointwise(self, node: Node) -> bool:
        """Whether a node is elementwise, of operands that fit."""
        if node not in self.pointwise:
            found = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags
            rank = node.meta["val"].dim() if found else 0
            self.pointwise[node] = found and all(self._fits(operand, rank) for operand in node.all_input_nodes)
        return self.pointwise[node]

    def _fits(self, operand: Node, rank: int) -> bool:
        """Whether an operand of rows is one of these, has rows that may be moved or made again, or is the same for all
        rows."""
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return False
        if operand in self.own or value.dim() < rank or _has_rows(value, 1):
            return operand not in self.own or value.dim() == rank
        if not _has_rows(value, self.rows.count):
            return False
        return self._is_few(operand) or number_of(operand) is not None or self._is_pointwise(operand)

    def _is_sum_of_made(self, operand: Node) -> bool:
        """Whether an operand, of few numbers, is of rows of all, or of such as can be made."""
        if operand.op != "call_function" or operand.target not in _REDUCTIONS or not _keeps_rows(operand):
            return False
        rows = operand.args[0]
        return not self._is_few(rows) and (rows in self.own or self._is_pointwise(rows))

    def _is_few(self, node: Node) -> bool:
        return math.prod(node.meta["val"].shape[1:]) <= _FEW

    def _may_leave(self, node: Node, scatters: dict[Node, tuple[Node, list[Node]]]) -> bool:
        """Whether what reads the node goes by rows too, or takes few numbers, or writes it among zeros."""
        if self._is_few(node):
            return True
        written = {source for source, _ in scatters.values()}
        leaving = [user for user in node.users if user not in self.own]
        return not leaving or (node in written and len(leaving) == 1)

    def _written(self, node: Node) -> tuple[Node, list[Node]] | None:
        """The rows that a node writes among zeros, where they were, and the conversions between."""
        if node.op != "call_function" or node.target is not aten.slice_scatter.default or len(node.args) < 5:
            return None
        into, source, dim, first, last = node.args[:5]
        casts: list[Node] = []
        while source.target in _CASTS and len(source.users) == 1:
            casts.append(source)
            source = source.args[0]
        if source.target is not aten.view.default or len(source.users) > 1 or source.args[0] not in self.own:
            return None
        rows, size, found = self.rows, node.meta["val"].shape[dim], source.args[0]
        wanted = [*rows.taken, *found.meta["val"].shape[1:]]
        same = dim % len(wanted) == rows.dim and bounds_of(first, last, size) == (rows.first, rows.last)
        same = same and list(source.meta["val"].shape) == wanted and size == rows.sizes[rows.dim]
        return (found, casts) if same and number_of(into) == 0 and len(node.args) == 5 else None

    def _remade(self, node: Node) -> Node:
        """The node of all rows, at the insertion point."""
        count = math.prod(self.rows.sizes)
        if node in self.entries:
            whole, between = self.entries[node]
            for cast in reversed(between):
                whole = call(self.graph, cast.target, (whole, *cast.args[1:]), node, **cast.kwargs)
            return call(self.graph, aten.view.default, (whole, [count, *node.meta["val"].shape[1:]]), node)
        rank = node.meta["val"].dim()
        operands = {operand: self._of_all(operand, rank, node) for operand in node.all_input_nodes}
        made = self.graph.node_copy(node, lambda operand: operands[operand])
        made.meta = {key: value for key, value in node.meta.items() if key != "tensor_meta"}
        made.meta["val"] = value_of(made)
        return made

    def _of_all(self, operand: Node, rank: int, origin: Node) -> Node:
        """An operand with all rows: what stands in those that are not wanted is of no matter."""
        value = operand.meta["val"]
        if operand in self.made:
            return self.made[operand]
        if value.dim() < rank or not _has_rows(value, self.rows.count):
            return operand
        rows, rest, count = self.rows, list(value.shape[1:]), math.prod(self.rows.sizes)
        if (number := number_of(operand)) is not None:
            kind = {"dtype": value.dtype, "device": value.device}
            return call(self.graph, aten.full.default, ([count, *rest], number), origin, **kind)
        if not self._is_few(operand) or self._is_sum_of_made(operand):
            self.made[operand] = self._remade(operand)
            return self.made[operand]
        apart = call(self.graph, aten.view.default, (operand, [*rows.taken, *rest]), origin)
        around = [0, 0] * (len(rest) + len(rows.sizes) - 1 - rows.dim)
        around += [rows.first, rows.sizes[rows.dim] - rows.last]
        wider = call(self.graph, aten.constant_pad_nd.default, (apart, around), origin)
        return call(self.graph, aten.view.default, (wider, [count, *rest]), origin)

    def _taken(self, whole: Node, node: Node) -> Node:
        """The rows that are wanted of all."""
        rows, rest = self.rows, list(node.meta["val"].shape[1:])
        apart = call(self.graph, aten.view.default, (whole, [*rows.sizes, *rest]), node)
        taken = call(self.graph, aten.slice.Tensor, (apart, rows.dim, rows.first, rows.last), node)
        dense = call(self.graph, aten.clone.default, (taken,), node, memory_format=torch.contiguous_format)
        return call(self.graph, aten.view.default, (dense, [rows.count, *rest]), node)

    def _chosen(self, node: Node, whole: Node, casts: Sequence[Node]) -> Node:
        """All rows, with zeros where none are wanted, in the shape of the node that wrote them."""
        rows, value, shape = self.rows, whole.meta["val"], node.meta["val"].shape
        along = [size if d == rows.dim else 1 for d, size in enumerate(rows.sizes)]
        places = call(self.graph, aten.arange.start_step, (0, along[rows.dim]), node, device=value.device)
        ends = (
            call(self.graph, aten.ge.Scalar, (places, rows.first), node),
            call(self.graph, aten.lt.Scalar, (places, rows.last), node),
        )
        wanted = call(
            self.graph, aten.view.default, (call(self.graph, aten.logical_and.default, ends, node), along), node
        )
        wanted = call(self.graph, aten.expand.default, (wanted, list(rows.sizes)), node)
        wanted = call(self.graph, aten.clone.default, (wanted,), node, memory_format=torch.contiguous_format)
        wanted = call(self.graph, aten.view.default, (wanted, [-1] + [1] * (value.dim() - 1)), node)
        zero = call(self.graph, aten.scalar_tensor.default, (0,), node, dtype=value.dtype, device=value.device)
        found = call(self.graph, aten.where.self, (wanted, whole, zero), node)
        for cast in reversed(casts):
            found = call(self.graph, cast.target, (found, *cast.args[1:]), node, **cast.kwargs)
        return call(self.graph, aten.view.default, (found, list(shape)), node)
