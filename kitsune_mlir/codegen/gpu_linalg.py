"""linalg.generic on memrefs -> a kernel.

One thread computes one element of the result, or a word of neighbours where an elementwise operator has such
(gpu_words.py); consecutive threads the last dimension. Reductions keep
their sums in registers. Where a reduction runs along the memory of its inputs, a warp computes one
element: its lanes read consecutive addresses and join their partial results by shuffles. A long reduction to few
elements is done in parts, whose results a second kernel joins.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, gpu, ir, memref, scf

from . import gpu_words
from .affine_index import evaluate
from .gpu_buffers import Fills
from .gpu_clone import clone_into
from .gpu_generic import Generic
from .gpu_kernel import (
    THREADS,
    WARP,
    Kernel,
    Kernels,
    Size,
    as_value,
    ceildiv,
    delinearize,
    linear_id,
    only_if,
    product,
)
from .gpu_reduction import Combiner, combiners

BLOCK = 4  # rows and columns of a matrix product that one thread or warp computes together
PART = 128  # numbers that are summed one by one before they are added to the others
SPREAD = 1 << 18  # threads that a long reduction to few elements is spread over
LEAST_PART = 64  # points of a loop that are worth a part of their own
FILL = 4096  # thread blocks' worth of results from which on that still leaves work for every SM

Blocking = dict[int, int]  # points computed together, by loop


def lower_generic(op: ir.Operation, kernels: Kernels, fills: Fills) -> None:
    """Puts the kernel's launch in the place of `op`."""
    generic = Generic(op)
    initial = [fills.take(op, buffer) if generic.reads(i) else None for i, buffer in enumerate(generic.outputs)]
    fills.seen(op)
    if not any(value is not None for value in initial) and (count := gpu_words.width(generic)) > 1:
        kernel, blocks = gpu_words.word_kernel(generic, kernels, count)
        _launched(generic, kernel.launch(blocks), fills)
        return
    if generic.reduction:
        _contract(generic.block)
    joined = combiners(generic.block, len(generic.inputs)) if generic.reduction else None
    by_warps = joined is not None and generic.along_memory() and _is_long(generic)
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
    with op.context, op.location, ir.InsertionPoint(op):
        launch = kernel.launch(ceildiv(_items(generic, block, lambda value: value), per_block))
    _launched(generic, launch, fills)


def _launched(generic: Generic, launch: ir.Operation, fills: Fills) -> None:
    """The launch does what the operator did."""
    filled = generic.fill_value()
    if filled is not None:
        fills.add(generic.outputs[0], launch, filled)
    generic.op.erase()


