"""Updates that meet in one element of a table, one after another in their order: a stable sort of updates by where they
go, and a loop over those of each place.

    for each digit of the keys, the lowest first, in kernels of PARTS threads at most, a thread a run of rows:
      count    counts[digit, thread] = how many of the thread's rows have it
      sum, start    counts = the sums of all before (gpu_order.py)
      place    each row goes behind those before it
    begin    begins = ends = 0 for each key
    bounds   begins[key], ends[key] = where its rows stand
    ordered_scatter    table[key] = the body's result of its updates, one after another

A radix sort of which each step keeps the order of equal digits, so rows of one key stand in theirs. A key is the number
of an element of the table, of the dimensions that row numbers name; one that the table does not have is the one behind
the last, whose updates are left out. A sort of the same numbers is done once a module. All rows to one place are one
thread's, which takes AHEAD of them at a time: a node that every edge points to is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from kitsune_mlir.mlir import arith, ir, memref, scf, walk

from .gpu_buffers import VIEWS, root_of
from .gpu_clone import clone_into
from .gpu_kernel import (
    THREADS,
    WARP,
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
from .gpu_order import WARPS, start, sum_parts
from .kernel_work import TURNS_HINT

LABEL = "ordered_scatter"  # what kernels are called that apply updates in their order
SORT = "ordered_sort"  # and those that put the updates in order
COUNTS = 1 << 20  # of all digits and threads
LEAST_RUN = 8  # rows of a thread
DIGIT_BITS, KEY_BITS = 8, 31  # the most of a digit; of keys whose number is not known
# What writes no buffer of numbers: calls, of pipelines and other kernels, make their results.
_READERS = ("func.call", "func.return", "gpu.launch_func", "tm_tensor.scatter")
AHEAD = 4  # updates that are loaded together


@dataclass(frozen=True)
class _Order:
    """Updates in the order of their keys: their numbers, and by key where its own begin and end."""

    rows: ir.Value
    begins: ir.Value
    ends: ir.Value


@dataclass
class InOrder:
    """Scatters of a module whose updates come in their order, and the orders made for them."""

    kernels: Kernels
    made: list[tuple[ir.Value, tuple[int, ...], list[Size], _Order]] = field(default_factory=list)

    def lower(self, op: ir.Operation) -> bool:
        """Puts kernels in the place of a tm_tensor.scatter; false where an update has several elements along a
        dimension of the table that numbers name."""
        mapped = tuple(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
        updates, table = (ir.MemRefType(op.operands[i].type) for i in (0, 2))
        outer = table.rank - updates.rank + 1  # dimensions of the table in front of those of an update
        if len(set(mapped)) != len(mapped) or any(
            dim >= outer and updates.shape[dim - outer + 1] != 1 for dim in mapped
        ):
            return False
        self._apply(op, mapped, self._order(op, mapped), outer)
        op.erase()
        return True

    def _order(self, op: ir.Operation, mapped: tuple[int, ...]) -> _Order:
        numbers, table = op.operands[1], op.operands[2]
        root = root_of(numbers)
        with op.context, op.location, ir.InsertionPoint(op):
            sizes = [extent(table, dim) for dim in mapped]
        if all(isinstance(size, int) for size in sizes) and numbers.type.layout == _plain(numbers.type):
            for other, dims, known, order in self.made:
                if other == root and (len(dims), known) == (len(mapped), sizes) and _is_written_once(root, op):
                    return order
        order = _Sort(self.kernels, op, mapped).made()
        self.made.append((root, mapped, sizes, order))
        return order

    def _apply(self, op: ir.Operation, mapped: tuple[int, ...], order: _Order, outer: int) -> None:
        """The kernel that applies updates: a thread for each element of the table that they may go to."""
        updates, table = op.operands[0], op.operands[2]
        free = [dim for dim in range(outer, ir.MemRefType(table.type).rank) if dim not in mapped]  # and an update has
        kernel = Kernel(self.kernels, op, LABEL)
        with kernel.body():
            given, into = kernel.inside(updates), kernel.inside(table)
            rows, begins, ends = (kernel.inside(buffer) for buffer in (order.rows, order.begins, order.ends))
            sizes = [extent(given, dim - outer + 1) for dim in free]
            keys = [extent(into, dim) for dim in mapped]
            index = linear_id(THREADS)
            with only_if(index, product([*keys, *sizes])):
                place = delinearize(index, [*keys, *sizes])
                own, further = place[: len(keys)], place[len(keys) :]
                key = _linear(own, keys)
                begin, end = (_index(memref.load(buffer, [key])) for buffer in (begins, ends))
                target = [as_value(0)] * ir.MemRefType(table.type).rank
                for dim, number in zip((*mapped, *free), place, strict=True):
                    target[dim] = number
                at = dict(zip(free, further, strict=True))
                position = [at.get(dim, as_value(0)) for dim in range(outer, len(target))]
                with only_if(begin, end):
                    turns = _turns(op, mapped)
                    self._loop(op, kernel, (begin, end), turns, rows, (given, into), position, target)
        with op.context, op.location, ir.InsertionPoint(op):
            counts = [extent(table, dim) for dim in mapped] + [extent(updates, dim - outer + 1) for dim in free]
            kernel.launch(ceildiv(product(counts), THREADS))

    @staticmethod
    def _loop(
        op: ir.Operation,
        kernel: Kernel,
        bounds: tuple[ir.Value, ir.Value],
        turns: int,
        rows: ir.Value,
        buffers: tuple[ir.Value, ir.Value],
        position: list[ir.Value],
        target: list[ir.Value],
    ) -> None:
        """The element of the table with all its updates applied."""
        begin, end = bounds
        updates, table = buffers
        block, last = op.regions[0].blocks[0], arith.subi(end, as_value(1))

        def load(place: ir.Value) -> ir.Value:
            row = _index(memref.load(rows, [arith.minui(place, last)]))
            return memref.load(updates, [row, *position])

        loop = scf.ForOp(begin, end, as_value(AHEAD), [memref.load(table, target)])
        loop.operation.attributes[TURNS_HINT] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), turns)
        with ir.InsertionPoint(loop.body):
            (total,) = loop.inner_iter_args
            places = [arith.addi(loop.induction_variable, as_value(number)) for number in range(AHEAD)]
            found = [load(place) for place in places]
            for number, (place, update) in enumerate(zip(places, found, strict=True)):
                values = {hash(block.arguments[0]): update, hash(block.arguments[1]): total}
                made = clone_into(block, kernel, values)[0]
                there = arith.cmpi(arith.CmpIPredicate.ult, place, end)
                total = arith.select(there, made, total) if number else made
            scf.yield_([total])
        memref.store(loop.results[0], table, target)


@dataclass
class _Sort:
    """Sorts a scatter's updates by their keys, in front of it."""

    kernels: Kernels
    op: ir.Operation
    mapped: tuple[int, ...]

    def made(self) -> _Order:
        op = self.op
        i32 = ir.IntegerType.get_signless(32)
        numbers, table = op.operands[1], op.operands[2]
        with op.context, op.location, ir.InsertionPoint(op):
            size, keys = extent(numbers, 0), product([extent(table, dim) for dim in self.mapped])
            bits = min(KEY_BITS, keys.bit_length()) if isinstance(keys, int) else KEY_BITS
            passes = max(1, -(-bits // DIGIT_BITS))
            digit = -(-bits // passes)
            most = COUNTS >> digit
            parts = most if not isinstance(size, int) else max(1, min(most, -(-size // LEAST_RUN)))
            open_ = ir.ShapedType.get_dynamic_size()

            def alloc(count: Size) -> ir.Value:
                static = isinstance(count, int)
                kind = ir.MemRefType.get([count if static else open_], i32)
                return memref.alloc(kind, [] if static else [count], [])

            orders = [alloc(size) for _ in range(min(passes, 2))]
            begins, ends, counts, sums = alloc(keys), alloc(keys), alloc(parts << digit), alloc(WARPS)
        before: ir.Value | None = None
        for number in range(passes):
            after = orders[number % len(orders)]
            step = _Step(number * digit, digit, parts, before, after, number == 0)
            self._kernel("count", parts, lambda kernel, thread, step=step: self._count(kernel, thread, step, counts))
            self._kernel("sum", WARPS * WARP, lambda kernel, thread: sum_parts(kernel, thread, counts, sums))
            self._kernel("start", WARPS * WARP, lambda kernel, thread: start(kernel, thread, counts, sums))
            self._kernel("place", parts, lambda kernel, thread, step=step: self._place(kernel, thread, step, counts))
            before = after
        assert before is not None
        order = _Order(before, begins, ends)
        self._kernel("begin", keys, lambda kernel, thread: _clear(kernel, thread, order))
        self._kernel("bounds", size, lambda kernel, thread: self._bounds(kernel, thread, order))
        return order

    def _kernel(self, label: str, items: Size, body: Callable[[Kernel, ir.Value], None]) -> None:
        """A kernel with a thread for each of so many items; `body` takes the thread's number."""
        made = Kernel(self.kernels, self.op, f"{SORT}_{label}")
        with made.body():
            body(made, linear_id(THREADS))
        with self.op.context, self.op.location, ir.InsertionPoint(self.op):
            blocks = ceildiv(items, THREADS)
        made.launch(blocks)

    def _key(self, kernel: Kernel, row: ir.Value, report: bool = False) -> ir.Value:
        """A row's key as an index, that behind the last where the table has no such element."""
        numbers, table = kernel.inside(self.op.operands[1]), kernel.inside(self.op.operands[2])
        sizes = [extent(table, dim) for dim in self.mapped]
        found, inside = [], None
        for column, size in enumerate(sizes):
            number = arith.index_cast(ir.IndexType.get(), memref.load(numbers, [row, as_value(column)]))
            fits = arith.cmpi(arith.CmpIPredicate.ult, number, as_value(size))
            if report:
                fits = kernel.check_row(number, size)
            inside = fits if inside is None else arith.andi(inside, fits)
            found.append(number)
        return arith.select(inside, _linear(found, sizes), as_value(product(sizes)))

    def _count(self, kernel: Kernel, thread: ir.Value, step: _Step, counts: ir.Value) -> None:
        counts = kernel.inside(counts)
        with only_if(thread, step.parts):
            clear = scf.ForOp(as_value(0), as_value(1 << step.bits), as_value(1))
            with ir.InsertionPoint(clear.body):
                memref.store(_number(0), counts, [step.place(clear.induction_variable, thread)])
                scf.yield_([])

            def count(row: ir.Value) -> None:
                at = [step.place(step.digit(self._key(kernel, row, step.is_first)), thread)]
                memref.store(arith.addi(memref.load(counts, at), _number(1)), counts, at)

            self._run(kernel, thread, step, count)

    def _place(self, kernel: Kernel, thread: ir.Value, step: _Step, counts: ir.Value) -> None:
        counts, after = kernel.inside(counts), kernel.inside(step.after)
        with only_if(thread, step.parts):

            def place(row: ir.Value) -> None:
                at = [step.place(step.digit(self._key(kernel, row)), thread)]
                own = memref.load(counts, at)
                memref.store(arith.addi(own, _number(1)), counts, at)
                memref.store(arith.index_cast(own.type, row), after, [_index(own)])

            self._run(kernel, thread, step, place)

    def _run(self, kernel: Kernel, thread: ir.Value, step: _Step, body: Callable[[ir.Value], None]) -> None:
        """The rows of a thread, one after another in the order so far."""
        before = None if step.before is None else kernel.inside(step.before)
        size = as_value(extent(kernel.inside(self.op.operands[1]), 0))
        each = arith.ceildivui(size, as_value(step.parts))
        begin = arith.minui(arith.muli(thread, each), size)
        loop = scf.ForOp(begin, arith.minui(arith.addi(begin, each), size), as_value(1))
        with ir.InsertionPoint(loop.body):
            place = loop.induction_variable
            body(place if before is None else _index(memref.load(before, [place])))
            scf.yield_([])

    def _bounds(self, kernel: Kernel, thread: ir.Value, order: _Order) -> None:
        rows, begins, ends = (kernel.inside(buffer) for buffer in (order.rows, order.begins, order.ends))
        size = as_value(extent(rows, 0))
        one, last = as_value(1), arith.subi(size, as_value(1))
        with only_if(thread, size):
            above, below = arith.maxsi(thread, one), arith.minui(arith.addi(thread, one), last)
            key, before, behind = (
                self._key(kernel, _index(memref.load(rows, [place])))
                for place in (thread, arith.subi(above, one), below)
            )
            with only_if(key, extent(begins, 0)):
                number = arith.index_cast(ir.IntegerType.get_signless(32), thread)
                is_first = arith.cmpi(arith.CmpIPredicate.eq, thread, as_value(0))
                for buffer, other, end, x in (
                    (begins, before, is_first, number),
                    (ends, behind, arith.cmpi(arith.CmpIPredicate.eq, thread, last), arith.addi(number, _number(1))),
                ):
                    differs = arith.cmpi(arith.CmpIPredicate.ne, key, other)
                    guard = scf.IfOp(arith.ori(differs, end))
                    with ir.InsertionPoint(guard.then_block):
                        memref.store(x, buffer, [key])
                        scf.yield_([])


@dataclass(frozen=True)
class _Step:
    """A digit of `bits` bits from bit `shift` on, counted by `parts` threads; the order before, None where rows stand
    as they are given, and the one after."""

    shift: int
    bits: int
    parts: int
    before: ir.Value | None
    after: ir.Value
    is_first: bool

    def digit(self, key: ir.Value) -> ir.Value:
        moved = arith.shrui(key, as_value(self.shift)) if self.shift else key
        return arith.andi(moved, as_value((1 << self.bits) - 1))

    def place(self, digit: ir.Value, thread: ir.Value) -> ir.Value:
        """Where a digit's count of a thread stands: the counts of all threads for one digit are neighbours."""
        return arith.addi(arith.muli(digit, as_value(self.parts)), thread)


def _clear(kernel: Kernel, thread: ir.Value, order: _Order) -> None:
    begins, ends = kernel.inside(order.begins), kernel.inside(order.ends)
    with only_if(thread, extent(begins, 0)):
        for buffer in (begins, ends):
            memref.store(_number(0), buffer, [thread])


def _linear(place: list[ir.Value], sizes: list[Size]) -> ir.Value:
    """The number of an element at `place`, the last dimension running fastest."""
    total = place[0]
    for number, size in zip(place[1:], sizes[1:], strict=True):
        total = arith.addi(arith.muli(total, as_value(size)), number)
    return total


def _turns(op: ir.Operation, mapped: tuple[int, ...]) -> int:
    """How many turns the loop over a place's updates has on average, as far as it is known."""
    updates, table = (ir.MemRefType(op.operands[i].type).shape for i in (0, 2))
    keys = prod(table[dim] for dim in mapped)
    return max(1, -(-updates[0] // (max(1, keys) * AHEAD)))


def _plain(kind: ir.Type) -> ir.Attribute:
    return ir.AffineMapAttr.get(ir.AffineMap.get_identity(ir.MemRefType(kind).rank))


def _is_written_once(root: ir.Value, op: ir.Operation) -> bool:
    """Whether a buffer is an argument that nothing writes, or is written by one operation alone."""
    block = op.block
    writers = 0
    for one in (other.operation for other in block.operations):
        if one.name in (*VIEWS, "memref.dim", "memref.alloc"):
            continue
        outputs = one.operands[len(one.operands) - 1 :] if one.name in ("linalg.generic", "memref.copy") else []
        touched = [operand for inner in walk(one) for operand in inner.operands if root_of(operand) == root]
        if one.name in (*_READERS, "linalg.generic", "memref.copy"):
            writers += any(root_of(output) == root for output in outputs)
        elif touched:
            writers += 2  # who knows
    return writers <= (0 if isinstance(root.owner, ir.Block) else 1)


def _index(x: ir.Value) -> ir.Value:
    return arith.index_castui(ir.IndexType.get(), x)


def _number(x: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(32), x)
