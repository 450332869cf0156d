"""A device for GpuRunner that also runs pipelines on the CPU (see simt_pipeline.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
from fake_gpu import FakeDevice, FakeMemory
from simt import DTYPES
from simt_decode import Op, decode
from simt_memory import Region, Space
from simt_pipeline import Deadlock, run
from simt_tma import encode
from simt_warps import run_warps

from kitsune_mlir.mlir import ir
from kitsune_mlir.runtime.cuda_pipeline import REPORT, REPORT_AT, said

Described = tuple[tuple[int, ...], str]  # shape, dtype
Tensor = tuple[int, tuple[int, ...], str]  # pointer, shape, dtype


class PipelineDevice(FakeDevice):
    """A seed is an order in which CTAs take turns."""

    def __init__(self, module: ir.Module, seed: int = 0):
        super().__init__(module)
        self._decoded: dict[str, Op] = {}
        self.rng = np.random.default_rng(seed)
        self.pipeline_launches = 0
        self.described: list[dict[str, Any]] = []  # of the pipelines, as described

    def pipeline(self, launch: dict[str, Any], code: str) -> FakeLauncher:
        self.described.append(launch)
        return FakeLauncher(self, launch, [decode(self._kernels[name]) for name in (launch["kernel"], *launch["then"])])

    def bytes_of(self, pointer: int, nbytes: int) -> np.ndarray:
        found = self._bytes_at(pointer)[:nbytes]
        assert len(found) == nbytes
        return found


class FakeLauncher:
    """Stands in for kitsune_mlir.runtime.cuda_pipeline.PipelineLauncher."""

    def __init__(self, device: PipelineDevice, launch: dict[str, Any], kernels: Sequence[Op]):
        self._device, self._launch, self._kernels = device, launch, kernels
        self._workspaces: dict[int, FakeMemory] = {}
        self.workspace_bytes = launch["workspace_bytes"]
        self.counter_bytes = launch.get("counter_bytes", self.workspace_bytes)

    def _workspace(self, stream: int) -> FakeMemory:
        if stream not in self._workspaces:
            memory = self._workspaces[stream] = FakeMemory(self._device, self._launch["workspace_bytes"])
            memory.bytes[: self.counter_bytes], memory.bytes[self.counter_bytes :] = 0, 0xFF
        return self._workspaces[stream]

    def bind(self, arguments: Sequence[Described], results: Sequence[Described]) -> FakeBound:
        return FakeBound(self, arguments, results)

    def launch(
        self, stream: int, arguments: Sequence[Tensor], results: Sequence[Tensor], workspace: int | None = None
    ) -> None:
        """Runs; then every counter that was used must be zero, for the next launch. Raises Deadlock for a report."""
        (rows,) = {arguments[i][1][0] for i in self._launch["streams"]}
        if rows == 0 and not self._launch.get("sums"):
            return
        self._device.pipeline_launches += 1
        place = self._workspace(stream).pointer if workspace is None else workspace
        content = self._device.bytes_of(place, self.workspace_bytes) if self.workspace_bytes else np.zeros(0, np.uint8)
        regions = list(self._regions("argument", arguments, writable=False))
        regions += self._regions("result", results, writable=True)
        regions.append(Region("the workspace", place, content, writable=True, tracked=True))
        pointers = [pointer for pointer, _, _ in (*arguments, *results)]
        values = [*pointers, place if len(content) else 0, np.int32(rows)]
        memory, launch, rng = Space(regions), self._launch, self._device.rng
        if launch.get("strided"):  # a GPU may hold fewer clusters than it was compiled for
            size = launch.get("cluster", 1)
            launch = launch | {"ctas": size * int(rng.integers(1, launch["ctas"] // size + 1))}
        if launch.get("maps") or launch.get("specialised"):
            places = [*pointers, place]
            maps = [
                encode(described, places[described["tensor"]] + described.get("offset", 0), max(rows, 1))
                for described in launch.get("maps", [])
            ]
            execute = partial(run_warps, maps=maps, rng=rng)
        else:
            execute = partial(run, rng=rng)
        released: list[int] = []
        for kernel in self._kernels:
            released += execute(kernel, values, memory, launch).released
            for region in regions:
                region.next_kernel()
        if self._launch["watched"]:
            self._look_at_report(content[REPORT_AT:].view(np.uint32))
        for address in released:
            assert not np.any(self._device.bytes_of(address, 4)), "a launch left a counter that is not zero"

    def _look_at_report(self, report: np.ndarray) -> None:
        if report[0]:
            raise Deadlock(f"reported: {said(self._launch['watched'], report[1 : 1 + len(REPORT)].tolist())}")

    def _regions(self, kind: str, tensors: Sequence[Tensor], writable: bool) -> Iterator[Region]:
        seen: dict[int, int] = {}
        for pointer, shape, dtype in tensors:
            nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(DTYPES[dtype]).itemsize
            seen[pointer] = max(nbytes, seen.get(pointer, 0))
        for number, (pointer, nbytes) in enumerate(seen.items()):
            content = self._device.bytes_of(pointer, nbytes) if nbytes else np.zeros(0, np.uint8)
            yield Region(f"{kind} {number}", pointer, content, writable, tracked=writable)


class FakeBound:
    """Stands in for kitsune_mlir.runtime.cuda_pipeline.BoundPipeline."""

    def __init__(self, launcher: FakeLauncher, arguments: Sequence[Described], results: Sequence[Described]):
        self.workspace_bytes, self.counter_bytes = launcher.workspace_bytes, launcher.counter_bytes
        self._launcher, self._arguments, self._results = launcher, arguments, results

    def launch(self, stream: int, pointers: Sequence[int], workspace: int | None = None) -> None:
        given = iter(pointers)
        arguments, results = ([(next(given), *kind) for kind in kinds] for kinds in (self._arguments, self._results))
        self._launcher.launch(stream, arguments, results, workspace)
