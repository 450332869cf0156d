"""Elementwise operators whose lines are no whole words, but several of which together are: words go across lines.

    x: 3x256x98x161xbf16, in memory 256 * 98 * 161 neighbours     thread:  x[n, 8 w .. 8 w + 8]  of  3x4039168

The last loops are one `run`, whose words a thread loads and stores as such where a buffer has these loops as its last
dimensions, without gaps. A word has elements of at most two lines: what an operand has of a line, as a bias by channel,
is loaded of both, and chosen by element; anything else is loaded element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from kitsune_mlir.mlir import arith, gpu, ir, memref

from . import gpu_words
from .affine_index import evaluate
from .gpu_clone import clone_into
from .gpu_generic import Generic, dims_of
from .gpu_kernel import THREADS, Kernel, Size, as_value, ceildiv, delinearize, only_if, product
from .gpu_words import WORD, bytes_of, load_word, store_word
from .kernel_work import instructions_of
from .stride_factors import stride_factors

MOST_CODE = 1024  # operations of a thread

Place = dict[int, ir.Value]  # an element's index of each loop


@dataclass(frozen=True)
class Flat:
    """Such an operator, whose threads compute `count` neighbours each of the last `run` loops."""

    generic: Generic
    count: int
    run: int
    threads: ClassVar[int] = THREADS

    @staticmethod
    def of(generic: Generic, few: bool = False) -> Flat | None:
        """The longest words that the operator has, of the shortest run; None where it has none, or results are few and
        `few` is not set."""
        sizes = [generic.known_size(d) for d in generic.parallel]
        if generic.reduction or not all(isinstance(v.type, ir.MemRefType) for v in generic.outputs):
            return None
        found = None
        for run in range(2, len(sizes) + 1):
            if None in sizes[-run:]:
                break
            count = _count(generic, run, few)
            if count > (1 if found is None else found.count):
                found = Flat(generic, count, run)
        return found

    @property
    def loops(self) -> list[int]:
        """The loops of the run."""
        return self.generic.parallel[-self.run :]

    def _groups(self, see: object) -> list[Size]:
        """The sizes of the loops before the run, and the run's in words."""
        outer = [self.generic.size(d, see) for d in self.generic.parallel[: -self.run]]
        return [*outer, prod(self._sizes()) // self.count]

    def _sizes(self) -> list[int]:
        return [self.generic.known_size(d) or 0 for d in self.loops]

    def blocks(self, see: object) -> Size:
        """Thread blocks that it wants."""
        return ceildiv(product(self._groups(see)), THREADS)

    def emit(self, block: ir.Value, kernel: Kernel) -> None:
        """The words of block number `block`."""
        generic, groups = self.generic, self._groups(kernel.inside)
        index = arith.addi(arith.muli(block, as_value(THREADS)), gpu.thread_id(gpu.Dimension.x))
        with only_if(index, product(groups)):
            *outer, word = delinearize(index, groups)
            start = arith.muli(word, as_value(self.count))
            before = dict(zip(generic.parallel, outer))
            first = dict(zip(self.loops, map(_narrow, delinearize(start, self._sizes())), strict=True))
            behind, here = self._next_line(first), [self._in_line(first, e) for e in range(self.count)]
            places = [before | self._place(first, behind, here[e], e) for e in range(self.count)]
            behind = before | _wide(behind)
            given = [
                self._elements(value, map_, kernel, places, behind, here, start)
                if list(argument.uses)
                else [None] * self.count
                for argument, value, map_ in zip(
                    generic.block.arguments, generic.op.operands, generic.maps, strict=True
                )
            ]
            found = []
            for e, place in enumerate(places):
                known = {
                    hash(a): xs[e] for a, xs in zip(generic.block.arguments, given, strict=True) if xs[e] is not None
                }
                found.append(clone_into(generic.block, kernel, known, [place[d] for d in range(len(place))]))
            for number, (buffer, map_) in enumerate(zip(generic.outputs, generic.out_maps, strict=True)):
                at = self._at(map_, places[0], start)
                store_word([values[number] for values in found], kernel.inside(self._as_run(buffer)), at)

    def _next_line(self, first: Place) -> Place:
        """Where the line begins that follows the one of a place, or the last one where none does."""
        *outer, last = self.loops
        found, more = {last: _number(0)}, _number(1)
        for d in reversed(outer):
            index, size = arith.addi(first[d], more), self.generic.known_size(d) or 0
            if d == outer[0]:
                found[d] = arith.minui(index, _number(size - 1))
                break
            ends = arith.cmpi(arith.CmpIPredicate.eq, index, _number(size))
            found[d], more = arith.select(ends, _number(0), index), arith.extui(index.type, ends)
        return found

    def _in_line(self, first: Place, e: int) -> ir.Value:
        """Whether the element that is `e` from the first one is in its line."""
        size, last = self.generic.known_size(self.loops[-1]) or 0, first[self.loops[-1]]
        return arith.cmpi(arith.CmpIPredicate.ult, last, _number(size - e))

    def _place(self, first: Place, behind: Place, here: ir.Value, e: int) -> Place:
        """Where that element is."""
        last = self.loops[-1]
        column = arith.addi(first[last], _number(e))
        other = arith.subi(column, _number(self.generic.known_size(last) or 0))
        found = {d: arith.select(here, first[d], behind[d]) if e else first[d] for d in first}
        return _wide({**found, last: arith.select(here, column, other) if e else column})

    def _elements(
        self,
        value: ir.Value,
        map_: ir.AffineMap,
        kernel: Kernel,
        places: Sequence[Place],
        behind: Place,
        here: Sequence[ir.Value],
        start: ir.Value,
    ) -> list[ir.Value]:
        """An operand's elements at the places of the neighbours."""
        if not isinstance(value.type, ir.MemRefType):
            return [kernel.inside(value)] * self.count
        if _is_run(value, map_, self.loops, self.count):
            return load_word(kernel.inside(self._as_run(value)), self._at(map_, places[0], start), self.count)

        def load(place: Place) -> ir.Value:
            return memref.load(kernel.inside(value), evaluate(map_, [place[d] for d in range(len(place))]))

        if self.loops[-1] in dims_of(map_):
            return [load(place) for place in places]
        own = load(places[0])
        if not {*self.loops} & {*dims_of(map_)}:
            return [own] * self.count
        other = load(behind)
        return [arith.select(inside, own, other) for inside in here]

    def _as_run(self, buffer: ir.Value) -> ir.Value:
        """A buffer with the run as its last dimension, on the host."""
        rank = ir.MemRefType(buffer.type).rank
        groups = [*([d] for d in range(rank - self.run)), [*range(rank - self.run, rank)]]
        with ir.InsertionPoint(self.generic.op):
            return collapsed(buffer, groups)

    def _at(self, map_: ir.AffineMap, first: Place, start: ir.Value) -> list[ir.Value]:
        """Where the first neighbour is in a buffer whose last dimension is the run."""
        return [*evaluate(map_, [first[d] for d in range(len(first))])[: -self.run], start]


# Indices within a run are numbers of 32 bits: there are fewer elements, and threads are faster with those.


def _number(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(32), value)


def _narrow(index: ir.Value) -> ir.Value:
    return arith.index_cast(ir.IntegerType.get_signless(32), index)


def _wide(place: Place) -> Place:
    return {d: arith.index_castui(ir.IndexType.get(), index) for d, index in place.items()}


def _count(generic: Generic, run: int, few: bool) -> int:
    """How many neighbours of such a run a thread may have; 1 where they are no words, or threads would be few."""
    loops, outputs = generic.parallel[-run:], list(zip(generic.outputs, generic.out_maps, strict=True))
    if not all(_is_run(value, map_, loops, 1) for value, map_ in outputs):
        return 1
    inputs = [(v, m) for v, m in zip(generic.inputs, generic.maps) if _is_run(v, m, loops, 1)]
    sizes = [generic.known_size(d) for d in generic.parallel]
    code = sum(instructions_of(op.operation) for op in generic.block.operations)
    found = WORD // max(bytes_of(value.type) for value, _ in (*inputs, *outputs))
    while found > 1 and (
        prod(sizes[-run:]) % found
        or prod(sizes[-run:]) >= 1 << 31
        or sizes[-1] < found
        or not all(_is_run(value, map_, loops, found) for value, map_ in outputs)
        or code * found > MOST_CODE
        or (None not in sizes and not few and prod(sizes) // found < gpu_words.ENOUGH)
    ):
        found //= 2
    return found


def _is_run(value: ir.Value, map_: ir.AffineMap, loops: Sequence[int], count: int) -> bool:
    """Whether a buffer has these loops as its last dimensions, without gaps, and words of so many elements."""
    if not isinstance(value.type, ir.MemRefType) or not bytes_of(value.type) or value.type.rank < len(loops):
        return False
    own = list(map_.results)[-len(loops) :]
    if [e.position if isinstance(e, ir.AffineDimExpr) else None for e in own] != list(loops):
        return False
    kind, strides = ir.MemRefType(value.type), stride_factors(value)
    _, offset = kind.get_strides_and_offset()
    dense = [prod(kind.shape[-n:]) for n in range(len(loops) - 1, 0, -1)] + [1]
    if strides[-len(loops) :] != dense or {*loops} & {*dims_of(map_)[: -len(loops)]}:
        return False
    return all(x >= 0 and x % count == 0 for x in (*strides[: -len(loops)], offset))


def collapsed(buffer: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    """The view of a buffer with groups of its dimensions, without gaps, as one each."""
    kind = ir.MemRefType(buffer.type)
    strides, offset = kind.get_strides_and_offset()
    shape = [kind.shape[g[0]] if len(g) == 1 else prod(kind.shape[d] for d in g) for g in groups]
    layout = None
    if kind.affine_map != ir.AffineMap.get_identity(kind.rank):
        layout = ir.StridedLayoutAttr.get(offset, [strides[g[-1]] for g in groups])
    whole = ir.MemRefType.get(shape, kind.element_type, layout, kind.memory_space)
    return memref.CollapseShapeOp(whole, buffer, [list(g) for g in groups]).result
