"""Long reductions to a few elements, such as losses: the threads of many blocks go through the loops together, and a
block an element joins what these found.

    block b of B, thread t of T:   for i in b T + t, + B T, ...:  sum += x[i]
                                   warps join theirs by shuffles;  shared[warp] = sum;  barrier;
                                   thread 0:  parts[b] = the sum of shared
    thread t of one block:         the same of parts

So threads enough have loads on their way, wherever elements lie, and neighbouring threads read neighbours. Where the
last loop is long blocks share another one, and their threads the last. All is added up in the same order each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from kitsune_mlir.mlir import arith, gpu, ir, memref
from kitsune_mlir.planning.open_rows import MANY

from .gpu_columns import join_rows
from .gpu_generic import Generic
from .gpu_kernel import THREADS, WARP, Kernel, as_value, delinearize, in_block, only_if
from .gpu_points import Nest, Point, Walk, reduce

MOST_RESULTS = 7  # of more there are warps, or threads, enough
MOST_BLOCKS = 1024  # that fill a GPU; the block behind reads four of their results a thread
LEAST = 8  # points that a thread goes through
MORE_BUSY = 3  # times as many threads that have turns, for which loops are shared in another way
LONG, FEWER = 8, 2  # operations of a body that takes long, and the points of a thread then


@dataclass(frozen=True)
class Shares:
    """`blocks` share one loop, for each of so many results, and the threads of each another, or the same."""

    results: int
    blocks: int
    loop: int
    inner: int

    def busy(self, turns: Mapping[int, int]) -> int:
        """Threads, for each result, that have a turn of loops of so many."""
        if self.loop == self.inner:
            return min(self.blocks * THREADS, turns[self.loop])
        return min(self.blocks, turns[self.loop]) * min(THREADS, turns[self.inner])


def shares(generic: Generic) -> Shares | None:
    """How a reduction is shared; None where its results are open or many, or its points few. Of an open loop many times
    the example's turns are taken, as gpu_columns does."""
    sizes = [generic.known_size(d) for d in generic.parallel]
    if None in sizes or not 0 < prod(sizes) <= MOST_RESULTS:
        return None
    results, turns = prod(sizes), {d: generic.example_size(d) for d in generic.reduction}
    many = {d: n * (1 if generic.known_size(d) is not None else MANY) for d, n in turns.items()}
    least = FEWER if len(list(generic.block.operations)) > LONG else LEAST
    last, longest = generic.reduction[-1], max(turns, key=lambda d: turns[d])
    inner = last if generic.along_memory() and many[last] >= THREADS else longest
    most = min(MOST_BLOCKS // results, prod(many.values()) // (least * THREADS))
    each = {d: THREADS if d == inner else 1 for d in turns}  # threads of a block that share it
    loop = max(turns, key=lambda d: (min(most, turns[d] // each[d]), d == inner))

    def way(loop: int, inner: int) -> Shares:
        return Shares(results, min(most, many[loop] // (THREADS if loop == inner else 1)), loop, inner)

    found = way(loop, inner)
    others = [way(a, b) for a in turns for b in turns if b >= inner]  # whose neighbours are no farther apart
    busiest = max(others, key=lambda own: own.busy(turns))
    if busiest.busy(turns) > MORE_BUSY * found.busy(turns):
        found = busiest
    return found if found.blocks > 1 else None


def lower(nest: Nest, shares: Shares) -> None:
    """Puts both kernels' launches before the operation."""
    generic, op, joined = nest.generic, nest.generic.op, nest.joined
    sizes = [generic.known_size(d) for d in generic.parallel]
    with op.context, op.location, ir.InsertionPoint(op):
        kinds = [ir.MemRefType.get([shares.blocks, shares.results], one.kind) for one in joined]
        partial = [memref.alloc(kind, [], []) for kind in kinds]

    def parts(kernel: Kernel, block: ir.Value, thread: ir.Value) -> None:
        number, result = delinearize(block, [shares.blocks, shares.results])
        walks = _walks(generic, kernel, shares, number, thread)
        neutral = [one.neutral() for one in joined]
        points = [generic.place(result, sizes)]
        found = reduce(generic, kernel, points, generic.reduction, neutral, joined, walks)
        for buffer, value in zip(partial, _together(nest, kernel, found), strict=True):
            with only_if(thread, 1):
                memref.store(value, kernel.inside(buffer), [number, result])

    def all_parts(kernel: Kernel, result: ir.Value, thread: ir.Value) -> None:
        buffers = [kernel.inside(buffer) for buffer in partial]
        found = join_rows(joined, buffers, Walk(thread, as_value(shares.blocks), THREADS), result)
        total = _together(nest, kernel, found)
        with only_if(thread, 1):
            nest.finish(kernel, [Point(generic.place(result, sizes))], total)

    _kernel(nest, shares.blocks * shares.results, parts)
    _kernel(nest, shares.results, all_parts)


def _walks(generic: Generic, kernel: Kernel, shares: Shares, number: ir.Value, thread: ir.Value) -> dict[int, Walk]:
    """How a thread of a block goes through the loops that are shared."""
    whole = Walk.whole(generic, kernel, shares.loop)
    if shares.loop == shares.inner:
        first = arith.addi(arith.muli(number, as_value(THREADS)), thread)
        return {shares.loop: whole.shared(first, shares.blocks * THREADS)}
    inner = Walk.whole(generic, kernel, shares.inner).shared(thread, THREADS)
    return {shares.loop: whole.shared(number, shares.blocks), shares.inner: inner}


def _together(nest: Nest, kernel: Kernel, found: list[ir.Value]) -> list[ir.Value]:
    """What the threads of a block found, joined; all must be here."""
    thread, warps, zero = gpu.thread_id(gpu.Dimension.x), THREADS // WARP, as_value(0)
    warp, lane = in_block(thread)
    buffers = [kernel.shared([warps, 1], one.kind) for one in nest.joined]
    found = [one.across_warp(x) for one, x in zip(nest.joined, found, strict=True)]
    with only_if(lane, 1):
        for buffer, value in zip(buffers, found, strict=True):
            memref.store(value, buffer, [warp, zero])
    gpu.barrier()
    return join_rows(nest.joined, buffers, Walk(zero, as_value(warps)), zero)


def _kernel(nest: Nest, blocks: int, build: Callable[[Kernel, ir.Value, ir.Value], None]) -> None:
    kernel = nest.kernel()
    with kernel.body():
        build(kernel, gpu.block_id(gpu.Dimension.x), gpu.thread_id(gpu.Dimension.x))
    kernel.launch(blocks)
