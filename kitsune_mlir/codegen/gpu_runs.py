"""Updates that meet in elements of a table, joined in registers before they go to memory: a sort of updates by where
they go (gpu_sorted_updates.py), and threads that take RUN neighbours in that order each.

    scatter_runs    total = the first update; for each further one
                        if it goes elsewhere: table[place] = body(total, table[place]); total = update
                        else: total = body(update, total)

Sums are joined to the table by an atomic addition. What takes a loop of atomic operations is joined so only at the
first and the last place of a run, which neighbours may have updates of; the others are a thread's own. A place that has
many updates takes as many atomic operations as it has runs, so that nodes that very many edges point to are no slower.
Runs are joined to the table in any order: sums of floats differ in their last bits from call to call. Several scatters
by the same numbers, as those of several aggregations, are one kernel where they stand together.
planning/run_sums.py says where it pays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod

from kitsune_mlir.example_sizes import known_shape
from kitsune_mlir.mlir import arith, ir, memref, scf, walk
from kitsune_mlir.planning import run_sums
from kitsune_mlir.planning.kernel_cost import TRIES
from kitsune_mlir.planning.run_sums import RUN
from kitsune_mlir.planning.target import Target

from .gpu_buffers import behind, root_of
from .gpu_kernel import Kernel, Kernels, See, Size, as_value, ceildiv, extent, of_points, only_if
from .gpu_sorted_updates import Identity, Order, Orders, mapped, may_write
from .gpu_updates import IDLE, Updates, applied
from .gpu_word_access import bytes_of
from .kernel_work import SHARE_HINT
from .pipeline import device
from .pipeline.device import index
from .pipeline.device import value as number_of

LABEL = "scatter_runs"  # what kernels are called that join updates so
AHEAD = 4  # updates that are loaded together
MOST_TOGETHER = 4  # scatters of a kernel: a thread has its columns of each in registers
PERCENT = 100
NONE = -1  # the key of no row
Join = Callable[[list[ir.Value], ir.Value, list[ir.Value]], None]  # values, the table, where in it


@dataclass(frozen=True)
class Part:
    """A scatter that is done so. `join` joins neighbouring columns of updates to its table."""

    op: ir.Operation
    source: Updates
    join: Join


@dataclass
class Runs:
    """The scatters of a module that are done so."""

    kernels: Kernels
    orders: Orders
    target: Target

    def choose(self, scatters: Sequence[ir.Operation]) -> list[list[ir.Operation]]:
        """Weighs those by the same numbers together; gives those of each kernel."""
        groups: dict[Identity, list[tuple[ir.Operation, run_sums.Updates]]] = {}
        for op in scatters:
            identity, found = self.orders.identity(op), _described(op)
            if identity is None or found is None:
                continue
            if run_sums.saved_us(found, self.target) > 0:
                groups.setdefault(identity, []).append((op, found))
        chosen: list[list[ir.Operation]] = []
        for identity, group in groups.items():
            if run_sums.pays([updates for _, updates in group], identity.is_open, self.target):
                chosen += _together([op for op, _ in group])
        return chosen

    def lower(self, parts: Sequence[Part], count: int) -> None:
        """Puts a kernel's launch in front of the last of a kernel's scatters. A thread has `count` neighbouring columns
        of each."""
        op = parts[-1].op
        order, share = self.orders.of(parts[0].op), _share(op)

        def sizes(see: See) -> list[Size]:
            *inner, last = ir.MemRefType(op.operands[0].type).shape[1:]
            return [ceildiv(extent(see(op.operands[1]), 0), RUN), *inner, last // count]

        with of_points(self.kernels, op, LABEL, sizes) as (kernel, (run, *inner)):
            inner[-1] = arith.muli(inner[-1], as_value(count))
            _Run(parts, kernel, self.kernels, order, count, share, inner).emit(run)


@dataclass(frozen=True)
class _Total:
    """What a thread has joined for the row `key` of the tables, by part; `alone` (i1) says that no other thread has
    updates of it."""

    key: ir.Value
    alone: ir.Value
    values: list[list[ir.Value]]

    @property
    def carried(self) -> list[ir.Value]:
        """What goes round the loop."""
        return [self.key, self.alone, *(value for part in self.values for value in part)]


@dataclass(frozen=True)
class _Run:
    """One thread's updates: `count` neighbouring columns from `inner` on, of RUN rows. `share` is how many of a hundred
    of these go elsewhere than those before."""

    parts: Sequence[Part]
    kernel: Kernel
    kernels: Kernels
    order: Order
    count: int
    share: int
    inner: list[ir.Value]

    def emit(self, run: ir.Value) -> None:
        rows, keys = (self.kernel.inside(buffer) for buffer in (self.order.rows, self.order.keys))
        size = as_value(extent(keys, 0))
        first, last = arith.muli(run, as_value(RUN)), arith.subi(size, as_value(1))
        nothing = [[_zero(part)] * self.count for part in self.parts]
        start = _Total(number_of(NONE), arith.constant(ir.IntegerType.get_signless(1), 0), nothing)
        loop = scf.ForOp(as_value(0), as_value(RUN), as_value(AHEAD), start.carried)
        with ir.InsertionPoint(loop.body):
            total = self._carried(loop.inner_iter_args)
            places = [arith.addi(first, as_value(number)) for number in range(AHEAD)]
            places = [arith.addi(place, loop.induction_variable) for place in places]
            there = [device.below(place, size) for place in places]
            places = [arith.minui(place, last) for place in places]
            known = [arith.select(is_, memref.load(keys, [at]), number_of(NONE)) for is_, at in zip(there, places)]
            with self.kernels.checks.behind():
                numbers = [index(memref.load(rows, [place])) for place in places]
                found = [
                    [part.source.load(self.kernel, [row, *self.inner], self.count) for part in self.parts]
                    for row in numbers
                ]
            for other, values in zip(known, found, strict=True):
                total = self._next(total, other, values)
            scf.yield_(total.carried)
        total = self._carried(loop.results)
        with self._where_there(total.key) as row:
            for part, values in zip(self.parts, total.values, strict=True):
                self._join_to(part, row, values)

    def _carried(self, carried: Sequence[ir.Value]) -> _Total:
        key, alone, *values = carried
        return _Total(key, alone, [values[i : i + self.count] for i in range(0, len(values), self.count)])

    def _next(self, total: _Total, other: ir.Value, values: list[list[ir.Value]]) -> _Total:
        """What a thread has once it has seen one update of each part more."""
        changes = arith.cmpi(arith.CmpIPredicate.ne, other, total.key)
        with _sometimes(changes, self.share):
            self._leave(total)
        made = [
            [
                arith.select(changes, value, applied(part.op, self.kernel, value, before))
                for before, value in zip(own, found, strict=True)
            ]
            for part, own, found in zip(self.parts, total.values, values, strict=True)
        ]
        follows = arith.cmpi(arith.CmpIPredicate.ne, total.key, number_of(NONE))
        return _Total(other, arith.select(changes, follows, total.alone), made)

    def _leave(self, total: _Total) -> None:
        """Joins what a thread has to the tables, where these have the row."""
        parts = list(zip(self.parts, total.values, strict=True))
        others = [(part, values) for part, values in parts if not _adds(part.op)]
        with self._where_there(total.key) as row:
            for part, values in parts:
                if _adds(part.op):
                    self._join_to(part, row, values)
            if not others:
                return
            shared = min(PERCENT, ceil(PERCENT * PERCENT * run_sums.SHARED / (RUN * self.share)))
            with _sometimes(total.alone, PERCENT - shared):
                for part, values in others:
                    self._join_alone(part, row, values)
            with _sometimes(device.flipped(total.alone), shared):
                for part, values in others:
                    self._join_to(part, row, values)

    @contextlib.contextmanager
    def _where_there(self, key: ir.Value) -> Iterator[ir.Value]:
        """Builds what is done where the tables have a row; gives its number."""
        row = index(key)
        with only_if(row, extent(self.kernel.inside(self.parts[0].op.operands[2]), 0)):
            yield row

    def _join_to(self, part: Part, row: ir.Value, values: list[ir.Value]) -> None:
        part.join(values, self.kernel.inside(part.op.operands[2]), [row, *self.inner[1:]])

    def _join_alone(self, part: Part, row: ir.Value, values: list[ir.Value]) -> None:
        """The same where no other thread does."""
        table, (*inner, first) = self.kernel.inside(part.op.operands[2]), self.inner[1:]
        for number, value in enumerate(values):
            place = [row, *inner, arith.addi(first, as_value(number))]
            memref.store(applied(part.op, self.kernel, value, memref.load(table, place)), table, place)


@contextlib.contextmanager
def _sometimes(condition: ir.Value, share: int) -> Iterator[None]:
    """Builds what `share` of a hundred threads do, on average."""
    with device.when(condition) as branch:
        branch.attributes[SHARE_HINT] = ir.IntegerAttr.get(device.i64(), share)
        yield


def _zero(part: Part) -> ir.Value:
    element = ir.MemRefType(part.op.operands[2].type).element_type
    return arith.constant(element, 0.0 if isinstance(element, ir.FloatType) else 0)


def _together(scatters: Sequence[ir.Operation]) -> list[list[ir.Operation]]:
    """Neighbours of those by the same numbers, in program order, that one kernel may do in the place of the last: it
    reads what they share, such as messages and row numbers, once."""
    groups: list[list[ir.Operation]] = []
    for op in scatters:
        if groups and len(groups[-1]) < MOST_TOGETHER and _may_join(groups[-1], op):
            groups[-1].append(op)
        else:
            groups.append([op])
    return groups


def _may_join(group: Sequence[ir.Operation], op: ir.Operation) -> bool:
    """Whether nothing from a group's first scatter to another one touches the group's tables, or changes what it
    reads."""
    if ir.MemRefType(op.operands[0].type).shape != ir.MemRefType(group[0].operands[0].type).shape:
        return False
    tables = [root_of(member.operands[2]) for member in group]
    if any(root_of(operand) in tables for operand in op.operands):
        return False
    read = [root_of(value) for member in group for value in _read_by(member)]
    for one in behind(group[0], op):
        if one not in group and one.name not in IDLE:
            touched = [root_of(v) for inner in walk(one) for v in inner.operands if isinstance(v.type, ir.MemRefType)]
            if any(table in touched for table in tables) or any(may_write(one, value) for value in read):
                return False
    return True


def _read_by(op: ir.Operation) -> list[ir.Value]:
    """The buffers that a scatter reads."""
    made = Updates.of(op).made
    found = list(op.operands)[:2] if made is None else [op.operands[1]]
    used = [] if made is None else [value for inner in walk(made.op) for value in inner.operands]
    return found + [value for value in used if isinstance(value.type, ir.MemRefType)]


def _adds(op: ir.Operation) -> bool:
    """Whether a scatter makes sums of f32."""
    first = op.regions[0].blocks[0].operations[0].operation
    return first.name == "arith.addf" and isinstance(ir.MemRefType(op.operands[2].type).element_type, ir.F32Type)


def _described(op: ir.Operation) -> run_sums.Updates | None:
    """A scatter of rows that may be done so, as planning sees it; None where it may not, or no example says how large
    it is."""
    updates, table = (ir.MemRefType(op.operands[i].type) for i in (0, 2))
    if mapped(op) != (0,) or updates.rank != table.rank + 1 or updates.shape[1] != 1:
        return None
    columns, rows, places = prod(updates.shape[2:]), known_shape(op.operands[1])[0], known_shape(op.operands[2])[0]
    if any(map(updates.is_dynamic_dim, range(1, updates.rank))) or rows is None or places is None:
        return None
    nbytes, tries = bytes_of(table), 1 if isinstance(table.element_type, ir.F32Type) else TRIES
    if not columns or not nbytes:
        return None
    return run_sums.Updates(rows, columns, nbytes, places, _adds(op), _read(op) * columns, tries)


def _read(op: ir.Operation) -> int:
    """Bytes that an update's element is made of: of the widest number that each column has its own of."""
    source = Updates.of(op)
    if source.made is None:
        return bytes_of(source.buffer.type)
    columns = ir.MemRefType(op.operands[0].type).shape[-1]
    loaded = [load.operands[0] for load in walk(source.made.op, "memref.load")]
    kinds = [value.type for value in (*source.made.inputs, *loaded) if isinstance(value.type, ir.MemRefType)]
    return max((bytes_of(kind) for kind in kinds if kind.rank > 1 and kind.shape[-1] == columns), default=0)


def _share(op: ir.Operation) -> int:
    """How many of a hundred updates go elsewhere than those before them, on average, as far as it is known."""
    rows, places = known_shape(op.operands[1])[0] or 1, known_shape(op.operands[2])[0] or 1
    return ceil(PERCENT * run_sums.leaving(rows, places))
