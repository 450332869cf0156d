"""Views between shapes of which several sizes are open until the call.

torch-mlir pairs the sizes of such a view from the left, and takes two open ones at the same place for equal: of [b, t,
16] viewed as [b * t, 16] it keeps b rows. A size that is computed may be -1 to it, so that of [b, 7, 6, 8] viewed as [b
* 7, 6, 8] it only tells at the call which dimensions are put together, which a GPU's host does not do. Which sizes
become which, torch's symbols say. Here each dimension is split into the factors that the view puts together otherwise,
and these are collapsed: [b, 16] viewed as [b * 2, 8] is [b, 2, 8] in between. Both are operators that leave nothing to
pair.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from .size_conditions import Known

aten, prims = torch.ops.aten, torch.ops.prims

_VIEWS = {aten.view.default, aten.reshape.default, aten._unsafe_view.default}

Size = Any  # an int, or a torch.SymInt
Factors = list[list[Size]]  # of each dimension


def part_open_views(graph: Graph, known: Known) -> None:
    """Puts split and collapsed dimensions in the place of each view that has two open sizes on one side, or whose one
    open size becomes another. `known` is what each call's sizes are asked for."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _VIEWS:
            continue
        before, after = list(node.args[0].meta["val"].shape), _sizes_of(node)
        if before and after and (max(_open(before), _open(after)) > 1 or _changes_open_size(before, after, known)):
            with graph.inserting_before(node):
                node.replace_all_uses_with(_Steps(node, known).all(before, after))
            graph.erase_node(node)


def are_cut_alike(before: Sequence[Size], after: Sequence[Size]) -> bool:
    """Whether symbols tell which factors of the sizes of a shape are in which of another one's."""
    known = Known((), {})
    first, found = [0, 0], list(_runs(before, after, known))
    for dims, parts in found:
        run, wanted = before[first[0] : first[0] + dims], after[first[1] : first[1] + parts]
        if _factors(run, wanted, known) is None:
            return False
        first = [first[0] + dims, first[1] + parts]
    return bool(found)


class _Steps:
    """The operators that make a view, from its last dimensions to the first: those before are then not moved."""

    def __init__(self, view: Node, known: Known):
        self.view, self.made, self.known = view, view.args[0], known

    def all(self, before: list[Size], after: list[Size]) -> Node:
        first = [len(before), len(after)]
        for dims, parts in reversed(list(_runs(before, after, self.known))):
            first = [first[0] - dims, first[1] - parts]
            run, wanted = before[first[0] : first[0] + dims], after[first[1] : first[1] + parts]
            factors = _factors(run, wanted, self.known)
            if factors is None or not all(self._is_known(size) for sizes in factors[0] for size in sizes[:-1]):
                self._collapse(first[0], dims)  # into one dimension, whatever they are
                factors = [wanted], [[size] for size in wanted]
            self._split(first[0], factors[0])
            self._join(first[0], factors[1])
        return self.made

    def _split(self, first: int, factors: Factors) -> None:
        """torch-mlir's split_dim makes one open size at most."""
        for place, sizes in reversed(list(enumerate(factors, first))):
            if _open(sizes) > 1 or not isinstance(sizes[0], int) and _open(sizes[1:]) < len(sizes[1:]):
                self._make(aten.unflatten.int, place, [self._number(size, place, sizes) for size in sizes])
                self._settle(place, sizes)
                continue
            for number, size in enumerate(sizes[:-1]):
                self._make(prims.split_dim.default, place + number, self._number(size, place + number, sizes[number:]))

    def _settle(self, place: int, sizes: Sequence[Size]) -> None:
        """A dimension beside open ones is of a known size, which torch computes of them: n // (n // 2) of n."""
        value = self.made.meta["val"]
        self.made.meta["val"] = value.new_empty([*value.shape[:place], *sizes, *value.shape[place + len(sizes) :]])

    def _join(self, first: int, factors: Factors) -> None:
        for place, sizes in enumerate(factors, first):
            self._collapse(place, len(sizes))

    def _collapse(self, first: int, count: int) -> None:
        if count > 1:
            self._make(prims.collapse.default, first, first + count - 1)

    def _number(self, size: Size, place: int, factors: Sequence[Size]) -> int | Node:
        """The size as an operand: the one that the view is given, or, where that is -1, the dimension over the other
        factors that it is made of."""
        if isinstance(size, int):
            return size
        if (given := self._given(size)) is not None:
            return given
        number = self._call(aten.sym_size.int, self.made, place)
        for other in factors:
            if other is not size:
                known = other if isinstance(other, int) else self._given(other) or other
                number = self._call(operator.floordiv, number, known)
        return number

    def _is_known(self, size: Size) -> bool:
        return isinstance(size, int) or self._given(size) is not None

    def _given(self, size: Size) -> Node | None:
        for given, its in zip(self.view.args[1], self.view.meta["val"].shape, strict=True):
            if isinstance(given, Node) and self.known.holds(its == size):
                return given
        return None

    def _make(self, target: Any, *rest: Any) -> None:
        self.made = self._call(target, self.made, *rest)

    def _call(self, target: Any, *args: Any) -> Node:
        made = self.view.graph.call_function(target, args)
        value = target(*torch.fx.node.map_arg(args, lambda node: node.meta["val"]))
        made.meta |= {"stack_trace": self.view.stack_trace, "val": value}
        return made


