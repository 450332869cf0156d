"""What the interpreter does where a number of a tensor says which box is copied."""

from __future__ import annotations

from kitsune_mlir.mlir import ir

from .steps import Frame, Step


def look_up(op: ir.Operation, operands: list[int], results: list[int]) -> Step:
    """Place 0 stands for a number that is no place."""
    count, wraps = op.opview.count, op.opview.is_wrapped

    def step(frame: Frame) -> None:
        numbers, at = [frame.values[o] for o in operands]
        number = int(numbers[at])
        number += count if wraps and number < 0 else 0
        frame.values[results[0]] = number if 0 <= number < count else 0

    return step
