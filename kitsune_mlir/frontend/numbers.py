"""Numbers that a model reads from its tensors (`x.item()`, `float(x)`), and those of open sizes that it returns, or
computes otherwise than torch-mlir can (`float(n)`, `math.sqrt(n)`), as tensors without dimensions.

    %n = aten._local_scalar_dense(%x : f32[])
    %m = operator.mul(%n, 2.0)
    %y = aten.add.Tensor(%z, %m)

becomes, as Python computes with 64 bits,

    %n = aten._to_copy(%x, dtype = float64)
    %m = aten.mul.Tensor(%n, 2.0)
    %y = aten._to_copy(aten.add.Tensor(%z, %m), dtype = the type of %y before)

What is taken or written at such a number, `table[n]`, is taken or written by index.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from .graph_values import call, convert

aten = torch.ops.aten

_ARITHMETIC = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor,
    operator.floordiv: aten.floor_divide.default,
    operator.mod: aten.remainder.Tensor,
    operator.neg: aten.neg.default,
    operator.pow: aten.pow.Tensor_Scalar,
    torch._sym_sqrt: aten.sqrt.default,
    torch.sym_min: aten.minimum.default,
    torch.sym_max: aten.maximum.default,
}
_OF_TENSORS = (operator.floordiv, operator.mod, torch.sym_min, torch.sym_max)  # where aten takes no plain number
# What torch-mlir itself multiplies with a quotient of sizes, as the means of norms are made: a scalar, and no tensor.
_SCALED = {aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar}
_CHECKS = (aten._assert_scalar.default, aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default)


def numbers_as_tensors(graph: Graph) -> dict[str, Node]:
    """Rewrites a functional graph of aten operators in place; returned are the tensors by the names of the numbers.

    What is done with a number that a tensor cannot take part in, such as a size, is left as it is.
    """
    tensors: dict[Node, Node] = {}
    unknown: set[Node] = set()  # what is computed from numbers otherwise, as comparisons are
    for node in list(graph.nodes):
        if node.target is aten._local_scalar_dense.default:
            with graph.inserting_before(node):
                tensors[node] = _read(graph, node)
        elif node.target is aten.sym_storage_offset.default:  # which torch checks of what is taken at a number
            unknown.add(node)
        elif node.target is torch.sym_float and node.args[0] not in tensors:
            with graph.inserting_before(node):
                tensors[node] = call(graph, aten.full.default, ([], node.args[0]), node, dtype=torch.float64)
        elif node.target is operator.truediv and (tensors.keys() | unknown).isdisjoint(node.all_input_nodes):
            if {user.target for user in node.users} <= _SCALED:
                continue
            with graph.inserting_before(node):  # of two sizes
                sides = [call(graph, aten.full.default, ([], size), node, dtype=torch.float64) for size in node.args]
                tensors[node] = call(graph, aten.div.Tensor, tuple(sides), node)
        elif node.op == "call_function" and (tensors.keys() | unknown) & set(node.all_input_nodes):
            if node.target in _CHECKS:
                graph.erase_node(node)
            elif isinstance(node.target, torch._ops.OpOverload):
                _use(graph, node, tensors)
            elif unknown.isdisjoint(node.all_input_nodes) and node.target in (*_ARITHMETIC, torch.sym_float):
                with graph.inserting_before(node):
                    tensors[node] = _arithmetic(graph, node, tensors)
            else:
                unknown.add(node)
    output = graph.output_node()
    for node in output.all_input_nodes:
        if node not in tensors and isinstance(node.meta.get("val"), torch.SymInt):  # a size that is returned
            with graph.inserting_before(output):
                tensors[node] = call(graph, aten.full.default, ([], node), node, dtype=torch.int64)
    names = {node.name: tensor for node, tensor in tensors.items()}
    output.args = map_arg(output.args, lambda result: tensors.get(result, result))
    for node in reversed(graph.nodes):
        if (node in tensors or node in unknown) and not node.users:
            graph.erase_node(node)
    return names


def exact_numbers(graph: Graph) -> None:
    """Makes tensors of 64 bits, in place, of the numbers that operators take for tensors where these give such results,
    as the 0.1 of `0.1 - x` and of `torch.mul(0.1, x)`: torch-mlir rounds them to f32."""
    for node in list(graph.nodes):
        value = node.meta.get("val")
        is_double = isinstance(value, torch.Tensor) and value.dtype == torch.float64
        if not is_double or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for place, (argument, given) in enumerate(zip(node.target._schema.arguments, node.args)):
            if isinstance(argument.type, torch.TensorType) and isinstance(given, float):
                with graph.inserting_before(node):
                    exact = call(graph, aten.full.default, ([], given), node, dtype=torch.float64, device=value.device)
                node.update_arg(place, exact)


def _read(graph: Graph, node: Node) -> Node:
    source = node.args[0]
    kind = source.meta["val"].dtype
    kind = torch.float64 if kind.is_floating_point else kind if kind == torch.bool else torch.int64
    if source.meta["val"].dim():
        source = call(graph, aten.view.default, (source, []), node)
    return convert(graph, source, kind, node)


def _arithmetic(graph: Graph, node: Node, tensors: dict[Node, Node]) -> Node:
    operands = map_arg(node.args, lambda operand: tensors.get(operand, operand))
    if node.target is torch.sym_float:
        return convert(graph, operands[0], torch.float64, node)
    operands = [_beside(graph, operand, operands, node) for operand in operands]
    target = _ARITHMETIC[node.target]
    if node.target is operator.pow and isinstance(operands[1], Node):
        target = aten.pow.Tensor_Tensor
    made = call(graph, target, tuple(operands), node)
    is_float = isinstance(node.meta["val"], torch.SymFloat | float)
    return convert(graph, made, torch.float64 if is_float else torch.int64, node)


def _beside(graph: Graph, operand: Any, operands: Any, node: Node) -> Any:
    """A constant, or a size, in front of a tensor, or in an operator that takes tensors only, is one too."""
    value = operand.meta["val"] if isinstance(operand, Node) else operand
    if isinstance(value, torch.Tensor) or (operand is not operands[0] and node.target not in _OF_TENSORS):
        return operand
    kind = torch.float64 if isinstance(value, float | torch.SymFloat) else torch.int64
    return call(graph, aten.full.default, ([], operand), node, dtype=kind)


def _nodes(operand: Any) -> list[Node]:
    return [leaf for leaf in tree_leaves(operand) if isinstance(leaf, Node)]


def _use(graph: Graph, node: Node, tensors: dict[Node, Node]) -> None:
    """Gives an operator the tensors in place of the numbers, if it, or one of its name, takes them."""
    before, target = node.meta.get("val"), node.target
    if not isinstance(before, torch.Tensor) or not node.args:
        return
    if target is aten.select.int and node.args[2] in tensors:
        _take(graph, node, tensors[node.args[2]])
        return
    if target is aten.select_scatter.default and node.args[3] in tensors:
        _put(graph, node, tensors[node.args[3]])
        return
    if "Scalar" in target._overloadname and hasattr(target.overloadpacket, "Tensor"):
        target = target.overloadpacket.Tensor
    args, kwargs = map_arg((node.args, node.kwargs), lambda operand: tensors.get(operand, operand))
    if target in _WRITTEN_OUT:
        with graph.inserting_before(node):
            made = _WRITTEN_OUT[target](graph, node, *args, **kwargs)
            node.target, node.args, node.kwargs = aten._to_copy.default, (made,), {"dtype": before.dtype}
        return
    if any(
        leaf in tensors and str(argument.type) != "Tensor"
        for operand, argument in zip(node.args, target._schema.arguments)
        for leaf in _nodes(operand)
    ) or any(leaf in tensors for leaf in _nodes(list(node.kwargs.values()))):
        return
    with graph.inserting_before(node):
        made = call(graph, target, args, node, **kwargs)
        node.target, node.args, node.kwargs = aten._to_copy.default, (made,), {"dtype": before.dtype}


def _filled(graph: Graph, node: Node, _: Any, value: Any, **__: Any) -> Node:
    shape = node.meta["val"].shape
    sizes = list(node.args[0]) if node.target is aten.full.default else list(shape)
    for axis, size in enumerate(sizes):
        if isinstance(size, torch.SymInt):
            sizes[axis] = call(graph, aten.sym_size.int, (node.args[0], axis), node)
    return call(graph, aten.expand.default, (value, sizes), node)


def _clamped(graph: Graph, node: Node, x: Any, least: Any = None, most: Any = None) -> Node:
    for bound, target in ((least, aten.maximum.default), (most, aten.minimum.default)):
        if bound is not None:
            bound = bound if isinstance(bound, Node) else call(graph, aten.full.default, ([], bound), node)
            x = call(graph, target, (x, bound), node)
    return x


def _sum(graph: Graph, node: Node, x: Any, y: Any, alpha: Any = 1) -> Node:
    """A sum or a difference, of which an operand may be multiplied."""
    y = y if alpha == 1 else call(graph, aten.mul.Tensor, (y, alpha), node)
    return call(graph, getattr(aten, node.target._opname).Tensor, (x, y), node)


def _leaky(graph: Graph, node: Node, x: Any, slope: Any) -> Node:
    below = call(graph, aten.mul.Tensor, (x, slope), node)
    return call(graph, aten.where.self, (call(graph, aten.gt.Scalar, (x, 0), node), x, below), node)


def _take(graph: Graph, node: Node, number: Node) -> None:
    """Gives a `select` at a number the row that is there, by index."""
    source, dim, _ = node.args
    with graph.inserting_before(node):
        place = _place(graph, source, dim, number, node)
        node.args = (call(graph, aten.index_select.default, (source, dim, place), node), dim, 0)


def _put(graph: Graph, node: Node, number: Node) -> None:
    """Writes by index what a `select` at a number stood for."""
    source, written, dim, _ = node.args
    dim %= source.meta["val"].dim()
    with graph.inserting_before(node):
        place = _place(graph, source, dim, number, node)
        rows = call(graph, aten.unsqueeze.default, (written, dim), node)
    node.target, node.args = aten.index_put.default, (source, [None] * dim + [place], rows)


def _place(graph: Graph, source: Node, dim: int, number: Node, node: Node) -> Node:
    """The number as an index of a dimension. Below 0 it is counted from the end."""
    size = source.meta["val"].shape[dim]
    if not isinstance(size, int):
        size = call(graph, aten.sym_size.int, (source, dim), node)
    end = call(graph, aten.add.Tensor, (number, size), node)
    below = call(graph, aten.lt.Scalar, (number, 0), node)
    number = call(graph, aten.where.self, (below, end, number), node)
    return call(graph, aten.view.default, (number, [1]), node)


# Operators that take plain numbers only, by others that take tensors of them.
_WRITTEN_OUT: dict[Any, Callable[..., Node]] = {
    aten.full.default: _filled,
    aten.full_like.default: _filled,
    aten.scalar_tensor.default: lambda graph, node, value, **_: call(graph, aten.clone.default, (value,), node),
    aten.clamp.default: _clamped,
    aten.clamp_min.default: _clamped,
    aten.clamp_max.default: lambda graph, node, x, most: _clamped(graph, node, x, None, most),
    aten.leaky_relu.default: _leaky,
    aten.add.Tensor: _sum,
    aten.sub.Tensor: _sum,
}
