"""Running sums, and what else one associative operation joins, along a dimension: all whose size is open until the
call, and of those that are known the many or short lines (others are elementwise steps: frontend/scans.py).

    tm_tensor.scan dimension(1) inclusive(true) ins(%x) outs(%y, %last) { arith.addf }

A warp has a line. In a turn each lane joins EACH neighbours, lanes tell each other what those before them have (PTX
ISA, shfl.up), and what came before the turn goes from turn to turn. Where lines are too few for all warps of a GPU, a
block of several has one: what each warp joined goes through shared memory, and every warp joins that of those before.

Where many lines are neighbours in memory, the lanes of a warp have one each, and the warps of a block share these: in a
turn each has the next ROWS elements, and what those before it found it reads in shared memory.

    thread (warp w of W, lane c):   for first in 0, W ROWS, ...:  x[0 .. ROWS] = what stands at first + w ROWS, joined
                                    shared[w][c] = x[ROWS - 1];  barrier;  before = shared[0 .. w][c] joined
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod

from kitsune_mlir import example_sizes
from kitsune_mlir.mlir import arith, attr_int, func, gpu, ir, memref, scf, walk
from kitsune_mlir.operations import erase_unused, producer
from kitsune_mlir.planning.scans import EACH, LEAST_BESIDE, SMS, WARP, warps_of_line

from .gpu_around import Around, Operators
from .gpu_buffers import is_alloc, uses_of
from .gpu_kernel import (
    THREADS,
    Kernel,
    Kernels,
    See,
    Size,
    as_value,
    ceildiv,
    delinearize,
    in_block,
    of_warp,
    on_host,
    only_if,
    product,
)
from .gpu_points import body_at
from .gpu_word_access import WORD, bytes_of, keeps_words, load_word, store_word
from .pipeline.device import below, narrow
from .scan_joins import Found, Joining, is_inclusive, joining

MOST, LITTLE = 96, 8  # operations of what is computed in front of a kernel of many lines, and of others
_MANY = SMS * WARP  # lines, of which each SM has a block
ROWS, MOST_WARPS = 8, 16  # elements of a thread in a turn, and warps of such a block


def without_fills(main: func.FuncOp) -> None:
    """Lets scans on tensors write into tensors that nothing has filled: each element is written, and the last ones of
    lines are read by nobody, as a rule."""
    for op in walk(main, "tm_tensor.scan"):
        for number, result in enumerate(op.results):
            fill = producer(op.operands[1 + number])
            unread = number == 0 and is_inclusive(op) or not list(result.uses)
            if unread and fill is not None and fill.name == "linalg.fill":
                op.operands[1 + number] = fill.operands[1]
                erase_unused(fill)


def lower_scans(main: func.FuncOp, kernels: Kernels) -> None:
    """Puts a kernel in the place of each tm_tensor.scan on memrefs that is one of these; others become loops."""
    found = [(op, how) for op in walk(main, "tm_tensor.scan") if (how := joining(op)) is not None]
    taken = set[ir.Operation]()
    around = [_around(op, taken) for op, _ in found]
    for (op, how), own in zip(found, around, strict=True):
        operators = own.read([op.operands[0]])
        _lower(op, how, operators, kernels)
        operators.erase()
        op.erase()


def _around(op: ir.Operation, taken: set[ir.Operation]) -> Around:
    """What is elementwise before a scan, and behind it where all elements are in a buffer of its own."""
    result, sizes = op.operands[1], example_sizes.shape_of(op.operands[0])
    lines = prod(size for d, size in enumerate(sizes) if d != attr_int(op, "dimension"))
    most = MOST if lines >= _MANY else LITTLE
    return Around.of(op, [op.operands[0]], most, taken, behind=is_alloc(result), results=[result])


def _lower(op: ir.Operation, how: Joining, around: Operators, kernels: Kernels) -> None:
    source, dim = op.operands[0], attr_int(op, "dimension")
    kind = ir.MemRefType(source.type)
    inner = [WARP if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(dim + 1, kind.rank)]
    scan = _Scan(op, how, around, [d for d in range(kind.rank) if d != dim], dim)
    beside = bool(inner) and product(inner) >= LEAST_BESIDE
    if (warps := _warps_of_line(scan, beside)) > 1:
        _of_blocks(scan, kernels, warps)
    elif beside:
        _of_lanes(
            scan, kernels, MOST_WARPS if kind.is_dynamic_dim(dim) else min(MOST_WARPS, ceildiv(kind.shape[dim], ROWS))
        )
    else:
        _of_warps(scan, kernels)


@dataclass(frozen=True)
class _Scan:
    """A scan on memrefs along dimension `dim`; `outer` are the others."""

    op: ir.Operation
    how: Joining
    around: Operators
    outer: list[int]
    dim: int

    def sizes(self, see: See) -> list[Size]:
        """Those of the other dimensions."""
        return [self.around.size(self.op.operands[0], d, see) for d in self.outer]

    def length(self, see: See) -> Size:
        """That of the lines."""
        return self.around.size(self.op.operands[0], self.dim, see)

    def at(self, place: list[ir.Value], number: ir.Value) -> list[ir.Value]:
        """The indices of an element of a line."""
        return [*place[: self.dim], number, *place[self.dim :]]

    def load(self, kernel: Kernel, place: list[ir.Value], number: ir.Value, size: ir.Value) -> Found:
        """An element; what is neutral behind the last."""
        last = arith.minui(number, arith.subi(size, as_value(1)))
        at, made = self.at(place, last), self.around.before[0]
        if made is None:
            own = memref.load(kernel.inside(self.op.operands[0]), at)
        else:
            generic, result = made
            own = body_at(generic, kernel, dict(enumerate(at)), [None] * len(generic.outputs))[result]
        return self.how.of(arith.select(below(number, size), own, self.how.neutral()))

    def load_each(self, kernel: Kernel, place: list[ir.Value], first: ir.Value, size: ir.Value) -> list[Found]:
        """EACH neighbours of a line, as a word where they are one."""
        if not self._has_words(0):
            return [self.load(kernel, place, arith.addi(first, as_value(e)), size) for e in range(EACH)]
        last = arith.minui(first, arith.subi(size, as_value(EACH)))
        there, neutral = below(first, size), self.how.neutral()
        words = load_word(kernel.inside(self.op.operands[0]), self.at(place, last), EACH)
        return [self.how.of(arith.select(there, value, neutral)) for value in words]

    def store_each(
        self, found: list[Found], kernel: Kernel, place: list[ir.Value], first: ir.Value, size: ir.Value
    ) -> None:
        if self._has_words(1):
            with only_if(first, size):
                values = [self.how.result(each) for each in found]
                store_word(values, kernel.inside(self.op.operands[1]), self.at(place, first))
            return
        for e, each in enumerate(found):
            self.store(each, kernel, place, arith.addi(first, as_value(e)), size)

    def store(self, found: Found, kernel: Kernel, place: list[ir.Value], number: ir.Value, size: ir.Value) -> None:
        """Stores an element, where there is one, or has others take it."""
        with only_if(number, size):
            value, at, result = self.how.result(found), self.at(place, number), self.op.operands[1]
            if self.around.after:
                self.around.take(kernel, {result: value}, at)
            else:
                memref.store(value, kernel.inside(result), at)

    def _has_words(self, side: int) -> bool:
        """Whether lines of what is read (0), or written (1), are whole words of EACH elements that lie side by side."""
        is_made, x = (self.around.before[0], self.around.after)[side], self.op.operands[side]
        fits = keeps_words(x, EACH) and 0 < EACH * bytes_of(x.type) <= WORD
        return not is_made and self.dim == len(self.outer) and fits

    def keep_last(self, kernel: Kernel, found: Found, place: list[ir.Value], thread: ir.Value) -> None:
        """Stores what all elements of a line are together, where somebody reads that; thread 0 does."""
        last = self.op.operands[2]
        if any(use.owner.operation != self.op for use in uses_of(last)):
            with only_if(thread, 1):
                memref.store(self.how.result(found), kernel.inside(last), place)


def _of_warps(scan: _Scan, kernels: Kernels) -> None:
    """A warp has a line."""
    how, kernel = scan.how, Kernel(kernels, scan.op, "scan")
    with kernel.body():
        (lane, line), own = of_warp(), scan.sizes(kernel.inside)
        with only_if(line, product(own)):
            size, place = as_value(scan.length(kernel.inside)), delinearize(line, own)
            loop = scf.ForOp(as_value(0), size, as_value(WARP * EACH), how.of(how.neutral()))
            with ir.InsertionPoint(loop.body):
                first = arith.addi(loop.induction_variable, arith.muli(lane, as_value(EACH)))
                loaded = scan.load_each(kernel, place, first, size)
                running = list(accumulate(loaded, how.join))
                before, behind = _across(running[-1], lane, tuple(loop.inner_iter_args), how)
                scan.store_each([how.join(before, found) for found in running], kernel, place, first, size)
                scf.yield_(behind)
            scan.keep_last(kernel, tuple(loop.results), place, lane)
    kernel.launch(lambda: ceildiv(product(scan.sizes(on_host)), THREADS // WARP))


def _warps_of_line(scan: _Scan, beside: bool) -> int:
    """How many warps are to have a line, as the example has it. Of lines that stand side by side a warp's elements lie
    in as many lines of the cache: an SM has no more than one."""
    sizes = list(example_sizes.shape_of(scan.op.operands[0]))
    size = sizes.pop(scan.dim)
    return 1 if beside and prod(sizes) > SMS else warps_of_line(size, prod(sizes))


def _of_blocks(scan: _Scan, kernels: Kernels, warps: int) -> None:
    """So many warps have a line. What they joined in a turn lies in one of two places in turn: who writes there again
    has met all others once more since they read it."""
    how, kernel = scan.how, Kernel(kernels, scan.op, "scan", warps * WARP)
    with kernel.body():
        thread, own = gpu.thread_id(gpu.Dimension.x), scan.sizes(kernel.inside)
        warp, lane = in_block(thread)
        size, place = as_value(scan.length(kernel.inside)), delinearize(gpu.block_id(gpu.Dimension.x), own)
        shared = [kernel.shared([2, warps], kind) for kind in how.kinds]
        step = warps * WARP * EACH
        loop = scf.ForOp(as_value(0), size, as_value(step), how.of(how.neutral()))
        with ir.InsertionPoint(loop.body):
            turn = arith.remui(arith.divui(loop.induction_variable, as_value(step)), as_value(2))
            first = arith.addi(loop.induction_variable, arith.muli(thread, as_value(EACH)))
            running = list(accumulate(scan.load_each(kernel, place, first, size), how.join))
            nothing = how.of(how.neutral())
            before, whole = _across(running[-1], lane, nothing, how)
            with only_if(lane, 1):
                for value, buffer in zip(whole, shared, strict=True):
                    memref.store(value, buffer, [turn, warp])
            gpu.barrier()
            last = arith.minui(lane, as_value(warps - 1))
            wholes = tuple(memref.load(buffer, [turn, last]) for buffer in shared)
            wholes = _one_of(below(lane, as_value(warps)), wholes, nothing)
            ahead, behind = _across(wholes, lane, tuple(loop.inner_iter_args), how)
            before = how.join(how.moved(narrow(warp), ahead, gpu.ShuffleMode.IDX), before)
            scan.store_each([how.join(before, found) for found in running], kernel, place, first, size)
            scf.yield_(behind)
        scan.keep_last(kernel, tuple(loop.results), place, thread)
    kernel.launch(lambda: product(scan.sizes(on_host)))


def _of_lanes(scan: _Scan, kernels: Kernels, warps: int) -> None:
    """A lane has a line, and so have those of the other warps of its block. All come to the barriers: lanes behind the
    last line do what that does."""
    how, kernel = scan.how, Kernel(kernels, scan.op, "scan", warps * WARP)
    with kernel.body():
        thread, own = gpu.thread_id(gpu.Dimension.x), scan.sizes(kernel.inside)
        warp, lane = in_block(thread)
        line = arith.addi(arith.muli(gpu.block_id(gpu.Dimension.x), as_value(WARP)), lane)
        last = arith.subi(as_value(product(own)), as_value(1))
        size, place = as_value(scan.length(kernel.inside)), delinearize(arith.minui(line, last), own)
        shared = [kernel.shared([warps, WARP], kind) for kind in how.kinds]
        loop = scf.ForOp(as_value(0), size, as_value(warps * ROWS), how.of(how.neutral()))
        with ir.InsertionPoint(loop.body):
            first = arith.addi(loop.induction_variable, arith.muli(warp, as_value(ROWS)))
            numbers = [arith.addi(first, as_value(e)) for e in range(ROWS)]
            loaded = [scan.load(kernel, place, i, size) for i in numbers]  # on their way together
            running = list(accumulate(loaded, how.join))
            for value, buffer in zip(running[-1], shared, strict=True):
                memref.store(value, buffer, [warp, lane])
            gpu.barrier()
            before = behind = tuple(loop.inner_iter_args)
            for number in range(warps):
                behind = how.join(behind, tuple(memref.load(buffer, [as_value(number), lane]) for buffer in shared))
                before = _one_of(below(as_value(number), warp), behind, before)
            gpu.barrier()  # all have read before the next turn
            for i, found in zip(numbers, running, strict=True):
                scan.store(how.join(before, found), kernel, place, i, size)
            scf.yield_(behind)
        scan.keep_last(kernel, tuple(loop.results), place, warp)
    kernel.launch(lambda: ceildiv(product(scan.sizes(on_host)), WARP))


def _across(joined: Found, lane: ir.Value, before: Found, how: Joining) -> tuple[Found, Found]:
    """What is before a lane's own elements, which are `joined`, and what is before the next turn."""
    distance = 1
    while distance < WARP:
        moved = how.join(how.moved(distance, joined, gpu.ShuffleMode.UP), joined)
        joined = _one_of(below(lane, as_value(distance)), joined, moved)
        distance *= 2
    others = how.join(before, how.moved(1, joined, gpu.ShuffleMode.UP))
    whole = how.moved(WARP - 1, joined, gpu.ShuffleMode.IDX)
    return _one_of(below(lane, as_value(1)), before, others), how.join(before, whole)


def _one_of(condition: ir.Value, a: Found, b: Found) -> Found:
    return tuple(arith.select(condition, one, other) for one, other in zip(a, b, strict=True))
