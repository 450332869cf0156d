"""Elementwise operators of which an operand lies along another loop than the results: transposes.

    thread:   for e in 0 .. count:   word[e] = x[column + e, row .. row + deep]
              for j in 0 .. deep:    y[row + j, column .. column + count] = word[0 .. count][j]

A thread has a block of elements: it loads words of the operand, exchanges elements in registers, and stores words of
the results. All its loads are on their way together. The threads of a block are a rectangle, which has whole lines of
both where sizes allow. Blocks that follow one another go along the operand's memory: DRAM reads what lies together, and
what is written waits in L2 for its neighbours.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from kitsune_mlir.mlir import arith, ir, vector
from kitsune_mlir.planning.kernel_cost import LINE, SECTOR

from .affine_index import evaluate
from .gpu_flat import Flat
from .gpu_generic import Generic, dims_of
from .gpu_kernel import THREADS, Kernel, Size, as_value, ceildiv, delinearize, only_if, power_of_two, product, thread_of
from .gpu_lines import marked
from .gpu_word_access import WORD, bytes_of, keeps_words, word_at
from .gpu_words import Words, lies_along, neighbours, store_all, takes_neighbours, uneven, width
from .kernel_work import instructions_of

DEEPEST = 8  # words of results of a thread
ENOUGH = 132 * 128  # threads below which a thread is better given fewer words
MOST_CODE = 1024  # operations of a thread
TURNS = 4  # of a thread that has an element at a time, and would find out where for each
LONGER = 4  # times a line's own words from which on those that go across lines are worth it


@dataclass(frozen=True)
class Side:
    """The threads of a block along one loop, each of which has `each` neighbours of it. Of neighbouring threads
    `sector` have what memory moves together, and `line` a line of it."""

    each: int
    threads: int
    sector: int
    line: int

    @staticmethod
    def of(each: int, threads: int, nbytes: int) -> Side:
        sector, line = (min(threads, max(1, size // (each * nbytes))) for size in (SECTOR, LINE))
        return Side(each, threads, sector, line)


def rectangle(count: int, deep: int, nbytes: int, words: int | None, lines: int | None) -> tuple[Side, Side]:
    """The sides of a block, along the results' memory and along the operand's, of threads which have `deep` words of
    `count` elements of so many bytes: of the operand a line, or as much as of the results where that is less. The
    results have so many such `words` in a row, the operand `lines` of `deep` elements, as far as that is known."""
    square = 1 << ((THREADS * count * deep * nbytes**2).bit_length() - 1) // 2  # bytes along both, if as many
    wide = min(
        THREADS // max(1, min(LINE, square) // (deep * nbytes)), THREADS if words is None else power_of_two(words)
    )
    long = min(THREADS // wide, THREADS if lines is None else power_of_two(lines))
    return Side.of(count, wide, nbytes), Side.of(deep, long, nbytes)


@dataclass(frozen=True)
class Turned:
    """Such an operator, an operand of which lies along `loop`: how threads lie along the results, and along that, where
    a block does so many `turns`, one behind the other."""

    generic: Generic
    loop: int
    wide: Side
    long: Side
    turns: int = 1
    threads: ClassVar[int] = THREADS

    @staticmethod
    def of(generic: Generic) -> Turned | None:
        """None for an operator that reads no operand so, or rows shorter than a sector, which neighbours share."""
        if generic.reduction or not generic.parallel:
            return None
        last = generic.parallel[-1]
        if not all(lies_along(v, m, last) for v, m in zip(generic.outputs, generic.out_maps, strict=True)):
            return None
        for value, map_ in zip(generic.inputs, generic.maps):
            loops = [d for d in generic.parallel if d != last and last in dims_of(map_) and lies_along(value, map_, d)]
            if loops and not any(_is_short(generic, d, bytes_of(value.type)) for d in (loops[0], last)):
                return _turned(generic, loops[0])
        return None

    def _groups(self, see: object) -> dict[int, Size]:
        """The sizes of the loops, those of the sides in what a thread has."""
        each = {self.generic.parallel[-1]: self.wide.each, self.loop: self.long.each}
        sizes = {d: self.generic.size(d, see) for d in self.generic.parallel}
        return {d: size // each[d] if each.get(d, 1) > 1 else size for d, size in sizes.items()}

    def _layout(self, see: object) -> list[tuple[int, Size]]:
        """Where threads go from one to the next, the fastest last: along which loop, and how far. Words
        of 16 bytes eight threads store at once, so these have whole sectors; a warp has as whole lines as it can."""
        groups, last, wide, long = self._groups(see), self.generic.parallel[-1], self.wide, self.long
        return [
            *((d, size) for d, size in groups.items() if d not in (last, self.loop)),
            (last, ceildiv(groups[last], wide.threads)),
            (self.loop, ceildiv(groups[self.loop], long.threads * self.turns)),
            (last, wide.threads // wide.line),
            (self.loop, long.threads // long.sector),
            (last, wide.line // wide.sector),
            (self.loop, long.sector),
            (last, wide.sector),
        ]

    def blocks(self, see: object) -> Size:
        """Thread blocks that it wants."""
        return ceildiv(product([size for _, size in self._layout(see)]), THREADS)

    def emit(self, block: ir.Value, kernel: Kernel) -> None:
        """What block number `block` does."""
        layout, groups = self._layout(kernel.inside), self._groups(kernel.inside)
        sizes = [size for _, size in layout]
        index = thread_of(block, THREADS)
        with only_if(index, product(sizes)):
            numbers = delinearize(index, sizes)
            for turn in range(self.turns):
                self._turn(turn, layout, numbers, groups, kernel)

    def _turn(
        self,
        turn: int,
        layout: list[tuple[int, Size]],
        numbers: list[ir.Value],
        groups: dict[int, Size],
        kernel: Kernel,
    ) -> None:
        """What a thread does in a turn."""
        with contextlib.ExitStack() as inside:
            dims: dict[int, ir.Value] = {}
            for (d, size), number in zip(layout, numbers, strict=True):
                if d == self.loop and d not in dims and self.turns > 1:
                    number = arith.addi(arith.muli(number, as_value(self.turns)), as_value(turn))
                dims[d] = arith.addi(arith.muli(dims[d], as_value(size)), number) if d in dims else number
            for d, side in ((self.generic.parallel[-1], self.wide), (self.loop, self.long)):
                if not isinstance(groups[d], int) or groups[d] % side.threads:
                    inside.enter_context(only_if(dims[d], groups[d]))
                dims[d] = arith.muli(dims[d], as_value(side.each))
            self._compute(kernel, dims)

    def _compute(self, kernel: Kernel, dims: dict[int, ir.Value]) -> None:
        """A thread's block of elements, from the indices `dims` on."""
        generic, count, deep = self.generic, self.wide.each, self.long.each
        words = {
            number: [word_at(kernel.inside(value), evaluate(map_, self._at(dims, e, 0)), deep) for e in range(count)]
            for number, (value, map_) in enumerate(zip(generic.inputs, generic.maps))
            if lies_along(value, map_, self.loop)
        }
        found = []
        for j in range(deep):
            known = {number: [vector.extract(word, [], [j]) for word in own] for number, own in words.items()}
            found.append(neighbours(generic, kernel, dict(enumerate(self._at(dims, 0, j))), count, known))
        store_all(generic, kernel, found)

    def _at(self, dims: dict[int, ir.Value], e: int, j: int) -> list[ir.Value]:
        """The indices of an element of the block, in the order of the loops."""
        moved = {self.generic.parallel[-1]: e, self.loop: j}
        order = range(len(dims))
        return [arith.addi(dims[d], as_value(moved[d])) if moved.get(d) else dims[d] for d in order]


