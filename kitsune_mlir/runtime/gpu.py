"""Runs a section for a GPU: interprets its host program on a device.

The device is CUDA's (runtime/cuda.py); tests put one in its place that runs kernels on the CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from kitsune_mlir.errors import UnsupportedError, UserError

from .device_tensor import DeviceTensor, numpy_dtype
from .host_program import Buffer, Copy, Launch, Pipeline, Plan, View, make_plan
from .weight_steps import split

VERSION = 2
PLANS = 128  # sets of shapes to keep the plans of


class Memory(Protocol):
    """Device memory, freed with this object."""

    pointer: int


class Device(Protocol):
    """What the runner asks of a GPU. Streams are CUDA handles."""

    number: int

    def check(self, manifest: dict[str, Any]) -> None:
        """Raises UnsupportedError when this GPU cannot run code for the manifest's target."""

    def allocate(self, nbytes: int, stream: int) -> Memory:
        """Memory that work on `stream` may use."""

    def write(self, pointer: int, array: np.ndarray, stream: int) -> None:
        """Copies from the host; `array` may be changed afterwards."""

    def read(self, array: np.ndarray, pointer: int, stream: int) -> None:
        """Copies to the host after the work on `stream`; waits."""

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copies on the device."""

    def load(self, name: str, files: dict[str, bytes]) -> Any:
        """The code of module `name`."""

    def kernel(self, code: Any, name: str) -> Any:
        """A kernel of loaded code."""

    def launch(self, kernel: Any, grid: Any, block: Any, parameters: int, stream: int) -> None:
        """Launches a kernel; `parameters` is the address of an array of addresses of its parameters."""

    def pipeline(self, launch: dict[str, Any], code: Any) -> Any:
        """The launcher of a pipeline."""

    def array(self, value: Any, stream: int) -> tuple[int, tuple[int, ...], str, Any] | None:
        """Pointer, shape, dtype and owner of a tensor on this GPU; None for anything on the host."""

    def capturing(self, stream: int) -> bool:
        """Whether work on the stream is being recorded into a CUDA graph."""

    def stream(self, inputs: Sequence[Any], stream: Any) -> int:
        """The stream to run on: the one given, or the inputs' library's current one."""

    def order(self, before: int, after: int) -> None:
        """Work put on stream `after` from now on waits for the work on stream `before` so far."""

    def synchronize(self, stream: int) -> None:
        """Waits for the work on the stream so far."""


class GpuRunner:
    """A section on a GPU. Weights are uploaded once, and what depends on them alone is computed then; where
    buffers between kernels lie is planned once for each set of input shapes. Each stream has one arena for
    them, as large as its largest plan; runs on one stream are ordered by it.

    Under stream capture (a CUDA graph) nothing is allocated: buffers and results lie in memory of their own
    that `reserve` made beforehand, and each replay writes them again.
    """

    def __init__(
        self,
        manifest: dict[str, Any],
        files: dict[str, bytes],
        constants: Sequence[np.ndarray | None],
        device: Device | None = None,
    ):
        if manifest.get("version") != VERSION:
            raise UnsupportedError(
                f"the code for {manifest.get('target')} was made by another version of kitsune-mlir; compile it again"
            )
        if device is None:
            from .cuda import CudaDevice

            device = CudaDevice()
        self._device = device
        device.check(manifest)
        self._kernels: dict[str, Any] = {}
        codes = {name: device.load(name, files) for name in manifest["modules"]}
        pipelines = {entry["module"] for entry in manifest["pipelines"].values()}
        for name in manifest["modules"].keys() - pipelines:
            self._kernels.update({kernel: device.kernel(codes[name], kernel) for kernel in manifest["modules"][name]})
        self._pipelines = {
            name: device.pipeline(entry["launch"], codes[entry["module"]])
            for name, entry in manifest["pipelines"].items()
        }
        self._constants = [
            None if array is None else self._upload(array, 0, argument["dtype"])
            for array, argument in zip(constants, manifest["arguments"], strict=True)
        ]
        data = np.frombuffer(files.get("globals.bin", b""), np.int8)
        self._data = self._upload(data, 0, "i8") if data.size else None
        start = self._data.pointer if self._data else 0
        self._globals = {name: start + entry["offset"] for name, entry in manifest["globals"].items()}
        self._manifest = self._run_once(manifest)
        self._prepared: dict[Any, _Prepared] = {}
        self._arenas: dict[int, tuple[int, Memory]] = {}  # by stream: size, memory
        self._lock = threading.Lock()

    def _run_once(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Runs what depends on weights alone and makes the results constants; gives the manifest of the rest.
        They are ready on return, for calls on any stream."""
        parts = split(manifest, [constant is not None for constant in self._constants])
        if not parts.once:
            return manifest
        shapes = tuple(() if constant is None else constant.shape for constant in self._constants)
        prepared = self._prepared_for(make_plan(manifest | {"program": parts.once}, shapes), 0)
        arena = self._device.allocate(max(1, prepared.arena_bytes), 0)
        pointers = [0 if constant is None else constant.pointer for constant in self._constants]
        kept = prepared.run(pointers, arena.pointer, captured=False)
        self._device.synchronize(0)
        for i in parts.released:
            self._constants[i] = replace(self._constants[i], pointer=0, owner=None)
        self._constants += [_Argument(tensor.pointer, tensor.shape, tensor.dtype, tensor.memory) for tensor in kept]
        return manifest | {"program": parts.rest, "arguments": manifest["arguments"] + parts.kept}

    def _upload(self, array: np.ndarray, stream: int, dtype: str) -> _Argument:
        if array.dtype != numpy_dtype(dtype):
            return _Argument(0, array.shape, str(array.dtype), None)
        memory = self._device.allocate(max(1, array.nbytes), stream)
        self._device.write(memory.pointer, np.ascontiguousarray(array), stream)
        return _Argument(memory.pointer, array.shape, dtype, memory)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All results of @main on the host, for inputs on the host (bf16 as its bits, in uint16)."""
        return [result.numpy() for result in self.launch(inputs)]

    def launch(self, inputs: Sequence[Any], stream: Any = None) -> list[DeviceTensor]:
        """All results of @main on the GPU, once the work put on the stream is done; the host does not wait.

        An input is a numpy array, which is copied, or a dense tensor on this GPU (torch's, or any with
        __cuda_array_interface__ or __dlpack__), which is read in place. `stream` is a CUDA handle or an
        object with __cuda_stream__; without one it is torch's current stream when an input is torch's, else
        the default stream. Raises UserError for inputs of a wrong dtype or shape.
        """
        with self._lock:
            handle = self._device.stream(inputs, stream)
            given = self._bind(inputs, handle)
            shapes = tuple(argument.shape for argument in given)
            captured = self._device.capturing(handle)
            if captured and not ((shapes, handle) in self._prepared and self._prepared[shapes, handle].reserved):
                raise UserError("before a run is captured in a CUDA graph, call reserve with these inputs and stream")
            prepared = self._prepare(shapes, handle)
            arena = 0 if captured else self._arena(prepared.arena_bytes, handle)
            return prepared.run([argument.pointer for argument in given], arena, captured)

    def upload(self, inputs: Sequence[Any], stream: Any = None) -> list[DeviceTensor]:
        """The inputs as tensors on the GPU, for several calls of `launch`."""
        with self._lock:
            handle = self._device.stream(inputs, stream)
            given = self._bind(inputs, handle)
            return [
                DeviceTensor(a.pointer, a.shape, a.dtype, a.owner, self._device, handle)
                for a, constant in zip(given, self._constants, strict=True)
                if constant is None
            ]

    def reserve(self, inputs: Sequence[Any], stream: Any = None) -> None:
        """Makes ready for capturing a `launch` with inputs of these shapes on this stream: runs once, so that code
        is loaded and pipelines have their workspaces, and makes the memory of captured runs."""
        self.launch(inputs, stream)
        with self._lock:
            handle = self._device.stream(inputs, stream)
            shapes = tuple(argument.shape for argument in self._bind(inputs, handle))
            self._prepare(shapes, handle).reserve()

    def _bind(self, inputs: Sequence[Any], stream: int) -> list[_Argument]:
        """The arguments of @main: constants, and inputs, which are copied to the GPU unless they are there."""
        expected = [i for i, constant in enumerate(self._constants) if constant is None]
        if len(inputs) != len(expected):
            raise UserError(f"the model takes {len(expected)} inputs, found {len(inputs)}")
        given = list(self._constants)
        for position, (i, value) in enumerate(zip(expected, inputs, strict=True)):
            wanted = self._manifest["arguments"][i]
            argument = self._argument(value, stream, wanted["dtype"])
            fits = len(argument.shape) == len(wanted["shape"]) and all(
                b in (None, a) for a, b in zip(argument.shape, wanted["shape"], strict=True)
            )
            if argument.dtype != wanted["dtype"] or not fits:
                sizes = ", ".join("any" if size is None else str(size) for size in wanted["shape"])
                shape = list(argument.shape)
                raise UserError(f"input {position} must be {wanted['dtype']} [{sizes}], found {argument.dtype} {shape}")
            given[i] = argument
        return given

    def _argument(self, value: Any, stream: int, dtype: str) -> _Argument:
        """An input on the GPU; of the wrong type (and then of no use) where it is."""
        if isinstance(value, DeviceTensor):
            return _Argument(value.pointer, value.shape, value.dtype, value.memory)
        found = self._device.array(value, stream)
        return self._upload(np.asarray(value), stream, dtype) if found is None else _Argument(*found)

    def _arena(self, nbytes: int, stream: int) -> int:
        """A pointer to that much memory, which every run on the stream may use."""
        size, memory = self._arenas.get(stream, (0, None))
        if memory is None or size < nbytes:
            self._arenas.pop(stream, None)  # freed, once the work that uses it is done, before the larger one is made
            memory = self._device.allocate(max(1, nbytes), stream)
            self._arenas[stream] = nbytes, memory
        return memory.pointer

    def _prepare(self, shapes: tuple[tuple[int, ...], ...], stream: int) -> _Prepared:
        key = shapes, stream
        if key not in self._prepared:
            if len(self._prepared) >= PLANS:
                oldest = next((old for old, prepared in self._prepared.items() if not prepared.reserved), None)
                self._prepared.pop(oldest, None)
            self._prepared[key] = self._prepared_for(make_plan(self._manifest, shapes), stream)
        return self._prepared[key]

    def _prepared_for(self, plan: Plan, stream: int) -> _Prepared:
        return _Prepared(plan, self._device, self._kernels, self._pipelines, self._globals, stream)


@dataclass(frozen=True)
class _Argument:
    """A tensor on the GPU, and what keeps its memory."""

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    owner: Any


class _Prepared:
    """A plan on a stream: the parameters of all its launches in one array of 64-bit slots."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        kernels: dict[str, Any],
        pipelines: dict[str, Any],
        bases: dict[str, int],
        stream: int,
    ):
        self._plan, self._device, self._stream = plan, device, stream
        self._kernels, self._pipelines, self._globals = kernels, pipelines, bases
        self.arena_bytes = plan.arena_bytes
        self.reserved: list[Memory] = []  # for captured runs: the results, then the arena
        slots: list[int] = []
        holes: list[tuple[int, int]] = []  # slot, buffer whose pointer goes there
        starts: list[int] = []
        for call in plan.calls:
            starts.append(len(slots))
            if isinstance(call, Launch):
                for argument in call.arguments:
                    _pack(argument, slots, holes)
        self._slots = np.array(slots, np.int64)
        self._holes = np.array([slot for slot, _ in holes], np.int64)
        self._fillers = np.array([buffer for _, buffer in holes], np.int64)
        self._addresses = (self._slots.ctypes.data + 8 * np.arange(max(1, len(slots)))).astype(np.uint64)
        self._parameters = [self._addresses.ctypes.data + 8 * start for start in starts]

    def reserve(self) -> None:
        """Makes the memory of captured runs."""
        if not self.reserved:
            arena = self._device.allocate(max(1, self.arena_bytes), self._stream)
            self.reserved = [*self._allocate_results(), arena]

    def _allocate_results(self) -> list[Memory]:
        return [self._device.allocate(max(1, view.nbytes), self._stream) for view in self._plan.results]

    def run(self, arguments: Sequence[int], arena: int, captured: bool) -> list[DeviceTensor]:
        """Puts the run on the stream. `arguments` and `arena` are pointers; a captured run has its own arena."""
        device, stream = self._device, self._stream
        if captured:
            *memories, own = self.reserved
            arena = own.pointer
        else:
            memories = self._allocate_results()
        bases = [self._base(buffer, arguments, memories, arena) for buffer in self._plan.buffers]
        if len(self._holes):
            self._slots[self._holes] = np.array(bases, np.int64)[self._fillers]
        for call, parameters in zip(self._plan.calls, self._parameters, strict=True):
            if isinstance(call, Launch):
                device.launch(self._kernels[call.kernel], call.grid, call.block, parameters, stream)
            elif isinstance(call, Copy):
                source, target = (bases[view.buffer] + view.byte_offset for view in (call.source, call.target))
                device.copy(target, source, call.source.nbytes, stream)
            else:
                self._run_pipeline(call, bases)
        return [
            DeviceTensor(memory.pointer, view.shape, view.dtype, memory, device, stream)
            for memory, view in zip(memories, self._plan.results, strict=True)
        ]

    def _base(self, buffer: Buffer, arguments: Sequence[int], results: Sequence[Memory], arena: int) -> int:
        match buffer.kind:
            case "argument":
                return arguments[buffer.index]
            case "result":
                return results[buffer.index].pointer
            case "global":
                return self._globals[buffer.index]
        return arena + buffer.offset

    def _run_pipeline(self, call: Pipeline, bases: Sequence[int]) -> None:
        def described(views: Sequence[View]) -> list[tuple[int, tuple[int, ...], str]]:
            return [(bases[view.buffer] + view.byte_offset, view.shape, view.dtype) for view in views]

        self._pipelines[call.name].launch(self._stream, described(call.arguments), described(call.results))


def _pack(argument: View | tuple[str, Any], slots: list[int], holes: list[tuple[int, int]]) -> None:
    """Appends a kernel argument: a memref descriptor, or a number in the low bytes of a slot."""
    if isinstance(argument, View):
        holes += [(len(slots), argument.buffer), (len(slots) + 1, argument.buffer)]
        slots += [0, 0, argument.offset, *argument.shape, *argument.strides]
        return
    dtype, value = argument
    raw = np.zeros(8, np.uint8)
    bits = np.array(value, numpy_dtype(dtype)).reshape(1).view(np.uint8)
    raw[: bits.size] = bits
    slots.append(int(raw.view(np.int64)[0]))
