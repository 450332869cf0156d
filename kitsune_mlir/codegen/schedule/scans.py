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
from kitsune_mlir.codegen.scan_joins import BACKWARDS, BEFORE, Found, Joining, joining
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, gpu, ir, location

Run = tuple[Sequence[Int], ir.Value | None]  # a thread's neighbouring columns; whether they are there, None: always


def scan(op: ir.Operation, evaluator: Evaluator, row: Int, runs: Sequence[Run], lane: ir.Value, lanes: int) -> None:
    """Makes known what a scan gives at a thread's columns of a row; all threads of the warp must be here."""
    how = joining(op)
    if how is None or lanes > warps.WARP:
        raise UnsupportedError(f"{location(op.location)}: a scan that is none of 32-bit numbers along a warp's rows")
    source, result = op.operands[0], op.results[0]
    before, backwards, leaves_out = how.of(how.neutral()), BACKWARDS in op.attributes, BEFORE in op.attributes
    order = slice(None, None, -1 if backwards else 1)
    for columns, inside in runs[order]:
        columns = columns[order]
        elements = [evaluator(source, [row, column]) for column in columns]
        if inside is not None:
            elements = [arith.select(inside, x, how.neutral()) for x in elements]
        running = list(accumulate(map(how.of, elements), how.join))
        own, whole = _across(how, running[-1], before, lane, lanes, backwards)
        found = [how.join(own, each) for each in running]
        for column, each in zip(columns, [own, *found] if leaves_out else found, strict=False):
            evaluator.know(result, [row, column], how.result(each))
        before = whole


def _across(
    how: Joining, own: Found, before: Found, lane: ir.Value, lanes: int, backwards: bool
) -> tuple[Found, Found]:
    """What is before a lane's columns, and before the next ones of the first lane, of what each lane has; the last lane
    is the first one `backwards`."""
    place = device.sub(lanes - 1, lane) if backwards else lane

    def moved(distance: int, joined: Found) -> Found:
        if not backwards:
            return how.moved(distance, joined, gpu.ShuffleMode.UP)
        other = device.least(device.add(warps.lane(), distance), warps.WARP - 1)
        return how.moved(device.value(other), joined, gpu.ShuffleMode.IDX)

    joined, distance = own, 1
    while distance < lanes:
        joined = _one_of(device.less(place, distance), joined, how.join(moved(distance, joined), joined))
        distance *= 2
    if lanes == 1:
        return before, how.join(before, joined)
    last = device.value(device.add(device.sub(warps.lane(), lane), 0 if backwards else lanes - 1))
    whole = how.join(before, how.moved(last, joined, gpu.ShuffleMode.IDX))
    return _one_of(device.less(place, 1), before, how.join(before, moved(1, joined))), whole


def _one_of(condition: ir.Value, a: Found, b: Found) -> Found:
    return tuple(arith.select(condition, one, other) for one, other in zip(a, b, strict=True))
