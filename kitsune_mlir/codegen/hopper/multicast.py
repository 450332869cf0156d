"""One tile in shared memory, two consumers: the right tile of a sum over the rows, computed in place, and the product
beside it.

The tile is computed by all threads where its first load lies, 16 bytes of a row at a time; then it is the operand of
one product along its rows, and of one across them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int, Offset
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.memory import Memory, element_of, shape_of
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, vector

from . import tma, warps, wgmma
from .accumulate import BOX_BYTES, GROUPS, TILE_ROWS, Accumulation, Beside
from .fragments import BLOCK, HALVES, Fragment, Lanes, PairedMemory, blocks_of, pack, unpack
from .stores import Boxes
from .wgmma import CHUNK

UNIT = 8  # elements of 16 bytes
_UNITS = CHUNK // UNIT  # of a box's row
_WORDS = 4  # of a unit
STEPS = CHUNK // wgmma.STEP


class _UnitMemory(Memory):
    """16 bytes of a row of a loaded tile: elements at the row and `base` + `first` to `first` + 7."""

    def __init__(self, place: Int, element: ir.Type, row: Int, base: ir.Value, first: int):
        words = ir.VectorType.get([_WORDS], device.i32())
        self._words = device.load(device.shared(place), words, align=16)
        self.element, self._row, self._base, self._first = element, row, base, first

    def load(self, index: Sequence[Int]) -> ir.Value:
        row, column = index
        e = column.constant - self._first if isinstance(column, Offset) and column.base == self._base else -1
        if row != self._row or not 0 <= e < UNIT:
            raise UnsupportedError("a tile computed in place reads other elements than its own")
        return unpack(vector.extract(self._words, [], [e // 2]), e % 2, self.element)


@dataclass(frozen=True)
class InPlace:
    """Computes the right tile, or this CTA's share, from box `first` on. `thread` is one of `threads`."""

    plan: Accumulation
    thread: ir.Value
    threads: int
    first: Int

    def emit(self, slot: Int, valid: Int) -> None:
        """`slot` is the place of the slot, `valid` the rows of the tile that exist; zeros beyond them."""
        unit, row = device.mod(self.thread, _UNITS), device.div(self.thread, _UNITS)
        column = device.mul(arith.xori(device.value(unit), device.value(device.mod(row, 8))), UNIT)
        base = device.value(device.add(column, device.mul(self.first, CHUNK)))
        own, height = device.mul(self.thread, UNIT * 2), self.threads // _UNITS
        for box in range(self.plan.own_boxes):
            boxes = [self.plan.box(load, box, self.first) for load in range(len(self.plan.loads))]
            for first in range(0, TILE_ROWS, height):
                at = device.add(device.add(slot, own), first * CHUNK * 2)
                places = [device.add(at, device.mul(number, BOX_BYTES)) for number in boxes]
                self._unit(places, device.add(row, first), base, box * CHUNK, valid)

    def _unit(self, places: list[Int], row: Int, base: ir.Value, first: int, valid: Int) -> None:
        """`places` are those of the loads' units; the result takes the first one's."""
        plan = self.plan
        memories: dict[int, Memory] = {
            hash(load): _UnitMemory(place, element_of(load), row, base, first)
            for place, load in zip(places, plan.loads)
        }
        evaluator = Evaluator(memories)
        exists = device.less(row, valid)
        span = (plan.right_boxes - plan.own_boxes + 1) * CHUNK - UNIT  # of `base`
        if first + span + UNIT > plan.n:
            exists = arith.andi(exists, device.less(device.add(base, first), plan.n))
        words = []
        for e in range(0, UNIT, 2):
            pair = [evaluator(plan.right, [row, Offset(base, first + e + i, span)]) for i in (0, 1)]
            words.append(arith.select(exists, pack(*pair, element_of(plan.right)), device.value(0)))
        type_ = ir.VectorType.get([_WORDS], device.i32())
        device.store(vector.from_elements(type_, words), device.shared(places[0]), align=16)


@dataclass(frozen=True)
class BesideProduct:
    """A warpgroup's columns of the product beside, from column `start` of its output on. `weights` is where the CTA's
    boxes of the weight lie, a row of them for 64 inputs; `group` (i32) is the warpgroup's number, `own_row` the
    thread's first row, `memories` those of the weight's neighbours: residents that the epilogue reads."""

    plan: Accumulation
    beside: Beside
    maps: ir.Value
    weights: Int
    group: ir.Value
    start: ir.Value
    writer: Boxes
    residents: dict[int, ir.Value]

    def multiply(self, slot: Int) -> list[ir.Value]:
        """Issues the products; the sums are in flight."""
        beside, plan = self.beside, self.plan
        own = device.mul(self.group, beside.columns // CHUNK)
        sums = [arith.constant(ir.F32Type.get(), 0.0)] * (beside.columns // 2)
        for box in range(plan.right_boxes):
            a = wgmma.descriptor(device.add(slot, (GROUPS + box) * BOX_BYTES))
            at = device.mul(device.add(own, box * beside.boxes), BOX_BYTES)
            b = wgmma.descriptor(device.add(self.weights, at), next_box=BOX_BYTES)
            sums = wgmma.multiply(plan.element, sums, a, b, STEPS, box == 0, across=(False, not beside.transposed))
        return sums

    def store(self, slot: Int, sums: list[ir.Value], first_row: Int) -> None:
        """Sends what is made of the sums away through the slot; returns, in the leader, when the slot is read."""
        tile, boxes = self._tile(sums), self.beside.columns // CHUNK
        own = device.add(device.mul(self.group, boxes), GROUPS + self.plan.right_boxes)
        place = device.add(slot, device.mul(own, BOX_BYTES))
        for box in range(boxes):
            self.writer.write(device.add(place, box * BOX_BYTES), tile, box)
        tma.fence()
        warps.barrier(self.writer.barrier, wgmma.THREADS)
        with device.when(self.writer.leader):
            map_ = tma.map_pointer(self.maps, self.plan.output_map)
            for box in range(boxes):
                at = (device.add(self.start, box * CHUNK), first_row)
                tma.store(map_, at, device.add(place, box * BOX_BYTES))
            tma.commit()
            tma.wait_read(0)

    def _tile(self, sums: list[ir.Value]) -> Fragment:
        beside, total = self.beside, self.beside.op.results[0]
        own = self.writer.own_row
        rows = own, device.add(own, BLOCK)
        lanes = Lanes(rows, rows, self.writer.pair).shifted(self.start, shape_of(total)[1])
        memories: dict[int, Memory] = {
            hash(value): PairedMemory(
                self.residents[hash(value)], element_of(value), shape_of(value), prod(shape_of(value)[1:])
            )
            for value in beside.residents
        }
        evaluator = Evaluator(memories)
        tile = Fragment(lanes, element_of(beside.stored), shape_of(beside.stored))
        for block in range(blocks_of(beside.columns)):
            for h in HALVES:
                pair = []
                for e in (0, 1):
                    index = [rows[h], lanes.column(block, e)]
                    evaluator.know(total, index, sums[4 * block + 2 * h + e])
                    pair.append(evaluator(beside.stored, index))
                tile.words[block, h] = pack(*pair, tile.element)
        return tile
