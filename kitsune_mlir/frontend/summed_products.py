"""Layers of two operands whose results are added become one layer of both operands side by side.

Before, as cells of recurrent networks have their input and their state, and graph layers a node and its neighbours:

    %a = addmm(%b0, %x, permute(%w0));  %b = addmm(%b1, %h, permute(%w1));  %y = add(%a, %b)

After, with weights that are put together once, when the program is loaded:

    %y = addmm(add(%b0, %b1), cat([%x, %h], 1), permute(cat([%w0, %w1], 1)))

So no result is written to be read again, and sums are rounded once. Where results are taken apart by columns, and some
of the parts are added, as two of three in a GRU, the others are columns of their own, with zeros for the other operand:
where that is infinite they are NaN, as the sums beside them are infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from .graph_values import call
from .moved_dimensions import keeps_order, same_shape, view

aten = torch.ops.aten

_CHUNK = 64  # columns of an operand, of which kernels that read several side by side take a multiple
_LEAST_ROWS = 16  # fewer are sums over rows, which gain nothing
_TYPES = (torch.bfloat16, torch.float16)  # products of f32 in pieces take longer for zeros, and are copied first


def sum_products(graph: Graph, weights: set[Node]) -> None:
    """Rewrites a graph that is taken apart into `mm` and `addmm`; `weights` are those of its placeholders that no call
    changes."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.add.Tensor and not node.kwargs:
            _join_whole(node, weights)
    for node in list(graph.nodes):
        if (first := _parts_of(node, weights)) is not None:
            _join_parts(first, weights)
    graph.eliminate_dead_code()


@dataclass(frozen=True)
class _Layer:
    """x (rows x k) times a weight (columns x k), and a bias for each column, perhaps."""

    product: Node
    operands: tuple[Node, ...]  # that x is, side by side
    weight: Node
    bias: Node | None

    @staticmethod
    def of(node: Any, weights: set[Node]) -> _Layer | None:
        """None for anything but a product with a weight that can be joined with another one."""
        if not isinstance(node, Node) or node.op != "call_function" or node.kwargs:
            return None
        if node.target not in (aten.mm.default, aten.addmm.default) or node.meta["val"].dtype not in _TYPES:
            return None
        *bias, x, weight = node.args
        rows = x.meta["val"].shape[0]
        if weight.op != "call_function" or weight.target is not aten.permute.default or weight.args[1] != [1, 0]:
            return None
        if not all(_is_weight(each, weights) for each in (weight.args[0], *bias)):
            return None
        if bias and bias[0].meta["val"].shape != node.meta["val"].shape[1:]:
            return None
        if isinstance(rows, int) and rows < _LEAST_ROWS:
            return None
        side_by_side = x.op == "call_function" and x.target is aten.cat.default and x.args[1:] == (1,)
        operands = tuple(x.args[0]) if side_by_side else (x,)
        widths = [each.meta["val"].shape[1] for each in operands]
        if any(not isinstance(width, int) or width % _CHUNK for width in widths):
            return None
        return _Layer(node, operands, weight.args[0], bias[0] if bias else None)

    @property
    def columns(self) -> int:
        return int(self.product.meta["val"].shape[1])


@dataclass(frozen=True)
class _Parts:
    """A layer, and the nodes that take equal parts of its columns, from left to right; nothing else reads it."""

    layer: _Layer
    parts: tuple[Node, ...]


def _is_weight(node: Node, weights: set[Node]) -> bool:
    """Whether a node is a weight, or made of weights by what this file makes of them."""
    if node.op == "placeholder":
        return node in weights
    made = node.op == "call_function" and node.target in (aten.cat.default, aten.add.Tensor, aten.zeros.default)
    return made and all(_is_weight(each, weights) for each in node.all_input_nodes)


def _only_end(product: Node) -> Node:
    """The last of the views of rows of all columns, each the only reader of the one before."""
    last, columns = product, product.meta["val"].shape[1:]
    while len(last.users) == 1:
        user = next(iter(last.users))
        if not keeps_order(user) or not same_shape(user.meta["val"].shape[-1:], columns):
            break
        last = user
    return last


def _product_of(end: Any) -> Any:
    """The product whose rows a node views, each view the only reader of what it views."""
    while isinstance(end, Node) and keeps_order(end):
        if len(end.args[0].users) > 1:
            return None
        end = end.args[0]
    return end


def _join_whole(total: Node, weights: set[Node]) -> None:
    """Two layers, each of which nothing but their sum reads."""
    ends = total.args
    if not all(isinstance(end, Node) and len(end.users) == 1 for end in ends) or ends[0] is ends[1]:
        return
    layers = [_Layer.of(_product_of(end), weights) for end in ends]
    first, second = layers
    if first is None or second is None or not _are_joined(first, second):
        return
    if not all(same_shape(end.meta["val"].shape, total.meta["val"].shape) for end in ends):
        return
    with total.graph.inserting_before(total):
        whole = _layer(first, second, lambda each: each)
        apart = view(whole, list(total.meta["val"].shape), ends[0])
    if apart is not None:
        total.replace_all_uses_with(apart)


