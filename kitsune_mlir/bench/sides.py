"""The ways to run a model that are compared. Each builder makes one ready, which may take long or fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .device import Call, Machine

OURS = ("kitsune", "kitsune-graph")
WARM_UP = 3  # CUDA graph trees run, then record, then replay


@dataclass
class Side:
    """One way to run a case and what became of it: `said` is why it is not timed, if it is not."""

    name: str
    call: Call | None = None
    ready_seconds: float = 0.0  # until its first run was done: compiling, loading, warm-up
    error: float | None = None  # relative, of the worst result
    said: str = ""
    milliseconds: dict[str, list[float]] = field(default_factory=dict)  # "warm", "cold"


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a nest of tuples, lists and dicts."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def matmul_precision(asked: str | None) -> Iterator[None]:
    """torch's own precision of f32 products, which all sides follow, set to what is asked for, if anything is. At the
    end it is as before, whatever was set meanwhile, and so is cuDNN's."""
    before, convolved = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(asked or before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = convolved


def torch_builders(
    machine: Machine, module: torch.nn.Module, args: Sequence[Any], modes: Sequence[str]
) -> dict[str, Callable[[], Call]]:
    """torch's ways, by name: those of `modes`, in their order."""

    def eager() -> list[torch.Tensor]:
        return tensors(module(*args))

    def run_eager() -> Call:
        eager()
        return eager

    def graph() -> Call:
        return machine.capture(lambda: [eager() for _ in range(WARM_UP)], eager)

    ways = {"eager": run_eager, "graph": graph}
    return {mode: ways.get(mode) or (lambda mode=mode: torch_compiled(module, args, mode)) for mode in modes}


def torch_compiled(module: torch.nn.Module, args: Sequence[Any], mode: str) -> Call:
    """torch.compile in one of its modes, which has run often enough to launch its graphs from now on."""
    for tensor in tensors(args):
        torch._dynamo.mark_static_address(tensor)  # else its CUDA graph copies every input first
    function = torch.compile(module, mode=mode, dynamic=False)

    def run() -> list[torch.Tensor]:
        torch.compiler.cudagraph_mark_step_begin()
        return tensors(function(*args))

    for _ in range(WARM_UP):
        run()
    return run


def our_builders(machine: Machine, compiled: Callable[[], Any], args: Sequence[Any]) -> dict[str, Callable[[], Call]]:
    """Our ways, by name; `compiled` gives the Compiled model, whose only target is this machine."""

    def plain() -> Call:
        model = compiled()

        def run() -> list[torch.Tensor]:
            return tensors(model(*args))

        run()
        return run

    def graph() -> Call:
        run = plain()
        return machine.capture(run, run)

    return {"kitsune": plain, "kitsune-graph": graph}
