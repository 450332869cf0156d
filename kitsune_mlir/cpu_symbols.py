"""What convert-kitsune-to-cpu and the CPU code generator agree on."""

from __future__ import annotations

import math

from .mlir import ir

# Attributes of functions.
PLAN = "kitsune.plan"  # a pipeline without a body: what the C++ runtime runs, as JSON
STAGE = "kitsune.stage"  # (unit) native code that the runtime calls with bare pointers
PRODUCT = "kitsune.product"  # a product without a body: the roles of its operands' dimensions
PACK = "kitsune.pack"  # packs a product's right operand into panels: the roles of its dimensions

# A product's right operand in panels: (ceil(n / width), k, width), zeros past column n.
PANELS = ("panels",)  # in place of the roles of a right operand that is packed already
FEW_ROWS = 8  # of a left operand, up to which packing costs more than it saves
PANEL_BYTES = 128  # of one row of a panel: a few vector registers on any machine


def panel_width(bits: int) -> int:
    """Columns of a panel of elements of so many bits."""
    return PANEL_BYTES * 8 // bits


def tensor_bytes(kind: ir.RankedTensorType) -> int:
    """Memory of a tensor of fixed shape; an i1 takes a byte."""
    return math.prod(kind.shape) * max(1, kind.element_type.width // 8)


def row_bytes(kind: ir.RankedTensorType) -> int:
    """Memory of one row (dimension 0) of a tensor whose other sizes are fixed."""
    return math.prod(list(kind.shape)[1:]) * max(1, kind.element_type.width // 8)
