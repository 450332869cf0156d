"""What torch took for granted of open sizes in a trace, which each call is asked for (kitsune_mlir/size_conditions.py).

torch.export has the sizes of an example, and goes the way of these: `glu` halves an even number of channels,
`x.view(-1, 2)` has half as many rows as there are elements, `if n % 2:` pads. Its guards say so, but only those of a
single size's range are checked by its programs. Not all of them matter: how tensors of the example lie in memory gives
some, and what holds for all sizes is not asked. Those that do are of a division without rest, of a number that the
trace took for one that is computed of sizes, and of the model's own branches; and that views have as many elements as
what they are of, which they say themselves.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy import functions

from kitsune_mlir.size_conditions import Condition, evaluate, is_met, names_of

aten = torch.ops.aten
_VIEWS = {
    *(getattr(aten, name).default for name in ("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy")),
    aten.unflatten.int,
}
_TRIED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 21, 30, 60, 97, 128, 420, 1001)
_MOST = 400  # sizes of several dimensions that are tried
_FIXED = 0.25  # where an equality holds for so few of the sizes, it fixes them
_OF_TORCH = os.path.dirname(torch.__file__) + os.sep
_FOLLOWS_MODEL = os.path.join(_OF_TORCH, "_dynamo")  # asks in the place of the model's code

_NAMES: dict[Any, str] = {
    sympy.Add: "+",
    sympy.Mul: "*",
    functions.FloorDiv: "//",
    functions.CleanDiv: "//",
    functions.Mod: "%",
    functions.PythonMod: "%",
    functions.Max: "max",
    functions.Min: "min",
    sympy.Eq: "==",
    sympy.Ne: "!=",
    sympy.StrictLessThan: "<",
    sympy.LessThan: "<=",
    sympy.StrictGreaterThan: ">",
    sympy.GreaterThan: ">=",
    sympy.And: "and",
    sympy.Or: "or",
    sympy.Not: "not",
}
Ranges = Mapping[sympy.Symbol, Any]


def condition_of(expr: Any) -> Condition | None:
    """An expression of torch's as data; None for one that has more than sums, products, divisions and comparisons."""
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if isinstance(expr, sympy.Symbol):
        return str(expr)
    if isinstance(expr, sympy.Pow) and isinstance(expr.exp, sympy.Integer) and 0 < expr.exp < 9:
        base = condition_of(expr.base)
        return None if base is None else ["*", *[base] * int(expr.exp)]
    name = _NAMES.get(type(expr))
    args = sorted(expr.args, key=lambda one: one.is_number) if name == "+" else expr.args  # n + 1, as people write it
    parts = [condition_of(part) for part in args]
    return None if name is None or not parts or None in parts else [name, *parts]


def share_met(condition: Condition, ranges: Ranges, asked: Sequence[Condition] = ()) -> float:
    """For which part of sizes of all kinds a condition is met, of those for which all that is `asked` of calls is; 1
    where there are none."""
    known = {str(symbol): found for symbol, found in ranges.items()}
    names = sorted(names_of(condition) & known.keys())
    if names_of(condition) - known.keys():
        return 1
    found = [dict(zip(names, one)) for one in _drawn([known[name] for name in names])]
    about = [one for one in asked if names_of(one) <= {*names}]
    found = [given for given in found if all(is_met(one, given) for one in about)]
    return sum(is_met(condition, given) for given in found) / len(found) if found else 1


