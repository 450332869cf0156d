"""Dimensions that are moved more than once between two operators are moved once, or stay.

`nn.MultiheadAttention` turns batch and sequence around, multiplies, splits off queries, keys and values, copies, splits
off heads and turns again. Each turn is a copy where it stands alone. Here what lies between two operators is read as
factors of the first one's result: which of them each dimension is made of, and in which order. The second one gets
these by one view, selections, one permutation and one view.

Before:

    permute(view(clone(permute(view(%y, [2, 8, 64]), [1, 0, 2])), [8, 8, 16]), [1, 0, 2])

After:

    view(permute(view(%y, [2, 8, 4, 16]), [0, 2, 1, 3]), [8, 8, 16])

A product of rows is the same in any order of them, so that rows are multiplied in the order that they were made in,
and turned afterwards, where another turn follows that this one can meet. Of a product that has more columns than its
rows have it is done where operators read what is turned where it lies: the places of a window lie in several rows of an
image, and are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten, prims = torch.ops.aten, torch.ops.prims

SAME_ORDER = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.clone.default, aten.unsqueeze.default,
    aten.squeeze.dim, aten.squeeze.dims, aten.squeeze.default, prims.squeeze.default, aten.expand.default,
}  # fmt: skip
_PRODUCTS = {aten.mm.default: 0, aten.addmm.default: 1}  # and which operand is the rows
_READERS = {*_PRODUCTS, aten.bmm.default}  # of what is moved where it lies

Size = Any  # an int, or a torch.SymInt


class Factor:
    """A part of a dimension, known by itself: two of the same size are two. What is left of an open size divided by
    itself is a number."""

    def __init__(self, size: Size):
        known = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else size
        self.size = size if known is None else known


def move_once(graph: Graph) -> None:
    """Multiplies rows in the order that they are in, and merges what moves dimensions between two operators."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _PRODUCTS:
            _keep_order_of_rows(node, _PRODUCTS[node.target])
    for node in list(graph.nodes):
        if is_move(node) and any(not is_move(user) for user in node.users):
            moves = Moves.of(node)
            if moves is None or moves.turns < 2:
                continue
            others = any(not is_move(user) and user.target not in _READERS for user in node.users)
            with graph.inserting_before(node):  # rows alone, in another order, are read where they lie
                made = moves.make(moves.dims, node.meta["val"].shape, others and len(moves.of_source[-1]) > 1)
            if made is not None:
                node.replace_all_uses_with(made)
    graph.eliminate_dead_code()


def _keep_order_of_rows(product: Node, operand: int) -> None:
    moves = Moves.of(product.args[operand])
    if moves is None or moves.turns == 0 or (operand and product.args[0].meta["val"].dim() != 1):
        return
    rows, columns = moves.dims
    (count, width), outputs = product.args[operand].meta["val"].shape, product.meta["val"].shape[1]
    ordered = [factor for factor in moves.factors() if factor in rows]
    if ordered == rows or not all(_turns_again(user) for user in product.users):
        return
    if statically_known_true(outputs > width) and _tears_apart(product, rows, ordered):
        return
    with product.graph.inserting_before(product):
        x = moves.make([ordered, columns], [count, width])
        if x is None:
            return
        args = [x if place == operand else given for place, given in enumerate(product.args)]
        whole = call(product, [count, outputs], product.target, *args)
        apart = view(whole, [*(factor.size for factor in ordered), outputs], moves.source)
        if apart is None:
            return
        order = [*(ordered.index(factor) for factor in rows), len(rows)]
        shape = [*(factor.size for factor in rows), outputs]
        turned = view(call(product, shape, aten.permute.default, apart, order), [count, outputs])
    product.replace_all_uses_with(turned)


def _tears_apart(product: Node, rows: list[Factor], ordered: list[Factor]) -> bool:
    """Whether a dimension that an operator takes of a product of `rows`, such as the places of a window, is made of
    factors that lie apart in the order that rows are made in: the operator reads them of a copy then."""
    waiting, found = list(product.users), False
    while waiting and not found:
        node = waiting.pop()
        waiting += [user for user in node.users if is_move(user)]
        moves = Moves.of(node) if any(not is_move(user) for user in node.users) else None
        if moves is not None and moves.source is product:
            places = _places(moves.of_source[0], rows, ordered)
            kept = [[place for factor in dim for place in places.get(factor, ())] for dim in moves.dims]
            found = any(b != a + 1 for dim in kept for a, b in pairwise(dim))
    return found


def _places(factors: list[Factor], rows: list[Factor], ordered: list[Factor]) -> dict[Factor, list[int]]:
    """The numbers, in the order that rows are made in, of what each factor of these is made of; of none where sizes do
    not tell."""
    found = dict[Factor, list[tuple[int, int]]]()
    left, size, part = [*rows], 1, 0
    for factor in factors:
        found[factor], rest = [], factor.size
        while not statically_known_true(rest == 1):
            if statically_known_true(size == 1):
                if not left:
                    return {}
                row, part = left.pop(0), 0
                size = row.size
            if statically_known_true(rest % size == 0):
                rest, size = rest // size, 1
            elif statically_known_true(size % rest == 0):
                rest, size = 1, size // rest
            else:
                return {}
            found[factor].append((ordered.index(row), part))
            part += 1
    numbers = {key: number for number, key in enumerate(sorted(key for keys in found.values() for key in keys))}
    return {factor: [numbers[key] for key in keys] for factor, keys in found.items()}


def _turns_again(node: Node) -> bool:
    """Whether dimensions are permuted wherever this value is used by an operator that does more than move them."""
    if node.op != "call_function" or not is_move(node):
        return False
    return node.target is aten.permute.default or (bool(node.users) and all(map(_turns_again, node.users)))


