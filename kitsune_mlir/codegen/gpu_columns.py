"""Reductions across the memory of their inputs, as sums over rows: a warp has neighbouring results, its lanes one or a
word each, the warps of a block share the reduced loop, and join what they found in shared memory. Where the results
give too few blocks, the loop is cut into parts that blocks take, and a second kernel of the same kind joins these.

    thread (warp w, lane c):   for row in w, w + W, ...:  sum[0 .. n] += x[row, (32 block + c) n .. + n]
                               shared[w][c n ..] = sum;  barrier;  the first warps add up shared[0 .. W][c]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kitsune_mlir.mlir import arith, gpu, ir, memref, scf

from .gpu_generic import Generic
from .gpu_kernel import WARP, Kernel, Kernels, as_value, ceildiv, delinearize, only_if, product
from .gpu_points import Point, Walk, reduce, start, store
from .gpu_reduction import Combiner
from .gpu_words import WORD, bytes_of, keeps_words, lies_along
from .kernel_work import instructions_of

MOST_WARPS = 32  # of a block
WORD_WARPS, MOST_SUMS = 16, 16  # of one whose lanes have words; sums of a lane, which take registers
TURNS = 4  # of a warp in the loop, at least: loads that are on their way together
MOST_OPERATIONS = 192  # of a thread in the loop, beyond which a second kernel is worth it
PART_OPERATIONS = 64  # of a thread in a part: there is a second kernel anyway
MOST_RESULTS = 1 << 15  # with more, a thread each keeps the GPU busy
BLOCKS = 2 * 132  # that do
LONG = 1 << 16  # turns that a loop is taken to have whose size is open until the call


@dataclass(frozen=True)
class Shares:
    """How a reduction to `results` elements is shared: `loop` by `parts` blocks and by `warps` of each; a lane has
    `words` neighbours."""

    loop: int
    results: int
    warps: int
    parts: int
    words: int = 1

    @property
    def columns(self) -> int:
        """Blocks beside one another."""
        return ceildiv(self.results, WARP * self.words)


def shares(generic: Generic) -> Shares | None:
    """None for a reduction that is not one across memory, that threads by themselves do as fast, or of which another
    size than that of one reduced loop is open until the call."""
    sizes = [generic.known_size(d) for d in generic.parallel]
    lengths = {d: generic.known_size(d) for d in generic.reduction}
    if not generic.across_memory() or None in sizes or [*lengths.values()].count(None) > (len(lengths) == 1):
        return None
    results, (loop, length) = product(sizes), max(((d, n or LONG) for d, n in lengths.items()), key=lambda one: one[1])
    warps = min(MOST_WARPS, length // TURNS)
    if not 0 < results < MOST_RESULTS or warps < 2:
        return None
    turns, each = length // warps, _operations(generic)
    alone = Shares(loop, results, warps, 1)
    if turns * each <= MOST_OPERATIONS:
        return alone
    words = _words(generic, results, warps)
    while words:
        own = Shares(loop, results, min(warps, WORD_WARPS if words > 1 else MOST_WARPS), 1, words)
        parts = min(BLOCKS // own.columns, length // own.warps // max(TURNS, PART_OPERATIONS // (each * words)))
        if 2 * own.columns * parts > BLOCKS or words == 1:
            return replace(own, parts=max(1, parts))
        words //= 2
    return alone


def _words(generic: Generic, results: int, warps: int) -> int:
    """How many neighbours a lane may have: words of the inputs that are reduced, results enough for a warp of them, and
    as many threads in so many warps."""
    last = generic.parallel[-1]
    kinds = [v.type for v, m in zip(generic.inputs, generic.maps) if lies_along(v, m, last)]
    count = min(WORD // bytes_of(kind) for kind in kinds) if kinds else 1
    fits = min(results // WARP, warps, MOST_SUMS // len(generic.outputs))
    while count > 1 and (count > fits or not all(keeps_words(kind, count) for kind in kinds)):
        count //= 2
    return count


def _operations(generic: Generic) -> int:
    """About how many operations an element takes: its loads, and its body's."""
    return len(generic.inputs) + sum(instructions_of(op.operation) for op in generic.block.operations)


