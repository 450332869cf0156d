"""Runs a section for a GPU: interprets its host program on a device.

The device is CUDA's (runtime/cuda.py), or the simulator's (tools/gpusim/device.py), which runs kernels on the CPU.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from kitsune_mlir.errors import UnsupportedError, UserError

from .device_tensor import DeviceTensor, numpy_dtype
from .host_program import Plan, View, make_plan
from .index_reports import HostWords, IndexReports
from .prepared import Prepared
from .torch_call import TorchCall
from .weight_steps import split

VERSION = 5
OVERLAP = "KITSUNE_OVERLAP"  # an environment variable; "0" has a profiler see kernels one at a time
EARLIER = ", in an earlier call"
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

    def zero(self, pointer: int, nbytes: int, stream: int) -> None:
        """Sets memory to zero."""

    def load(self, name: str, files: dict[str, bytes]) -> Any:
        """The code of module `name`."""

    def kernel(self, code: Any, name: str, overlapped: bool) -> Any:
        """A kernel of loaded code; `overlapped`: it waits itself for the kernel before it on its stream."""

    def launch(self, kernel: Any, grid: Any, block: Any, parameters: int, stream: int, alone: bool) -> None:
        """Launches a kernel; `parameters` is the address of an array of addresses of its parameters. `alone`: it begins
        when the work before it on the stream has ended, whether or not it waits itself."""

    def host_words(self, count: int) -> HostWords:
        """So many words of 32 bits in memory of the host that kernels may write."""

    def point(self, code: Any, name: str, pointer: int) -> None:
        """Writes an address into global `name` of loaded code."""

    def pipeline(self, launch: dict[str, Any], code: Any, overlapped: bool) -> Any:
        """The launcher of a pipeline: `bind` gives runs on tensors of given shapes (runtime/cuda_pipeline.py)."""

    def array(self, value: Any, stream: int) -> tuple[int, tuple[int, ...], str, Any] | None:
        """Pointer, shape, dtype and owner of a tensor on this GPU; None for anything on the host."""

    def capturing(self, stream: int) -> bool:
        """Whether work on the stream is being recorded into a CUDA graph."""

    def stream(self, inputs: Sequence[Any], stream: Any) -> int:
        """The stream to run on: the one given, or the inputs' library's current one."""

    def torch_stream(self) -> int:
        """torch's current stream."""

    def order(self, before: int, after: int) -> None:
        """Work put on stream `after` from now on waits for the work on stream `before` so far."""

    def synchronize(self, stream: int) -> None:
        """Waits for the work on the stream so far."""

    def wait(self) -> None:
        """Waits for the work on all streams so far."""


