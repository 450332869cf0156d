"""Running sums, and what else one associative operation joins, along a dimension: all whose size is open until the
call, and of those that are known the many or short lines (others are elementwise steps: frontend/scans.py).

    tm_tensor.scan dimension(1) inclusive(true) ins(%x) outs(%y, %last) { arith.addf }

A warp has a line. In a turn each lane joins EACH neighbours, lanes tell each other what those before them have (PTX
ISA, shfl.up), and what came before the turn goes from turn to turn. Neighbouring lines are of one block: where they are
neighbours in memory, too, what one warp loads the others find in the L1.
"""

from __future__ import annotations

from itertools import accumulate

from kitsune_mlir.mlir import arith, attr_int, func, gpu, ir, memref, scf, walk
from kitsune_mlir.rows import producer

from .gpu_buffers import uses_of
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
    extent,
    of_warp,
    on_host,
    only_if,
    product,
)
from .gpu_reduction import JOINS, Combiner
from .pipeline.device import below

EACH = 4  # neighbours of a lane


def without_fills(main: func.FuncOp) -> None:
    """Lets scans on tensors write into tensors that nothing has filled: each element is written, and the last ones of
    lines are read by nobody, as a rule."""
    for op in walk(main, "tm_tensor.scan"):
        for number, result in enumerate(op.results):
            fill = producer(op.operands[1 + number])
            unread = number == 0 and _is_inclusive(op) or not list(result.uses)
            if unread and fill is not None and fill.name == "linalg.fill":
                op.operands[1 + number] = fill.operands[1]
                if not list(fill.results[0].uses):
                    fill.erase()


def lower_scans(main: func.FuncOp, kernels: Kernels) -> None:
    """Puts a kernel in the place of each tm_tensor.scan on memrefs that is one of these; others become loops."""
    for op in walk(main, "tm_tensor.scan"):
        combine = _combiner(op)
        if combine is not None:
            _lower(op, combine, kernels)
            op.erase()


def _combiner(op: ir.Operation) -> Combiner | None:
    """How elements are joined; None where that is not one operation, or the first element is left out."""
    block, kind = op.regions[0].blocks[0], ir.MemRefType(op.operands[0].type).element_type
    join, *_, end = [inner.operation for inner in block.operations]
    whole = isinstance(kind, ir.IntegerType | ir.F32Type | ir.F64Type)
    if not whole or not _is_inclusive(op) or join.name not in JOINS or list(end.operands) != list(join.results):
        return None
    return Combiner(join.name, kind) if set(join.operands) == set(block.arguments) else None


def _is_inclusive(op: ir.Operation) -> bool:
    return "inclusive" in op.attributes and ir.BoolAttr(op.attributes["inclusive"]).value


def _lower(op: ir.Operation, combine: Combiner, kernels: Kernels) -> None:
    source, target, last = op.operands
    dim, rank = attr_int(op, "dimension"), ir.MemRefType(source.type).rank
    outer = [d for d in range(rank) if d != dim]
    is_read = any(use.owner.operation != op for use in uses_of(last))

    def sizes(see: See) -> list[Size]:
        return [extent(see(source), d) for d in outer]

    kernel = Kernel(kernels, op, "scan")
    with kernel.body():
        (lane, line), own = of_warp(), sizes(kernel.inside)
        with only_if(line, product(own)):
            x, y = kernel.inside(source), kernel.inside(target)
            size, place = as_value(extent(x, dim)), delinearize(line, own)
            loop = scf.ForOp(as_value(0), size, as_value(WARP * EACH), [combine.neutral()])
            with ir.InsertionPoint(loop.body):
                first = arith.addi(loop.induction_variable, arith.muli(lane, as_value(EACH)))
                at = [arith.addi(first, as_value(e)) for e in range(EACH)]
                found = [_load(x, [*place[:dim], i, *place[dim:]], dim, size, combine) for i in at]
                running = list(accumulate(found, combine.join))
                before, behind = _across(running[-1], lane, loop.inner_iter_args[0], combine)
                for i, value in zip(at, running, strict=True):
                    with only_if(i, size):
                        memref.store(combine.join(before, value), y, [*place[:dim], i, *place[dim:]])
                scf.yield_([behind])
            if is_read:
                with only_if(lane, 1):
                    memref.store(loop.results[0], kernel.inside(last), place)
    kernel.launch(lambda: ceildiv(product(sizes(on_host)), THREADS // WARP))


def _load(x: ir.Value, at: list[ir.Value], dim: int, size: ir.Value, combine: Combiner) -> ir.Value:
    """An element; what is neutral behind the last."""
    there = below(at[dim], size)
    at[dim] = arith.minui(at[dim], arith.subi(size, as_value(1)))
    return arith.select(there, memref.load(x, at), combine.neutral())


def _across(joined: ir.Value, lane: ir.Value, before: ir.Value, combine: Combiner) -> tuple[ir.Value, ir.Value]:
    """What is before a lane's own elements, which are `joined`, and what is before the next turn."""
    distance = 1
    while distance < WARP:
        moved = combine.join(combine.moved(distance, joined, gpu.ShuffleMode.UP), joined)
        joined = arith.select(below(lane, as_value(distance)), joined, moved)
        distance *= 2
    others = combine.join(before, combine.moved(1, joined, gpu.ShuffleMode.UP))
    whole = combine.moved(WARP - 1, joined, gpu.ShuffleMode.IDX)
    return arith.select(below(lane, as_value(1)), before, others), combine.join(before, whole)
