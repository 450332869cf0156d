"""A plan bound to a device: all that a run needs but pointers is made once. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kitsune_mlir.errors import InternalError

from .device_tensor import numpy_dtype
from .host_arithmetic import bfloat16
from .host_program import ALIGNMENT, Copy, Fill, Launch, Pipeline, Plan, View


@dataclass(frozen=True)
class Reserved:
    """Memory of captured runs on one stream: results, buffers between kernels, workspaces of pipelines."""

    results: list[Any]
    arena: Any
    workspaces: Any


class Source(NamedTuple):
    """Whose memory a result is a view of: a run's input number `index`, where `given`, or the memory that a run has for
    results, of that number."""

    given: bool
    index: int


class Prepared:
    """A plan, its buffers' pointers where they are the same in every run, and its calls, the parameters of plain
    launches in one array of 64-bit slots. One thread at a time may use it.

    `constants` has a pointer for each argument of @main, None for those that a run gives.
    """

    def __init__(
        self,
        plan: Plan,
        device: Any,
        kernels: dict[str, Any],
        pipelines: dict[str, Any],
        bases: dict[str, int],
        constants: Sequence[int | None],
    ):
        self.results, self.arena_bytes, self.workspace_bytes = plan.results, plan.arena_bytes, 0
        self.reserved: dict[int, Reserved] = {}  # by stream
        self._counters: list[tuple[int, int]] = []  # offsets and bytes of counters in the workspaces
        self._device = device
        self._bases = [0] * len(plan.buffers)
        self._inputs: list[tuple[int, int, int]] = []  # buffer, which of a run's inputs, bytes
        self._outputs: list[tuple[int, int]] = []  # buffer, which of a run's memories for results
        self._arena: list[tuple[int, int]] = []  # buffer, offset
        given = [i for i, constant in enumerate(constants) if constant is None]
        for number, buffer in enumerate(plan.buffers):
            index: Any = buffer.index
            if buffer.kind == "arena":
                self._arena.append((number, buffer.offset))
            elif buffer.kind == "result":
                self._outputs.append((number, index))
            elif buffer.kind == "global":
                self._bases[number] = bases[index]
            elif (pointer := constants[index]) is None:
                self._inputs.append((number, given.index(index), buffer.nbytes))
            else:
                self._bases[number] = pointer
        self.sources = [self._source(plan, i, given) for i in range(len(plan.results))]
        self.result_bytes = [plan.buffers[n].nbytes for n, _ in sorted(self._outputs, key=lambda output: output[1])]
        slots: list[int] = []
        holes: list[tuple[int, int]] = []  # slot, buffer whose pointer goes there
        starts = []
        for call in plan.calls:
            starts.append(len(slots))
            for argument in call.arguments if isinstance(call, Launch) else ():
                _pack(argument, slots, holes)
        self._slots = np.array(slots, np.int64)
        self._holes = np.array([slot for slot, _ in holes], np.int64)
        self._fillers = np.array([buffer for _, buffer in holes], np.int64)
        self._addresses = (self._slots.ctypes.data + 8 * np.arange(max(1, len(slots)))).astype(np.uint64)
        place = self._addresses.ctypes.data
        self._calls: list[_Kernel | _Copy | _Fill | _Pipeline] = []
        for call, start in zip(plan.calls, starts, strict=True):
            if isinstance(call, Launch):
                self._calls.append(_Kernel(device, kernels[call.kernel], call, place + 8 * start))
            elif isinstance(call, Copy):
                self._calls.append(_Copy(device, _place(call.source), _place(call.target), call.source.nbytes))
            elif isinstance(call, Fill):
                first_place, last_place = (plan.buffers[call.views[i].buffer].offset for i in (0, -1))
                nbytes = last_place - first_place + call.views[-1].nbytes
                self._calls.append(_Fill(device, _place(call.views[0]), nbytes))
            else:
                self._calls.append(self._pipeline(call, pipelines[call.name]))
        # The first kernel of a run begins when all before the run has ended, so that those after it may read what the
        # run does not write before they wait for anything (passes/overlap_launches.py).
        self._first = next((call for call in self._calls if _launches(call)), None)

    @staticmethod
    def _source(plan: Plan, result: int, given: Sequence[int]) -> Source:
        buffer = plan.buffers[plan.results[result].buffer]
        index: Any = buffer.index
        if buffer.kind == "result":
            return Source(False, index)
        if index not in given:
            raise InternalError(f"result {result} is a weight's memory")
        return Source(True, given.index(index))

    def _pipeline(self, call: Pipeline, launcher: Any) -> _Pipeline:
        described = [[(view.shape, view.dtype) for view in views] for views in (call.arguments, call.results)]
        bound, offset = launcher.bind(*described), self.workspace_bytes
        self.workspace_bytes += -(-bound.workspace_bytes // ALIGNMENT) * ALIGNMENT
        if bound.counter_bytes:
            self._counters.append((offset, bound.counter_bytes))
        return _Pipeline(bound, [_place(view) for view in (*call.arguments, *call.results)], offset)

    def reserve(self, stream: int) -> None:
        """Makes the memory of captured runs on a stream."""
        if stream not in self.reserved:
            arena, workspaces = (
                self._device.allocate(max(1, nbytes), stream) for nbytes in (self.arena_bytes, self.workspace_bytes)
            )
            self.zero_counters(workspaces.pointer, stream)
            self.reserved[stream] = Reserved(self.allocate_results(stream), arena, workspaces)

    def zero_counters(self, workspaces: int, stream: int) -> None:
        """Makes workspaces ready for a first run."""
        for offset, nbytes in self._counters:
            self._device.zero(workspaces + offset, nbytes, stream)

    def allocate_results(self, stream: int) -> list[Any]:
        """A run's memories for results."""
        return [self._device.allocate(max(1, nbytes), stream) for nbytes in self.result_bytes]

    def run(
        self, stream: int, inputs: Sequence[int], results: Sequence[int], arena: int, workspaces: int | None = None
    ) -> None:
        """Puts a run on the stream. All are pointers, `results` those of the memories for results; without
        `workspaces`, which no other run uses meanwhile and whose counters are zero, pipelines take the stream's."""
        bases = self._bases.copy()
        copies = []  # live until all is on the stream
        for buffer, i, nbytes in self._inputs:
            bases[buffer] = inputs[i]
            if inputs[i] % WORD:
                copies.append(self._device.allocate(max(1, nbytes), stream))
                self._device.copy(copies[-1].pointer, inputs[i], nbytes, stream)
                bases[buffer] = copies[-1].pointer
        for buffer, i in self._outputs:
            bases[buffer] = results[i]
        for buffer, offset in self._arena:
            bases[buffer] = arena + offset
        if len(self._holes):
            self._slots[self._holes] = np.array(bases, np.int64)[self._fillers]
        for call in self._calls:
            call.put(stream, bases, workspaces, call is self._first)


