"""What the feeding thread of a chain does with a tile: boxes that it copies, and loops of those, in the order in which
warpgroups ask for them (chain_products.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeAlias

from kitsune_mlir.dialects import schedule
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir

LEAST_TURNS, LEAST_BOXES = 3, 8  # of a loop of the feeding thread: one of them
MOST_IN_TURN = 64  # boxes of a loop's turn


@dataclass(frozen=True)
class Fill:
    """A slot that is filled: of which ring, with the box of a tensor from these places on, of so many rows; in a loop
    over layers with that of the layer's tensor. A streamed tile's rows are those of the tile that the CTA works on."""

    ring: str
    sources: tuple[ir.Value, ...]
    row: int  # from where a loop over passes is, on
    column: int | None  # None: where the loop over chunks is
    rows: int
    start: int = 0  # the first column, of which `column` or the loop counts on
    in_pass: bool = False
    share_rows: int = 0  # of a CTA of a cluster, behind those of the CTAs before
    part: tuple[int, int] | None = None  # how far behind the CTA is whose columns are meant, and how many each has


@dataclass(frozen=True)
class Fills:
    """Fills in a loop from `first` on to `last`: over "layers", that are equal, over "passes", the columns of a product
    that is computed in several, or over the columns of "chunks"."""

    over: str
    first: int
    last: int
    step: int
    body: Filling


Filling: TypeAlias = list[Fill | Fills]


def of_ring(filling: Filling, ring: str) -> list[Fill]:
    """The boxes of a ring, in the order in which they are asked for, those of loops over chunks one by one."""
    found = []
    for fill in filling:
        if isinstance(fill, Fills):
            turns = range(fill.first, fill.last, fill.step)
            found += [
                replace(one, column=turn if one.column is None else one.column)
                for turn in turns
                for one in of_ring(fill.body, ring)
            ]
        elif fill.ring == ring:
            found.append(fill)
    return found


def without_ring(filling: Filling, ring: str) -> Filling:
    """All other boxes."""
    loops = [replace(fill, body=without_ring(fill.body, ring)) if isinstance(fill, Fills) else fill for fill in filling]
    return [fill for fill in loops if isinstance(fill, Fills) or fill.ring != ring]


def rolled(filling: Filling) -> Filling:
    """The same with what repeats as loops, one in another: boxes whose columns, or rows, are as far from those before
    each time, or that differ in their tensors alone. The feeding thread's code is small, so that it does not push that
    of warpgroups out of the instruction cache (128 KiB on an H100)."""
    found: Filling = []
    while filling:
        periods = range(1, min(MOST_IN_TURN, len(filling) // 2) + 1)
        count, over, period = max(
            ((_repeated(filling, period, over) * period, over, period) for period in periods for over in _STEPS),
            key=itemgetter(0),
            default=(0, "", 1),
        )
        if count < LEAST_BOXES and count < LEAST_TURNS * period:
            count = 1
            found.append(filling[0])
        else:
            found.append(_loop([fill for fill in filling[:count] if isinstance(fill, Fill)], over, period))
        filling = filling[count:]
    return found


def _repeated(filling: Filling, period: int, over: str) -> int:
    """How many turns a loop of the first so many fills would have; 0 where there is none."""
    steps: set[int] = set()
    for number, (before, fill) in enumerate(zip(filling, filling[period:])):
        alike = isinstance(before, Fill) and isinstance(fill, Fill) and _STEPS[over](before, fill)
        if not alike or len(steps | {alike}) > 1:
            turns = 1 + number // period
            return turns if turns > 1 else 0
        steps.add(alike)
    return len(filling) // period


def _loop(members: list[Fill], over: str, period: int) -> Fills:
    """A loop of the first so many of equal groups of fills."""
    body, turns = members[:period], len(members) // period
    step = _STEPS[over](members[0], members[period])
    if over == "layers":
        body = [replace(fill, sources=tuple(m.sources[0] for m in members[i::period])) for i, fill in enumerate(body)]
        return Fills(over, 0, turns, step, rolled([*body]))
    places = [fill.row if over == "passes" else fill.column or 0 for fill in body]
    first = min(places)
    if over == "passes":
        body = [replace(fill, in_pass=True, row=row - first) for fill, row in zip(body, places)]
    else:
        body = [replace(f, column=None, start=f.start + column - first) for f, column in zip(body, places)]
    return Fills(over, first, first + turns * step, step, rolled([*body]))


def _columns_apart(one: Fill, other: Fill) -> int:
    """How far one fill's columns stand before another's that is the same otherwise; 0 where they are not alike."""
    if one.column is None or other.column is None or one.column >= other.column:
        return 0
    return other.column - one.column if replace(one, column=other.column) == other else 0


def _rows_apart(one: Fill, other: Fill) -> int:
    """The same of rows."""
    if one.in_pass or one.row >= other.row:
        return 0
    return other.row - one.row if replace(one, row=other.row) == other else 0


def _tensors_apart(one: Fill, other: Fill) -> int:
    """1 where two fills differ in their tensors, of one type, alone; else 0."""
    if len(one.sources) > 1 or len(other.sources) > 1 or one.sources[0].type != other.sources[0].type:
        return 0
    if not isinstance(one.sources[0].type, ir.RankedTensorType):  # a ring between roles
        return 0
    return int(one.sources != other.sources and replace(one, sources=other.sources) == other)


_STEPS = {"chunks": _columns_apart, "passes": _rows_apart, "layers": _tensors_apart}


def place(counter: ir.Value | None, number: int) -> ir.Value:
    """A place that may depend on a loop's counter."""
    if counter is None:
        return constant_index(number)
    return arith.addi(counter, constant_index(number)) if number else counter


def selected(tensors: Sequence[ir.Value], layer: ir.Value | None) -> ir.Value:
    """The tensor of a layer, of one for each; the only one elsewhere."""
    if layer is None or len(tensors) == 1:
        return tensors[0]
    return schedule.SelectOp(layer, list(tensors), tensors[0].type).results[0]
