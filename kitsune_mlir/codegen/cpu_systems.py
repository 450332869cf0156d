"""Systems of equations on a CPU: loops over the matrices of a batch, and over the rows and columns of each.

%x = call @kitsune_system0(%b, %a)   =>   for each matrix: %x = %b, which is then changed in place, row after row
"""

from __future__ import annotations

import contextlib

from kitsune_mlir.mlir import arith, ir, math, memref, scf

from .cpu_build import add, dim, each, index, sub
from .systems import CHOLESKY, PIVOTS, SOLVE, SUBSTITUTE, System, systems


def lower_systems(module: ir.Module) -> None:
    """Puts loops in the place of the calls, in buffers that are made in front of them."""
    for system in systems(module):
        with system.call.location, ir.InsertionPoint(system.call):
            _Matrices(system).build()


class _Matrices:
    """The matrices of a batch, and what their solutions are written to."""

    def __init__(self, system: System):
        self._of, self._rows = system, system.rows
        kind, first = ir.MemRefType(system.call.results[0].type), system.parts[0]
        sizes = [dim(first, d) for d in range(kind.rank) if kind.is_dynamic_dim(d)]
        self._result = memref.alloc(kind, sizes, [])
        self._work: ir.Value | None = None  # a matrix that elimination changes
        if system.name in (SOLVE, PIVOTS):
            self._work = memref.alloc(ir.MemRefType.get([self._rows] * 2, system.element), [], [])
        self._columns = dim(first, kind.rank - 1) if system.name in (SUBSTITUTE, SOLVE) else index(0)
        self._place = list[ir.Value]()

    def build(self) -> None:
        """Builds the loops."""
        with contextlib.ExitStack() as turns:
            for d in self._of.batch:
                self._place.append(turns.enter_context(each(index(0), dim(self._of.matrix, d))))
            {CHOLESKY: self._cholesky, SUBSTITUTE: self._substitute}.get(self._of.name, self._eliminate)()
        self._of.replace(self._result)

    def _get(self, buffer: ir.Value, *at: ir.Value) -> ir.Value:
        return memref.load(buffer, [*self._before(buffer), *at])

    def _put(self, value: ir.Value, buffer: ir.Value, *at: ir.Value) -> None:
        memref.store(value, buffer, [*self._before(buffer), *at])

    def _before(self, buffer: ir.Value) -> list[ir.Value]:
        """The indices of a buffer's matrix."""
        return [] if self._is_work(buffer) else self._place

    def _is_work(self, buffer: ir.Value) -> bool:
        return self._work is not None and buffer == self._work

    def _cholesky(self) -> None:
        """Column after column, from sums of products of the ones before."""
        factor, end = self._result, index(self._rows)
        with each(index(0), end) as j:
            with each(j, end) as i:
                loop = scf.ForOp(index(0), j, index(1), [self._get(self._of.matrix, i, j)])
                with ir.InsertionPoint(loop.body):
                    k = loop.induction_variable
                    own = arith.mulf(self._get(factor, i, k), self._get(factor, j, k))
                    scf.yield_([arith.subf(loop.inner_iter_args[0], own)])
                self._put(loop.results[0], factor, i, j)
            size = math.sqrt(self._get(factor, j, j))
            self._put(size, factor, j, j)
            with each(add(j, index(1)), end) as i:
                self._put(arith.divf(self._get(factor, i, j), size), factor, i, j)
            with each(index(0), j) as i:
                self._put(arith.constant(self._of.element, 0.0), factor, i, j)

    def _substitute(self) -> None:
        """Row after row is solved, and what it is in the others taken off these."""
        self._copy_right()
        with each(index(0), index(self._rows)) as step:
            k = sub(index(self._rows - 1), step) if self._of.is_upper else step
            if "unit" not in self._of.said:
                self._divide(self._result, k, self._get(self._of.matrix, *self._of.place(k, k)), index(0))
            first, end = (index(0), k) if self._of.is_upper else (add(k, index(1)), index(self._rows))
            with each(first, end) as i:
                self._take_off(self._result, i, k, self._get(self._of.matrix, *self._of.place(i, k)), index(0))

    def _eliminate(self) -> None:
        """Rows that are solved are taken off all others, for the solution, or off those behind them, for pivots."""
        end, solves = index(self._rows), self._of.name == SOLVE
        with each(index(0), end) as i, each(index(0), end) as j:
            self._put(self._get(self._of.matrix, i, j), self._work, i, j)
        if solves:
            self._copy_right()
        with each(index(0), end) as k:
            behind, best = add(k, index(1)), self._best(k)
            for buffer in [self._work, self._result] if solves else [self._work]:
                self._swap(buffer, k, best)
            pivot = self._get(self._work, k, k)
            if not solves:
                same = arith.cmpi(arith.CmpIPredicate.eq, k, best)
                self._put(arith.select(same, pivot, arith.negf(pivot)), self._result, k)
                none = arith.cmpf(arith.CmpFPredicate.OEQ, pivot, arith.constant(self._of.element, 0.0))
                pivot = arith.select(none, arith.constant(self._of.element, 1.0), pivot)
            self._divide(self._work, k, pivot, behind)
            if solves:
                self._divide(self._result, k, pivot, index(0))
            for first, last in [(index(0), k)] * solves + [(behind, end)]:
                with each(first, last) as i:
                    share = self._get(self._work, i, k)
                    self._take_off(self._work, i, k, share, behind)
                    if solves:
                        self._take_off(self._result, i, k, share, index(0))

    def _best(self, k: ir.Value) -> ir.Value:
        """The row, from k on, whose number in column k is the largest."""
        start = [math.absf(self._get(self._work, k, k)), k]
        loop = scf.ForOp(add(k, index(1)), index(self._rows), index(1), start)
        with ir.InsertionPoint(loop.body):
            i, (most, best) = loop.induction_variable, loop.inner_iter_args
            own = math.absf(self._get(self._work, i, k))
            more = arith.cmpf(arith.CmpFPredicate.OGT, own, most)
            scf.yield_([arith.select(more, own, most), arith.select(more, i, best)])
        return loop.results[1]

    def _copy_right(self) -> None:
        with each(index(0), index(self._rows)) as i, each(index(0), self._columns) as j:
            self._put(self._get(self._of.parts[0], i, j), self._result, i, j)

    def _width(self, buffer: ir.Value) -> ir.Value:
        return index(self._rows) if self._is_work(buffer) else self._columns

    def _swap(self, buffer: ir.Value, a: ir.Value, b: ir.Value) -> None:
        with each(index(0), self._width(buffer)) as j:
            one, other = self._get(buffer, a, j), self._get(buffer, b, j)
            self._put(other, buffer, a, j)
            self._put(one, buffer, b, j)

    def _divide(self, buffer: ir.Value, row: ir.Value, by: ir.Value, first: ir.Value) -> None:
        """Divides a row, from a column on."""
        with each(first, self._width(buffer)) as j:
            self._put(arith.divf(self._get(buffer, row, j), by), buffer, row, j)

    def _take_off(self, buffer: ir.Value, row: ir.Value, other: ir.Value, times: ir.Value, first: ir.Value) -> None:
        """Takes so many times another row off a row, from a column on."""
        with each(first, self._width(buffer)) as j:
            own = arith.mulf(times, self._get(buffer, other, j))
            self._put(arith.subf(self._get(buffer, row, j), own), buffer, row, j)
