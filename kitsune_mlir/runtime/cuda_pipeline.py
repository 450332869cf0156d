"""Launches a pipeline's kernel on CUDA; the kernel is described in codegen/pipeline/kernel.py."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from kitsune_mlir.errors import InternalError, UnsupportedError, UserError

from .cuda_driver import attribute, call, check, in_clusters, overlap
from .device_tensor import numpy_dtype
from .tensor_map import BoundMaps, TensorMaps

# As codegen/pipeline/watch.py writes it.
REPORT = ("wait", "cta", "tile", "first", "second")
REPORT_AT = 128  # bytes into the workspace
ALIGNMENT = 16  # of tensors, in bytes: kernels access words of that size
MOST_PORTABLE = 8  # CTAs of a cluster that every GPU with clusters launches without being asked

Described = tuple[tuple[int, ...], str]  # shape, dtype


def streamed(launch: dict[str, Any]) -> list[tuple[int, int]]:
    """The numbers of the tensors that have the rows of a call, each with the dimension of that size."""
    return list(zip(launch["streams"], launch.get("axes", [0] * len(launch["streams"])), strict=True))


def open_sources(launch: dict[str, Any]) -> list[tuple[int, int]]:
    """The numbers of the tensors that have the open sizes of a call, each with the dimension."""
    return [streamed(launch)[0], *((number, axis) for number, axis in launch.get("further", ()))]


def cta_count(launch: dict[str, Any], sizes: Sequence[int]) -> int:
    """The CTAs of a launch of these open sizes: those that are said, or as many as there are tiles."""
    if (tiles := launch.get("tiles")) is None:
        return int(launch["ctas"])
    return max(1, tiles["times"] * prod(-(-sizes[number] // size) for number, size in tiles["parts"]))


def is_nothing(launch: dict[str, Any], sizes: Sequence[int], results: Sequence[tuple[int, ...]]) -> bool:
    """Whether a call of these open sizes, with results of these shapes, launches nothing: there are no rows, or, of
    several sizes, no elements of results. Raises UserError for sizes less than the kernel is for."""
    if len(sizes) > 1 and not any(map(prod, results)):
        return True
    if min(sizes) < (least := launch.get("least_rows", 0)):
        raise UserError(f"kernel '{launch['kernel']}' wants {least} or more of what there are {min(sizes)} of")
    return len(sizes) == 1 and not sizes[0] and not launch.get("sums", False)


class PipelineLauncher:
    """One pipeline on one device. Each stream has a workspace of its own, zeroed once: the kernel leaves its
    counters zero.

    A kernel's parameters are its tensor maps, if it has any, as one struct by value; the addresses of its
    inputs and results; its workspace; the rows and further open sizes, i32; the rows of tables that have any number,
    i64. `bind` makes them for tensors of given shapes.
    """

    def __init__(self, device: Any, launch: dict[str, Any], code: Any, overlapped: bool):
        from cuda.bindings import driver

        self._device, self._launch, self._driver, self._overlapped = device, launch, driver, overlapped
        self._cluster = launch.get("cluster", 1)
        if launch["ctas"] % self._cluster:
            raise InternalError(
                f"pipeline '{launch['kernel']}' has {launch['ctas']} CTAs in clusters of {self._cluster}"
            )
        self._kernel = code.get_kernel(launch["kernel"])
        self._function = driver.CUfunction(int(self._kernel.handle))
        self._maps = TensorMaps(driver, launch["maps"]) if launch.get("maps") else None
        self._workspaces: dict[int, Any] = {}
        self._lock = threading.Lock()
        self.workspace_bytes: int = launch["workspace_bytes"]
        self.counter_bytes: int = launch.get("counter_bytes", self.workspace_bytes)  # its first
        self.sums: bool = launch.get("sums", False)  # over the rows: the sum of none is written too
        self._ctas: int = launch["ctas"]
        self._check_residency()

    def config(self, ctas: int, stream: int, alone: bool = False) -> Any:
        """How the driver is to launch so many CTAs on a stream; `alone`: when the work before on the stream has
        ended."""
        config = self._driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = ctas, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._launch["threads"], 1, 1
        config.sharedMemBytes = self._launch["shared_bytes"]
        config.hStream = self._driver.CUstream(stream)
        attributes = []
        if self._cluster > 1:
            attributes.append(in_clusters(self._driver, self._cluster))
        if self._launch["cooperative"]:
            attributes.append(attribute(self._driver, "COOPERATIVE"))
            attributes[-1].value.cooperative = 1
        elif self._overlapped and not alone:
            attributes.append(overlap(self._driver))
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        return config

    def _check_residency(self) -> None:
        """Asks the driver how many CTAs of this kernel fit at once. Where CTAs wait for one another, every CTA
        must be among them; else one cluster."""
        driver, launch = self._driver, self._launch
        nbytes, attributes = launch["shared_bytes"], driver.CUfunction_attribute
        if self._set(attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, nbytes):
            raise UnsupportedError(f"this GPU does not give {nbytes} bytes of shared memory to a CTA")
        wide = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        if self._cluster > MOST_PORTABLE and self._set(wide, 1):
            raise UnsupportedError(f"this GPU has no clusters of {self._cluster} CTAs")
        needed = launch["ctas"] if launch["cooperative"] else self._cluster
        capacity = self._capacity()
        if capacity < needed:
            raise UnsupportedError(
                f"pipeline '{launch['kernel']}' needs {needed} CTAs at once, this GPU holds {capacity}; compile it "
                "for a description of this GPU"
            )
        if launch.get("strided") and self._ctas > capacity:
            # Clusters do not straddle GPCs, so fewer may fit than there are multiprocessors for; one that has to wait
            # for another's end would double the time.
            self._ctas = capacity

    def _set(self, attribute: Any, value: int) -> int:
        """Sets an attribute of the kernel on this device: the driver's error, 0 where there is none."""
        driver = self._driver
        kernel, number = driver.CUkernel(int(self._function)), driver.CUdevice(self._device.device_id)
        (error,) = driver.cuKernelSetAttribute(attribute, value, kernel, number)
        return int(error)

    def _capacity(self) -> int:
        """CTAs that this GPU holds at once, in whole clusters."""
        if self._cluster > 1:
            clusters = call(self._driver, "cuOccupancyMaxActiveClusters", self._function, self.config(self._ctas, 0))
            return int(clusters) * self._cluster
        resident = self._kernel.occupancy.max_active_blocks_per_multiprocessor(
            self._launch["threads"], self._launch["shared_bytes"]
        )
        return resident * self._device.properties.multiprocessor_count

    def bind(self, arguments: Sequence[Described], results: Sequence[Described]) -> BoundPipeline:
        """Runs on dense tensors of these shapes. Raises UserError for streamed inputs of different rows, and for sizes
        less than the kernel is for."""
        counts = {arguments[i][0][axis] for i, axis in streamed(self._launch)}
        if len(counts) > 1:
            found = " and ".join(str(count) for count in sorted(counts))
            raise UserError(f"inputs that are streamed together must have the same number of rows, found {found}")
        (rows,) = counts
        open_ = [rows, *(arguments[i][0][axis] for i, axis in self._launch.get("further", ()))]
        is_idle = is_nothing(self._launch, open_, [shape for shape, _ in results])
        sizes = [prod(shape) * numpy_dtype(dtype).itemsize for shape, dtype in arguments]
        maps = self._maps.bind(open_) if self._maps else None
        tables = {number: arguments[number] for number in self._launch.get("sizes", ())}
        numbers = [*open_, *(shape[0] for shape, _ in tables.values())]
        rowless = {n: prod(s[1:]) * numpy_dtype(dtype).itemsize for n, (s, dtype) in tables.items() if not s[0]}
        ctas = cta_count(self._launch, open_) if "tiles" in self._launch else self._ctas
        return BoundPipeline(self, ctas, numbers, sizes, len(results), maps, rowless, is_idle)

    def workspace(self, stream: int) -> int:
        """A pointer to the workspace of a stream."""
        if not self.workspace_bytes:
            return 0
        with self._lock:
            if stream not in self._workspaces:
                buffer = self._device.allocate(self.workspace_bytes, stream=_stream_object(self._device, stream))
                call(self._driver, "cuMemsetD8Async", int(buffer.handle), 0, self.counter_bytes, stream)
                self._workspaces[stream] = buffer
            return int(self._workspaces[stream].handle)

    def put(self, config: Any, stream: int, parameters: int, workspace: int) -> None:
        """Launches, as `config` has it, with the parameters whose addresses lie at an address."""
        (status,) = self._driver.cuLaunchKernelEx(config, self._function, parameters, 0)
        if status:
            check(self._driver, "cuLaunchKernelEx", status)
        if self._launch["watched"]:
            call(self._driver, "cuStreamSynchronize", stream)
            self._raise_report(stream, workspace)

    def memory(self, nbytes: int, stream: int) -> Any:
        """Memory that is freed, in stream order, when the caller drops it."""
        return self._device.allocate(max(1, nbytes), stream=_stream_object(self._device, stream))

    def copied(self, pointer: int, nbytes: int, stream: int) -> Any:
        """A copy of a tensor; freed, in stream order, when the caller drops it."""
        copy = self.memory(nbytes, stream)
        call(self._driver, "cuMemcpyDtoDAsync", int(copy.handle), pointer, nbytes, stream)
        return copy

    def _raise_report(self, stream: int, workspace: int) -> None:
        """Raises if a wait of the launch that just ended was in vain; leaves the workspace as it was before."""
        report = (ctypes.c_uint32 * (1 + len(REPORT)))()
        address = workspace + REPORT_AT
        call(self._driver, "cuMemcpyDtoH", ctypes.addressof(report), address, ctypes.sizeof(report))
        if not report[0]:
            return
        call(self._driver, "cuMemsetD8Async", workspace, 0, self.counter_bytes, stream)
        raise InternalError(f"pipeline '{self._launch['kernel']}' hangs: {said(self._launch['watched'], report[1:])}")


