"""kitsune.order -> five or six kernels: a counting sort of rows by their keys.

    count    starts[key] = 0; records[place] = 0, where there are any
    rank     ranks[row] = starts[key]++, atomically; a thread has RUN rows, and equal neighbours are one addition
    sum      sums[warp] = the sum of the warp's part of starts
    start    starts[key] = the sum of all before it, first over the sums of other warps' parts
    place    rows[starts[key] + ranks[row]] = row, and places[row] that place

No kernel reads what another thread of it writes, and no thread waits for another; rows of one key stand in the order in
which their threads came. A key that is none is the one behind the last, so that every row has a place in any case.

What takes the time are accesses to anywhere, which an SM makes one by one: an addition (PTX ISA, atom), a load and a
store for a row. So vectors that the sort carries take the same store: then place writes 16 bytes for a row, its number,
its key and what is carried, and another kernel, whose accesses are all in order, gives each its own vector:

    unpack   rows[place], keys[place], carried[place] = records[place]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, func, gpu, ir, memref, scf, vector, walk

from .gpu_kernel import THREADS, WARP, Kernel, Kernels, Size, as_value, ceildiv, extent, linear_id, only_if, product

CALL = "kitsune_order"  # what a kitsune.order is a call of while tensors become buffers
RUN = 8  # neighbouring rows of a thread
WORD = 4  # numbers of 32 bits that a thread stores at once
LEAST_PART = 8  # counts of a thread, in the kernels that sum them
WARPS = 1024  # that sum counts: each adds up the sums of all before it
_PARTS = (1, 2, 4, 8, 16)  # lane distances


def outline_orders(module: ir.Module, main: func.FuncOp) -> None:
    """Makes calls of kitsune.orders, which bufferization takes for calls of code from elsewhere. Behind the keys and
    their count a call is given the vectors that are no keys; keys in order are its last result."""
    for position, op in enumerate(walk(main, "kitsune.order")):
        keys, count, *carried = op.operands
        others = [number for number, vector in enumerate(carried) if vector != keys]
        given = [keys, count, *(carried[number] for number in others)]
        with op.context, op.location:
            results = [op.results[0].type, op.results[1].type] + [keys.type] * (
                len(others) + (len(others) < len(carried))
            )
            name = f"{CALL}{position}"
            with ir.InsertionPoint.at_block_begin(module.body):
                kind = ir.FunctionType.get([value.type for value in given], results)
                func.FuncOp(name, kind, visibility="private")
            with ir.InsertionPoint(op):
                call = func.CallOp(results, name, given)
        moved = {number: call.results[2 + i] for i, number in enumerate(others)}
        made = [*call.results[:2], *(moved.get(i, call.results[len(results) - 1]) for i in range(len(carried)))]
        for old, new in zip(op.results, made, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


def lower_orders(main: func.FuncOp, kernels: Kernels) -> None:
    """Puts the kernels' launches in the place of such calls."""
    for op in walk(main, "func.call"):
        if ir.FlatSymbolRefAttr(op.attributes["callee"]).value.startswith(CALL):
            _lower(op, kernels)


