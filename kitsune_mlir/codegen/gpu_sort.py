"""Sorts of rows that a block of threads holds in shared memory, by a bitonic network (Batcher 1968): in a step of
distance j each thread looks at elements that are j apart, and exchanges them where they stand in the wrong order.

    tm_tensor.sort dimension(1) outs(%keys, %others) { ^bb0(%a, %b, %c, %d): tm_tensor.yield %a may stand before %b }

What goes through the network are whole numbers in the order of the keys, with where these stood behind them, in one
word where both fit: equal keys stay in their order, and what a row's last power of two has more stays behind it. All
tensors are then read where their elements stood. NaN is greater than all numbers. Short rows share a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, attr_int, func, gpu, ir, memref, walk
from kitsune_mlir.operations import operations_of
from kitsune_mlir.planning.kernel_cost import MOST_SORTED

from .gpu_kernel import (
    THREADS,
    WARP,
    Kernel,
    Kernels,
    See,
    Size,
    as_value,
    ceildiv,
    delinearize,
    extent,
    on_host,
    only_if,
    power_of_two,
    product,
)
from .pipeline.device import below, when

# Keys of MOST_SORTED elements with their places of 32 bits take up to 48 KiB, all that a block has.
MOST_THREADS = 1024
WORD = 32  # bits
_F, _I = arith.CmpFPredicate, arith.CmpIPredicate
_FLOATS = {int(_F.OGE): True, int(_F.OGT): True, int(_F.OLE): False, int(_F.OLT): False}  # whether keys descend
_INTEGERS = {int(_I.sge): True, int(_I.sgt): True, int(_I.sle): False, int(_I.slt): False}
_NAN = {True: ["arith.cmpf", "arith.ori"], False: []}  # what a comparison is followed by (frontend/nan.py)


def lower_sorts(main: func.FuncOp, kernels: Kernels) -> None:
    """Puts a kernel in the place of each tm_tensor.sort on memrefs that is one of these; others become loops."""
    for op in walk(main, "tm_tensor.sort"):
        kind, order = ir.MemRefType(op.operands[0].type), Order.of(op)
        size = kind.shape[kind.rank - 1]
        if order is not None and attr_int(op, "dimension") == kind.rank - 1 and 0 < size <= MOST_SORTED:
            _lower(op, size, order, kernels)
            op.erase()


@dataclass(frozen=True)
class Order:
    """That of keys of a type, of 32 or 64 bits."""

    kind: ir.Type
    descending: bool

    @staticmethod
    def of(op: ir.Operation) -> Order | None:
        """The one that a sort goes by; None where that is not one of these."""
        a, b, *_ = op.regions[0].blocks[0].arguments
        first, *others, end = operations_of(op.regions[0].blocks[0])
        kind = a.type
        is_float = isinstance(kind, ir.FloatType)
        compares = first.name == ("arith.cmpf" if is_float else "arith.cmpi") and list(first.operands) == [a, b]
        if not compares or kind.width not in (WORD, 2 * WORD) or [one.name for one in others] != _NAN[is_float]:
            return None
        predicate, (found,) = attr_int(first, "predicate"), end.operands
        names = _FLOATS if is_float else _INTEGERS
        known = predicate in names and found == (others[-1] if others else first).results[0]
        return Order(kind, names[predicate]) if known else None

    def number(self, key: ir.Value) -> ir.Value:
        """A whole number without a sign, less than another one where the key stands before that one's."""
        bits = ir.IntegerType.get_signless(self.kind.width)
        top = arith.constant(bits, -(1 << (self.kind.width - 1)))
        if isinstance(self.kind, ir.FloatType):
            zero, is_nan = arith.constant(self.kind, 0.0), arith.cmpf(arith.CmpFPredicate.UNO, key, key)
            is_zero = arith.cmpf(arith.CmpFPredicate.OEQ, key, zero)  # of either sign
            raw = arith.bitcast(bits, arith.select(is_zero, zero, key))
            negative = arith.cmpi(arith.CmpIPredicate.slt, raw, arith.constant(bits, 0))
            found = arith.select(negative, _inverted(raw), arith.xori(raw, top))
            found = arith.select(is_nan, arith.constant(bits, -1), found)
        else:
            found = arith.xori(key, top)
        return _inverted(found) if self.descending else found


def _inverted(bits: ir.Value) -> ir.Value:
    return arith.xori(bits, arith.constant(bits.type, -1))


