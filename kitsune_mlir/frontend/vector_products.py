"""Batches of products with a vector each, of matrices that are turned, as sums of what they are turned from.

`einsum("btd,bt->bd", x, w)` turns x, which is a batch of matrices, and has each multiplied by a column. A tensor core
has nothing to do there but wait for memory: it is the sum over t of x times w, of x as it lies.

Before:

    bmm(permute(%x, [0, 2, 1]), %w)                      %x: [b, t, d], %w: [b, t, 1]

After:

    view(sum(mul(%x, %w), 1), [b, d, 1])

Sizes that are known leave matrices whose rows are sums along memory to kernels of few columns. Scores and weights of
attention are left to its own kernels, and so are matrices that are taken by number, as those of experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .moved_dimensions import Moves, call, view
from .shapes import are_known
from .sums_before_turns import beside, turned_sum

aten, prims = torch.ops.aten, torch.ops.prims

_NEAR = 12  # operators between a product and an exponential of the same attention
_EXPONENTIALS = {
    aten.exp.default, aten._softmax.default, aten._safe_softmax.default, aten._log_softmax.default, aten.exp2.default,
}  # fmt: skip
_TAKEN = {aten.index.Tensor, aten.index_select.default, aten.embedding.default, aten.gather.default}
_NARROW = (torch.bfloat16, torch.float16)


def sum_vector_products(graph: Graph) -> None:
    """Changes a functional graph of aten operators, whose nodes carry fake values, in place."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.bmm.default:
            _sum(node)
    graph.eliminate_dead_code()


def _sum(product: Node) -> None:
    left, right = product.args
    (batch, rows, k), columns = left.meta["val"].shape, right.meta["val"].shape[2]
    if statically_known_true(columns == 1):
        matrix, vector, shape, dim = left, right, [batch, 1, k], 2
    elif statically_known_true(rows == 1):
        matrix, vector, shape, dim = right, left, [batch, k, 1], 1
    else:
        return
    moves, dtype = Moves.of(matrix), product.meta["val"].dtype
    if moves is None or moves.turns == 0 or moves.selected or not moves.dims[dim]:
        return
    is_known = are_known((*left.meta["val"].shape, columns))
    if is_known and moves.dims[dim][-1] is moves.factors()[-1]:
        return
    if moves.source.target in _TAKEN or not dtype.is_floating_point or _is_of_attention(product, vector):
        return
    with product.graph.inserting_before(product):
        column = view(vector, shape, matrix)
        operands = [view(moves.source, [f.size for f in moves.factors()]), column and beside(column, moves)]
        if None in operands:
            return
        if dtype in _NARROW:
            operands = [_cast(operand, torch.float32) for operand in operands]
        whole = call(operands[0], [f.size for f in moves.factors()], aten.mul.Tensor, *operands)
        made = turned_sum(product, whole, moves, [dim])
        if made is not None and dtype in _NARROW:
            made = _cast(made, dtype)
    if made is not None:
        product.replace_all_uses_with(made)


def _cast(value: Node, dtype: torch.dtype) -> Node:
    made = call(value, value.meta["val"].shape, prims.convert_element_type.default, value, dtype)
    made.meta["val"] = made.meta["val"].to(dtype)
    return made


def _is_of_attention(product: Node, vector: Node) -> bool:
    """Whether exponentials are made of the result, or the vector is made of some."""
    return _meets(product, lambda node: node.users) or _meets(vector, lambda node: node.all_input_nodes)


def _meets(start: Node, following: Callable[[Node], Iterable[Node]]) -> bool:
    found, edge = {start}, [start]
    for _ in range(_NEAR):
        if any(node.target in _EXPONENTIALS for node in edge):
            return True
        edge = [other for node in edge for other in following(node) if other not in found]
        found.update(edge)
    return False