def _lower(op: ir.Operation, kernels: Kernels) -> None:
    keys, count, *others = op.operands
    with op.context, op.location, ir.InsertionPoint(op):
        i32, size = ir.IntegerType.get_signless(32), extent(keys, 0)
        dynamic = [] if isinstance(size, int) else [size]
        made = [memref.alloc(result.type, dynamic, []) for result in op.results]
        ranks = _alloc(product([ceildiv(size, RUN), RUN]))
        buckets = arith.addi(count, as_value(1))
        starts = memref.alloc(ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], i32), [buckets], [])
        sums = _alloc(WARPS)
        records = _alloc(product([size, WORD])) if made[2:] else None
    sort = _Sort(keys, starts, ranks, made[0], made[1] if list(op.results[1].uses) else None, others, records)

    def kernel(label: str, items: Callable[[], ir.Value | int], body: Callable[[Kernel, ir.Value], None]) -> None:
        """A kernel with a thread for each of so many items; `body` takes the thread's number."""
        made = Kernel(kernels, op, f"order_{label}")
        with made.body():
            body(made, linear_id(THREADS))
        with op.context, op.location, ir.InsertionPoint(op):
            blocks = ceildiv(items(), THREADS)
        made.launch(blocks)

    if records is None:
        kernel("count", lambda: buckets, lambda inside, thread: _clear(inside, thread, starts))
    else:
        kernel(
            "count",
            lambda: arith.maxui(buckets, as_value(size)),
            lambda inside, thread: _clear_all(inside, thread, starts, records),
        )
    kernel("rank", lambda: ceildiv(size, RUN), lambda inside, thread: _rank(inside, thread, keys, starts, ranks))
    kernel("sum", lambda: WARPS * WARP, lambda inside, thread: sum_parts(inside, thread, starts, sums))
    kernel("start", lambda: WARPS * WARP, lambda inside, thread: start(inside, thread, starts, sums))
    kernel("place", lambda: size, sort.place)
    if records is not None:
        kernel("unpack", lambda: size, lambda inside, thread: sort.unpack(inside, thread, made[2:]))
    for old, new in zip(op.results, made):
        old.replace_all_uses_with(new)
    op.erase()


def _alloc(count: Size) -> ir.Value:
    """A buffer of so many numbers of 32 bits."""
    is_open = not isinstance(count, int)
    kind = ir.MemRefType.get([ir.ShapedType.get_dynamic_size() if is_open else count], ir.IntegerType.get_signless(32))
    return memref.alloc(kind, [count] if is_open else [], [])


def _clear(kernel: Kernel, thread: ir.Value, starts: ir.Value) -> None:
    starts = kernel.inside(starts)
    with only_if(thread, extent(starts, 0)):
        memref.store(_number(0), starts, [thread])


def _clear_all(kernel: Kernel, thread: ir.Value, starts: ir.Value, records: ir.Value) -> None:
    """The records, too: their lines are in L2 then, which takes parts of them without a look at DRAM."""
    _clear(kernel, thread, starts)
    records = kernel.inside(records)
    with only_if(arith.muli(thread, as_value(WORD)), extent(records, 0)):
        _store_word([_number(0)] * WORD, records, arith.muli(thread, as_value(WORD)))


def _rank(kernel: Kernel, thread: ir.Value, keys: ir.Value, starts: ir.Value, ranks: ir.Value) -> None:
    """A run of rows of one key is counted where it ends; each row's place in it is told backwards from there. All
    additions are on their way before the first is waited for. Behind the last row there is room for a whole run."""
    keys, starts, ranks = (kernel.inside(buffer) for buffer in (keys, starts, ranks))
    size = as_value(extent(keys, 0))
    first = arith.muli(thread, as_value(RUN))
    with only_if(first, size):
        rows = [arith.addi(first, as_value(number)) for number in range(RUN)]
        there = [arith.cmpi(arith.CmpIPredicate.ult, row, size) for row in rows]
        last = arith.subi(size, as_value(1))
        buckets = [_bucket(keys, arith.minui(row, last), starts) for row in rows]
        inner, ends = [_number(0)], []
        for number in range(1, RUN):
            same = arith.cmpi(arith.CmpIPredicate.eq, buckets[number - 1], buckets[number])
            same = arith.andi(same, there[number])
            ends.append(arith.xori(same, arith.constant(same.type, 1)))
            inner.append(arith.select(same, arith.addi(inner[-1], _number(1)), _number(0)))
        ends = [arith.andi(*both) for both in zip([*ends, there[-1]], there)]
        counted = [_added(starts, bucket, arith.addi(n, _number(1)), is_end)
                   for bucket, n, is_end in zip(buckets, inner, ends)]  # fmt: skip
        found, before = [], counted[-1]
        for number in reversed(range(RUN)):
            before = arith.select(ends[number], counted[number], before)
            found.append(arith.addi(before, inner[number]))
        found.reverse()
        for number in range(0, RUN, WORD):
            _store_word(found[number : number + WORD], ranks, rows[number])


