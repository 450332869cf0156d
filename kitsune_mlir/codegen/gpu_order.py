"""kitsune.order -> five kernels: a counting sort of rows by their keys.

    count    starts[key] = 0
    rank     ranks[row] = starts[key]++, atomically; a thread has RUN rows, and equal neighbours are one addition
    sum      sums[warp] = the sum of the warp's part of starts
    start    starts[key] = the sum of all before it, first over the sums of other warps' parts
    place    rows[starts[key] + ranks[row]] = row, and places[row] that place

No kernel reads what another thread of it writes, and no thread waits for another; rows of one key stand in the order in
which their threads came. A key that is none is the one behind the last, so that every row has a place in any case.
The sort moves 40 bytes a row with 64-bit keys, and two of the accesses of a row are to anywhere (PTX ISA, atom).
"""

from __future__ import annotations

from collections.abc import Callable

from kitsune_mlir.mlir import arith, func, gpu, ir, memref, scf, walk

from .gpu_kernel import THREADS, WARP, Kernel, Kernels, as_value, ceildiv, extent, linear_id, only_if

CALL = "kitsune_order"  # what a kitsune.order is a call of while tensors become buffers
RUN = 16  # neighbouring rows of a thread
LEAST_PART = 8  # counts of a thread, in the kernels that sum them
WARPS = 1024  # that sum counts: each adds up the sums of all before it
_PARTS = (1, 2, 4, 8, 16)  # lane distances


def outline_orders(module: ir.Module, main: func.FuncOp) -> None:
    """Makes calls of kitsune.orders, which bufferization takes for calls of code from elsewhere."""
    for number, op in enumerate(walk(main, "kitsune.order")):
        keys, _ = op.operands
        with op.context, op.location:
            kinds = [keys.type, ir.IndexType.get()], [result.type for result in op.results]
            name = f"{CALL}{number}"
            with ir.InsertionPoint.at_block_begin(module.body):
                func.FuncOp(name, ir.FunctionType.get(*kinds), visibility="private")
            with ir.InsertionPoint(op):
                call = func.CallOp(kinds[1], name, list(op.operands))
        for old, new in zip(op.results, call.results):
            old.replace_all_uses_with(new)
        op.erase()


def lower_orders(main: func.FuncOp, kernels: Kernels) -> None:
    """Puts the kernels' launches in the place of such calls."""
    for op in walk(main, "func.call"):
        if ir.FlatSymbolRefAttr(op.attributes["callee"]).value.startswith(CALL):
            _lower(op, kernels)


def _lower(op: ir.Operation, kernels: Kernels) -> None:
    keys, count = op.operands
    with op.context, op.location, ir.InsertionPoint(op):
        i32, size = ir.IntegerType.get_signless(32), extent(keys, 0)
        dynamic = [] if isinstance(size, int) else [size]
        rows, places, ranks = (memref.alloc(result.type, dynamic, []) for result in (*op.results, op.results[0]))
        buckets = arith.addi(count, as_value(1))
        starts = memref.alloc(ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], i32), [buckets], [])
        sums = memref.alloc(ir.MemRefType.get([WARPS], i32), [], [])

    def kernel(label: str, items: Callable[[], ir.Value | int], body: Callable[[Kernel, ir.Value], None]) -> None:
        """A kernel with a thread for each of so many items; `body` takes the thread's number."""
        made = Kernel(kernels, op, f"order_{label}")
        with made.body():
            body(made, linear_id(THREADS))
        with op.context, op.location, ir.InsertionPoint(op):
            blocks = ceildiv(items(), THREADS)
        made.launch(blocks)

    kernel("count", lambda: buckets, lambda inside, thread: _clear(inside, thread, starts))
    kernel("rank", lambda: ceildiv(size, RUN), lambda inside, thread: _rank(inside, thread, keys, starts, ranks))
    kernel("sum", lambda: WARPS * WARP, lambda inside, thread: sum_parts(inside, thread, starts, sums))
    kernel("start", lambda: WARPS * WARP, lambda inside, thread: start(inside, thread, starts, sums))
    kernel("place", lambda: size, lambda inside, thread: _place(inside, thread, keys, starts, ranks, rows, places))
    for old, new in zip(op.results, (rows, places)):
        old.replace_all_uses_with(new)
    op.erase()


def _clear(kernel: Kernel, thread: ir.Value, starts: ir.Value) -> None:
    starts = kernel.inside(starts)
    with only_if(thread, extent(starts, 0)):
        memref.store(_number(0), starts, [thread])


def _rank(kernel: Kernel, thread: ir.Value, keys: ir.Value, starts: ir.Value, ranks: ir.Value) -> None:
    """A run of rows of one key is counted where it ends; each row's place in it is told backwards from there."""
    keys, starts, ranks = (kernel.inside(buffer) for buffer in (keys, starts, ranks))
    size = as_value(extent(keys, 0))
    first = arith.muli(thread, as_value(RUN))
    with only_if(first, size):
        rows = [arith.addi(first, as_value(number)) for number in range(RUN)]
        there = [arith.cmpi(arith.CmpIPredicate.ult, row, size) for row in rows]
        last = arith.subi(size, as_value(1))
        buckets = [_bucket(keys, arith.minui(row, last), starts) for row in rows]
        inner, before = [_number(0)], None
        ends = []
        for number in range(1, RUN):
            same = arith.cmpi(arith.CmpIPredicate.eq, buckets[number - 1], buckets[number])
            same = arith.andi(same, there[number])
            ends.append(arith.xori(same, arith.constant(same.type, 1)))
            inner.append(arith.select(same, arith.addi(inner[-1], _number(1)), _number(0)))
        ends.append(arith.constant(there[0].type, 1))
        for number in reversed(range(RUN)):
            counts = arith.andi(ends[number], there[number])
            branch = scf.IfOp(counts, [inner[number].type], has_else=True)
            with ir.InsertionPoint(branch.then_block):
                added = arith.addi(inner[number], _number(1))
                scf.yield_([memref.atomic_rmw(arith.AtomicRMWKind.addi, added, starts, [buckets[number]])])
            with ir.InsertionPoint(branch.else_block):
                scf.yield_([_number(0) if before is None else before])
            before = branch.results[0]
            with only_if(rows[number], size):
                memref.store(arith.addi(before, inner[number]), ranks, [rows[number]])


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


def _place(
    kernel: Kernel,
    row: ir.Value,
    keys: ir.Value,
    starts: ir.Value,
    ranks: ir.Value,
    rows: ir.Value,
    places: ir.Value,
) -> None:
    keys, starts, ranks, rows, places = (kernel.inside(buffer) for buffer in (keys, starts, ranks, rows, places))
    with only_if(row, extent(keys, 0)):
        start = memref.load(starts, [_bucket(keys, row, starts)])
        place = arith.addi(start, memref.load(ranks, [row]))
        memref.store(place, places, [row])
        memref.store(arith.index_cast(place.type, row), rows, [arith.index_castui(ir.IndexType.get(), place)])


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