def _sizes_of(view: Node) -> list[Size]:
    """The sizes of a view: those that it is given as numbers are these, for which torch may have quotients of symbols,
    as for the 4 in x.view(-1, 4, n, n)."""
    sizes = zip(view.args[1], view.meta["val"].shape, strict=True)
    return [given if isinstance(given, int) and given >= 0 else size for given, size in sizes]


def _open(shape: Sequence[Size]) -> int:
    return sum(not isinstance(size, int) for size in shape)


def _changes_open_size(before: Sequence[Size], after: Sequence[Size], known: Known) -> bool:
    """Whether the one open size of either shape is not that of the other one."""
    ours, theirs = ([size for size in shape if not isinstance(size, int)] for shape in (before, after))
    return not all(known.holds(a == b) for a, b in zip(ours, theirs))


def _runs(before: Sequence[Size], after: Sequence[Size], known: Known) -> Iterator[tuple[int, int]]:
    """How many dimensions become how many, in order, as few as symbols can tell; the last run has what is left over,
    which is all of them where symbols tell nothing."""
    first = 0, 0
    if not _shortest(before, after, known):
        yield len(before), len(after)
    while found := _shortest(before[first[0] :], after[first[1] :], known):
        end = first[0] + found[0], first[1] + found[1]
        if not _shortest(before[end[0] :], after[end[1] :], known):
            end = len(before), len(after)
        yield end[0] - first[0], end[1] - first[1]
        first = end


def _shortest(before: Sequence[Size], after: Sequence[Size], known: Known) -> tuple[int, int] | None:
    lengths = ((i, j) for i in range(1, len(before) + 1) for j in range(1, len(after) + 1))
    for i, j in sorted(lengths, key=sum):
        if known.holds(math.prod(before[:i]) == math.prod(after[:j])):
            return i, j
    return None


def _factors(before: Sequence[Size], after: Sequence[Size], known: Known) -> tuple[Factors, Factors] | None:
    """Sizes that make up those of both shapes, by the dimension of either that they are in; None where there are none,
    or symbols do not tell."""
    sides: list[list[Size]] = [list(before), list(after)]
    found: list[Factors] = [[[]], [[]]]
    while all(sides):
        ends = [side.pop() for side in sides]
        divided = _divided(*ends, known) or _cut(*ends, sides, known)
        if divided is None:
            return None
        factor, left = divided
        for side, factors, rest in zip(sides, found, left, strict=True):
            factors[0].insert(0, factor)
            if rest is not None:
                side.append(rest)
            elif side:
                factors.insert(0, [])
    return None if any(sides) else (found[0], found[1])


def _divided(a: Size, b: Size, known: Known) -> tuple[Size, tuple[Size | None, Size | None]] | None:
    """The smaller of two sizes, and what is left of either when it is taken out; None where it does not divide."""
    if known.holds(a == b):
        return a, (None, None)
    if _divides(b, a, known):
        return b, (a // b, None)
    return (a, (None, b // a)) if _divides(a, b, known) else None


def _cut(
    a: Size, b: Size, sides: list[list[Size]], known: Known
) -> tuple[Size, tuple[Size | None, Size | None]] | None:
    """The same where one is a number by which symbols do not tell that the other divides, but its neighbour is the
    other over it: of [n, m] viewed as [n // 2, 2, m // 2, 2]. Shapes of as many elements have no remainders then."""
    if isinstance(b, int) and b > 0 and sides[1] and known.holds(a // b == sides[1][-1]):
        return b, (a // b, None)
    if isinstance(a, int) and a > 0 and sides[0] and known.holds(b // a == sides[0][-1]):
        return a, (None, b // a)
    return None


def _divides(small: Size, large: Size, known: Known) -> bool:
    if isinstance(small, int) and small == 0:
        return False
    return known.holds(large % small == 0)
