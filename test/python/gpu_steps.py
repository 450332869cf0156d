"""A program through the passes of a compilation for a GPU, for tests that look at what comes of it or run it."""

from __future__ import annotations

from collections.abc import Mapping

from kitsune_mlir import compiler, mlir
from kitsune_mlir.codegen import gpu
from kitsune_mlir.mlir import ir
from kitsune_mlir.passes import pipeline

PLACED = (*compiler.PARTITION, *compiler.DESIGN, *compiler.PLACE["gpu"])
SUMMED = {"partition-dataflow": "min-summed=0"}  # sums over few rows are pipelines too


def place(module: ir.Module, target: str, options: Mapping[str, str] | None = None) -> None:
    """Runs what comes before any kernel, with options of passes as kitsune_mlir.compile takes them."""
    _run(module, PLACED, target, options)


def convert(module: ir.Module, target: str, options: Mapping[str, str] | None = None) -> list[str]:
    """Makes kernels of a placed module: of its pipelines, and of what stands in none. Says what has none, and why."""
    with mlir.collect_remarks() as remarks:
        _run(module, compiler.CONVERT["gpu"], target, options)
    return [remark.message for remark in remarks if "runs bulk-synchronously" in remark.message]


def watched(wait_budget: int) -> dict[str, str]:
    """Options of debug kernels, every wait of which has this budget."""
    return {"convert-kitsune-to-gpu": f"wait-budget={wait_budget}"}


def kernels(module: ir.Module) -> list[ir.Operation]:
    """The gpu.modules of a converted module's pipelines and scheduled kernels, without those of single operators."""
    return [kernel for kernel in mlir.walk(module, "gpu.module") if gpu.PIPELINE in kernel.attributes]


def _run(module: ir.Module, steps: tuple[str, ...], target: str, options: Mapping[str, str] | None) -> None:
    given = compiler._options(options)
    pipeline.run(module, [pipeline.make(step, given.get(step, ""), target) for step in steps])
