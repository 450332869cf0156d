"""A stable sort of rows by keys: a radix sort, the lowest digit of the keys first, three kernels a digit.

    count    counts[digit, tile] = how many rows of the tile have the digit; a tile is what a thread block takes
    scan     counts[digit, tile] = how many of its rows are in tiles before; totals[digit] = how many there are in all
    place    each row goes behind all rows of lesser digits, those of its own digit in tiles before, and in its tile

An SM sends what it stores line by line, and a row that goes anywhere is a line of its own. So `place` first puts the
rows of a tile into the order of their digits in shared memory, where rows that go together then are neighbours, and
their stores share lines: the larger the tile, the more. It counts in shared memory, too: each warp for itself, one row
of each lane at a time, and lanes with the same digit find each other by ballots, a bit of the digit after another. No
thread block waits for another one, all that goes through memory goes from one kernel to the next. How long it takes
does not depend on the keys, be they sorted or all the same.

Keys are numbers from 0 to a last one, which is that of rows that shall stand behind all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, gpu, ir, math, memref, nvvm, scf

from .gpu_kernel import WARP, Kernel, Kernels, Size, as_value, ceildiv, extent, linear_id, only_if

THREADS = 512  # of a block that has a tile
WARPS = THREADS // WARP
LEAST_ITEMS, MOST_ITEMS, OPEN_ITEMS = 2, 20, 8  # rows of a thread: the fewest, the most, and where the size is open
SMS = 132  # that tiles of a known size are shared by evenly
LEAST_BITS, MOST_BITS = (
    5,
    9,
)  # of a digit: no fewer digits than lanes of a warp, no more than threads
KEY_BITS = 31  # where the last key is not known
SCANNED = 4  # tiles of a lane that it counts together
_DISTANCES = (1, 2, 4, 8, 16)  # of lanes


@dataclass(frozen=True)
class _Arrays:
    """What a pass leaves to the next: keys (i32), numbers of rows (i32) and what rows carry."""

    keys: ir.Value
    rows: ir.Value
    carried: list[ir.Value]


@dataclass(frozen=True)
class _Pass:
    """One digit: `bits` bits from bit `shift` on. Rows come from `source`, or as they are given; they go to `target`,
    or to their last places."""

    shift: int
    bits: int
    source: _Arrays | None
    target: _Arrays | None
    counts: ir.Value
    totals: ir.Value

    @property
    def digits(self) -> int:
        return 1 << self.bits

    def digit(self, key: ir.Value) -> ir.Value:
        """The digit of a key, as an i32."""
        moved = arith.shrui(key, _number(self.shift)) if self.shift else key
        return arith.andi(moved, _number(self.digits - 1))


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

    @property
    def items(self) -> int:
        """Rows of a thread: tiles are as large as they can be, and as many as SMs, or a multiple of that."""
        if not isinstance(self.size, int):
            return OPEN_ITEMS
        rounds = max(1, -(-self.size // (SMS * THREADS * MOST_ITEMS)))
        return max(LEAST_ITEMS, -(-self.size // (SMS * THREADS * rounds)))

    @property
    def tile(self) -> int:
        return self.items * THREADS

    def launch(self) -> None:
        """Puts the kernels' launches in front of `origin`."""
        key_bits = self.last.bit_length() if isinstance(self.last, int) else KEY_BITS
        passes = max(1, -(-key_bits // MOST_BITS))
        bits = max(LEAST_BITS, -(-key_bits // passes))
        with self.origin.context, self.origin.location, ir.InsertionPoint(self.origin):
            tiles = ceildiv(self.size, self.tile)
            counts, totals = _alloc(1 << bits, tiles), _alloc(1 << bits)
        source = None
        for number in range(passes):
            target = None if number == passes - 1 else self._arrays()
            step = _Pass(number * bits, bits, source, target, counts, totals)
            self._kernel("count", tiles, THREADS, lambda kernel, step=step: self._count(kernel, step))
            self._kernel("scan", ceildiv(WARP << bits, THREADS), THREADS, lambda kernel, step=step: _scan(kernel, step))
            self._kernel("place", tiles, THREADS, lambda kernel, step=step: self._place(kernel, step))
            source = target

    def _arrays(self) -> _Arrays:
        with self.origin.context, self.origin.location, ir.InsertionPoint(self.origin):
            carried = [_alloc(self.size, kind=ir.MemRefType(buffer.type).element_type) for buffer in self.carried]
            return _Arrays(_alloc(self.size), _alloc(self.size), carried)

    def _kernel(self, label: str, blocks: Size, threads: int, body: Callable[[Kernel], None]) -> None:
        made = Kernel(self.kernels, self.origin, f"{self.label}_{label}", threads)
        with made.body():
            body(made)
        made.launch(blocks)

    def _key(self, kernel: Kernel, step: _Pass, row: ir.Value, counts: bool) -> ir.Value:
        """The key of what stands at `row` before a pass."""
        if step.source is None:
            return self.key(kernel, _index(row), counts)
        return memref.load(kernel.inside(step.source.keys), [_index(row)])

    def _count(self, kernel: Kernel, step: _Pass) -> None:
        counted = kernel.shared([step.digits], _i32())
        thread, tile = gpu.thread_id(gpu.Dimension.x), gpu.block_id(gpu.Dimension.x)
        with only_if(thread, step.digits):
            memref.store(_number(0), counted, [thread])
        gpu.barrier()
        first = arith.addi(arith.muli(_narrow(tile), _number(self.tile)), _narrow(thread))
        rows = [arith.addi(first, _number(number * THREADS)) for number in range(self.items)]
        size, last = self._size(kernel)
        with self.kernels.checks.behind():
            digits = [step.digit(self._key(kernel, step, arith.minui(row, last), True)) for row in rows]
        for row, digit in zip(rows, digits, strict=True):
            with _where(_less(row, size)):
                memref.atomic_rmw(arith.AtomicRMWKind.addi, _number(1), counted, [_index(digit)])
        gpu.barrier()
        with only_if(thread, step.digits):
            memref.store(memref.load(counted, [thread]), kernel.inside(step.counts), [thread, tile])

    def _size(self, kernel: Kernel) -> tuple[ir.Value, ir.Value]:
        """The number of rows, and that of the last one."""
        size = _number(self.size) if isinstance(self.size, int) else _narrow(kernel.inside(self.size))
        return size, arith.subi(size, _number(1))

    def _place(self, kernel: Kernel, step: _Pass) -> None:
        words = kernel.shared([max(WARPS * step.digits, self.tile)], _i32())  # counts of warps, and later rows
        begins = kernel.shared([step.digits], _i32())
        thread, tile = _narrow(gpu.thread_id(gpu.Dimension.x)), _narrow(gpu.block_id(gpu.Dimension.x))
        warp, lane = arith.divui(thread, _number(WARP)), arith.remui(thread, _number(WARP))
        size, last = self._size(kernel)
        begin = arith.muli(tile, _number(self.tile))
        first = arith.addi(begin, arith.addi(arith.muli(warp, _number(WARP * self.items)), lane))
        rows = [arith.addi(first, _number(number * WARP)) for number in range(self.items)]
        inside = [_less(row, size) for row in rows]
        rows = [arith.minui(row, last) for row in rows]
        # What is behind the last row has the last digit, and is the last in its tile: it changes no other row's place.
        keys = [
            arith.select(is_row, self._key(kernel, step, row, False), _number(-1)) for is_row, row in zip(inside, rows)
        ]
        names = rows if step.source is None else _loaded(kernel, step.source.rows, rows)
        digit = arith.remui(thread, _number(step.digits))
        before = memref.load(kernel.inside(step.counts), [_index(digit), _index(tile)])
        total = memref.load(kernel.inside(step.totals), [_index(digit)])
        own = arith.muli(warp, _number(step.digits))
        ranks = _ranks([step.digit(key) for key in keys], step, words, own, lane)
        gpu.barrier()
        self._begin(kernel, step, words, begins, (thread, digit), (before, total))
        gpu.barrier()
        places = []
        for key, rank in zip(keys, ranks, strict=True):
            in_tile = memref.load(words, [_index(arith.addi(own, step.digit(key)))])
            places.append(arith.addi(in_tile, rank))
        order = _Order(words, places, thread, arith.minui(arith.subi(size, begin), _number(self.tile)))
        moved_names, moved_keys = order.moved(names), order.moved(keys)
        targets = [
            arith.addi(memref.load(begins, [_index(step.digit(key))]), number)
            for key, number in zip(moved_keys, order.numbers, strict=True)
        ]
        for is_there, target, key, name in zip(order.are_there, targets, moved_keys, moved_names, strict=True):
            with _where(is_there):
                if step.target is None:
                    self.write_row(kernel, _index(target), name, key)
                else:
                    memref.store(key, kernel.inside(step.target.keys), [_index(target)])
                    memref.store(name, kernel.inside(step.target.rows), [_index(target)])
        for position, vector in enumerate(self.carried if step.source is None else step.source.carried):
            moved = order.moved(_loaded(kernel, vector, rows))
            for is_there, target, value in zip(order.are_there, targets, moved, strict=True):
                with _where(is_there):
                    if step.target is None:
                        assert self.write_carried is not None
                        self.write_carried(kernel, position, _index(target), value)
                    else:
                        memref.store(value, kernel.inside(step.target.carried[position]), [_index(target)])

    @staticmethod
    def _begin(
        kernel: Kernel,
        step: _Pass,
        words: ir.Value,
        begins: ir.Value,
        own: tuple[ir.Value, ir.Value],
        counted: tuple[ir.Value, ir.Value],
    ) -> None:
        """Counts of warps become where a warp's rows of a digit begin in the tile in the order of digits; `begins` says
        what to add to a place there for where it is among all rows. A thread has a digit, of whose rows so many are in
        tiles before, and so many there are in all."""
        sums = kernel.shared([2, WARPS], _i32())
        (thread, digit), (before, total) = own, counted
        warp, lane = arith.divui(thread, _number(WARP)), arith.remui(thread, _number(WARP))
        has_digit = _less(thread, _number(step.digits))
        places = [_index(arith.addi(digit, _number(number * step.digits))) for number in range(WARPS)]
        in_warps = [memref.load(words, [place]) for place in places]
        in_tile = in_warps[0]
        for count in in_warps[1:]:
            in_tile = arith.addi(in_tile, count)
        found = []
        for number, count in enumerate((in_tile, total)):
            in_lanes, in_warp = _before_lane(arith.select(has_digit, count, _number(0)), lane)
            with _where(_less(lane, _number(1))):
                memref.store(in_warp, sums, [as_value(number), _index(warp)])
            found.append(in_lanes)
        gpu.barrier()
        for other in range(step.digits // WARP - 1):
            is_before = _less(_number(other), warp)
            for number in range(2):
                there = memref.load(sums, [as_value(number), as_value(other)])
                found[number] = arith.addi(found[number], arith.select(is_before, there, _number(0)))
        local, start = found
        with _where(has_digit):
            memref.store(arith.subi(arith.addi(start, before), local), begins, [_index(digit)])
            for place, count in zip(places, in_warps, strict=True):
                memref.store(local, words, [place])
                local = arith.addi(local, count)


@dataclass(frozen=True)
class _Order:
    """Rows of a tile in the order of their digits: the places of a thread's own rows, and how many places have one. All
    threads meet before and behind each use of `words`."""

    words: ir.Value
    places: list[ir.Value]
    thread: ir.Value
    count: ir.Value

    @property
    def numbers(self) -> list[ir.Value]:
        """The places whose rows a thread has then."""
        return [arith.addi(self.thread, _number(number * THREADS)) for number in range(len(self.places))]

    @property
    def are_there(self) -> list[ir.Value]:
        """Whether these have rows."""
        return [_less(number, self.count) for number in self.numbers]

    def moved(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """What a thread's rows have becomes what the rows of its places have."""
        kind = values[0].type
        if kind == _i32():
            return self._moved(values)
        width = arith.constant(kind, 32)
        low = self._moved([arith.trunci(_i32(), value) for value in values])
        high = self._moved([arith.trunci(_i32(), arith.shrui(value, width)) for value in values])
        return [arith.ori(arith.extui(kind, a), arith.shli(arith.extui(kind, b), width)) for a, b in zip(low, high)]

    def _moved(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        gpu.barrier()
        for value, place in zip(values, self.places, strict=True):
            memref.store(value, self.words, [_index(place)])
        gpu.barrier()
        return [memref.load(self.words, [_index(number)]) for number in self.numbers]


def _loaded(kernel: Kernel, buffer: ir.Value, rows: Sequence[ir.Value]) -> list[ir.Value]:
    return [memref.load(kernel.inside(buffer), [_index(row)]) for row in rows]


def _ranks(digits: Sequence[ir.Value], step: _Pass, words: ir.Value, own: ir.Value, lane: ir.Value) -> list[ir.Value]:
    """For each row of a thread, how many of its warp stand before it and have its digit; and from `own` on in `words`
    how many rows of the warp have each digit."""
    first = arith.addi(own, lane)
    for number in range(0, step.digits, WARP):
        memref.store(_number(0), words, [_index(arith.addi(first, _number(number)))])
    _meet()
    lower = arith.subi(arith.shli(_number(1), lane), _number(1))
    ranks = []
    for digit in digits:
        same = _same_digit(digit, step.bits)
        before = math.ctpop(arith.andi(same, lower))
        place = [_index(arith.addi(own, digit))]
        counted = memref.load(words, place)
        _meet()
        with _where(_less(before, _number(1))):
            memref.store(arith.addi(counted, math.ctpop(same)), words, place)
        _meet()
        ranks.append(arith.addi(counted, before))
    return ranks


def _same_digit(digit: ir.Value, bits: int) -> ir.Value:
    """The lanes of a warp that have a lane's digit, a bit each."""
    truth = ir.IntegerType.get_signless(1)
    found = None
    for bit in range(bits):
        is_set = arith.trunci(truth, arith.shrui(digit, _number(bit)))
        those = nvvm.vote_sync(_number(-1), is_set, nvvm.VoteSyncKind.ballot)
        same = arith.select(is_set, those, arith.xori(those, _number(-1)))
        found = same if found is None else arith.andi(found, same)
    assert found is not None
    return found


def _scan(kernel: Kernel, step: _Pass) -> None:
    """A warp has a digit, and each of its lanes SCANNED tiles at a time."""
    counts, totals = kernel.inside(step.counts), kernel.inside(step.totals)
    thread = linear_id(THREADS)
    digit, lane = arith.divui(thread, as_value(WARP)), arith.remui(thread, as_value(WARP))
    tiles = as_value(extent(counts, 1))
    with only_if(digit, step.digits):
        loop = scf.ForOp(as_value(0), tiles, as_value(WARP * SCANNED), [_number(0)])
        with ir.InsertionPoint(loop.body):
            (total,) = loop.inner_iter_args
            first = arith.addi(loop.induction_variable, arith.muli(lane, as_value(SCANNED)))
            own = [arith.addi(first, as_value(number)) for number in range(SCANNED)]
            there = [arith.cmpi(arith.CmpIPredicate.ult, tile, tiles) for tile in own]
            last = arith.subi(tiles, as_value(1))
            counted = [
                arith.select(is_tile, memref.load(counts, [digit, arith.minui(tile, last)]), _number(0))
                for is_tile, tile in zip(there, own, strict=True)
            ]
            whole = counted[0]
            for count in counted[1:]:
                whole = arith.addi(whole, count)
            before, in_warp = _before_lane(whole, _narrow(lane))
            before = arith.addi(total, before)
            for tile, count in zip(own, counted, strict=True):
                with only_if(tile, tiles):
                    memref.store(before, counts, [digit, tile])
                before = arith.addi(before, count)
            scf.yield_([arith.addi(total, in_warp)])
        with only_if(lane, 1):
            memref.store(loop.results[0], totals, [digit])


def _before_lane(x: ir.Value, lane: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The sum over the lanes before this one, and that over all lanes, from sums of ever more neighbours."""
    mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
    before, whole = _number(0), x
    for distance in _DISTANCES:
        other = gpu.ShuffleOp(whole, _number(distance), _number(WARP), mode).results[0]
        is_later = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(lane, _number(distance)), _number(0))
        before = arith.select(is_later, arith.addi(before, other), before)
        whole = arith.addi(whole, other)
    return before, whole


def _meet() -> None:
    """The lanes of a warp meet, and see what others of it wrote to shared memory (PTX ISA, bar.warp.sync)."""
    nvvm.bar_warp_sync(_number(-1))


def _alloc(*sizes: Size, kind: ir.Type | None = None) -> ir.Value:
    """A buffer of such numbers, of 32 bits where nothing is said."""
    open_ = ir.ShapedType.get_dynamic_size()
    shape = [size if isinstance(size, int) else open_ for size in sizes]
    return memref.alloc(ir.MemRefType.get(shape, kind or _i32()), [s for s in sizes if not isinstance(s, int)], [])


@contextlib.contextmanager
def _where(condition: ir.Value) -> Iterator[None]:
    """What is built inside runs where the condition holds."""
    guard = scf.IfOp(condition)
    with ir.InsertionPoint(guard.then_block):
        yield
        scf.yield_([])


def _less(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ult, a, b)


def _i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def _narrow(x: ir.Value) -> ir.Value:
    """An index as an i32: rows are fewer than 2^31."""
    return arith.index_cast(_i32(), x)


def _index(x: ir.Value) -> ir.Value:
    return arith.index_castui(ir.IndexType.get(), x)


def _number(x: int) -> ir.Value:
    return arith.constant(_i32(), x)
