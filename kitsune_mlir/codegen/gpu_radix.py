"""A stable sort of rows by keys: a radix sort, the lowest digit of the keys first, three kernels a digit.

    count    counts[digit, tile] = how many rows of the tile have the digit; a tile is what a thread block takes
    scan     counts[digit, tile] = how many of its rows are in tiles before; totals[digit] = how many there are in all
    place    each row goes behind all rows of lesser digits, those of its own digit in tiles before, and in its tile

An SM sends what it stores line by line, and a row that goes anywhere is a line of its own. So `place` first puts the
rows of a tile into the order of their digits in shared memory (gpu_tile_order.py), where rows that go together are
neighbours and their stores share lines: the larger the tile, the more. No thread block waits for another one, all that
goes through memory goes from one kernel to the next. How long it takes hardly depends on the keys, be they sorted or
all the same; the highest digit first, and then each of its buckets by itself, is as fast only where keys are even.

Keys are numbers from 0 to a last one, which is that of rows that shall stand behind all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from kitsune_mlir.mlir import arith, gpu, ir, memref, scf, vector

from .gpu_kernel import WARP, Kernel, Kernels, Size, as_value, ceildiv, extent, linear_id, only_if
from .gpu_tile_order import LEAST_BITS, THREADS, Digit, TileOrder, before_lane
from .pipeline.device import below, i32, index, narrow, parts, when, whole
from .pipeline.device import value as number_of

LEAST_ITEMS, MOST_ITEMS, OPEN_ITEMS = 2, 20, 8  # rows of a thread: the fewest, the most, and where the size is open
SMS = 132  # that tiles of a known size are shared by evenly
MOST_BITS = 9  # of a digit: no more digits than threads
KEY_BITS = 31  # where the last key is not known
SCANNED = 4  # tiles of a lane that it counts together


@dataclass(frozen=True)
class _Arrays:
    """What a pass leaves to the next: keys and numbers of rows, pairs of i32, and what rows carry."""

    pairs: ir.Value
    carried: list[ir.Value]


@dataclass(frozen=True)
class _Pass:
    """Rows in the order of a digit, in tiles of so many rows a thread. They come from `source`, or as they are given;
    they go to `target`, or stay."""

    digit: Digit
    items: int
    source: _Arrays | None
    target: _Arrays | None
    counts: ir.Value
    totals: ir.Value

    @property
    def tile(self) -> int:
        return self.items * THREADS


@dataclass(frozen=True)
class _Tile:
    """Where a tile begins, and how many rows it has."""

    begin: ir.Value
    count: ir.Value

    def row(self, place: ir.Value) -> ir.Value:
        """That at a place of the tile, or the last one."""
        return arith.addi(self.begin, arith.minui(place, arith.subi(self.count, number_of(1))))


@dataclass(frozen=True)
class RadixSort:
    """`size` rows with keys from 0 to `last`, in front of `origin`. `key` gives a row's key as an i32, `first` says
    whether in the first kernel that asks for it. `carried` are vectors of integers of 32 or 64 bits, a number a row.
    What comes to a place is given to `write_row`, with the row's number (i32) and its key, and to `write_carried`, with
    the number of the vector. Both write in `kernel`, places are indices."""

    kernels: Kernels
    origin: ir.Operation
    label: str
    size: Size
    last: Size
    key: Callable[[Kernel, ir.Value, bool], ir.Value]
    write_row: Callable[[Kernel, ir.Value, ir.Value, ir.Value], None]
    carried: Sequence[ir.Value] = ()
    write_carried: Callable[[Kernel, int, ir.Value, ir.Value], None] | None = None

    def launch(self) -> None:
        """Puts the kernels' launches in front of `origin`."""
        parts = digits(self.last + 1 if isinstance(self.last, int) else 1 << KEY_BITS)
        items = _even(self.size) if isinstance(self.size, int) else OPEN_ITEMS
        with self.origin.context, self.origin.location, ir.InsertionPoint(self.origin):
            tiles = ceildiv(self.size, items * THREADS)
            counts, totals = alloc_numbers(parts[0].count, tiles), alloc_numbers(parts[0].count)
        source = None
        for digit in parts:
            target = None if digit == parts[-1] else self._arrays()
            step = _Pass(digit, items, source, target, counts, totals)
            self._kernel("count", tiles, lambda kernel, step=step: self._count(kernel, step))
            self._kernel("scan", ceildiv(WARP * digit.count, THREADS), lambda kernel, step=step: _scan(kernel, step))
            self._kernel("place", tiles, lambda kernel, step=step: self._place(kernel, step))
            source = target

    def _arrays(self) -> _Arrays:
        with self.origin.context, self.origin.location, ir.InsertionPoint(self.origin):
            carried = [
                alloc_numbers(self.size, kind=ir.MemRefType(buffer.type).element_type) for buffer in self.carried
            ]
            return _Arrays(alloc_numbers(self.size, 2), carried)

    def _kernel(self, label: str, blocks: Size, body: Callable[[Kernel], None]) -> None:
        made = Kernel(self.kernels, self.origin, f"{self.label}_{label}", THREADS)
        with made.body():
            body(made)
        made.launch(blocks)

    def _key(self, kernel: Kernel, step: _Pass, row: ir.Value, counts: bool) -> ir.Value:
        """The key of what stands at `row` before a pass."""
        if step.source is None:
            return self.key(kernel, index(row), counts)
        return memref.load(kernel.inside(step.source.pairs), [index(row), as_value(0)])

    def _count(self, kernel: Kernel, step: _Pass) -> None:
        counted, tile = kernel.shared([step.digit.count], i32()), self._tile(kernel, step)
        thread, block = gpu.thread_id(gpu.Dimension.x), gpu.block_id(gpu.Dimension.x)
        with only_if(thread, step.digit.count):
            memref.store(number_of(0), counted, [thread])
        gpu.barrier()
        places = [arith.addi(narrow(thread), number_of(number * THREADS)) for number in range(step.items)]
        with self.kernels.checks.behind():
            found = [step.digit.of(self._key(kernel, step, tile.row(place), True)) for place in places]
        for place, digit in zip(places, found, strict=True):
            with when(below(place, tile.count)):
                memref.atomic_rmw(arith.AtomicRMWKind.addi, number_of(1), counted, [index(digit)])
        gpu.barrier()
        with only_if(thread, step.digit.count):
            memref.store(memref.load(counted, [thread]), kernel.inside(step.counts), [thread, block])

    def _tile(self, kernel: Kernel, step: _Pass) -> _Tile:
        """That of a thread block."""
        begin = arith.muli(narrow(gpu.block_id(gpu.Dimension.x)), number_of(step.tile))
        return _Tile(begin, arith.minui(arith.subi(self._size(kernel), begin), number_of(step.tile)))

    def _size(self, kernel: Kernel) -> ir.Value:
        return number_of(self.size) if isinstance(self.size, int) else narrow(kernel.inside(self.size))

    def _place(self, kernel: Kernel, step: _Pass) -> None:
        order, tile = TileOrder.of(kernel, step.digit, step.items), self._tile(kernel, step)
        before = memref.load(kernel.inside(step.counts), [index(order.own_digit), gpu.block_id(gpu.Dimension.x)])
        total = memref.load(kernel.inside(step.totals), [index(order.own_digit)])
        own = order.own()
        rows, inside = [tile.row(place) for place in own], [below(place, tile.count) for place in own]
        # What is behind the last row has the last digit, and is the last in its tile: it changes no other row's place.
        if step.source is None:
            keys, names = [self._key(kernel, step, row, False) for row in rows], rows
        else:
            pairs = [_load_pair(kernel.inside(step.source.pairs), row) for row in rows]
            keys, names = ([pair[i] for pair in pairs] for i in range(2))
        keys = [arith.select(is_row, key, number_of(-1)) for is_row, key in zip(inside, keys, strict=True)]
        vectors = self.carried if step.source is None else step.source.carried
        places = order.places(keys, before, total)
        names, keys = order.moved(names, places), order.moved(keys, places)
        targets = order.targets(keys)
        there = [below(number, tile.count) for number in order.numbers()]
        for is_there, target, key, name in zip(there, targets, keys, names, strict=True):
            with when(is_there):
                if step.target is None:
                    self.write_row(kernel, index(target), name, key)
                else:
                    vector.store(
                        whole([key, name]), kernel.inside(step.target.pairs), [index(target), as_value(0)], alignment=8
                    )
        for position, carried in enumerate(vectors):
            moved = order.moved(_loaded(kernel, carried, rows), places)
            for is_there, target, value in zip(there, targets, moved, strict=True):
                with when(is_there):
                    if step.target is None:
                        assert self.write_carried is not None
                        self.write_carried(kernel, position, index(target), value)
                    else:
                        memref.store(value, kernel.inside(step.target.carried[position]), [index(target)])


