"""An agent's slots: who opens and closes them, what is copied into them, and the threads that do nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import bulk, mbarrier, tma, warps, wgmma
from kitsune_mlir.codegen.hopper.frame import when_reading
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.windows import in_memory, windows_of
from kitsune_mlir.mlir import arith, ir, walk

from .around import Surroundings
from .between import BetweenCode, TileSlot
from .look_up import look_up, numbers_of
from .loops import Open
from .windows import first_of

_ALLOC = schedule.AllocRingOp.OPERATION_NAME


@dataclass(kw_only=True)
class SlotCode(BetweenCode):
    """The code of an agent, as far as it is about slots."""

    agent: schedule.AgentOp
    around: Surroundings

    def _feed(self, rings: Sequence[str]) -> None:
        """A thread fills the rings. Those into which only constant tensors are copied are filled by a thread that does
        not wait for the kernel before (passes/overlap_launches.py), of another warp where there are others."""
        sources: dict[str, set[int]] = {ring: set() for ring in rings}
        maps = set(self.around.map_of.values())
        for copy in walk(self.agent, schedule.CopyOp.OPERATION_NAME):
            found = {hash(in_memory(source)) for source in schedule.candidates(copy.operands[1])}
            found |= set(map(hash, numbers_of(copy)))
            sources[schedule.ring_of(copy.operands[0]).label] |= found
            own = self._maps_of(copy)
            maps = maps - own if found <= self.around.constant.keys() else maps | own
        early = [ring for ring in rings if sources[ring] <= self.around.constant.keys()]
        late = [ring for ring in rings if ring not in early]
        first, apart = device.equal(device.thread(), self.first), self.agent.warp_count > 1
        if late and early and apart:
            with device.when(first):
                for number in sorted(maps):
                    tma.prefetch_map(tma.map_pointer(self.around.maps, number))
        if early and (apart or not late):
            reads = {self.around.constant[source] for ring in early for source in sources[ring]}
            thread = device.equal(device.thread(), self.first + warps.WARP) if late else first
            with when_reading(thread, reads):
                self._fill_rings(early)
        else:
            late = rings
        if late:
            with device.when(first):
                self._fill_rings(late)

    def _maps_of(self, copy: ir.Operation) -> set[int]:
        """The numbers of a copy's first tensor map, and of that of its shorter boxes."""
        first = self.around.map_of.get(copy)
        if first is None:
            return set()
        short = {first + len(schedule.candidates(copy.operands[1]))} if copy.opview.last_rows is not None else set()
        return {first} | short

    def _fill_rings(self, rings: Sequence[str]) -> None:
        """The agent's operations on these rings."""
        self.values = {hash(self.agent.block.arguments[0]): 0}
        self.turns = {ring: Slot.first() for ring in rings}
        self._block(self.agent.block)

    def _short_slots(self) -> dict[str, int]:
        """The rings of left operands whose slots are opened for their first rows only, and those rows."""
        found = {}
        for op in walk(self.agent, schedule.ProductOp.OPERATION_NAME):
            left = op.operands[1]
            sees_all = isinstance(left.type, schedule.Slot) and op.opview.window is None
            if sees_all and (ring := schedule.ring_of(left)) is not None:
                rows = schedule.tile_of(left).shape[0]
                if rows < ring.tile.shape[0]:
                    found[ring.label] = rows
        return found

    def _clear(self, label: str, rows: int) -> None:
        """Zeros in the rows of a ring's slots that no copy reaches, before products read them."""
        (op,) = (op.opview for op in walk(self.agent.operation.parent, _ALLOC) if op.opview.label == label)
        ring = self._own_ring(op) if op.memory == schedule.DSMEM else self.around.rings[label]
        word, reached = 16, rows * wgmma.BOX_ROW
        zero = device.whole([device.value(0)] * (word // 4))

        def clear(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            for slot in range(ring.slots):
                place = device.add(device.add(ring.data, slot * ring.slot_bytes + reached), device.mul(i, word))
                device.store(zero, device.shared(place), align=word)
            return []

        thread = device.value(device.mod(device.thread(), wgmma.THREADS))
        device.loop(thread, (ring.slot_bytes - reached) // word, wgmma.THREADS, clear)
        tma.fence()
        group = device.sub(device.div(device.thread(), wgmma.THREADS), self.first // wgmma.THREADS)
        warps.barrier(self._barrier(group), wgmma.THREADS)

    def _barrier(self, group: Int) -> Int:
        """The number of the barrier that a copy of this number has alone, among all agents."""
        return device.add(group, max(1, self.first // wgmma.THREADS))

    def _opened(self, op: ir.Operation) -> tuple[Ring, Slot]:
        ring = op.operands[0].owner.operation.opview
        code, slot = self.around.rings[ring.label], self.turns[ring.label]
        tile = schedule.tile_of(op.results[0])
        self.values[hash(op.results[0])] = Open(ring, slot, tile)
        self.turns[ring.label] = code.advance(slot)
        return code, slot

    def _acquire(self, op: ir.Operation) -> None:
        if schedule.is_between(op.operands[0]):
            self._open_between(op)
            return
        if op.operands[0].owner.operation.opview.label not in self.turns:
            return  # another thread fills it
        ring, slot = self._opened(op)
        ring.wait_empty(slot)
        opened = self.values[hash(op.results[0])]
        if not opened.ring.is_filled_by_threads:
            mbarrier.expect(ring.full(slot), opened.nbytes)

    def _wait(self, op: ir.Operation) -> None:
        if schedule.is_between(op.operands[0]):
            self._open_between(op)
            return
        ring, slot = self._opened(op)
        opened = self.values[hash(op.results[0])].ring
        if opened.memory == schedule.DSMEM:
            self._received(opened, slot)
        else:
            ring.wait_full(slot)

    def _commit(self, op: ir.Operation) -> None:
        """The copies' bytes fill the slot; one between roles is told to be full, and so is one that threads filled,
        once products see what they stored (PTX ISA, fence.proxy.async)."""
        if isinstance(opened := self.values.get(hash(op.operands[0])), TileSlot):
            self._commit_between(opened)
        elif opened is not None and opened.ring.is_filled_by_threads:
            tma.fence()
            warps.sync()
            ring = self.around.rings[opened.ring.label]
            mbarrier.arrive(ring.full(opened.slot), warps.is_first())

    def _release(self, op: ir.Operation) -> None:
        for token in list(op.operands)[1:]:
            self.products.wait(self.values[hash(token)])
        opened = self.values[hash(op.operands[0])]
        if isinstance(opened, TileSlot):
            self._release_between(op, opened)
            return
        if opened.ring.memory == schedule.DSMEM:
            self._give_back(opened.ring, opened.slot)
            return
        if opened.ring.sharing == "own":
            self.may_stow = False
            return
        ring = self.around.rings[opened.ring.label]
        lane = warps.lane()
        if opened.ring.is_read_by_threads:  # before copies write there, in another proxy; loads may not have ended
            tma.fence()
            warps.sync()
        ring.release(opened.slot, device.equal(lane, 0) if ring.by_warps else self._leader())

    def _look_up(self, op: ir.Operation) -> None:
        """Where a thread copies what is found so."""
        if any(schedule.ring_of(copy.operands[0]).label in self.turns for copy in op.opview.copies):
            pointer, at = self.around.pointers[hash(op.operands[0])], self.number(op.operands[1])
            self.values[hash(op.results[0])] = look_up(op.opview, pointer, at)

    def _copy(self, op: ir.Operation) -> None:
        copy, opened = op.opview, self.values.get(hash(op.operands[0]))
        if opened is None:
            return  # another thread's slot
        ring, slot = self.around.rings[opened.ring.label], opened.slot
        if copy.elements is not None:
            nbytes = opened.tile.element_type.width // 8
            place = device.add(ring.place(slot), copy.elements.start * nbytes)
            bulk.load(self.around.pointers[hash(op.operands[1])], place, len(copy.elements) * nbytes, ring.full(slot))
            return
        number: Int = self.around.map_of[op]
        if len(schedule.candidates(op.operands[1])) > 1:
            number = device.add(number, self.number(op.operands[1].owner.operands[0]))
        at = [self.number(offset) for offset in list(op.operands)[2:]]
        last = self._is_last(copy, opened, at)
        if last is not None:  # the maps of shorter boxes come behind those of the others
            behind = arith.select(last, *map(device.value, (len(schedule.candidates(op.operands[1])), 0)))
            number = device.add(number, behind)
        map_ = tma.map_pointer(self.around.maps, number)
        if isinstance(source := self.values.get(hash(op.operands[1])), TileSlot):
            at[0] = device.add(at[0], source.ring.row(source.tile))
        rows, columns = opened.tile.shape
        along, length, across = (columns, columns, rows) if opened.ring.layout == "rows" else (rows, rows, columns)
        axis = copy.axes[-1 if opened.ring.layout == "rows" else 0]
        nbytes = opened.tile.element_type.width // 8
        each, matrix = wgmma.BOX_ROW // nbytes, windows_of(op.operands[1])
        for number in range(-(-length // each)):
            place = list(at)
            place[axis] = device.add(at[axis], number * each)
            target = device.add(ring.place(slot), number * across * wgmma.BOX_ROW)
            if matrix is None:
                tma.load(map_, place[::-1], target, ring.full(slot))
                if last is not None:
                    missing = (rows - (copy.last_rows or rows)) * min(length * nbytes, wgmma.BOX_ROW)
                    mbarrier.complete_where(ring.full(slot), missing, last)
            else:
                begin, offsets = first_of(matrix, place, self.around.sizes[hash(in_memory(op.operands[1]))])
                tma.load_windows(map_, begin[::-1], offsets[::-1], target, ring.full(slot))

    @staticmethod
    def _is_last(copy: schedule.CopyOp, opened: Open, at: Sequence[Int]) -> ir.Value | None:
        """Whether (i1) a box reaches behind the tensor's last row, and is shorter then; None where none is."""
        if copy.last_rows is None:
            return None
        axis = copy.axes[0]
        size = ir.RankedTensorType(copy.operands[1].type).shape[axis]
        return device.less(size - opened.tile.shape[0], at[axis])
