"""Updates of a scatter in the order of the elements of the table that they go to: a stable sort, once a module for all
scatters by the same numbers.

    a stable sort of rows by keys (gpu_radix.py)
    begin    begins = ends = 0 for each key
    bounds   begins[key], ends[key] = where its rows stand, where anybody asks for them

A key is the number of an element of the table, of the dimensions that row numbers name; one that the table does not
have is the one behind the last, whose updates are left out. It is reported by the sort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

from kitsune_mlir.mlir import arith, ir, memref

from .gpu_buffers import VIEWS, behind, is_alloc, root_of, written
from .gpu_kernel import THREADS, Kernel, Kernels, Size, as_value, ceildiv, extent, linear_id, only_if, product
from .gpu_radix import RadixSort, alloc_numbers
from .pipeline.device import below, i32, index, when
from .pipeline.device import value as number_of

SORT = "ordered_sort"  # what kernels are called that put updates in order


@dataclass(frozen=True)
class Identity:
    """What scatters have in common that share an order: the buffer of numbers, by its hash, which part of it they have,
    and the sizes that they count in, known ones or by hash."""

    numbers: int
    part: tuple[int, ...]
    sizes: tuple[tuple[bool, int], ...]

    @property
    def is_open(self) -> bool:
        return not all(known for known, _ in self.sizes)


@dataclass
class Order:
    """Updates in the order of their keys: their numbers, and the keys. `bounds` are by key where its own begin and
    end, once they were asked for."""

    rows: ir.Value
    keys: ir.Value
    bounds: tuple[ir.Value, ir.Value] | None = None


@dataclass
class Orders:
    """Orders of a module, made where the first scatter asks for them."""

    kernels: Kernels
    _made: dict[Identity, Order] = field(default_factory=dict)

    def of(self, op: ir.Operation) -> Order:
        """That of a tm_tensor.scatter on memrefs."""
        found = self.identity(op)
        if found is not None and found in self._made:
            return self._made[found]
        order = _Sort(self.kernels, op).made()
        if found is not None:
            self._made[found] = order
        return order

    def identity(self, op: ir.Operation) -> Identity | None:
        """That of a scatter's order; None where numbers may change."""
        numbers, table = op.operands[1], op.operands[2]
        root, kind = root_of(numbers), ir.MemRefType(numbers.type)
        strides, offset = kind.get_strides_and_offset()
        known_part = kind.has_static_shape and min(offset, *strides) >= 0
        if not (known_part or _is_all(numbers)) or not _is_settled(root, op):
            return None
        sizes = [_size_of(table, dim) for dim in mapped(op)]
        known = [size for size in sizes if size is not None]
        part = (offset, *strides, *kind.shape)
        return Identity(hash(root), part, tuple(known)) if len(known) == len(sizes) else None

    def bounds(self, order: Order, op: ir.Operation) -> tuple[ir.Value, ir.Value]:
        """Where the rows of each key begin and end."""
        if order.bounds is None:
            order.bounds = _Sort(self.kernels, op).bounds(order.keys)
        return order.bounds


def mapped(op: ir.Operation) -> tuple[int, ...]:
    """The dimensions of the table that row numbers name."""
    return tuple(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))


def linear(place: list[ir.Value], sizes: list[Size]) -> ir.Value:
    """The number of an element at `place`, the last dimension running fastest."""
    total = place[0]
    for number, size in zip(place[1:], sizes[1:], strict=True):
        total = arith.addi(arith.muli(total, as_value(size)), number)
    return total


