"""What the kernels of systems of equations share: a square of threads that has a matrix, what it loads and stores, and
the numbers that its threads tell each other in shared memory (gpu_systems.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kitsune_mlir.mlir import arith, gpu, ir, memref, scf
from kitsune_mlir.planning.systems import Squares

from .gpu_around import Operators
from .gpu_kernel import WARP, Kernel, Size, as_value, delinearize, product
from .gpu_points import body_at
from .gpu_tile_order import meet
from .pipeline.device import below, i32, when
from .pipeline.device import value as number_of
from .systems import CHOLESKY, PIVOTS, SOLVE, System

Tiles = dict[tuple[int, int], ir.Value]  # a thread's elements, by tile of rows and of columns


@dataclass
class Square:
    """What a kernel has for its thread's square. `batch` are the sizes before those of a matrix; right sides have
    `columns` columns, in so many `parts`."""

    kernel: Kernel
    of: System
    around: Operators
    result: ir.Value
    own: Squares
    batch: list[Size]
    columns: Size
    parts: Size
    place: list[ir.Value] = field(init=False)

    def __post_init__(self) -> None:
        side, thread = self.own.side, gpu.thread_id(gpu.Dimension.x)
        self.x = arith.remui(thread, as_value(side))
        self.y = arith.remui(arith.divui(thread, as_value(side)), as_value(side))
        self.square = arith.divui(thread, as_value(self.own.size))  # of those of the block
        self.within = arith.remui(thread, as_value(self.own.size))
        block = gpu.block_id(gpu.Dimension.x)
        self.part = as_value(0) if self.parts == 1 else arith.remui(block, as_value(self.parts))
        group = block if self.parts == 1 else arith.divui(block, as_value(self.parts))
        matrix = arith.addi(arith.muli(group, as_value(self.own.matrices)), self.square)
        count = as_value(product(self.batch))
        self.is_there = below(matrix, count)
        last = arith.subi(count, as_value(1))
        self.place = delinearize(arith.minui(matrix, last), self.batch) if self.batch else []
        tiles = self.own.tiles
        self.rows = [arith.addi(self.y, as_value(a * side)) for a in range(tiles)]
        lines = (tiles + self.own.column_tiles) * side
        self.across = [arith.addi(self.x, as_value(b * side)) for b in range(tiles + self.own.column_tiles)]
        self.column = self.kernel.shared([self.own.matrices, 2, tiles * side], self.of.element)
        if self.of.name != CHOLESKY:
            self.line = self.kernel.shared([self.own.matrices, 2, lines], self.of.element)
        if self.of.name in (SOLVE, PIVOTS):
            self.used = self.kernel.shared([self.own.matrices, tiles * side], i32())

    def inner(self) -> Iterable[ir.Operation]:
        """All operations of the code."""
        waiting = [ir.InsertionPoint.current.block]
        while waiting:
            for op in waiting.pop().operations:
                yield op.operation
                waiting += [block for region in op.regions for block in region.blocks]

    def bits(self, size: ir.Value) -> ir.Value:
        """The first 32 bits of a number that is not negative, which are in the order of such numbers."""
        if self.of.element.width == 32:
            return arith.bitcast(i32(), size)
        i64 = ir.IntegerType.get_signless(64)
        return arith.trunci(i32(), arith.shrui(arith.bitcast(i64, size), arith.constant(i64, 32)))

    def put_used(self, row: ir.Value, used: int) -> None:
        memref.store(number_of(used), self.used, [self.square, row])

    def steps(
        self,
        tile: int,
        left: Tiles,
        step: Callable[[ir.Value, ir.Value, Tiles], Tiles],
        backwards: bool = False,
    ) -> Tiles:
        """A loop over the rows of a tile: each step, given its place in the tile and among all rows, makes of elements
        new ones."""
        count = min(self.own.side, self.own.rows - tile * self.own.side)
        loop = scf.ForOp(as_value(0), as_value(count), as_value(1), list(left.values()))
        with ir.InsertionPoint(loop.body):
            own = loop.induction_variable
            own = arith.subi(as_value(count - 1), own) if backwards else own
            k = arith.addi(own, as_value(tile * self.own.side))
            found = step(own, k, dict(zip(left, loop.inner_iter_args, strict=True)))
            scf.yield_([found[at] for at in left])
        return dict(zip(left, loop.results, strict=True))

    def meet(self) -> None:
        """The threads of a square meet: those of a warp, or of the block."""
        if self.own.size <= WARP:
            meet()
        else:
            gpu.barrier()

    def put(self, buffer: ir.Value, turn: ir.Value, at: ir.Value, value: ir.Value) -> None:
        memref.store(value, buffer, [self.square, turn, at])

    def get(self, buffer: ir.Value, turn: ir.Value, at: ir.Value) -> ir.Value:
        return memref.load(buffer, [self.square, turn, at])

    def zero(self) -> ir.Value:
        return arith.constant(self.of.element, 0.0)

    def load_matrix(self, a: int, b: int) -> ir.Value:
        row, column = self.rows[a], self.across[b]
        within = [tile * self.own.side + self.own.side <= self.own.rows for tile in (a, b)]
        return self._load(
            len(self.of.parts) - 1, self.of.place(row, column), [self.own.rows] * 2, self.of.place(*within)
        )

    def load_right(self, a: int, j: int) -> ir.Value:
        sizes, row = [self.own.rows, self.columns], self.rows[a]
        return self._load(0, [row, self._column(j)], sizes, [(a + 1) * self.own.side <= self.own.rows, False])

    def _column(self, j: int) -> ir.Value:
        """A thread's column of the right side, in a tile."""
        own = self.across[j]
        return own if self.parts == 1 else arith.addi(arith.muli(self.part, as_value(self.own.columns)), own)

    def _load(self, part: int, place: Sequence[ir.Value], sizes: Sequence[Size], within: Sequence[bool]) -> ir.Value:
        """An element of a part, or of what makes it; zero behind its end, unless all threads are `within` it."""
        there, at = list[ir.Value](), list[ir.Value]()
        for own, size, known in zip(place, sizes, within, strict=True):
            at.append(own if known else arith.minui(own, arith.subi(as_value(size), as_value(1))))
            there += [] if known else [below(own, as_value(size))]
        at, made = [*self.place, *at], self.around.before[part]
        if made is None:
            found = memref.load(self.kernel.inside(self.of.parts[part]), at)
        else:
            generic, number = made
            found = body_at(generic, self.kernel, dict(enumerate(at)), [None] * len(generic.outputs))[number]
        for one in there:
            found = arith.select(one, found, self.zero())
        return found

    def store_right(self, right: Tiles, rows: Sequence[ir.Value]) -> None:
        """Stores the solution; `rows` are those that the thread's rows are in it, by tile."""
        for (a, j), value in right.items():
            self.store(a, j, value, self.columns, self._column(j), rows[a])

    def store(
        self, a: int, b: int, value: ir.Value, columns: Size, column: ir.Value, row: ir.Value | None = None
    ) -> None:
        own = self.rows[a]
        there = arith.andi(self.is_there, below(own, as_value(self.own.rows)))
        with when(arith.andi(there, below(column, as_value(columns)))):
            memref.store(value, self.result, [*self.place, own if row is None else row, column])


def equal(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.cmpi(arith.CmpIPredicate.eq, a, b)
