"""The code of an agent on chips without warpgroup products and tensor copies: its threads copy 16 bytes each at a time
(cp.async), its warps multiply by themselves (mma.sync).

A copy of the agent has four warps. Of its part of a product's rows each has a quarter, 16 neighbouring rows or several
times as many: tiles of 16 lie as those of a warpgroup's product do, whose code for what follows is this one's too.
Every thread of a producer waits and copies; a consumer's warps release a slot one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from kitsune_mlir.codegen.ampere import cp_async, ldmatrix, mma_sync
from kitsune_mlir.codegen.hopper import tf32, waits, warps
from kitsune_mlir.codegen.hopper.fragments import BLOCK, Fragment
from kitsune_mlir.codegen.hopper.mbarrier import Slot
from kitsune_mlir.codegen.hopper.stores import Boxes
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.columns import sizes_of
from kitsune_mlir.dialects.windows import in_memory, windows_of
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, location, walk

from .agent import AgentCode
from .extents import whole_of
from .granules import TensorGranules, WindowGranules
from .in_flight import Acc, InFlight, NoneInFlight
from .loops import Open

WARPS = 4  # of a copy
THREADS = WARPS * warps.WARP
_GRANULES = ldmatrix.BOX_ROW // ldmatrix.GRANULE  # of a box's row


def tiles_of(acc: ir.Type) -> int:
    """How many times 16 rows of sums a warp has."""
    rows, _ = ir.RankedTensorType(ir.TypeAttr(acc.elem).value).shape
    return rows // (WARPS * mma_sync.ROWS)


@dataclass
class WarpCode(AgentCode):
    """The code of one agent, whose threads begin at `first`."""

    TIES: ClassVar[str] = tf32.AWAY
    products: InFlight = field(default_factory=NoneInFlight, kw_only=True)

    def emit(self) -> None:
        if self.agent.warp_count != WARPS:
            raise UnsupportedError(f"agent '{self.agent.label}' has {self.agent.warp_count} warps, wants {WARPS}")
        self.turns = {ring: Slot.first() for ring in self._rings(self.agent.operation)}
        thread = device.thread()
        self.values[hash(self.agent.block.arguments[0])] = device.div(device.sub(thread, self.first), THREADS)
        party = device.value(device.add(device.div(thread, THREADS), 1))
        with waits.together(party, THREADS, device.equal(device.mod(thread, THREADS), 0)):
            self._block(self.agent.block)
        if walk(self.agent, schedule.CopyOp.OPERATION_NAME):
            cp_async.wait_all()  # no thread ends before its copies

    # ---- rings

    def _acquire(self, op: ir.Operation) -> None:
        ring, slot = self._opened(op)
        ring.wait_empty(slot, waits.on_tested)

    def _wait(self, op: ir.Operation) -> None:
        ring, slot = self._opened(op)
        ring.wait_full(slot, waits.on_tested)

    def _commit(self, op: ir.Operation) -> None:
        opened = self.values[hash(op.operands[0])]
        cp_async.arrive(self.around.rings[opened.ring.label].full(opened.slot))

    def _release(self, op: ir.Operation) -> None:
        """A warp's products have ended: those that read the slot have its words. What a warp stowed it reads alone."""
        opened = self.values[hash(op.operands[0])]
        if opened.ring.sharing == "own":
            return
        warps.sync()
        self.around.rings[opened.ring.label].release(opened.slot, warps.is_first())

    def _copy(self, op: ir.Operation) -> None:
        """Thread t has of each row the granule t mod 8, and every 16th row from row t / 8 on."""
        copy, opened = op.opview, self.values[hash(op.operands[0])]
        if copy.elements is not None:
            self._copy_vector(copy, opened)
            return
        ring = opened.ring
        by_rows = ring.layout == "rows"
        rows, columns = opened.tile.shape
        along, length, across = (columns, columns, rows) if by_rows else (rows, rows, columns)
        outer, inner = copy.axes if by_rows else copy.axes[::-1]
        nbytes = ring.tile.element_type.width // 8
        each = ldmatrix.BOX_ROW // nbytes
        if length % each or across % (THREADS // _GRANULES):
            raise UnsupportedError(f"{location(op.location)}: ring '{ring.label}' has no boxes of 16 rows of 128 bytes")
        at = [self.number(offset) for offset in list(op.operands)[2:]]
        thread = device.sub(warps.thread(), self.first)
        own_row, granule = device.div(thread, _GRANULES), device.mod(thread, _GRANULES)
        within = ldmatrix.swizzled(own_row, granule)
        place = device.value(device.add(self.around.rings[ring.label].place(opened.slot), within))
        source = self._source(copy, at, outer, inner)
        for number in range(length // each):
            column = device.add(device.mul(granule, ldmatrix.GRANULE // nbytes), number * each)
            first = source.column(own_row, column)
            for row in range(0, across, THREADS // _GRANULES):
                to = device.add(place, (number * across + row) * ldmatrix.BOX_ROW)
                cp_async.copy(to, *source.row(own_row, row, first))

    def _copy_vector(self, copy: schedule.CopyOp, opened: Open) -> None:
        """Neighbouring elements, to their place in a slot."""
        nbytes = opened.tile.element_type.width // 8
        place = device.add(self.around.place(opened), copy.elements.start * nbytes)
        pointer, thread = self._pointer(copy.operands[1]), device.sub(warps.thread(), self.first)
        granules, byte = -(-len(copy.elements) * nbytes // cp_async.NBYTES), ir.IntegerType.get_signless(8)
        for first in range(0, granules, THREADS):
            number = device.value(device.add(thread, first))
            at = device.mul(number, cp_async.NBYTES)
            whole = first + THREADS <= granules
            with contextlib.nullcontext() if whole else device.when(device.less(number, granules)):
                cp_async.copy(device.add(place, at), device.offset(pointer, at, byte))

    def _source(self, copy: schedule.CopyOp, at: list[Int], outer: int, inner: int) -> TensorGranules | WindowGranules:
        tensor, tile = copy.operands[1], schedule.ring_of(copy.operands[0]).tile
        if (matrix := windows_of(tensor)) is not None:
            if copy.axes != matrix.axes or outer > inner:
                raise UnsupportedError(f"{location(copy.location)}: a box of windows does not lie along their columns")
            images = ir.RankedTensorType(matrix.operands[0].type)
            pointer = self.around.pointers[hash(in_memory(tensor))]
            (count, *_) = sizes_of(images, self.around.sizes[hash(in_memory(tensor))])
            return WindowGranules(matrix, pointer, count, at)
        whole = whole_of(self.agent, tensor.type, list(copy.operands)[2:], copy.axes, tile.shape)
        kind = ir.RankedTensorType(tensor.type)
        has_whole = [copy.axes[dim] for dim in whole]
        open_ = self._open_sizes(tensor)
        return TensorGranules(self._pointer(tensor), kind, open_, at, outer, inner, has_whole, copy.is_longer)

    # ---- tiles that wait

    def _stow(self, op: ir.Operation) -> None:
        """A warp writes its rows, which no other reads."""
        ring, slot = self._opened(op)
        tile = self._leaving(op.operands[1])
        warps.sync()
        own = self._own_boxes()
        own.write_words(device.add(ring.place(slot), self._own_part()), tile, 0)
        self.unseen = True

    def _see(self) -> None:
        if self.unseen:
            warps.sync()
        self.unseen = False

    # ---- products

    def _sums(self, op: ir.Operation) -> None:
        if op.operands:
            super()._sums(op)
            return
        rows, columns = schedule.tile_of(op.results[0]).shape
        self.values[hash(op.results[0])] = Acc(mma_sync.zeros(rows * columns // THREADS))

    def _product(self, op: ir.Operation) -> None:
        acc, left, right = (self.values[hash(operand)] for operand in op.operands)
        tiles, element = tiles_of(op.operands[0].type), str(right.ring.tile.element_type)
        lane = warps.lane()
        if isinstance(left, Fragment) or element == "f32":
            words = self._left_words(left, right.ring, op)
            steps, a = len(words) // mma_sync.WORDS, partial(_words, words)
            if tiles > 1:
                raise UnsupportedError(f"{location(op.location)}: warps multiply 16 rows of a tile in registers")
        else:
            steps, a = self._left_steps(left, tiles, op)
        self._check_sums(op)
        b_place = self.around.place(right)
        b = ldmatrix.right(b_place, lane, right.ring.layout == "columns")
        sums = mma_sync.multiply(element, self._begun(acc).values, a, b, tiles, steps)
        self.values[hash(op.results[0])], self.values[hash(op.results[1])] = self.products.ended(sums)

    def _left_steps(self, left: Open, tiles: int, op: ir.Operation) -> tuple[int, mma_sync.Left]:
        """The steps of a left operand in a slot, and the words of each."""
        if left.ring.tile.shape[1] != ldmatrix.CHUNK or left.ring.tile.element_type.width != 16:
            raise UnsupportedError(
                f"{location(op.location)}: warps take chunks of {ldmatrix.CHUNK} columns of 16 bits, found "
                f"{left.ring.tile}"
            )
        if left.ring.sharing == "own":
            self._see()
        thread = warps.thread()
        lane, warp = device.mod(thread, warps.WARP), device.div(device.sub(thread, self.first), warps.WARP)
        if left.ring.sharing == "all":
            warp = device.mod(warp, WARPS)
        first = device.mul(warp, tiles * mma_sync.ROWS)
        place = self.around.place(left)
        boxes = ldmatrix.left(place, first, lane, left.ring.layout == "columns")
        along = left.tile.shape[1] if left.ring.sharing == "own" else ldmatrix.CHUNK
        return -(-along // mma_sync.DEPTH), boxes.load

    @staticmethod
    def _check_sums(op: ir.Operation) -> None:
        acc = schedule.tile_of(op.operands[0])
        if acc.shape[0] not in (64, 128) or acc.shape[1] % 16:
            raise UnsupportedError(f"{location(op.location)}: a copy multiplies 64 or 128 rows and 16 columns, each")

    def _rows_of_sums(self, own: Boxes, tile: ir.Value) -> tuple[ir.Value, ...]:
        """The same for each of a warp's tiles of 16 rows, which are neighbours."""
        tiles = ir.RankedTensorType(tile.type).shape[0] // (WARPS * mma_sync.ROWS)
        lane_row = device.mod(own.own_row, BLOCK)
        first = device.add(device.mul(own.warp, tiles * mma_sync.ROWS), lane_row)
        return tuple(device.value(device.add(first, further * BLOCK)) for further in range(2 * tiles))


def _words(words: Sequence[ir.Value], tile: int, step: int) -> Sequence[ir.Value]:
    """The words of a step of a left operand in registers."""
    return words[mma_sync.WORDS * step : mma_sync.WORDS * (step + 1)]
