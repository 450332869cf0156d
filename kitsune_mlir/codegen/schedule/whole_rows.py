"""Whole rows of tensors as the threads of a warpgroup read and write them together."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.hopper.fragments import Fragment, Lanes, LoadedRows, PairedMemory
from kitsune_mlir.codegen.hopper.place import place_rows
from kitsune_mlir.codegen.hopper.scatter import add_rows
from kitsune_mlir.codegen.hopper.stores import Boxes, Outbox
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.memory import storage_type
from kitsune_mlir.dialects.columns import open_behind, place_of, sizes_of, strides_of
from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import ir


def read(
    op: ir.Operation, pointer: ir.Value, open_: Sequence[ir.Value], at: tuple[Int, Int], own: Boxes, lanes: Lanes
) -> PairedMemory | LoadedRows:
    """The copy's rows of the tensor that `op` reads, from a row and a column on; in the place of those beyond it the
    last. `open_` are its sizes that are open until the call. Rows that are read ahead are loaded here, others where
    they are used."""
    type_, (row, column) = op.operands[0].type, at
    first = device.sub(row, own.first_row)  # the first of all copies, which the tensor has
    last = device.sub(device.sub(sizes_of(type_, open_)[0], first), 1)
    loaded = tuple(device.least(device.add(one, own.first_row), last) for one in lanes.rows)
    width = ir.RankedTensorType(op.results[0].type).shape[1]
    memory = _from_row(pointer, type_, first, Lanes(lanes.rows, loaded, lanes.pair), column, width)
    return memory.load_rows(lanes) if "ahead" in op.attributes else memory


def write(
    pointer: ir.Value,
    type_: ir.Type,
    open_: Sequence[ir.Value],
    at: tuple[Int, Int],
    outbox: Outbox,
    tile: Fragment,
) -> None:
    """Writes columns of the copy's rows, from a row and a column on, row by row. `open_` are the sizes of the matrix
    that are open until the call."""
    row, column = at
    first, (count, width), columns = device.sub(row, outbox.boxes.first_row), sizes_of(type_, open_), tile.width
    memory = _from_row(pointer, type_, first, tile.lanes, open_=open_)
    if isinstance(width, int):
        tile = _as_wide(tile, width)
    valid = device.value(device.sub(count, first))
    outbox.store_rows(tile, memory, columns, column, valid, width)


def of_batch(
    pointer: ir.Value, type_: ir.Type, open_: Sequence[ir.Value], batch: Sequence[Int]
) -> tuple[ir.Value, ir.Type, Sequence[ir.Value]]:
    """The matrix at these places of the first dimensions of a tensor: its address, type, and those of the sizes `open_`
    until the call that it has."""
    if not batch:
        return pointer, type_, open_
    kind = ir.RankedTensorType(type_)
    for at, stride, behind in zip(batch, strides_of(type_), open_behind(type_, open_), strict=False):
        pointer = device.further(pointer, at, stride, storage_type(kind.element_type), behind)
    before = sum(map(kind.is_dynamic_dim, range(kind.rank - 2)))
    return pointer, ir.RankedTensorType.get(kind.shape[-2:], kind.element_type, kind.encoding), open_[before:]


def write_to(
    op: ir.Operation,
    output: ir.Value,
    kind: ir.RankedTensorType,
    column: Int,
    to: Sequence[ir.Value],
    exists: Sequence[ir.Value],
    tile: Fragment,
    outbox: Outbox,
) -> None:
    """Writes or adds a tile's rows, of which a thread has two, to those of an output (address) of this type that `to`
    names, from a column on; `exists` (i1) says whether the tile has them."""
    rows, width = kind.shape
    whole = _as_wide(tile, width)
    if not op.opview.adds:
        place_rows(whole, output, to, exists, tile.width, column, outbox)
        return
    i64 = ir.IntegerType.get_signless(64)
    places = [extended(row, i64) for row in to]
    inside = [index_checks.may_add(op, row, rows, there) for row, there in zip(places, exists, strict=True)]
    add_rows(whole, output, places, inside, tile.width, column, outbox)


def _as_wide(tile: Fragment, width: int) -> Fragment:
    """The columns of a tile as those of one that is as wide as a tensor."""
    whole = Fragment(tile.lanes, tile.element, (tile.shape[0], width), compute=tile.make)
    whole.words, whole.values, whole.loads = tile.words, tile.values, tile.loads
    return whole


def _from_row(
    pointer: ir.Value,
    type_: ir.Type,
    first: Int,
    lanes: Lanes,
    column: Int = 0,
    width: int | None = None,
    open_: Sequence[ir.Value] = (),
) -> PairedMemory:
    """A tensor of two dimensions from a row and a column on, so many columns of it; the column is a multiple of 16
    bytes. Of one whose columns are open there are as many as the last of `open_`."""
    kind, place = ir.RankedTensorType(type_), place_of(type_)
    if kind.is_dynamic_dim(1):
        begin = device.further(pointer, first, 1, storage_type(kind.element_type), open_[-1:])
        return PairedMemory(begin, kind.element_type, (kind.shape[0], 1), open_[-1], lanes, 1)
    begin = device.further(pointer, first, place.pitch, storage_type(kind.element_type))
    begin = device.offset(begin, device.add(column, place.first), storage_type(kind.element_type))
    shape = kind.shape[0], kind.shape[1] if width is None else width
    return PairedMemory(begin, kind.element_type, shape, place.pitch, lanes, place.step)
