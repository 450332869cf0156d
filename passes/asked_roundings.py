"""Roundings that a model asks for: numbers that it makes 16 bits wide and then wide again.

    %h = linalg.generic ins(%x : tensor<6x40xf32>) { arith.truncf } : tensor<6x40xf16>          // x.half()
    %w = linalg.generic ins(%h) { arith.extf } : tensor<6x40xf32>                               // .float()
    %e = linalg.generic ins(%x, %w) { arith.subf }
  =>
    %h = linalg.generic ins(%x) { arith.truncf {kitsune.rounds} }

What is lost by that, or is infinite then, may be what the model asks for, while 16-bit arithmetic is computed in f32
and rounded where it is stored alone (scalar_bodies.py). What torch-mlir rounds itself, behind products, sums and norms
of 16-bit numbers, is no such rounding: it is more exact without.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.evaluate import ROUNDS
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type, is_generic, operations_of, producer, users_of

_MOVES = (*rows.RESHAPES, "linalg.transpose", "tensor.cast", "tensor.concat", "tensor.extract_slice", "tensor.pad")


def mark_asked(generic: ir.Operation) -> None:
    """Marks a linalg.generic that does nothing else, if it is such a rounding."""
    block = generic.regions[0].blocks[0]
    names = [op.name for op in operations_of(block)]
    if names != ["arith.truncf", "linalg.yield"] or not _is_narrow(element_type(generic.results[0])):
        return
    if not _is_of_narrow(generic.operands[0]) and _is_widened(generic.results[0], set()):
        operations_of(block)[0].attributes[ROUNDS] = ir.UnitAttr.get(generic.context)


def _is_narrow(element: ir.Type) -> bool:
    return isinstance(element, ir.BF16Type | ir.F16Type)


def _is_of_narrow(value: ir.Value) -> bool:
    """Whether what makes a tensor reads 16-bit numbers."""
    while (op := producer(value)) is not None and op.name in _MOVES:
        value = op.operands[0]
    given = [] if op is None else [one for one in op.operands if isinstance(one.type, ir.RankedTensorType)]
    return any(_is_narrow(element_type(one)) for one in given)


def _is_widened(value: ir.Value, seen: set[ir.Operation]) -> bool:
    """Whether a tensor's numbers become wide ones, where they are or wherever they are moved."""
    for user in users_of(value):
        if user in seen:
            continue
        seen.add(user)
        if user.name == "tensor.extract":
            if users_of(user.results[0], "arith.extf"):
                return True
        elif is_generic(user):
            block = user.regions[0].blocks[0]
            own = [one for one, operand in zip(block.arguments, user.operands) if operand == value]
            if any(users_of(one, "arith.extf") for one in own) and not _is_narrow(element_type(user.results[0])):
                return True
            if len(operations_of(block)) == 1 and _is_widened(user.results[0], seen):
                return True
        elif user.name in _MOVES and _is_widened(user.results[0], seen):
            return True
    return False
