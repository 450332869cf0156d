"""The gpu.module of a kernel at the schedule level.

    @kernel(maps: struct by value, tensors..., outputs..., workspace, rows: i32)

The threads of a CTA are those of the agents, one after another in the order in which they stand. Shared memory holds
the rings' barriers, then their slots. What the level leaves open is derived here: who arrives at which barrier how
often, the bytes that a slot's copies bring, tensor maps, registers that move between warpgroups.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.ampere import cp_async
from kitsune_mlir.codegen.hopper import cluster, mbarrier, tma, waits, warps, wgmma
from kitsune_mlir.codegen.hopper.fragments import is_packed
from kitsune_mlir.codegen.hopper.frame import Frame, build
from kitsune_mlir.codegen.hopper.mbarrier import Ring
from kitsune_mlir.codegen.hopper.tma import TensorMap
from kitsune_mlir.codegen.pipeline import counters, device
from kitsune_mlir.codegen.pipeline.watch import Waits
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import parent_of
from kitsune_mlir.dialects.windows import WindowsOp, in_memory, windows_of
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, location, walk
from kitsune_mlir.planning.target import Target

from .agent import AgentCode, Surroundings
from .dots import DotsCode, multiplies_alone, stash_bytes
from .exchanges import TOTAL_BARRIERS, Totals
from .extents import constant
from .meetings import BARRIER_BYTES, Meetings
from .prefetch import PrefetchCode, asks
from .rows import RowCode, scratch_bytes
from .warp_agent import WarpCode
from .warpgroups import WARPGROUP, each, together, warps_of

AGENT = schedule.AgentOp.OPERATION_NAME
REGISTERS = 65536  # of an SM
_WORD_BYTES = 16
_MOST_REGISTERS = 255  # of a thread at launch
_BESIDE_SUMS = 26  # registers that ptxas wants of a thread at launch besides those of a product's sums


@dataclass(frozen=True)
class _Place:
    """Byte offsets of a ring in shared memory."""

    barriers: int
    slots: int


class ScheduledKernel:
    """`constant` are the numbers of tensors that no kernel of the program writes. Raises UnsupportedError for what has
    no code here."""

    def __init__(
        self, kernel: schedule.KernelOp, target: Target, wait_budget: int = 0, constant: frozenset[int] = frozenset()
    ):
        self.kernel, self.target, self.waits, self.constant = kernel, target, Waits(wait_budget), constant
        self.tensors = tensors_of(kernel)
        self.results = kernel.result_ops
        if len({result.position for result in self.results}) != len(self.results):
            raise UnsupportedError(f"an output of kernel '{kernel.label}' is taken out twice")
        for value in (*self.tensors, *(result.results[0] for result in self.results)):
            _check_open(ir.RankedTensorType(value.type))
        self._numbers = {hash(value): number for number, value in enumerate(self.tensors)}
        self._has_warpgroups = target.products == "wgmma"
        self._check_engines()
        self._check_registers()
        self._lay_out()
        self._make_maps()

    @property
    def _given(self) -> int:
        """The registers of a thread at launch."""
        return min(_MOST_REGISTERS, REGISTERS // (self.threads * self.kernel.ctas_per_sm)) // 8 * 8

    def _check_engines(self) -> None:
        copy, product = schedule.engines(self.target.products)
        for ring in self.kernel.rings:
            if ring.sharing == "own" and not self._has_warpgroups:
                raise UnsupportedError(f"ring '{ring.label}' is each copy's own, which wants warpgroups")
            if not ring.has_elements and not self._has_warpgroups:
                raise UnsupportedError(f"ring '{ring.label}' passes turns alone, which wants warpgroups")
        for op in walk(self.kernel, schedule.CopyOp.OPERATION_NAME, schedule.ProductOp.OPERATION_NAME):
            wanted = copy if op.name == schedule.CopyOp.OPERATION_NAME else product
            if (found := op.opview.engine_name) != wanted:
                raise UnsupportedError(
                    f'{location(op.location)}: {op.name} has the engine "{found}", {self.target.name} wants "{wanted}"'
                )

    def _check_registers(self) -> None:
        """ptxas (C7602) does not count on what an agent's threads take of others' registers. Without warpgroups nobody
        takes any: all threads have what the launch gives."""
        if not self._has_warpgroups:
            for agent in self.kernel.agents:
                if agent.register_count != self._given:
                    raise UnsupportedError(
                        f"agent '{agent.label}' has {agent.register_count} registers of a thread, wants "
                        f"{self._given}: all that a launch of {self.threads} threads gives"
                    )
            return
        for op in walk(self.kernel, schedule.ProductOp.OPERATION_NAME):
            _, columns = ir.RankedTensorType(ir.TypeAttr(op.results[0].type.elem).value).shape
            if (wanted := columns // 2 + _BESIDE_SUMS) > self._given:
                raise UnsupportedError(
                    f"{location(op.location)}: a product of {columns} columns wants {wanted} registers of a thread, "
                    f"{self.threads * self.kernel.ctas_per_sm} threads are given {self._given}"
                )

    def _lay_out(self) -> None:
        rings = self.kernel.rings
        at, self.places = 0, {}
        starts = {}
        for ring in rings:
            starts[ring.label] = at
            at += 2 * mbarrier.BYTES * ring.slots * (self._takers(ring).count if ring.memory == schedule.DSMEM else 1)
        for ring in rings:
            at = -(-at // tma.ALIGN) * tma.ALIGN
            self.places[ring.label] = _Place(starts[ring.label], at)
            at += ring.slots * ring.slot_bytes
        meeting = [agent for agent in self.kernel.agents if agent.meeting_bytes]
        self.meeting = meeting[0] if meeting else None
        if len(meeting) > 1 or meeting and not self._has_warpgroups:
            raise UnsupportedError(f"CTAs of kernel '{self.kernel.label}' meet in {len(meeting)} agents")
        self.rooms = self.meeting_barriers = at
        if self.meeting is not None:
            at = -(-at // tma.ALIGN) * tma.ALIGN
            self.rooms, self.meeting_barriers = at, at + self.meeting.count * self.meeting.meeting_bytes
            at = self.meeting_barriers + self.meeting.count * BARRIER_BYTES
        telling = [agent for agent in self.kernel.agents if agent.total_bytes]
        self.telling = telling[0] if telling else None
        self.totals = at = -(-at // _WORD_BYTES) * _WORD_BYTES
        at += sum(agent.count * (agent.total_bytes + TOTAL_BARRIERS) for agent in telling)
        self.scratch = self.outboxes = at
        at += sum(map(scratch_bytes, self.kernel.agents)) + sum(map(stash_bytes, self.kernel.agents))
        if boxes := sum(agent.outbox_bytes for agent in self.kernel.agents):
            at = -(-at // tma.ALIGN) * tma.ALIGN
            self.outboxes = at
            at += boxes
        self.shared_bytes = at
        if (whole := at * self.kernel.ctas_per_sm) > self.target.shared_bytes:
            raise UnsupportedError(
                f"{self.kernel.ctas_per_sm} CTAs of kernel '{self.kernel.label}' want {whole} bytes of shared memory, "
                f"{self.target.name} has {self.target.shared_bytes}"
            )

    def _make_maps(self) -> None:
        self.maps: list[TensorMap] = []
        self.map_of: dict[ir.Operation, int] = {}  # by copy
        known: dict[tuple[TensorMap, ...], int] = {}  # those of a copy, one behind the other
        for copy in walk(self.kernel, schedule.CopyOp.OPERATION_NAME):
            if copy.opview.engine_name != "tma" or copy.opview.elements is not None:
                continue
            sources = schedule.candidates(copy.operands[1])
            maps = tuple(self._map(copy.opview, source) for source in sources)
            if maps not in known:
                known[maps] = len(self.maps)
                self.maps += maps
            self.map_of[copy] = known[maps]
        for write in self.kernel.writes:
            if write.engine_name == schedule.COPIED:
                self.map_of[write.operation] = len(self.maps)
                self.maps.append(self._map_of_output(write))

    def _map_of_output(self, write: schedule.WriteOp) -> TensorMap:
        """The map of an output that the copy engine stores: a warpgroup's rows of a box's columns."""
        number, type_ = next((n, r.results[0].type) for n, r in enumerate(self.results) if r.position == write.position)
        kind = ir.RankedTensorType(type_)
        nbytes, width = kind.element_type.width // 8, kind.shape[-1]
        if not self._has_warpgroups or kind.rank != 2 or width * nbytes % 16:
            raise UnsupportedError(f"{location(write.location)}: {type_} is not stored by tensor copies")
        dims = (width, None if kind.is_dynamic_dim(0) else kind.shape[0])
        box, element = (tma.SWIZZLE // nbytes, wgmma.ROWS), str(kind.element_type)
        return TensorMap(len(self.tensors) + number, element, dims, (width * nbytes,), box)

    def _map(self, copy: schedule.CopyOp, source: ir.Value) -> TensorMap:
        """The map of one of the tensors that a copy may mean."""
        if (matrix := windows_of(source)) is not None:
            return self._map_of_windows(copy, matrix)
        tile = ir.RankedTensorType(ir.TypeAttr(copy.operands[0].type.elem).value)
        kind, ring = ir.RankedTensorType(source.type), schedule.ring_of(copy.operands[0])
        nbytes = kind.element_type.width // 8
        dims = [None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
        box = [1] * kind.rank
        for axis, size in zip(copy.axes, tile.shape):
            box[axis] = size
        along = copy.axes[1 if ring.layout == "rows" else 0]
        if along != kind.rank - 1:
            raise UnsupportedError(f"the boxes of ring '{ring.label}' do not lie along the last dimension of {kind}")
        box[along] = tma.SWIZZLE // nbytes
        strides, stride = [], nbytes
        for size in reversed(dims[1:]):
            stride *= size
            strides.append(stride)
        number = self._numbers[hash(source)]
        return TensorMap(number, str(kind.element_type), tuple(dims[::-1]), tuple(strides), tuple(box[::-1]))

    def _map_of_windows(self, copy: schedule.CopyOp, matrix: WindowsOp) -> TensorMap:
        ring, windows, images = schedule.ring_of(copy.operands[0]), matrix.windows, matrix.operands[0]
        kind = ir.RankedTensorType(images.type)
        nbytes = kind.element_type.width // 8
        rank = ir.RankedTensorType(matrix.results[0].type).rank
        if copy.axes != [rank - 2, rank - 1] or ring.layout != "rows":
            raise UnsupportedError(f"the boxes of ring '{ring.label}' do not lie along the columns of its windows")
        if reason := windows.unreadable():
            raise UnsupportedError(f"the copy engine reads no such windows: {reason}")
        dims = (None if kind.is_dynamic_dim(0) else kind.shape[0], *windows.sizes, windows.channels)
        strides = tuple(pitch * nbytes for pitch in matrix.pitches[-2::-1])
        box = (tma.SWIZZLE // nbytes, ring.tile.shape[0])
        corners = tma.Corners(windows.lower[::-1], windows.upper[::-1], windows.strides[::-1])
        number = self._numbers[hash(images)]
        return TensorMap(number, str(kind.element_type), dims[::-1], strides, box, corners=corners)

    @property
    def threads(self) -> int:
        return sum(agent.count * agent.warp_count * warps.WARP for agent in self.kernel.agents)

    def streams(self) -> list[int]:
        """The numbers of the tensors whose first size is that of the call; of any one where all sizes are known."""
        tables = self._tables.get("sizes", ())
        open_ = [
            n
            for n, value in enumerate(self.tensors)
            if _rank(value) and value.type.is_dynamic_dim(0) and n not in tables
        ]
        return open_ or [next(n for n, value in enumerate(self.tensors) if _rank(value))]

    @property
    def _tables(self) -> dict[str, list[int]]:
        """Which tensors are tables of any number of rows."""
        return index_checks.sizes(self.kernel, self.tensors)

    def zeroed(self) -> list[int]:
        """The numbers of the results that rows are added to, which are zero before."""
        adding = {op.opview.position for op in walk(self.kernel, schedule.WRITE_ROWS) if op.opview.adds}
        return [number for number, result in enumerate(self.results) if result.position in adding]

    @property
    def ctas(self) -> int:
        """As many as the target holds at once, whole clusters, and no more of these than tiles where that is known."""
        tiles, most = self._tiles, self.target.sms * self.kernel.ctas_per_sm // self.kernel.cluster
        return (most if tiles is None else max(1, min(most, tiles))) * self.kernel.cluster

    @property
    def _tiles(self) -> int | None:
        """How many tiles there are; None where that is open until the call."""
        (tiles,) = (op.opview for op in walk(self.kernel, schedule.TilesOp.OPERATION_NAME))
        extents = [constant(extent) for extent in tiles.operands]
        return None if None in extents else prod(-(-extent // size) for extent, size in zip(extents, tiles.sizes))

    def launch(self) -> str:
        """What the runtime needs to launch the kernel, JSON."""
        workspace = counters.FIRST_AT if self.waits.budget else 0  # a report
        return json.dumps(
            {
                "kernel": self.kernel.label,
                "ctas": self.ctas,
                "cluster": self.kernel.cluster,
                "threads": self.threads,
                "shared_bytes": self.shared_bytes,
                "workspace_bytes": workspace,
                "counter_bytes": workspace,
                "cooperative": False,
                "strided": True,
                "watched": self.waits.described,
                "streams": self.streams(),
                "tile_rows": 1,
                "sums": bool(self.kernel.rings and self._tiles),  # a product of no columns is zero, of any rows
                "maps": [map_.description() for map_ in self.maps],
                **({"zeroed": zeroed} if (zeroed := self.zeroed()) else {}),
                **self._tables,
            }
        )

    def build(self) -> ir.Operation:
        """The gpu.module, at the insertion point."""
        pointers = len(self.tensors) + len(self.results)
        boxes = [ring for ring in self.kernel.rings if ring.layout != "dense"]
        tiles = [ring.tile for ring in boxes] or [result.results[0].type for result in self.results]
        products = [op.opview for op in walk(self.kernel, schedule.ProductOp.OPERATION_NAME)]
        in_pieces = any(product.is_added_outside for product in products)
        fast = all(is_packed(tile.element_type) for tile in tiles) and not in_pieces
        resident, alone = self.kernel.ctas_per_sm, any(map(multiplies_alone, self.kernel.agents))
        named = self.kernel.label, pointers, len(self.maps), self.threads, self._watched, self.kernel.cluster
        return build(*named, fast=fast, resident=resident, alone=alone)

    def _watched(self, frame: Frame) -> None:
        watch = self.waits.watch(frame.workspace)
        barriers = self.kernel.cluster > 1
        with waits.watched(watch, barriers) if self._has_warpgroups else waits.watched(watch, drain=_drain):
            self._body(frame)

    def _body(self, frame: Frame) -> None:
        rings = {ring.label: self._ring(ring, frame.base) for ring in self.kernel.rings}
        meetings = None
        if self.meeting is not None:
            places = (device.add(frame.base, at) for at in (self.meeting_barriers, self.rooms))
            meetings = Meetings(self.kernel.cluster, *places, self.meeting.meeting_bytes)
        totals = None
        if self.telling is not None:
            numbers = self.totals + self.telling.count * TOTAL_BARRIERS
            totals = Totals(self.kernel.cluster, frame.base, self.totals, numbers, self.telling.total_bytes)
        if rings:
            with device.when(device.equal(device.thread(), 0)):
                for ring in self.kernel.rings:
                    if ring.memory == schedule.DSMEM:
                        self._init_exchange(ring, rings[ring.label], frame.base)
                    elif ring.sharing != "own":
                        rings[ring.label].init(*self._ends(ring))
                if meetings is not None:
                    meetings.init(self.meeting.count)
                if totals is not None:
                    totals.init(self.telling.count)
                if self._has_warpgroups:
                    mbarrier.fence_init()
            device.barrier() if self.kernel.cluster == 1 else cluster.barrier()
        split = len(self.tensors)
        around = Surroundings(
            pointers=dict(zip(self._numbers, frame.pointers)),
            outputs={r.position: (p, r.results[0].type) for r, p in zip(self.results, frame.pointers[split:])},
            rings=rings,
            maps=frame.maps,
            map_of=self.map_of,
            constant={key: number for key, number in self._numbers.items() if number in self.constant},
            rows=frame.rows,
            base=frame.base,
            scratch=device.add(frame.base, self.scratch),
            outboxes=device.add(frame.base, self.outboxes),
            meetings=meetings,
            totals=totals,
            cluster=self.kernel.cluster,
        )
        self._agents(self.kernel.agents, 0, around, self._given)
        if self.kernel.cluster > 1:
            cluster.barrier()  # nobody leaves while others may still write here

    def _init_exchange(self, ring: schedule.AllocRingOp, whole: Ring, base: ir.Value) -> None:
        """One thread: the barriers of each copy."""
        taker = self._takers(ring)
        for copy in range(taker.count):
            barriers = device.add(base, device.add(whole.barriers, copy * whole.barrier_bytes))
            own = Ring(barriers, whole.data, whole.slots, whole.slot_bytes)
            own.init(1, taker.warp_count if whole.by_warps else 1)

    def _takers(self, ring: schedule.AllocRingOp) -> schedule.AgentOp:
        """The agent that takes a ring's tiles."""
        return self._agent_of(ring, schedule.WaitOp)

    def _agents(self, agents: Sequence[schedule.AgentOp], first: int, around: Surroundings, given: int) -> None:
        """Code for the threads from `first` on, those of the agents."""
        group, rest = together(agents)
        registers = {agent.register_count for agent in group}

        def emit() -> None:
            whole = len(group) > 1 or group[0].warp_count % WARPGROUP == 0
            if self._has_warpgroups and whole and registers != {given}:
                (count,) = registers
                warps.set_registers(count, grow=count > given)
            each(group, first, lambda agent, own: self._code(agent)(agent=agent, around=around, first=own).emit())

        if not rest:
            emit()
            return
        ends = first + sum(map(warps_of, group)) * warps.WARP
        branch = device.scf.IfOp(device.less(device.thread(), ends), has_else=True)
        with ir.InsertionPoint(branch.then_block):
            emit()
            device.scf.YieldOp([])
        with ir.InsertionPoint(branch.else_block):
            self._agents(rest, ends, around, given)
            device.scf.YieldOp([])

    def _code(self, agent: schedule.AgentOp) -> type[AgentCode]:
        """What generates an agent's code."""
        if agent.lanes is not None:
            return RowCode
        if multiplies_alone(agent):
            return DotsCode
        if asks(agent):
            return PrefetchCode
        return AgentCode if self._has_warpgroups else WarpCode

    def _ring(self, ring: schedule.AllocRingOp, base: ir.Value) -> Ring:
        """Of a ring in distributed shared memory places are counted from the first byte on (exchanges.py)."""
        place, start = self.places[ring.label], 0 if ring.memory == schedule.DSMEM else base
        barriers, slots = device.add(start, place.barriers), device.add(start, place.slots)
        return Ring(barriers, slots, ring.slots, ring.slot_bytes, ring.label, self._read_by_warps(ring))

    def _read_by_warps(self, ring: schedule.AllocRingOp) -> bool:
        """Whether warps read a slot's boxes by themselves: f32 is multiplied out of registers."""
        by_copies = ring.sharing == "split" or ring.memory == schedule.DSMEM
        return self._has_warpgroups and by_copies and isinstance(ring.tile.element_type, ir.F32Type)

    def _ends(self, ring: schedule.AllocRingOp) -> tuple[int, int]:
        """Arrivals that fill a slot and that empty it. Of warpgroups a thread begins the copies, whose bytes count, and
        a thread of each copy of the agent that waits for it releases it; a slot without elements is filled by a thread
        of each warp. Else all threads that copy, and a thread of
        each warp."""
        fills, takes = (self._agent_of(ring, op) for op in (schedule.AcquireOp, schedule.WaitOp))
        if self._has_warpgroups:
            full = 1 if ring.has_elements else warps_of(fills)
            return full, takes.count * (takes.warp_count if self._read_by_warps(ring) else 1)
        return fills.warp_count * warps.WARP, takes.count * takes.warp_count

    @staticmethod
    def _agent_of(ring: schedule.AllocRingOp, opens: type) -> schedule.AgentOp:
        """The agent that opens a ring's slots so."""
        uses = [use.owner.operation for use in ring.results[0].uses]
        opening = [op for op in uses if op.name == opens.OPERATION_NAME]
        agents = {agent.label: agent for op in opening if (agent := parent_of(op, AGENT).opview)}
        if len(agents) != 1:
            raise UnsupportedError(f"ring '{ring.label}' has {len(agents)} agents that wait for it, wants one")
        (agent,) = agents.values()
        return agent


def tensors_of(kernel: schedule.KernelOp) -> list[ir.Value]:
    """The tensors that a kernel is called with, in order."""
    return list(dict.fromkeys(in_memory(value) for value in kernel.inputs if rows.is_tensor(value)))


def _drain(party: bool) -> None:
    cp_async.wait_all()


def _check_open(kind: ir.RankedTensorType) -> None:
    if any(kind.is_dynamic_dim(d) for d in range(1, kind.rank)):
        raise UnsupportedError(f"a size of {kind} that is open until the call is not its first")


def _rank(value: ir.Value) -> int:
    return ir.RankedTensorType(value.type).rank
