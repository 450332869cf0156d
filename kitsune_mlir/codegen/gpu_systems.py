"""Systems of equations whose matrices a square of threads has in registers (planning/systems.py), step by step.

    %x = call @kitsune_system0(%b, %a)

In step k of a factor, or of elimination, whoever has elements of column k puts them into shared memory, and in that of
a right side whoever has row k of it; all threads read what their own rows and columns need of them, and subtract a
product from each element that is left. So a step is a load for each row and column of a thread, and a product for each
of its elements, between one barrier and the next. What is in shared memory lies there twice, in turn, so that nobody
has to wait until all have read it.

Steps are loops over the rows of a tile; which tiles are left is known as code is written, that registers have names.
Elimination leaves rows where they are: the row that a column is solved with is the one, of those left, whose number is
the largest, and its number says where the solution belongs (Golub and Van Loan, Matrix Computations, 3.4).
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import example_sizes
from kitsune_mlir.mlir import arith, func, ir, math, memref, nvvm
from kitsune_mlir.planning.systems import Squares

from .gpu_around import Around, Operators
from .gpu_kernel import (
    WARP,
    Kernel,
    Kernels,
    See,
    Size,
    as_value,
    ceildiv,
    on_host,
    product,
)
from .gpu_linalg import contract
from .gpu_reduction import Combiner
from .gpu_system_square import Square, Tiles, equal
from .pipeline.device import below, i32, index, narrow, when
from .pipeline.device import value as number_of
from .systems import CHOLESKY, PIVOTS, SOLVE, SUBSTITUTE, System, systems

MOST = 96  # operations of what is computed in front of a kernel
_PLACE, _PIVOT = -2, -1  # in the place of a tile: where a row stands in the solution, and what divides it
_PLACES = 127  # the low bits of what pivots are found by, which say where they stand


def lower_systems(module: ir.Module, main: func.FuncOp, kernels: Kernels) -> None:
    """Puts kernels' launches in the place of the calls."""
    found = [one for one in systems(module) if one.call.block == main.body.blocks[0]]
    taken = set[ir.Operation]()
    around = [Around.of(one.call, one.parts, MOST, taken, behind=False) for one in found]
    for one, own in zip(found, around, strict=True):
        _lower(one, own.read(one.parts), kernels)


