"""Our compiler's run on a case: its time by itself, apart from what a process pays once (imports, the GPU)."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Mapping
from typing import Any

import torch

from kitsune_mlir.errors import KitsuneError

from .device import Call, Machine


@functools.cache
def set_up(machine: Machine, target: str) -> dict[str, float]:
    """What this process pays before its first case, in seconds: {"gpu": its context, "imports": what compiling
    loads when it is first used (torch.export, torch-mlir, the process that makes PTX), by compiling one layer}."""
    import kitsune_mlir

    start = time.perf_counter()
    machine.wait()
    ready = time.perf_counter()
    with contextlib.suppress(KitsuneError), torch.no_grad():  # the case itself will tell what is wrong
        kitsune_mlir.compile(torch.nn.Linear(16, 16), (torch.randn(16, 16),), target=target)
    return {"gpu": ready - start, "imports": time.perf_counter() - ready}


class Compilation:
    """kitsune_mlir.compile on a case, once, and its result for those who come later."""

    def __init__(self, module: Any, args: Any, shapes: Any, target: str, options: Mapping[str, str]):
        self._given = module, args
        self._keywords = {"target": target, "dynamic_shapes": shapes, "options": options}
        self._compiled: Any = None
        self._seconds = 0.0

    def run(self) -> Call:
        """Compiles; the call that it gives has nothing to run yet."""
        import kitsune_mlir

        start = time.perf_counter()
        self._compiled = kitsune_mlir.compile(*self._given, **self._keywords)
        self._seconds = time.perf_counter() - start
        self._given = None, None  # the copy on the CPU may go
        return list

    def get(self) -> Any:
        """The Compiled model. Raises RuntimeError when there is none."""
        if self._compiled is None:
            raise RuntimeError("not compiled")
        return self._compiled

    def describe(self) -> dict[str, Any]:
        """The entries "plan" and "compiled" of a record; none when it failed."""
        if self._compiled is None:
            return {}
        plan = self._compiled.plan
        return {
            "plan": {
                "operators": plan["operators"],
                "pipelines": len(plan["pipelines"]),
                "kernels": len(plan["kernels"]),
                "predicted_us": plan["predicted_us"],
            },
            "compiled": {"seconds": self._seconds, "steps": self._compiled.seconds},
        }
