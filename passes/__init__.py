"""Passes, one a file, in the order of the pipeline; found by the name that users type."""

from __future__ import annotations

import importlib

from kitsune_mlir.errors import UserError

from .base import ModulePass

# In pipeline order; `kitsune-opt --list-passes` prints them so.
PASSES = (
    "prepare-linalg",
    "project-gathers",
    "order-rows",
    "carry-channels",
    "partition-dataflow",
    "design-pipeline",
    "cut-pipelines",
    "place-stages",
    "scatter-outputs",
    "verify-dataflow",
    "convert-kitsune-to-cpu",
    "single-products",
    "schedule-chains",
    "convolutions-to-products",
    "join-products",
    "schedule-attention",
    "schedule-back-to-back",
    "gated-products",
    "schedule-products",
    "schedule-rows",
    "place-columns",
    "convert-kitsune-to-gpu",
    "convert-linalg-to-gpu",
    "join-launches",
    "overlap-launches",
    "lower-gpu-to-ptx",
)


def find(name: str) -> type[ModulePass]:
    """The pass class of that name. Raises UserError for a name that is not ours."""
    if name not in PASSES:
        raise UserError(f"there is no kitsune pass '{name}'; the passes are {', '.join(PASSES)}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return getattr(module, "".join(word.capitalize() for word in name.split("-")))