def _lower(of: System, around: Operators, kernels: Kernels) -> None:
    op, first = of.call, of.parts[0]
    kind, result = ir.MemRefType(first.type), ir.MemRefType(op.results[0].type)
    has_right = of.name in (SUBSTITUTE, SOLVE)
    sizes = example_sizes.known_shape(first)
    known = [size for d in of.batch if (size := sizes[d]) is not None]
    matrices = prod(known) if len(known) == len(of.batch) else None
    own = Squares.of(of.rows, of.element.width // 8, matrices, sizes[-1] if has_right else 0)

    def batch(see: See) -> list[Size]:
        return [around.size(first, d, see) for d in of.batch]

    def columns(see: See) -> Size:
        return around.size(first, kind.rank - 1, see) if has_right else 0

    def parts(see: See) -> Size:
        return ceildiv(columns(see), own.columns) if has_right else 1

    with op.context, op.location, ir.InsertionPoint(op):
        open_ = [d for d in range(result.rank) if result.is_dynamic_dim(d)]
        results = [memref.alloc(result, [around.size(first, d, on_host) for d in open_], [])]
    kernel = Kernel(kernels, op, of.name.removeprefix("kitsune."), own.size * own.matrices)
    with kernel.body():
        see = kernel.inside
        _Code(kernel, of, around, see(results[0]), own, batch(see), columns(see), parts(see)).build()
    kernel.launch(lambda: product([ceildiv(product(batch(on_host)), own.matrices), parts(on_host)]))
    around.erase()
    of.replace(*results)


class _Code(Square):
    """The steps of each kind."""

    def build(self) -> None:
        """Builds the steps, from what is loaded to what is stored."""
        {CHOLESKY: self._cholesky, SUBSTITUTE: self._substitute}.get(self.of.name, self._eliminate)()
        contract(self.inner())

    # The factor.

    def _cholesky(self) -> None:
        tiles = range(self.own.tiles)
        matrix = {(a, b): self.load_matrix(a, b) for a in tiles for b in tiles if b <= a}
        for tile in tiles:
            left = {at: value for at, value in matrix.items() if at[1] >= tile}
            matrix |= self.steps(tile, left, lambda step, k, now, tile=tile: self._factor_step(tile, step, k, now))
        zero = self.zero()
        for a in tiles:
            for b in tiles:
                found = matrix.get((a, b), zero)
                found = arith.select(below(self.y, self.x), zero, found) if a == b else found
                self.store(a, b, found, self.own.rows, self.across[b])

    def _factor_step(self, tile: int, step: ir.Value, k: ir.Value, now: Tiles) -> Tiles:
        """Column k becomes one of the factor, whose product with its own numbers the columns behind lose."""
        rows = range(tile, self.own.tiles)
        turn = arith.andi(k, as_value(1))
        here = equal(self.x, step)
        with when(here):
            for a in rows:
                self.put(self.column, turn, self.rows[a], now[a, tile])
        self.meet()
        scale = math.rsqrt(self.get(self.column, turn, k))
        lower = {a: arith.mulf(self.get(self.column, turn, self.rows[a]), scale) for a in rows}
        across = {b: arith.mulf(self.get(self.column, turn, self.across[b]), scale) for b in rows}
        across[tile] = arith.select(below(step, self.x), across[tile], self.zero())
        less = {a: arith.negf(value) for a, value in lower.items()}
        found = {(a, b): arith.addf(value, arith.mulf(less[a], across[b])) for (a, b), value in now.items()}
        return found | {(a, tile): arith.select(here, lower[a], found[a, tile]) for a in rows}

    # Triangles.

    def _substitute(self) -> None:
        tiles, columns = range(self.own.tiles), range(self.own.column_tiles)
        upper = self.of.is_upper
        triangle = {(a, b): self.load_matrix(a, b) for a in tiles for b in tiles if (a <= b if upper else a >= b)}
        right = {(a, j): self.load_right(a, j) for a in tiles for j in columns}
        for tile in reversed(tiles) if upper else tiles:
            own = {a: value for (a, b), value in triangle.items() if b == tile}
            left = {at: value for at, value in right.items() if at[0] in own}
            right |= self.steps(
                tile,
                left,
                lambda step, k, now, tile=tile, own=own: self._substitution(tile, own, step, k, now),
                backwards=upper,
            )
        self.store_right(right, [self.rows[a] for a in tiles])

    def _substitution(self, tile: int, own: dict[int, ir.Value], step: ir.Value, k: ir.Value, now: Tiles) -> Tiles:
        """Row k is divided by the number on the diagonal, and what it is in other rows taken off these."""
        columns = range(self.own.column_tiles)
        turn, here = arith.andi(k, as_value(1)), equal(self.y, step)
        with when(equal(self.x, step)):
            for a, value in own.items():
                self.put(self.column, turn, self.rows[a], value)
        with when(here):
            for j in columns:
                self.put(self.line, turn, self.across[j], now[tile, j])
        self.meet()
        solved = [self.get(self.line, turn, self.across[j]) for j in columns]
        if "unit" not in self.of.said:
            pivot = self.get(self.column, turn, k)
            solved = [arith.divf(value, pivot) for value in solved]
        found = dict[tuple[int, int], ir.Value]()
        is_left = below(self.y, step) if self.of.is_upper else below(step, self.y)
        for a in own:
            less = arith.negf(self.get(self.column, turn, self.rows[a]))
            for j in columns:
                value = arith.addf(now[a, j], arith.mulf(less, solved[j]))
                if a == tile:
                    value = arith.select(here, solved[j], arith.select(is_left, value, now[a, j]))
                found[a, j] = value
        return found

    # Elimination.

    def _eliminate(self) -> None:
        tiles, count = range(self.own.tiles), self.own.tiles
        now = {(a, b): self.load_matrix(a, b) for a in tiles for b in tiles}
        for j in range(self.own.column_tiles):  # right sides stand behind the matrix
            now |= {(a, count + j): self.load_right(a, j) for a in tiles}
        said: Tiles = {}  # of the rows
        for a in tiles:
            said |= {(a, _PLACE): as_value(0), (a, _PIVOT): arith.constant(self.of.element, 1.0)}
        with when(equal(self.x, as_value(0))):
            for a in tiles:
                self.put_used(self.rows[a], 0)
        for tile in tiles:
            left = {at: value for at, value in now.items() if at[1] >= tile} | said
            found = self.steps(tile, left, lambda step, k, own, tile=tile: self._elimination(tile, step, k, own))
            said = {at: found.pop(at) for at in said}
            now |= found
        if self.of.name == SOLVE:
            right = {(a, b - count): arith.divf(x, said[a, _PIVOT]) for (a, b), x in now.items() if b >= count}
            self.store_right(right, [said[a, _PLACE] for a in tiles])

    def _elimination(self, tile: int, step: ir.Value, k: ir.Value, now: Tiles) -> Tiles:
        """All rows but the one whose number in column k is the largest lose as many times that as their own number is
        of it."""
        tiles, turn = range(self.own.tiles), arith.andi(k, as_value(1))
        with when(equal(self.x, step)):
            for a in tiles:
                self.put(self.column, turn, self.rows[a], now[a, tile])
        self.meet()
        best, changes = self._largest(turn)
        columns = sorted({b for _, b in now if b >= 0})
        with when(equal(self.y, arith.remui(best, as_value(self.own.side)))):
            of = arith.divui(best, as_value(self.own.side))
            for b in columns:
                value = now[0, b]
                for a in tiles[1:]:
                    value = arith.select(equal(of, as_value(a)), now[a, b], value)
                self.put(self.line, turn, self.across[b], value)
        self.meet()
        pivot = self.get(self.column, turn, best)
        with when(equal(self.within, as_value(0))):
            self.put_used(best, 1)
            if changes is not None:
                with when(self.is_there):
                    memref.store(arith.select(changes, arith.negf(pivot), pivot), self.result, [*self.place, k])
        if self.of.name == PIVOTS:
            none = arith.cmpf(arith.CmpFPredicate.OEQ, pivot, self.zero())
            pivot = arith.select(none, arith.constant(self.of.element, 1.0), pivot)
        row = {b: self.get(self.line, turn, self.across[b]) for b in columns}
        found: Tiles = {}
        for a in tiles:
            at = self.rows[a]
            own = equal(at, best)
            less = arith.negf(arith.divf(self.get(self.column, turn, at), pivot))
            less = arith.select(own, self.zero(), less)
            found |= {(a, b): arith.addf(now[a, b], arith.mulf(less, row[b])) for b in columns}
            found[a, _PLACE] = arith.select(own, k, now[a, _PLACE])
            found[a, _PIVOT] = arith.select(own, pivot, now[a, _PIVOT])
        return found

    def _largest(self, turn: ir.Value) -> tuple[ir.Value, ir.Value | None]:
        """Which of the rows that are left has the largest number in the column, and, where that is asked for, whether
        an odd number of them stand before it. Each warp looks for itself: the first bits of a number, which need not be
        exact, and its place go from lane to lane as one word."""
        lanes = min(WARP, self.own.size)
        lane = arith.remui(self.within, as_value(lanes))
        end, key, there = as_value(self.own.rows - 1), number_of(-1), list[tuple[ir.Value, ir.Value]]()
        for first in range(0, self.own.rows, lanes):
            row = arith.addi(lane, as_value(first))
            at = arith.minui(row, end)
            bits = self.bits(math.absf(self.get(self.column, turn, at)))
            word = arith.ori(arith.andi(bits, number_of(~_PLACES)), narrow(arith.subi(as_value(_PLACES), at)))
            used = memref.load(self.used, [self.square, at])
            is_left = arith.cmpi(arith.CmpIPredicate.eq, used, number_of(0))
            is_left = arith.andi(is_left, below(row, as_value(self.own.rows)))
            there.append((row, is_left))
            key = arith.maxsi(key, arith.select(is_left, word, number_of(-1)))
        key = Combiner("arith.maxsi", i32()).across_warp(key, lanes)
        best = arith.subi(as_value(_PLACES), index(arith.andi(key, number_of(_PLACES))))
        if self.of.name != PIVOTS:
            return best, None
        total = number_of(0)
        for row, is_left in there:
            before = arith.andi(is_left, below(row, best))
            votes = nvvm.vote_sync(number_of(-1), before, nvvm.VoteSyncKind.ballot)
            if lanes < WARP:  # a warp has two squares
                half = arith.remui(self.square, as_value(WARP // lanes))
                votes = arith.shrui(votes, narrow(arith.muli(half, as_value(lanes))))
                votes = arith.andi(votes, number_of((1 << lanes) - 1))
            total = arith.addi(total, math.ctpop(votes))
        return best, equal(arith.andi(total, number_of(1)), number_of(1))
