"""Graphs that AOTAutograd makes: of one pass, or of both, which it cuts in two.

Attention stays one operator until they are apart, as do its gradients: what is computed within it is then nothing that
could be kept from one pass to the other. Systems that a matrix's triangles are to solve, which no forward pass makes,
are the matrix's own before they are. Without a backward pass maxima of windows stay one operator, too, unless it is
asked where they were found.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from .attention import ATTENTION
from .attention_gradients import ATTENTION_GRADIENTS
from .decompositions import Table, table
from .indexing import parts_of
from .kept_values import partition
from .linear_algebra import LINEAR_ALGEBRA, solve_of_whole
from .own_operators import UNFACTORED
from .pooling import max_pool_with_indices
from .random_numbers import RANDOM

_POOLS = {
    torch.ops.aten.max_pool2d_with_indices.default: max_pool_with_indices(2),
    torch.ops.aten.max_pool3d_with_indices.default: max_pool_with_indices(3),
}


def _split(x: Tensor, size: Any, dim: int = 0) -> Any:
    """Of an open length, a known number of parts of an open size: as of two batches that were joined."""
    length = x.shape[dim]
    if not isinstance(length, int) or not isinstance(size, int):
        count = length // size
        known = isinstance(count, int) or count.node.expr.is_number
        if not known or not statically_known_true(int(count) * size == length):
            return NotImplemented
        return parts_of(x, [size] * int(count), dim)
    if not size:
        return NotImplemented
    return parts_of(x, [min(size, length - start) for start in range(0, max(1, length), size)], dim)


def _unbind(x: Tensor, dim: int = 0) -> Any:
    return [x.select(dim, i) for i in range(x.shape[dim])]


# Lists of views are views each, of which a graph of both passes keeps what they are views of.
_VIEWS = {
    torch.ops.aten.split_with_sizes.default: parts_of,
    torch.ops.aten.split.Tensor: _split,
    torch.ops.aten.unsafe_split.Tensor: _split,
    torch.ops.aten.unbind.int: _unbind,
}
_BY_FACTORS = torch.ops.aten.linalg_lu_solve.default
_LATER = ATTENTION | ATTENTION_GRADIENTS | _POOLS | {_BY_FACTORS: LINEAR_ALGEBRA[_BY_FACTORS]}

# What torch itself puts into a graph that it has taken apart, where numbers that it did not know become tensors.
_NEW = {torch.ops.aten.true_divide.Tensor: lambda x, y: torch.ops.aten.div.Tensor(x, y)}


def table_for(trained: bool) -> Table:
    """The rules for a graph of both passes, or of one."""
    now = _POOLS if trained else {}
    rules = table() | RANDOM | (_VIEWS if trained else {})
    return {operator: rule for operator, rule in rules.items() if operator in now or operator not in _LATER}


def attention_of(gm: GraphModule) -> contextlib.AbstractContextManager[Any]:
    """Within the `with`, how torch takes attention apart: where one drops weights, all of it in elementary operators,
    as what is dropped would be known to torch's own kernels only."""
    attention = torch.nn.functional.scaled_dot_product_attention
    calls = gm.graph.find_nodes(op="call_function", target=attention)
    dropped = any((node.args[4:5] or (node.kwargs.get("dropout_p", 0.0),))[0] != 0.0 for node in calls)
    return sdpa_kernel(SDPBackend.MATH) if dropped else contextlib.nullcontext()


def cut(joint: GraphModule, inputs: Any, **options: Any) -> tuple[GraphModule, GraphModule]:
    """The passes of a graph of both, so that as few bytes as possible are kept from the first."""
    rules = table() | RANDOM
    for node in joint.graph.find_nodes(op="call_function", target=_BY_FACTORS):
        if viewed(node.args[1]).target is UNFACTORED:
            _inline(node, solve_of_whole, rules)
    joint.recompile()
    return partition(joint, inputs, **options)


def keep_copies(graph: Graph, changed: Collection[Node]) -> None:
    """Makes results that are some inputs, or views of them, copies, in place: torch writes new values into those inputs
    when a call is over, where a backward pass still wants the old ones."""
    output = graph.output_node()
    results = list(output.args[0])
    for i, value in enumerate(results):
        if not isinstance(value, Node) or viewed(value) not in changed:
            continue
        with graph.inserting_before(output):
            results[i] = graph.call_function(torch.ops.aten.clone.default, (value,))
        with detect_fake_mode((value.meta["val"],)) or contextlib.nullcontext():
            results[i].meta["val"] = value.meta["val"].clone()
    output.args = (tuple(results),)


def viewed(value: Node) -> Node:
    """What a value is a view of, or the value itself."""
    while value.op == "call_function" and is_view(value.target) and isinstance(value.args[0], Node):
        value = value.args[0]
    return value


def is_view(target: Any) -> bool:
    """Whether an operator gives nothing but a view of its first operand, or a part of what another gave."""
    if target is operator.getitem:
        return True
    given = target._schema.arguments[:1] if isinstance(target, torch._ops.OpOverload) else []
    return any(argument.alias_info is not None and not argument.alias_info.is_write for argument in given)


def expand(graph: Graph) -> None:
    """Takes what stayed one operator apart, in place."""
    rules = table() | RANDOM
    for node in list(graph.nodes):
        rule = _LATER.get(node.target) or _NEW.get(node.target) if node.op == "call_function" else None
        if rule is not None and (node.target not in _POOLS or _is_placed(node)):
            _inline(node, rule, rules)
    graph.eliminate_dead_code()


def _is_placed(pool: Node) -> bool:
    """Whether the second result of a pool has a reader."""
    return any(reader.args[1] == 1 for reader in pool.users)


def _inline(node: Node, rule: Callable[..., Any], rules: Table) -> None:
    """Puts the operators that `rule` computes the node's result with in its place, unless it declines."""
    operands = [leaf for leaf in tree_leaves((node.args, node.kwargs)) if isinstance(leaf, Node)]
    operands = list(dict.fromkeys(operands))
    values = [operand.meta["val"] for operand in operands]

    def run(*given: Any) -> Any:
        place = dict(zip(operands, given, strict=True))
        args, kwargs = map_arg((node.args, node.kwargs), lambda operand: place[operand])
        found = rule(*args, **kwargs)
        return None if found is NotImplemented else found

    mode = detect_fake_mode(values) or contextlib.nullcontext()
    with mode, enable_python_dispatcher(), torch.no_grad():
        traced = make_fx(run, decomposition_table=rules)(*values)
    if traced.graph.output_node().args[0] is None:
        return
    placeholders = traced.graph.find_nodes(op="placeholder")
    copies: dict[Node, Any] = dict(zip(placeholders, operands, strict=True))
    with node.graph.inserting_before(node):
        results = node.graph.graph_copy(traced.graph, copies)
    for copied in copies.values():
        if copied not in operands and not copied.stack_trace:
            copied.stack_trace = node.stack_trace
            copied.meta |= {key: node.meta[key] for key in ("partitioner_tag",) if key in node.meta}
    if isinstance(results, Node):
        node.replace_all_uses_with(results)
    else:
        for reader in list(node.users):  # each takes one of the results
            reader.replace_all_uses_with(results[reader.args[1]])
            node.graph.erase_node(reader)
    node.graph.erase_node(node)
