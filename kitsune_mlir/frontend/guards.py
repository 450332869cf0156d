"""What torch takes for granted of open sizes while a graph is taken apart: a rule may ask whether one is another, and
go the way that the example's goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.size_conditions import Condition

from .selection_forms import PUTS, mask_of
from .size_conditions import condition_of, conditions, divisions, fixes_sizes, share_met

_SELECTING = {torch.ops.aten.index.Tensor, *PUTS}
_VIEWS = {torch.ops.aten.view.default, torch.ops.aten.reshape.default, torch.ops.aten._unsafe_view.default}


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


def asked_of_calls(exported: torch.export.ExportedProgram, name: str) -> list[Condition]:
    """What the sizes of each call are asked for, as a trace took it for granted; sizes of the graph that are known then
    are settled in place. Raises UnsupportedError where it took the example's for a number that is computed of open
    sizes, as few of them have it."""
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
    take_masks_to_fit(exported.graph)
    settle_sizes(exported.graph)
    return conditions(exported, guards(exported.graph))


def _fixed_numbers(exported: torch.export.ExportedProgram) -> Iterator[tuple[Any, Any]]:
    """What is computed of open sizes and the number that the trace took for it, where few sizes have it; others are
    asked of calls, and an open size itself that is taken for a number is one."""
    asked = divisions(guards(exported.graph))
    for equality in _equalities(exported.graph):
        computed, number = _sides(equality)
        if number.is_number and not computed.is_number and not computed.is_symbol:
            if fixes_sizes(equality, exported.range_constraints, asked):
                yield computed, number


def _is_fixed(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and bool(size.node.expr.is_number)


def settle_sizes(graph: torch.fx.Graph) -> None:
    """Sizes of tensors that are known to be a number for all sizes of calls are it, in place: those of the example that
    a trace took for open ones, and such as the 2 of `x.view(-1, 2)`, which torch computes of a size that is open."""
    known = {computed: number for computed, number in map(_sides, _equalities(graph)) if number.is_number}
    known |= dict(_given_to_views(graph))
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch._subclasses.FakeTensor):
            sizes, strides = ([_settled(one, known) for one in many] for many in (value.shape, value.stride()))
            if any(isinstance(old, torch.SymInt) and isinstance(new, int) for old, new in zip(value.shape, sizes)):
                with value.fake_mode:
                    node.meta["val"] = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
                node.meta.pop("tensor_meta", None)  # of the sizes before


def _given_to_views(graph: torch.fx.Graph) -> Iterator[tuple[Any, Any]]:
    """What is computed of open sizes and is known to be the number that a view was given."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _VIEWS and isinstance(node.args[1], Sequence):
            for given, size in zip(node.args[1], node.meta["val"].shape):
                if isinstance(given, int) and given != -1 and isinstance(size, torch.SymInt):
                    yield size.node.expr, sympy.Integer(given)


def _settled(size: Any, known: Mapping[Any, Any]) -> Any:
    if not isinstance(size, torch.SymInt):
        return size
    found = size.node.expr.xreplace(known)
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


def found_equal(graph: torch.fx.Graph, before: int, ranges: Mapping[sympy.Symbol, Any], name: str) -> list[Condition]:
    """What a rule that took an operator apart found equal in the example, of sizes of inputs, which calls are asked for
    then. Raises UnsupportedError where it found an open size equal to a number, or such of others, which those of a
    call need not be. That sizes differ, or are large, says how tensors lie. So many guards as were there `before` are
    the trace's own; `ranges` has those of the open sizes."""
    every, found = _of_one_name(graph), list[Condition]()
    asked = [taken for taken in every[:before] if isinstance(taken, sympy.Eq)]
    for taken in every[before:]:
        if not isinstance(taken, sympy.Eq) or _holds(taken, ranges, asked):
            continue
        if not _is_of_inputs(taken, graph) or (condition := condition_of(taken)) is None:
            raise UnsupportedError(
                f"{name}: torch takes an operator apart for open sizes of which {taken} only; fix these sizes"
            )
        if condition not in found:
            found.append(condition)
    return found


def _of_one_name(graph: torch.fx.Graph) -> list[Any]:
    """What guards say, of sizes that have been found to be the same by one name; numbers are in no size's place."""
    modes = (getattr(node.meta.get("val"), "fake_mode", None) for node in graph.find_nodes(op="placeholder"))
    env = next((mode.shape_env for mode in modes if mode is not None and mode.shape_env is not None), None)
    found = [guard.expr for guard in guards(graph)]
    kept = [env is None or isinstance(one, sympy.Eq) and any(side.is_number for side in one.args) for one in found]
    return [one if is_kept else env.replace(one) for one, is_kept in zip(found, kept, strict=True)]


def _is_of_inputs(equality: sympy.Eq, graph: torch.fx.Graph) -> bool:
    """Whether an equality is of open sizes that inputs have, on both sides."""
    values = [node.meta.get("val") for node in graph.find_nodes(op="placeholder")]
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    known = {size.node.expr for size in sizes if isinstance(size, torch.SymInt)}
    return all(side.free_symbols and side.free_symbols <= known for side in equality.args)


def _holds(equality: sympy.Eq, ranges: Mapping[sympy.Symbol, Any], asked: Sequence[sympy.Eq] = ()) -> bool:
    """Whether an equality, such as of a size and the lesser of it and twice as much, holds for sizes of all kinds for
    which all that is asked of calls does."""
    found, known = condition_of(equality), [one for one in map(condition_of, asked) if one is not None]
    return found is not None and share_met(found, ranges, known) == 1
