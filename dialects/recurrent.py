"""Layers of recurrent networks, with all their steps."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import ext, ir
from kitsune_mlir.planning.recurrences import GATES

from .checks import check_integer, check_kind, fail, integer
from .types import Kitsune


class RecurrentOp(Kitsune.Operation, name="recurrent", traits=[ext.Pure]):
    """All steps of a layer of a recurrent network, of one direction or two, whose second goes from the last step to the
    first. `cell` is lstm, gru, tanh or relu, of G = 4, 3, 1 and 1 gates, in torch's order. What inputs make of gates is
    `given`, [batch, steps, D * G * width], or [steps, batch, ...] where `time` is 0; a state is multiplied by its
    `weights` [D, width, G * width], to which the `bias` [D, G * width] is added; the first `states` are [D, batch,
    width], of an lstm its cells are others. Results are the states of all steps, [batch, steps, D * width] or
    likewise, the last states, and, of an lstm, the last cells. All are tensors of one type; sums are of f32."""

    given: ext.Operand[Any]
    weights: ext.Operand[Any]
    bias: ext.Operand[Any]
    states: Sequence[ext.Operand[Any]]
    cell: ir.StringAttr
    time: ir.IntegerAttr
    made: ext.Result[Any]
    last: Sequence[ext.Result[Any]]

    @property
    def gates(self) -> int:
        return GATES[ir.StringAttr(self.operation.attributes["cell"]).value]

    def verify_region_invariants(self) -> bool:
        if not check_kind(self, "cell", ir.StringAttr, "a string") or not check_integer(self, "time", 0):
            return False
        cell = ir.StringAttr(self.operation.attributes["cell"]).value
        if cell not in GATES:
            return fail(self, f"has a cell of {', '.join(sorted(GATES))}, found {cell}")
        states = 2 if cell == "lstm" else 1
        parts, made = ([value.type for value in side] for side in (self.operands, self.operation.results))
        if len(parts) != 3 + states or len(made) != 1 + states:
            return fail(self, f"takes {3 + states} parts and gives {1 + states}, found {len(parts)} and {len(made)}")
        kinds = (ir.F32Type, ir.F16Type, ir.BF16Type)
        if not all(isinstance(kind, ir.RankedTensorType) for kind in (*parts, *made)):
            return fail(self, f"takes tensors, found {parts[0]}")
        if len({kind.element_type for kind in (*parts, *made)}) > 1 or not isinstance(parts[0].element_type, kinds):
            return fail(self, f"takes tensors of f32, f16 or bf16, all of one type, found {parts[0]} and {parts[1]}")
        return self._verify_sizes([list(kind.shape) for kind in parts], [list(kind.shape) for kind in made])

    def _verify_sizes(self, parts: list[list[int]], made: list[list[int]]) -> bool:
        given, weights, bias, *states = parts
        if [len(sizes) for sizes in parts] != [3, 3, 2, *[3] * len(states)] or integer(self, "time") > 1:
            return fail(self, "takes gates, weights and states of three dimensions, of which time is 0 or 1")
        directions, width, columns = weights
        whole = columns == self.gates * width and bias == [directions, columns] and directions in (1, 2)
        if not whole or given[2] != directions * columns or states[0][::2] != [directions, width]:
            return fail(self, f"has {self.gates} gates of a width, found {given}, {weights}, {bias} and {states[0]}")
        if made != [[*given[:2], directions * width], *states]:
            return fail(self, f"gives states of all steps and the last ones, found {made}")
        return True
