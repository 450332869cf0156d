"""The C++ runtime through ctypes: builds the pipelines of a plan and links them to native code."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kitsune_mlir
from kitsune_mlir.errors import InternalError, UnsupportedError, UserError

# The array that native code and this module share: see codegen/cpu_pipelines.py.
LINKS, RUN, FAILED, HANDLES = "kitsune_links", 0, 1, 2
NO_THREADS, UNEQUAL_ROWS = 1, 2  # causes of failure
STAGE_PREFIX = "kitsune_stage_"  # in front of a stage function's name: its form for the runtime
KINDS = ("resident", "load", "get", "reduce", "valid", "put", "store", "accumulate", "whole")  # as kitsune_operand
_runtime: ctypes.CDLL | None = None


class Pipelines:
    """The pipelines of one loaded library (runtime/cpu.py). `threads` is 0 to run them as placed, 1 for one tile after
    another in the calling thread, n for all stages on each of n threads. Raises InternalError when the runtime refuses
    a plan."""

    def __init__(self, library: Any, plans: Sequence[Mapping[str, Any]], threads: int):
        self.runtime = _load()
        self.handles: list[int] = []
        self._library, self._plans, self._threads = library, plans, threads
        try:
            self.links = (ctypes.c_int64 * (HANDLES + len(plans))).in_dll(library.handle, LINKS)
        except ValueError:
            raise UserError(
                "the compiled code has no pipelines, and its manifest has: compile the model again"
            ) from None
        self.links[RUN] = ctypes.cast(self.runtime.kitsune_pipeline_run, ctypes.c_void_p).value
        self.prepare()

    def prepare(self) -> None:
        """Makes the pipelines, unless they are there."""
        if self.handles:
            return
        self.links[FAILED] = 0
        for i, plan in enumerate(self._plans):
            handle = self._create(plan)
            self.handles.append(handle)
            self.links[HANDLES + i] = handle
            if not self.runtime.kitsune_pipeline_schedule(handle, self._threads):
                raise InternalError("the runtime refused a pipeline's plan, or is out of memory")

    def abandon(self) -> None:
        """Forgets the pipelines without a call of the runtime, which would wait for threads that are no more."""
        self.handles = []

    def check(self) -> None:
        """Raises when a pipeline could not run since the last check: UserError if its inputs were to blame."""
        cause, self.links[FAILED] = self.links[FAILED], 0
        if cause == UNEQUAL_ROWS:
            raise UserError("inputs that share their first dimension differ in it")
        if cause == NO_THREADS:
            raise InternalError("a pipeline did not run: no thread could be started")

    def __del__(self) -> None:
        for handle in getattr(self, "handles", ()):
            self.runtime.kitsune_pipeline_destroy(handle)

    def _create(self, plan: Mapping[str, Any]) -> int:
        def function(symbol: str | None) -> int | None:
            return symbol and ctypes.cast(self._library.function(STAGE_PREFIX + symbol), ctypes.c_void_p).value

        handle = self.runtime.kitsune_pipeline_create(plan["tile_rows"], plan["pointers"])
        done = handle is not None
        for queue in plan["queues"]:
            added = self.runtime.kitsune_pipeline_add_queue(
                handle, queue["tile_bytes"], queue["depth"], function(queue["add"])
            )
            done = done and added >= 0
        for stage in plan["stages"]:
            number = self.runtime.kitsune_pipeline_add_stage(
                handle, function(stage["symbol"]), stage["role"], stage["replicas"], stage["scratch"]
            )
            for kind, index, row_bytes in stage["operands"]:
                place = index + plan["outputs_at"] if kind in ("store", "whole") else index
                code = KINDS.index(kind)
                done = done and self.runtime.kitsune_pipeline_add_operand(handle, number, code, place, row_bytes)
        if not done:
            raise InternalError(f"the runtime refused the description of pipeline '{plan['name']}'")
        return handle


def _load() -> ctypes.CDLL:
    """The C++ runtime, which the build puts into the package's folder."""
    global _runtime
    if _runtime is None:
        found = [path for path in (Path(folder, "_runtime.so") for folder in kitsune_mlir.__path__) if path.is_file()]
        if not found:
            raise UnsupportedError("the C++ runtime (_runtime.so) is not built; install the package again with pip")
        _runtime = ctypes.CDLL(str(found[0]))
        _declare(_runtime)
    return _runtime


def _declare(runtime: ctypes.CDLL) -> None:
    pointer, word = ctypes.c_void_p, ctypes.c_int64
    signatures = {
        "create": (pointer, [word, word]),
        "destroy": (None, [pointer]),
        "add_queue": (word, [pointer, word, word, pointer]),
        "add_stage": (word, [pointer, pointer, word, word, word]),
        "add_operand": (word, [pointer, word, word, word, word]),
        "schedule": (word, [pointer, word]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(runtime, f"kitsune_pipeline_{name}")
        function.restype, function.argtypes = result, arguments
