"""What the feeding thread of a chain does with a tile: boxes that it copies, and loops of those, in the order in which
warpgroups ask for them (chain_products.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TypeAlias

from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import arith, ir

from .schedule_build import constant_index

LEAST_LOOP = 3  # boxes that the feeding thread copies in a loop


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


def rolled(filling: Filling, chunk: int) -> Filling:
    """Runs of boxes that are neighbours in a weight as loops: the feeding thread's code is small, so that it does not
    push that of warpgroups out of the instruction cache."""
    found: Filling = []
    for _, run in groupby(enumerate(filling), partial(_neighbours, chunk)):
        members = [fill for _, fill in run]
        first = members[0]
        if len(members) < LEAST_LOOP or not isinstance(first, Fill) or first.column is None:
            found += members
            continue
        end = first.column + len(members) * chunk
        found.append(Fills("chunks", first.column, end, chunk, [replace(first, column=None)]))
    return found


def _neighbours(chunk: int, place: tuple[int, Fill | Fills]) -> object:
    """A key that boxes have in common which lie one behind the other in columns, and are filled so."""
    number, fill = place
    if not isinstance(fill, Fill) or fill.column is None:
        return number
    sources = tuple(hash(source) for source in fill.sources)
    return sources, fill.ring, fill.row, fill.start, fill.part, fill.column - number * chunk


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
