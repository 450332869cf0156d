"""Whole rows of tensors as the threads of a warpgroup read and write them together."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.hopper.fragments import Fragment, Lanes, PairedMemory
from kitsune_mlir.codegen.hopper.place import place_rows
from kitsune_mlir.codegen.hopper.scatter import add_rows
from kitsune_mlir.codegen.hopper.stores import Boxes, Outbox
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.memory import storage_type
from kitsune_mlir.mlir import arith, ir


def read(pointer: ir.Value, type_: ir.Type, rows: ir.Value, row: Int, own: Boxes, lanes: Lanes) -> PairedMemory:
    """The copy's rows of a tensor, from `row` on; in the place of those beyond it the last. `rows` is its first size
    where that is open."""
    first = device.sub(row, own.first_row)  # the first of all copies, which the tensor has
    last = device.sub(device.sub(_count(type_, rows), first), 1)
    loaded = tuple(device.least(device.add(one, own.first_row), last) for one in lanes.rows)
    return _from_row(pointer, type_, first, Lanes(lanes.rows, loaded, lanes.pair))


def write(
    pointer: ir.Value, type_: ir.Type, rows: ir.Value, at: tuple[Int, Int], outbox: Outbox, tile: Fragment
) -> None:
    """Writes columns of the copy's rows, from a row and a column on, row by row."""
    row, column = at
    first = device.sub(row, outbox.boxes.first_row)
    memory = _from_row(pointer, type_, first, tile.lanes)
    whole = Fragment(tile.lanes, tile.element, (tile.shape[0], memory.stride), compute=tile.make)
    whole.words, whole.values = tile.words, tile.values
    outbox.store_rows(whole, memory, tile.width, column, device.value(device.sub(_count(type_, rows), first)))


def write_to(
    op: ir.Operation,
    output: ir.Value,
    rows: int,
    to: Sequence[ir.Value],
    exists: Sequence[ir.Value],
    tile: Fragment,
    outbox: Outbox,
) -> None:
    """Writes or adds a tile's rows, of which a thread has two, to those of an output (address) of so many rows that
    `to` names; `exists` (i1) says whether the tile has them."""
    if not op.opview.adds:
        place_rows(tile, output, to, exists, tile.width, 0, outbox)
        return
    i64 = ir.IntegerType.get_signless(64)
    places = [row if row.type == i64 else arith.extsi(i64, row) for row in to]
    inside = [index_checks.may_add(op, row, rows, there) for row, there in zip(places, exists, strict=True)]
    add_rows(tile, output, places, inside, tile.width, 0, outbox)


def _count(type_: ir.Type, rows: ir.Value) -> Int:
    kind = ir.RankedTensorType(type_)
    return rows if kind.is_dynamic_dim(0) else kind.shape[0]


def _from_row(pointer: ir.Value, type_: ir.Type, first: Int, lanes: Lanes) -> PairedMemory:
    """A tensor of two dimensions from a row on."""
    kind, i64 = ir.RankedTensorType(type_), ir.IntegerType.get_signless(64)
    far = arith.muli(arith.extui(i64, device.value(first)), arith.constant(i64, kind.shape[1]))
    begin = device.offset(pointer, far, storage_type(kind.element_type))
    return PairedMemory(begin, kind.element_type, tuple(kind.shape), kind.shape[1], lanes)
