"""How exactly products of f32 elements are computed on tensor cores, in torch's words
(torch.set_float32_matmul_precision): "highest" as f32, "high" and "medium" with operands rounded to tf32.

A module says it in its attribute `kitsune.matmul_precision`; without one it is "highest". What has no tensor cores, a
CPU for one, always computes in f32.
"""

from __future__ import annotations

import sys

from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import ir

ATTRIBUTE = "kitsune.matmul_precision"
HIGHEST, HIGH, MEDIUM = CHOICES = ("highest", "high", "medium")


def choose(asked: str | None) -> str:
    """What was asked for; without that torch's setting, where torch is in use. Raises UserError for other words."""
    if asked is None:
        torch = sys.modules.get("torch")
        return torch.get_float32_matmul_precision() if torch else HIGHEST
    if asked not in CHOICES:
        raise UserError(f"the precision of f32 products must be one of {', '.join(CHOICES)}, found '{asked}'")
    return asked


def give(module: ir.Module, chosen: str) -> None:
    """Says it in the module; the default is not written down."""
    if chosen != HIGHEST:
        module.operation.attributes[ATTRIBUTE] = ir.StringAttr.get(chosen, module.context)


def of(op: ir.Operation) -> str:
    """What the module around `op` says. Raises UserError for a module whose attribute is none of the words."""
    while op.parent is not None:
        op = op.parent.operation if hasattr(op.parent, "operation") else op.parent
    attribute = op.attributes[ATTRIBUTE] if ATTRIBUTE in op.attributes else None
    if attribute is None:
        return HIGHEST
    return choose(attribute.value if isinstance(attribute, ir.StringAttr) else str(attribute))


def tensor_work(product: ir.Operation) -> int:
    """How many times as long as on 16-bit elements a product takes tensor cores."""
    if ir.RankedTensorType(product.operands[0].type).element_type.width == 16:
        return 1
    return 2 * (1 if tf32_pieces(product) == 1 else 3)


def tf32_pieces(op: ir.Operation) -> int:
    """How many tf32 numbers stand for an f32 operand of the products around `op`: 2 keep 21 bits of it, 1 keeps 11."""
    return 2 if of(op) == HIGHEST else 1
