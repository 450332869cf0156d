"""Reductions across the memory of their inputs, as sums over rows: the lanes of a warp have words of neighbouring
results, or several lanes the same of other rows; they and the warps of a block share the reduced loop, and join what
they found by shuffles and in shared memory. Where the results give too few blocks, the loop is cut into parts that
blocks take, and a second kernel of the same kind joins these.

    thread (warp w of W, lane c S + s):   for row in w S + s, + W S, ...:  sum[0 .. n] += x[row, first + c n .. + n]
                                          sum of S lanes;  shared[w][c n ..] = sum;  barrier;  a thread a column:
                                          sum of shared[0 .. W][column]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kitsune_mlir.mlir import arith, gpu, ir, memref, scf
from kitsune_mlir.planning.kernel_cost import LINE, SECTOR
from kitsune_mlir.planning.open_rows import MANY
from kitsune_mlir.planning.thin_products import LEAST_SHARED, MOST_SHARED

from .gpu_generic import Generic
from .gpu_kernel import WARP, Kernel, as_value, ceildiv, delinearize, in_block, only_if, power_of_two, product
from .gpu_points import Nest, Point, Walk, reduce
from .gpu_reduction import Combiner
from .gpu_word_access import WORD, bytes_of, keeps_words
from .gpu_words import lies_along
from .kernel_work import instructions_of

MOST_WARPS = 32  # of a block
WORD_WARPS, MOST_SUMS = 16, 16  # of one whose lanes have words; sums of a lane, which take registers
TURNS = 4  # of a warp in the loop, at least: loads that are on their way together
MOST_TURNS, MOST_OPERATIONS = 24, 192  # of a thread in the loop, beyond which a second kernel is worth it
PART_OPERATIONS = 32  # of a thread in a part: there is a second kernel anyway
MOST_RESULTS = 1 << 18  # with more, a thread each keeps the GPU busy
BLOCKS = 2 * 132  # that do
BYTES = 4  # of what a part's sum is


@dataclass(frozen=True)
class Shares:
    """How a reduction to `results` elements is shared: its loop by `parts` blocks, by `warps` of each and by `slots`
    neighbouring lanes of a warp; a lane has `words` neighbours."""

    results: int
    warps: int
    parts: int = 1
    words: int = 1
    slots: int = 1

    @property
    def wide(self) -> int:
        """Neighbours of a block."""
        return WARP // self.slots * self.words

    @property
    def columns(self) -> int:
        """Blocks beside one another."""
        return ceildiv(self.results, self.wide)


def divide(results: int, length: int, nbytes: int, words: int, each: float) -> Shares:
    """How a loop of so many turns is shared whose elements have so many bytes and make words of so many, where an
    element takes `each` operations. By one kernel, a block of which has a sector of a row, or more where blocks would
    be many; by two where a thread would have long to do, unless blocks of whole lines keep the GPU busy."""
    wide, few = max(min(SECTOR // nbytes, power_of_two(results)), power_of_two(ceildiv(results, BLOCKS))), 1
    while few < words and (few * WARP < wide or length > TURNS * MOST_WARPS * (few * WARP // wide)):
        few *= 2
    is_full = 2 * ceildiv(results, wide) > BLOCKS
    alone = _shared(results, length, wide, few, WORD_WARPS if is_full and few > 1 else MOST_WARPS)
    turns = length // (alone.warps * alone.slots)
    if turns <= MOST_TURNS and turns * each * few <= MOST_OPERATIONS or is_full and wide * nbytes >= LINE:
        return alone
    found = list[Shares]()
    while words:
        own = _shared(results, length, power_of_two(results), words, WORD_WARPS if words > 1 else MOST_WARPS)
        turns = length // (own.warps * own.slots)
        parts = min(BLOCKS // own.columns, int(turns // max(TURNS, PART_OPERATIONS // (each * words))))
        found.append(replace(own, parts=max(1, parts)))
        words //= 2
    return max(found, key=lambda own: (min(own.parts * own.columns, BLOCKS // 2), own.words))


def _shared(results: int, length: int, wide: int, words: int, most: int) -> Shares:
    """Blocks of so many neighbours, or what a warp's words have, and of `most` warps, or what gives each thread a few
    turns, and each neighbour a thread."""
    slots = min(WARP, max(1, WARP * words // wide))
    warps = max(min(most, ceildiv(length, TURNS * slots)), words // slots)
    return Shares(results, warps, 1, words, slots)


def shares(generic: Generic) -> tuple[int, Shares] | None:
    """The loop that is shared, and how. None for a reduction that is not one across memory, that threads by themselves
    do as fast, or of which another size than that of one reduced loop is open until the call."""
    sizes = [generic.known_size(d) for d in generic.parallel]
    lengths = {d: generic.known_size(d) for d in generic.reduction}
    if None in sizes or [*lengths.values()].count(None) > (len(lengths) == 1):
        return None
    # Of an open loop many times the example's turns are taken: one kernel of many takes far longer than two of few.
    turns = {d: MANY * generic.example_size(d) if n is None else n for d, n in lengths.items()}
    results, (loop, length) = product(sizes), max(turns.items(), key=lambda one: one[1])
    if not 0 < results < MOST_RESULTS or length < 2 * TURNS:
        return None
    across, loops = generic.across_memory(), generic.product_loops()
    is_matrix = bool(loops) and 1 not in map(generic.known_size, loops)
    if not across and (length < LEAST_SHARED or is_matrix and results * length > MOST_SHARED):
        return None
    if not across and not generic.across_memory(shared=True):
        return None
    buffers = [v for v, m in zip(generic.inputs, generic.maps) if lies_along(v, m, generic.parallel[-1])]
    nbytes = max((bytes_of(buffer.type) for buffer in buffers), default=1)
    words = min(WORD // nbytes, MOST_SUMS // power_of_two(len(generic.outputs))) if across or not is_matrix else 1
    while words > 1 and not (buffers and all(keeps_words(buffer, words) for buffer in buffers)):
        words //= 2
    return loop, divide(results, length, nbytes, words, _operations(generic))


def _operations(generic: Generic) -> int:
    """About how many operations an element takes: its loads, and its body's."""
    return len(generic.inputs) + sum(instructions_of(op.operation) for op in generic.block.operations)