def _added(starts: ir.Value, bucket: ir.Value, more: ir.Value, is_end: ir.Value) -> ir.Value:
    """A bucket's count before so many are added to it; 0 where none are."""
    branch = scf.IfOp(is_end, [more.type], has_else=True)
    with ir.InsertionPoint(branch.then_block):
        scf.yield_([memref.atomic_rmw(arith.AtomicRMWKind.addi, more, starts, [bucket])])
    with ir.InsertionPoint(branch.else_block):
        scf.yield_([_number(0)])
    return branch.results[0]


def sum_parts(kernel: Kernel, thread: ir.Value, starts: ir.Value, sums: ir.Value) -> None:
    """Of WARPS warps, each the sum of its part of the counts."""
    starts, sums = kernel.inside(starts), kernel.inside(sums)
    begin, end = _part(thread, starts)
    loop = scf.ForOp(begin, end, as_value(1), [_number(0)])
    with ir.InsertionPoint(loop.body):
        (total,) = loop.inner_iter_args
        scf.yield_([arith.addi(total, memref.load(starts, [loop.induction_variable]))])
    total = _over_warp(loop.results[0])
    with only_if(arith.remui(thread, as_value(WARP)), 1):
        memref.store(total, sums, [arith.divui(thread, as_value(WARP))])


def start(kernel: Kernel, thread: ir.Value, starts: ir.Value, sums: ir.Value) -> None:
    """Counts become the sums of all before them; `sums` are those of `sum_parts`."""
    starts, sums = kernel.inside(starts), kernel.inside(sums)
    begin, end = _part(thread, starts)
    lane, warp = arith.remui(thread, as_value(WARP)), arith.divui(thread, as_value(WARP))
    others = scf.ForOp(lane, warp, as_value(WARP), [_number(0)])
    with ir.InsertionPoint(others.body):
        (total,) = others.inner_iter_args
        scf.yield_([arith.addi(total, memref.load(sums, [others.induction_variable]))])
    own = scf.ForOp(begin, end, as_value(1), [_number(0)])
    with ir.InsertionPoint(own.body):
        (total,) = own.inner_iter_args
        scf.yield_([arith.addi(total, memref.load(starts, [own.induction_variable]))])
    before = arith.addi(_over_warp(others.results[0]), _before_lane(own.results[0], lane))
    places = scf.ForOp(begin, end, as_value(1), [before])
    with ir.InsertionPoint(places.body):
        (start,) = places.inner_iter_args
        count = memref.load(starts, [places.induction_variable])
        memref.store(start, starts, [places.induction_variable])
        scf.yield_([arith.addi(start, count)])