def digits(keys: int) -> list[Digit]:
    """The digits of so many keys, the lowest first."""
    known = max(LEAST_BITS, (keys - 1).bit_length())
    passes = -(-known // MOST_BITS)
    bits = max(LEAST_BITS, -(-known // passes))
    return [Digit(bits * number, bits) for number in range(passes)]


def _even(rows: int) -> int:
    """Rows of a thread: tiles are as large as they can be, and as many as SMs, or a multiple of that."""
    rounds = max(1, -(-rows // (SMS * THREADS * MOST_ITEMS)))
    return max(LEAST_ITEMS, -(-rows // (SMS * THREADS * rounds)))


def _loaded(kernel: Kernel, buffer: ir.Value, rows: Sequence[ir.Value]) -> list[ir.Value]:
    return [memref.load(kernel.inside(buffer), [index(row)]) for row in rows]


def _scan(kernel: Kernel, step: _Pass) -> None:
    """A warp has a digit, and each of its lanes SCANNED tiles at a time."""
    counts, totals = kernel.inside(step.counts), kernel.inside(step.totals)
    thread = linear_id(THREADS)
    digit, lane = arith.divui(thread, as_value(WARP)), arith.remui(thread, as_value(WARP))
    tiles = as_value(extent(counts, 1))
    with only_if(digit, step.digit.count):
        loop = scf.ForOp(as_value(0), tiles, as_value(WARP * SCANNED), [number_of(0)])
        with ir.InsertionPoint(loop.body):
            (total,) = loop.inner_iter_args
            first = arith.addi(loop.induction_variable, arith.muli(lane, as_value(SCANNED)))
            own = [arith.addi(first, as_value(number)) for number in range(SCANNED)]
            there = [below(tile, tiles) for tile in own]
            last = arith.subi(tiles, as_value(1))
            counted = [
                arith.select(is_tile, memref.load(counts, [digit, arith.minui(tile, last)]), number_of(0))
                for is_tile, tile in zip(there, own, strict=True)
            ]
            before, in_warp = before_lane(reduce(arith.addi, counted), narrow(lane))
            before = arith.addi(total, before)
            for tile, count in zip(own, counted, strict=True):
                with only_if(tile, tiles):
                    memref.store(before, counts, [digit, tile])
                before = arith.addi(before, count)
            scf.yield_([arith.addi(total, in_warp)])
        with only_if(lane, 1):
            memref.store(loop.results[0], totals, [digit])


def _load_pair(pairs: ir.Value, row: ir.Value) -> list[ir.Value]:
    kind = ir.VectorType.get([2], i32())
    return parts(vector.load(kind, pairs, [index(row), as_value(0)], alignment=8))


def alloc_numbers(*sizes: Size, kind: ir.Type | None = None) -> ir.Value:
    """A buffer of such numbers, of 32 bits where nothing is said."""
    open_ = ir.ShapedType.get_dynamic_size()
    shape = [size if isinstance(size, int) else open_ for size in sizes]
    return memref.alloc(ir.MemRefType.get(shape, kind or i32()), [s for s in sizes if not isinstance(s, int)], [])
