"""Launches a pipeline's kernel on CUDA; the kernel is described in codegen/pipeline/kernel.py."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from math import prod
from typing import Any

from kitsune_mlir.errors import InternalError, UnsupportedError, UserError

from .cuda_driver import call
from .device_tensor import numpy_dtype
from .tensor_map import TensorMaps

# As codegen/pipeline/watch.py writes it.
REPORT = ("queue", "waits_for_full", "cta", "tile", "counter", "wanted")
REPORT_AT = 128  # bytes into the workspace
ALIGNMENT = 16  # of tensors, in bytes: kernels access words of that size

Described = tuple[int, tuple[int, ...], str]  # pointer, shape, dtype


class PipelineLauncher:
    """One pipeline on one device. Each stream has a workspace of its own, zeroed once: the kernel leaves its
    counters zero.

    A kernel's parameters are its tensor maps, if it has any, as one struct by value; the addresses of its
    inputs and results; its workspace; the rows, i32.
    """

    def __init__(self, device: Any, launch: dict[str, Any], code: Any):
        from cuda.bindings import driver

        self._device, self._launch, self._driver = device, launch, driver
        self._cluster = launch.get("cluster", 1)
        if launch["ctas"] % self._cluster:
            raise InternalError(
                f"pipeline '{launch['kernel']}' has {launch['ctas']} CTAs in clusters of {self._cluster}"
            )
        self._kernel = code.get_kernel(launch["kernel"])
        self._function = driver.CUfunction(int(self._kernel.handle))
        self._maps = TensorMaps(driver, launch["maps"]) if launch.get("maps") else None
        self._configs: dict[int, Any] = {}
        self._workspaces: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._check_residency()

    def _config(self, stream: int) -> Any:
        """How the driver is to launch on a stream."""
        config = self._driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = self._launch["ctas"], 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._launch["threads"], 1, 1
        config.sharedMemBytes = self._launch["shared_bytes"]
        config.hStream = self._driver.CUstream(stream)
        attributes = []
        if self._cluster > 1:
            attributes.append(self._attribute("CLUSTER_DIMENSION"))
            size = attributes[-1].value.clusterDim
            size.x, size.y, size.z = self._cluster, 1, 1
        if self._launch["cooperative"]:
            attributes.append(self._attribute("COOPERATIVE"))
            attributes[-1].value.cooperative = 1
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        return config

    def _attribute(self, name: str) -> Any:
        attribute = self._driver.CUlaunchAttribute()
        attribute.id = getattr(self._driver.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        return attribute

    def _check_residency(self) -> None:
        """Asks the driver how many CTAs of this kernel fit at once. Where CTAs wait for one another, every CTA
        must be among them; else one cluster."""
        driver, launch = self._driver, self._launch
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        nbytes, number = launch["shared_bytes"], driver.CUdevice(self._device.device_id)
        (error,) = driver.cuKernelSetAttribute(attribute, nbytes, driver.CUkernel(int(self._kernel.handle)), number)
        if int(error):
            raise UnsupportedError(f"this GPU does not give {nbytes} bytes of shared memory to a CTA")
        needed = launch["ctas"] if launch["cooperative"] else self._cluster
        capacity = self._capacity()
        if capacity < needed:
            raise UnsupportedError(
                f"pipeline '{launch['kernel']}' needs {needed} CTAs at once, this GPU holds {capacity}; compile it "
                "for a description of this GPU"
            )

    def _capacity(self) -> int:
        """CTAs that this GPU holds at once, in whole clusters."""
        if self._cluster > 1:
            clusters = call(self._driver, "cuOccupancyMaxActiveClusters", self._function, self._config(0))
            return int(clusters) * self._cluster
        resident = self._kernel.occupancy.max_active_blocks_per_multiprocessor(
            self._launch["threads"], self._launch["shared_bytes"]
        )
        return resident * self._device.properties.multiprocessor_count

    def _workspace(self, stream: int) -> int:
        nbytes = self._launch["workspace_bytes"]
        if not nbytes:
            return 0
        with self._lock:
            if stream not in self._workspaces:
                self._workspaces[stream] = self._zeroed(nbytes, stream)
            return int(self._workspaces[stream].handle)

    def _zeroed(self, nbytes: int, stream: int) -> Any:
        """A buffer of zeros, on the stream."""
        buffer = self._device.allocate(nbytes, stream=_stream_object(self._device, stream))
        call(self._driver, "cuMemsetD8Async", int(buffer.handle), 0, nbytes, stream)
        return buffer

    def launch(self, stream: int, arguments: Sequence[Described], results: Sequence[Described]) -> None:
        """Puts one run on the stream. Pointers are device addresses of dense tensors."""
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
        self._put(stream, pointers, workspace, rows)
        if self._launch["watched"]:
            _stream_object(self._device, stream).sync()
            self._raise_report(stream, workspace)

    def _put(self, stream: int, pointers: Sequence[int], workspace: int, rows: int) -> None:
        """Launches. The driver copies parameters during its call, so their memory here is the call's own."""
        slots = (ctypes.c_uint64 * (len(pointers) + 2))(*pointers, workspace, rows)  # an i32 is a slot's low half
        first = ctypes.addressof(slots)
        addresses = list(range(first, first + ctypes.sizeof(slots), 8))
        maps = self._maps.struct(pointers, rows) if self._maps else None
        if maps:
            addresses.insert(0, maps.address)
        parameters = (ctypes.c_uint64 * len(addresses))(*addresses)
        if stream not in self._configs:
            self._configs[stream] = self._config(stream)
        config = self._configs[stream]
        call(self._driver, "cuLaunchKernelEx", config, self._function, ctypes.addressof(parameters), 0)

    def _aligned(self, argument: Described, stream: int) -> Any:
        """A copy of a tensor that does not begin at a 16-byte address, as kernels take it; else None. It is
        freed, in stream order, when the caller drops it."""
        pointer, shape, dtype = argument
        if pointer % ALIGNMENT == 0:
            return None
        nbytes = prod(shape) * numpy_dtype(dtype).itemsize
        copy = self._device.allocate(max(1, nbytes), stream=_stream_object(self._device, stream))
        call(self._driver, "cuMemcpyDtoDAsync", int(copy.handle), pointer, nbytes, stream)
        return copy

    def _raise_report(self, stream: int, workspace: int) -> None:
        """Raises if a wait of the launch that just ended was in vain; its workspace is not used again."""
        report = (ctypes.c_uint32 * (1 + len(REPORT)))()
        address = workspace + REPORT_AT
        call(self._driver, "cuMemcpyDtoH", ctypes.addressof(report), address, ctypes.sizeof(report))
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