def said(watched: Sequence[dict[str, str]], report: Sequence[int]) -> str:
    """What a report's words, after the flag, say."""
    found = dict(zip(REPORT, report))
    wait = watched[found["wait"]]
    awaited = wait["awaited"].format(found["first"], found["second"])
    return f"CTA {found['cta']} waits, at tile {found['tile']}, for {awaited} ({wait['location']})"


class BoundPipeline:
    """Runs of a pipeline by `ctas` CTAs on tensors of given shapes, whose addresses each run gives. The memory of the
    parameters is made once; the driver copies them when it is called, so runs may follow at once. `numbers` are the
    open sizes, and the rows of tables; `rowless` says how many bytes a row has of tables without any, of which a wrong
    row number still reads the first; one that `is_idle` launches nothing."""

    def __init__(
        self,
        launcher: PipelineLauncher,
        ctas: int,
        numbers: Sequence[int],
        sizes: Sequence[int],
        results: int,
        maps: BoundMaps | None,
        rowless: Mapping[int, int],
        is_idle: bool,
    ):
        self.workspace_bytes, self.counter_bytes = launcher.workspace_bytes, launcher.counter_bytes
        self.is_idle = is_idle
        self._launcher, self._sizes, self._maps, self._ctas = launcher, sizes, maps, ctas
        self._configs: dict[tuple[int, bool], Any] = {}
        self._tensors, self._rowless = len(sizes) + results, rowless
        self._slots = (ctypes.c_uint64 * (self._tensors + 1 + len(numbers)))()
        self._slots[self._tensors + 1 :] = numbers  # an i32 is a slot's low half
        first = ctypes.addressof(self._slots)
        addresses = [maps.address] if maps else []
        addresses += range(first, first + ctypes.sizeof(self._slots), 8)
        self._parameters = (ctypes.c_uint64 * len(addresses))(*addresses)
        self._address = ctypes.addressof(self._parameters)
        self._lock = threading.Lock()

    def launch(self, stream: int, pointers: list[int], workspace: int | None = None, alone: bool = True) -> None:
        """Puts one run on the stream. `pointers` are device addresses of inputs, then results; `workspace` that of
        memory which no other run uses meanwhile, its counters zero, by default the stream's own. `alone`: it begins
        when the work before it on the stream has ended, whether or not its kernel waits itself."""
        if self.is_idle:
            return
        if workspace is None:
            workspace = self._launcher.workspace(stream)
        copies = []
        for i, nbytes in self._rowless.items():
            copies.append(self._launcher.memory(nbytes, stream))
            pointers = [*pointers[:i], int(copies[-1].handle), *pointers[i + 1 :]]
        # Kernels take tensors that begin at 16-byte addresses.
        for i, nbytes in enumerate(self._sizes):
            if pointers[i] % ALIGNMENT:
                copies.append(self._launcher.copied(pointers[i], nbytes, stream))
                pointers = [*pointers[:i], int(copies[-1].handle), *pointers[i + 1 :]]
        with self._lock:
            self._slots[: self._tensors] = pointers
            self._slots[self._tensors] = workspace
            if self._maps:
                self._maps.point([*pointers, workspace])
            if (stream, alone) not in self._configs:
                self._configs[stream, alone] = self._launcher.config(self._ctas, stream, alone)
            self._launcher.put(self._configs[stream, alone], stream, self._address, workspace)


def _stream_object(device: Any, handle: int) -> Any:
    from cuda.core import Stream

    return Stream.from_handle(handle) if handle else device.default_stream
