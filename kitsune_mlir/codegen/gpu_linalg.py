"""linalg.generic on memrefs -> a kernel.

One thread computes one element of the result, or a word of neighbours where an elementwise operator has such
(gpu_words.py, gpu_turned.py); consecutive threads the last dimension. Reductions keep
their sums in registers. Where a reduction runs along the memory of its inputs, a warp computes one
element, or the few that lie side by side, such as coordinates: its lanes read consecutive addresses and join their
partial results by shuffles. A long reduction to few
elements is done in parts, whose results a second kernel joins, by blocks where elements are few (gpu_blocks.py); one
across the memory of its inputs, to neighbouring elements, by all warps of a block, which each take some of the rows
(gpu_columns.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isqrt, prod

from kitsune_mlir import rows
from kitsune_mlir.generics import all_hold
from kitsune_mlir.mlir import arith, gpu, ir, memref, scf
from kitsune_mlir.operations import operations_of
from kitsune_mlir.planning.open_rows import MANY

from . import gpu_blocks, gpu_columns, gpu_products, gpu_turned
from .gpu_buffers import Fills
from .gpu_generic import COLUMN, Generic, dims_of
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
    linear_id,
    of_warp,
    on_host,
    only_if,
    product,
)
from .gpu_points import Nest, Point, Walk, reduce, store
from .gpu_reduction import add_negatives, combiners
from .gpu_words import ENOUGH
from .pipeline.device import below

BLOCK = 4  # rows and columns of a matrix product that one thread or warp computes together
OPEN_BLOCK = 8  # rows of what is elementwise and has inner sizes that are open
# Operations of a thread that computes several rows, and what it reads by number: more need registers, and fewer threads
# are there to wait for each other's loads.
MOST_CODE, MOST_LOADS = 1024, 48
SPREAD = 1 << 18  # threads that a long reduction to few elements is spread over
LEAST_PART, SHORTEST = 64, 8  # points that a thread goes through in a part of its own: of a long loop, of a short one
LONG, LESS = 8, 4  # operations of a body that takes long, and by what such a part may have fewer points
FEW, WARPS = 8, 512  # results beside one another that a warp has together; warps that are better than shared columns
FILL = 4096  # thread blocks' worth of results from which on that still leaves work for every SM

Blocking = dict[int, int]  # points computed together, by loop


def lower_generic(op: ir.Operation, kernels: Kernels, fills: Fills, after: ir.Operation | None = None) -> None:
    """Puts the kernel's launch in the place of `op`, and of the operator `after` it (gpu_follow.py)."""
    if after is not None:
        op.move_before(after)
    generic = Generic(op, None if after is None else Generic(after))
    initial = [fills.take(op, buffer) if generic.reads(i) else None for i, buffer in enumerate(generic.outputs)]
    for one in (op,) if after is None else (op, after):
        fills.seen(one)
    if not any(value is not None for value in initial) and (part := gpu_turned.part(generic)) is not None:
        kernel = Kernel(kernels, op, generic.label(), part.threads)
        with kernel.body():
            part.emit(gpu.block_id(gpu.Dimension.x), kernel)
        _launched(generic, kernel.launch(lambda: part.blocks(on_host)), fills)
        return
    if generic.reduction:
        add_negatives(generic.block, len(generic.inputs))
        contract(generic.block.operations)
    joined = combiners(generic.block, len(generic.inputs), other=True) if generic.reduction else None
    by_warps = joined is not None and generic.along_memory() and _is_long(generic) and not _is_shared(generic)
    nest = Nest(generic, kernels, initial, joined)
    shares = None if joined is None else gpu_columns.shares(generic)
    multiplies = joined is not None and kernels.has_tensor_cores and gpu_products.is_product(generic)
    few = _few_columns(generic) if joined is not None and not multiplies else 1
    warps = prod(map(generic.example_size, generic.parallel[:-1])) if few > 1 else 0
    if few > 1 and (shares is None or warps >= WARPS):
        parts = _parts(generic, ceildiv(WARP, few)) if warps < WARPS else None
        if parts is not None:
            _lower_in_parts(nest, parts, True, few)
        else:
            _lower_alone(nest, {generic.parallel[-1]: few}, True, few, fills)
        return
    if shares is not None:
        gpu_columns.lower(nest, *shares)
        op.erase()
        return
    # A product of few results and a long sum takes less time in parts than as tiles.
    has_tiles = multiplies and prod(map(generic.example_size, generic.parallel)) >= gpu_products.SIDE**2
    if joined is not None and not has_tiles and (blocks := gpu_blocks.shares(generic)) is not None:
        gpu_blocks.lower(nest, blocks)
        op.erase()
        return
    parts = None if joined is None or has_tiles else _parts(generic, WARP if by_warps else 1)
    if parts is not None:
        _lower_in_parts(nest, parts, by_warps)
    elif multiplies:
        gpu_products.lower(nest)
        op.erase()
    else:
        _lower_alone(nest, _blocking(generic, FILL * _items_of_block(by_warps)), by_warps, 1, fills)