def _are_joined(first: _Layer, second: _Layer) -> bool:
    """Whether two layers have the same rows and columns, of the same type, and are of different operands."""
    own, other = first.product.meta["val"], second.product.meta["val"]
    return same_shape(own.shape, other.shape) and own.dtype == other.dtype and first.operands != second.operands


def _parts_of(node: Node, weights: set[Node]) -> _Parts | None:
    """The parts of a layer, where it is taken apart into equal ones."""
    layer = _Layer.of(node, weights)
    if layer is None:
        return None
    end = _only_end(layer.product)
    if len(end.users) != 1 or (split := next(iter(end.users))).target is not aten.split_with_sizes.default:
        return None
    _, sizes, *axis = split.args
    if len(set(sizes)) > 1 or (axis[0] if axis else 0) not in (-1, end.meta["val"].dim() - 1):
        return None
    taken = {user.args[1]: user for user in split.users if user.target is getitem}
    return _Parts(layer, tuple(taken[n] for n in range(len(sizes)))) if len(taken) == len(sizes) else None


def _join_parts(first: _Parts, weights: set[Node]) -> None:
    """Two layers that are taken apart alike, of whose parts more are added than not."""
    second = next(_others(first, weights), None)
    if second is None or len(second.parts) != len(first.parts) or not _are_joined(first.layer, second.layer):
        return
    if not same_shape(first.parts[0].meta["val"].shape, second.parts[0].meta["val"].shape):
        return
    sums = [_sum_of(a, b) for a, b in zip(first.parts, second.parts, strict=True)]
    left = [n for n, total in enumerate(sums) if total is None]
    last = max(first.layer.product, second.layer.product)
    readers = [user for parts in (first, second) for part in parts.parts for user in part.users]
    if 2 * len(left) >= len(sums) or not all(last < user for user in readers):
        return
    each, before = first.layer.columns // len(sums), min(readers)
    kept = [n for n in range(len(sums)) if n not in left]

    def columns(number: int) -> Callable[[Node], Node]:
        """Of what has a row for each column of a layer, those of the result: of parts that are not added, those of the
        one layer, with zeros for the other's."""

        def of(value: Node) -> Node:
            graph, shape = value.graph, value.meta["val"].shape
            parts = [_rows(value, n * each, each) for n in (*kept, *left)]
            zeros = [
                call(graph, aten.zeros.default, ([each, *shape[1:]],), value, dtype=value.meta["val"].dtype)
                for _ in left
            ]
            apart = [*zeros, *parts[len(kept) :]] if number else [*parts[len(kept) :], *zeros]
            return call(graph, aten.cat.default, ([*parts[: len(kept)], *apart], 0), value)

        return of

    with before.graph.inserting_before(before):
        whole = _layer(first.layer, second.layer, columns(0), columns(1))
        shape = [*first.parts[0].meta["val"].shape[:-1], whole.meta["val"].shape[1]]
        apart = view(whole, shape, _only_end(first.layer.product))
        if apart is None:
            return
        wanted = [sums[n] for n in kept] + [parts.parts[n] for parts in (first, second) for n in left]
        for place, old in enumerate(wanted):
            made = call(before.graph, aten.slice.Tensor, (apart, len(shape) - 1, place * each, (place + 1) * each), old)
            old.replace_all_uses_with(made)


def _others(first: _Parts, weights: set[Node]) -> Iterator[_Parts]:
    """The layers parts of which are added to those of one."""
    for part in first.parts:
        for user in part.users:
            for operand in user.args if user.target is aten.add.Tensor and not user.kwargs else ():
                if operand is not part and isinstance(operand, Node) and operand.target is getitem:
                    product = _product_of(operand.args[0].args[0])
                    found = _parts_of(product, weights) if isinstance(product, Node) else None
                    if found is not None:
                        yield found


def _sum_of(a: Node, b: Node) -> Node | None:
    """The sum of two values that nothing else reads."""
    users = {*a.users, *b.users}
    total = next(iter(users)) if len(users) == 1 else None
    if total is None or total.target is not aten.add.Tensor or total.kwargs or {*total.args} != {a, b}:
        return None
    return total


def _rows(value: Node, first: int, count: int) -> Node:
    return call(value.graph, aten.slice.Tensor, (value, 0, first, first + count), value)


def _layer(
    first: _Layer, second: _Layer, columns: Callable[[Node], Node], of_second: Callable[[Node], Node] | None = None
) -> Node:
    """The layer of all operands, at the insertion point; `columns` says what it has of each one's weight and bias."""
    graph, origin, last = first.product.graph, first.product, of_second or columns
    x = call(graph, aten.cat.default, ([*first.operands, *second.operands], 1), origin)
    weights = [columns(first.weight), last(second.weight)]
    weight = call(graph, aten.cat.default, (weights, 1), origin)
    turned = call(graph, aten.permute.default, (weight, [1, 0]), origin)
    biases = [of(each.bias) for of, each in ((columns, first), (last, second)) if each.bias is not None]
    if not biases:
        return call(graph, aten.mm.default, (x, turned), origin)
    bias = biases[0] if len(biases) == 1 else call(graph, aten.add.Tensor, tuple(biases), origin)
    return call(graph, aten.addmm.default, (bias, x, turned), origin)
