"""Equal steps, each of which multiplies what the one before made with the same weights, found among groups of products.

    %p1, %q1 = products of %h0 with %w, %v;  %h1 = elementwise of %p1, %q1, rows 0 to 63 of %x, %c0;  %c1 = ...
    %p2, %q2 = products of %h1 with %w, %v;  %h2 = elementwise of %p2, %q2, rows 64 to 127 of %x, %c1;  %c2 = ...

What differs from step to step is a *state*, which is what the step before made, or *streamed*: the same columns of as
many rows of one tensor, in each step so many rows on. All else is the same. What something other than the steps reads
may have no part in what the steps read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, match_product
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import operations_of, slice_of

from .product_follows import Follows

LEAST = 3  # steps that are worth a kernel of their own
_MOST_DEPTH = 16  # of values that are compared by what computes them


@dataclass(frozen=True, eq=False)
class Step:
    """Products of one left operand, and what follows them, each operator behind those that it takes, in the order in
    which the results ask for them, the last one first: so steps that compute alike have the same order."""

    products: tuple[ir.Operation, ...]
    found: tuple[Contraction, ...]
    follows: Follows

    @staticmethod
    def of(products: Sequence[ir.Operation], found: Sequence[Contraction], follows: Follows) -> Step:
        own, ordered = {op.results[0]: op for op in follows.ops}, list[ir.Operation]()

        def visit(op: ir.Operation) -> None:
            for value in op.operands:
                if value in own:
                    visit(own.pop(value))
            ordered.append(op)

        for op in [*reversed(follows.stored), *follows.ops]:
            if op.results[0] in own:
                visit(own.pop(op.results[0]))
        return Step(tuple(products), tuple(found), Follows(ordered, follows.stored))

    @property
    def ops(self) -> list[ir.Operation]:
        return [*self.products, *self.follows.ops]

    @property
    def results(self) -> list[ir.Value]:
        """What is used outside."""
        return [op.results[0] for op in self.follows.stored]

    def outside(self) -> Iterator[tuple[tuple[int, int], ir.Value]]:
        """What its elementwise operators take that it does not make, by operator and operand."""
        made = {op.results[0] for op in self.ops}
        for number, op in enumerate(self.follows.ops):
            for i in range(rows.Structured(op).inputs):
                if op.operands[i] not in made:
                    yield (number, i), op.operands[i]


@dataclass(frozen=True)
class Streamed:
    """Rows and columns of a tensor whose rows may lie in two dimensions: from row `first` on in the first step, so many
    rows further on in each, and from a column on."""

    source: ir.Value
    first: int
    stride: int
    column: int


@dataclass(frozen=True)
class Steps:
    """A run of equal steps, but that the last may have fewer results. `hidden` numbers the result that the next step
    multiplies; by operator and operand, `states` number those results of the step before that it takes, and `streamed`
    says what else differs."""

    steps: tuple[Step, ...]
    hidden: int
    states: dict[tuple[int, int], int]
    streamed: dict[tuple[int, int], Streamed]

    @property
    def first(self) -> Step:
        return self.steps[0]

    @property
    def begins(self) -> dict[int, ir.Value]:
        """What the first step takes as a result of the step before, by the result's number."""
        given, product = dict(self.first.outside()), match_product(self.first.products[0])
        assert product is not None
        return {number: given[place] for place, number in self.states.items()} | {self.hidden: product.left}

    def now(self) -> Steps | None:
        """The run as it is behind kernels that were built since it was found, which may write what it streams; None
        where it is none any more."""
        given, second = dict(self.first.outside()), dict(self.steps[1].outside())
        streamed = dict[tuple[int, int], Streamed]()
        for place, known in self.streamed.items():
            found = _streamed(given[place], second[place])
            if found is None or replace(found, source=known.source) != known:
                return None
            streamed[place] = found
        return replace(self, streamed=streamed)

    def users(self, number: int) -> list[list[ir.Operation]]:
        """For each step what else than the steps uses its result of that number."""
        own = {op for step in self.steps for op in step.ops}
        results = [self.result(step, number) for step in self.steps]
        return [[op for use in result.uses if (op := use.owner.operation) not in own] for result in results]

    def result(self, step: Step, number: int) -> ir.Value:
        """What a step computes as the first one does its result of that number."""
        return step.follows.ops[self.first.follows.ops.index(self.first.follows.stored[number])].results[0]


