"""Facts about the loops of linalg operations."""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_reduction import FLOATS
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import end_of, made_by

from .memory import compute_type, element_of


def is_zero(scalar: ir.Value) -> bool:
    op = made_by(scalar, "arith.constant")
    return op is not None and ir.FloatAttr(op.attributes["value"]).value == 0.0


def combiner_of(s: rows.Structured) -> ir.Operation | None:
    """The operation that joins a term to the sum, if the sum may be taken in any order."""
    if len(s.op.results) != 1:
        return None
    out = list(s.body.arguments)[-1]
    last = rows.producer(end_of(s.body).operands[0])
    uses = list(out.uses)
    if last is None or last.name not in FLOATS or len(uses) != 1 or uses[0].owner.operation != last:
        return None
    return last if compute_type(element_of(s.op.results[0])) == last.results[0].type else None