class GpuRunner:
    """A section on a GPU. Weights are uploaded once, and what depends on them alone is computed then. A plan is
    prepared once for each set of input shapes. Each stream has one arena for buffers between kernels, as large as
    its largest plan; runs on one stream are ordered by it.

    Under stream capture (a CUDA graph) `launch` allocates nothing: buffers and results lie in memory of their own
    that `reserve` made beforehand, and each replay writes them again. `for_torch` needs no `reserve`.
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
        self.device = device
        device.check(manifest)
        self._kernels: dict[str, Any] = {}
        codes = {name: device.load(name, files) for name in manifest["modules"]}
        checks = manifest.get("checks", {})
        self._reports = IndexReports(device, codes, checks) if checks else None
        pipelines = {entry["module"] for entry in manifest["pipelines"].values()}
        overlapped = _overlapped(manifest)
        for name in manifest["modules"].keys() - pipelines:
            for kernel in manifest["modules"][name]:
                self._kernels[kernel] = device.kernel(codes[name], kernel, (name, kernel) in overlapped)
        self._pipelines = {
            name: device.pipeline(
                entry["launch"], codes[entry["module"]], (entry["module"], entry["launch"]["kernel"]) in overlapped
            )
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
        self._expected = [i for i, constant in enumerate(self._constants) if constant is None]
        self._prepared: dict[Any, Prepared] = {}  # by shapes
        self._arenas: dict[int, tuple[int, Memory]] = {}  # by stream: size, memory
        self.lock: Any = threading.Lock()  # whoever runs a plan holds it
        _runners.add(self)

    def _run_once(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Runs what depends on weights alone and makes the results constants; gives the manifest of the rest.
        They are ready on return, for calls on any stream."""
        parts = split(manifest, [constant is not None for constant in self._constants])
        if not parts.once:
            return manifest
        shapes = tuple(() if constant is None else constant.shape for constant in self._constants)
        prepared = self._prepared_for(make_plan(manifest | {"program": parts.once}, shapes))
        arena = self.device.allocate(max(1, prepared.arena_bytes), 0)
        made = prepared.allocate_results(0)
        prepared.run(0, [0] * self._constants.count(None), [memory.pointer for memory in made], arena.pointer)
        self.device.synchronize(0)
        for i in parts.released:
            self._constants[i] = replace(self._constants[i], pointer=0, owner=None)
        self._constants += [
            _Argument(memory.pointer, view.shape, view.dtype, memory)
            for memory, view in zip(made, prepared.results, strict=True)
        ]
        return manifest | {"program": parts.rest, "arguments": manifest["arguments"] + parts.kept}

    def _upload(self, array: np.ndarray, stream: int, dtype: str) -> _Argument:
        if array.dtype != numpy_dtype(dtype):
            return _Argument(0, array.shape, str(array.dtype), None)
        memory = self.device.allocate(max(1, array.nbytes), stream)
        self.device.write(memory.pointer, np.ascontiguousarray(array), stream)
        return _Argument(memory.pointer, array.shape, dtype, memory)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All results of @main on the host, for inputs on the host (bf16 as its bits, in uint16)."""
        found = [result.numpy() for result in self.launch(inputs)]
        self.check()
        return found

    def check(self, when: str = "") -> None:
        """Raises UserError if a row number was outside of its table in a run that is done. Waits for nothing."""
        if self._reports is not None:
            self._reports.check(when)

    def check_earlier(self) -> None:
        """`check` where a new run begins."""
        self.check(EARLIER)

    def synchronize(self) -> None:
        """Waits for the GPU. Raises UserError if a row number was outside of its table in any run so far."""
        self.device.wait()
        self.check()

    def launch(self, inputs: Sequence[Any], stream: Any = None) -> list[DeviceTensor]:
        """All results of @main on the GPU, once the work put on the stream is done; the host does not wait. Where torch
        returns views of one tensor, or of an input, they may be that here, too.

        An input is a numpy array, which is copied, or a dense tensor on this GPU (torch's, or any with
        __cuda_array_interface__ or __dlpack__), which is read in place. `stream` is a CUDA handle or an
        object with __cuda_stream__; without one it is torch's current stream when an input is torch's, else
        the default stream. Raises UserError for inputs of a wrong dtype or shape, and for a row number outside of its
        table in an earlier run.
        """
        self.check_earlier()
        with self.lock:
            handle = self.device.stream(inputs, stream)
            given = self._bind(inputs, handle)
            prepared = self._prepare(given)
            pointers = [given[i].pointer for i in self._expected]
            if self.device.capturing(handle):
                reserved = prepared.reserved.get(handle)
                if reserved is None:
                    raise UserError(
                        "before a run is captured in a CUDA graph, call reserve with these inputs and stream"
                    )
                memories = reserved.results
                arena, workspaces = reserved.arena.pointer, reserved.workspaces.pointer
            else:
                memories = prepared.allocate_results(handle)
                arena, workspaces = self.arena(prepared.arena_bytes, handle), None
            prepared.run(handle, pointers, [memory.pointer for memory in memories], arena, workspaces)
            inputs_given = [given[i] for i in self._expected]
            return [
                self._result(view, inputs_given[source.index] if source.given else memories[source.index], handle)
                for view, source in zip(prepared.results, prepared.sources, strict=True)
            ]

    def _result(self, view: View, base: Any, stream: int) -> DeviceTensor:
        """A view of an argument or of a memory."""
        owner = base.owner if isinstance(base, _Argument) else base
        strides = None if view.is_dense else view.strides
        pointer = base.pointer + view.byte_offset
        return DeviceTensor(pointer, view.shape, view.dtype, owner, self.device, stream, strides, self.check)

    def for_torch(self, inputs: Sequence[Any], dtypes: Sequence[Any]) -> TorchCall:
        """Runs on torch's current stream for inputs like these (torch tensors on this GPU, and numpy arrays); the
        results are torch's, of these dtypes. They may be captured in a CUDA graph, where none is numpy's. Raises
        UserError for inputs of a wrong dtype or shape."""
        with self.lock:
            prepared = self._prepare(self._bind(inputs, self.device.torch_stream()))
            return TorchCall(self, prepared, dtypes)

    def upload(self, inputs: Sequence[Any], stream: Any = None) -> list[DeviceTensor]:
        """The inputs as tensors on the GPU, for several calls of `launch`."""
        with self.lock:
            handle = self.device.stream(inputs, stream)
            given = self._bind(inputs, handle)
            return [
                DeviceTensor(a.pointer, a.shape, a.dtype, a.owner, self.device, handle)
                for a, constant in zip(given, self._constants, strict=True)
                if constant is None
            ]

    def reserve(self, inputs: Sequence[Any], stream: Any = None) -> None:
        """Makes ready for capturing a `launch` with inputs of these shapes on this stream: runs once, so that code
        is loaded and pipelines have their workspaces, and makes the memory of captured runs."""
        self.launch(inputs, stream)
        with self.lock:
            handle = self.device.stream(inputs, stream)
            self._prepare(self._bind(inputs, handle)).reserve(handle)

    def _bind(self, inputs: Sequence[Any], stream: int) -> list[_Argument]:
        """The arguments of @main: constants, and inputs, which are copied to the GPU unless they are there."""
        if len(inputs) != len(self._expected):
            raise UserError(f"the model takes {len(self._expected)} inputs, found {len(inputs)}")
        given = list(self._constants)
        for position, (i, value) in enumerate(zip(self._expected, inputs, strict=True)):
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
            if value.strides is not None:  # a view that a model returned
                return self._copied(value.numpy(), stream, dtype)
            return _Argument(value.pointer, value.shape, value.dtype, value.memory)
        found = self.device.array(value, stream)
        return self._copied(value, stream, dtype) if found is None else _Argument(*found)

    def copy_input(self, position: int, value: Any, stream: int) -> _Argument:
        """Input number `position`, copied to the GPU."""
        return self._copied(value, stream, self._manifest["arguments"][self._expected[position]]["dtype"])

    def _copied(self, value: Any, stream: int, dtype: str) -> _Argument:
        if self.device.capturing(stream):
            raise UserError("an input on the host cannot be captured in a CUDA graph: put it on the GPU")
        return self._upload(np.asarray(value), stream, dtype)

    def arena(self, nbytes: int, stream: int) -> int:
        """A pointer to that much memory, which every run on the stream may use."""
        if not nbytes:
            return 0
        size, memory = self._arenas.get(stream, (0, None))
        if memory is None or size < nbytes:
            self._arenas.pop(stream, None)  # freed, once the work that uses it is done, before the larger one is made
            memory = self.device.allocate(nbytes, stream)
            self._arenas[stream] = nbytes, memory
        return memory.pointer

    def clear_arenas(self) -> None:
        """Overwrites what runs left between kernels, for tests: a kernel that reads it too early computes otherwise."""
        with self.lock:
            for stream, (nbytes, memory) in self._arenas.items():
                self.device.zero(memory.pointer, nbytes, stream)

    def _prepare(self, given: Sequence[_Argument]) -> Prepared:
        shapes = tuple(argument.shape for argument in given)
        if shapes not in self._prepared:
            if len(self._prepared) >= PLANS:
                oldest = next((old for old, prepared in self._prepared.items() if not prepared.reserved), None)
                self._prepared.pop(oldest, None)
            self._prepared[shapes] = self._prepared_for(make_plan(self._manifest, shapes))
        return self._prepared[shapes]

    def _prepared_for(self, plan: Plan) -> Prepared:
        constants = [None if constant is None else constant.pointer for constant in self._constants]
        return Prepared(plan, self.device, self._kernels, self._pipelines, self._globals, constants)


def _overlapped(manifest: dict[str, Any]) -> set[tuple[str, str]]:
    """The modules and names of the kernels that wait themselves for the one before them to end."""
    if os.environ.get(OVERLAP, "1") == "0":
        return set()
    return {(entry["module"], entry["name"]) for entry in manifest.get("kernels", []) if entry.get("overlapped")}


@dataclass(frozen=True)
class _Argument:
    """A tensor on the GPU, and what keeps its memory."""

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    owner: Any


class _Forked:
    """Stands in for the lock in a forked child: there CUDA cannot be used, and the lock may be held for ever."""

    def __enter__(self) -> None:
        raise UserError(
            "a GPU cannot be used in a process that was forked from one that uses it: start it afresh, as"
            " multiprocessing does with the start method 'spawn'"
        )

    def __exit__(self, *_: Any) -> None:
        pass


_runners: weakref.WeakSet[GpuRunner] = weakref.WeakSet()


def _after_fork() -> None:
    for runner in list(_runners):
        runner.lock = _Forked()


os.register_at_fork(after_in_child=_after_fork)
