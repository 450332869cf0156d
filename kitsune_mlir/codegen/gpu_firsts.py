"""The first elements of rows, found by warps that go through them once.

    %v, %p = call @kitsune_firsts0(%x)

A warp has the first elements that it has found so far in registers, in their order, R of a lane: whole numbers in the
order of the keys, with where these stand behind them. A key that stands before the last of these is put into shared
memory, with others of the warp that do; where these are as many as lanes, they are sorted, by a bitonic network between
lanes (Batcher 1968), and merged with those in registers. Of numbers in no order ever fewer are: a row of n has about
k log (n / k) of them. The warps that have a row together merge what they found in the end, two by two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log, prod

from kitsune_mlir import example_sizes
from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import arith, func, gpu, ir, math, memref, nvvm, scf

from .firsts import Firsts, firsts
from .gpu_around import Around, Operators
from .gpu_kernel import (
    WARP,
    Kernel,
    Kernels,
    See,
    Size,
    as_value,
    ceildiv,
    delinearize,
    in_block,
    on_host,
    power_of_two,
    product,
    shuffled,
)
from .gpu_points import body_at
from .gpu_sort import Order
from .gpu_tile_order import meet
from .kernel_work import SHARE_HINT
from .pipeline.device import below, i32, index, narrow, when
from .pipeline.device import value as number_of

EACH = 4  # elements of a row that a lane has in a turn
LEAST = 512  # elements of a row for each warp that has it
MOST_WARPS = 16
BLOCK = 4  # warps of a block, if not more have a row
FEW = 1024  # rows that leave most of a GPU idle with a warp each
MOST = 96  # operations of what is computed in front of a kernel
_LISTED = 2 * WARP  # numbers in shared memory beside those of a turn
_NONE = -1  # behind all numbers


def lower_firsts(module: ir.Module, main: func.FuncOp, kernels: Kernels) -> None:
    """Puts kernels' launches in the place of the calls."""
    found = [one for one in firsts(module) if one.call.block == main.body.blocks[0]]
    taken = set[ir.Operation]()
    around = [Around.of(one.call, [one.keys], MOST, taken, behind=False) for one in found]
    for one, own in zip(found, around, strict=True):
        _lower(one, own.read([one.keys]), kernels)