@dataclass(frozen=True)
class _Block:
    """What a block of threads does: `rows` rows of `slots` elements each, a power of two of which `size` are there."""

    size: int
    slots: int
    rows: int
    threads: int

    @staticmethod
    def of(size: int) -> _Block:
        slots = max(2, power_of_two(size))
        rows = max(1, 2 * THREADS // slots)
        return _Block(size, slots, rows, max(WARP, min(MOST_THREADS, rows * slots // 2)))

    def shares(self, points: int) -> Iterator[ir.Value]:
        """The points of so many that a thread has; others are none of its."""
        thread = gpu.thread_id(gpu.Dimension.x)
        for first in range(0, points, self.threads):
            yield arith.addi(thread, as_value(first))


class _Words:
    """A block's elements in shared memory: [row, slot], each a number with its place, or both apart."""

    def __init__(self, kernel: Kernel, own: _Block, order: Order):
        self._order, self._own = order, own
        self._i32, self._i64 = (ir.IntegerType.get_signless(width) for width in (WORD, 2 * WORD))
        shape, self._is_one = [own.rows, own.slots], order.kind.width == WORD
        kinds = [self._i64] if self._is_one else [self._i64, self._i32]
        self._buffers = [kernel.shared(shape, kind) for kind in kinds]

    def begin(self, key: ir.Value, at: list[ir.Value]) -> None:
        """Stores a key, which stands in that slot; one behind the last of its row stands behind all."""
        number, place = self._order.number(key), arith.index_cast(self._i32, at[1])
        if self._own.size < self._own.slots:
            there = below(at[1], as_value(self._own.size))
            number = arith.select(there, number, arith.constant(number.type, -1))
        found = [number, place]
        if self._is_one:
            high = arith.shli(arith.extui(self._i64, number), arith.constant(self._i64, WORD))
            found = [arith.ori(high, arith.extui(self._i64, place))]
        self._store(found, at)

    def _load(self, at: list[ir.Value]) -> list[ir.Value]:
        return [memref.load(buffer, at) for buffer in self._buffers]

    def _store(self, values: list[ir.Value], at: list[ir.Value]) -> None:
        for value, buffer in zip(values, self._buffers, strict=True):
            memref.store(value, buffer, at)

    def place(self, at: list[ir.Value]) -> ir.Value:
        """Where what is in a slot stood."""
        place = self._load(at)[-1]
        return arith.index_cast(ir.IndexType.get(), arith.trunci(self._i32, place) if self._is_one else place)

    def exchange(self, pair: ir.Value, run: int, distance: int) -> None:
        """Has the two elements of a pair stand in the order of their run: every other one is sorted the other way."""
        row, number = delinearize(pair, [self._own.rows, self._own.slots // 2])
        beside = arith.remui(number, as_value(distance))
        low = arith.addi(arith.muli(arith.subi(number, beside), as_value(2)), beside)
        ends = [row, low], [row, arith.addi(low, as_value(distance))]
        a, b = map(self._load, ends)
        swaps = below(b[0], a[0])
        if not self._is_one:
            equal = arith.cmpi(arith.CmpIPredicate.eq, a[0], b[0])
            swaps = arith.select(equal, below(b[1], a[1]), swaps)
        if run < self._own.slots:
            turn = arith.remui(arith.divui(low, as_value(run)), as_value(2))
            swaps = arith.xori(swaps, arith.cmpi(arith.CmpIPredicate.ne, turn, as_value(0)))
        with when(swaps):
            for values, end in zip((b, a), ends, strict=True):
                self._store(values, end)


def _lower(op: ir.Operation, size: int, order: Order, kernels: Kernels) -> None:
    own, source = _Block.of(size), op.operands[0]
    rank = ir.MemRefType(source.type).rank

    def lines(see: See) -> list[Size]:
        return [extent(see(source), d) for d in range(rank - 1)]

    kernel = Kernel(kernels, op, "sort", own.threads)
    with kernel.body():
        words = _Words(kernel, own, order)
        buffers, outer = [kernel.inside(value) for value in op.operands], lines(kernel.inside)
        first = arith.muli(gpu.block_id(gpu.Dimension.x), as_value(own.rows))
        last = arith.subi(as_value(product(outer)), as_value(1))

        def at(row: ir.Value, place: ir.Value) -> list[ir.Value]:
            line = arith.minui(arith.addi(first, row), last)
            return [*(delinearize(line, outer) if outer else []), place]

        for point in own.shares(own.rows * own.slots):
            row, slot = delinearize(point, [own.rows, own.slots])
            key = memref.load(buffers[0], at(row, arith.minui(slot, as_value(size - 1))))
            words.begin(key, [row, slot])
        gpu.barrier()
        for run, distance in _steps(own.slots):
            for pair in own.shares(own.rows * own.slots // 2):
                words.exchange(pair, run, distance)
            gpu.barrier()
        found = []
        for point in own.shares(own.rows * size):
            row, slot = delinearize(point, [own.rows, size])
            row = arith.minui(row, as_value(own.rows - 1))
            place = words.place([row, slot])
            found.append((point, row, slot, [memref.load(buffer, at(row, place)) for buffer in buffers]))
        gpu.barrier()  # all have read what is now written over
        for point, row, slot, values in found:
            line = arith.addi(first, row)
            with only_if(point, own.rows * size), only_if(line, product(outer)):
                for value, buffer in zip(values, buffers, strict=True):
                    memref.store(value, buffer, at(row, slot))
    kernel.launch(lambda: ceildiv(product(lines(on_host)), own.rows))


def _steps(slots: int) -> Iterator[tuple[int, int]]:
    """The network's steps: runs of so many elements become sorted, by exchanges at such a distance."""
    run = 2
    while run <= slots:
        distance = run // 2
        while distance:
            yield run, distance
            distance //= 2
        run *= 2
