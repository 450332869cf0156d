"""Sums of what is turned, made before it is turned.

Samples of images have channels last. torch wants them first, a model multiplies them with what is the same for several
of them, and sums over channels: all that was sampled is copied to be turned, and only then summed. Elementwise
operators compute the same in any order of dimensions, as sums do. Here they take what is sampled as it lies, and what
they take beside it, which has fewer elements, is turned in its place.

Before:

    sum(mul(permute(%x, [0, 3, 1, 2]), %y), 1)                   %x: [n, h, w, c], %y: [1, c, 1, 1]

After:

    sum(mul(%x, permute(%y, [0, 2, 3, 1])), 3)

Where nothing but moves lies between what is turned and a sum over few elements, less is turned behind the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .moved_dimensions import Factor, Moves, call, is_move, same_shape, view
from .shapes import are_known

aten = torch.ops.aten

_FEW = 16  # elements that are summed for one
_ELEMENTWISE = {
    aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor, aten.abs.default, aten.neg.default,
    aten.exp.default, aten.relu.default, aten.sigmoid.default, aten.tanh.default, aten.pow.Tensor_Scalar,
    aten.maximum.default, aten.minimum.default,
}  # fmt: skip


def sum_before_turns(graph: Graph) -> None:
    """Changes a functional graph of aten operators, whose nodes carry fake values, in place."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.sum.dim_IntList and not node.kwargs:
            _sum_before(node)
    graph.eliminate_dead_code()


def _sum_before(total: Node) -> None:
    """Has a sum, which alone reads what is turned or what is computed of it, made of what is not yet."""
    dims, path = total.args[1], _path(total.args[0])
    leaf = path[-1]
    moves, step = Moves.of(leaf), leaf
    while is_move(step):
        if len(step.users) > 1:
            return
        step = step.args[0]
    if moves is None or moves.turns == 0 or moves.selected or not dims:
        return
    summed = [factor for d in dims for factor in moves.dims[d]]
    sizes = [factor.size for factor in summed]
    few = are_known(sizes) and prod(sizes) <= _FEW
    if not summed or (len(path) == 1 and not few):
        return
    with total.graph.inserting_before(total):
        whole = _computed(path, moves, moves.factors())
        made = None if whole is None else turned_sum(total, whole, moves, dims)
    if made is not None:
        total.replace_all_uses_with(made)


def _path(value: Node) -> list[Node]:
    """From what is summed to what is turned: elementwise operators, each for the one before, of tensors of its size."""
    path, shape = [value], value.meta["val"].shape
    while path[-1].op == "call_function" and path[-1].target in _ELEMENTWISE and len(path[-1].users) == 1:
        if path[-1].kwargs:
            break
        large = [each for each in path[-1].all_input_nodes if same_shape(each.meta["val"].shape, shape)]
        if len(large) != 1:
            break
        path.append(large[0])
    return path


def _computed(path: Sequence[Node], moves: Moves, factors: list[Factor]) -> Node | None:
    """What is summed, with a dimension for each of the source's factors; None where that cannot be said."""
    shape = [factor.size for factor in factors]
    made = view(moves.source, shape)
    for step, turned in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        if made is None:
            return None
        args = []
        for given in step.args:
            other = isinstance(given, Node) and given is not turned
            args.append(made if given is turned else beside(given, moves) if other else given)
        if None in args:
            return None
        made = call(step, shape, step.target, *args)
    return made


def beside(value: Node, moves: Moves) -> Node | None:
    """What is spread over what is turned, with a dimension for each of the source's factors. None where it is not
    smaller, or its sizes do not tell."""
    known = value.meta["val"]
    if not isinstance(known, torch.Tensor):
        return None
    behind, factors = len(moves.dims) - known.dim(), moves.factors()
    own = list[Factor]()
    for d, size in enumerate(known.shape):
        if not statically_known_true(size == 1):
            if not statically_known_true(size == _size(moves.dims[behind + d])):
                return None
            own += moves.dims[behind + d]
    if len(own) == len(factors):
        return None
    made = view(value, [factor.size for factor in own], moves.source)
    order = [own.index(factor) for factor in factors if factor in own]
    if made is not None and order != sorted(order):
        made = call(value, [own[at].size for at in order], aten.permute.default, made, order)
    return made and view(made, [factor.size if factor in own else 1 for factor in factors], moves.source)


def _size(factors: Sequence[Factor]) -> object:
    return prod(factor.size for factor in factors)


def turned_sum(total: Node, whole: Node, moves: Moves, dims: Sequence[int]) -> Node | None:
    """The sum of what has a dimension for each of the source's factors over some dimensions that they are moved to,
    with the sizes that `total` has."""
    factors, numbers = moves.factors(), {n % len(moves.dims) for n in dims}
    summed = [factor for d in sorted(numbers) for factor in moves.dims[d]]
    left = [factor for factor in factors if factor not in summed]
    order = [factor for d, own in enumerate(moves.dims) if d not in numbers for factor in own]
    places, shape = [factors.index(factor) for factor in summed], [factor.size for factor in left]
    made = call(whole, shape, aten.sum.dim_IntList, whole, places)
    if order != left:
        turned = [left.index(factor) for factor in order]
        made = call(made, [factor.size for factor in order], aten.permute.default, made, turned)
    return view(made, list(total.meta["val"].shape), moves.source)
