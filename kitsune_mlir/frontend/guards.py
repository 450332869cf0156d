"""What torch takes for granted of open sizes while a graph is taken apart: a rule may ask whether one is another, and
go the way that the example's goes."""

from __future__ import annotations

from typing import Any

import sympy
import torch

from kitsune_mlir.errors import UnsupportedError


def guards(graph: torch.fx.Graph) -> list[Any]:
    """All that torch has taken for granted so far of the sizes of a graph's inputs."""
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch._subclasses.FakeTensor) and value.fake_mode.shape_env is not None:
            return list(value.fake_mode.shape_env.guards)
    return []


def refuse_guards(found: list[Any], sizes: set[sympy.Symbol], name: str) -> None:
    """Raises UnsupportedError where a rule that took an operator apart found an open size equal to another, or to a
    number, in the example, which that of a call need not be. That sizes differ, or are large, says how tensors lie."""
    for guard in found:
        if isinstance(guard.expr, sympy.Eq) and not sizes.isdisjoint(guard.expr.free_symbols):
            raise UnsupportedError(
                f"{name}: torch takes an operator apart for open sizes of which {guard.expr} only; fix these sizes"
            )