def _items_of_block(by_warps: bool) -> int:
    return THREADS // WARP if by_warps else THREADS


def _lower_alone(nest: Nest, block: Blocking, by_warps: bool, few: int, fills: Fills) -> None:
    """One launch of a kernel whose threads, or warps, each have a group of points."""
    kernel = _kernel(nest, block, by_warps, few)
    launch = kernel.launch(lambda: ceildiv(_items(nest.generic, block, on_host), _items_of_block(by_warps)))
    _launched(nest.generic, launch, fills)


def _launched(generic: Generic, launch: ir.Operation, fills: Fills) -> None:
    """The launch does what the operator did."""
    filled = generic.fill_value()
    if filled is not None:
        fills.add(generic.outputs[0], launch, filled)
    generic.op.erase()


def contract(body: Iterable[ir.OpView | ir.Operation]) -> None:
    """Lets a product and the sum it goes into be one instruction, rounded once."""
    for op in body:
        if op.operation.name in ("arith.mulf", "arith.addf"):
            flags = ir.Attribute.parse("#arith.fastmath<contract>", op.operation.context)
            op.operation.attributes["fastmath"] = flags


def _is_long(generic: Generic) -> bool:
    """Whether the loop that a warp shares gives every lane something to do."""
    length = generic.known_size(generic.reduction[-1])
    return length is None or length >= WARP


def _is_shared(generic: Generic) -> bool:
    """Whether many neighbouring results are of the same elements, so that the lanes of a warp, each with a result of
    its own, read one after another."""
    along, last = generic.parallel[-1:], generic.reduction[-1]
    touched = [dims for map_ in generic.maps[: len(generic.inputs)] if last in (dims := dims_of(map_))]
    results = prod(map(generic.example_size, generic.parallel))
    alone = any({*along} & {*dims} for dims in touched)
    return not alone and bool(along) and generic.example_size(along[0]) >= WARP and results >= SPREAD


def _few_columns(generic: Generic) -> int:
    """How many results lie beside one another where they are few, and what is reduced lies so too, as coordinates of
    points and colours of samples: the lanes of a warp take neighbouring points of the loop around, all columns of
    each. 1 for anything else."""
    if not generic.parallel or not generic.reduction or generic.gathers_along() or not _is_long(generic):
        return 1
    last, loop = generic.parallel[-1], generic.reduction[-1]
    count = generic.known_size(last) or 0
    touched = [dims for map_ in generic.maps[: len(generic.inputs)] if loop in (dims := dims_of(map_))]
    lies = all(dims[-2:] == [loop, last] or last not in dims and dims[-1] == loop for dims in touched)
    along = lies and any(dims[-1] == last for dims in touched)
    return count if along and 1 < count <= FEW and all(dims_of(m)[-1:] == [last] for m in generic.out_maps) else 1


@dataclass(frozen=True)
class _Parts:
    """`count` parts of the points of `loop`."""

    loop: int
    count: int


def _parts(generic: Generic, threads: int) -> _Parts | None:
    """How to spread a reduction over the GPU whose results, with so many threads each, are too few for it: where their
    number is open, in the example. The loop is cut that gives most parts there: of an open one there may be few turns,
    as of a batch of images, and the longest may be the one that a warp shares, as lines of images that lie apart."""
    results = [generic.example_size(d) for d in generic.parallel]
    if 0 in results:
        return None
    sizes = {d: generic.known_size(d) for d in generic.reduction}
    most = SPREAD // (prod(results) * threads)
    found = [_Parts(loop, min(most, 1024, _most_parts(generic, sizes, loop, threads))) for loop in sizes]
    best = max(found, key=lambda parts: min(parts.count, generic.example_size(parts.loop)))
    return best if best.count > 1 else None


