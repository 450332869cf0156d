"""A product's tiles in two sets of sums, each of which leaves while the other is multiplied (ping-pong).

    for each tile:                             beside it
      first group of chunks, set 0               set 1 of the tile before leaves
                             set 1
      the groups between, set 0, then set 1
      last group, set 0
                  set 1                          set 0 leaves
    behind the tiles                             set 1 of the last one leaves

Chunks of k come in groups, each of which is multiplied for the one set's columns, then for the other's: so set 0 is
there a group before set 1. What has left nothing before the first tile goes beyond the tensor's last row. The columns
of a set are computed a part at a time between products in flight, and leave by the copy engine, box by box; a product
of the tile after takes their registers over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kitsune_mlir import rows
from kitsune_mlir.dialects import schedule
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, scf
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.product_slots import GROUP
from kitsune_mlir.traffic import element_bytes

from .chain_tiles import beside, part
from .kernel_build import turns, wait_slot, write_box
from .product_follows import tiled

if TYPE_CHECKING:
    from .product_kernel import ProductKernel

STEP_BYTES, BOX_BYTES = 32, 128  # of a row: computed at a time, and of a box in which it leaves
Place = dict[str, ir.Value]


@dataclass(frozen=True)
class Groups:
    """Chunks of the first group, how many groups of as many follow, and chunks of the last group, which has less than
    twice as many."""

    first: int
    between: int
    last: int

    @staticmethod
    def of(chunks: int) -> Groups:
        """Those of so many chunks, at least two."""
        first = min(GROUP, chunks // 2)
        between = chunks // first - 2
        return Groups(first, between, chunks - (1 + between) * first)


@dataclass(frozen=True)
class Used:
    """What a product in flight reads: a slot of the right operand and, of the second set, one of the left operand that
    it is the last to read; and the tokens of their products."""

    right: ir.Value
    left: ir.Value | None
    tokens: tuple[ir.Value, ...]  # of the left slot's readers, the last one's at the end

    def release(self) -> None:
        schedule.ReleaseOp(self.right, [self.tokens[-1]])
        if self.left is not None:
            schedule.ReleaseOp(self.left, self.tokens)


class PingPong:
    """The code of both agents for the tiles of a kernel."""

    def __init__(self, kernel: ProductKernel, vectors: Mapping[ir.Value, ir.Value]):
        self.kernel, self.tiles = kernel, kernel.tiles
        self.vectors = vectors  # slots that hold what follows reads a row of
        self.groups = Groups.of(-(-(kernel.of.sizes["k"] or 0) // kernel.chunk))
        self.background: deque[Callable[[], None]] = deque()

    # ---- the agent that copies

    def feed(self, rings: Mapping[str, schedule.AllocRingOp], at: Place) -> None:
        """Copies a tile's chunks, in the order in which they are multiplied."""
        groups = self.groups

        def group(first: ir.Value, chunks: int) -> None:
            for number in range(len(self.tiles.sets)):
                for chunk in range(chunks):
                    k = arith.addi(first, constant_index(chunk * self.kernel.chunk)) if chunk else first
                    if number == 0:
                        self._copy("left", rings["left"], None, at | {"k": k})
                    n = arith.addi(at["n"], constant_index(self.tiles.sets[0])) if number else at["n"]
                    self._copy("right", rings["right"], self.tiles.sets[number], at | {"k": k, "n": n})

        group(constant_index(0), groups.first)
        step = groups.first * self.kernel.chunk
        if groups.between:
            with turns(*map(constant_index, (step, (1 + groups.between) * step, step))) as k:
                group(k, groups.first)
        group(constant_index((1 + groups.between) * step), groups.last)

    def _copy(self, name: str, ring: schedule.AllocRingOp, count: int | None, place: Place) -> None:
        self.kernel.copy(name, ring, self.kernel.pieces[name][0], place, count)

    # ---- the agent that multiplies

    def before(self) -> list[ir.Value]:
        """What the loop over tiles begins with: a tile whose registers the first set's sums take over, the second set's
        sums, the first row of their tile and its number along the columns. There is none yet: its rows are beyond the
        last. The second set is settled at the loop's head, or ptxas would have the products there wait (C7517)."""
        zero = schedule.SettleOp(self._sums(0, []), self._tile(0)).results[0]
        return [zero, self._sums(1, []), self.kernel.extents["m"], constant_index(0)]

    def tile(
        self,
        rings: Mapping[str, schedule.AllocRingOp],
        carried: Sequence[ir.Value],
        place: Callable[[], tuple[Place, Place]],
    ) -> list[ir.Value]:
        """Multiplies a tile: what is carried to the next. Where it begins, and its number along each dimension, `place`
        computes, which takes a while."""
        first, before, *where = carried
        second = schedule.SettleOp(before, self._tile(1)).results[0]
        self.background.extend(self._leave(1, second, self._at(*where)))
        sums = [self._sums(0, [first]), self._sums(1, [second])]
        groups = self.groups
        used = self._group(rings, sums, groups.first, None)
        at, numbers = place()
        if groups.between:
            used = self._loop(rings, sums, used)
        settled: list[ir.Value] = []

        def leave(tile: ir.Value) -> Iterator[Callable[[], None]]:
            settled.append(tile)
            return self._leave(0, tile, at)

        used = self._group(rings, sums, groups.last, used, leave)
        used.release()
        return [*settled, sums[1], at["m"], numbers["n"]]

    def behind(self, carried: Sequence[ir.Value]) -> None:
        """Behind the loop over tiles."""
        _, sums, *where = carried
        second = schedule.SettleOp(sums, self._tile(1)).results[0]
        for piece in self._leave(1, second, self._at(*where)):
            piece()

    def _at(self, row: ir.Value, column: ir.Value) -> Place:
        return {"m": row, "n": arith.muli(column, constant_index(self.tiles.columns))}

    def _loop(self, rings: Mapping[str, schedule.AllocRingOp], sums: list[ir.Value], used: Used) -> Used:
        """The groups between the first and the last."""
        loop = scf.ForOp(*map(constant_index, (0, self.groups.between, 1)), [*sums, *_carried(used)])
        with ir.InsertionPoint(loop.body):
            inner, before = list(loop.inner_iter_args[:2]), _used(loop.inner_iter_args[2:])
            left = self._group(rings, inner, self.groups.first, before)
            scf.yield_([*inner, *_carried(left)])
        sums[:] = loop.results[:2]
        return _used(loop.results[2:])

    def _group(
        self,
        rings: Mapping[str, schedule.AllocRingOp],
        sums: list[ir.Value],
        chunks: int,
        used: Used | None,
        leave: Callable[[ir.Value], Iterator[Callable[[], None]]] | None = None,
    ) -> Used:
        """Multiplies a group for both sets. `used` is what the product in flight reads; gives that of the last one. Of
        the last group set 0 may `leave`."""
        left: list[ir.Value] = []
        tokens: list[ir.Value] = []
        for number in range(2):
            for chunk in range(chunks):
                if number == 0:
                    left.append(self.kernel.wait(rings["left"]))
                right = wait_slot(rings["right"], self.tiles.sets[number], self.kernel.columns)
                made = schedule.ProductOp(
                    sums[number], left[chunk], right, self.kernel.products, sums[number].type, schedule.Token.get()
                )
                sums[number], token = made.results
                tokens.append(token)
                if leave is not None and (number, chunk) == (1, 0):
                    tile = schedule.SettleOp(sums[0], self._tile(0)).results[0]
                    self.background.extend(leave(tile))
                if used is not None:
                    used.release()
                self._advance(chunks - chunk)
                used = Used(right, left[chunk] if number else None, (tokens[chunk], token) if number else (token,))
        assert used is not None
        return used

    def _advance(self, places: int) -> None:
        """A fair part of what is to be done beside products, with so many places to come, this one included."""
        for _ in range(-(-len(self.background) // max(1, places))):
            self.background.popleft()()

    def _tile(self, number: int) -> ir.RankedTensorType:
        """A set's, in registers."""
        return ir.RankedTensorType.get([self.tiles.copy_rows, self.tiles.sets[number]], ir.F32Type.get())

    def _sums(self, number: int, over: Sequence[ir.Value]) -> ir.Value:
        return schedule.SumsOp(list(over), schedule.Acc.get(self._tile(number))).results[0]

    def _leave(self, number: int, sums: ir.Value, at: Place) -> Iterator[Callable[[], None]]:
        """Pieces of code that compute the columns of a set's sums, what follows applied to them, and write them, of the
        tile that begins `at` there."""
        kernel = self.kernel
        n = arith.addi(at["n"], constant_index(self.tiles.sets[0])) if number else at["n"]
        own = {"m": kernel.own_row(at["m"]), "n": n}
        made, ahead = {kernel.of.op.results[0]: sums}, kernel.reads_ahead(self.tiles.sets[number])
        for op in kernel.follows.ops:
            made[op.results[0]] = tiled(op, made, own, self.vectors, ahead)
        (end,) = kernel.follows.stored or [kernel.of.op]
        whole = made[end.results[0]]
        nbytes = element_bytes(element_type(whole))
        box, step = BOX_BYTES // nbytes, STEP_BYTES // nbytes

        def pieces() -> Iterator[Callable[[], None]]:
            for first in range(0, rows.shape_of(whole)[1], box):
                parts: list[ir.Value] = []
                for column in range(first, first + box, step):
                    yield lambda column=column, parts=parts: parts.append(part(whole, column, step))  # type: ignore[misc]
                yield lambda first=first, parts=parts: self._write(beside(parts), own, first)  # type: ignore[misc]

        return pieces()

    def _write(self, tile: ir.Value, own: Place, first: int) -> None:
        column = arith.addi(own["n"], constant_index(first)) if first else own["n"]
        write_box(tile, [own["m"], column], 0, [0, 1], schedule.COPIED)


def _carried(used: Used) -> list[ir.Value]:
    assert used.left is not None
    return [used.right, used.left, *used.tokens]


def _used(carried: Sequence[ir.Value]) -> Used:
    right, left, *tokens = carried
    return Used(right, left, tuple(tokens))