def part(generic: Generic) -> Words | Turned | Flat | None:
    """How threads have words, or neighbours, of an operator; None where each has an element."""
    count = width(generic)
    if (found := Turned.of(generic) or (uneven(generic) if count == 1 else None)) is not None:
        return found
    flat = Flat.of(generic)
    # Lanes that are farther apart share fewer lines of memory; of known sizes threads have several rows of windows.
    is_open = None in map(generic.known_size, generic.parallel)
    shares = len(marked(generic)) > (1 if is_open else 0) or takes_neighbours(generic)
    if flat is not None and flat.count >= LONGER * count and not shares:
        return flat
    return Words(generic, count) if count > 1 else None


def _is_short(generic: Generic, loop: int, nbytes: int) -> bool:
    size = generic.known_size(loop)
    return size is not None and size * nbytes < SECTOR


def _turned(generic: Generic, loop: int) -> Turned:
    count, size, last = width(generic), generic.known_size(loop), generic.known_size(generic.parallel[-1])
    buffers = [v for v, m in zip(generic.inputs, generic.maps) if lies_along(v, m, loop)]
    nbytes = max(bytes_of(buffer.type) for buffer in buffers)
    sizes = [generic.known_size(d) for d in generic.parallel]
    code = count * sum(instructions_of(op.operation) for op in generic.block.operations)
    deep = min(DEEPEST, WORD // nbytes)
    while deep > 1 and (
        size is None
        or size % deep
        or not all(keeps_words(buffer, deep) for buffer in buffers)
        or (None not in sizes and prod(sizes) // (count * deep) < ENOUGH)
        or code * deep > MOST_CODE
    ):
        deep //= 2
    words, lines = (None if n is None else n // by for n, by in ((last, count), (size, deep)))
    single = count == deep == 1 and None in (last, size) and code * TURNS <= MOST_CODE
    many = prod(map(generic.example_size, generic.parallel)) // TURNS >= ENOUGH
    return Turned(generic, loop, *rectangle(count, deep, nbytes, words, lines), TURNS if single and many else 1)
