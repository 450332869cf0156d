"""Vectors that a product's kernel has in shared memory throughout: what follows reads a row of them."""

from __future__ import annotations

from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import i64, ir

from .kernel_build import acquire_slot, fill_slot, new_ring, wait_slot


def vector_ring(value: ir.Value, number: int) -> schedule.AllocRingOp:
    """The ring of one slot of a vector."""
    kind = ir.RankedTensorType(value.type)
    return new_ring(f"vector{number}", (1, kind.shape[0]), kind.element_type, 1, box="dense")


def open_vector(agent: str, of: schedule.AllocRingOp, value: ir.Value) -> ir.Value:
    """The slot of a vector, which is filled once."""
    if agent == "math":
        return wait_slot(of)
    slot = acquire_slot(of)
    fill_slot(slot, value, [], [], "tma").attributes["into"] = i64(0)
    return slot
