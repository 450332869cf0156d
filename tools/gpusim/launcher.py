"""Launches pipelines in the simulator, with what a launch on a GPU is given: tensors, workspace, tensor maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kitsune_mlir.runtime.cuda_pipeline import REPORT, REPORT_AT, is_nothing, open_sources, said, streamed
from kitsune_mlir.runtime.tensor_map import dims_at

from .arithmetic import DTYPES
from .clocks import most_ctas
from .decode import Op
from .faults import Deadlock, MemoryFault, named
from .index_reports import reported
from .memory import Region
from .space import Space
from .tma import Box, encode
from .warp_kernel import run_warps

if TYPE_CHECKING:
    from .device import SimulatedDevice, SimulatedMemory

SPREAD_OVER = 16  # CTAs that go round the tiles of a launch at most: of a whole GPU's many most would have none

Described = tuple[tuple[int, ...], str]  # shape, dtype
Tensor = tuple[int, tuple[int, ...], str]  # pointer, shape, dtype


class Launcher:
    """Stands in for kitsune_mlir.runtime.cuda_pipeline.PipelineLauncher."""

    def __init__(self, device: SimulatedDevice, launch: dict[str, Any], code: str, kernel: Op, overlapped: bool):
        self._device, self._launch, self._kernel, self._overlapped = device, launch, kernel, overlapped
        self._report = partial(device.report, code)
        self._workspaces: dict[int, SimulatedMemory] = {}
        self.workspace_bytes = launch["workspace_bytes"]
        self.counter_bytes = launch.get("counter_bytes", self.workspace_bytes)

    def _workspace(self, stream: int) -> SimulatedMemory:
        if stream not in self._workspaces:
            memory = self._workspaces[stream] = self._device.memory(self._launch["workspace_bytes"])
            memory.bytes[: self.counter_bytes], memory.bytes[self.counter_bytes :] = 0, 0xFF
        return self._workspaces[stream]

    def bind(self, arguments: Sequence[Described], results: Sequence[Described]) -> Bound:
        return Bound(self, arguments, results)

    def is_idle(self, arguments: Sequence[Described], results: Sequence[Described]) -> bool:
        """Whether a call with such tensors launches nothing."""
        sizes = [arguments[i][0][axis] for i, axis in open_sources(self._launch)]
        return is_nothing(self._launch, sizes, [shape for shape, _ in results])

    def launch(
        self,
        stream: int,
        arguments: Sequence[Tensor],
        results: Sequence[Tensor],
        workspace: int | None = None,
        alone: bool = True,
    ) -> None:
        """Runs; then every counter that was used must be zero, for the next launch. Unless it begins `alone`, what the
        run's kernels before it have written may be used behind the kernel's wait for them only, and its results
        likewise. Raises KernelFault for what is found, Deadlock for a report too."""
        (_,) = {arguments[i][1][axis] for i, axis in streamed(self._launch)}
        open_ = [arguments[i][1][axis] for i, axis in open_sources(self._launch)]
        zeroed = {results[number][0] for number in self._launch.get("zeroed", ())}
        if self.is_idle(*([described for _, *described in own] for own in (arguments, results))):
            return
        self._device.pipeline_launches += 1
        place = self._workspace(stream).pointer if workspace is None else workspace
        content = self._device.bytes_of(place, self.workspace_bytes) if self.workspace_bytes else np.zeros(0, np.uint8)
        tables = [np.int64(arguments[number][1][0]) for number in self._launch.get("sizes", ())]
        given, spare = list(arguments), []
        for number, size in zip(self._launch.get("sizes", ()), tables, strict=True):
            if not size:  # a wrong row number still reads the first row of a table without any
                _, (_, *shape), dtype = arguments[number]
                spare.append(self._device.memory(_nbytes((1, *shape), dtype)))
                given[number] = spare[-1].pointer, (1, *shape), dtype
        arguments = given
        written = {pointer for pointer, _, _ in results}
        read = [tensor for tensor in arguments if tensor[0] not in written]
        shared = {pointer for pointer, _, _ in arguments} & written  # columns of these are others'
        regions = list(self._regions("argument", read, writable=False))
        regions += self._regions("result", [t for t in results if t[0] not in zeroed], writable=True)
        for region in regions:
            if region.start in shared:
                region.fill()
        for region in self._regions("zeroed result", [t for t in results if t[0] in zeroed], writable=True):
            region.tracked = False  # written already, and by atomic operations alone
            regions.append(region)
        regions.append(Region("the workspace", place, content, writable=True, tracked=True))
        alone = alone or not self._overlapped
        for region in regions:
            region.pending = not alone and (region.writable or self._device.is_fresh(region.start, region.end))
        self._device.written([(region.start, region.end) for region in regions if region.writable], alone)
        pointers = [pointer for pointer, _, _ in (*arguments, *results)]
        values = [*pointers, place if len(content) else 0, *map(np.int32, open_), *tables]
        memory, launch, rng = Space(regions), self._launch, self._device.rng
        if not launch.get("cooperative", True):  # CTAs go round the tiles, however many they are
            size, most = launch.get("cluster", 1), min(launch["ctas"], most_ctas(launch["threads"] // 32))
            launch = launch | {"ctas": size * int(rng.integers(1, min(most, max(size, SPREAD_OVER)) // size + 1))}
        places = [*pointers, place]
        maps = [_encoded(described, places, open_) for described in launch.get("maps", [])]
        with named(self._launch["kernel"]), reported(self._report):
            released = run_warps(self._kernel, values, memory, launch, maps, rng).released
        with named(self._launch["kernel"]):
            if self._launch["watched"]:
                self._look_at_report(content[REPORT_AT:].view(np.uint32))
            for address in released:
                if np.any(self._device.bytes_of(address, 4)):
                    raise MemoryFault("a launch left a counter that is not zero")

    def _look_at_report(self, report: np.ndarray) -> None:
        if report[0]:
            raise Deadlock([f"reported: {said(self._launch['watched'], report[1 : 1 + len(REPORT)].tolist())}"])

    def _regions(self, kind: str, tensors: Sequence[Tensor], writable: bool) -> Iterator[Region]:
        """The memory of tensors; what is read alone may be parts of a tensor that have elements in common."""
        seen: dict[int, int] = {}
        for pointer, shape, dtype in tensors:
            seen[pointer] = max(_nbytes(shape, dtype), seen.get(pointer, 0))
        if not writable:
            seen = _joined(seen)
        for number, (pointer, nbytes) in enumerate(seen.items()):
            content = self._device.bytes_of(pointer, nbytes) if nbytes else np.zeros(0, np.uint8)
            yield Region(f"{kind} {number}", pointer, content, writable, tracked=writable)


def _joined(places: dict[int, int]) -> dict[int, int]:
    """Parts of memory, bytes by address, of which those that overlap are one."""
    found: dict[int, int] = {}
    last = 0
    for pointer, nbytes in sorted(places.items()):
        if found and pointer < last + found[last]:
            found[last] = max(found[last], pointer + nbytes - last)
        else:
            last, found[pointer] = pointer, nbytes
    return found


def _encoded(described: dict[str, Any], places: Sequence[int], sizes: Sequence[int]) -> Box | None:
    """A tensor map; None of a tensor without elements, for which the runtime makes none."""
    if not all(dims_at(described, sizes)):
        return None
    return encode(described, places[described["tensor"]] + described.get("offset", 0), sizes)


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(DTYPES[dtype]).itemsize


class Bound:
    """Stands in for kitsune_mlir.runtime.cuda_pipeline.BoundPipeline."""

    def __init__(self, launcher: Launcher, arguments: Sequence[Described], results: Sequence[Described]):
        self.workspace_bytes, self.counter_bytes = launcher.workspace_bytes, launcher.counter_bytes
        self._launcher, self._arguments, self._results = launcher, arguments, results
        self.is_idle = launcher.is_idle(arguments, results)

    def launch(self, stream: int, pointers: Sequence[int], workspace: int | None = None, alone: bool = True) -> None:
        given = iter(pointers)
        arguments, results = ([(next(given), *kind) for kind in kinds] for kinds in (self._arguments, self._results))
        self._launcher.launch(stream, arguments, results, workspace, alone)
