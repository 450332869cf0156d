"""Checks of values in graphs, which a Program has none of: what torch's operators refuse of their data, such as a class
that is negative, or a matrix that is not positive definite, and what they assert of sizes. What a Program cannot hold
at all is refused."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator

import torch
from torch.fx import Graph, Node

from kitsune_mlir.errors import UnsupportedError

aten, prims = torch.ops.aten, torch.ops.prims

_ASSERTIONS = (
    aten._assert_async,
    aten._assert_scalar,
    aten._assert_tensor_metadata,
    aten._linalg_check_errors,
    aten.sym_constrain_range,
    aten.sym_constrain_range_for_size,
)


@contextlib.contextmanager
def unordered() -> Iterator[None]:
    """Within the `with`, torch traces the checks of systems of equations as operators without effects, which a rule
    takes for nothing. It keeps them in order by tokens otherwise, that a program would be given and give back."""
    holder = getattr(torch._library.simple_registry.singleton.find("aten::_linalg_check_errors"), "effect", None)
    if holder is None:
        yield
        return
    before = holder.effect
    holder.register(None)
    try:
        yield
    finally:
        holder.register(before)


def drop_checks(graph: Graph) -> None:
    """Erases checks, with the tokens that torch keeps some of them in order by, in place.

    %t1, ... = with_effects(%t0, aten._linalg_check_errors, %info)      nothing; %t0 for %t1
    """
    for node in list(graph.nodes):
        if _is_ordered_check(node):
            for reader in list(node.users):
                reader.replace_all_uses_with(node.args[0])
                graph.erase_node(reader)
        if _is_check(node.target) or _is_ordered_check(node):
            graph.erase_node(node)
    made = prims._make_token.default
    for node in reversed(list(graph.nodes)):
        sinks = node.target is prims._sink_tokens.default and all(token.target is made for token in node.args[0])
        if sinks or (node.target is made and not node.users):
            graph.erase_node(node)


def refuse_sparse(graph: Graph, name: str) -> None:
    """Raises UnsupportedError for a tensor that is not held element by element."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            raise UnsupportedError(
                f"{name}: {node.target} gives a sparse tensor; use dense ones (`nn.Embedding(..., sparse=False)`)"
            )


def _is_ordered_check(node: Node) -> bool:
    """Whether a node is a check that has a place among others; all that is read of it is the next token."""
    if node.target is not torch.ops.higher_order.with_effects or not _is_check(node.args[1]):
        return False
    return all(reader.target is operator.getitem and reader.args[1] == 0 for reader in node.users)


def _is_check(target: object) -> bool:
    return getattr(target, "overloadpacket", None) in _ASSERTIONS