def _most_parts(generic: Generic, sizes: dict[int, int | None], loop: int, threads: int) -> int:
    """In how many parts a loop may be cut that is gone through by so many threads. Of an open loop many times the
    example's turns are taken, as gpu_columns does."""
    size, shares_loop = sizes[loop], threads == WARP and loop == generic.reduction[-1]
    beside = prod(generic.example_size(other) for other in sizes if other != loop)
    least = LEAST_PART
    if None not in sizes.values() and size * beside >= LEAST_PART * threads:
        least = min(LEAST_PART, max(SHORTEST, isqrt(size >> 8)))  # of fewer parts the second launch takes less time
    least = least // LESS if len(list(generic.block.operations)) > LONG else least
    least = max(1, least // max(1, beside // (1 if shares_loop else threads)))  # points of a thread for each turn
    turns = MANY * generic.example_size(loop) if size is None else size
    return turns // (least * (WARP if shares_loop else 1))


def _lower_in_parts(nest: Nest, parts: _Parts, by_warps: bool, few: int = 1) -> None:
    """Two launches before the operation: the results of each part, and those of all. A warp has `few` neighbours of
    them."""
    generic, op, joined = nest.generic, nest.generic.op, nest.joined
    block = {generic.parallel[-1]: few} if few > 1 else {}

    def results(see: See) -> list[Size]:
        return [generic.size(d, see) for d in generic.parallel]

    with op.context, op.location, ir.InsertionPoint(op):
        total = product([parts.count, *results(on_host)])
        known, open_ = (total, []) if isinstance(total, int) else (rows.DYNAMIC, [total])
        partial = [memref.alloc(ir.MemRefType.get([known], one.kind), open_, []) for one in joined]
    first = nest.kernel()
    with first.body():
        lane, item = _stands(by_warps)
        groups = _groups(generic, block, first.inside)
        count = product(groups)
        with only_if(item, product([parts.count, count])):
            number, index = delinearize(item, [parts.count, count])
            points = [Point(generic.place(index, groups))]
            walk = Walk.whole(generic, first, parts.loop).part(number, parts.count)
            found = _reduced(nest, first, points, lane, {parts.loop: walk}, few)
            with contextlib.nullcontext() if lane is None else only_if(lane, 1):
                for k in range(few):
                    at = arith.addi(arith.muli(item, as_value(few)), as_value(k)) if few > 1 else item
                    for buffer, value in zip(partial, found[k * len(joined) :], strict=False):
                        memref.store(value, first.inside(buffer), [at])
    threads = WARP if by_warps else 1
    first.launch(lambda: ceildiv(product([threads, parts.count, *_groups(generic, block, on_host)]), THREADS))
    second, together = nest.kernel(), parts.count >= WARP  # a warp has a result
    with second.body():
        lane, index = _stands(together)
        sizes = results(second.inside)
        count = product(sizes)
        with only_if(index, count):
            points = [Point(generic.place(index, sizes))]
            starts = nest.starts(second, points) if lane is None else [one.neutral() for one in joined]
            bounds = (as_value(0) if lane is None else lane), as_value(parts.count), as_value(WARP if together else 1)
            loop = scf.ForOp(*bounds, starts)
            with ir.InsertionPoint(loop.body):
                at = arith.addi(arith.muli(loop.induction_variable, as_value(count)), index)
                values = [memref.load(second.inside(buffer), [at]) for buffer in partial]
                scf.yield_([one.join(a, b) for one, a, b in zip(joined, loop.inner_iter_args, values, strict=True)])
            if lane is None:
                store(generic, second, points, list(loop.results))
            else:
                total = [one.across_warp(x) for one, x in zip(joined, loop.results, strict=True)]
                with only_if(lane, 1):
                    nest.finish(second, points, total)
    second.launch(lambda: ceildiv(product([WARP if together else 1, *results(on_host)]), THREADS))
    op.erase()


def _kernel(nest: Nest, block: Blocking, by_warps: bool, few: int) -> Kernel:
    """One of whose threads, or warps, each has a group of points, warps also of `few` neighbours."""
    generic, kernel = nest.generic, nest.kernel()
    with kernel.body():
        lane, item = _stands(by_warps)
        with only_if(item, _items(generic, block, kernel.inside)):  # the same way for a whole warp
            if few > 1:
                points = [Point(generic.place(item, _groups(generic, block, kernel.inside)))]
            else:
                points = _points(generic, block, kernel, item)
            if lane is None:
                dims, combine = [point.dims for point in points], nest.joined and nest.joined * len(points)
                found = reduce(generic, kernel, dims, generic.reduction, nest.starts(kernel, points), combine)
                store(generic, kernel, points, found)
            else:
                total = _reduced(nest, kernel, points, lane, {}, few)
                with only_if(lane, 1):
                    nest.finish(kernel, _neighbours(generic, points, few), total)
    return kernel


def _stands(by_warps: bool) -> tuple[ir.Value | None, ir.Value]:
    """A thread's lane, where warps have items together, and the number of its item."""
    return of_warp() if by_warps else (None, linear_id(THREADS))


def _reduced(
    nest: Nest, kernel: Kernel, points: Sequence[Point], lane: ir.Value | None, walks: dict[int, Walk], few: int = 1
) -> list[ir.Value]:
    """What a thread, or its warp together, finds of the points' outputs, and those of so many neighbours of each, in
    loops that are gone through so."""
    generic, combine, last = nest.generic, nest.joined * len(points) * few, nest.generic.reduction[-1]
    if lane is not None:
        walks = {**walks, last: (walks.get(last) or Walk.whole(generic, kernel, last)).shared(lane, WARP)}
    neutral, dims = [one.neutral() for one in combine], [point.dims for point in points]
    found = reduce(generic, kernel, dims, generic.reduction, neutral, combine, walks, few)
    return found if lane is None else [one.across_warp(x) for one, x in zip(combine, found, strict=True)]


def _neighbours(generic: Generic, points: Sequence[Point], count: int) -> Sequence[Point]:
    """The points and those behind each of them along the last loop, so many in all for each."""
    if count == 1:
        return points
    last = generic.parallel[-1]
    return [
        Point({**point.dims, last: arith.addi(point.dims[last], as_value(k))}, point.inside)
        for point in points
        for k in range(count)
    ]


def _blocking(generic: Generic, least: int) -> Blocking:
    """How many points of each loop one thread (or warp) computes together, where there are at least `least` results: 4
    by 4 of a product, so that an element is loaded once for 4 of them; 4 rows of what is elementwise, so that loads
    enough are in flight to keep DRAM busy, and 8 where inner sizes are open: their division then tells where all of
    them are; else one."""
    sizes = {d: generic.known_size(d) for d in generic.parallel}
    if not generic.reduction and None in sizes.values():
        return _open_blocking(generic)
    together = generic.product_loops() or (() if generic.reduction else tuple(generic.parallel[:1]))
    if None not in sizes.values() and prod(sizes.values()) < least:
        return {}
    if not generic.reduction and _most_rows(generic, BLOCK) < BLOCK:
        return {}
    return {d: BLOCK for d in together if sizes[d] is None or sizes[d] >= BLOCK}


def _open_blocking(generic: Generic) -> Blocking:
    """The same of what is elementwise and has open sizes, by those of the example."""
    sizes, count = {d: generic.example_size(d) for d in generic.parallel}, OPEN_BLOCK
    loads, _ = _loads(generic)
    most = min(_most_rows(generic, count), max(1, MOST_LOADS // max(1, loads)))
    while count > 1 and (prod(sizes.values()) // count < 2 * ENOUGH or count > most):
        count //= 2
    if count == 1 or all(generic.known_size(d) is not None for d in generic.parallel[1:]):
        return {}
    return next(({d: count} for d in generic.parallel[:-1] if sizes[d] >= count), {})


def _most_rows(generic: Generic, wanted: int) -> int:
    """As many rows of a thread as are wanted, or so many that its code is not too long. What windows are multiplied
    with is loaded for all of them at once."""
    _, is_filter = _loads(generic)
    return wanted if is_filter else max(1, min(wanted, MOST_CODE // len(list(generic.block.operations))))


def _loads(generic: Generic) -> tuple[int, bool]:
    """How many elements of its own a row reads by number, and whether rows share others."""
    body = operations_of(generic.block)
    loads, seen = sum(op.name == "memref.load" for op in body), sum(COLUMN in op.attributes for op in body)
    is_filter = 0 < seen < loads
    return (0 if is_filter else loads), is_filter


def _items(generic: Generic, block: Blocking, see: See) -> Size:
    """The number of groups of points."""
    return product(_groups(generic, block, see))


def _groups(generic: Generic, block: Blocking, see: See) -> list[Size]:
    return [ceildiv(generic.size(d, see), block.get(d, 1)) for d in generic.parallel]


def _points(generic: Generic, block: Blocking, kernel: Kernel, index: ir.Value) -> list[Point]:
    """The points of group `index`. Along a blocked loop of n groups they lie n apart, so that neighbouring
    threads still have neighbouring points."""
    groups = _groups(generic, block, kernel.inside)
    points = [Point(generic.place(index, groups))]
    for d, count in zip(generic.parallel, groups, strict=True):
        points = [moved for point in points for moved in _along(generic, kernel, point, d, count, block.get(d, 1))]
    return points


def _along(generic: Generic, kernel: Kernel, point: Point, dim: int, step: Size, factor: int) -> list[Point]:
    """`point` and those that lie `step`, 2 `step`, ... further along loop `dim`."""
    points = [point]
    size = as_value(generic.size(dim, kernel.inside)) if factor > 1 else None
    for k in range(1, factor):
        far = arith.addi(point.dims[dim], arith.muli(as_value(step), as_value(k)))
        here = below(far, size)
        clamped = arith.minui(far, arith.subi(size, as_value(1)))
        inside = all_hold(point.inside, here)
        points.append(Point({**point.dims, dim: clamped}, inside))
    return points
