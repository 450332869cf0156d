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

from kitsune_mlir.mlir import arith, attr_int, ir, memref
from kitsune_mlir.operations import operations_of

from . import gpu_words
from .affine_index import evaluate
from .gpu_clone import clone_into
from .gpu_generic import Generic, dims_of
from .gpu_kernel import THREADS, Kernel, Size, as_value, ceildiv, delinearize, only_if, product, thread_of
from .gpu_word_access import WORD, bytes_of, load_word, store_word
from .kernel_work import instructions_of
from .pipeline.device import below, either
from .stride_factors import stride_factors

MOST_CODE = 1024  # operations of a thread
APART = 4  # neighbours of a thread where an operand is not read by words
WORDS_OF_LINES = 256  # from which on words of one line have code of their own

Place = dict[int, ir.Value]  # an index of each loop


@dataclass(frozen=True)
class Flat:
    """Such an operator, whose threads compute `count` neighbours each of the last `run` loops, the last `line` of which
    all operands have together, as one loop, or do not have."""

    generic: Generic
    count: int
    run: int
    line: int
    threads: ClassVar[int] = THREADS

    @staticmethod
    def of(generic: Generic) -> Flat | None:
        """The longest words that the operator has, of the shortest run; None where it has none, or results are
        few."""
        sizes = [generic.known_size(d) for d in generic.parallel]
        if generic.reduction or not all(isinstance(v.type, ir.MemRefType) for v in generic.outputs):
            return None
        found, line = None, _line(generic)
        for run in range(line + 1, len(sizes) + 1):
            if None in sizes[-run:]:
                break
            count = _count(generic, run, line)
            if count > (1 if found is None else found.count):
                found = Flat(generic, count, run, line)
        return found

    @property
    def outer(self) -> list[int]:
        """The loops of the run before the line's."""
        return self.generic.parallel[-self.run : -self.line]

    @property
    def length(self) -> int:
        """The elements of a line."""
        return prod(self.generic.known_size(d) or 0 for d in self.generic.parallel[-self.line :])

    def _sizes(self) -> list[int]:
        return [*(self.generic.known_size(d) or 0 for d in self.outer), self.length]

    def _groups(self, see: object) -> list[Size]:
        """The sizes of the loops before the run, and the run's in words."""
        before = [self.generic.size(d, see) for d in self.generic.parallel[: -self.run]]
        return [*before, prod(self._sizes()) // self.count]

    def blocks(self, see: object) -> Size:
        """Thread blocks that it wants."""
        return ceildiv(product(self._groups(see)), THREADS)

    def emit(self, block: ir.Value, kernel: Kernel) -> None:
        """The words of block number `block`. Where lines are long few warps have words of two of them."""
        generic, groups = self.generic, self._groups(kernel.inside)
        index = thread_of(block, THREADS)
        for value in (*generic.inputs, *generic.outputs):  # known to the kernel outside of its branches
            kernel.inside(value)
        with only_if(index, product(groups)):
            *before, word = delinearize(index, groups)
            start = arith.muli(word, as_value(self.count))
            *outer, column = map(_narrow, delinearize(start, self._sizes()))
            place = dict(zip(self.generic.parallel, before)) | _wide(dict(zip(self.outer, outer, strict=True)))
            where = _Where(place, _wide({0: column})[0], start)
            if self.length < WORDS_OF_LINES * self.count:
                self._compute(kernel, where, self._next_line(outer, column))
                return
            whole = below(where.column, as_value(self.length - self.count + 1))
            either(
                whole,
                lambda: self._compute(kernel, where, None),
                lambda: self._compute(kernel, where, self._next_line(outer, column)),
            )

    def _compute(self, kernel: Kernel, first: _Where, behind: _Behind | None) -> None:
        """A thread's word from a place on; `behind` where some of it may be of the next line."""
        generic, places = self.generic, [self._place(first, behind, e) for e in range(self.count)]
        operands = zip(generic.block.arguments, generic.op.operands, generic.maps, strict=True)
        given = [
            self._elements(value, map_, kernel, first, places, behind) if list(argument.uses) else [None] * self.count
            for argument, value, map_ in operands
        ]
        found = []
        for e, place in enumerate(places):
            known = {hash(a): xs[e] for a, xs in zip(generic.block.arguments, given, strict=True) if xs[e] is not None}
            found.append(clone_into(generic.block, kernel, known, self._dims(place)))
        for number, (buffer, map_) in enumerate(zip(generic.outputs, generic.out_maps, strict=True)):
            store_word([values[number] for values in found], *self._in_run(buffer, map_, kernel, first))

    def _next_line(self, outer: Sequence[ir.Value], column: ir.Value) -> _Behind:
        """Where the line begins that follows the one of a place, or the last one where none does; and which of a word's
        elements from there on are in their own line."""
        found, more = dict[int, ir.Value](), _number(1)
        for d, index in reversed(list(zip(self.outer, outer, strict=True))):
            index, size = arith.addi(index, more), self.generic.known_size(d) or 0
            if d == self.outer[0]:
                found[d] = arith.minui(index, _number(size - 1))
                break
            ends = arith.cmpi(arith.CmpIPredicate.eq, index, _number(size))
            found[d], more = arith.select(ends, _number(0), index), arith.extui(index.type, ends)
        here = [arith.cmpi(arith.CmpIPredicate.ult, column, _number(self.length - e)) for e in range(self.count)]
        columns = [arith.subi(arith.addi(column, _number(e)), _number(self.length)) for e in range(self.count)]
        own = [arith.addi(column, _number(e)) for e in range(self.count)]
        columns = [arith.select(inside, a, b) for inside, a, b in zip(here, own, columns, strict=True)]
        return _Behind(_wide(found), here, list(_wide(dict(enumerate(columns))).values()))

    def _place(self, first: _Where, behind: _Behind | None, e: int) -> _Where:
        """Where the element is that is `e` from the first one."""
        if not e:
            return first
        if behind is None:
            return _Where(first.place, arith.addi(first.column, as_value(e)), first.start)
        moved = {d: arith.select(behind.here[e], first.place[d], n) for d, n in behind.place.items()}
        return _Where(first.place | moved, behind.columns[e], first.start)

    def _dims(self, where: _Where) -> list[ir.Value]:
        """An element's index of each loop; of a line's loops, where there are several, nobody asks for them."""
        dims = where.place | dict.fromkeys(self.generic.parallel[-self.line :], where.column)
        return [dims[d] for d in range(len(dims))]

    def _elements(
        self,
        value: ir.Value,
        map_: ir.AffineMap,
        kernel: Kernel,
        first: _Where,
        places: Sequence[_Where],
        behind: _Behind | None,
    ) -> list[ir.Value]:
        """An operand's elements at the places of the neighbours."""
        if not isinstance(value.type, ir.MemRefType):
            return [kernel.inside(value)] * self.count
        if _has_words(value, map_, self.generic.parallel[-self.run :], self.count):
            return load_word(*self._in_run(value, map_, kernel, first), self.count)
        if self.generic.parallel[-1] in dims_of(map_):
            return [self._load(value, map_, kernel, place) for place in places]
        own = self._load(value, map_, kernel, first)
        if behind is None or not {*self.outer} & {*dims_of(map_)}:
            return [own] * self.count
        other = self._load(value, map_, kernel, _Where(first.place | behind.place, first.column, first.start))
        return [arith.select(inside, own, other) for inside in behind.here]

    def _load(self, value: ir.Value, map_: ir.AffineMap, kernel: Kernel, where: _Where) -> ir.Value:
        at = evaluate(map_, self._dims(where))
        if self.line == 1 or self.generic.parallel[-1] not in dims_of(map_):
            return memref.load(kernel.inside(value), at)
        return memref.load(kernel.inside(self._joined(value, self.line)), [*at[: -self.line], where.column])

    def _in_run(
        self, buffer: ir.Value, map_: ir.AffineMap, kernel: Kernel, first: _Where
    ) -> tuple[ir.Value, list[ir.Value]]:
        """A buffer with the run as its last dimension, and where a word is in it."""
        at = evaluate(map_, self._dims(first))[: -self.run]
        return kernel.inside(self._joined(buffer, self.run)), [*at, first.start]

    def _joined(self, buffer: ir.Value, loops: int) -> ir.Value:
        """A buffer with so many dimensions as the last one, on the host."""
        first = ir.MemRefType(buffer.type).rank - loops
        with ir.InsertionPoint(self.generic.op):
            return collapsed(buffer, [*([d] for d in range(first)), [*range(first, first + loops)]])


@dataclass(frozen=True)
class _Where:
    """An element's index of each loop before the line, and the one in that; the one of its word in the run."""

    place: Place
    column: ir.Value
    start: ir.Value


@dataclass(frozen=True)
class _Behind:
    """Where the next line is, in the loops of the run; which elements of a word are not in it; and their columns."""

    place: Place
    here: list[ir.Value]
    columns: list[ir.Value]


# Indices within a run are numbers of 32 bits: there are fewer elements, and threads are faster with those.


def _number(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(32), value)


def _narrow(index: ir.Value) -> ir.Value:
    return arith.index_cast(ir.IntegerType.get_signless(32), index)


def _wide(place: Place) -> Place:
    return {d: arith.index_castui(ir.IndexType.get(), index) for d, index in place.items()}


def _line(generic: Generic) -> int:
    """How many of the last loops all operands have together as their last dimensions, without gaps, or do not have."""
    body = operations_of(generic.block)
    asked = {attr_int(op, "dim") for op in body if op.name == "linalg.index"}
    found = 1
    for count in range(2, len(generic.parallel)):
        loops = generic.parallel[-count:]
        operands = zip(generic.op.operands, generic.maps, strict=True)
        if {*loops} & asked or not all(
            not {*loops} & {*dims_of(map_)} or _has_words(value, map_, loops, 1) for value, map_ in operands
        ):
            break
        found = count
    return found


def _count(generic: Generic, run: int, line: int) -> int:
    """How many neighbours of such a run a thread may have; 1 where they are no words, or threads would be few. Of what
    is not read by words lanes touch more lines of memory the farther apart their elements are."""
    loops, outputs = generic.parallel[-run:], list(zip(generic.outputs, generic.out_maps, strict=True))
    if not all(_has_words(value, map_, loops, 1) for value, map_ in outputs):
        return 1
    moving = [(v, m) for v, m in zip(generic.inputs, generic.maps) if loops[-1] in dims_of(m)]
    if any(gpu_words.lies_apart(value, map_, loops[-1]) for value, map_ in moving):
        return 1
    sizes = [generic.known_size(d) for d in generic.parallel]
    code = sum(instructions_of(op.operation) for op in generic.block.operations)
    found = WORD // max(bytes_of(value.type) for value in (*(v for v, _ in moving), *generic.outputs))
    found = found if all(_has_words(v, m, loops, 1) for v, m in moving) else min(found, APART)
    while found > 1 and (
        prod(sizes[-run:]) % found
        or prod(sizes[-run:]) >= 1 << 31
        or prod(sizes[-line:]) < found
        or not all(_has_words(value, map_, loops, found) for value, map_ in outputs)
        or code * found > MOST_CODE
        or (None not in sizes and prod(sizes) // found < gpu_words.ENOUGH)
    ):
        found //= 2
    return found


def _has_words(value: ir.Value, map_: ir.AffineMap, loops: Sequence[int], count: int) -> bool:
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
    return all(x >= 0 and x % count == 0 for x in (*strides[: -len(loops)], offset)) or (
        count == 1 and min(kind.shape[-len(loops) :]) > 0
    )


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
