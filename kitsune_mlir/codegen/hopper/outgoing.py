"""Where a warpgroup's tiles go: outputs, by tensor copies where these can write them, and queues to other CTAs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.nests import kitsune_label
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.traffic import element_bytes

from . import cluster, waits, wgmma
from .fragments import BLOCK, HALVES, Fragment, PairedMemory, blocks_of, is_packed, rows_of_tile
from .place import place_rows
from .program import Program
from .scatter import add_rows
from .stores import Boxes, Outbox
from .tile_ring import TileRing


@dataclass
class Around:
    """What a warpgroup uses from the kernel around it. `tensors` and `outputs` give addresses of whole tensors by
    the value's key and by the output's number, `strides` the elements from row to row of those tensors whose rows were
    made longer; `vectors` is the address of the vectors in shared memory."""

    tensors: dict[int, ir.Value]
    strides: dict[int, int]
    outputs: dict[int, ir.Value]
    vectors: ir.Value
    first_row: ir.Value  # of the tile, i64
    valid: ir.Value  # rows of the tile that exist
    boxes: Boxes  # the thread's way to those of its warpgroup
    outbox: Outbox | None
    first_column: ir.Value | None = None  # of the tile, where the grid deals out columns too
    tile: ir.Value | None = None  # its number
    queues: dict[str, TileRing] = field(default_factory=dict)  # to and from other CTAs
    stashes: Int = 0  # the first warpgroup's boxes for tiles that wait

    @property
    def leader(self) -> ir.Value:
        """i1: the thread that arrives for the warpgroup."""
        return self.boxes.leader


class Outgoing:
    """What one tile's code stores and hands over."""

    def __init__(self, program: Program, around: Around):
        self._program, self._around = program, around

    def hand_over(self, stage: kitsune.StageOp) -> None:
        """Tells other CTAs that tiles are there, and that slots are free."""
        queues = self._around.queues
        with device.when(self._around.leader):
            for get in stage.gets:
                if (queue := queues.get(kitsune_label(get.operands[0]))) is not None:
                    queue.release(self._around.tile)
            for put in stage.puts:
                if (queue := queues.get(kitsune_label(put.operands[0]))) is not None:
                    queue.publish(self._around.tile)

    def put(self, tile: Fragment, put: kitsune.PutOp, columns: int, start: Int) -> None:
        """Sends columns of a tile to other CTAs; a slot is waited for before the first of them."""
        label = kitsune_label(put.operands[0])
        queue, number = self._around.queues[label], self._around.tile
        condition = self._around.leader
        if not isinstance(start, int):
            condition = arith.andi(condition, device.equal(start, 0))
        with device.when(condition):
            queue.wait_empty(number)
        waits.leave_if_reported()
        assert self._around.outbox is not None
        row = device.add(queue.row(number), self._around.boxes.first_row)
        self._around.outbox.store(self._program.put_maps[label], tile, columns, (start, row))

    def store(self, tile: Fragment, store: kitsune.StoreOp, columns: int, start: Int) -> None:
        """Writes `columns` columns of a tile to an output, from column `start` on."""
        if store.position not in self._around.outputs:
            return
        map_, sent = self._program.store_maps.get(store.position), 0
        if map_ is not None:
            assert self._around.outbox is not None
            # A box that reaches into another CTA's columns would overwrite them.
            box = wgmma.BOX_ROW // element_bytes(tile.element)
            sent = columns if self._program.cluster == 1 else columns // box * box
            row = arith.trunci(device.i32(), self._around.first_row)
            self._around.outbox.store(map_, tile, sent, (start, device.add(row, self._around.boxes.first_row)))
        if sent == columns:
            return
        memory = rows_of_tile(
            self._around.outputs[store.position], store.operands[0], self._around.first_row, tile.lanes
        )
        if store.position in self._program.row_stores:
            assert self._around.outbox is not None
            self._around.outbox.store_rows(tile, memory, columns, start, self._around.valid)
        else:
            self._store_directly(tile, memory, range(sent // BLOCK, blocks_of(columns)))

    def to_rows(
        self,
        tile: Fragment,
        store: kitsune.ScatterOp | kitsune.PlaceOp,
        to: Sequence[ir.Value],
        columns: int,
        start: Int,
    ) -> None:
        """Adds or writes `columns` columns of a tile, from column `start` on, to the rows of an output that `to` (an
        integer for each half) names."""
        if store.position not in self._around.outputs:
            return
        output, exists = (
            self._around.outputs[store.position],
            [device.less(row, self._around.valid) for row in tile.lanes.rows],
        )
        assert self._around.outbox is not None
        if isinstance(store, kitsune.PlaceOp):
            place_rows(tile, output, to, exists, columns, start, self._around.outbox)
            return
        i64 = ir.IntegerType.get_signless(64)
        numbers = [row if row.type == i64 else arith.extsi(i64, row) for row in to]
        (table,) = (one for one in self._program.results if one.position == store.position)
        rows = table.results[0].type.shape[0]
        exists = [index_checks.may_add(store.operation, row, rows, e) for row, e in zip(numbers, exists, strict=True)]
        add_rows(tile, output, numbers, exists, columns, start, self._around.outbox)

    def _store_directly(self, tile: Fragment, memory: PairedMemory, blocks: range) -> None:
        """Thread by thread: what the copy engine cannot store. Two columns at once where they lie in one word."""
        lanes, width = tile.lanes, tile.width
        pairs = is_packed(tile.element) and width % 2 == memory.stride % 2 == 0

        def store(block: int, h: int, e: int) -> None:
            row, column = lanes.rows[h], lanes.column(block, e)
            if pairs:
                device.store(tile.word(block, h), memory.place(row, column), align=4)
            else:
                memory.store(row, column, tile.element_at(block, h, e))

        for block in blocks:
            tile.make(block)
        for h in HALVES:
            stores = device.less(lanes.rows[h], self._around.valid)
            if self._program.cluster > 1 and width == 1:  # each CTA has it
                stores = arith.andi(stores, device.equal(cluster.rank(), 0))
            with device.when(stores):
                for block, e in itertools.product(blocks, (0,) if pairs else (0, 1)):
                    column = lanes.column(block, e)
                    if device.is_less(column, width) is True:
                        store(block, h, e)
                    else:
                        with device.when(device.less(column, width)):
                            store(block, h, e)
