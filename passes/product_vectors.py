"""Vectors that a product's kernel has in shared memory throughout: what follows reads a row of them."""

from __future__ import annotations

from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.mlir import ir

from .product_pingpong import slot_type
from .schedule_build import i64


def vector_ring(value: ir.Value, number: int) -> schedule.AllocRingOp:
    """The ring of one slot of a vector."""
    kind = ir.RankedTensorType(value.type)
    tile = ir.RankedTensorType.get([1, kind.shape[0]], kind.element_type)
    names = map(ir.StringAttr.get, (f"vector{number}", "smem", "dense", "all"))
    return schedule.AllocRingOp(*names, kitsune.ring_type(tile, 1))


def open_vector(agent: str, ring: schedule.AllocRingOp, value: ir.Value) -> ir.Value:
    """The slot of a vector, which is filled once."""
    if agent == "math":
        return schedule.WaitOp(ring.results[0], slot_type(ring)).results[0]
    slot = schedule.AcquireOp(ring.results[0], slot_type(ring)).results[0]
    copy = schedule.CopyOp(slot, value, [], ir.StringAttr.get("tma"), schedule.Token.get())
    copy.attributes["dims"], copy.attributes["into"] = ir.DenseI64ArrayAttr.get([]), i64(0)
    schedule.CommitOp(slot, [copy.results[0]])
    return slot
