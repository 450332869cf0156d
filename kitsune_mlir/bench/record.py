"""What is kept of a case.

A record is plain data:

case, dtype, target
floor          see floor.py
reference      "float64" or "float32": what the errors are against
bound          the largest relative error that counts as right
sides          {name: {status: "ok" | "wrong" | "failed", said, error, compile_seconds, and by temperature
               ("warm", "cold"): {ms (median), min, max, runs}}}
plan           ours: {operators, pipelines, kernels, predicted_us, compile_steps: seconds by step}
best_torch     {temperature: name of the fastest side of torch}
best_ours      likewise
ratios         {temperature: {torch/ours, ours/floor}}
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from .sides import OURS, Side


def describe(side: Side) -> dict[str, Any]:
    """What became of a side."""
    status = "ok" if not side.said else "wrong" if side.said.startswith("wrong:") else "failed"
    error = side.error if side.error is not None and math.isfinite(side.error) else None  # JSON has no infinity
    found = {"status": status, "said": side.said, "error": error, "compile_seconds": side.compile_seconds}
    for temperature, times in side.milliseconds.items():
        found[temperature] = {
            "ms": statistics.median(times),
            "min": min(times),
            "max": max(times),
            "runs": len(times),
        }
    return found


def compare(sides: Sequence[Side], floor_ms: float, temperatures: Sequence[str]) -> dict[str, Any]:
    """The fastest of torch and of ours, and how they compare with each other and with the floor."""
    found: dict[str, Any] = {"best_torch": {}, "best_ours": {}, "ratios": {}}
    for temperature in temperatures:
        timed = [side for side in sides if temperature in side.milliseconds]
        medians = {side.name: statistics.median(side.milliseconds[temperature]) for side in timed}
        torchs = {name: ms for name, ms in medians.items() if name not in OURS}
        ours = {name: ms for name, ms in medians.items() if name in OURS}
        ratios = {}
        if torchs:
            found["best_torch"][temperature] = min(torchs, key=torchs.__getitem__)
        if ours:
            found["best_ours"][temperature] = min(ours, key=ours.__getitem__)
            ratios["ours/floor"] = min(ours.values()) / floor_ms if floor_ms else None
        if ours and torchs:
            ratios["torch/ours"] = min(torchs.values()) / min(ours.values())
        found["ratios"][temperature] = ratios
    return found
