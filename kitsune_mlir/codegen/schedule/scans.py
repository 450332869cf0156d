"""Running sums along the rows of tiles in registers, and what else one operation joins.

The threads that have a row together have neighbouring vectors of it, lane after lane, and then the next ones. Each
joins the columns of a vector one by one. What those before them have lanes tell each other in steps of twice the
distance of the one before (PTX ISA, shfl.up), and the last one tells all what stands before the next vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kitsune_mlir.codegen.hopper import warps
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.scan_joins import Found, Joining, joining
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, gpu, ir, location

Run = tuple[Sequence[Int], ir.Value | None]  # a thread's neighbouring columns; whether they are there, None: always


def scan(op: ir.Operation, evaluator: Evaluator, row: Int, runs: Sequence[Run], lane: ir.Value, lanes: int) -> None:
    """Makes known what a scan gives at a thread's columns of a row; all threads of the warp must be here."""
    how = joining(op)
    if how is None or lanes > warps.WARP:
        raise UnsupportedError(f"{location(op.location)}: a scan that is none of 32-bit numbers along a warp's rows")
    source, result = op.operands[0], op.results[0]
    before = how.of(how.neutral())
    for columns, inside in runs:
        elements = [evaluator(source, [row, column]) for column in columns]
        if inside is not None:
            elements = [arith.select(inside, x, how.neutral()) for x in elements]
        running = list(accumulate(map(how.of, elements), how.join))
        own, whole = _across(how, running[-1], before, lane, lanes)
        for column, found in zip(columns, running, strict=True):
            evaluator.know(result, [row, column], how.result(how.join(own, found)))
        before = whole


def _across(how: Joining, own: Found, before: Found, lane: ir.Value, lanes: int) -> tuple[Found, Found]:
    """What is before a lane's columns, and before the next ones of the first lane, of what each lane has."""
    joined, distance = own, 1
    while distance < lanes:
        moved = how.moved(distance, joined, gpu.ShuffleMode.UP)
        joined = _one_of(device.less(lane, distance), joined, how.join(moved, joined))
        distance *= 2
    if lanes == 1:
        return before, how.join(before, joined)
    others = how.join(before, how.moved(1, joined, gpu.ShuffleMode.UP))
    last = device.value(device.add(device.sub(warps.lane(), lane), lanes - 1))
    whole = how.join(before, how.moved(last, joined, gpu.ShuffleMode.IDX))
    return _one_of(device.less(lane, 1), before, others), whole


def _one_of(condition: ir.Value, a: Found, b: Found) -> Found:
    return tuple(arith.select(condition, one, other) for one, other in zip(a, b, strict=True))
