"""Updates that meet in one element of a table, one after another in their order: a stable sort of updates by where they
go, and a loop over those of each place.

    a stable sort of rows by keys (gpu_radix.py)
    begin    begins = ends = 0 for each key
    bounds   begins[key], ends[key] = where its rows stand
    ordered_scatter    table[key] = the body's result of its updates, one after another

A key is the number of an element of the table, of the dimensions that row numbers name; one that the table does not
have is the one behind the last, whose updates are left out. A sort of the same numbers is done once a module. All rows
to one place are one thread's, which takes AHEAD of them at a time: a node that every edge points to is slow.
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
from .gpu_radix import RadixSort
from .kernel_work import TURNS_HINT

LABEL = "ordered_scatter"  # what kernels are called that apply updates in their order
SORT = "ordered_sort"  # and those that put the updates in order
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
        numbers, table = op.operands[1], op.operands[2]
        with op.context, op.location, ir.InsertionPoint(op):
            size, count = extent(numbers, 0), product([extent(table, dim) for dim in self.mapped])
            order, keys = _Order(_alloc(size), _alloc(count), _alloc(count)), _alloc(size)

        def write_row(kernel: Kernel, place: ir.Value, row: ir.Value, key: ir.Value) -> None:
            memref.store(row, kernel.inside(order.rows), [place])
            memref.store(key, kernel.inside(keys), [place])

        RadixSort(self.kernels, op, SORT, size, count, self._key, write_row).launch()
        self._kernel("begin", count, lambda kernel, thread: _clear(kernel, thread, order))
        self._kernel("bounds", size, lambda kernel, thread: _bounds(kernel, thread, order, keys))
        return order

    def _kernel(self, label: str, items: Size, body: Callable[[Kernel, ir.Value], None]) -> None:
        """A kernel with a thread for each of so many items; `body` takes the thread's number."""
        made = Kernel(self.kernels, self.op, f"{SORT}_{label}")
        with made.body():
            body(made, linear_id(THREADS))
        with self.op.context, self.op.location, ir.InsertionPoint(self.op):
            blocks = ceildiv(items, THREADS)
        made.launch(blocks)

    def _key(self, kernel: Kernel, row: ir.Value, report: bool) -> ir.Value:
        """A row's key, that behind the last where the table has no such element, which is reported."""
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
        key = arith.select(inside, _linear(found, sizes), as_value(product(sizes)))
        return arith.index_cast(ir.IntegerType.get_signless(32), key)


def _alloc(count: Size) -> ir.Value:
    """A buffer of so many numbers of 32 bits."""
    static = isinstance(count, int)
    kind = ir.MemRefType.get([count if static else ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(32))
    return memref.alloc(kind, [] if static else [count], [])


def _bounds(kernel: Kernel, thread: ir.Value, order: _Order, keys: ir.Value) -> None:
    """Where a key differs from that of the place before, its rows begin, and where from that behind, they end."""
    keys, begins, ends = (kernel.inside(buffer) for buffer in (keys, order.begins, order.ends))
    size = as_value(extent(keys, 0))
    one, last = as_value(1), arith.subi(size, as_value(1))
    with only_if(thread, size):
        above, below = arith.maxsi(thread, one), arith.minui(arith.addi(thread, one), last)
        key, before, behind = (
            _index(memref.load(keys, [place])) for place in (thread, arith.subi(above, one), below)
        )  # fmt: skip
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
