"""Numbers out of tensors that say which box a copy brings (kitsune.look_up)."""

from __future__ import annotations

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects.look_up import LookUpOp
from kitsune_mlir.mlir import arith, ir


def look_up(op: LookUpOp, pointer: ir.Value, at: Int) -> ir.Value:
    """The place (i32) that number `at` of the tensor at `pointer` says. One that is not there is reported."""
    kind = ir.RankedTensorType(op.operands[0].type).element_type
    number = device.load(device.offset(pointer, at, kind), kind, align=kind.width // 8)
    if op.is_wrapped:
        below = arith.cmpi(arith.CmpIPredicate.slt, number, arith.constant(kind, 0))
        number = arith.select(below, arith.addi(number, arith.constant(kind, op.count)), number)
    place = index_checks.looked_up(op.operation, number)
    return place if place.type == device.i32() else arith.trunci(device.i32(), place)


def numbers_of(copy: ir.Operation) -> list[ir.Value]:
    """The tensors whose numbers say where a copy finds its box."""
    made = [value.owner.operation for value in copy.operands if not isinstance(value.owner, ir.Block)]
    return [op.operands[0] for op in made if op.name == LookUpOp.OPERATION_NAME]
