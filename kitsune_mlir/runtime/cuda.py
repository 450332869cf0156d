"""An NVIDIA GPU for the runner of runtime/gpu.py, through cuda-core; cuda-bindings where that has no call.

What cuda-core lacks here: launching with an array of parameter addresses that is built once, copies between
bare addresses, ordering foreign streams.
"""

from __future__ import annotations

import ctypes
import re
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kitsune_mlir.errors import UnsupportedError, UserError

from .cuda_driver import call, check, in_clusters, overlap
from .cuda_pipeline import MOST_PORTABLE
from .host_program import row_major

_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "i8",
    "bool": "i1",
}


class Memory:
    """Device memory in the order of a stream: freed, with this object, after the work put there so far. While torch
    captures work in a CUDA graph, which freeing would end, it is kept until the next allocation."""

    def __init__(self, buffer: Any):
        self.buffer = buffer
        self.pointer = int(buffer.handle)

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
            if torch.cuda.is_current_stream_capturing():
                _dropped.append(self.buffer)


_dropped: list[Any] = []  # memory whose object went while work was being captured


class HostWords:
    """Words of 32 bits in memory of the host that kernels of any context write (CUDA C++ Programming Guide, mapped
    memory). Zero at first."""

    def __init__(self, driver: Any, count: int):
        self._driver, nbytes = driver, 4 * count
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        self.address = int(call(driver, "cuMemHostAlloc", nbytes, flags))
        ctypes.memset(self.address, 0, nbytes)
        self.pointer = int(call(driver, "cuMemHostGetDevicePointer", self.address, 0))
        weakref.finalize(self, driver.cuMemFreeHost, self.address).atexit = False  # kernels may still run then


@dataclass(frozen=True)
class LaunchedKernel:
    """A kernel as the driver launches it, with attributes; `configs` by grid, block, stream and whether it begins
    alone."""

    function: Any
    attributes: list[Any]
    configs: dict[Any, Any]


