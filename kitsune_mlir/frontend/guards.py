"""What torch takes for granted of open sizes while a graph is taken apart: a rule may ask whether one is another, and
go the way that the example's goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Mod, PythonMod

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


def is_of_example(exported: torch.export.ExportedProgram) -> bool:
    """Whether a trace took an open size of an input, or a number that is computed of such, for that of the example."""
    values = [node.meta["val"] for node in exported.graph.find_nodes(op="placeholder")]
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    return any(map(_is_fixed, sizes)) or any(True for _ in _fixed_numbers(exported))


def refuse_numbers_of_example(exported: torch.export.ExportedProgram, name: str) -> None:
    """Raises UnsupportedError where a trace took the example's for a number that is computed of open sizes."""
    for computed, number in _fixed_numbers(exported):
        advice = (
            "take an example of larger sizes"
            if number in (0, 1)
            else "multiply a tensor by it instead of giving it to an operator"
        )
        raise UnsupportedError(
            f"{name}: torch takes {computed}, which the model computes of open sizes, for {number}, as in the example; "
            f"{advice}, or fix the sizes"
        )


def _fixed_numbers(exported: torch.export.ExportedProgram) -> Iterator[tuple[Any, Any]]:
    """What is computed of open sizes and the number that the trace took for it. An open size itself that is taken for a
    number is one, and that sizes are divisible is asked of calls."""
    found = _equalities(exported.graph)
    asked = [one for one in found if one.has(Mod, PythonMod) or not any(side.is_number for side in one.args)]
    for equality in found:
        computed, number = _sides(equality)
        if equality not in asked and not computed.is_number and not computed.is_symbol:
            if not _holds(equality, exported.range_constraints, asked):
                yield computed, number


def _is_fixed(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and bool(size.node.expr.is_number)


def settle_sizes(graph: torch.fx.Graph) -> None:
    """Sizes of tensors that are known to be a number for all sizes of calls are it, in place: those of the example that
    a trace took for open ones, and such as the 2 of `x.view(-1, 2)`, which torch computes of a size that is open."""
    known = {computed: number for computed, number in map(_sides, _equalities(graph)) if number.is_number}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch._subclasses.FakeTensor):
            sizes, strides = ([_settled(one, known) for one in many] for many in (value.shape, value.stride()))
            if any(isinstance(old, torch.SymInt) and isinstance(new, int) for old, new in zip(value.shape, sizes)):
                with value.fake_mode:
                    node.meta["val"] = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


def _settled(size: Any, known: Mapping[Any, Any]) -> Any:
    if not isinstance(size, torch.SymInt):
        return size
    found = known.get(size.node.expr, size.node.expr)
    return int(found) if found.is_number else size


def _equalities(graph: torch.fx.Graph) -> list[sympy.Eq]:
    return [guard.expr for guard in guards(graph) if isinstance(guard.expr, sympy.Eq)]


def _sides(equality: sympy.Eq) -> tuple[Any, Any]:
    """Both sides of an equality, a number last."""
    computed, number = sorted(equality.args, key=lambda side: bool(side.is_number))
    return computed, number


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


def refuse_guards(graph: torch.fx.Graph, before: int, ranges: Mapping[sympy.Symbol, Any], name: str) -> None:
    """Raises UnsupportedError where a rule that took an operator apart found an open size equal to another, or to a
    number, in the example, which that of a call need not be. That sizes differ, or are large, says how tensors lie.
    So many guards as were there `before` are the trace's own; `ranges` has those of the open sizes."""
    every = guards(graph)
    asked = [guard.expr for guard in every[:before] if isinstance(guard.expr, sympy.Eq)]
    for guard in every[before:]:
        if isinstance(guard.expr, sympy.Eq) and not _holds(guard.expr, ranges, asked):
            raise UnsupportedError(
                f"{name}: torch takes an operator apart for open sizes of which {guard.expr} only; fix these sizes"
            )


def _holds(equality: sympy.Eq, ranges: Mapping[sympy.Symbol, Any], asked: Sequence[sympy.Eq] = ()) -> bool:
    """Whether an equality, such as of a size and the lesser of it and twice as much, holds for sizes of all kinds for
    which all that is asked of calls does."""
    symbols = sorted(equality.free_symbols & ranges.keys(), key=str)
    sizes = [[size for size in _TRIED if ranges[one].lower <= size <= ranges[one].upper] for one in symbols]
    for drawn in product(*sizes):
        given = list(zip(symbols, drawn))
        if equality.subs(given) == sympy.false and not any(one.subs(given) == sympy.false for one in asked):
            return False
    return True