def lower(nest: Nest, loop: int, shares: Shares) -> None:
    """Puts the kernels' launches before the operation."""
    generic, op, joined, partial = nest.generic, nest.generic.op, nest.joined, list[ir.Value]()
    sizes = [generic.known_size(d) for d in generic.parallel]

    def dims_of(column: ir.Value) -> dict[int, ir.Value]:
        return generic.place(column, sizes)

    def sums(kernel: Kernel, part: ir.Value, column: ir.Value, row: ir.Value) -> list[ir.Value]:
        whole, each = Walk.whole(generic, kernel, loop), joined * shares.words
        walks = {loop: whole.part(part, shares.parts).shared(row, shares.warps * shares.slots)}
        neutral = [one.neutral() for one in each]
        return reduce(generic, kernel, [dims_of(column)], generic.reduction, neutral, each, walks, shares.words)

    def finish(kernel: Kernel, _: ir.Value, column: ir.Value, found: list[ir.Value]) -> None:
        nest.finish(kernel, [Point(dims_of(column))], found)

    def keep(kernel: Kernel, part: ir.Value, column: ir.Value, found: list[ir.Value]) -> None:
        for buffer, value in zip(partial, found, strict=True):
            memref.store(value, kernel.inside(buffer), [part, column])

    def again(kernel: Kernel, _: ir.Value, column: ir.Value, row: ir.Value) -> list[ir.Value]:
        buffers = [kernel.inside(buffer) for buffer in partial]
        return join_rows(joined, buffers, Walk(row, as_value(shares.parts), whole.warps * whole.slots), column)

    whole = _shared(shares.results, shares.parts, SECTOR // BYTES, 1, MOST_WARPS)
    if shares.parts == 1:
        _kernel(nest, shares, sums, finish)
    else:
        with op.context, op.location, ir.InsertionPoint(op):
            kinds = [ir.MemRefType.get([shares.parts, shares.results], one.kind) for one in joined]
            partial += [memref.alloc(kind, [], []) for kind in kinds]
        _kernel(nest, shares, sums, keep)
        _kernel(nest, whole, again, finish)


def join_rows(joined: list[Combiner], buffers: list[ir.Value], walk: Walk, column: ir.Value) -> list[ir.Value]:
    """What stands in one column of buffers, in these rows, joined."""
    loop = scf.ForOp(walk.first, walk.last, as_value(walk.step), [one.neutral() for one in joined])
    with ir.InsertionPoint(loop.body):
        values = [memref.load(buffer, [loop.induction_variable, column]) for buffer in buffers]
        scf.yield_([one.join(a, b) for one, a, b in zip(joined, loop.inner_iter_args, values, strict=True)])
    return list(loop.results)


def _kernel(
    nest: Nest,
    shares: Shares,
    sums: Callable[[Kernel, ir.Value, ir.Value, ir.Value], list[ir.Value]],
    then: Callable[[Kernel, ir.Value, ir.Value, list[ir.Value]], None],
) -> None:
    """`sums` gives what a thread finds of its part's columns, from one on, in rows from a number on; `then`, a column a
    thread, takes what all found together."""
    warps, wide, slots, joined = shares.warps, shares.wide, shares.slots, nest.joined
    kernel = nest.kernel(threads=warps * WARP)
    with kernel.body():
        thread, block = gpu.thread_id(gpu.Dimension.x), gpu.block_id(gpu.Dimension.x)
        warp, lane = in_block(thread)
        part, first = delinearize(block, [shares.parts, shares.columns])
        own, slot = arith.divui(lane, as_value(slots)), arith.remui(lane, as_value(slots))
        first, own = arith.muli(first, as_value(wide)), arith.muli(own, as_value(shares.words))
        last = as_value(shares.results - shares.words)  # all threads come to the barrier
        row = arith.addi(arith.muli(warp, as_value(slots)), slot)
        found = sums(kernel, part, arith.minui(arith.addi(first, own), last), row)
        found = [one.across_warp(x, slots) for one, x in zip(joined * shares.words, found, strict=True)]
        buffers = [kernel.shared([warps, wide], one.kind) for one in joined]
        with only_if(slot, 1):
            for number, value in enumerate(found):
                e, output = divmod(number, len(joined))
                memref.store(value, buffers[output], [warp, arith.addi(own, as_value(e))])
        gpu.barrier()
        column = arith.addi(first, thread)
        with only_if(thread, wide), only_if(column, shares.results):
            then(kernel, part, column, join_rows(joined, buffers, Walk(as_value(0), as_value(warps)), thread))
    kernel.launch(shares.parts * shares.columns)