class Known:
    """What holds of the sizes of all calls, of which all `asked` conditions do."""

    def __init__(self, asked: Sequence[Condition], ranges: Ranges):
        self._ranges = {str(symbol): found for symbol, found in ranges.items()}
        self._asked = asked
        self._drawn: dict[frozenset[str], list[dict[str, int]]] = {}

    def holds(self, size: Any) -> bool:
        """Whether a comparison of open sizes does, as torch can tell, or for sizes of all kinds that are asked for."""
        if statically_known_true(size):
            return True
        if isinstance(size, bool):
            return False
        found = condition_of(size.node.expr) if self._asked else None
        names = frozenset() if found is None else frozenset(names_of(found))
        if not names or not names <= self._ranges.keys():
            return False
        drawn = self._of(names)
        return bool(drawn) and all(_is_true(found, given) for given in drawn)

    def _of(self, names: frozenset[str]) -> list[dict[str, int]]:
        """Sizes of all kinds that are as is asked; none where nothing is."""
        if names not in self._drawn:
            asked = [one for one in self._asked if names_of(one) & names]
            every = sorted(names.union(*map(names_of, asked)))
            known = [self._ranges.get(name) for name in every]
            drawn = [] if not asked or None in known else _drawn(known)
            found = [dict(zip(every, one)) for one in drawn]
            self._drawn[names] = [given for given in found if all(_is_true(one, given) for one in asked)]
        return self._drawn[names]


def _is_true(condition: Condition, sizes: Mapping[str, int]) -> bool:
    """Whether a condition is met, and says something of these sizes."""
    try:
        return bool(evaluate(condition, sizes))
    except ZeroDivisionError:
        return False


def _drawn(ranges: Sequence[Any]) -> list[tuple[int, ...]]:
    sizes = [[size for size in _TRIED if found.lower <= size <= found.upper] for found in ranges]
    return list(product(*sizes)) if prod(map(len, sizes)) <= _MOST else _sample(sizes)


def _sample(sizes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    draw = random.Random(0)
    return [tuple(map(draw.choice, sizes)) for _ in range(_MOST)]


def divisions(every: Sequence[Any]) -> list[Condition]:
    """Those of torch's guards that are asked of calls whatever they come to: of rests of divisions, and of what the
    model itself asks."""
    kept = [guard.expr for guard in every if _is_of_model(guard) or _has_rest(guard.expr) and not _differ(guard.expr)]
    return [found for found in map(condition_of, kept) if found is not None]


def fixes_sizes(equality: sympy.Eq, ranges: Ranges, asked: Sequence[Condition]) -> bool:
    """Whether an equality of what is computed of open sizes and a number holds for few sizes only."""
    found = condition_of(equality)
    return found is None or share_met(found, ranges, asked) <= _FIXED


def conditions(exported: torch.export.ExportedProgram, every: Sequence[Any]) -> list[Condition]:
    """What is asked of the sizes of each call: of torch's guards (`every` is all of them), and of the graph's views."""
    ranges, found = exported.range_constraints, divisions(every)
    numbers = [guard.expr for guard in every if isinstance(guard.expr, sympy.Eq) and _is_of_number(guard.expr)]
    found += [one for one in map(condition_of, numbers) if one is not None]
    found += [one for one in map(_of_view, exported.graph.nodes) if one is not None]
    distinct = {repr(one): one for one in found}.values()
    return [one for one in distinct if share_met(one, ranges) < 1]


def _of_view(node: torch.fx.Node) -> Condition | None:
    """That a view has as many elements as what it is a view of."""
    if node.op != "call_function" or node.target not in _VIEWS:
        return None
    before, after = (
        [size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size) for size in value.shape]
        for value in (node.args[0].meta["val"], node.meta["val"])
    )
    if 0 in before and 0 in after:
        return None
    common = list(after)
    left = [size for size in before if size not in common or common.remove(size)]
    equality = [condition_of(sympy.Mul(*sizes)) for sizes in (left, common)]
    return None if None in equality or equality[0] == equality[1] else ["==", *equality]


def _is_of_model(guard: Any) -> bool:
    """Whether the model asks, as in an `if`, rather than torch."""
    file = getattr(getattr(guard.sloc, "framework_loc", None), "filename", "")
    return bool(file) and (not file.startswith(_OF_TORCH) or file.startswith(_FOLLOWS_MODEL))


def _has_rest(expr: Any) -> bool:
    return bool(expr.has(functions.Mod, functions.PythonMod))


def _differ(expr: Any) -> bool:
    return isinstance(expr, sympy.Ne)


def _is_of_number(equality: sympy.Eq) -> bool:
    """Whether it says that what is computed of open sizes is a number."""
    numbers = [side for side in equality.args if side.is_number]
    return len(numbers) == 1 and not any(side.is_symbol for side in equality.args)
