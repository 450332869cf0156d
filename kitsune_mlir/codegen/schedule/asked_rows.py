"""Rows that threads of warpgroups read by themselves, f32 that is multiplied as 16 bits for one, are asked for a tile
ahead: where a tile begins each thread asks for some lines of the next one's (PTX ISA, prefetch.global.L2). The copy
engine, asked for all of them at once (cp.async.bulk.prefetch.L2), keeps the boxes of tiles waiting meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import arith, ir, walk

from .extents import constant, is_from_tiles

LINE = 128  # bytes that are asked for at once


@dataclass(frozen=True)
class AskedRows:
    """A tensor (by its hash) whose rows of `row_bytes` are read tile by tile, `tile_rows` of them; of so many, None for
    those of the call."""

    tensor: int
    row_bytes: int
    tile_rows: int
    rows: int | None

    def ask(self, pointer: ir.Value, tile: Int, rows: ir.Value, thread: Int, threads: int) -> None:
        """A thread's part, of so many threads, of a tile's rows, of which the tensor has some."""
        i64 = ir.IntegerType.get_signless(64)
        first = device.mul(tile, self.tile_rows)
        left = device.mul(device.sub(rows if self.rows is None else self.rows, first), self.row_bytes)
        far = arith.muli(arith.extui(i64, device.value(first)), arith.constant(i64, self.row_bytes))
        start = device.offset(pointer, far, ir.IntegerType.get_signless(8))
        for line in range(0, self.tile_rows * self.row_bytes, LINE * threads):
            at = device.value(device.add(device.mul(thread, LINE), line))
            with device.when(device.less(at, device.least(left, self.tile_rows * self.row_bytes))):
                place = device.offset(start, arith.extui(i64, at), ir.IntegerType.get_signless(8))
                device.assembly("prefetch.global.L2 [$0];", "l,~{memory}", [place], None)


def asked_rows(kernel: schedule.KernelOp) -> list[AskedRows]:
    """Those of a kernel whose tiles are rows, but for tensors that rings are filled from."""
    (tiles,) = (op.opview for op in walk(kernel, schedule.TilesOp.OPERATION_NAME))
    if len(tiles.sizes) != 1:
        return []
    copied = {hash(op.operands[1]) for op in walk(kernel, schedule.CopyOp.OPERATION_NAME)}
    found = []
    for op in walk(kernel, schedule.ReadOp.OPERATION_NAME):
        source = op.operands[0]
        if hash(source) not in copied and _is_whole(op.opview, tiles.sizes[0]):
            kind = ir.RankedTensorType(source.type)
            rows = None if kind.is_dynamic_dim(0) else kind.shape[0]
            nbytes = kind.shape[1] * kind.element_type.width // 8
            found.append(AskedRows(hash(source), nbytes, tiles.sizes[0], rows))
    return list(dict.fromkeys(found))


def _is_whole(read: schedule.ReadOp, tile_rows: int) -> bool:
    """Whether a box is all columns of rows of the tile that the loop over tiles is at."""
    if not isinstance(read.operands[0].type, ir.RankedTensorType) or read.axes != [0, 1]:
        return False
    kind, row, column = ir.RankedTensorType(read.operands[0].type), *list(read.operands)[1:]
    tile = ir.RankedTensorType(read.results[0].type)
    return kind.rank == 2 and tile.shape[1] == kind.shape[1] and constant(column) == 0 and _begins(row, tile_rows)


def _begins(row: ir.Value, tile_rows: int) -> bool:
    """Whether an index is the tile's number times its rows, or something is added to that."""
    if isinstance(row.owner, ir.Block):
        return False
    op = row.owner.operation
    if op.name == "arith.addi":
        return any(_begins(part, tile_rows) for part in op.operands)
    if op.name != "arith.muli":
        return False
    number, size = op.operands
    return constant(size) == tile_rows and is_tile(number)


def is_tile(number: ir.Value) -> bool:
    """Whether an index is the counter of the loop over tiles."""
    if not isinstance(number.owner, ir.Block) or ir.BlockArgument(number).arg_number != 0:
        return False
    loop = number.owner.owner
    return loop.name == "scf.for" and is_from_tiles(loop.operands[0])
