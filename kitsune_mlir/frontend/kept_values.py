"""What a forward pass keeps for its gradients: as few bytes as there are, of what is in memory anyway.

torch's partitioner cuts a graph of both passes in two. It takes what it would keep for a tensor that some kernel reads,
and what comes before that for registers of the same kernel, and so it keeps f32 that was 16 bits before, or an
activation beside the product that it is computed of. Before the cut, here:

    slice(cast(cat([a, b], 1)), 1, 0, h)               cast(a)                   a cell's gates, kept side by side
    cast(x16, f32), sigmoid(cast(product16, f32))      computed again: what they are computed of is kept, if anything is
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from .equal_elements import ask_before, forget
from .graph_values import call
from .shapes import are_known

aten, prims = torch.ops.aten, torch.ops.prims

_CASTS = {prims.convert_element_type.default, aten._to_copy.default}
_RESHAPES = {aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.alias.default}
_VIEWS = _RESHAPES | {
    *(aten.slice.Tensor, aten.select.int, aten.permute.default, aten.t.default, aten.transpose.int),
    aten.expand.default,
}
_SUMS = {aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.var_mean.correction, aten.cat.default}
_PRODUCTS = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.convolution.default}
_SMALL = 16  # a tensor of so many times fewer elements than another is of no account beside it
_LONGEST = 16  # operators that are computed again, one after another


def partition(joint: GraphModule, inputs: Any, **options: Any) -> tuple[GraphModule, GraphModule]:
    """The graphs of the forward and of the backward pass, of one of both: as torch's own partitioner, whose options
    these are."""
    graph = joint.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.slice.Tensor:
            _take_part(node)
    graph.eliminate_dead_code()
    backward = _behind_tangents(graph)
    ask_before(graph, backward, options["num_fwd_outputs"])
    _compute_again(graph, backward)
    joint.recompile()
    passes = min_cut_rematerialization_partition(joint, inputs, **options)
    forget(passes[0].graph)
    passes[0].recompile()
    return passes


def _take_part(taken: Node) -> None:
    """A slice of tensors that were joined, and of what they were converted to, is made of the one that it is."""
    source, dim, start, end, step = (*taken.args, *(0, None, None, 1)[len(taken.args) - 1 :])
    casts = []
    while source.op == "call_function" and source.target in _CASTS:
        casts.append(source)
        source = source.args[0]
    if source.op != "call_function" or source.target is not aten.cat.default or step != 1:
        return
    parts, rank = source.args[0], source.meta["val"].dim()
    along = source.args[1] if len(source.args) > 1 else 0
    sizes = [part.meta["val"].shape[along] for part in parts]
    if along % rank != dim % rank or not are_known((start, end, *sizes)):
        return
    if min(start, end) < 0 or len({part.meta["val"].dtype for part in parts}) > 1:
        return
    firsts = [sum(sizes[:number]) for number in range(len(sizes))]
    end = min(end, sum(sizes))
    found = [i for i, size in enumerate(sizes) if firsts[i] <= start and end <= firsts[i] + size]
    if not found:
        return
    part, first, size = parts[found[0]], firsts[found[0]], sizes[found[0]]
    with taken.graph.inserting_before(taken):
        if (start - first, end - first) != (0, size):
            part = call(taken.graph, aten.slice.Tensor, (part, dim, start - first, end - first), taken)
        for cast in reversed(casts):
            kind = cast.meta["val"].dtype
            part = call(taken.graph, prims.convert_element_type.default, (part, kind), taken)
    taken.replace_all_uses_with(part)


def _compute_again(graph: Graph, backward: set[Node]) -> None:
    """Marks what the backward pass computes again: elements, for others computed one by one, of tensors with fewer
    bytes, or, if these are in memory for the forward pass's own sake, with no more than writing and reading takes."""
    roots: dict[Node, set[Node]] = {}  # what may be computed again, and the tensors that are kept for it
    length: dict[Node, int] = {}
    in_memory, products, held = set[Node](), set[Node](), set[Node]()
    for node in graph.nodes:
        if node.op == "placeholder":
            in_memory.add(node)
        elif node.op != "call_function" or node in backward:
            continue
        elif _is_product(node, products):
            products.add(node)
            if not _is_passed_on(node, backward):
                in_memory.add(node)  # its kernel writes this, and not what it is the sum of
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        elif not _is_element(node) or node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE:
            continue
        elif node.target in _VIEWS and node.args[0] in in_memory and node.args[0].op == "call_function":
            in_memory.add(node)
            if _bytes(node) * _SMALL > _bytes(node.args[0]):  # as a result it would be a copy
                roots[node] = {node}
        elif _is_read_by_elements(node):
            large = list(_large(node))
            found = set[Node]().union(*(roots.get(value, {value}) for value in large))
            chain = 1 + max((length.get(value, 0) for value in large), default=0)
            own, is_there = _bytes(node), found <= in_memory and _is_passed_on(node, backward)
            is_less = sum(map(_bytes, found)) < own or is_there and sum(map(_bytes, found - held)) <= 2 * own
            if found and chain <= _LONGEST and is_less:
                roots[node], length[node] = found, chain
                held |= found & in_memory
    again = set[Node]()
    for node in reversed(graph.nodes):
        if node in roots and any(reader in backward | again for reader in node.users):
            again.add(node)
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


