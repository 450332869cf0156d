"""Tensors that lie among the columns of longer rows: an encoding of their types, at the schedule level alone."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import TypeVar

from kitsune_mlir.mlir import ir

from .types import Kitsune

T = TypeVar("T")


class Columns(Kitsune.Attribute, name="columns"):
    """`#kitsune.columns<FIRST, OF, SHARED>`: the rows of a tensor of rows and columns are the columns from FIRST on of
    a tensor in memory whose rows have OF elements, each an i64. A tensor type without such an encoding lies dense.

    What lies beside the columns is other tensors' where SHARED, of i1, says so: a kernel reads and writes none of it.
    Elsewhere nobody reads it. The address that a kernel is given is that of the longer rows.
    """

    first: ir.IntegerAttr
    of: ir.IntegerAttr
    shared: ir.IntegerAttr


@dataclass(frozen=True)
class Place:
    """Where the rows of a tensor lie in memory, in elements: `first` is the place of the first element, and rows begin
    `pitch` apart, in which other tensors lie too where they are `shared`. A tensor of another rank than 2 is one row
    after another, its last dimension the row."""

    first: int
    pitch: int
    shared: bool = False

    @property
    def step(self) -> int:
        """A number of elements that divides the place of each row's first one."""
        return gcd(self.first, self.pitch)


def columns_of(kind: ir.Type, place: Place) -> ir.RankedTensorType:
    """The type of a tensor that lies there, among the columns of longer rows."""
    kind, i64 = ir.RankedTensorType(kind), ir.IntegerType.get_signless(64)
    numbers = (ir.IntegerAttr.get(i64, number) for number in (place.first, place.pitch))
    layout = Columns.get(*numbers, ir.BoolAttr.get(place.shared))
    return ir.RankedTensorType.get(kind.shape, kind.element_type, layout)


def is_among_columns(kind: ir.Type) -> bool:
    """Whether a type is that of a tensor among longer rows."""
    return isinstance(kind, ir.RankedTensorType) and kind.encoding is not None


def place_of(kind: ir.Type) -> Place:
    """Where the rows of a tensor of this type lie."""
    kind = ir.RankedTensorType(kind)
    if kind.encoding is None:
        return Place(0, kind.shape[-1] if kind.rank else 1)
    layout = Columns(kind.encoding)
    return Place(ir.IntegerAttr(layout.first).value, ir.IntegerAttr(layout.of).value, ir.BoolAttr(layout.shared).value)


def strides_of(kind: ir.Type) -> Sequence[int]:
    """The elements between neighbours along each dimension: so many, times the size that is open until the call for
    each of the dimensions behind it that have one (`open_behind`)."""
    kind, found = ir.RankedTensorType(kind), [1]
    for size in [place_of(kind).pitch, *kind.shape[-2:0:-1]][: kind.rank - 1]:
        found.insert(0, found[0] * (1 if size == ir.ShapedType.get_dynamic_size() else size))
    return found[: kind.rank]


def open_behind(kind: ir.Type, open_: Sequence[T]) -> list[list[T]]:
    """For each dimension those of the sizes `open_` until the call, which are given in their order, that the dimensions
    behind it have."""
    kind = ir.RankedTensorType(kind)
    before = [sum(map(kind.is_dynamic_dim, range(d + 1))) for d in range(kind.rank)]
    return [list(open_[count:]) for count in before]


def sizes_of(kind: ir.Type, open_: Sequence[T]) -> list[int | T]:
    """The sizes of a tensor, of which those that are `open_` until the call are given in their order."""
    kind, given = ir.RankedTensorType(kind), iter(open_)
    return [next(given) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]


def dense(kind: ir.Type) -> ir.RankedTensorType:
    """The type of the same tensor where it lies dense."""
    kind = ir.RankedTensorType(kind)
    return ir.RankedTensorType.get(kind.shape, kind.element_type)


def misplaced(kind: ir.Type) -> str:
    """Why a tensor cannot lie as its type says; empty where it can."""
    if not is_among_columns(kind):
        return ""
    kind = ir.RankedTensorType(kind)
    if not isinstance(kind.encoding, Columns):
        return f"a tensor's encoding is #kitsune.columns, found {kind.encoding}"
    place = place_of(kind)
    if kind.rank != 2 or kind.is_dynamic_dim(1):
        return f"lies among the columns of longer rows where it has rows and columns, found {kind}"
    if place.first < 0 or place.first + kind.shape[1] > place.pitch:
        return f"has {kind.shape[1]} columns from {place.first} on of rows of {place.pitch} elements"
    return ""
