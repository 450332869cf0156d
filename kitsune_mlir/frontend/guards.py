"""What torch takes for granted of open sizes while a graph is taken apart: a rule may ask whether one is another, and
go the way that the example's goes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import CeilToInt, FloorToInt, RoundToInt, TruncToInt

from kitsune_mlir.errors import UnsupportedError

from .selection_forms import PUTS, mask_of

_ROUNDED = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)
_SELECTING = {torch.ops.aten.index.Tensor, *PUTS}
_TRIED = (0, 1, 2, 3, 5, 7, 16, 30, 97, 128, 1001)


def guards(graph: torch.fx.Graph) -> list[Any]:
    """All that torch has taken for granted so far of the sizes of a graph's inputs."""
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch._subclasses.FakeTensor) and value.fake_mode.shape_env is not None:
            return list(value.fake_mode.shape_env.guards)
    return []


def is_of_example(exported: torch.export.ExportedProgram) -> bool:
    """Whether a trace took an open size of an input, or a number that is computed of such, for that of the example."""
    values = [node.meta["val"] for node in exported.graph.find_nodes(op="placeholder")]
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    return any(map(_is_fixed, sizes)) or any(_fixes_number(guard.expr) for guard in guards(exported.graph))


def refuse_numbers_of_example(graph: torch.fx.Graph, name: str) -> None:
    """Raises UnsupportedError where a trace took the example's for a number that is computed of open sizes."""
    for guard in guards(graph):
        if _fixes_number(guard.expr):
            number, computed = sorted(guard.expr.args, key=lambda side: len(side.free_symbols))
            raise UnsupportedError(
                f"{name}: torch takes {computed}, a number that the model computes of open sizes, for {number}, as in "
                "the example; multiply a tensor by it instead of giving it to an operator, or fix the sizes"
            )


def _fixes_number(expr: Any) -> bool:
    """Whether a number that is computed of sizes, as floats are, is taken for one. Of sizes of views torch asks whether
    they are 0 or 1 in any case."""
    if not isinstance(expr, sympy.Eq) or not expr.free_symbols:
        return False
    found = [side for side in expr.args if side.is_number]
    return any(side.is_Float or (side not in (0, 1) and expr.has(*_ROUNDED)) for side in found)


def _is_fixed(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and bool(size.node.expr.is_number)


def settle_sizes(graph: torch.fx.Graph) -> None:
    """Open sizes of tensors that a trace took for those of the example are numbers, in place."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch._subclasses.FakeTensor) and any(map(_is_fixed, value.shape)):
            with value.fake_mode:
                sizes, strides = ([_settled(one) for one in many] for many in (value.shape, value.stride()))
                node.meta["val"] = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


def _settled(size: Any) -> Any:
    return int(size) if _is_fixed(size) else size


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