def _behind_tangents(graph: Graph) -> set[Node]:
    """What is computed of the results' gradients."""
    found: set[Node] = set()
    for node in graph.nodes:
        is_given = node.op == "placeholder" and "tangents" in str(node.target)
        if is_given or any(operand in found for operand in node.all_input_nodes):
            found.add(node)
    return found


def _is_element(node: Node) -> bool:
    """Whether an operator computes one element of one of each of its operands, or is a view."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(node.target, torch._ops.OpOverload):
        return False
    by_element = node.target in _VIEWS | _CASTS or torch.Tag.pointwise in node.target.tags
    return by_element and all(map(_has_known_sizes, [node, *node.all_input_nodes]))


def _has_known_sizes(node: Node) -> bool:
    """Whether a node is no tensor of open sizes, of which nothing is asked: an answer would be for one size alone."""
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or are_known(value.shape)


def _is_passed_on(node: Node, backward: set[Node]) -> bool:
    """Whether nothing in the forward pass reads a tensor but what may be computed with it: elements of others at their
    places."""
    for reader in node.users:
        alike = reader.target in _RESHAPES or reader.target in _CASTS
        if reader in backward or alike and _is_passed_on(reader, backward):
            continue
        if alike or reader.target in _VIEWS or not _is_element(reader):
            return False
    return True


def _is_read_by_elements(node: Node) -> bool:
    """Whether all readers, in either pass, have what they read computed as they go, also of views of it."""
    return all(
        _is_read_by_elements(reader) if reader.target in _VIEWS else _is_element(reader) or reader.target in _SUMS
        for reader in node.users
    )


def _large(node: Node) -> Iterator[Node]:
    """The operands of an operator that have about as many elements as its result."""
    count = node.meta["val"].numel()
    for operand in node.all_input_nodes:
        value = operand.meta.get("val")
        if isinstance(value, torch.Tensor) and value.numel() * _SMALL > count:
            yield operand


def _bytes(node: Node) -> int:
    value = node.meta["val"]
    return value.numel() * value.dtype.itemsize


def _is_product(node: Node, products: set[Node]) -> bool:
    """Whether an operator is a product, or a sum that is computed with one, the only one that reads it."""
    if node.target in _PRODUCTS:
        return True
    if node.target is not aten.add.Tensor or not _is_element(node):
        return False
    large = list(_large(node))
    return bool(large) and all(value in products and len(value.users) == 1 for value in large)