def _lower(of: Firsts, around: Operators, kernels: Kernels) -> None:
    op, kind = of.call, ir.MemRefType(of.keys.type)

    def outer(see: See) -> list[Size]:
        return [around.size(of.keys, d, see) for d in range(kind.rank - 1)]

    with op.context, op.location, ir.InsertionPoint(op):
        open_ = [d for d in range(kind.rank - 1) if kind.is_dynamic_dim(d)]
        sizes = [around.size(of.keys, d, on_host) for d in open_]
        results = [memref.alloc(result.type, sizes, []) for result in op.results]
    warps = _warps(kind, example_sizes.shape_of(op.operands[0]))
    rows = max(1, BLOCK // warps)
    kernel = Kernel(kernels, op, "firsts", rows * warps * WARP)
    with kernel.body():
        size = around.size(of.keys, kind.rank - 1, kernel.inside)
        _Code(kernel, of, around, results, outer(kernel.inside), size, warps, rows).build()
    kernel.launch(lambda: ceildiv(product(outer(on_host)), rows))
    around.erase()
    of.replace(*results)


def _warps(kind: ir.MemRefType, example: Sequence[int]) -> int:
    """That have a row together: more where rows are long, or few in the example."""
    *outer, size = example
    if kind.is_dynamic_dim(kind.rank - 1):
        return BLOCK
    wanted = ceil(size / LEAST) if prod(outer) < FEW else ceil(size / (8 * LEAST))
    return min(MOST_WARPS, power_of_two(max(1, wanted)))


@dataclass
class _Code:
    """A kernel's code: `warps` have each of its `rows` rows, which have `size` elements."""

    kernel: Kernel
    of: Firsts
    around: Operators
    results: Sequence[ir.Value]
    outer: list[Size]
    size: Size
    warps: int
    rows: int

    def __post_init__(self) -> None:
        self.word = ir.IntegerType.get_signless(64)
        element = ir.MemRefType(self.of.keys.type).element_type
        self.widened = ir.F32Type.get() if isinstance(element, ir.FloatType) else element
        self.order = Order(self.widened, self.of.descending)
        self.registers = ceil(self.of.count / WARP)
        in_block_, lane = in_block(gpu.thread_id(gpu.Dimension.x))
        self.lane, self.warp = narrow(lane), in_block_
        self.own = arith.remui(self.warp, as_value(self.warps))  # of those that have its row
        row = arith.divui(self.warp, as_value(self.warps))
        first = arith.muli(gpu.block_id(gpu.Dimension.x), as_value(self.rows))
        line, last = arith.addi(first, row), arith.subi(as_value(product(self.outer)), as_value(1))
        self.is_there = below(line, as_value(product(self.outer)))
        self.place = delinearize(arith.minui(line, last), self.outer) if self.outer else []
        self.waiting = self.kernel.shared([self.rows * self.warps, _LISTED + EACH * WARP], self.word)

    def build(self) -> None:
        """Builds the loop over a row, and what is behind it."""
        none = arith.constant(self.word, _NONE)
        step = self.warps * EACH * WARP
        first = arith.muli(self.own, as_value(EACH * WARP))
        loop = scf.ForOp(first, as_value(self.size), as_value(step), [*[none] * self.registers, none, number_of(0)])
        with ir.InsertionPoint(loop.body):
            *found, most, count = loop.inner_iter_args
            scf.yield_(self._turn(loop.induction_variable, found, most, count))
        *found, _, count = loop.results
        rest = arith.select(below(self.lane, count), self._waiting(index(self.lane)), none)
        found = self._merged(found, self._sorted(rest))
        if self.warps > 1:
            found = self._across(found)
        with when(arith.andi(self.is_there, _is(self.own, 0))):
            self._write(found)

    def _turn(self, first: ir.Value, found: list[ir.Value], most: ir.Value, count: ir.Value) -> list[ir.Value]:
        """EACH elements of a lane from there on: those that stand before the last of the first ones wait, and as many
        as there are lanes are merged, as often as there are."""
        lane, none = index(self.lane), arith.constant(self.word, _NONE)
        places = [arith.addi(first, arith.addi(lane, as_value(e * WARP))) for e in range(EACH)]
        end = arith.subi(as_value(self.size), as_value(1))
        keys = [self._key(arith.minui(place, end)) for place in places]  # on their way together
        lower = arith.subi(arith.shli(number_of(1), self.lane), number_of(1))
        for place, key in zip(places, keys, strict=True):
            high = arith.shli(arith.extui(self.word, self.order.number(key)), arith.constant(self.word, WARP))
            number = arith.ori(high, arith.extui(self.word, narrow(place)))
            number = arith.select(below(place, as_value(self.size)), number, none)
            takes = below(number, most)
            votes = nvvm.vote_sync(number_of(-1), takes, nvvm.VoteSyncKind.ballot)
            with when(takes) as branch:
                branch.attributes[SHARE_HINT] = _percent(self._taken())
                slot = arith.addi(count, math.ctpop(arith.andi(votes, lower)))
                memref.store(number, self.waiting, [self.warp, index(slot)])
            count = arith.addi(count, math.ctpop(votes))
        meet()
        full = arith.cmpi(arith.CmpIPredicate.uge, count, number_of(WARP))
        branch = scf.IfOp(full, [self.word] * (self.registers + 1) + [i32()], has_else=True)
        branch.operation.attributes[SHARE_HINT] = _percent(min(1.0, EACH * self._taken()))
        with ir.InsertionPoint(branch.then_block):
            scf.YieldOp(self._merge_waiting(found, count))
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp([*found, most, count])
        return list(branch.results)

    def _taken(self) -> float:
        """The part of a warp's elements that stand before those found so far, of numbers in no order."""
        own = (self.size if isinstance(self.size, int) else 1 << 14) / self.warps
        kept = self.registers * WARP
        return min(1.0, kept / own * (1 + log(max(1.0, own / kept))))

    def _merge_waiting(self, found: list[ir.Value], count: ir.Value) -> list[ir.Value]:
        """What is found, its last number, and how many still wait, when the last of those that wait are merged, as many
        at a time as there are lanes."""
        times = arith.divui(count, number_of(WARP))
        loop = scf.ForOp(as_value(0), index(times), as_value(1), [*found, count])
        with ir.InsertionPoint(loop.body):
            *own, left = loop.inner_iter_args
            left = arith.subi(left, number_of(WARP))
            batch = self._waiting(index(arith.addi(left, self.lane)))
            scf.yield_([*self._merged(own, self._sorted(batch)), left])
        meet()  # all have read what is now written over
        *found, left = loop.results
        return [*found, _handed(found[-1], WARP - 1), left]

    def _key(self, place: ir.Value) -> ir.Value:
        at, own = [*self.place, place], self.around.before[0]
        if own is None:
            key = memref.load(self.kernel.inside(self.of.keys), at)
        else:
            generic, number = own
            key = body_at(generic, self.kernel, dict(enumerate(at)), [None] * len(generic.outputs))[number]
        return extended(key, self.widened)

    def _waiting(self, slot: ir.Value) -> ir.Value:
        return memref.load(self.waiting, [self.warp, slot])

    def _sorted(self, x: ir.Value) -> ir.Value:
        """A number of each lane, the last one first."""
        run = 2
        while run <= WARP:
            distance = run // 2
            while distance:
                x = self._exchanged(x, distance, _bit(self.lane, run % WARP) if run < WARP else None, ascends=False)
                distance //= 2
            run *= 2
        return x

    def _ordered(self, x: ir.Value) -> ir.Value:
        """Numbers that ascend, and then descend, or the other way round, in their order."""
        distance = WARP // 2
        while distance:
            x = self._exchanged(x, distance, None, ascends=True)
            distance //= 2
        return x

    def _exchanged(self, x: ir.Value, distance: int, turned: ir.Value | None, ascends: bool) -> ir.Value:
        """The lesser of two lanes' numbers in the first of them, or in the other one, in runs that are `turned` (i1) or
        where they do not ascend."""
        other = _handed_by(x, lambda word: shuffled(word, number_of(distance), gpu.ShuffleMode.XOR))
        takes_least = _bit(self.lane, distance) if not ascends else _not(_bit(self.lane, distance))
        if turned is not None:
            takes_least = arith.xori(takes_least, turned)
        is_less = below(x, other)
        return arith.select(_same(takes_least, is_less), x, other)

    def _merged(self, found: Sequence[ir.Value], batch: ir.Value) -> list[ir.Value]:
        """The first of the numbers found and of others, which stand the last one first; as many as there were."""
        kept = list(found)
        kept[-1] = self._ordered(arith.minui(kept[-1], batch))
        for i in reversed(range(len(kept) - 1)):
            other = _handed_by(kept[i + 1], lambda word: shuffled(word, number_of(WARP - 1), gpu.ShuffleMode.XOR))
            low, high = arith.minui(kept[i], other), arith.maxui(kept[i], other)
            kept[i], kept[i + 1] = self._ordered(low), self._ordered(high)
        return kept

    def _across(self, found: list[ir.Value]) -> list[ir.Value]:
        """The same of all warps that have the row, in the first of these."""
        lists = self.kernel.shared([self.rows * self.warps, self.registers, WARP], self.word)
        step = self.warps // 2
        while step:
            gpu.barrier()
            for i, value in enumerate(found):
                memref.store(value, lists, [self.warp, as_value(i), index(self.lane)])
            gpu.barrier()
            takes = below(self.own, as_value(step))
            branch = scf.IfOp(takes, [self.word] * len(found), has_else=True)
            with ir.InsertionPoint(branch.then_block):
                loop = scf.ForOp(as_value(0), as_value(self.registers), as_value(1), found)
                with ir.InsertionPoint(loop.body):
                    back = index(arith.subi(number_of(WARP - 1), self.lane))
                    there = arith.addi(self.warp, as_value(step))
                    batch = memref.load(lists, [there, loop.induction_variable, back])
                    scf.yield_(self._merged(list(loop.inner_iter_args), batch))
                scf.YieldOp(list(loop.results))
            with ir.InsertionPoint(branch.else_block):
                scf.YieldOp(found)
            found = list(branch.results)
            step //= 2
        return found

    def _write(self, found: Sequence[ir.Value]) -> None:
        values, places = map(self.kernel.inside, self.results)
        for i, number in enumerate(found):
            slot = arith.addi(index(self.lane), as_value(i * WARP))
            with when(below(slot, as_value(self.of.count))):
                place = arith.andi(number, arith.constant(self.word, (1 << WARP) - 1))
                key = self._stored(arith.index_castui(ir.IndexType.get(), place))
                memref.store(key, values, [*self.place, slot])
                memref.store(place, places, [*self.place, slot])

    def _stored(self, place: ir.Value) -> ir.Value:
        """The element at a place, of its own type; the last one where a row has fewer than are wanted."""
        last = arith.subi(as_value(self.size), as_value(1))
        key, kind = self._key(arith.minui(place, last)), ir.MemRefType(self.of.keys.type).element_type
        return key if key.type == kind else arith.truncf(kind, key)


def _handed_by(number: ir.Value, hand: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """A number of 64 bits of another lane, by words of 32."""
    kind = number.type
    width = arith.constant(kind, WARP)
    low = hand(arith.trunci(i32(), number))
    high = hand(arith.trunci(i32(), arith.shrui(number, width)))
    return arith.ori(arith.extui(kind, low), arith.shli(arith.extui(kind, high), width))


def _handed(number: ir.Value, lane: int) -> ir.Value:
    """That of a lane."""
    return _handed_by(number, lambda word: shuffled(word, number_of(lane), gpu.ShuffleMode.IDX))


def _bit(number: ir.Value, bit: int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.ne, arith.andi(number, number_of(bit)), number_of(0))


def _is(number: ir.Value, other: int) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, number, as_value(other))


def _not(truth: ir.Value) -> ir.Value:
    return arith.xori(truth, arith.constant(truth.type, -1))


def _same(a: ir.Value, b: ir.Value) -> ir.Value:
    return _not(arith.xori(a, b))


def _percent(share: float) -> ir.IntegerAttr:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), max(1, round(100 * share)))
