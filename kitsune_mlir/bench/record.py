"""What is kept of a case.

A record is plain data:

case, dtype, target
matmul_precision  of f32 products, of torch's sides and of ours: torch's setting
floor          see floor.py
reference      "float64" or "float32": what the errors are against
bound          the largest relative error that counts as right
checked_rows   rows of the largest result; all of them are compared
sides          {name: {status: "ok" | "wrong" | "failed", said, error, ready_seconds, and by temperature
               ("warm", "cold"): {ms (median), min, max, runs}}}
plan           ours: {operators, pipelines, kernels, predicted_us}
kernels        ours, with --kernels: the launches of the plan, with duration_us and measured_us (see kernels.py)
compiled       ours: {seconds: of kitsune_mlir.compile, from the model to the artifact; steps: seconds by step}
setup          {gpu, imports}: seconds that the process paid once, before its first case
best_torch     {temperature: name of the fastest side of torch}
best_plain     likewise among those that run an operator at a time: cuBLAS, and a kernel for each epilogue
best_ours      likewise
ratios         {temperature: {torch/ours, plain/ours, ours/floor, predicted/ours}}
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from .cases import PLAIN_MODES
from .sides import OURS, Side


def describe(side: Side) -> dict[str, Any]:
    """What became of a side."""
    status = "ok" if not side.said else "wrong" if side.said.startswith("wrong:") else "failed"
    error = side.error if side.error is not None and math.isfinite(side.error) else None  # JSON has no infinity
    found = {"status": status, "said": side.said, "error": error, "ready_seconds": side.ready_seconds}
    for temperature, times in side.milliseconds.items():
        found[temperature] = {
            "ms": statistics.median(times),
            "min": min(times),
            "max": max(times),
            "runs": len(times),
        }
    return found


def compare(
    sides: Sequence[Side], floor_ms: float, predicted_us: float | None, temperatures: Sequence[str]
) -> dict[str, Any]:
    """The fastest of torch and of ours, and how they compare with each other, with the floor and with what the plan
    predicted."""
    groups = {
        "torch": lambda name: name not in OURS,
        "plain": lambda name: name in PLAIN_MODES,
        "ours": lambda name: name in OURS,
    }
    found: dict[str, Any] = {f"best_{group}": {} for group in groups} | {"ratios": {}}
    for temperature in temperatures:
        times = {s.name: statistics.median(s.milliseconds[temperature]) for s in sides if temperature in s.milliseconds}
        fastest: dict[str, float] = {}
        for group, belongs in groups.items():
            if members := [name for name in times if belongs(name)]:
                best = min(members, key=times.__getitem__)
                found[f"best_{group}"][temperature] = best
                fastest[group] = times[best]
        ratios = found["ratios"][temperature] = {}
        if ours := fastest.pop("ours", None):
            ratios.update({f"{group}/ours": ms / ours for group, ms in fastest.items()})
            ratios["ours/floor"] = ours / floor_ms if floor_ms else None
            ratios["predicted/ours"] = predicted_us / 1e3 / ours if predicted_us else None
    return found
