"""Launches a pipeline's kernel on CUDA; the kernel is described in codegen/pipeline/kernel.py."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from math import prod
from typing import Any

from kitsune_mlir.errors import InternalError, UnsupportedError, UserError

from .device_tensor import numpy_dtype

# As codegen/pipeline/watch.py writes it.
REPORT = ("queue", "waits_for_full", "cta", "tile", "counter", "wanted")
REPORT_AT = 128  # bytes into the workspace
ALIGNMENT = 16  # of tensors, in bytes: kernels access words of that size

Described = tuple[int, tuple[int, ...], str]  # pointer, shape, dtype


class PipelineLauncher:
    """One pipeline on one device. Each stream has a workspace of its own, zeroed once: the kernel leaves its
    counters zero."""

    def __init__(self, device: Any, launch: dict[str, Any], code: Any):
        from cuda.core import LaunchConfig

        self._device, self._launch = device, launch
        self._kernel = code.get_kernel(launch["kernel"])
        self._config = LaunchConfig(
            grid=launch["ctas"],
            block=launch["threads"],
            shmem_size=launch["shared_bytes"],
            is_cooperative=launch["cooperative"],
        )
        self._workspaces: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._check_residency()

    def _check_residency(self) -> None:
        """Asks the driver how many CTAs of this kernel fit at once; every CTA must be among them."""
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        nbytes, number = self._launch["shared_bytes"], driver.CUdevice(self._device.device_id)
        (error,) = driver.cuKernelSetAttribute(attribute, nbytes, driver.CUkernel(int(self._kernel.handle)), number)
        if int(error):
            raise UnsupportedError(f"this GPU does not give {nbytes} bytes of shared memory to a CTA")
        resident = self._kernel.occupancy.max_active_blocks_per_multiprocessor(
            self._launch["threads"], self._launch["shared_bytes"]
        )
        capacity = resident * self._device.properties.multiprocessor_count
        if self._launch["cooperative"] and capacity < self._launch["ctas"]:
            raise UnsupportedError(
                f"pipeline '{self._launch['kernel']}' needs {self._launch['ctas']} CTAs at once, this GPU holds "
                f"{capacity}; compile it for a description of this GPU"
            )

    def _workspace(self, stream: int) -> int:
        nbytes = self._launch["workspace_bytes"]
        if not nbytes:
            return 0
        with self._lock:
            if stream not in self._workspaces:
                self._workspaces[stream] = _zeroed(self._device, nbytes, stream)
            return int(self._workspaces[stream].handle)

    def launch(self, stream: int, arguments: Sequence[Described], results: Sequence[Described]) -> None:
        """Puts one run on the stream. Pointers are device addresses of dense tensors."""
        from cuda.core import launch

        counts = {arguments[i][1][0] for i in self._launch["streams"]}
        if len(counts) > 1:
            found = " and ".join(str(count) for count in sorted(counts))
            raise UserError(f"inputs that are streamed together must have the same number of rows, found {found}")
        (rows,) = counts
        if rows == 0:
            return
        copies = [self._aligned(argument, stream) for argument in arguments]
        pointers = [
            int(copy.handle) if copy else pointer for (pointer, _, _), copy in zip(arguments, copies, strict=True)
        ] + [pointer for pointer, _, _ in results]
        workspace = self._workspace(stream)
        stream_object = _stream_object(self._device, stream)
        launch(stream_object, self._config, self._kernel, *pointers, workspace, ctypes.c_int32(rows))
        if self._launch["watched"]:
            stream_object.sync()
            self._raise_report(stream, workspace)

    def _aligned(self, argument: Described, stream: int) -> Any:
        """A copy of a tensor that does not begin at a 16-byte address, as kernels take it; else None. It is
        freed, in stream order, when the caller drops it."""
        from cuda.bindings import driver

        pointer, shape, dtype = argument
        if pointer % ALIGNMENT == 0:
            return None
        nbytes = prod(shape) * numpy_dtype(dtype).itemsize
        copy = self._device.allocate(max(1, nbytes), stream=_stream_object(self._device, stream))
        (error,) = driver.cuMemcpyDtoDAsync(
            driver.CUdeviceptr(int(copy.handle)), driver.CUdeviceptr(pointer), nbytes, driver.CUstream(stream)
        )
        if int(error):
            raise InternalError(f"the GPU could not copy {nbytes} bytes of an input (error {int(error)})")
        return copy

    def _raise_report(self, stream: int, workspace: int) -> None:
        """Raises if a wait of the launch that just ended was in vain; its workspace is not used again."""
        from cuda.bindings import driver

        report = (ctypes.c_uint32 * (1 + len(REPORT)))()
        address = workspace + REPORT_AT
        driver.cuMemcpyDtoH(ctypes.addressof(report), driver.CUdeviceptr(address), ctypes.sizeof(report))
        if not report[0]:
            return
        del self._workspaces[stream]
        found = dict(zip(REPORT, report[1:]))
        queue = self._launch["watched"][found["queue"]]
        awaited = "tile" if found["waits_for_full"] else "free slot for tile"
        where = f"queue '{queue['name']}' ({queue['location']})"
        raise InternalError(
            f"pipeline '{self._launch['kernel']}' hangs: CTA {found['cta']} waits for {awaited} {found['tile']} of "
            f"{where}; its counter is {found['counter']}, wanted {found['wanted']}"
        )


def _stream_object(device: Any, handle: int) -> Any:
    from cuda.core import Stream

    return Stream.from_handle(handle) if handle else device.default_stream


def _zeroed(device: Any, nbytes: int, stream: int) -> Any:
    """A buffer of zeros, on the stream."""
    from cuda.bindings import driver

    buffer = device.allocate(nbytes, stream=_stream_object(device, stream))
    (error,) = driver.cuMemsetD8Async(driver.CUdeviceptr(int(buffer.handle)), 0, nbytes, driver.CUstream(stream))
    if int(error):
        raise UnsupportedError(f"the GPU could not give a workspace of {nbytes} bytes")
    return buffer
