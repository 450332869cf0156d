"""Linear layers over a dimension of few elements that lie apart, as where the heads of attention are mixed.

    linear(permute(%x, [0, 2, 3, 1]), %w)       %x : 8x4x196x196, %w : 4x4
  =>
    permute(sum(unsqueeze(%x, 1) * view(%w, [4, 4, 1, 1]), 2), [0, 2, 3, 1])

A product on tensor cores would have the elements beside one another, and multiply mostly zeros. Here results lie as the
elements do, and a turn that follows meets the one before. They are as many as the elements: of more, or of fewer, what
follows may want them beside one another.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from .working import working

aten = torch.ops.aten

MOST = 16  # elements that are mixed: tensor cores multiply as many together


def place(node: Node) -> int | None:
    """Where the elements are of the tensor that a linear layer's operand is a turn of; None for any other node."""
    if node.target is not aten.linear.default:
        return None
    x, weight = (argument.meta["val"] for argument in node.args[:2])
    heads = x.shape[-1]
    if not isinstance(heads, int) or not x.is_floating_point() or not 1 < heads <= MOST:
        return None
    if weight.shape != (heads, heads) or x.is_contiguous():
        return None
    return next((at for at in range(x.dim() - 1) if x.movedim(-1, at).is_contiguous()), None)


def mix(node: Node, at: int) -> None:
    """Puts the sum in the place of such a layer."""
    (x, weight, *bias), value = node.args, node.args[0].meta["val"]
    rank, wide = value.dim(), working(value).dtype

    def call(target: Any, *args: Any) -> Node:
        made = node.graph.call_function(target, args)
        made.meta["stack_trace"] = node.stack_trace
        return made

    def spread(weights: Node, kept: list[int]) -> Node:
        return call(aten.view.default, call(aten.to.dtype, weights, wide), [*kept, *[1] * (rank - 1 - at)])

    heads, dims = value.shape[-1], list(range(rank))
    with node.graph.inserting_before(node):
        elements = call(aten.permute.default, x, [*dims[:at], rank - 1, *dims[at:-1]])
        elements = call(aten.unsqueeze.default, call(aten.to.dtype, elements, wide), at)
        y = call(aten.sum.dim_IntList, call(aten.mul.Tensor, elements, spread(weight, [heads, heads])), [at + 1])
        if bias and bias[0] is not None:
            y = call(aten.add.Tensor, y, spread(bias[0], [heads]))
        y = call(aten.to.dtype, y, value.dtype)
        y = call(aten.permute.default, y, [*dims[:at], *dims[at + 1 :], at])
    y.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(y)
    node.graph.erase_node(node)
