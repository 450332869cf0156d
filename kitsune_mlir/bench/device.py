"""The machine that cases run on: the current GPU, through torch. Times are in milliseconds."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, Protocol

from kitsune_mlir.errors import InternalError, UserError

from .kernels import Event

Call = Callable[[], list[Any]]  # puts one run on the current stream; its result tensors
HEAD_START = 400_000  # cycles, some 200 us, that a GPU sleeps so that the host has put a graph's launch behind it
FLUSH_BYTES = 256 << 20  # written between L2-cold runs, or three times the L2 where that is more


class GpuLostError(InternalError):
    """Nothing more can run on the GPU in this process."""


class Machine(Protocol):
    """What measuring asks of a machine."""

    name: str

    def move(self, value: Any) -> Any:
        """A tensor or nn.Module there."""

    def capture(self, prepare: Callable[[], Any], run: Call) -> Call:
        """`run` as a CUDA graph; `prepare` is called before, on the stream of the capture."""

    def time(self, call: Call, cold: bool) -> float:
        """One run: with the L2 as an earlier run of it left it, or after the L2 was overwritten."""

    def profiled(self, call: Call) -> None:
        """One run, seen by a profiler that waits for the range."""

    def trace(self, call: Call, runs: int) -> list[Event]:
        """What ran on the GPU in a few runs."""

    def wait(self) -> None:
        """For all work. Raises what the GPU died of."""

    def clear(self) -> None:
        """Gives back the memory of what nobody holds any more, for the next case. Raises like `wait`."""


class Replay:
    """A CUDA graph, which a call launches, and the results that each launch writes."""

    def __init__(self, graph: Any, results: list[Any]):
        self.graph, self.results = graph, results

    def __call__(self) -> list[Any]:
        self.graph.replay()
        return self.results


class Gpu:
    """torch's current GPU."""

    def __init__(self) -> None:
        try:
            import torch
        except ImportError:
            raise UserError("kitsune bench compares with torch: install kitsune-mlir[torch]") from None
        if not torch.cuda.is_available():
            raise UserError("kitsune bench times models on an NVIDIA GPU, and torch finds none here")
        self._torch = torch
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.name = properties.name
        self._flush_bytes = max(FLUSH_BYTES, 3 * properties.L2_cache_size)
        self._buffer: Any = None

    def move(self, value: Any) -> Any:
        return value.to("cuda")

    def capture(self, prepare: Callable[[], Any], run: Call) -> Call:
        cuda = self._torch.cuda
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            prepare()
        cuda.synchronize()
        gc.collect()  # code and memory that goes while work is captured would end that
        graph = cuda.CUDAGraph()
        # cuBLAS keeps a workspace for each stream, and torch.compile's graphs free them all: this graph is to have
        # one of its own, which nobody else uses.
        self._torch._C._cuda_clearCublasWorkspaces()
        with cuda.graph(graph, stream=stream):
            results = run()
        self._torch._C._cuda_clearCublasWorkspaces()

        return Replay(graph, results)

    def time(self, call: Call, cold: bool) -> float:
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        if isinstance(call, Replay):  # else the GPU would wait for the host between the events when the graph is short
            self._torch.cuda._sleep(HEAD_START)
        self._flush() if cold else call()
        start.record()
        results = call()
        end.record()
        end.synchronize()
        del results  # given back outside of the time
        return float(start.elapsed_time(end))

    def _flush(self) -> None:
        if self._buffer is None:
            self._buffer = self._torch.empty(self._flush_bytes, dtype=self._torch.uint8, device="cuda")
        self._buffer.zero_()

    def profiled(self, call: Call) -> None:
        runtime = self._torch.cuda.cudart()
        self.wait()
        runtime.cudaProfilerStart()
        call()
        self.wait()
        runtime.cudaProfilerStop()

    def trace(self, call: Call, runs: int) -> list[Event]:
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        call()
        self.wait()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(runs):
                call()
            self.wait()
        seen = [event for event in profiler.events() if event.device_type == DeviceType.CUDA]
        if not seen:
            raise UserError(
                "torch's profiler saw no kernels on the GPU: another process profiles it, or CUPTI is missing"
            )
        return [Event(event.name, event.time_range.start, event.time_range.elapsed_us()) for event in seen]

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def clear(self) -> None:
        self.wait()
        self._torch.compiler.reset()  # what torch.compile holds: code, CUDA graphs and their memory
        gc.collect()
        self._torch.cuda.empty_cache()
