"""Linear layers of what lies beside parts that many rows have alike, such as what is known of all points together.

    linear(cat([%x, expand(%m, [8, 1000, 512])], 2), %w)        %x : 8x1000x64, %m : 8x1x512
  =>
    linear(%x, slice(%w, 1, 0, 64)) + linear(%m, slice(%w, 1, 64, 576))

A layer of columns side by side is the sum of the parts' layers, and a row's is the same wherever it is repeated: it is
multiplied once, and nothing is put beside anything. Convolutions of single elements are such layers of channels. What
so few columns take that a product's kernel reads them in registers stays where it is. The parts' results are rounded
once more than the whole layer's would be, as those of rows that are gathered (passes/project_gathers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch.fx import Node

from kitsune_mlir.chains.gathers import MOST_GATHERED

from .graph_values import call, is_written
from .shapes import are_known

aten = torch.ops.aten

_LAYERS = {aten.linear.default: -1, aten.conv1d.default: 1, aten.conv2d.default: 1, aten.conv3d.default: 1}
_REPEATS = (aten.expand.default, aten.expand_as.default, aten.repeat.default)
LEAST_TIMES = 8  # that a row is repeated


@dataclass(frozen=True)
class _Part:
    """Columns of the operand: from `first` on, `count` of them; `node` has them, once where they are `spread`."""

    node: Node
    first: int
    count: int
    spread: bool


def parts(node: Node) -> list[_Part] | None:
    """Those of a layer's operand, where some are spread and worth it; None for any other node."""
    dim = _LAYERS.get(node.target) if node.op == "call_function" else None
    joined = node.args[0] if dim is not None else None
    if joined is None or joined.target is not aten.cat.default or len(joined.users) > 1 or not _is_of_elements(node):
        return None
    value = joined.meta["val"]
    if value.dim() != node.args[1].meta["val"].dim() and node.target is not aten.linear.default:
        return None  # an image without a batch, whose channels are elsewhere
    if not value.is_floating_point() or (joined.args[1:] or (0,))[0] % value.dim() != dim % value.dim():
        return None
    columns = [operand.meta["val"].shape[dim] for operand in joined.args[0]]
    if not all(isinstance(count, int) for count in columns):
        return None
    found = []
    for operand, count, first in zip(joined.args[0], columns, accumulate(columns, initial=0)):
        source = _source(operand, dim)
        found.append(_Part(operand if source is None else source, first, count, source is not None))
    if _is_changed(node, joined):
        return None
    spread = sum(part.count for part in found if part.spread) * value.element_size()
    whole = all(part.spread for part in found)
    return found if spread > MOST_GATHERED or spread and whole else None


def _is_of_elements(node: Node) -> bool:
    """Whether a convolution has filters of one element, in each place; linear layers have."""
    if node.target is aten.linear.default:
        return True
    _, weight, _, stride, padding, _, groups = [*node.args, *(None, [1], [0], [1], 1)[len(node.args) - 2 :]]
    plain = not isinstance(padding, str) and not any(padding) and {*stride} == {1} and groups == 1
    return plain and all(size == 1 for size in weight.meta["val"].shape[2:])


def _source(operand: Node, dim: int) -> Node | None:
    """What an operand repeats, in dimensions of one element other than that of its columns."""
    while operand.target is aten.clone.default:
        operand = operand.args[0]
    if operand.target not in _REPEATS or len(operand.args) != 2:
        return None
    source, value = operand.args[0], operand.meta["val"]
    own = source.meta["val"]
    if own.dim() != value.dim() or not are_known(own.shape[1:]):
        return None
    times = 1
    for d, (one, size) in enumerate(zip(own.shape, value.shape)):
        if _is_same(one, size):
            continue
        if d == dim % value.dim() or not isinstance(one, int) or one != 1:
            return None
        times *= _hint(size)
    return source if times >= LEAST_TIMES else None


def _is_same(a: Any, b: Any) -> bool:
    """Whether two sizes are one for every call; asking open ones would make it so."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(a.node.expr == b.node.expr)


def _is_changed(node: Node, joined: Node) -> bool:
    """Whether anything is written between what makes a layer's operand and the layer, which would see it."""
    made, values = [joined], [joined]
    for one in made:
        values += one.all_input_nodes
        made += [other for other in one.all_input_nodes if other.target in (aten.clone.default, *_REPEATS)]
    return is_written(values, min(made), node)


def _hint(size: Any) -> int:
    """A size, or that of the example."""
    return size if isinstance(size, int) else size.node.hint


def apart(node: Node, found: list[_Part]) -> None:
    """Puts the sum of the parts' layers in the place of such a layer."""
    dim = _LAYERS[node.target]
    weight, *rest = node.args[1:]
    bias, rest = (rest[0], rest[1:]) if rest else (None, [])
    kept, spread = ([part for part in found if part.spread == wanted] for wanted in (False, True))

    def columns(part: _Part) -> Node:
        return call(node.graph, aten.slice.Tensor, (weight, 1, part.first, part.first + part.count), node)

    def layer(x: Node, own: Node, bias: Node | None) -> Node:
        return call(node.graph, node.target, (x, own, bias, *rest), node)

    with node.graph.inserting_before(node):
        total = None
        for part in sorted(spread, key=lambda part: prod(map(_hint, part.node.meta["val"].shape))):
            y = layer(part.node, columns(part), bias if total is None else None)
            total = y if total is None else call(node.graph, aten.add.Tensor, (total, y), node)
        if kept:
            xs, weights = [part.node for part in kept], [columns(part) for part in kept]
            x, own = xs[0], weights[0]
            if len(kept) > 1:
                x, own = (
                    call(node.graph, aten.cat.default, (each, at), node) for each, at in ((xs, dim), (weights, 1))
                )
            total = call(node.graph, aten.add.Tensor, (layer(x, own, None), total), node)
        else:
            total = call(node.graph, aten.expand.default, (total, list(node.meta["val"].shape)), node)
    node.replace_all_uses_with(total)
    node.graph.erase_node(node)