@dataclass(frozen=True)
class _Sort:
    """What the last kernels of a sort read and write; `places` where anybody wants them, `records` where vectors are
    carried."""

    keys: ir.Value
    starts: ir.Value
    ranks: ir.Value
    rows: ir.Value
    places: ir.Value | None
    others: list[ir.Value]  # that are carried
    records: ir.Value | None

    def place(self, kernel: Kernel, row: ir.Value) -> None:
        """Writes what is known of a row to its place, in as many bytes as other rows."""
        keys, starts, ranks = (kernel.inside(buffer) for buffer in (self.keys, self.starts, self.ranks))
        with only_if(row, extent(keys, 0)):
            bucket = _bucket(keys, row, starts)
            place = arith.addi(memref.load(starts, [bucket]), memref.load(ranks, [row]))
            if self.places is not None:
                memref.store(place, kernel.inside(self.places), [row])
            own, at = arith.index_cast(place.type, row), arith.index_castui(ir.IndexType.get(), place)
            if self.records is None:
                memref.store(own, kernel.inside(self.rows), [at])
                return
            words = [own, arith.index_cast(place.type, bucket)]
            for vector in self.others:
                words += _halves(memref.load(kernel.inside(vector), [row]))
            words += [_number(0)] * (WORD - len(words))
            _store_word(words, kernel.inside(self.records), arith.muli(at, as_value(WORD)))

    def unpack(self, kernel: Kernel, place: ir.Value, moved: Sequence[ir.Value]) -> None:
        """Writes what a place's record holds to the vectors, the keys last. A key that is none is read again."""
        keys, starts, records, rows = (
            kernel.inside(buffer) for buffer in (self.keys, self.starts, self.records, self.rows)
        )
        with only_if(place, extent(rows, 0)):
            kind = ir.VectorType.get([WORD], ir.IntegerType.get_signless(32))
            record = vector.load(kind, records, [arith.muli(place, as_value(WORD))], alignment=4 * WORD)
            row, bucket, *rest = (vector.extract(record, [], [i]) for i in range(WORD))
            memref.store(row, rows, [place])
            element = ir.MemRefType(keys.type).element_type
            for into in moved[: len(self.others)]:
                found = rest.pop(0)
                if element != found.type:
                    high = arith.shli(arith.extui(element, rest.pop(0)), arith.constant(element, 32))
                    found = arith.ori(arith.extui(element, found), high)
                memref.store(found, kernel.inside(into), [place])
            for into in moved[len(self.others) :]:
                last = arith.index_cast(bucket.type, arith.subi(as_value(extent(starts, 0)), as_value(1)))
                is_none = arith.cmpi(arith.CmpIPredicate.eq, bucket, last)
                branch = scf.IfOp(is_none, [element], has_else=True)
                with ir.InsertionPoint(branch.then_block):
                    scf.yield_([memref.load(keys, [arith.index_castui(ir.IndexType.get(), row)])])
                with ir.InsertionPoint(branch.else_block):
                    scf.yield_([bucket if element == bucket.type else arith.extui(element, bucket)])
                memref.store(branch.results[0], kernel.inside(into), [place])


def _halves(number: ir.Value) -> list[ir.Value]:
    """A number as numbers of 32 bits, the low half first."""
    i32 = ir.IntegerType.get_signless(32)
    if number.type == i32:
        return [number]
    return [arith.trunci(i32, number), arith.trunci(i32, arith.shrui(number, arith.constant(number.type, 32)))]


def _store_word(numbers: Sequence[ir.Value], buffer: ir.Value, at: ir.Value) -> None:
    """Stores WORD numbers of 32 bits from an element on whose number is a multiple of that."""
    word = vector.from_elements(ir.VectorType.get([WORD], numbers[0].type), list(numbers))
    vector.store(word, buffer, [at], alignment=4 * WORD)


def _bucket(keys: ir.Value, row: ir.Value, starts: ir.Value) -> ir.Value:
    """A row's key, or the bucket behind the keys where it is none."""
    i64 = ir.IntegerType.get_signless(64)
    key, last = memref.load(keys, [row]), arith.subi(as_value(extent(starts, 0)), as_value(1))
    key = key if key.type == i64 else arith.extsi(i64, key)
    return arith.index_castui(ir.IndexType.get(), arith.minui(key, arith.index_castui(i64, last)))


def _part(thread: ir.Value, starts: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The counts that a thread sums: equally many, one thread's after another's."""
    size = as_value(extent(starts, 0))
    each = arith.maxui(arith.ceildivui(size, as_value(WARPS * WARP)), as_value(LEAST_PART))
    begin = arith.minui(arith.muli(thread, each), size)
    return begin, arith.minui(arith.addi(begin, each), size)


def _over_warp(x: ir.Value) -> ir.Value:
    """The sum over a warp's lanes, in each."""
    for distance in _PARTS:
        x = arith.addi(x, _from_lane(x, distance))
    return x


def _before_lane(x: ir.Value, lane: ir.Value) -> ir.Value:
    """The sum over the lanes before this one, from sums of ever more neighbours."""
    before, whole = _number(0), x
    for distance in _PARTS:
        other = _from_lane(whole, distance)
        is_later = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(lane, as_value(distance)), as_value(0))
        before = arith.select(is_later, arith.addi(before, other), before)
        whole = arith.addi(whole, other)
    return before


def _from_lane(x: ir.Value, distance: int) -> ir.Value:
    mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
    return gpu.ShuffleOp(x, _number(distance), _number(WARP), mode).results[0]


def _number(x: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(32), x)
