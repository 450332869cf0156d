"""Runs the queue benchmark's kernels on a GPU: numpy and cuda-bindings only.

What arrives is checked first, over several launches without anything between them; then CUDA events time launches.
"""

from __future__ import annotations

import ctypes
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

from bench.queue_cases import COUNTERS_BYTES, GROUP, PAIRS, SYNCHRONISED, Case

PAIR_BYTES = 64 << 20  # that a pair hands over in a timed launch, at most MOST_PIECES
MOST_PIECES = 8192
REPEATS = 9
POISON = 0xA5


class KernelFailure(Exception):
    """A kernel that did not end, or gave something else than was sent."""


def call(name: str, *arguments: Any) -> Any:
    """Calls the driver; gives its result, or raises KernelFailure."""
    error, *found = getattr(driver, name)(*arguments)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise KernelFailure(f"{name}: {error.name}")
    return found[0] if len(found) == 1 else found


class Device:
    """Memory that all kernels use, and launches on one stream."""

    def __init__(self, folder: Path, descriptions: list[dict[str, Any]]):
        call("cuInit", 0)
        self._watched: list[dict[str, str]] = []  # of the last launch
        self._context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0))
        call("cuCtxSetCurrent", self._context)
        self.stream = call("cuStreamCreate", 0)
        self.ring_bytes = max(16, PAIRS * max(d["ring_bytes"] for d in descriptions))
        self.ring = call("cuMemAlloc", self.ring_bytes)
        self.counters = call("cuMemAlloc", PAIRS * COUNTERS_BYTES + 256)
        call("cuMemsetD8", self.counters, 0, PAIRS * COUNTERS_BYTES + 256)
        self.sums = call("cuMemAlloc", PAIRS * GROUP * 4)
        self._modules = {
            name: call("cuModuleLoadData", (folder / name).read_bytes()) for name in {d["cubin"] for d in descriptions}
        }

    def function(self, description: dict[str, Any]) -> Any:
        function = call("cuModuleGetFunction", self._modules[description["cubin"]], description["name"].encode())
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", function, attribute, description["shared_bytes"])
        return function

    def launch(self, function: Any, description: dict[str, Any], count: int) -> None:
        pointers = (self.ring, self.counters, self.sums)
        slots = (ctypes.c_uint64 * 4)(*(int(pointer) for pointer in pointers), count)
        first = ctypes.addressof(slots)
        addresses = (ctypes.c_uint64 * 4)(*range(first, first + 32, 8))
        self._watched = description["watched"]
        shape = (description["ctas"], 1, 1, description["threads"], 1, 1, description["shared_bytes"], self.stream)
        if description["cooperative"]:
            call("cuLaunchCooperativeKernel", function, *shape, ctypes.addressof(addresses))
        else:
            call("cuLaunchKernel", function, *shape, ctypes.addressof(addresses), 0)

    def wait(self) -> None:
        """Raises KernelFailure with what a wait in vain told (codegen/pipeline/watch.py)."""
        call("cuStreamSynchronize", self.stream)
        if not self._watched:
            return
        report = np.zeros(6, np.uint32)
        call("cuMemcpyDtoH", report.ctypes.data, int(self.counters) + PAIRS * COUNTERS_BYTES, report.nbytes)
        told, wait, cta, _, *numbers = report.tolist()
        if told:
            raise KernelFailure(f"CTA {cta} waits for {self._watched[wait]['awaited'].format(*numbers)}")

    def poison(self) -> None:
        call("cuMemsetD8Async", self.sums, POISON, PAIRS * GROUP * 4, self.stream)
        call("cuMemsetD8Async", self.ring, POISON, self.ring_bytes, self.stream)

    def received(self) -> np.ndarray:
        self.wait()
        sums = np.empty((PAIRS, GROUP), np.uint32)
        call("cuMemcpyDtoH", sums.ctypes.data, self.sums, sums.nbytes)
        return sums

    def milliseconds(self, function: Any, description: dict[str, Any], count: int) -> list[float]:
        times = []
        start, end = (call("cuEventCreate", 0) for _ in range(2))
        for _ in range(REPEATS):
            call("cuEventRecord", start, self.stream)
            self.launch(function, description, count)
            call("cuEventRecord", end, self.stream)
            self.wait()
            times.append(call("cuEventElapsedTime", start, end))
        return times


def check(device: Device, function: Any, description: dict[str, Any], case: Case) -> None:
    """Raises KernelFailure if not every byte that was touched arrives, in order, launch after launch."""
    for count in (3 * max(case.slots, case.depth) + 5, 1, case.depth, case.slots + 1):
        device.poison()
        device.launch(function, description, count)
        compare(case, count, device.received(), "")


def compare(case: Case, count: int, found: np.ndarray, where: str) -> None:
    """Threads that sum nothing keep the poison or zero."""
    mine = (case.touched() >= 0).any(0)
    wrong = int((found != case.checksums(count))[:, mine].sum())
    if wrong:
        raise KernelFailure(f"{wrong} of {PAIRS * int(mine.sum())} checksums are wrong after {count} pieces{where}")


def check_graph(device: Device, function: Any, description: dict[str, Any], case: Case) -> None:
    """Two launches captured into a graph and replayed, nothing between them."""
    counts = (case.depth + 3, 2 * case.slots + 1)
    call("cuStreamBeginCapture", device.stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    for count in counts:
        device.launch(function, description, count)
    graph = call("cuGraphInstantiate", call("cuStreamEndCapture", device.stream), 0)
    device.poison()
    for _ in range(3):
        call("cuGraphLaunch", graph, device.stream)
    compare(case, counts[-1], device.received(), " in a graph")


def run_one(device: Device, description: dict[str, Any]) -> dict[str, Any]:
    """Checks and times a kernel: its description with `gbps`, one way, all pairs, and `ms`."""
    case = Case(**{name: description[name] for name in Case.__dataclass_fields__})
    function = device.function(description)
    if case.checked:
        check(device, function, description, case)
        if case.slot_bytes == 16 * 1024 and case.mode == SYNCHRONISED:
            check_graph(device, function, description, case)
    count = max(description["batch"], min(MOST_PIECES, PAIR_BYTES // case.slot_bytes))
    for _ in range(2):
        device.launch(function, description, count)
    before = device.received()
    times = device.milliseconds(function, description, count)
    if case.checked and (device.received() != before).any():
        raise KernelFailure("checksums differ between equal launches")
    ms = statistics.median(times)
    gbps = PAIRS * count * case.slot_bytes / ms / 1e6
    return description | {"ms": ms, "fastest_ms": min(times), "pieces": count, "gbps": gbps, "checked": case.checked}


def run(folder: Path, names: list[str]) -> Iterator[dict[str, Any]]:
    """Nothing once the GPU is ready, then results of the named kernels, one by one; ends after the first that failed,
    for its context is lost."""
    everything = json.loads((folder / "cases.json").read_text())
    descriptions = [description for description in everything if description["name"] in names]
    device = Device(folder, descriptions)
    yield {}
    for description in descriptions:
        try:
            yield run_one(device, description)
        except KernelFailure as failure:
            yield description | {"failed": str(failure)}
            return
