"""The gpu.module of a kernel at the schedule level.

    @kernel(maps: struct by value, tensors..., outputs..., workspace, rows: i32)

The threads of a CTA are those of the agents, one after another in the order in which they stand. Shared memory holds
the rings' barriers, then their slots. What the level leaves open is derived here: who arrives at which barrier how
often, the bytes that a slot's copies bring, tensor maps, registers that move between warpgroups.
"""

from __future__ import annotations

import json
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.ampere import cp_async
from kitsune_mlir.codegen.hopper import tma, waits, wgmma
from kitsune_mlir.codegen.hopper.fragments import is_packed
from kitsune_mlir.codegen.hopper.frame import Frame, build
from kitsune_mlir.codegen.hopper.tile_ring import TileRing, places
from kitsune_mlir.codegen.hopper.tma import TensorMap
from kitsune_mlir.codegen.pipeline import counters, device
from kitsune_mlir.codegen.pipeline.watch import Waits
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import constant, parent_of
from kitsune_mlir.dialects.columns import is_among_columns, place_of, strides_of
from kitsune_mlir.dialects.dots import DotsOp
from kitsune_mlir.dialects.windows import WindowsOp, in_memory, windows_of
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, location, walk
from kitsune_mlir.operations import users_of
from kitsune_mlir.planning.product_engines import BESIDE_SUMS
from kitsune_mlir.planning.target import Target
from kitsune_mlir.planning.windows import OPEN

from .around import KernelAround
from .call_sizes import CallSizes, Source, open_dims
from .part import PartCode
from .warpgroups import threads_of

