"""What torch takes for granted of open sizes while a graph is taken apart: a rule may ask whether one is another, and
go the way that the example's goes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import sympy
import torch

from kitsune_mlir.errors import UnsupportedError

from .selection_forms import PUTS, mask_of

_SELECTING = {torch.ops.aten.index.Tensor, *PUTS}
_TRIED = (0, 1, 2, 3, 5, 7, 16, 30, 97, 128, 1001)


def guards(graph: torch.fx.Graph) -> list[Any]:
    """All that torch has taken for granted so far of the sizes of a graph's inputs."""
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch._subclasses.FakeTensor) and value.fake_mode.shape_env is not None:
            return list(value.fake_mode.shape_env.guards)
    return []


def take_masks_to_fit(graph: torch.fx.Graph) -> None:
    """Takes for granted that masks by which elements are taken or set have the sizes of what they select of, which
    torch asks of tensors alone: otherwise a rule that takes an operator apart finds it of the example."""
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in _SELECTING or (mask := mask_of(node)) is None:
            continue
        value, first = node.args[0].meta["val"], node.args[1].index(mask)
        for size, own in zip(mask.meta["val"].shape, value.shape[first:]):
            if isinstance(size, torch.SymInt) and isinstance(own, torch.SymInt):
                bool(size == own)


def refuse_guards(found: list[Any], ranges: Mapping[sympy.Symbol, Any], name: str) -> None:
    """Raises UnsupportedError where a rule that took an operator apart found an open size equal to another, or to a
    number, in the example, which that of a call need not be. That sizes differ, or are large, says how tensors lie.
    `ranges` has those of the open sizes."""
    for guard in found:
        if isinstance(guard.expr, sympy.Eq) and not _holds(guard.expr, ranges):
            raise UnsupportedError(
                f"{name}: torch takes an operator apart for open sizes of which {guard.expr} only; fix these sizes"
            )


def _holds(equality: sympy.Eq, ranges: Mapping[sympy.Symbol, Any]) -> bool:
    """Whether an equality, such as of a size and the lesser of it and twice as much, holds for sizes of all kinds."""
    symbols = sorted(equality.free_symbols & ranges.keys(), key=str)
    sizes = [[size for size in _TRIED if ranges[one].lower <= size <= ranges[one].upper] for one in symbols]
    return all(equality.subs(list(zip(symbols, drawn))) != sympy.false for drawn in product(*sizes))
