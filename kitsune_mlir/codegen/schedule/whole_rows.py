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
from kitsune_mlir.dialects.columns import open_behind, place_of, strides_of
from kitsune_mlir.mlir import arith, ir


def read(
    op: ir.Operation, pointer: ir.Value, rows: ir.Value, at: tuple[Int, Int], own: Boxes, lanes: Lanes
) -> PairedMemory | LoadedRows:
    """The copy's rows of the tensor that `op` reads, from a row and a column on; in the place of those beyond it the
    last. `rows` is its first size where that is open. Those that are read ahead are loaded here, others where they are
    used."""
    type_, (row, column) = op.operands[0].type, at
    first = device.sub(row, own.first_row)  # the first of all copies, which the tensor has
    last = device.sub(device.sub(_count(type_, rows), first), 1)
    loaded = tuple(device.least(device.add(one, own.first_row), last) for one in lanes.rows)
    width = ir.RankedTensorType(op.results[0].type).shape[1]
    memory = _from_row(pointer, type_, first, Lanes(lanes.rows, loaded, lanes.pair), column, width)
    return memory.load_rows(lanes) if "ahead" in op.attributes else memory


def write(
    pointer: ir.Value, type_: ir.Type, rows: ir.Value, at: tuple[Int, Int], outbox: Outbox, tile: Fragment
) -> None:
    """Writes columns of the copy's rows, from a row and a column on, row by row. `rows` is the size that is open."""
    row, column = at
    first = device.sub(row, outbox.boxes.first_row)
    memory, width = _from_row(pointer, type_, first, tile.lanes, rows=rows), ir.RankedTensorType(type_).shape[1]
    columns = tile.width
    if ir.RankedTensorType(type_).is_dynamic_dim(1):
        width = rows
    else:
        tile = _as_wide(tile, width)
    valid = device.value(device.sub(_count(type_, rows), first))
    outbox.store_rows(tile, memory, columns, column, valid, width)


def of_batch(pointer: ir.Value, type_: ir.Type, batch: Sequence[Int], rows: ir.Value) -> tuple[ir.Value, ir.Type]:
    """The matrix at these places of the first dimensions of a tensor; `rows` is the size that is open."""
    if not batch:
        return pointer, type_
    kind = ir.RankedTensorType(type_)
    for at, stride, power in zip(batch, strides_of(type_), open_behind(type_), strict=False):
        pointer = device.further(pointer, at, stride, storage_type(kind.element_type), [rows] * power)
    return pointer, ir.RankedTensorType.get(kind.shape[-2:], kind.element_type, kind.encoding)


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
    places = [row if row.type == i64 else arith.extsi(i64, row) for row in to]
    inside = [index_checks.may_add(op, row, rows, there) for row, there in zip(places, exists, strict=True)]
    add_rows(whole, output, places, inside, tile.width, column, outbox)


def _as_wide(tile: Fragment, width: int) -> Fragment:
    """The columns of a tile as those of one that is as wide as a tensor."""
    whole = Fragment(tile.lanes, tile.element, (tile.shape[0], width), compute=tile.make)
    whole.words, whole.values, whole.loads = tile.words, tile.values, tile.loads
    return whole


def _count(type_: ir.Type, rows: ir.Value) -> Int:
    kind = ir.RankedTensorType(type_)
    return rows if kind.is_dynamic_dim(0) else kind.shape[0]


def _from_row(
    pointer: ir.Value,
    type_: ir.Type,
    first: Int,
    lanes: Lanes,
    column: Int = 0,
    width: int | None = None,
    rows: ir.Value | None = None,
) -> PairedMemory:
    """A tensor of two dimensions from a row and a column on, so many columns of it; the column is a multiple of 16
    bytes. Of one whose columns are open there are as many as `rows`."""
    kind, place = ir.RankedTensorType(type_), place_of(type_)
    if kind.is_dynamic_dim(1):
        begin = device.further(pointer, first, 1, storage_type(kind.element_type), [rows])
        return PairedMemory(begin, kind.element_type, (kind.shape[0], 1), rows, lanes, 1)
    begin = device.further(pointer, first, place.pitch, storage_type(kind.element_type))
    begin = device.offset(begin, device.add(column, place.first), storage_type(kind.element_type))
    shape = kind.shape[0], kind.shape[1] if width is None else width
    return PairedMemory(begin, kind.element_type, shape, place.pitch, lanes, place.step)
