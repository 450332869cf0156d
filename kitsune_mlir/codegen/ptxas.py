"""PTX -> cubin through ptxas, where there is one. Without it the driver assembles PTX at load time. What was assembled
before may be kept (kept_code.py)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kitsune_mlir.errors import InternalError
from kitsune_mlir.planning.target import Target

from . import kept_code


@dataclass(frozen=True)
class KernelInfo:
    """What ptxas says of one kernel: registers a thread, the rest in bytes."""

    registers: int = 0
    shared: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0


@dataclass(frozen=True)
class Assembled:
    """A cubin, its kernels by name, and the warnings and performance advisories of ptxas."""

    cubin: bytes
    kernels: dict[str, KernelInfo]
    warnings: list[str] = field(default_factory=list)


@cache
def find() -> str | None:
    """The path of ptxas: on PATH, under CUDA_HOME, or in the nvidia-cuda-nvcc wheel; None without one."""
    return next((str(path) for path in _candidates() if path.is_file() and os.access(path, os.X_OK)), None)


def _candidates() -> Iterator[Path]:
    if found := shutil.which("ptxas"):
        yield Path(found)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home) / "bin" / "ptxas"
    for folder in sys.path:  # nvidia/cuda_nvcc (CUDA 12 wheels), nvidia/cu13 (CUDA 13 wheels)
        yield from sorted(Path(folder, "nvidia").glob("*/bin/ptxas"), reverse=True)
    yield Path("/usr/local/cuda/bin/ptxas")


@cache
def _version(ptxas: str) -> str:
    """What it says that it is; empty where it says nothing."""
    done = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.strip()


def assemble(ptx: str, target: Target) -> Assembled | None:
    """Assembles PTX for the target's chip; None without a ptxas. Raises InternalError, with the PTX as
    the reproducer, when ptxas refuses it."""
    ptxas = find()
    if ptxas is None:
        return None
    options = [f"-arch={target.chip}", "-v"]
    keeps = kept_code.folder() is not None and _version(ptxas)
    key = kept_code.key_of(keeps, *options, ptx) if keeps else ""
    made = kept_code.find(key) if keeps else None
    if made is None:
        made = _run(ptxas, options, ptx, target)
        if keeps:
            kept_code.keep(key, *made)
    cubin, said = made
    return Assembled(cubin, parse_report(said), _warnings(said))


def _run(ptxas: str, options: list[str], ptx: str, target: Target) -> tuple[bytes, str]:
    """The cubin, and what ptxas says."""
    with tempfile.TemporaryDirectory(prefix="kitsune-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [ptxas, *options, str(source), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _refusal(ptx, target, done.stdout + done.stderr)
        return cubin.read_bytes(), done.stdout + done.stderr


def _refusal(ptx: str, target: Target, said: str) -> InternalError:
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines or ["no message"]
    with tempfile.NamedTemporaryFile("w", prefix="kitsune-", suffix=".ptx", delete=False) as file:
        file.write(ptx)
    return InternalError(f"ptxas does not take the PTX generated for {target.chip}: {errors[0].strip()}", file.name)


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_report(said: str) -> dict[str, KernelInfo]:
    """Kernel by kernel, what `ptxas -v` printed."""
    kernels: dict[str, KernelInfo] = {}
    name, stack, stores, loads = "", 0, 0, 0
    for line in said.splitlines():
        if match := _ENTRY.search(line):
            name, stack, stores, loads = match.group(1), 0, 0, 0
        elif match := _PROPERTIES.search(line):
            stack, stores, loads = (int(number) for number in match.groups())
        elif (match := _REGISTERS.search(line)) and name:
            shared = _SHARED.search(line)
            registers = int(match.group(1))
            kernels[name] = KernelInfo(registers, int(shared.group(1)) if shared else 0, stack, stores, loads)
            name = ""
    return kernels


_ALARMING = ("warning", "advisory", "potential performance loss")


def _warnings(said: str) -> list[str]:
    return [line.strip() for line in said.splitlines() if any(word in line.lower() for word in _ALARMING)]
