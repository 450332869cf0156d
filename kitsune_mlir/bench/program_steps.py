"""The rules of random programs in families, with how often each family is drawn. A rule picks values that its operator
may apply to, and calls it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from . import program_elementwise as elementwise
from . import program_layers as layers
from . import program_moves as moves
from .random_programs import Drawing

Rule = Callable[[Drawing], None]


def _rules(home: ModuleType, names: str) -> tuple[Rule, ...]:
    return tuple(getattr(home, name) for name in names.split())


FAMILIES: dict[tuple[Rule, ...], float] = {
    _rules(elementwise, "unary unary unary_of_positive unary_within_one binary_with_number power"): 3,
    _rules(elementwise, "binary binary quotient three_operands"): 4,
    _rules(elementwise, "selected filled clamped in_steps compared logical"): 2.5,
    _rules(elementwise, "integers cast"): 1.5,
    _rules(elementwise, "reduced reduced reduced_whole places counted"): 3,
    _rules(elementwise, "scanned scanned scanned_integers"): 1,
    _rules(elementwise, "softmaxed normed"): 2,
    _rules(layers, "linear product product_added einsum"): 3,
    _rules(layers, "vectors distances similarity"): 0.7,
    _rules(moves, "viewed viewed sliced cut diagonals"): 4,
    _rules(moves, "joined padded moved made"): 3,
    _rules(moves, "gathered gathered scattered hot sorted_ bucketed"): 3,
    _rules(layers, "convolved convolved pooled resized blocks"): 1.5,
    _rules(layers, "lost cell attended glu complex_"): 1.3,
    _rules(moves, "changed"): 1,
}