@dataclass
class _Sort:
    """Sorts a scatter's updates by their keys, in front of it."""

    kernels: Kernels
    op: ir.Operation

    def made(self) -> Order:
        op = self.op
        with op.context, op.location, ir.InsertionPoint(op):
            size, count = extent(op.operands[1], 0), self._count()
            order = Order(alloc_numbers(size), alloc_numbers(size))

        def write_row(kernel: Kernel, place: ir.Value, row: ir.Value, key: ir.Value) -> None:
            memref.store(row, kernel.inside(order.rows), [place])
            memref.store(key, kernel.inside(order.keys), [place])

        RadixSort(self.kernels, op, SORT, size, count, self._key, write_row).launch()
        return order

    def bounds(self, keys: ir.Value) -> tuple[ir.Value, ir.Value]:
        with self.op.context, self.op.location, ir.InsertionPoint(self.op):
            size, count = extent(keys, 0), self._count()
            found = alloc_numbers(count), alloc_numbers(count)
        self._kernel("begin", count, lambda kernel, thread: _clear(kernel, thread, found))
        self._kernel("bounds", size, lambda kernel, thread: _bounds(kernel, thread, found, keys))
        return found

    def _count(self) -> Size:
        return product([extent(self.op.operands[2], dim) for dim in mapped(self.op)])

    def _kernel(self, label: str, items: Size, body: Callable[[Kernel, ir.Value], None]) -> None:
        """A kernel with a thread for each of so many items; `body` takes the thread's number."""
        made = Kernel(self.kernels, self.op, f"{SORT}_{label}")
        with made.body():
            body(made, linear_id(THREADS))
        made.launch(lambda: ceildiv(items, THREADS))

    def _key(self, kernel: Kernel, row: ir.Value, report: bool) -> ir.Value:
        """A row's key, that behind the last where the table has no such element, which is reported."""
        numbers, table = kernel.inside(self.op.operands[1]), kernel.inside(self.op.operands[2])
        sizes = [extent(table, dim) for dim in mapped(self.op)]
        loaded = [memref.load(numbers, [row, as_value(column)]) for column in range(len(sizes))]
        found = [arith.index_cast(ir.IndexType.get(), number) for number in loaded]
        inside = reduce(
            arith.andi,
            [
                kernel.check_row(number, size) if report else below(number, as_value(size))
                for number, size in zip(found, sizes, strict=True)
            ],
        )
        key = arith.select(inside, linear(found, sizes), as_value(product(sizes)))
        return arith.index_cast(i32(), key)


def _bounds(kernel: Kernel, thread: ir.Value, bounds: tuple[ir.Value, ir.Value], keys: ir.Value) -> None:
    """Where a key differs from that of the place before, its rows begin, and where from that behind, they end."""
    keys, begins, ends = (kernel.inside(buffer) for buffer in (keys, *bounds))
    size = as_value(extent(keys, 0))
    one, last = as_value(1), arith.subi(size, as_value(1))
    with only_if(thread, size):
        above, below = arith.maxsi(thread, one), arith.minui(arith.addi(thread, one), last)
        key, before, behind = (
            index(memref.load(keys, [place])) for place in (thread, arith.subi(above, one), below)
        )  # fmt: skip
        with only_if(key, extent(begins, 0)):
            number = arith.index_cast(i32(), thread)
            is_first = arith.cmpi(arith.CmpIPredicate.eq, thread, as_value(0))
            for buffer, other, end, x in (
                (begins, before, is_first, number),
                (ends, behind, arith.cmpi(arith.CmpIPredicate.eq, thread, last), arith.addi(number, number_of(1))),
            ):
                differs = arith.cmpi(arith.CmpIPredicate.ne, key, other)
                with when(arith.ori(differs, end)):
                    memref.store(x, buffer, [key])


def _clear(kernel: Kernel, thread: ir.Value, bounds: tuple[ir.Value, ir.Value]) -> None:
    begins, ends = (kernel.inside(buffer) for buffer in bounds)
    with only_if(thread, extent(begins, 0)):
        for buffer in (begins, ends):
            memref.store(number_of(0), buffer, [thread])


def _size_of(buffer: ir.Value, dimension: int) -> tuple[bool, int] | None:
    """Whether a size is known, and the size, or the hash of the value that an allocation was made with; None where
    nothing is known."""
    kind = ir.MemRefType(buffer.type)
    if not kind.is_dynamic_dim(dimension):
        return True, kind.shape[dimension]
    if not is_alloc(buffer):
        return None
    return False, hash(buffer.owner.operation.operands[sum(map(kind.is_dynamic_dim, range(dimension)))])


def _is_all(numbers: ir.Value) -> bool:
    """Whether a view of a buffer has all its elements, in their order."""
    while not isinstance(numbers.owner, ir.Block) and (op := numbers.owner.operation).name in VIEWS:
        if op.name not in ("memref.cast", "memref.collapse_shape", "memref.expand_shape"):
            return False
        numbers = op.operands[0]
    return True


def _is_settled(root: ir.Value, op: ir.Operation) -> bool:
    """Whether nothing behind an operation writes a buffer."""
    return not any(may_write(one, root) for one in behind(op))


def may_write(op: ir.Operation, root: ir.Value) -> bool:
    """Whether an operation may write a buffer of numbers; launches, of kernels that are there already, make results."""
    return op.name != "gpu.launch_func" and any(root_of(output) == root for output in written(op))