_ACQUIRE = schedule.AcquireOp.OPERATION_NAME
REGISTERS = 65536  # of an SM
_MOST_REGISTERS = 255  # of a thread at launch


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
        self._check_open()
        self._check_readers()
        self._numbers = {hash(value): number for number, value in enumerate(self.tensors)}
        self.sizes = CallSizes(kernel, self.tensors, self._tables.get("sizes", ()))
        self._check_engines()
        self._check_registers()
        self._place_parts()
        self._make_maps()

    @property
    def _agents(self) -> list[schedule.AgentOp]:
        return [agent for part in self.kernel.parts for agent in part.agents]

    @property
    def _rings(self) -> list[schedule.AllocRingOp]:
        return [ring for part in self.kernel.parts for ring in part.rings]

    @property
    def _given(self) -> int:
        """The registers of a thread at launch."""
        return min(_MOST_REGISTERS, REGISTERS // (self.threads * self.kernel.ctas_per_sm)) // 8 * 8

    def _check_readers(self) -> None:
        """Of tensors that lie among the columns of longer rows boxes alone are read."""
        for value in filter(lambda value: is_among_columns(value.type), self.tensors):
            for op in walk(self.kernel):
                reads = any(operand == value for operand in op.operands)
                if reads and op.name not in (schedule.CopyOp.OPERATION_NAME, schedule.ReadOp.OPERATION_NAME):
                    raise UnsupportedError(f"{location(op.location)}: {op.name} reads {value.type}")

    def _check_open(self) -> None:
        """Of tensors with a size that is open until the call, and not their first, copies of boxes and
        threads that read element by element, and write so or row by row, alone know where elements lie."""
        for value in filter(_is_open_inside, self.tensors):
            for op in walk(self.kernel):
                copied = op.name == schedule.CopyOp.OPERATION_NAME
                read = op.name == schedule.ReadOp.OPERATION_NAME and "together" not in op.attributes
                sized = op.name == "tensor.dim"
                if any(operand == value for operand in op.operands) and not (copied or read or sized):
                    raise UnsupportedError(f"{location(op.location)}: {op.name} takes no {value.type}")
        for write in self.kernel.writes:
            results = [result.results[0] for result in self.results if result.position == write.position]
            if write.engine_name == schedule.COPIED and any(map(_is_open_inside, results)):
                raise UnsupportedError(f"{location(write.location)}: the copy engine stores no {results[0].type}")

    def _check_engines(self) -> None:
        copy, product = schedule.engines(self.target.products)
        for ring in self._rings:
            if not ring.has_elements and not self.target.has_warpgroups:
                raise UnsupportedError(f"ring '{ring.label}' passes turns alone, which wants warpgroups")
            by_threads = ring.is_filled_by_threads or ring.is_read_by_threads
            if by_threads and not self.target.has_warpgroups:
                raise UnsupportedError(f"threads fill or read slots of ring '{ring.label}', which wants warpgroups")
        for op in walk(self.kernel, schedule.CopyOp.OPERATION_NAME, schedule.ProductOp.OPERATION_NAME):
            wanted = copy if op.name == schedule.CopyOp.OPERATION_NAME else product
            if (found := op.opview.engine_name) != wanted:
                raise UnsupportedError(
                    f'{location(op.location)}: {op.name} has the engine "{found}", {self.target.name} wants "{wanted}"'
                )
        for op in walk(self.kernel, schedule.ProductOp.OPERATION_NAME):
            ring = schedule.ring_of(op.operands[2])
            if not self.target.has_warpgroups and (op.opview.is_turned or ring is not None and ring.sharing == "split"):
                raise UnsupportedError(f"{location(op.location)}: a right operand of this order wants warpgroups")

    def _check_registers(self) -> None:
        """ptxas (C7602) does not count on what an agent's threads take of others' registers. Without warpgroups nobody
        takes any: all threads have what the launch gives."""
        if not self.target.has_warpgroups:
            for agent in self._agents:
                if agent.register_count != self._given:
                    raise UnsupportedError(
                        f"agent '{agent.label}' has {agent.register_count} registers of a thread, wants "
                        f"{self._given}: all that a launch of {self.threads} threads gives"
                    )
            return
        for op in walk(self.kernel, schedule.ProductOp.OPERATION_NAME):
            _, columns = schedule.tile_of(op.results[0]).shape
            if (wanted := columns // 2 + BESIDE_SUMS) > self._given:
                raise UnsupportedError(
                    f"{location(op.location)}: a product of {columns} columns wants {wanted} registers of a thread, "
                    f"{self.threads * self.kernel.ctas_per_sm} threads are given {self._given}"
                )

    def _place_parts(self) -> None:
        """Which CTAs run the parts, and where the rings between roles lie."""
        self.parts, first = [], 0
        for op in self.kernel.parts:
            self.parts.append(PartCode(op, self.kernel, self.target, first))
            first += op.cta_count or 0
        if len({part.threads for part in self.parts}) > 1:
            raise UnsupportedError(f"roles of kernel '{self.kernel.label}' have different numbers of threads")
        between = self.kernel.rings if self.kernel.has_roles else []
        rings = [(ring, ring.results[0].type, sum(map(_is_wait, ring.results[0].uses))) for ring in between]
        self.places, self.counter_bytes, self.ring_bytes = places(rings)

    def _make_maps(self) -> None:
        self.maps: list[TensorMap] = []
        self.map_of: dict[ir.Operation, int] = {}  # by copy
        known: dict[tuple[TensorMap, ...], int] = {}  # those of a copy, one behind the other, then of its shorter boxes
        for copy in walk(self.kernel, schedule.CopyOp.OPERATION_NAME):
            if copy.opview.engine_name != "tma" or copy.opview.elements is not None:
                continue
            sources = schedule.candidates(copy.operands[1])
            maps = tuple(self._map(copy.opview, source) for source in sources)
            if (last := copy.opview.last_rows) is not None:
                maps += tuple(self._map(copy.opview, source, last) for source in sources)
            if maps not in known:
                known[maps] = len(self.maps)
                self.maps += maps
            self.map_of[copy] = known[maps]
        for write in self.kernel.writes:
            if write.engine_name == schedule.COPIED:
                self.map_of[write.operation] = len(self.maps)
                self.maps.append(self._map_of_output(write))
        for fill in walk(self.kernel, schedule.FILL):
            if not fill.opview.is_between_roles:
                continue
            self.map_of[fill] = len(self.maps)
            self.maps.append(self._map_between(schedule.ring_of(fill.operands[0]), wgmma.ROWS))

    def _map_between(self, ring: schedule.AllocRingOp, box_rows: int) -> TensorMap:
        """The map of all slots of a ring between roles, as one tensor in the workspace."""
        (rows, columns), element, place = ring.tile.shape, ring.tile.element_type, self.places[ring.label]
        nbytes, workspace = element.width // 8, len(self.tensors) + len(self.results)
        if columns * nbytes % 16:
            raise UnsupportedError(f"{location(ring.operation.location)}: {ring.tile} is not stored by tensor copies")
        dims, box = (columns, rows * place.slots), (tma.SWIZZLE // nbytes, box_rows)
        return TensorMap(workspace, str(element), dims, (columns * nbytes,), box, offset=place.data)

    def _map_of_output(self, write: schedule.WriteOp) -> TensorMap:
        """The map of an output that the copy engine stores: a warpgroup's rows of a box's columns."""
        number, type_ = next((n, r.results[0].type) for n, r in enumerate(self.results) if r.position == write.position)
        kind = ir.RankedTensorType(type_)
        nbytes, place = kind.element_type.width // 8, place_of(kind)
        if not self.target.has_warpgroups or kind.rank != len(write.box) + (kind.rank > 2) or place.step * nbytes % 16:
            raise UnsupportedError(f"{location(write.location)}: {type_} is not stored by tensor copies")
        dims = [None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
        box = [*([1] * (kind.rank - len(write.box))), *write.box[:-1], tma.SWIZZLE // nbytes]
        strides = tuple(stride * nbytes for stride in strides_of(kind)[-2::-1])
        number, first, element = len(self.tensors) + number, place.first * nbytes, str(kind.element_type)
        sources = self.sizes.of_result(next(r for r in self.results if r.position == write.position), kind)
        open_ = tuple(map(self.sizes.all.index, sources[::-1]))
        return TensorMap(number, element, tuple(dims[::-1]), strides, tuple(box[::-1]), offset=first, open=open_)

    def _map(self, copy: schedule.CopyOp, source: ir.Value, last: int | None = None) -> TensorMap:
        """The map of one of the tensors that a copy may mean; of its boxes of `last` rows, where these are given."""
        if isinstance(source.type, schedule.Slot):
            rows = schedule.tile_of(copy.operands[0]).shape[0]
            return self._map_between(schedule.ring_of(source), rows)
        if (matrix := windows_of(source)) is not None:
            return self._map_of_windows(copy, matrix)
        tile = schedule.tile_of(copy.operands[0])
        kind, ring = ir.RankedTensorType(source.type), schedule.ring_of(copy.operands[0])
        nbytes = kind.element_type.width // 8
        dims = [None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
        box = [1] * kind.rank
        for axis, size in zip(copy.axes, copy.box):
            box[axis] = size
        along = copy.axes[-1 if ring.layout == "rows" else 0]
        if along != kind.rank - 1:
            raise UnsupportedError(f"the boxes of ring '{ring.label}' do not lie along the last dimension of {kind}")
        box[along] = tma.SWIZZLE // nbytes if ring.layout == "columns" else min(tma.SWIZZLE // nbytes, tile.shape[1])
        box[copy.axes[0]] = last or box[copy.axes[0]]
        strides = tuple(stride * nbytes for stride in strides_of(kind)[-2::-1])
        number, first = self._numbers[hash(source)], place_of(kind).first * nbytes
        described = _element(copy, kind), tuple(dims[::-1]), strides, tuple(box[::-1])
        line = schedule.GRANULE // nbytes if copy.is_longer else 1
        open_ = tuple(map(self.sizes.all.index, self.sizes.of_tensor(number)[::-1]))
        return TensorMap(number, *described, offset=first, line=line, open=open_)

    def _map_of_windows(self, copy: schedule.CopyOp, matrix: WindowsOp) -> TensorMap:
        ring, windows, images = schedule.ring_of(copy.operands[0]), matrix.windows, matrix.operands[0]
        kind = ir.RankedTensorType(images.type)
        nbytes = kind.element_type.width // 8
        if copy.axes != matrix.axes[:: 1 if ring.layout == "rows" else -1]:
            raise UnsupportedError(f"the boxes of ring '{ring.label}' do not lie along the columns of its windows")
        if reason := windows.unreadable():
            raise UnsupportedError(f"the copy engine reads no such windows: {reason}")
        space = (None if size == OPEN else size for size in windows.sizes)
        dims = (None if kind.is_dynamic_dim(0) else kind.shape[0], *space, windows.channels)
        strides = tuple(pitch * nbytes for pitch in matrix.pitches[-2::-1])
        opened = ir.RankedTensorType(ir.TypeAttr(copy.operands[0].type.elem).value).shape[1]
        columns, count = (opened, ring.tile.shape[0]) if ring.layout == "rows" else (ring.tile.shape[0], opened)
        box = (min(tma.SWIZZLE // nbytes, columns), count)
        corners = tma.Corners(windows.lower[::-1], windows.upper[::-1], windows.strides[::-1])
        number = self._numbers[hash(images)]
        open_ = tuple(map(self.sizes.all.index, self.sizes.of_tensor(number)[::-1]))
        return TensorMap(number, _element(copy, kind), dims[::-1], strides, box, corners=corners, open=open_)

    @property
    def threads(self) -> int:
        return threads_of(self.kernel.parts[0].agents)

    def sizes_from(self, number: int, kind: ir.Type) -> list[Source]:
        """Where the open sizes of a result come from, which callers take as of this type."""
        return self.sizes.of_result(self.results[number], kind)

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
        """Those of all roles; else as many as the target holds at once, whole clusters, and no more of these than tiles
        where that is known; as many as tiles where each has its own."""
        if self.kernel.has_roles:
            return sum(part.op.cta_count for part in self.parts)
        tiles, most = self._tiles, self.target.clusters_at_once(self.kernel.cluster) * self.kernel.ctas_per_sm
        if tiles is not None:
            most = max(1, tiles if self.kernel.has_single_tiles else min(most, tiles))
        return most * self.kernel.cluster

    @property
    def _tiles(self) -> int | None:
        """How many tiles there are; None where that is open until the call."""
        tiles = self.kernel.parts[0].tiles
        extents = [constant(extent) for extent in tiles.operands]
        return None if None in extents else prod(-(-extent // size) for extent, size in zip(extents, tiles.sizes))

    def _reduces_columns(self) -> bool:
        """Whether rows of no columns have results, as a product of none is zero, of any rows."""
        fixed = [op for op in self.kernel.result_ops if not open_dims(op.results[0].type)]
        return bool(fixed) and any(agent.lanes for agent in self._agents)

    def launch(self) -> str:
        """What the runtime needs to launch the kernel, JSON."""
        streams = self.sizes.streams()
        counted = self.waits.budget or self.kernel.has_roles  # a report, or the CTAs that have ended
        workspace = max(self.ring_bytes, counters.FIRST_AT if counted else 0)
        return json.dumps(
            {
                "kernel": self.kernel.label,
                "ctas": self.ctas,
                "cluster": self.kernel.cluster,
                "threads": self.threads,
                "shared_bytes": max(part.shared_bytes for part in self.parts),
                "workspace_bytes": workspace,
                "counter_bytes": min(workspace, self.counter_bytes),
                "cooperative": self.kernel.has_roles,
                "strided": not (self.kernel.has_roles or self.kernel.has_single_tiles),
                "watched": self.waits.described,
                "streams": [number for number, _ in streams],
                **({"axes": [axis for _, axis in streams]} if any(axis for _, axis in streams) else {}),
                **({"further": further} if (further := self.sizes.all[1:]) else {}),
                **({"least_rows": least} if (least := self.kernel.least_open) else {}),
                **(self.sizes.of_tiles() if self.kernel.has_single_tiles and self._tiles is None else {}),
                "tile_rows": 1,
                "sums": bool(self._rings and self._tiles) or self._reduces_columns(),
                "maps": [map_.description() for map_ in self.maps],
                **({"zeroed": zeroed} if (zeroed := self.zeroed()) else {}),
                **self._tables,
            }
        )

    def build(self) -> ir.Operation:
        """The gpu.module, at the insertion point."""
        pointers = len(self.tensors) + len(self.results)
        boxes = [ring for ring in self._rings if ring.layout != "dense"]
        tiles = [ring.tile for ring in boxes] or [result.results[0].type for result in self.results]
        fast = all(is_packed(tile.element_type) for tile in tiles) and self.kernel.pairs == 1
        resident = self.kernel.ctas_per_sm
        alone = self.kernel.has_single_tiles or bool(walk(self.kernel, DotsOp.OPERATION_NAME))
        named = self.kernel.label, pointers, len(self.maps), self.threads, self._watched, self.kernel.cluster
        return build(*named, fast=fast, resident=resident, alone=alone, further=len(self.sizes.all[1:]))

    def _watched(self, frame: Frame) -> None:
        watch = self.waits.watch(frame.workspace)
        barriers = self.kernel.cluster > 1
        with waits.watched(watch, barriers) if self.target.has_warpgroups else waits.watched(watch, drain=_drain):
            self._body(frame)

    def _body(self, frame: Frame) -> None:
        split, sizes = len(self.tensors), self.sizes
        given, results = sizes.given(frame.sizes), zip(self.results, frame.pointers[split:])
        around = KernelAround(
            pointers=dict(zip(self._numbers, frame.pointers)),
            outputs={
                result.position: (to, type_ := result.results[0].type, list(map(given, sizes.of_result(result, type_))))
                for result, to in results
            },
            queues={label: self._queue(label, frame.workspace) for label in self.places},
            maps=frame.maps,
            map_of=self.map_of,
            constant={key: number for key, number in self._numbers.items() if number in self.constant},
            sizes={key: list(map(given, sizes.of_tensor(number))) for key, number in self._numbers.items()},
            size_of=lambda size: given(sizes.asked(size)),
            base=frame.base,
            cluster=self.kernel.cluster,
        )
        if not self.kernel.has_roles:
            self.parts[0].emit(around, self._given)
            return
        for part in self.parts:
            first, end = part.first, part.first + part.op.cta_count
            inside = arith.andi(device.less(device.cta(), end), device.less(device.value(first - 1), device.cta()))
            with device.when(inside), part.op.operation.location:
                part.emit(around, self._given)
        device.barrier()
        waits.leave_if_reported()
        with device.when(device.equal(device.thread(), 0)):
            counters.finish(frame.workspace, self.counter_bytes, self.ctas)

    def _queue(self, label: str, workspace: ir.Value) -> TileRing:
        """A ring between roles."""
        (ring,) = (ring for ring in self.kernel.rings if ring.label == label)
        opens = users_of(ring.results[0], _ACQUIRE)[0]
        makers = parent_of(opens, schedule.AgentOp.OPERATION_NAME).opview.count
        return TileRing(self.places[label], workspace, ring.tile.shape[0], makers, takers=1)


def _is_wait(use: ir.OpOperand) -> bool:
    return use.owner.operation.name == schedule.WaitOp.OPERATION_NAME


def _element(copy: schedule.CopyOp, kind: ir.RankedTensorType) -> str:
    """What the map of a copy's tensor says of its elements."""
    return tma.ROUNDED if copy.is_rounded else str(kind.element_type)


def tensors_of(kernel: schedule.KernelOp) -> list[ir.Value]:
    """The tensors that a kernel is called with, in order."""
    found = dict[ir.Value, None]()
    for value in filter(rows.is_tensor, kernel.inputs):
        matrix = windows_of(value)
        counts = [] if matrix is None or matrix.count is None else [matrix.count]
        found |= dict.fromkeys([*counts, in_memory(value)])
    return list(found)


def _drain(party: bool) -> None:
    cp_async.wait_all()


def _is_open_inside(value: ir.Value) -> bool:
    """Whether a dimension other than the first has the size that is open until the call."""
    return any(d > 0 for d in open_dims(value.type))
