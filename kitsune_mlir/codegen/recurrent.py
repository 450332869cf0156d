"""Recurrent layers while tensors become buffers: calls, for both targets (cpu_recurrent.py, gpu_recurrent.py).

    %y, %h = "kitsune.recurrent"(%x, %w, %b, %h0) {...}   =>   %y, %h = call @kitsune_recurrent0(%x, %w, %b, %h0)

What the steps of each kind of cell compute of sums is said here, once for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.dialects.recurrent import RecurrentOp
from kitsune_mlir.mlir import arith, ir, math, replace_op, walk
from kitsune_mlir.planning.recurrences import GATES

from .outlined import Call, calls, outlined

CALL = "kitsune_recurrent"  # what such an operation is a call of while tensors become buffers
_SAID = ("cell", "time")


@dataclass(frozen=True)
class Recurrent(Call):
    """What a call computes: the `cell`, and which dimension of gates and results is `time`."""

    cell: str
    time: int

    @property
    def given(self) -> ir.Value:
        """What inputs make of the gates."""
        return self.call.operands[0]

    @property
    def weights(self) -> ir.Value:
        return self.call.operands[1]

    @property
    def bias(self) -> ir.Value:
        return self.call.operands[2]

    @property
    def states(self) -> list[ir.Value]:
        """The first states, and cells."""
        return list(self.call.operands)[3:]

    @property
    def element(self) -> ir.Type:
        return ir.MemRefType(self.weights.type).element_type

    @property
    def directions(self) -> int:
        return int(ir.MemRefType(self.weights.type).shape[0])

    @property
    def width(self) -> int:
        """The columns of a state."""
        return int(ir.MemRefType(self.weights.type).shape[1])

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    def place(self, row: ir.Value, step: ir.Value, column: ir.Value) -> list[ir.Value]:
        """Where an element of gates, or of results, is."""
        return [step, row, column] if self.time == 0 else [row, step, column]

    def batch_of(self, number: int) -> int:
        """Which dimension of the result of that number is the batch: those behind the first are states."""
        return 1 if number else 1 - self.time


def outline_recurrent(module: ir.Module) -> None:
    """Makes calls of such operations, which bufferization takes for calls of code from elsewhere."""
    for position, op in enumerate(walk(module, RecurrentOp.OPERATION_NAME)):
        own, call = outlined(module, op, f"{CALL}{position}", list(op.operands), [each.type for each in op.results])
        for said in _SAID:
            own.attributes[f"kitsune.{said}"] = op.attributes[said]
        replace_op(op, *call.results)


def recurrent(module: ir.Module) -> list[Recurrent]:
    """Those that calls stand for, after bufferization."""
    return [
        Recurrent(
            op,
            function,
            ir.StringAttr(function.attributes["kitsune.cell"]).value,
            ir.IntegerAttr(function.attributes["kitsune.time"]).value,
        )
        for op, function in calls(module, CALL)
    ]


def stepped(
    cell: str,
    given: Sequence[ir.Value],
    sums: Sequence[ir.Value],
    bias: Sequence[ir.Value],
    states: Sequence[ir.Value],
) -> list[ir.Value]:
    """An element of the new state, and of the new cell, of f32 alone, at the insertion point: of what inputs make of
    each gate, of sums of products of the state, what is added to these, and the element before (Hochreiter and
    Schmidhuber 1997; Cho et al. 2014, as torch has them)."""
    own = [arith.addf(total, number) for total, number in zip(sums, bias, strict=True)]
    hidden = states[0]
    if cell == "gru":
        reset, update = (sigmoid(arith.addf(a, b)) for a, b in zip(given[:2], own[:2], strict=True))
        new = math.tanh(arith.addf(given[2], arith.mulf(reset, own[2])))
        return [arith.addf(arith.mulf(arith.subf(hidden, new), update), new)]
    gates = [arith.addf(a, b) for a, b in zip(given, own, strict=True)]
    if cell == "lstm":
        taken, kept, shown = (sigmoid(gates[number]) for number in (0, 1, 3))
        inner = arith.addf(arith.mulf(kept, states[1]), arith.mulf(taken, math.tanh(gates[2])))
        return [arith.mulf(shown, math.tanh(inner)), inner]
    if cell == "tanh":
        return [math.tanh(gates[0])]
    return [arith.maximumf(gates[0], arith.constant(gates[0].type, 0.0))]


def sigmoid(x: ir.Value) -> ir.Value:
    one = arith.constant(x.type, 1.0)
    return arith.divf(one, arith.addf(one, math.exp(arith.negf(x))))