def runs_of(groups: Sequence[Step]) -> list[Steps]:
    """The longest runs of equal steps among products with what follows them, in their order."""
    found, left = [], set(groups)
    readers: dict[ir.Value, list[Step]] = {}  # by what they multiply
    for step in groups:
        readers.setdefault(step.found[0].left, []).append(step)
    for first in groups:
        if first not in left:
            continue
        left.remove(first)
        run = _run(first, lambda value: [step for step in readers.get(value, ()) if step in left])
        if run is not None and len(run.steps) >= LEAST:
            left.difference_update(run.steps)
            if _is_closed(run):
                found.append(run)
    return found


def _run(first: Step, readers: Callable[[ir.Value], list[Step]]) -> Steps | None:
    """The longest run that begins with a step; `readers` gives the steps that multiply a value."""
    steps, run = [first], None
    while (longer := next(_longer(steps, run, readers), None)) is not None:
        steps, run = list(longer.steps), longer
    return run


def _longer(steps: Sequence[Step], run: Steps | None, readers: Callable[[ir.Value], list[Step]]) -> Iterator[Steps]:
    """The run with one more step behind it."""
    for step in (step for value in steps[-1].results for step in readers(value)):
        if (longer := _steps([*steps, step], run)) is not None:
            yield longer


def _steps(steps: Sequence[Step], before: Steps | None) -> Steps | None:
    """These steps as a run, where all but the last are one, `before`."""
    last, new = steps[-2:]
    if len(last.results) < len(steps[0].results) or not _are_alike(last, new):
        return None
    hidden = _number(new.found[0].left, last.results)
    if hidden is None or before is not None and before.hidden != hidden:
        return None
    states, streamed = {}, {}
    for (place, one), (_, other) in zip(last.outside(), new.outside(), strict=True):
        number = _number(other, last.results)
        if number is not None:
            states[place] = number
        elif not is_same(one, other):
            rows_ = _streamed(one, other)
            if rows_ is None:
                return None
            streamed[place] = rows_
    if before is None:
        return Steps(tuple(steps), hidden, states, streamed)
    if states != before.states or streamed.keys() != before.streamed.keys():
        return None
    for place, found in streamed.items():
        known = before.streamed[place]
        begins = known.first + known.stride * (len(steps) - 2)
        if (found.source, found.first, found.stride, found.column) != (
            known.source,
            begins,
            known.stride,
            known.column,
        ):
            return None
    return Steps(tuple(steps), hidden, states, before.streamed)


def _number(value: ir.Value, values: Sequence[ir.Value]) -> int | None:
    return next((number for number, other in enumerate(values) if other == value), None)


def _are_alike(a: Step, b: Step) -> bool:
    """Whether two steps do the same with what they are given, the second perhaps with fewer results."""
    if len(a.products) != len(b.products) or len(a.follows.ops) != len(b.follows.ops):
        return False
    if a.products[0].block != b.products[0].block:
        return False
    for one, other in zip(a.found, b.found, strict=True):
        if (one.left_roles, one.right_roles) != (other.left_roles, other.right_roles):
            return False
        if one.left.type != other.left.type or not is_same(one.right, other.right):
            return False
    same = dict(zip((op.results[0] for op in a.ops), (op.results[0] for op in b.ops), strict=True))
    stored = {same[value] for value in a.results}
    return stored.issuperset(b.results) and all(
        _computes_alike(*pair, same) for pair in zip(a.follows.ops, b.follows.ops, strict=True)
    )


def _computes_alike(a: ir.Operation, b: ir.Operation, same: dict[ir.Value, ir.Value]) -> bool:
    """Whether two elementwise operators compute the same, of what one step makes as of what the other does."""
    if not _has_form_of(a, b) or len(a.operands) != len(b.operands):
        return False
    inside = {*same.values()}
    for one, other in zip(a.operands, b.operands, strict=True):
        if one.type != other.type or (same[one] != other if one in same else other in inside):
            return False
    return bodies_are_alike(a.regions[0].blocks[0], b.regions[0].blocks[0])


def _has_form_of(a: ir.Operation, b: ir.Operation) -> bool:
    """Whether operations have one name and the same attributes, but for what names them."""
    if a.name != b.name or [value.type for value in a.results] != [value.type for value in b.results]:
        return False
    own = [{name: op.attributes[name] for name in op.attributes if not name.startswith("kitsune.")} for op in (a, b)]
    return own[0] == own[1]


