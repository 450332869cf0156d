"""Helpers of the CPU target's tests: MLIR text in, a runner out, and bf16 as numpy has it."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from kitsune_mlir import mlir
from kitsune_mlir.codegen import cpu
from kitsune_mlir.passes import find
from kitsune_mlir.planning import target
from kitsune_mlir.runtime.cpu import CpuRunner


def build(source: str, *passes: str, opt_level: int = 0):
    """Compiles MLIR text after running some of our passes on it."""
    module = mlir.parse(source, mlir.context())
    with module.context:
        for name in passes:
            find(name)().run(module)
    return cpu.build(module, target.load("cpu"), opt_level=opt_level)


def runner(section, constants=None, **options) -> CpuRunner:
    """A runner all of whose arguments are inputs unless constants are given."""
    constants = constants or [None] * len(section.manifest["arguments"])
    return CpuRunner(section.manifest, section.files, constants, **options)


def run(source: str, *inputs: np.ndarray) -> list[np.ndarray]:
    return runner(build(source)).run(inputs)


def to_bf16(array: np.ndarray) -> np.ndarray:
    return array.astype(ml_dtypes.bfloat16).view(np.uint16)


def from_bf16(array: np.ndarray) -> np.ndarray:
    return array.view(ml_dtypes.bfloat16).astype(np.float32)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """Relative Frobenius error."""
    return float(np.linalg.norm(found.astype(np.float64) - wanted) / max(np.linalg.norm(wanted), 1e-30))
