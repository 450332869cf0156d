"""Operators on rows of few numbers, as quaternions, points, boxes and matrices of 3 x 3 are, become kernels of the
schedule level whose threads have a row each.

    %u = tensor.extract_slice %q[0, 1] [%n, 3] [1, 1]             // numbers of what others made
    %c = linalg.generic ins(%u, %v) ...
    %p = tensor.concat dim(1) %a, %b, %c, %d                       // numbers stacked to a row
    %z = linalg.generic ins(%p) ...
  =>
    "kitsune.agent"() ({ ... kitsune.read, the same operators on tiles of 32 rows, kitsune.write }) {lanes = 1, ...}

A thread has all of its row in registers: a slice, a concatenation, a reshape is only another name for some of them, and
a sum of a row's numbers the sum of registers. Kernels of elements (codegen/gpu_generic.py) would write what is stacked
and read what is sliced, one launch after another; a single operator in front of such a move, or behind it, they compute
as well, so that a group has several of them between its operators. What all rows share is read by each thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.index_checks import KNOWN, origin
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.open_sizes import factors, is_open
from kitsune_mlir.planning.row_tiles import RowGroup, choose_threads
from kitsune_mlir.planning.target import Target
from kitsune_mlir.traffic import element_bytes

from .block_order import Order
from .row_bodies import replace
from .row_groups import root
from .short_rows import RowLoops, ShortRows, extracts_of, is_few, read_by, readers, scalar, transposes
from .stage_cost import instructions_of
from .tensor_sizes import TensorSizes
from .thread_row_body import Given, ThreadRowBody

_MOST_MOVED = 112  # numbers that a thread reads and writes, in registers
_LEAST_MOVES = 2  # between operators of a group, of numbers to other places or along other loops
_MOVES = ("tensor.extract_slice", "tensor.concat")  # what operators would read where it is written
_Left = list[
    tuple[int, bool]
]  # of each loop over numbers of a row its turns, and whether a value has elements for them


def schedule_thread_rows(block: ir.Block, target: Target, number: int) -> int:
    """Puts kernels, the first of this number, in the place of such groups of a block. Gives how many there are."""
    order, sizes = Order(block), TensorSizes(block)
    begins = set(filter(_begins, order.ops))
    taken: set[ir.Operation] = set()
    found = []
    for count in _counts(begins, sizes):
        growth, seen = _Growth(order, ShortRows(count, sizes)), set(taken)
        for op in order.ops:
            if op in begins and op not in seen and growth.fits(op):
                group = growth.around(op, seen)
                seen.update(group.ops)
                tiles = choose_threads(group.counts(), target)
                if tiles is not None and tiles.microseconds < group.apart(target):
                    taken.update(group.ops)
                    order.join(group.ops)
                    found.append((ThreadRowBody(group.space, group.ops, group.inputs, group.outputs), tiles))
    # What others are given is there until all are built.
    made = [body.build(tiles, target, f"rows{own}") for own, (body, tiles) in enumerate(found, start=number)]
    for (body, _), results in zip(found, made, strict=True):
        replace(body.outputs, results, body.ops)
    return len(found)


def _counts(begins: set[ir.Operation], sizes: TensorSizes) -> list[int]:
    """The numbers of rows that tensors which are moved may have, the fewest, and longest, first."""
    found: set[int] = set()
    for shape in (sizes.shape(op.results[0]) for op in begins):
        found.update(prod(shape[:k]) for k in range(len(shape) + 1) if is_few(shape[k:]))
    return sorted((count for count in found - {1} if len(factors(count)[1]) <= 1), key=sizes.taken)


def _moves(op: ir.Operation) -> bool:
    """Whether an operator has numbers in other places than those that it reads."""
    return op.name in (*_MOVES, "tensor.pad") or op.name == "linalg.generic" and bool(extracts_of(op))


def _is_by_number(extract: ir.Operation) -> bool:
    """Whether an element is taken by a number that something computes."""
    table, *places = extract.operands
    shape = ir.RankedTensorType(table.type).shape
    return any(origin(place, size) != KNOWN for place, size in zip(places, shape, strict=True))


def _begins(op: ir.Operation) -> bool:
    """Whether groups are sought around an operator: one that moves numbers, or joins some of a row."""
    return _moves(op) or op.name == "linalg.generic" and "reduction" in rows.Structured(op).iterators


class _Growth:
    """How groups on rows of a space grow in a block. What is known of an operator is kept."""

    def __init__(self, order: Order, space: ShortRows):
        self._order, self._space = order, space
        self.fits = cache(space.fits)
        self._near, self._reads = cache(_neighbours), cache(partial(_reads, space=space))
        # What is turned for slices alone goes with what makes it.
        self._closed = cache(lambda op: order.closed([op, *transposes(op.results[0])]))

    def around(self, op: ir.Operation, taken: set[ir.Operation]) -> _Group:
        """The operators around one, of them the first whose rows registers hold."""
        own, seen = {op}, {op, *taken}
        closed, waiting = self._closed(op), self._others(op, seen)
        while True:
            refused = []
            for one in self._order.sorted(waiting):
                grown = tuple(a | b for a, b in zip(closed, self._closed(one), strict=True))
                if self._order.are_together(grown) and not self._reads_other_rows(one, own):
                    own.add(one)
                    closed = grown
                else:
                    refused.append(one)
            if len(refused) == len(waiting):
                return self._first(self._order.sorted(own))
            waiting = {*refused, *(other for one in waiting - {*refused} for other in self._others(one, seen))}

    def _reads_other_rows(self, op: ir.Operation, group: set[ir.Operation]) -> bool:
        """Whether an operator reads all rows of what one of a group makes, or one of these of what it makes."""
        made = {one.results[0] for one in group}
        own = any(given.shared and given.value in made for given in self._reads(op))
        return own or any(self._shares(one, op) for one in set(readers(op.results[0])) & group)

    def _shares(self, reader: ir.Operation, maker: ir.Operation) -> bool:
        return any(given.shared and given.value == maker.results[0] for given in self._reads(reader))

    def _others(self, op: ir.Operation, seen: set[ir.Operation]) -> set[ir.Operation]:
        """The neighbours of an operator that are not `seen` yet, and fit."""
        found = self._near(op) - seen
        seen |= found
        return {one for one in found if self.fits(one)}

    def _first(self, ops: list[ir.Operation]) -> _Group:
        """The first of these operators: as many as read and write no more than a thread holds."""
        numbers = {op.results[0]: number for number, op in enumerate(ops)}
        last = [_last_reader(op, numbers, len(ops)) for op in ops]
        width = [prod(self._space.columns(op.results[0]) or []) for op in ops]
        read: set[Given] = set()
        fits = 0
        for end, op in enumerate(ops, start=1):
            read.update(given for given in self._reads(op) if given.value not in numbers)
            moved = sum(given.count(self._space) for given in read)
            if moved + sum(width[i] for i in range(end) if last[i] >= end) <= _MOST_MOVED:
                fits = end
        return _Group(self._space, ops[:fits])


def _last_reader(op: ir.Operation, numbers: dict[ir.Value, int], none: int) -> int:
    """The number of the last operator that reads what one makes, and a larger one where others do, too."""
    return max(
        (numbers.get(one.results[0], none) if len(one.results) else none for one in readers(op.results[0])),
        default=none,
    )


def _reads(op: ir.Operation, space: ShortRows) -> list[Given]:
    """What an operator is given, but for numbers."""
    loops = RowLoops(op, space) if op.name == "linalg.generic" else None
    found = []
    for i, value in enumerate(read_by(op)):
        if scalar(value) is None:
            shared = loops is not None and loops.is_shared(i)
            found.append(Given(root(value) if shared else space.base(value), shared))
    return found


@dataclass
class _Group:
    """Operators on rows of a space, in the order of the block."""

    space: ShortRows
    ops: list[ir.Operation]

    @cached_property
    def outputs(self) -> list[ir.Value]:
        """What others use of what the group makes."""
        own = set(self.ops)
        return [op.results[0] for op in self.ops if any(one not in own for one in readers(op.results[0]))]

    @cached_property
    def inputs(self) -> list[Given]:
        """What it reads that others make."""
        made = {op.results[0] for op in self.ops}
        read = dict.fromkeys(given for op in self.ops for given in _reads(op, self.space))
        return [given for given in read if given.value not in made]

    def _moved(self) -> list[Given]:
        """What a thread reads and writes."""
        return [*self.inputs, *(Given(value, False) for value in self.outputs)]

    def moved(self) -> int:
        """Numbers of it."""
        return sum(given.count(self.space) for given in self._moved())

    def apart(self, target: Target) -> float:
        """Microseconds that kernels would take which write, and read again, what is moved between operators; 0.0 where
        that is too little to count on."""
        inner = [*self._inner_moves(), *self._turned()]
        if len(inner) < _LEAST_MOVES:
            return 0.0
        moved = [*self._moved(), *(Given(value, False) for value in (*inner, *inner))]
        count = self.space.sizes.taken(self.space.count)
        elements = sum(_bytes(given.value) * given.count(self.space) for given in moved if not given.shared)
        return (len(inner) + 1) * target.launch_us + count * elements / (target.dram_gbps * 1e3)

    def _inner_moves(self) -> list[ir.Value]:
        """What operators between others of the group have in other places, and what elements are taken of by number."""
        made = {op.results[0] for op in self.ops if op.name != "tensor.extract_slice"}
        moves = [op for op in self.ops if op.name in _MOVES and any(root(value) in made for value in read_by(op))]
        found = [op.results[0] for op in moves if any(one in self.ops for one in readers(op.results[0]))]
        taken = [one for op in self.ops if op.name == "linalg.generic" for one in extracts_of(op)]
        tables = dict.fromkeys(root(one.operands[0]) for one in taken if _is_by_number(one))
        return [*found, *(table for table in tables if table in made)]

    def _turned(self) -> list[ir.Value]:
        """Results of reductions, or what is computed of these one by one, that operators read along other loops than
        those that are left of the reduction's: a softmax reads its sum along its own, a product of products others."""
        left: dict[ir.Value, _Left] = {}
        found = dict[ir.Value, None]()
        for op in self.ops:
            if op.name != "linalg.generic":
                continue
            loops, own = RowLoops(op, self.space), None
            for i, value in enumerate(list(op.operands)[: loops.s.inputs]):
                before, along = left.get(self.space.base(value)), loops.read_along(i)
                if before is not None and all(is_read for _, is_read in along):
                    own = before
                elif before is not None and along != before:
                    found[self.space.base(value)] = None
            if loops.along:
                own = [(loops.sizes[d], d not in loops.along) for d in loops.inner if loops.sizes[d] != 1]
            if own is not None:
                left[op.results[0]] = own
        return list(found)

    def counts(self) -> RowGroup:
        """For the cost model."""
        moved = self._moved()
        work = sum(_work(RowLoops(op, self.space)) for op in self.ops if op.name == "linalg.generic")
        bytes_ = [_bytes(given.value) * given.count(self.space) for given in moved]
        columns = max(1, self.moved())
        return RowGroup(
            rows=self.space.sizes.taken(self.space.count),
            columns=columns,
            element_bytes=int(min((_bytes(given.value) for given in moved), default=4)),
            row_bytes=sum(own for own, given in zip(bytes_, moved) if not given.shared),
            live=1.0,
            work=work / columns,
            reductions=0,
            shared_bytes=sum(own for own, given in zip(bytes_, moved) if given.shared),
            is_open=is_open(self.space.count),
        )


def _neighbours(op: ir.Operation) -> set[ir.Operation]:
    makers = {maker for value in read_by(op) if (maker := rows.producer(root(value))) is not None}
    return makers | set(readers(op.results[0]))


def _work(loops: RowLoops) -> float:
    """Instructions that an operator takes for a row."""
    return instructions_of(loops.s) * prod(loops.sizes[d] for d in loops.inner)


def _bytes(value: ir.Value) -> float:
    return element_bytes(element_type(value))
