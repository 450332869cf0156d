"""Recurrent layers on a CPU: loops over steps, in each of which a state is multiplied by the weights, some of its
columns at a time, so that their rows of the weights stay in the cache while all rows of the batch go over them.

    for each direction, for each step:
      gates = 0;  for k in 0, STEP, ... width:  for each row:  gates[row] += state[row][k ... k + STEP] weights[k ...]
      for each row and column:  the new state, and cell, of gates and of what inputs make of these
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import arith, ir, memref

from .cpu_build import DYNAMIC, add, dim, each, index, sub
from .pipeline.memory import narrowed
from .recurrent import Recurrent, recurrent, stepped

_STEP = 4  # columns of a state


def lower_recurrent(module: ir.Module) -> None:
    """Puts loops in the place of the calls, in buffers that are made in front of them."""
    for layer in recurrent(module):
        with layer.call.location, ir.InsertionPoint(layer.call):
            _Loops(layer).build()


class _Loops:
    """The loops of a layer."""

    def __init__(self, of: Recurrent):
        self._of, self._width, self._f32 = of, of.width, ir.F32Type.get()
        self._batch, self._steps = dim(of.given, 1 - of.time), dim(of.given, of.time)
        self._results = [self._like(number) for number in range(len(of.call.results))]
        columns = of.gates * of.width
        self._gates = memref.alloc(ir.MemRefType.get([DYNAMIC, columns], self._f32), [self._batch], [])
        kind = ir.MemRefType.get([DYNAMIC, of.width], self._f32)
        self._now = [memref.alloc(kind, [self._batch], []) for _ in of.states]

    def _like(self, number: int) -> ir.Value:
        """A buffer for the result of that number."""
        kind = ir.MemRefType(self._of.call.results[number].type)
        batch = self._of.batch_of(number)
        sizes = [self._batch if d == batch else self._steps for d in range(kind.rank) if kind.is_dynamic_dim(d)]
        return memref.alloc(kind, sizes, [])

    def build(self) -> None:
        """Builds the loops."""
        zero = index(0)
        for number in range(self._of.directions):
            own = index(number)
            for state, buffer in zip(self._of.states, self._now, strict=True):
                with each(zero, self._batch) as row, each(zero, index(self._width)) as column:
                    memref.store(extended(memref.load(state, [own, row, column]), self._f32), buffer, [row, column])
            with each(zero, self._steps) as turn:
                step = sub(sub(self._steps, index(1)), turn) if number else turn
                self._multiply(own)
                with each(zero, self._batch) as row, each(zero, index(self._width)) as column:
                    self._leave(number, row, step, column)
            for buffer, result in zip(self._now, self._results[1:], strict=True):
                with each(zero, self._batch) as row, each(zero, index(self._width)) as column:
                    value = narrowed(memref.load(buffer, [row, column]), self._of.element)
                    memref.store(value, result, [own, row, column])
        self._of.replace(*self._results)

    def _multiply(self, own: ir.Value) -> None:
        """The products of all rows of the state."""
        zero, columns, whole = index(0), index(self._of.gates * self._width), self._width - self._width % _STEP
        with each(zero, self._batch) as row, each(zero, columns) as column:
            memref.store(arith.constant(self._f32, 0.0), self._gates, [row, column])
        for first, last, count in ((0, whole, _STEP), (whole, self._width, 1)):
            with each(index(first), index(last), count) as k, each(zero, self._batch) as row:
                rows = [add(k, index(e)) for e in range(count)]
                states = [memref.load(self._now[0], [row, at]) for at in rows]
                with each(zero, columns) as column:
                    total = memref.load(self._gates, [row, column])
                    for at, state in zip(rows, states, strict=True):
                        weight = extended(memref.load(self._of.weights, [own, at, column]), self._f32)
                        total = arith.addf(total, arith.mulf(state, weight))
                    memref.store(total, self._gates, [row, column])

    def _leave(self, number: int, row: ir.Value, step: ir.Value, column: ir.Value) -> None:
        """An element of the new state."""
        gates = [add(column, index(gate * self._width)) for gate in range(self._of.gates)]
        sums = [memref.load(self._gates, [row, at]) for at in gates]
        bias = [extended(memref.load(self._of.bias, [index(number), at]), self._f32) for at in gates]
        before = index(number * self._of.gates * self._width)
        given = [
            extended(memref.load(self._of.given, self._of.place(row, step, add(at, before))), self._f32) for at in gates
        ]
        states = [memref.load(buffer, [row, column]) for buffer in self._now]
        hidden, *others = stepped(self._of.cell, given, sums, bias, states)
        shown = narrowed(hidden, self._of.element)
        self._keep(row, column, [extended(shown, self._f32), *others])
        at = add(column, index(number * self._width))
        memref.store(shown, self._results[0], self._of.place(row, step, at))

    def _keep(self, row: ir.Value, column: ir.Value, states: Sequence[ir.Value]) -> None:
        for state, buffer in zip(states, self._now, strict=True):
            memref.store(state, buffer, [row, column])
