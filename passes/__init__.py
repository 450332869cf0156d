"""Passes, one a file, in the order of the pipeline; found by the name that users type."""

from __future__ import annotations

import importlib

from kitsune_mlir.errors import UserError

from .base import ModulePass

# What happens to the model whatever it runs on, then for each target on a copy.
PARTITION = ("prepare-linalg", "project-gathers", "order-rows", "carry-channels", "partition-dataflow")
FOR_GPUS = ("order-rows", "carry-channels")  # of those, what is not run for the sake of a CPU alone
DESIGN = ("design-pipeline",)
PLACE = {
    "cpu": ("place-stages", "verify-dataflow"),
    "gpu": ("cut-pipelines", "place-stages", "scatter-outputs", "verify-dataflow"),
}
CONVERT = {
    "cpu": ("convert-kitsune-to-cpu",),
    "gpu": (
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
    ),
}
# In pipeline order; `kitsune-opt --list-passes` prints them so.
PASSES = (*PARTITION, *DESIGN, *PLACE["gpu"], *CONVERT["cpu"], *CONVERT["gpu"], "lower-gpu-to-ptx")


def find(name: str) -> type[ModulePass]:
    """The pass class of that name. Raises UserError for a name that is not ours."""
    if name not in PASSES:
        raise UserError(f"there is no kitsune pass '{name}'; the passes are {', '.join(PASSES)}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return getattr(module, "".join(word.capitalize() for word in name.split("-")))