def _contract(block: ir.Block) -> None:
    """Lets a product and the sum it goes into be one instruction, rounded once."""
    with block.owner.context:
        contract = ir.Attribute.parse("#arith.fastmath<contract>")
    for op in block.operations:
        if op.operation.name in ("arith.mulf", "arith.addf"):
            op.operation.attributes["fastmath"] = contract


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

    def bounds(self, generic: Generic, kernel: Kernel, number: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The first point of a part, and that behind its last."""
        size = generic.size(self.loop, kernel.inside)
        length = as_value(ceildiv(size, self.count))
        first = arith.minui(arith.muli(number, length), as_value(size))
        return first, arith.minui(arith.addi(first, length), as_value(size))


def _parts(generic: Generic, threads: int) -> _Parts | None:
    """How to spread a reduction over the GPU whose results, with so many threads each, are too few for it."""
    with generic.op.context, generic.op.location, ir.InsertionPoint(generic.op):
        results = product([generic.size(d, lambda value: value) for d in generic.parallel])
        sizes = {d: generic.size(d, lambda value: value) for d in generic.reduction}
    if not isinstance(results, int) or results == 0:
        return None
    loop = max(sizes, key=lambda d: size if isinstance(size := sizes[d], int) else 1 << 30)
    size = sizes[loop]
    each = LEAST_PART * (WARP if threads == WARP and loop == generic.reduction[-1] else 1)
    count = min(SPREAD // (results * threads), 1024, size // each if isinstance(size, int) else 1024)
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
            bounds = {parts.loop: parts.bounds(generic, first, number)}
            neutral = [combiner.neutral() for combiner in joined]
            found = _reduce(generic, first, [dims], generic.reduction, neutral, lane, joined, bounds)
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
            starts = [_start(generic, second, i, dims, initial[i]) for i in range(len(generic.outputs))]
            loop = scf.ForOp(as_value(0), as_value(parts.count), as_value(1), starts)
            with ir.InsertionPoint(loop.body):
                at = arith.addi(arith.muli(loop.induction_variable, as_value(count)), index)
                values = [memref.load(second.inside(buffer), [at]) for buffer in partial]
                scf.yield_([one.join(a, b) for one, a, b in zip(joined, loop.inner_iter_args, values, strict=True)])
            _store(generic, second, [Point(dims)], list(loop.results))
    with op.context, op.location, ir.InsertionPoint(op):
        threads = parts.count * count * (WARP if by_warps else 1)
        first.launch(ceildiv(threads, THREADS))
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
                _start(generic, kernel, i, point.dims, initial[i])
                for point in points
                for i in range(len(generic.outputs))
            ]
            combine = joined and joined * len(points)
            found = _reduce(generic, kernel, [point.dims for point in points], generic.reduction, starts, None, combine)
            _store(generic, kernel, points, found)
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
            partial = _reduce(generic, kernel, dims, generic.reduction, neutral, lane, combine)
            total = [combiner.across_warp(part) for combiner, part in zip(combine, partial, strict=True)]
            with only_if(lane, 1):
                starts = [
                    _start(generic, kernel, i, point.dims, initial[i])
                    for point in points
                    for i in range(len(generic.outputs))
                ]
                found = [combiner.join(a, b) for combiner, a, b in zip(combine, starts, total, strict=True)]
                _store(generic, kernel, points, found)
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


def _items(generic: Generic, block: Blocking, see: Callable[[ir.Value], ir.Value]) -> Size:
    """The number of groups of points."""
    return product(_groups(generic, block, see))


def _groups(generic: Generic, block: Blocking, see: Callable[[ir.Value], ir.Value]) -> list[Size]:
    return [ceildiv(generic.size(d, see), block.get(d, 1)) for d in generic.parallel]


@dataclass
class Point:
    """Indices of the parallel loops, and whether they are inside (None: always). Outside, they are clamped."""

    dims: dict[int, ir.Value]
    inside: ir.Value | None = None


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


def _start(
    generic: Generic, kernel: Kernel, position: int, dims: dict[int, ir.Value], fill: ir.Value | None
) -> ir.Value | None:
    """What output `position` holds before; None when it is overwritten unseen."""
    if not generic.reads(position):
        return None
    if fill is not None:
        return kernel.inside(fill)
    indices = evaluate(generic.out_maps[position], _listed(dims, generic))
    return memref.load(kernel.inside(generic.outputs[position]), indices)


def _listed(dims: dict[int, ir.Value], generic: Generic) -> list[ir.Value]:
    """All loop indices in order; those of loops not yet entered are not looked at."""
    count = len(generic.parallel) + len(generic.reduction)
    return [dims.get(d) for d in range(count)]


def _store(generic: Generic, kernel: Kernel, points: Sequence[Point], values: Sequence[ir.Value]) -> None:
    """Stores the outputs of each point, one point after the other in `values`."""
    rest = iter(values)
    for point in points:
        guard = None if point.inside is None else scf.IfOp(point.inside)
        with contextlib.nullcontext() if guard is None else ir.InsertionPoint(guard.then_block):
            for buffer, map_ in zip(generic.outputs, generic.out_maps, strict=True):
                memref.store(next(rest), kernel.inside(buffer), evaluate(map_, _listed(point.dims, generic)))
            if guard is not None:
                scf.yield_([])


def _reduce(
    generic: Generic,
    kernel: Kernel,
    points: Sequence[dict[int, ir.Value]],
    loops: Sequence[int],
    state: list[ir.Value | None],
    lane: ir.Value | None = None,
    combine: Sequence[Combiner] | None = None,
    bounds: Mapping[int, tuple[ir.Value, ir.Value]] | None = None,
) -> list[ir.Value]:
    """The outputs at each point after the loops in `loops`, from the state before them, one point after the
    other; `lane` strides the last loop, and loops in `bounds` have their first and last points there. Where outputs are
    joined by `combine`, long sums of f32 are summed in parts."""
    if not loops:
        outs = len(generic.outputs)
        parts = [state[k * outs : (k + 1) * outs] for k in range(len(points))]
        return [
            value
            for dims, part in zip(points, parts, strict=True)
            for value in _clone_body(generic, kernel, dims, part)
        ]
    step = WARP if lane is not None and len(loops) == 1 else 1
    start = lane if lane is not None and len(loops) == 1 else as_value(0)
    size = generic.size(loops[0], kernel.inside)
    if bounds and loops[0] in bounds:
        begin, size = bounds[loops[0]]
        start = begin if step == 1 else arith.addi(begin, start)

    def over(first: ir.Value, last: ir.Value, before: list[ir.Value | None]) -> list[ir.Value]:
        loop = scf.ForOp(first, last, as_value(step), [value for value in before if value is not None])
        with ir.InsertionPoint(loop.body):
            values = iter(loop.inner_iter_args)
            inner = [None if value is None else next(values) for value in before]
            entered = [{**dims, loops[0]: loop.induction_variable} for dims in points]
            found = _reduce(generic, kernel, entered, loops[1:], inner, lane, combine, bounds)
            scf.yield_([new for new, old in zip(found, before, strict=True) if old is not None])
        results = iter(loop.results)
        return [new if old is None else next(results) for new, old in zip(found, before, strict=True)]

    if len(loops) > 1 or combine is None or not _is_rounded(combine, size, step):
        return over(start, as_value(size), state)
    parts = scf.ForOp(start, as_value(size), as_value(PART * step), state)
    with ir.InsertionPoint(parts.body):
        first = parts.induction_variable
        last = arith.minui(arith.addi(first, as_value(PART * step)), as_value(size))
        found = over(first, last, [one.neutral() for one in combine])
        scf.yield_([one.join(a, b) for one, a, b in zip(combine, parts.inner_iter_args, found, strict=True)])
    return list(parts.results)


def _is_rounded(combine: Sequence[Combiner], size: Size, step: int) -> bool:
    """Whether a loop of so many turns adds up numbers of f32 one by one, each sum a little off."""
    long = not isinstance(size, int) or size > 2 * PART * step
    return long and all(one.name == "arith.addf" for one in combine)


def _clone_body(
    generic: Generic, kernel: Kernel, dims: dict[int, ir.Value], state: list[ir.Value | None]
) -> list[ir.Value]:
    """The body's values at one point of the loops."""
    indices = _listed(dims, generic)
    values: dict[int, ir.Value] = {}
    for argument, operand, map_ in zip(generic.block.arguments, generic.inputs, generic.maps, strict=False):
        if not list(argument.uses):
            continue
        brought = kernel.inside(operand)
        is_buffer = isinstance(operand.type, ir.MemRefType)
        values[hash(argument)] = memref.load(brought, evaluate(map_, indices)) if is_buffer else brought
    outs = list(generic.block.arguments)[len(generic.inputs) :]
    values.update({hash(argument): value for argument, value in zip(outs, state, strict=True) if value is not None})
    return clone_into(generic.block, kernel, values, indices)