def is_move(node: Node) -> bool:
    """Whether a value has elements of another, each once at most, in its order or in another."""
    turns = node.op == "call_function" and node.target in (aten.permute.default, aten.select.int)
    return turns or keeps_order(node)


def keeps_order(node: Node) -> bool:
    """Whether a value has each element of another once, in the same order."""
    if node.op != "call_function" or node.target not in SAME_ORDER:
        return False
    repeats = node.target is aten.expand.default
    return not repeats or same_shape(node.meta["val"].shape, node.args[0].meta["val"].shape)


class Moves:
    """What a value is of another that it is made of by moves alone: factors of its dimensions, of those selected which,
    and how often dimensions change places on the way."""

    def __init__(self, source: Node):
        self.source, self.turns = source, 0
        shape = source.meta["val"].shape
        self.of_source = [[] if statically_known_true(size == 1) else [Factor(size)] for size in shape]
        self.dims = [list(factors) for factors in self.of_source]
        self.selected: dict[Factor, int] = {}

    @staticmethod
    def of(node: Node) -> Moves | None:
        """None where sizes do not tell, or nothing is there to be moved."""
        steps = []
        while is_move(node):
            steps.append(node)
            node = node.args[0]
        shapes = [step.meta["val"].shape for step in [node, *steps]]
        if any(isinstance(size, int) and size == 0 for shape in shapes for size in shape):
            return None
        moves = Moves(node)
        return moves if all(moves._take(step) for step in reversed(steps)) else None

    def factors(self) -> list[Factor]:
        return [factor for factors in self.of_source for factor in factors]

    def _take(self, step: Node) -> bool:
        if step.target is aten.permute.default:
            before = [factor for factors in self.dims for factor in factors]
            self.dims = [self.dims[d] for d in step.args[1]]
            self.turns += before != [factor for factors in self.dims for factor in factors]
            return True
        if step.target is aten.select.int:
            _, dim, index = step.args
            factors = self.dims.pop(dim)
            if len(factors) > 1 or not isinstance(index, int):
                return False
            if factors:
                size = factors[0].size
                if index < 0 and not isinstance(size, int):
                    return False
                self.selected[factors[0]] = index % size if index < 0 else index
            return True
        return self._view(step.meta["val"].shape)

    def _view(self, shape: Sequence[Size]) -> bool:
        left = [factor for factors in self.dims for factor in factors]
        found: list[list[Factor]] = []
        for size in shape:
            found.append([])
            while not statically_known_true(size == 1):
                if not left:
                    return False
                factor = left.pop(0)
                if statically_known_true(size % factor.size == 0):
                    size = size // factor.size
                elif statically_known_true(factor.size % size == 0):
                    parts = [Factor(size), Factor(factor.size // size)]
                    self._split(factor, parts)
                    found = [_replaced(factors, factor, parts) for factors in found]
                    factor, size = parts[0], 1
                    left.insert(0, parts[1])
                else:
                    return False
                found[-1].append(factor)
        self.dims = found
        return not left

    def _split(self, factor: Factor, parts: list[Factor]) -> None:
        self.of_source = [_replaced(factors, factor, parts) for factors in self.of_source]

    def make(self, dims: list[list[Factor]], shape: Sequence[Size], sizes_of_inputs: bool = False) -> Node | None:
        """The source's factors in these dimensions, by few operators. None where it does not have the open ones, nor
        an input if these are asked."""
        order = [factor for factors in dims for factor in factors]
        factors = self.factors()
        inputs = self.source.graph.find_nodes(op="placeholder") if sizes_of_inputs else []
        made = view(self.source, [factor.size for factor in factors], *inputs)
        if made is None:
            return None
        for factor, index in self.selected.items():
            place = factors.index(factor)
            factors.pop(place)
            made = call(self.source, [each.size for each in factors], aten.select.int, made, place, index)
        if order != factors:
            places = [factors.index(factor) for factor in order]
            made = call(self.source, [factor.size for factor in order], aten.permute.default, made, places)
        return view(made, list(shape), *inputs)


def _replaced(factors: list[Factor], factor: Factor, parts: list[Factor]) -> list[Factor]:
    return [new for each in factors for new in (parts if each is factor else [each])]


def call(origin: Node, shape: Sequence[Size], target: Any, *args: Any) -> Node:
    """A call at the insertion point, which counts as the model's line of `origin` and has elements of its type."""
    made = origin.graph.call_function(target, args)
    made.meta |= {"stack_trace": origin.stack_trace, "val": origin.meta["val"].new_empty(shape)}
    return made


def view(source: Node, shape: Sequence[Size], *like: Node) -> Node | None:
    """The source with other sizes; None where these are open and neither it nor one of `like` has them."""
    if same_shape(source.meta["val"].shape, shape):
        return source
    one = sum(not isinstance(size, int) for size in shape) == 1
    sizes = [size if isinstance(size, int) else -1 if one else open_size(size, source, *like) for size in shape]
    if sizes.count(None) > 1:
        return None
    return call(source, shape, aten.view.default, source, [-1 if size is None else size for size in sizes])


def open_size(size: Size, *nodes: Node) -> Node | None:
    """An open size as an operand: a node that is this number, or that of a dimension of a tensor that has it."""
    for node in nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            if value is not None and statically_known_true(value == size):
                return node
            continue
        for d, its in enumerate(value.shape):
            if statically_known_true(its == size):
                made = node.graph.call_function(aten.sym_size.int, (node, d))
                made.meta |= {"stack_trace": node.stack_trace, "val": its}
                return made
    return None


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    return len(a) == len(b) and all(statically_known_true(x == y) for x, y in zip(a, b, strict=True))
