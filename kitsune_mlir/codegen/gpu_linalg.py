"""linalg.generic on memrefs -> a kernel.

One thread computes one element of the result, or a word of neighbours where an elementwise operator has such
(gpu_words.py, gpu_turned.py); consecutive threads the last dimension. Reductions keep
their sums in registers. Where a reduction runs along the memory of its inputs, a warp computes one
element: its lanes read consecutive addresses and join their partial results by shuffles. A long reduction to few
elements is done in parts, whose results a second kernel joins; one across the memory of its inputs, to neighbouring
elements, by all warps of a block, which each take some of the rows (gpu_columns.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, gpu, ir, memref, scf
from kitsune_mlir.planning.open_rows import MANY

from . import gpu_columns, gpu_turned
from .gpu_buffers import Fills
from .gpu_generic import Generic
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
    on_host,
    only_if,
    product,
)
from .gpu_points import Point, Walk, reduce, start, store
from .gpu_reduction import Combiner, combiners

BLOCK = 4  # rows and columns of a matrix product that one thread or warp computes together
SPREAD = 1 << 18  # threads that a long reduction to few elements is spread over
LEAST_PART = 64  # points that a thread goes through in a part of its own
LONG, LESS = 8, 4  # operations of a body that takes long, and by what such a part may have fewer points
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
        kernel = Kernel(kernels, op, generic.label())
        with kernel.body():
            part.emit(gpu.block_id(gpu.Dimension.x), kernel)
        _launched(generic, kernel.launch(lambda: part.blocks(on_host)), fills)
        return
    if generic.reduction:
        contract(generic.block.operations)
    joined = combiners(generic.block, len(generic.inputs), other=True) if generic.reduction else None
    by_warps = joined is not None and generic.along_memory() and _is_long(generic)
    if joined is not None and (shares := gpu_columns.shares(generic)) is not None:
        gpu_columns.lower(generic, kernels, initial, joined, shares)
        op.erase()
        return
    if joined is not None and (parts := _parts(generic, WARP if by_warps else 1)) is not None:
        _lower_in_parts(generic, kernels, initial, joined, parts, by_warps)
        op.erase()
        return
    if joined is not None and by_warps:
        per_block = THREADS // WARP
        block = _blocking(generic, FILL * per_block)
        kernel = _warp_kernel(generic, kernels, initial, joined, block)
    else:
        per_block = THREADS
        block = _blocking(generic, FILL * per_block)
        kernel = _thread_kernel(generic, kernels, initial, joined, block)
    launch = kernel.launch(lambda: ceildiv(_items(generic, block, on_host), per_block))
    _launched(generic, launch, fills)


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
    with generic.op.context, generic.op.location, ir.InsertionPoint(generic.op):
        length = generic.size(generic.reduction[-1], lambda value: value)
    return not isinstance(length, int) or length >= WARP


@dataclass(frozen=True)
class _Parts:
    """`count` parts of the points of `loop`."""

    loop: int
    count: int


def _parts(generic: Generic, threads: int) -> _Parts | None:
    """How to spread a reduction over the GPU whose results, with so many threads each, are too few for it. Of an open
    loop many times the example's turns are taken, as gpu_columns does."""
    with generic.op.context, generic.op.location, ir.InsertionPoint(generic.op):
        results = product([generic.size(d, lambda value: value) for d in generic.parallel])
        sizes = {d: generic.size(d, lambda value: value) for d in generic.reduction}
    if not isinstance(results, int) or results == 0:
        return None
    loop = max(sizes, key=lambda d: size if isinstance(size := sizes[d], int) else 1 << 30)
    size, shares_loop = sizes[loop], threads == WARP and loop == generic.reduction[-1]
    least = LEAST_PART // LESS if len(list(generic.block.operations)) > LONG else LEAST_PART
    beside = product([other for d, other in sizes.items() if d != loop])
    if isinstance(beside, int):  # points of a thread for each of the loop's
        least = max(1, least // max(1, beside // (1 if shares_loop else threads)))
    each = least * (WARP if shares_loop else 1)
    turns = size if isinstance(size, int) else MANY * generic.example_size(loop)
    count = min(SPREAD // (results * threads), 1024, turns // each)
    return _Parts(loop, count) if count > 1 else None


def _lower_in_parts(
    generic: Generic,
    kernels: Kernels,
    initial: list[ir.Value | None],
    joined: list[Combiner],
    parts: _Parts,
    by_warps: bool,
) -> None:
    """Two launches before the operation: the results of each part, and those of all."""
    op = generic.op
    with op.context, op.location, ir.InsertionPoint(op):
        sizes = [generic.size(d, lambda value: value) for d in generic.parallel]
        count = product(sizes)
        elements = [ir.MemRefType(out.type).element_type for out in generic.outputs]
        partial = [memref.alloc(ir.MemRefType.get([parts.count * count], one), [], []) for one in elements]
    first = Kernel(kernels, op, generic.label())
    with first.body():
        lane = arith.remui(gpu.thread_id(gpu.Dimension.x), as_value(WARP)) if by_warps else None
        item = linear_id(THREADS) if lane is None else arith.divui(linear_id(THREADS), as_value(WARP))
        with only_if(item, parts.count * count):
            number, index = delinearize(item, [parts.count, count])
            dims = dict(zip(generic.parallel, delinearize(index, sizes), strict=True))
            walks = {parts.loop: Walk.whole(generic, first, parts.loop).part(number, parts.count)}
            if lane is not None:
                last = generic.reduction[-1]
                walks[last] = walks.get(last, Walk.whole(generic, first, last)).shared(lane, WARP)
            neutral = [combiner.neutral() for combiner in joined]
            found = reduce(generic, first, [dims], generic.reduction, neutral, joined, walks)
            if lane is not None:
                found = [combiner.across_warp(part) for combiner, part in zip(joined, found, strict=True)]
            with contextlib.nullcontext() if lane is None else only_if(lane, 1):
                for buffer, value in zip(partial, found, strict=True):
                    memref.store(value, first.inside(buffer), [item])
    second = Kernel(kernels, op, generic.label())
    with second.body():
        index = linear_id(THREADS)
        with only_if(index, count):
            dims = dict(zip(generic.parallel, delinearize(index, sizes), strict=True))
            starts = [start(generic, second, i, dims, initial[i]) for i in range(len(generic.outputs))]
            loop = scf.ForOp(as_value(0), as_value(parts.count), as_value(1), starts)
            with ir.InsertionPoint(loop.body):
                at = arith.addi(arith.muli(loop.induction_variable, as_value(count)), index)
                values = [memref.load(second.inside(buffer), [at]) for buffer in partial]
                scf.yield_([one.join(a, b) for one, a, b in zip(joined, loop.inner_iter_args, values, strict=True)])
            store(generic, second, [Point(dims)], list(loop.results))
    first.launch(ceildiv(parts.count * count * (WARP if by_warps else 1), THREADS))
    second.launch(ceildiv(count, THREADS))


def _thread_kernel(
    generic: Generic, kernels: Kernels, initial: list[ir.Value | None], joined: list[Combiner] | None, block: Blocking
) -> Kernel:
    kernel = Kernel(kernels, generic.op, generic.label())
    with kernel.body():
        index = linear_id(THREADS)
        with only_if(index, _items(generic, block, kernel.inside)):
            points = _points(generic, block, kernel, index)
            starts = [
                start(generic, kernel, i, point.dims, initial[i])
                for point in points
                for i in range(len(generic.outputs))
            ]
            combine = joined and joined * len(points)
            found = reduce(generic, kernel, [point.dims for point in points], generic.reduction, starts, combine)
            store(generic, kernel, points, found)
    return kernel


def _warp_kernel(
    generic: Generic, kernels: Kernels, initial: list[ir.Value | None], joined: list[Combiner], block: Blocking
) -> Kernel:
    kernel = Kernel(kernels, generic.op, generic.label())
    with kernel.body():
        thread, first = gpu.thread_id(gpu.Dimension.x), gpu.block_id(gpu.Dimension.x)
        lane = arith.remui(thread, as_value(WARP))
        index = arith.addi(arith.muli(first, as_value(THREADS // WARP)), arith.divui(thread, as_value(WARP)))
        with only_if(index, _items(generic, block, kernel.inside)):  # the same way for a whole warp
            points = _points(generic, block, kernel, index)
            combine = joined * len(points)
            neutral = [combiner.neutral() for combiner in combine]
            dims = [point.dims for point in points]
            walks = {generic.reduction[-1]: Walk.whole(generic, kernel, generic.reduction[-1]).shared(lane, WARP)}
            partial = reduce(generic, kernel, dims, generic.reduction, neutral, combine, walks)
            total = [combiner.across_warp(part) for combiner, part in zip(combine, partial, strict=True)]
            with only_if(lane, 1):
                starts = [
                    start(generic, kernel, i, point.dims, initial[i])
                    for point in points
                    for i in range(len(generic.outputs))
                ]
                found = [combiner.join(a, b) for combiner, a, b in zip(combine, starts, total, strict=True)]
                store(generic, kernel, points, found)
    return kernel


def _blocking(generic: Generic, least: int) -> Blocking:
    """How many points of each loop one thread (or warp) computes together, where there are at least `least` results: 4
    by 4 of a product, so that an element is loaded once for 4 of them; 4 rows of what is elementwise, so that loads
    enough are in flight to keep DRAM busy; else one."""
    together = generic.product_loops() or (() if generic.reduction else tuple(generic.parallel[:1]))
    with generic.op.context, generic.op.location, ir.InsertionPoint(generic.op):
        sizes = {d: generic.size(d, lambda value: value) for d in generic.parallel}
        results = product(list(sizes.values())) if together else 0
    if results < least if isinstance(results, int) else not generic.reduction:
        return {}
    return {d: BLOCK for d in together if not isinstance(sizes[d], int) or sizes[d] >= BLOCK}


def _items(generic: Generic, block: Blocking, see: See) -> Size:
    """The number of groups of points."""
    return product(_groups(generic, block, see))


def _groups(generic: Generic, block: Blocking, see: See) -> list[Size]:
    return [ceildiv(generic.size(d, see), block.get(d, 1)) for d in generic.parallel]


def _points(generic: Generic, block: Blocking, kernel: Kernel, index: ir.Value) -> list[Point]:
    """The points of group `index`. Along a blocked loop of n groups they lie n apart, so that neighbouring
    threads still have neighbouring points."""
    groups = _groups(generic, block, kernel.inside)
    points = [Point(dict(zip(generic.parallel, delinearize(index, groups), strict=True)))]
    for d, count in zip(generic.parallel, groups, strict=True):
        points = [moved for point in points for moved in _along(generic, kernel, point, d, count, block.get(d, 1))]
    return points


def _along(generic: Generic, kernel: Kernel, point: Point, dim: int, step: Size, factor: int) -> list[Point]:
    """`point` and those that lie `step`, 2 `step`, ... further along loop `dim`."""
    points = [point]
    size = as_value(generic.size(dim, kernel.inside)) if factor > 1 else None
    for k in range(1, factor):
        far = arith.addi(point.dims[dim], arith.muli(as_value(step), as_value(k)))
        here = arith.cmpi(arith.CmpIPredicate.ult, far, size)
        clamped = arith.minui(far, arith.subi(size, as_value(1)))
        inside = here if point.inside is None else arith.andi(point.inside, here)
        points.append(Point({**point.dims, dim: clamped}, inside))
    return points
