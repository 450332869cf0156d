"""Updates that meet in elements of a table, joined in registers before they go to memory: a sort of updates by where
they go (gpu_sorted_updates.py), and threads that take RUN neighbours in that order each.

    scatter_runs    total = the first update; for each further one
                        if it goes elsewhere: table[place] = body(total, table[place]); total = update
                        else: total = body(update, total)

A place that has few updates takes one or two operations of memory, one that has many as many as runs, so that nodes
that very many edges point to are no slower than others. Runs are joined to the table in any order: sums of floats
differ in their last bits from call to call. planning/run_sums.py says where it pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod

from kitsune_mlir.example_sizes import known_shape
from kitsune_mlir.mlir import arith, ir, memref, scf, walk
from kitsune_mlir.planning import run_sums
from kitsune_mlir.planning.run_sums import RUN
from kitsune_mlir.planning.target import Target

from .gpu_clone import clone_into
from .gpu_i32 import index, number_of
from .gpu_kernel import (
    THREADS,
    Kernel,
    Kernels,
    Size,
    as_value,
    ceildiv,
    delinearize,
    extent,
    linear_id,
    only_if,
    product,
)
from .gpu_sorted_updates import Identity, Order, Orders, mapped
from .gpu_updates import Updates
from .gpu_words import bytes_of
from .kernel_work import SHARE_HINT

LABEL = "scatter_runs"  # what kernels are called that join updates so
AHEAD = 4  # updates that are loaded together
PERCENT = 100
NONE = -1  # the key of no row
_CHOSEN = "kitsune.runs"
Join = Callable[[list[ir.Value], ir.Value, list[ir.Value]], None]  # values, the table, where in it


@dataclass
class Runs:
    """The scatters of a module that are done so: those that `choose` has marked."""

    kernels: Kernels
    orders: Orders
    target: Target

    def choose(self, scatters: Sequence[ir.Operation]) -> None:
        """Weighs those by the same numbers together."""
        groups: dict[Identity, list[tuple[ir.Operation, run_sums.Updates]]] = {}
        for op in scatters:
            identity, found = self.orders.identity(op), _described(op)
            if (
                identity is not None
                and found is not None
                and run_sums.saved_us(found, identity.is_open, self.target) > 0
            ):
                groups.setdefault(identity, []).append((op, found))
        for identity, group in groups.items():
            if run_sums.pays([updates for _, updates in group], identity.is_open, self.target):
                for op, _ in group:
                    op.attributes[_CHOSEN] = ir.UnitAttr.get(op.context)

    def lower(self, op: ir.Operation, source: Updates, count: int, join: Join) -> bool:
        """Puts a kernel's launch in front of a scatter, if it is done so. A thread has `count` neighbouring columns,
        which `join` joins to the table."""
        if _CHOSEN not in op.attributes:
            return False
        order, share = self.orders.of(op), _share(op)

        def sizes_of(see: Callable[[ir.Value], ir.Value]) -> list[Size]:
            *inner, last = ir.MemRefType(op.operands[0].type).shape[1:]
            return [ceildiv(extent(see(op.operands[1]), 0), RUN), *inner, last // count]

        with op.context, op.location, ir.InsertionPoint(op):
            blocks = ceildiv(product(sizes_of(lambda value: value)), THREADS)
        kernel = Kernel(self.kernels, op, LABEL)
        with kernel.body():
            sizes, thread = sizes_of(kernel.inside), linear_id(THREADS)
            with only_if(thread, product(sizes)):
                run, *inner = delinearize(thread, sizes)
                inner[-1] = arith.muli(inner[-1], as_value(count))
                _Run(op, kernel, self.kernels, order, source, join, count, share, inner).emit(run)
        with op.context, op.location, ir.InsertionPoint(op):
            kernel.launch(blocks)
        return True


@dataclass(frozen=True)
class _Run:
    """One thread's updates: `count` neighbouring columns from `inner` on, of RUN rows. `share` is how many of a hundred
    of these go elsewhere than those before."""

    op: ir.Operation
    kernel: Kernel
    kernels: Kernels
    order: Order
    source: Updates
    join: Join
    count: int
    share: int
    inner: list[ir.Value]

    def emit(self, run: ir.Value) -> None:
        rows, keys = (self.kernel.inside(buffer) for buffer in (self.order.rows, self.order.keys))
        size = as_value(extent(keys, 0))
        first, last = arith.muli(run, as_value(RUN)), arith.subi(size, as_value(1))
        element = ir.MemRefType(self.op.operands[2].type).element_type
        zero = arith.constant(element, 0.0 if isinstance(element, ir.FloatType) else 0)
        loop = scf.ForOp(as_value(0), as_value(RUN), as_value(AHEAD), [number_of(NONE), *[zero] * self.count])
        with ir.InsertionPoint(loop.body):
            key, *total = loop.inner_iter_args
            places = [arith.addi(first, as_value(number)) for number in range(AHEAD)]
            places = [arith.addi(place, loop.induction_variable) for place in places]
            there = [arith.cmpi(arith.CmpIPredicate.ult, place, size) for place in places]
            places = [arith.minui(place, last) for place in places]
            known = [arith.select(is_, memref.load(keys, [at]), number_of(NONE)) for is_, at in zip(there, places)]
            with self.kernels.checks.behind():
                numbers = [index(memref.load(rows, [place])) for place in places]
                found = [self.source.load(self.kernel, [row, *self.inner], self.count) for row in numbers]
            for other, values in zip(known, found, strict=True):
                key, total = self._next(key, total, other, values)
            scf.yield_([key, *total])
        self._leave(loop.results[0], list(loop.results)[1:])

    def _next(
        self, key: ir.Value, total: list[ir.Value], other: ir.Value, values: list[ir.Value]
    ) -> tuple[ir.Value, list[ir.Value]]:
        """Where a thread's total goes, and what it is, once it has seen one update more."""
        changes = arith.cmpi(arith.CmpIPredicate.ne, other, key)
        guard = scf.IfOp(changes)
        guard.operation.attributes[SHARE_HINT] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.share)
        with ir.InsertionPoint(guard.then_block):
            self._leave(key, total)
            scf.yield_([])
        block, made = self.op.regions[0].blocks[0], []
        for before, value in zip(total, values, strict=True):
            known = {hash(block.arguments[0]): value, hash(block.arguments[1]): before}
            made.append(arith.select(changes, value, clone_into(block, self.kernel, known)[0]))
        return other, made

    def _leave(self, key: ir.Value, total: list[ir.Value]) -> None:
        """Joins what a thread has to the table, where that has the row."""
        table, row = self.kernel.inside(self.op.operands[2]), index(key)
        with only_if(row, extent(table, 0)):
            self.join(total, table, [row, *self.inner[1:]])


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
    nbytes = bytes_of(table)
    return (
        run_sums.Updates(rows, columns, nbytes, places, _adds(op), _read(op) * columns) if columns and nbytes else None
    )


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
    return min(PERCENT, ceil(PERCENT * (1 / RUN + places / rows)))
