"""An agent's products: their operands, their sums, and what CTAs add up of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from kitsune_mlir.codegen.gpu_reduction import Combiner
from kitsune_mlir.codegen.hopper import tf32, wgmma
from kitsune_mlir.codegen.hopper.fragments import HALVES, Fragment, Lanes, is_packed
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects import schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, location
from kitsune_mlir.rows import shape_of

from . import parts
from .in_flight import Acc
from .loops import TOTALS, Open
from .meetings import TURN
from .slots import SlotCode
from .stores import Half


@dataclass(kw_only=True)
class ProductCode(SlotCode):
    """The code of an agent, as far as it is about products."""

    TIES: ClassVar[str] = tf32.EVEN  # how f32 is rounded
    words: dict[tuple[int, ir.Block], list[list[ir.Value]]] = field(default_factory=dict)  # of f32, of the last operand

    def _know_rows(self, op: ir.Operation, numbers: Sequence[ir.Value]) -> None:
        """Numbers of rows, which all threads of a row have."""
        raise NotImplementedError

    def _sums(self, op: ir.Operation) -> None:
        _, columns = schedule.tile_of(op.results[0]).shape
        over = [tile for value in op.operands if isinstance(tile := self.values.get(hash(value)), Fragment)]
        found = parts.registers(over) if over and len(over) == len(op.operands) else None
        if op.opview.begins:
            if found is None:
                raise UnsupportedError(f"{location(op.location)}: sums begin with wide parts of tiles")
            self.values[hash(op.results[0])] = Acc(found)
            return
        made = Acc(found or wgmma.zeros(columns), is_new=True, is_zero=found is None)
        self.values[hash(op.results[0])] = made

    def _product(self, op: ir.Operation) -> None:
        acc, left, right = (self.values[hash(operand)] for operand in op.operands)
        self._check_right(right.ring, op)
        b_place, b_across = self._right_place(right), (right.ring.layout == "columns") != op.opview.is_turned
        if (window := op.opview.right_window) is not None:
            b = wgmma.descriptor(device.add(b_place, window.first * wgmma.BOX_ROW), pitch=window.pitch)
        else:
            b = wgmma.descriptor(b_place, wgmma.CHUNK * wgmma.BOX_ROW) if b_across else wgmma.descriptor(b_place)
        element = str(right.ring.tile.element_type)
        a: ir.Value | list[ir.Value]
        if isinstance(left, Fragment) or element == "f32" and not left.ring.is_rounded:
            a = self._left_words(left, right.ring, op)
            steps, a_across = len(a) // wgmma.STEPS, False
        else:
            a, a_across = self._left_box(left, right.ring, op)
            steps = -(-left.tile.shape[1] * left.tile.element_type.width // (8 * wgmma.STEP_BYTES))
        across = (a_across, b_across)
        made = self.products.add(wgmma.multiply(element, acc.values, a, b, steps, acc.is_new, across))
        self.values[hash(op.results[0])], self.values[hash(op.results[1])] = made

    def _left_words(self, left: Fragment | Open, right: schedule.AllocRingOp, op: ir.Operation) -> list[ir.Value]:
        """The left operand in registers; of f32 the tf32 numbers that are multiplied."""
        if isinstance(left, Fragment) and is_packed(left.element):
            return parts.left_words(left)
        key, piece = (hash(op.operands[1]), ir.InsertionPoint.current.block), op.opview.piece
        if key not in self.words:
            words = parts.left_words(left) if isinstance(left, Fragment) else self._read_box(left, right, op)
            words = self.products.unread(words, op)
            self.words = {key: tf32.operands(words, 1 if piece is None else len(schedule.PIECES), self.TIES)}
        return self.words[key][0 if piece is None else schedule.PIECES.index(piece)]

    def _read_box(self, left: Open, right: schedule.AllocRingOp, op: ir.Operation) -> list[ir.Value]:
        """A slot of f32, each warp its rows."""
        self._check(left.ring, right, op)
        place = self._left_place(left)
        own, steps = self._own_boxes(), -(-left.tile.shape[1] * 4 // wgmma.STEP_BYTES)
        return [word for step in range(steps) for word in own.read(place, step)]

    def _left_box(self, left: Open, right: schedule.AllocRingOp, op: ir.Operation) -> tuple[ir.Value, bool]:
        """The descriptor of the left operand in a slot, the copy's part of it, and whether it lies across."""
        if (window := op.opview.window) is not None:
            first = device.add(device.mul(self._group(), window.apart), window.first)
            place = device.add(self._left_place(left), device.mul(first, wgmma.BOX_ROW))
            return wgmma.descriptor(place, pitch=window.pitch), False
        self._check(left.ring, right, op)
        place, box = self._left_place(left), wgmma.ROWS * wgmma.BOX_ROW
        across = left.ring.layout == "columns"
        return wgmma.descriptor(place, box) if across else wgmma.descriptor(place), across

    def _right_place(self, right: Open) -> Int:
        """Where a slot begins, or the copy's part of it."""
        place = self.around.place(right)
        if right.ring.sharing != "split":
            return place
        part = right.tile.shape[0] // self.agent.count * wgmma.BOX_ROW
        return device.add(place, device.mul(self._group(), part))

    def _left_place(self, left: Open) -> Int:
        """Where the copy's rows of a slot begin, which its products read."""
        if left.ring.memory == schedule.DSMEM:
            return self._own_ring(left.ring).place(left.slot)
        place = self.around.place(left)
        if left.ring.sharing == "own":
            self._see()
        return place if left.ring.sharing == "all" else device.add(place, self._own_part())

    def _check(self, left: schedule.AllocRingOp, right: schedule.AllocRingOp, op: ir.Operation) -> None:
        nbytes = left.tile.element_type.width // 8
        if left.tile.shape[1] * nbytes != wgmma.BOX_ROW or nbytes == 4 and "columns" in (left.layout, right.layout):
            raise UnsupportedError(
                f"{location(op.location)}: wgmma takes chunks of {wgmma.BOX_ROW} bytes, of f32 along columns"
            )
        if left.tile.shape[0] != wgmma.ROWS * (1 if left.sharing == "all" else self.agent.count):
            raise UnsupportedError(f"{location(op.location)}: a copy multiplies {wgmma.ROWS} rows")

    def _check_right(self, right: schedule.AllocRingOp, op: ir.Operation) -> None:
        turned, (rows, columns) = op.opview.is_turned, right.tile.shape
        if right.sharing == "split":
            rows //= self.agent.count
        if right.layout == "columns" and (rows % wgmma.CHUNK or turned):
            raise UnsupportedError(f"{location(op.location)}: boxes along columns are {wgmma.CHUNK} wide")
        if turned and (rows != wgmma.CHUNK or columns % wgmma.CHUNK or not is_packed(right.tile.element_type)):
            raise UnsupportedError(
                f"{location(op.location)}: what is taken as it lies is {wgmma.CHUNK} rows of 16 bits"
            )

    def _settle(self, op: ir.Operation) -> None:
        sums = self.products.settle(self._begun(self.values[hash(op.operands[0])]))
        self._stand(op.results[0])
        each = len(sums) // (len(self.halves) // len(HALVES))  # of 16 rows
        for number, half in enumerate(self.halves):
            tile, h = divmod(number, len(HALVES))
            _know(half, hash(op.results[0]), sums[tile * each : (tile + 1) * each], self.lanes, h)
        if len(self.halves) == len(HALVES):
            self.values[hash(op.results[0])] = parts.of_sums(sums, op.results[0].type, self.lanes)

    def _meet(self, op: ir.Operation) -> None:
        kind, tile = ir.RankedTensorType(op.results[0].type), self.values[hash(op.operands[0])]
        meetings, turn = self.around.meetings, self.turns[TURN]
        sums = parts.registers([tile]) if isinstance(tile, Fragment) else None
        if meetings is None or sums is None:
            raise UnsupportedError(f"{location(op.location)}: what CTAs add up are sums that were settled")
        group = self._group()
        totals = meetings.add_up(sums, turn, group, self._leader(), device.add(group, 1))
        self.turns[TURN] = meetings.advance(turn)
        for h, half in enumerate(self.halves):
            _know(half, hash(op.results[0]), totals, self.lanes, h)
        self.values[hash(op.results[0])] = parts.of_sums(totals, kind, self.lanes)

    def _total(self, op: ir.Operation) -> None:
        value, totals, turn = op.operands[0], self.around.totals, self.turns[TOTALS]
        assert totals is not None
        combine = Combiner(op.opview.join_name, ir.F32Type.get())
        index = [0] * (len(shape_of(value)) - 1)
        numbers = [half.evaluator(value, [half.row, *index]) for half in self.halves]
        own = self._own_boxes()
        self._know_rows(op, totals.joined(numbers, combine.join, turn, self._group(), own))
        self.turns[TOTALS] = totals.advance(turn)


def _know(half: Half, key: int, sums: list[ir.Value], lanes: Lanes, number: int) -> None:
    """Tells what stands in registers, of one of a thread's rows, the first or second of 16."""
    for i, x in enumerate(sums):
        block, h, e = i // 4, i // 2 % 2, i % 2
        if h == number:
            half.evaluator.know_key(key, [half.row, lanes.column(block, e)], x)
