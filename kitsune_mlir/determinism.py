"""Whether a model computes the same bits at each call on a GPU.

Rows that meet in one row of a table, in a sum by index or where they overwrite it, come in any order there. A module
that is to be deterministic says so in its attribute `kitsune.deterministic`: each row of the table then takes its
rows in their order (kitsune_mlir/codegen/gpu_scatter.py). All else is done in a fixed order anyway, and so are a CPU's
sums by index.
"""

from __future__ import annotations

import sys

from kitsune_mlir.mlir import ir

ATTRIBUTE = "kitsune.deterministic"


def choose(asked: bool | None) -> bool:
    """What was asked for; without that torch's setting (torch.use_deterministic_algorithms), where torch is in use."""
    if asked is None:
        torch = sys.modules.get("torch")
        return bool(torch and torch.are_deterministic_algorithms_enabled())
    return bool(asked)


def give(module: ir.Module, chosen: bool) -> None:
    """Says it in the module; the default is not written down."""
    if chosen:
        module.operation.attributes[ATTRIBUTE] = ir.UnitAttr.get(module.context)


def of(module: ir.Module) -> bool:
    """What a module says."""
    return ATTRIBUTE in module.operation.attributes
