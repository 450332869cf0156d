"""gpu.module -> PTX, in a process of its own that may die without taking the caller along."""

from __future__ import annotations

import atexit
import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from typing import IO

from kitsune_mlir.errors import InternalError
from kitsune_mlir.mlir import bytecode, ir
from kitsune_mlir.planning.target import Target

PATIENCE_S = 300


class _Worker:
    """A `ptx_worker` process, started at the first request and kept: starting costs 0.5 s."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        self._said: IO[str] | None = None

    def start(self) -> None:
        """Starts the process, if none runs; returns before it is ready."""
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return
        self._said = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kitsune_mlir.codegen.ptx_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self._owner = os.getpid()

    def ask(self, request: dict[str, str]) -> dict[str, str] | None:
        """The answer, or None when the process died or ran out of patience over it."""
        with self._lock:
            self.start()
            assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
            process = self._process
            watch = threading.Timer(PATIENCE_S, process.kill)
            watch.start()
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            finally:
                watch.cancel()
            return json.loads(line) if line else None

    def last_words(self) -> str:
        """What the dead process said last on stderr, one line."""
        if self._said is None:
            return "it did not start"
        self._said.seek(0)
        lines = [line.strip() for line in self._said if line.strip()]
        told = [line for line in lines if "error" in line.lower()] or lines
        return told[0][:300] if told else "no message"

    def close(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            self._process = None


_worker = _Worker()
atexit.register(_worker.close)


def warm_up() -> None:
    """Starts the code generator in the background, so that it is ready when the first kernel is."""
    _worker.start()


def to_ptx(gpu_module: ir.Operation, target: Target) -> str:
    """PTX text of a gpu.module in the gpu, nvgpu, nvvm, llvm, scf, memref, vector, arith and math dialects.

    Raises InternalError, with the path of a reproducer, when it does not lower.
    """
    return _emit(gpu_module, target, "ptx")


def to_ptx_all(gpu_modules: Iterable[ir.Operation], target: Target) -> list[str]:
    """`to_ptx` of several modules."""
    return [to_ptx(module, target) for module in gpu_modules]


def to_llvm(gpu_module: ir.Operation, target: Target) -> str:
    """LLVM IR text of a gpu.module, before LLVM's optimiser. Raises as `to_ptx`."""
    return _emit(gpu_module, target, "llvm")


def _emit(gpu_module: ir.Operation, target: Target, emit: str) -> str:
    module = base64.b64encode(bytecode(gpu_module)).decode()
    request = {"module": module, "chip": target.chip, "features": target.ptx_features, "emit": emit}
    answer = _worker.ask(request)
    if answer is None:
        reason = f"the code generator died on it ({_worker.last_words()})"
    elif "error" in answer:
        reason = answer["error"]
    else:
        return answer["text"]
    name = gpu_module.operation.attributes["sym_name"]
    raise InternalError(
        f"gpu.module {name} does not lower to {emit} for {target.name}: {reason}", _reproducer(gpu_module, target, emit)
    )


def _reproducer(gpu_module: ir.Operation, target: Target, emit: str) -> str:
    body = gpu_module.operation.get_asm(enable_debug_info=True)  # errors then name the model's line
    text = f"module attributes {{gpu.container_module}} {{\n{body}\n}}\n"
    with tempfile.NamedTemporaryFile("w", prefix="kitsune-", suffix=".mlir", delete=False) as file:
        file.write(f"// kitsune-opt --emit={emit} --target={target.name} {file.name}\n{text}")
    return file.name