def lower(
    generic: Generic, kernels: Kernels, initial: list[ir.Value | None], joined: list[Combiner], shares: Shares
) -> None:
    """Puts the kernels' launches before the operation. `initial` are what its outputs hold before, where that is one
    scalar; `joined` says how each is accumulated."""
    op, partial = generic.op, list[ir.Value]()
    sizes = [generic.known_size(d) for d in generic.parallel]

    def dims_of(column: ir.Value) -> dict[int, ir.Value]:
        return dict(zip(generic.parallel, delinearize(column, sizes), strict=True))

    def sums(kernel: Kernel, part: ir.Value, column: ir.Value, warp: ir.Value) -> list[ir.Value]:
        whole, each = Walk.whole(generic, kernel, shares.loop), joined * shares.words
        walks = {shares.loop: whole.part(part, shares.parts).shared(warp, shares.warps)}
        neutral = [one.neutral() for one in each]
        return reduce(generic, kernel, [dims_of(column)], generic.reduction, neutral, each, walks, shares.words)

    def finish(kernel: Kernel, column: ir.Value, found: list[ir.Value]) -> None:
        dims = dims_of(column)
        before = [start(generic, kernel, i, dims, initial[i]) for i in range(len(joined))]
        found = [one.join(a, b) for one, a, b in zip(joined, before, found, strict=True)]
        store(generic, kernel, [Point(dims)], found)

    def keep(kernel: Kernel, part: ir.Value, column: ir.Value, found: list[ir.Value]) -> None:
        for buffer, value in zip(partial, found, strict=True):
            memref.store(value, kernel.inside(buffer), [part, column])

    def again(kernel: Kernel, _: ir.Value, column: ir.Value, warp: ir.Value) -> list[ir.Value]:
        buffers = [kernel.inside(buffer) for buffer in partial]
        return _join_rows(joined, buffers, Walk(warp, as_value(shares.parts), followers), column)

    followers = min(MOST_WARPS, ceildiv(shares.parts, TURNS))
    whole = replace(shares, parts=1, warps=followers, words=1)
    if shares.parts == 1:
        _kernel(generic, kernels, joined, shares, sums, lambda k, _, c, found: finish(k, c, found))
    else:
        with op.context, op.location, ir.InsertionPoint(op):
            kinds = [ir.MemRefType.get([shares.parts, shares.results], one.kind) for one in joined]
            partial += [memref.alloc(kind, [], []) for kind in kinds]
        _kernel(generic, kernels, joined, shares, sums, keep)
        _kernel(generic, kernels, joined, whole, again, lambda k, _, c, found: finish(k, c, found))


def _join_rows(joined: list[Combiner], buffers: list[ir.Value], walk: Walk, column: ir.Value) -> list[ir.Value]:
    """What stands in one column of buffers, in these rows, joined."""
    loop = scf.ForOp(walk.first, walk.last, as_value(walk.step), [one.neutral() for one in joined])
    with ir.InsertionPoint(loop.body):
        values = [memref.load(buffer, [loop.induction_variable, column]) for buffer in buffers]
        scf.yield_([one.join(a, b) for one, a, b in zip(joined, loop.inner_iter_args, values, strict=True)])
    return list(loop.results)


def _kernel(
    generic: Generic,
    kernels: Kernels,
    joined: list[Combiner],
    shares: Shares,
    sums: Callable[[Kernel, ir.Value, ir.Value, ir.Value], list[ir.Value]],
    then: Callable[[Kernel, ir.Value, ir.Value, list[ir.Value]], None],
) -> None:
    """`sums` gives what a warp finds in its part of a lane's columns, from one on; `then`, a column a thread, takes
    what all warps found together."""
    warps, wide = shares.warps, WARP * shares.words
    kernel = Kernel(kernels, generic.op, generic.label(), threads=warps * WARP)
    with kernel.body():
        thread, block = gpu.thread_id(gpu.Dimension.x), gpu.block_id(gpu.Dimension.x)
        warp, lane = arith.divui(thread, as_value(WARP)), arith.remui(thread, as_value(WARP))
        part, first = delinearize(block, [shares.parts, shares.columns])
        first, own = arith.muli(first, as_value(wide)), arith.muli(lane, as_value(shares.words))
        last = as_value(shares.results - shares.words)  # all threads come to the barrier
        found = sums(kernel, part, arith.minui(arith.addi(first, own), last), warp)
        buffers = [kernel.shared([warps, wide], one.kind) for one in joined]
        for number, value in enumerate(found):
            e, output = divmod(number, len(joined))
            memref.store(value, buffers[output], [warp, arith.addi(own, as_value(e))])
        gpu.barrier()
        column = arith.addi(first, thread)
        with only_if(thread, wide), only_if(column, shares.results):
            then(kernel, part, column, _join_rows(joined, buffers, Walk(as_value(0), as_value(warps)), thread))
    kernel.launch(shares.parts * shares.columns)