WORD = 16  # bytes, of which the address of every tensor is a multiple: kernels access words of that size
Place = tuple[int, int]  # buffer, offset in bytes


def _place(view: View) -> Place:
    return view.buffer, view.byte_offset


@dataclass(frozen=True)
class _Kernel:
    device: Any
    kernel: Any
    call: Launch
    parameters: int  # address of an array of addresses

    def put(self, stream: int, bases: Sequence[int], workspaces: int | None, alone: bool) -> None:
        call = self.call
        more = (call.cluster, call.shared_bytes)
        self.device.launch(self.kernel, call.grid, call.block, self.parameters, stream, alone, *more)


@dataclass(frozen=True)
class _Copy:
    device: Any
    source: Place
    target: Place
    nbytes: int

    def put(self, stream: int, bases: Sequence[int], workspaces: int | None, alone: bool) -> None:
        source, target = (bases[buffer] + offset for buffer, offset in (self.source, self.target))
        self.device.copy(target, source, self.nbytes, stream)


@dataclass(frozen=True)
class _Fill:
    device: Any
    target: Place
    nbytes: int

    def put(self, stream: int, bases: Sequence[int], workspaces: int | None, alone: bool) -> None:
        buffer, offset = self.target
        self.device.zero(bases[buffer] + offset, self.nbytes, stream)


@dataclass(frozen=True)
class _Pipeline:
    bound: Any
    places: list[Place]
    offset: int  # of its workspace, in bytes

    def put(self, stream: int, bases: Sequence[int], workspaces: int | None, alone: bool) -> None:
        pointers = [bases[buffer] + offset for buffer, offset in self.places]
        self.bound.launch(stream, pointers, None if workspaces is None else workspaces + self.offset, alone)


def _launches(call: _Kernel | _Copy | _Fill | _Pipeline) -> bool:
    """Whether a call launches a kernel."""
    return isinstance(call, _Kernel) or isinstance(call, _Pipeline) and not call.bound.is_idle


def _pack(argument: View | tuple[str, Any], slots: list[int], holes: list[tuple[int, int]]) -> None:
    """Appends a kernel argument: a memref descriptor, or a number in the low bytes of a slot."""
    if isinstance(argument, View):
        holes += [(len(slots), argument.buffer), (len(slots) + 1, argument.buffer)]
        slots += [0, 0, argument.offset, *argument.shape, *argument.strides]
        return
    dtype, value = argument
    raw = np.zeros(8, np.uint8)
    number = bfloat16(value) if dtype == "bf16" else value
    try:
        bits = np.array(number, numpy_dtype(dtype)).reshape(1).view(np.uint8)
    except OverflowError as error:
        raise InternalError(f"the host program gives a kernel {value} as {dtype}") from error
    raw[: bits.size] = bits
    slots.append(int(raw.view(np.int64)[0]))
