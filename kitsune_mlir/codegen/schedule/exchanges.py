"""Tiles and numbers of rows that the CTAs of a cluster tell each other (dialects/clusters.py), in distributed shared
memory.

*Tiles*: each copy of the agent has its own part of every slot, and barriers: `full` counts the bytes that another CTA
stores there, `empty` is arrived at from there, where the slot's tile was sent to, once it has been read. A tile goes
out box by box: each warp lays its 16 rows of it out in shared memory, and stores them, 16 bytes a thread, into the same
rows of the others' slots (PTX ISA, st.async). Who sends knows that as much will come, and has its own slots expect it.

*Tiles of all CTAs side by side*: in each slot every CTA of the cluster stores the columns that it has, in its own
memory too, so that `full` counts the bytes of a whole slot. Who has columns of a slot waits for it to be empty in all
CTAs: `empty` is arrived at by each warp of each CTA, wherever its slot has been filled from.

*Numbers of rows*: one f32 for each row goes from each CTA to each other, in two places in turn: a CTA can send the next
only after it got the last ones, so it is never two ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import cluster, mbarrier, tma, waits, warps
from kitsune_mlir.codegen.hopper.fragments import BLOCK, Fragment
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.hopper.stores import BOX_BYTES, WARP_ROWS, Boxes, Outbox
from kitsune_mlir.codegen.hopper.warps import WARP
from kitsune_mlir.codegen.hopper.wgmma import BOX_ROW, ROWS, THREADS
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import arith, ir, walk
from kitsune_mlir.traffic import element_bytes

from . import parts
from .loops import sent_to
from .stowing import StowCode

TOTAL_BARRIERS = 2 * mbarrier.BYTES  # of a copy
_PIECE, _WORD = 16, 4  # bytes that a thread stores at once


def peer(distance: int, ctas: int) -> ir.Value:
    """The CTA that is so far behind the own in the cluster."""
    return arith.remui(device.value(device.add(cluster.rank(), distance)), device.value(ctas))


@dataclass(kw_only=True)
class ExchangeCode(StowCode):
    """The code of an agent whose tiles other CTAs read. `may_send` says whether the copy's outbox is known to be free
    for all of its warps."""

    may_send: bool = False

    def _outbox(self) -> Outbox:
        """The boxes of the thread's copy."""
        raise NotImplementedError

    def _begin_turns(self) -> None:
        """Numbers of slots are known where each turn of each loop takes all of a ring, once or more often: registers
        are few."""
        loops = [self.agent.operation, *walk(self.agent, "scf.for")]
        for ring in (op.opview for op in walk(self.agent.operation.parent, schedule.AllocRingOp.OPERATION_NAME)):
            if ring.memory != schedule.DSMEM:
                continue
            if ring.is_collected:  # all slots at once
                for label in {ring.label, sent_to(ring.label)} & self.turns.keys():
                    self.turns[label] = Slot(0, self.turns[label].parity)
                continue
            uses = [(use.owner.operation.name, use.owner.operation) for use in ring.results[0].uses]
            for name, label in (("kitsune.wait", ring.label), (schedule.SEND, sent_to(ring.label))):
                around = [op.parent.operation for found, op in uses if found == name]
                if label in self.turns and all(around.count(loop) % ring.slots == 0 for loop in loops):
                    self.turns[label] = Slot(0, self.turns[label].parity)

    def _own_ring(self, ring: schedule.AllocRingOp) -> Ring:
        """A ring's barriers and slots as the copy has them."""
        whole = self.around.rings[ring.label]
        base = warps.here(self.around.base)
        barriers = device.add(device.add(device.mul(self._group(), whole.barrier_bytes), base), whole.barriers)
        data = device.add(device.add(self._own_part(), base), whole.data)
        return Ring(barriers, data, whole.slots, whole.slot_bytes, whole.holds, whole.by_warps)

    def _send(self, op: ir.Operation) -> None:
        *rings, value = op.operands
        self._stand(value)
        opviews = [ring.owner.operation.opview for ring in rings]
        key = sent_to(opviews[0].label)
        turn, ctas = self.turns[key], self.around.cluster
        tile = parts.leaving(value, self.halves, self.lanes, self.values.get(hash(value)))
        own, code = self._own_boxes(), [self._own_ring(ring) for ring in opviews]
        for ring in code:
            ring.wait_empty(turn, waits.on_cluster)
            mbarrier.expect_where(ring.full(turn), BOX_BYTES, own.leader)
        staging = self._staged(own, tile)
        at = device.add(device.mul(own.warp, BOX_BYTES // 4), device.mul(own.lane, _PIECE))
        peers = [peer(ctas - number, ctas) for number in range(1, ctas)]
        places = [cluster.remote(device.add(ring.place(turn), at), cta) for ring, cta in zip(code, peers, strict=True)]
        signals = [cluster.remote(ring.full(turn), cta) for ring, cta in zip(code, peers, strict=True)]
        vector = ir.VectorType.get([_PIECE // _WORD], device.i32())
        for further in range(0, BOX_BYTES // 4, WARP * _PIECE):
            piece = device.load(device.shared(device.add(device.add(staging, at), further)), vector, align=_PIECE)
            for place, signal in zip(places, signals, strict=True):
                cluster.send(device.add(place, further), piece, signal)
        warps.sync()
        self.turns[key] = code[0].advance(turn)

    def _staged(self, own: Boxes, tile: Fragment) -> Int:
        """A tile of one box in shared memory, of which each warp sees its own rows: the box's first byte."""
        if not self.may_send:
            tma.wait_read(0)  # the leader alone has stored
            warps.barrier(own.barrier, THREADS)
        self.may_send, self.sent = True, 0
        staging = self._outbox().box(0)
        own.write(staging, tile, 0)
        warps.sync()
        return staging

    def _collect(self, op: ir.Operation) -> None:
        opview, value = op.operands[0].owner.operation.opview, op.operands[1]
        self._stand(value)
        key, ctas = sent_to(opview.label), self.around.cluster
        turn, (rows, columns) = self.turns[key], ir.RankedTensorType(value.type).shape
        tile = parts.leaving(value, self.halves, self.lanes, self.values.get(hash(value)))
        own, ring = self._own_boxes(), self._own_ring(opview)
        sharers, pieces = _sharers(opview, ctas), columns * element_bytes(tile.element) // _PIECE
        filled = Slot(device.div(cluster.rank(), sharers), turn.parity)
        ring.wait_empty(filled, waits.on_cluster)
        for number in range(ring.slots):
            mbarrier.expect_where(ring.full(Slot(number, turn.parity)), rows * BOX_ROW, own.leader)
        staging, first = self._staged(own, tile), device.mul(device.mod(cluster.rank(), sharers), pieces)
        peers = [peer(distance, ctas) for distance in range(ctas)]
        signals = [cluster.remote(ring.full(filled), cta) for cta in peers]
        vector = ir.VectorType.get([_PIECE // _WORD], device.i32())
        sending = device.less(own.warp, rows // WARP_ROWS)
        if WARP_ROWS * pieces < WARP:
            sending = arith.andi(sending, device.less(own.lane, WARP_ROWS * pieces))
        with device.when(sending):
            for begin in range(0, WARP_ROWS * pieces, WARP):
                number = device.add(own.lane, begin)
                row, piece = device.div(number, pieces), device.mod(number, pieces)
                line = device.add(device.mul(own.warp, WARP_ROWS * BOX_ROW), device.mul(row, BOX_ROW))
                source = device.shared(device.add(staging, _swizzled(line, row, piece)))
                words = device.load(source, vector, align=_PIECE)
                place = device.add(ring.place(filled), _swizzled(line, row, device.add(first, piece)))
                for cta, signal in zip(peers, signals, strict=True):
                    cluster.send(cluster.remote(place, cta), words, signal)
        warps.sync()
        self.turns[key] = Slot(0, device.flipped(turn.parity))

    def _received(self, ring: schedule.AllocRingOp, slot: Slot) -> None:
        """Until what another CTA sent is there; products may then read it."""
        self._own_ring(ring).wait_full(slot, waits.on_cluster)
        tma.fence()

    def _give_back(self, ring: schedule.AllocRingOp, slot: Slot) -> None:
        """Tells the CTA that sent a tile that this one has read it."""
        own, lane = self._own_ring(ring), warps.lane()
        if ring.is_collected:
            sharers = _sharers(ring, self.around.cluster)
            cta = device.add(device.mul(slot.number, sharers), device.mod(lane, sharers))
            cluster.remote_arrive(cluster.remote(own.empty(slot), cta), device.less(lane, sharers))
            return
        from_there = cluster.remote(own.empty(slot), peer(schedule.distance(ring), self.around.cluster))
        cluster.remote_arrive(from_there, device.equal(lane, 0) if own.by_warps else self._leader())

    def _scf_for(self, op: ir.Operation) -> None:
        self.may_send = False
        super()._scf_for(op)
        self.may_send = False


def _sharers(ring: schedule.AllocRingOp, ctas: int) -> int:
    """The CTAs that fill a slot together."""
    return ctas // ring.slots


def _swizzled(line: Int, row: Int, piece: Int) -> ir.Value:
    """Where a piece of a box's row lies, which begins at `line`."""
    place = arith.xori(device.value(piece), device.value(device.mod(row, BLOCK)))
    return device.value(device.add(line, device.mul(place, _PIECE)))


@dataclass(frozen=True)
class Totals:
    """The room of an agent's copies for numbers of rows, `room` bytes each at `place` behind `base`, one behind the
    other, and their barriers. A turn's number counts."""

    ctas: int
    base: ir.Value
    barriers: int
    place: int
    room: int

    def init(self, copies: int) -> None:
        """One thread."""
        for number in range(2 * copies):
            mbarrier.init(device.add(self.base, self.barriers + number * mbarrier.BYTES), 1)

    def advance(self, turn: Slot) -> Slot:
        return Slot(device.add(turn.number, 1), turn.parity)

    def joined(
        self,
        numbers: Sequence[ir.Value],
        join: Callable[[ir.Value, ir.Value], ir.Value],
        turn: Slot,
        copy: Int,
        own: Boxes,
    ) -> list[ir.Value]:
        """The numbers of a thread's two rows, in all four threads of a row the same, with those of all CTAs."""
        base = warps.here(self.base)
        barrier = device.add(device.add(base, device.mul(copy, TOTAL_BARRIERS)), self.barriers)
        place = arith.andi(turn.number, device.value(1))
        parity = arith.andi(arith.shrui(turn.number, device.value(1)), device.value(1))
        barrier = device.add(barrier, device.mul(place, mbarrier.BYTES))
        room = device.add(device.add(base, device.mul(copy, self.room)), self.place)
        room = device.add(room, device.mul(place, self.room // 2))
        mbarrier.expect_where(barrier, (self.ctas - 1) * ROWS * _WORD, own.leader)
        with device.when(device.equal(own.pair, 0)):
            for distance in range(1, self.ctas):
                cta = peer(distance, self.ctas)
                signal = cluster.remote(barrier, cta)
                for h, number in enumerate(numbers):
                    cluster.send_word(cluster.remote(self._at(room, cluster.rank(), own, h), cta), number, signal)
        waits.on_cluster(barrier, parity, "the other CTAs' numbers of rows")
        found = list(numbers)
        for distance in range(1, self.ctas):
            for h in range(len(found)):
                at = device.shared(self._at(room, peer(distance, self.ctas), own, h))
                found[h] = join(found[h], device.load(at, ir.F32Type.get()))
        return found

    @staticmethod
    def _at(room: Int, cta: Int, own: Boxes, half: int) -> Int:
        row = device.add(own.own_row, 8 * half)
        return device.add(room, device.mul(device.add(device.mul(cta, ROWS), row), _WORD))
