"""Reductions across the memory of their inputs, as sums over rows: a warp has 32 neighbouring results, the warps of a
block share the reduced loop, and join what they found in shared memory. Where the results give too few blocks, the
loop is cut into parts that blocks take, and a second kernel of the same kind joins these.

    thread (warp w, lane c):   for row in w, w + W, ...:  sum += x[row, 32 block + c]
                               shared[w][c] = sum;  barrier;  the first warp adds up shared[0 .. W][c]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, gpu, ir, memref, scf

from .gpu_generic import Generic
from .gpu_kernel import WARP, Kernel, Kernels, as_value, ceildiv, delinearize, only_if, product
from .gpu_points import Point, Walk, reduce, start, store
from .gpu_reduction import Combiner
from .kernel_work import instructions_of

MOST_WARPS = 32  # of a block
TURNS = 4  # of a warp in the loop, at least: loads that are on their way together
MOST_OPERATIONS = 192  # of a thread in the loop, beyond which a second kernel is worth it
PART_OPERATIONS = 64  # of a thread in a part: there is a second kernel anyway
MOST_RESULTS = 1 << 15  # with more, a thread each keeps the GPU busy
BLOCKS = 256  # that do


@dataclass(frozen=True)
class Shares:
    """How a reduction to `results` elements is shared: `loop` by `parts` blocks and by `warps` of each."""

    loop: int
    results: int
    warps: int
    parts: int

    @property
    def columns(self) -> int:
        """Blocks beside one another."""
        return ceildiv(self.results, WARP)


def shares(generic: Generic) -> Shares | None:
    """None for a reduction that is not one across memory, that threads by themselves do as fast, or whose sizes are
    open until the call."""
    sizes = [generic.known_size(d) for d in generic.parallel]
    lengths = {d: generic.known_size(d) for d in generic.reduction}
    if not generic.across_memory() or None in sizes or None in lengths.values():
        return None
    results, loop = product(sizes), max(lengths, key=lengths.__getitem__)
    columns, length = ceildiv(results, WARP), lengths[loop]
    warps = min(MOST_WARPS, length // TURNS)
    if not 0 < results < MOST_RESULTS or warps < 2:
        return None
    turns, each = length // warps, _operations(generic)
    parts = 1
    if turns * each > MOST_OPERATIONS:
        parts = max(1, min(BLOCKS // columns, turns // max(TURNS, PART_OPERATIONS // each)))
    return Shares(loop, results, warps, parts)


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
        whole = Walk.whole(generic, kernel, shares.loop)
        walks = {shares.loop: whole.part(part, shares.parts).shared(warp, shares.warps)}
        neutral = [one.neutral() for one in joined]
        return reduce(generic, kernel, [dims_of(column)], generic.reduction, neutral, joined, walks)

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
    if shares.parts == 1:
        _kernel(generic, kernels, joined, shares, (1, shares.warps), sums, lambda k, _, c, found: finish(k, c, found))
    else:
        with op.context, op.location, ir.InsertionPoint(op):
            kinds = [ir.MemRefType.get([shares.parts, shares.results], one.kind) for one in joined]
            partial += [memref.alloc(kind, [], []) for kind in kinds]
        _kernel(generic, kernels, joined, shares, (shares.parts, shares.warps), sums, keep)
        _kernel(generic, kernels, joined, shares, (1, followers), again, lambda k, _, c, found: finish(k, c, found))


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
    sizes: tuple[int, int],
    sums: Callable[[Kernel, ir.Value, ir.Value, ir.Value], list[ir.Value]],
    then: Callable[[Kernel, ir.Value, ir.Value, list[ir.Value]], None],
) -> None:
    """A kernel of so many parts and warps. `sums` gives what a warp finds of its part of a column; `then`, in one warp,
    takes what all of them found together."""
    parts, warps = sizes
    kernel = Kernel(kernels, generic.op, generic.label(), threads=warps * WARP)
    with kernel.body():
        thread, block = gpu.thread_id(gpu.Dimension.x), gpu.block_id(gpu.Dimension.x)
        warp, lane = arith.divui(thread, as_value(WARP)), arith.remui(thread, as_value(WARP))
        part, first = delinearize(block, [parts, shares.columns])
        column = arith.addi(arith.muli(first, as_value(WARP)), lane)
        inside = arith.minui(column, as_value(shares.results - 1))  # all threads come to the barrier
        found = sums(kernel, part, inside, warp)
        buffers = [kernel.shared([warps, WARP], one.kind) for one in joined]
        for buffer, value in zip(buffers, found, strict=True):
            memref.store(value, buffer, [warp, lane])
        gpu.barrier()
        with only_if(thread, WARP), only_if(column, shares.results):
            then(kernel, part, column, _join_rows(joined, buffers, Walk(as_value(0), as_value(warps)), lane))
    kernel.launch(parts * shares.columns)