class CudaDevice:
    """GPU `number`; by default torch's current one if torch is in use, else the first."""

    def __init__(self, number: int | None = None):
        try:
            from cuda.bindings import driver
            from cuda.core import Device
        except ImportError as error:
            raise UnsupportedError(
                f"running on a GPU needs cuda-core ({error}): pip install 'kitsune-mlir[cuda]'"
            ) from error
        self._driver = driver
        try:
            self.device = Device(_torch_device() if number is None else number)
            self.device.set_current()
        except Exception as error:  # cuda-core's own error types, or a missing driver library
            raise UnsupportedError(f"there is no NVIDIA GPU that CUDA can use: {error}") from error
        self.number = self.device.device_id
        self._streams: dict[int, Any] = {}

    def check(self, manifest: dict[str, Any]) -> None:
        """Raises UnsupportedError when this GPU cannot run code for the manifest's chip."""
        if not runs_on(manifest["chip"], tuple(self.device.compute_capability)):
            major, minor = self.device.compute_capability
            raise UnsupportedError(
                f"code for {manifest['chip']} does not run on {self.device.name} (sm_{major}{minor}): compile the model"
                " for a target of that kind"
            )

    def zero(self, pointer: int, nbytes: int, stream: int) -> None:
        """Sets memory to zero."""
        if nbytes:
            self._call("cuMemsetD8Async", pointer, 0, nbytes, stream)

    def load(self, name: str, files: dict[str, bytes]) -> Any:
        """The cubin, or the PTX, which the driver then assembles, when there is none for this GPU."""
        from cuda.core import ObjectCode

        cubin = files.get(f"{name}.cubin")
        text = files[f"{name}.ptx"]
        chip = re.search(rb"\.target (sm_\w+)", text)
        major, minor = self.device.compute_capability
        native = chip is not None and _parse(chip[1].decode())[:2] == (major, minor)
        if cubin is not None and native:
            return ObjectCode.from_cubin(cubin, name=name)
        return ObjectCode.from_ptx(text, name=name)

    def kernel(self, code: Any, name: str, overlapped: bool) -> LaunchedKernel:
        """It is loaded now: loading it later could fall into a capture."""
        function = self._call("cuKernelGetFunction", self._driver.CUkernel(int(code.get_kernel(name).handle)))
        return LaunchedKernel(function, [overlap(self._driver)] if overlapped else [], {})

    def host_words(self, count: int) -> HostWords:
        """So many words in memory of the host that kernels may write."""
        return HostWords(self._driver, count)

    def point(self, code: Any, name: str, pointer: int) -> None:
        """Writes an address into global `name` of loaded code."""
        library = self._driver.CUlibrary(int(code.handle))
        status, place, _ = self._driver.cuLibraryGetGlobal(library, name.encode())
        check(self._driver, "cuLibraryGetGlobal", status)
        value = ctypes.c_uint64(pointer)
        self._call("cuMemcpyHtoD", int(place), ctypes.addressof(value), 8)

    def wait(self) -> None:
        """Waits for the work on all streams so far."""
        self._call("cuCtxSynchronize")

    def pipeline(self, launch: dict[str, Any], code: Any, overlapped: bool) -> Any:
        """The launcher of a pipeline."""
        from .cuda_pipeline import PipelineLauncher

        return PipelineLauncher(self.device, launch, code, overlapped)

    def _stream_object(self, handle: int) -> Any:
        if handle not in self._streams:
            from cuda.core import Stream

            self._streams[handle] = Stream.from_handle(handle) if handle else self.device.default_stream
        return self._streams[handle]

    def allocate(self, nbytes: int, stream: int) -> Memory:
        """Memory of the device's pool, for work on `stream`."""
        if _dropped and not self.capturing(stream):
            _dropped.clear()
        return Memory(self.device.allocate(nbytes, stream=self._stream_object(stream)))

    def write(self, pointer: int, array: np.ndarray, stream: int) -> None:
        """Copies from the host; returns when `array` may be changed or freed. Memory that is pinned is read by the copy
        engine when the stream comes to it, and nothing here would keep it until then."""
        if array.nbytes:
            self._call("cuMemcpyHtoDAsync", pointer, array.ctypes.data, array.nbytes, stream)
            self.synchronize(stream)

    def read(self, array: np.ndarray, pointer: int, stream: int) -> None:
        """Copies to the host after the work on `stream`; waits."""
        if array.nbytes:
            self._call("cuMemcpyDtoHAsync", array.ctypes.data, pointer, array.nbytes, stream)
        self.synchronize(stream)

    def synchronize(self, stream: int) -> None:
        """Waits for the work on the stream so far."""
        self._call("cuStreamSynchronize", stream)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copies on the device."""
        if nbytes:
            self._call("cuMemcpyDtoDAsync", target, source, nbytes, stream)

    def launch(
        self,
        kernel: LaunchedKernel,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        parameters: int,
        stream: int,
        alone: bool,
        cluster: int = 1,
        shared_bytes: int = 0,
    ) -> None:
        """Launches a kernel; `parameters` is the address of an array of addresses of its parameters. `alone`: it begins
        when the work before it on the stream has ended. It has clusters of so many blocks, and so much shared memory
        besides what its code says."""
        key = grid, block, stream, alone
        config = kernel.configs.get(key)
        if config is None:
            config = kernel.configs[key] = self._driver.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = grid
            config.blockDimX, config.blockDimY, config.blockDimZ = block
            config.hStream = self._driver.CUstream(stream)
            config.sharedMemBytes = shared_bytes
            attributes = [] if alone else [*kernel.attributes]
            if cluster > 1:
                attributes.append(in_clusters(self._driver, cluster))
            self._allow(kernel, cluster, shared_bytes)
            config.attrs, config.numAttrs = attributes, len(attributes)
        self._call("cuLaunchKernelEx", config, kernel.function, parameters, 0)

    def _allow(self, kernel: LaunchedKernel, cluster: int, shared_bytes: int) -> None:
        """Asks the driver for what not every kernel may have. Raises UnsupportedError where the GPU has no such."""
        names = self._driver.CUfunction_attribute
        asked = []
        if shared_bytes:
            asked.append((names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes))
        if cluster > MOST_PORTABLE:
            asked.append((names.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
        for name, value in asked:
            (error,) = self._driver.cuFuncSetAttribute(kernel.function, name, value)
            if int(error):
                raise UnsupportedError(
                    f"this GPU has no clusters of {cluster} CTAs with {shared_bytes} bytes of shared memory each"
                )

    def capturing(self, stream: int) -> bool:
        """Whether work on the stream is being recorded into a CUDA graph."""
        status = self._call("cuStreamIsCapturing", stream)
        return status != self._driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE

    def order(self, before: int, after: int) -> None:
        """Work put on stream `after` from now on waits for the work on stream `before` so far."""
        event = self._call("cuEventCreate", self._driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value)
        self._call("cuEventRecord", event, before)
        self._call("cuStreamWaitEvent", after, event, 0)
        self._call("cuEventDestroy", event)

    def stream(self, inputs: Sequence[Any], stream: Any) -> int:
        """The handle of the stream to run on; makes the GPU current for this thread."""
        if stream is not None:
            self.device.set_current()
            return int(stream) if isinstance(stream, int) else int(stream.__cuda_stream__()[1])
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs):
            return self.torch_stream()
        self.device.set_current()
        return 0

    def torch_stream(self) -> int:
        """The handle of torch's current stream of this GPU; makes the GPU current for this thread."""
        self.device.set_current()
        return sys.modules["torch"]._C._cuda_getCurrentRawStream(self.number)  # what torch's own launchers call

    def array(self, value: Any, stream: int) -> tuple[int, tuple[int, ...], str, Any] | None:
        """Pointer, shape, dtype and owner of a tensor on this GPU; None for anything on the host."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            if not value.is_cuda:
                return None
            if value.device.index != self.number:
                raise UserError(f"an input is on GPU {value.device.index}, the model on GPU {self.number}")
            dense = value.detach().resolve_neg().contiguous()
            return dense.data_ptr(), tuple(dense.shape), _dtype(str(dense.dtype).removeprefix("torch.")), dense
        if isinstance(value, np.ndarray | np.generic) or not (
            hasattr(value, "__cuda_array_interface__") or hasattr(value, "__dlpack__")
        ):
            return None
        from cuda.core.utils import StridedMemoryView

        view = StridedMemoryView(value, stream_ptr=stream or 1)
        if not view.is_device_accessible:
            return None
        if view.strides is not None and tuple(view.strides) != row_major(view.shape):
            raise UserError("an input on the GPU must be dense, row-major")
        return int(view.ptr), tuple(view.shape), _dtype(str(np.dtype(view.dtype))), view

    def _call(self, name: str, *arguments: Any) -> Any:
        return call(self._driver, name, *arguments)


def runs_on(chip: str, capability: tuple[int, int]) -> bool:
    """Whether code for `chip` ("sm_80", "sm_90a") runs on a GPU of that compute capability: the
    architecture-specific ("a") on that very one, others, as PTX, on every later one."""
    major, minor, specific = _parse(chip)
    return (major, minor) == tuple(capability) if specific else (major, minor) <= tuple(capability)


def _parse(chip: str) -> tuple[int, int, bool]:
    digits = chip.removeprefix("sm_").rstrip("af")
    return int(digits[:-1]), int(digits[-1]), chip[-1] in "af"


def _dtype(name: str) -> str:
    if name not in _DTYPES:
        raise UserError(f"an input on the GPU has the dtype {name}, which no model takes")
    return _DTYPES[name]


def _torch_device() -> int:
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0
