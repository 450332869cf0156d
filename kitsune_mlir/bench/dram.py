"""Bytes that DRAM moved during one run, counted by the hardware: the command again, under Nsight Compute."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from kitsune_mlir.errors import UnsupportedError

from . import children
from .cases import Case
from .device import Machine
from .measure import Settings, make
from .sides import WARM_UP, our_builders, torch_builders

METRICS = {"dram__bytes_read.sum": "read", "dram__bytes_write.sum": "written"}
SIDES = ("eager", "kitsune")


def find() -> str | None:
    """The path of ncu, where it usually lies when PATH does not have it."""
    usual = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu")) + [Path("/usr/local/cuda/bin/ncu")]
    return shutil.which("ncu") or next((str(path) for path in reversed(usual) if path.is_file()), None)


def moved(arguments: Sequence[str], side: str, timeout: float) -> dict[str, Any]:
    """{read, written, kernels} of one run of a side, in bytes, or {said} why not; `arguments` are those of
    `kitsune bench` for the one case. Caches are left as the run before left them."""
    ncu = find()
    if ncu is None:
        return {"said": "ncu is not on this machine"}
    command = [ncu, "--metrics", ",".join(METRICS), "--clock-control", "none", "--cache-control", "none"]
    command += ["--profile-from-start", "off", "--csv", "--print-units", "base"]
    command += children.command(arguments, side)
    try:
        status, text = _output(command, timeout)
    except subprocess.TimeoutExpired:
        return {"said": f"ncu took more than {timeout:g} s"}
    found = parse(text)
    if status or not found["kernels"]:
        lines = text.strip().splitlines()
        said = next((line for line in lines if "ERROR" in line or "error:" in line), lines[-1] if lines else "nothing")
        return {"said": f"ncu: {said}"}
    return found


def _output(command: Sequence[str], timeout: float) -> tuple[int, str]:
    """Exit status and output; at the timeout ncu ends together with what it started."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, process_group=0, **pipes) as process:
        try:
            text, _ = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, text


def parse(text: str) -> dict[str, Any]:
    """The sums over all kernels in ncu's CSV, which follows what the program itself printed."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: dict[str, Any] = {"read": 0, "written": 0, "kernels": 0}
    launches = set()
    for row in csv.DictReader(lines[start:]):
        if row.get("Metric Name") in METRICS:
            found[METRICS[row["Metric Name"]]] += int(float(row["Metric Value"].replace(",", "")))
            launches.add(row["ID"])
    return found | {"kernels": len(launches)}


def run(case: Case, machine: Machine, settings: Settings, side: str) -> None:
    """The run that ncu watches: a side made ready, then once more. Raises UnsupportedError when it fails."""
    import kitsune_mlir

    module, args, shapes = make(case, settings)
    options: dict[str, Any] = {"dynamic_shapes": shapes, "options": {**settings.options, **case.form}}
    compiled = kitsune_mlir.compile(module, args, target=settings.target, **options) if side == "kitsune" else None
    with torch.no_grad():
        args = tree_map(lambda leaf: machine.move(leaf) if isinstance(leaf, torch.Tensor) else leaf, args)
        if compiled is None:
            builder = torch_builders(machine, machine.move(module), args, ["eager"])["eager"]
        else:
            builder = our_builders(machine, lambda: compiled, args)["kitsune"]
        try:
            call = builder()
            for _ in range(WARM_UP):
                call()
        except RuntimeError as error:
            raise UnsupportedError(f"{case.name}, {side}: {error}") from error
        machine.profiled(call)