def bodies_are_alike(a: ir.Block, b: ir.Block) -> bool:
    ops = [operations_of(block) for block in (a, b)]
    if len(ops[0]) != len(ops[1]) or len(a.arguments) != len(b.arguments):
        return False
    same: dict[ir.Value, ir.Value] = dict(zip(a.arguments, b.arguments, strict=True))
    for one, other in zip(*ops, strict=True):
        if not _has_form_of(one, other) or len(one.operands) != len(other.operands) or len(one.regions):
            return False
        for x, y in zip(one.operands, other.operands, strict=True):
            if same[x] != y if x in same else not is_same(x, y):
                return False
        same.update(zip(one.results, other.results, strict=True))
    return True


def is_same(a: ir.Value, b: ir.Value, depth: int = 0) -> bool:
    """Whether two values are one, or computed alike of such."""
    if a == b:
        return True
    if isinstance(a.owner, ir.Block) or isinstance(b.owner, ir.Block) or depth > _MOST_DEPTH:
        return False
    one, other = a.owner.operation, b.owner.operation
    if not _has_form_of(one, other) or len(one.regions) or len(one.operands) != len(other.operands):
        return False
    return all(is_same(x, y, depth + 1) for x, y in zip(one.operands, other.operands, strict=True))


def _streamed(one: ir.Value, other: ir.Value) -> Streamed | None:
    """What is streamed where a step takes one value and the next step another one."""
    places = _place(one), _place(other)
    if None in places or one.type != other.type:
        return None
    (source, first, column), (behind, second, same) = places
    return Streamed(source, first, second - first, column) if (source, column) == (behind, same) else None


def _place(value: ir.Value) -> tuple[ir.Value, int, int] | None:
    """Of which rows and columns a value of rows and columns is a part: the whole, its first row and column."""
    row = column = 0
    while (op := rows.producer(value)) is not None and op.name in ("tensor.extract_slice", "tensor.collapse_shape"):
        kind, source = ir.RankedTensorType(value.type), op.operands[0]
        if not kind.has_static_shape or kind.rank != 2 or not ir.RankedTensorType(source.type).has_static_shape:
            break
        if op.name == "tensor.extract_slice" and ir.RankedTensorType(source.type).rank == 2:
            offsets, _, strides = slice_of(op)
            if ir.ShapedType.get_dynamic_size() in offsets or set(strides) != {1}:
                return None
            row, column, value = row + offsets[0], column + offsets[1], source
        elif (found := _outer_slice(source, list(kind.shape))) is not None:
            value, before = found
            row += before
        else:
            break
    return value, row, column


def _outer_slice(value: ir.Value, shape: list[int]) -> tuple[ir.Value, int] | None:
    """A tensor of rows and columns whose rows, from some number on, are the parts of `value` of the first of its
    dimensions, which has one element."""
    kind, op = ir.RankedTensorType(value.type), rows.producer(value)
    if kind.rank != 3 or kind.shape[0] != 1 or list(kind.shape[1:]) != shape or op is None:
        return None
    if op.name != "tensor.extract_slice":
        return None
    source = op.operands[0]
    whole, (offsets, sizes, strides) = ir.RankedTensorType(source.type), slice_of(op)
    if whole.rank != 3 or not whole.has_static_shape or ir.ShapedType.get_dynamic_size() in offsets:
        return None
    if set(strides) != {1} or list(offsets[1:]) != [0, 0] or list(sizes[1:]) != list(whole.shape[1:]):
        return None
    expansion, before = rows.producer(source), offsets[0] * whole.shape[1]
    if expansion is not None and expansion.name == "tensor.expand_shape":
        flat = ir.RankedTensorType(expansion.operands[0].type)
        if flat.rank == 2 and list(flat.shape) == [prod(whole.shape[:2]), whole.shape[2]]:
            return expansion.operands[0], before
    return source, before


def _is_closed(run: Steps) -> bool:
    """Whether nothing that a step takes is computed of what steps make, but by the steps."""
    own = {op for step in run.steps for op in step.ops}
    behind = dependents(run)
    return not any(
        producer in behind
        for op in own
        for value in op.operands
        if (producer := rows.producer(value)) is not None and producer not in own
    )


def dependents(run: Steps) -> set[ir.Operation]:
    """All operations of the steps' block that are computed of what they make, but for their own."""
    own = {op for step in run.steps for op in step.ops}
    left = [result for step in run.steps for result in step.results]
    found, block = set[ir.Operation](), run.first.products[0].block
    while left:
        for use in left.pop().uses:
            op = use.owner.operation
            while op.block != block:
                op = op.parent.operation
            if op not in own and op not in found:
                found.add(op)
                left += op.results
    return found
