"""Elementwise operators whose threads compute neighbours: they load and store words of up to 16 bytes.

One thread computes as many neighbours along the last dimension of the results as make a word of the widest element. An
operand that lies along it, or a row of a table, is loaded as words, one that does not know it once for all, any other
element by element; see gpu_turned.py for one that lies along a loop of its own, as a transpose's.
Buffers begin at multiples of 16 bytes: allocations do, and the runtime copies arguments that do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType

from kitsune_mlir.mlir import arith, attr_int, ir, memref, vector, walk
from kitsune_mlir.operations import operations_of

from .affine_index import evaluate
from .gpu_clone import Clone, run_through, run_together
from .gpu_generic import COLUMN, Generic, dims_of
from .gpu_kernel import THREADS, Kernel, See, Size, as_value, ceildiv, only_if, product, thread_of
from .gpu_lines import Lines, are_apart, are_of_channels, in_line, of_lines, window_lines
from .gpu_word_access import WORD, bytes_of, keeps_words, store_word, word_at
from .pipeline import device

LINES = 2  # of windows' results that a thread computes
# Of those whose lines are channels, by the elements of windows; half as many where these are further apart (H100: a
# filter of 7 x 7 takes 52 us by 4 and 42 by 8, one of 5 x 5 25.6 and 25.8, or 27.4 and 21.8 where less follows, one of
# 3 x 3 18.7 and 18.8, at every second place 37.8 by 2 and 42.3 by 4).
MOST_LINES = {1: 4, 49: 8}
ENOUGH = 132 * THREADS  # threads below which elements are better shared by more of them
LONG = 64  # operations of a body from which on words save little, should a call have more elements than the example
UNEVEN = 4  # neighbours that are not even: more would leave fewer threads, and many idle at the end of a short line
# Elements of a window of strides of 1 from which on that is faster: threads of a warp then load every UNEVEN-th element
# of a line, and of more lines. Where windows are further apart they share less, and lie in more lines.
LEAST_TAPS = 9
# Lines of a window from which on threads that have uneven neighbours keep so much that small blocks leave fewer
# registers idle, and that two lines of them share more than they take.
TALL, FEW_THREADS = 5, 128
_STEPS = ("arith.addi", "arith.subi", "arith.select", "arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui")


def width(generic: Generic, few: bool = False) -> int:
    """How many neighbours a thread computes; 1 where words are not possible, or results few and `few` is not set."""
    if generic.reduction or not generic.parallel:
        return 1
    sizes = [generic.known_size(d) for d in generic.parallel]
    last = generic.parallel[-1]
    tables = _tables(generic)
    if tables is None:
        return 1
    along = [(v, m) for v, m in zip(generic.op.operands, generic.maps, strict=True) if lies_along(v, m, last)]
    if sizes[-1] is None or not all((v, m) in along for v, m in zip(generic.outputs, generic.out_maps)):
        return 1
    if any(lies_apart(value, map_, last) for value, map_ in zip(generic.inputs, generic.maps)):
        return 1
    buffers = [*(value for value, _ in along), *(load.operands[0] for load in tables)]
    found = WORD // max(bytes_of(buffer.type) for buffer in buffers)
    while found > 1 and not (sizes[-1] % found == 0 and all(keeps_words(buffer, found) for buffer in buffers)):
        found //= 2
    results = prod(generic.example_size(d) for d in generic.parallel)
    shared = not few and (None not in sizes or len(generic.block.operations) >= LONG)
    while found > 1 and shared and results // found < ENOUGH:
        found //= 2
    return max(found, 1)


@dataclass(frozen=True)
class Words:
    """An elementwise operator of whose results each thread computes `count` neighbours, of windows those of `lines`
    lines, one under another, which see some of the same elements. Where neighbours are not `even` there may be fewer at
    the end of a line: a thread computes the last one again in their place, and stores element by element. `threads`
    are those of a block."""

    generic: Generic
    count: int
    even: bool = True
    threads: int = THREADS

    @cached_property
    def lines(self) -> int:
        """LINES where sizes allow it, and results are enough for all threads. Where lines are channels, windows over
        other dimensions, up to MOST_LINES of any number: words and what they are multiplied with are shared by more."""
        if are_of_channels(self.generic) and self.even and self.count > 1:
            return self._of_channels()
        sizes = [self.generic.known_size(d) for d in self.generic.parallel]
        one = (
            len(sizes) < 2
            or len(window_lines(self.generic)) < 2
            or None in sizes[-2:]
            or sizes[-2] % LINES
            or self.count == 1
            or (not self.even and len(window_lines(self.generic)) < TALL)
        )
        few = None not in sizes and prod(sizes) // (self.count * LINES) < ENOUGH
        return 1 if one or few else LINES

    def _of_channels(self) -> int:
        """The same of windows whose channels are last. Where lines are no multiple, two threads compute some: not where
        they read what may be written over, as what a convolution is added to in place."""
        sizes, line = [self.generic.example_size(d) for d in self.generic.parallel], self.generic.parallel[-2]
        size = self.generic.known_size(line)
        besides = any(line in dims_of(map_) for map_ in self.generic.maps[: len(self.generic.inputs)])
        lines = max(most for taps, most in MOST_LINES.items() if len(window_lines(self.generic)) >= taps)
        lines, threads = lines // (2 if are_apart(self.generic) else 1), prod(sizes) // (sizes[-2] * self.count)
        while lines > 1 and (
            size is None or size < lines or besides and size % lines or threads * ceildiv(size, lines) < ENOUGH
        ):
            lines //= 2
        return lines

    def groups(self, see: object) -> list[Size]:
        """The sizes of the loops, that of the last in words, that before it in so many lines."""
        *sizes, last = [self.generic.size(d, see) for d in self.generic.parallel]
        sizes[-1:] = [ceildiv(size, self.lines) if self.lines > 1 else size for size in sizes[-1:]]
        return [*sizes, ceildiv(last, self.count)]

    def blocks(self, see: object) -> Size:
        """Thread blocks that it wants."""
        return ceildiv(product(self.groups(see)), self.threads)

    def emit(self, block: ir.Value, kernel: Kernel) -> None:
        """The words of block number `block`."""
        generic = self.generic
        groups, last = self.groups(kernel.inside), generic.parallel[-1]
        index = thread_of(block, self.threads)
        with only_if(index, product(groups)):
            dims = generic.place(index, groups)
            dims[last] = arith.muli(dims[last], as_value(self.count))
            places = [dims]
            if self.lines > 1:
                line = generic.parallel[-2]
                first = arith.muli(dims[line], as_value(self.lines))
                size = generic.known_size(line) or 0
                if size % self.lines:  # the last ones, of which another thread has some too
                    first = arith.minui(first, as_value(size - self.lines))
                places = [{**dims, line: arith.addi(first, as_value(n))} for n in range(self.lines)]
            found = _in_places(generic, kernel, places, self.count, self.even)
            if self.even:
                store_all(generic, kernel, found)
            else:
                for line in found:
                    _store_some(generic, kernel, *line)


def uneven(generic: Generic) -> Words | None:
    """Windows over lines that are no whole words, as those of 7 or 83 elements: what neighbours' windows share, and
    what they are multiplied with, is loaded once. None for any other operator, and where results are few."""
    if generic.reduction or not generic.parallel or generic.known_size(generic.parallel[-1]) is None:
        return None
    sizes = [generic.example_size(d) for d in generic.parallel]
    taps, step = taps_of_lines(generic)
    if not taps or taps < LEAST_TAPS * step * step:
        return None
    threads = prod(sizes[:-1]) * ceildiv(sizes[-1], UNEVEN)
    if sizes[-1] == 1 or threads < ENOUGH:
        return None
    is_tall = len(window_lines(generic)) >= TALL
    return Words(generic, UNEVEN, even=False, threads=FEW_THREADS if is_tall else THREADS)


def _tables(generic: Generic) -> list[ir.Operation] | None:
    """The loads of a body that take neighbours of one row of a table: their last index is the last loop's, and nothing
    else of them depends on that. None when one depends on that loop in another way."""
    last = generic.parallel[-1]
    moving: set[int] = set()  # values that differ between neighbours
    along: set[int] = set()  # the last loop's index itself
    for argument, map_ in zip(generic.block.arguments, generic.maps, strict=True):
        if last in dims_of(map_):
            moving.add(hash(argument))
    found = []
    for op in operations_of(generic.block):
        if op.name == "linalg.index" and attr_int(op, "dim") == last:
            along.add(hash(op.results[0]))
            moving.add(hash(op.results[0]))
            continue
        if op.name == "memref.load" and (line := in_line(op)) is not None and bytes_of(op.operands[0].type):
            moving.add(hash(op.results[0]))
            found += [op] if line[1] else []
            continue
        if op.name == "memref.load" and any(hash(index) in moving for index in op.operands):
            _, *others, index = op.operands
            if (
                hash(index) not in along
                or any(hash(one) in moving for one in others)
                or not bytes_of(op.operands[0].type)
            ):
                return None
            found.append(op)
        elif len(op.regions) and any(inner.name == "memref.load" for inner in walk(op)):
            return None
        if any(hash(operand) in moving for one in walk(op) for operand in one.operands):
            moving.update(hash(result) for result in op.results)
    return found


def takes_neighbours(generic: Generic) -> bool:
    """Whether a body loads elements that lie beside one another for neighbours, as those of a roll along a line: the
    last index is that of the last loop and a number more or less, which of several it may choose."""
    if not generic.parallel:
        return False
    last, beside = generic.parallel[-1], set[int]()
    for op in operations_of(generic.block):
        if op.name == "linalg.index":
            is_beside = attr_int(op, "dim") == last
        elif op.name == "memref.load":
            if list(op.operands)[1:] and hash(op.operands[len(op.operands) - 1]) in beside:
                return True
            continue
        else:
            is_beside = op.name in _STEPS and any(hash(operand) in beside for operand in op.operands)
        if is_beside:
            beside.add(hash(op.results[0]))
    return False


def taps_of_lines(generic: Generic) -> tuple[int, int]:
    """How many elements a window has that neighbours' windows see too, and how far these are apart; 0 where there are
    none, or a body loads anything else that is not the same for neighbours."""
    marked = [op.operation for op in generic.block.operations if COLUMN in op.operation.attributes]
    steps = [ir.DenseI64ArrayAttr(op.attributes[COLUMN])[1] for op in marked]
    tables = _tables(generic)
    alone = bool(tables) and all(steps) and None not in map(in_line, tables)
    return (len(steps), max(steps)) if alone and len(window_lines(generic)) < len(steps) else (0, 0)


def neighbours(
    generic: Generic,
    kernel: Kernel,
    dims: dict[int, ir.Value],
    count: int,
    held: Mapping[int, list[ir.Value]] = MappingProxyType({}),
    even: bool = True,
) -> tuple[list[list[ir.Value]], list[ir.Value]]:
    """What a generic of words of `width` computes for `count` neighbours, from the indices `dims` (by loop) on: for
    each the values of its results; and these indices in the order of the loops. Of some operands, by number, a thread
    has held their elements since before. Where they are not `even` there may be fewer neighbours, and the last one
    stands for the others; elements are no words then."""
    clones, first = _clones(generic, kernel, dims, count, held, even)
    return [run_through(one) for one in clones], first


def _in_places(
    generic: Generic, kernel: Kernel, places: Sequence[dict[int, ir.Value]], count: int, even: bool
) -> list[tuple[list[list[ir.Value]], list[ir.Value]]]:
    """What `neighbours` finds, for several places. Of windows all elements in turn, so that words are kept no longer
    than the windows that share them are apart."""
    made = [_clones(generic, kernel, dims, count, MappingProxyType({}), even) for dims in places]
    every = [one for clones, _ in made for one in clones]
    found = iter(run_together(every) if window_lines(generic) else map(run_through, every))
    return [([next(found) for _ in clones], first) for clones, first in made]


def _clones(
    generic: Generic,
    kernel: Kernel,
    dims: dict[int, ir.Value],
    count: int,
    held: Mapping[int, list[ir.Value]],
    even: bool,
) -> tuple[list[Clone], list[ir.Value]]:
    """What is to be cloned for each of `neighbours`, and the first one's indices."""
    last, size = generic.parallel[-1], generic.known_size(generic.parallel[-1]) or 0
    order = [dims[d] for d in range(len(dims))]
    places = []
    for e in range(count):
        column = arith.addi(dims[last], arith.ConstantOp.create_index(e).result) if e else dims[last]
        column = arith.minui(column, as_value(size - 1)) if e and not even and size % count else column
        places.append([column if d == last else index for d, index in enumerate(order)])
    given = [
        held[number]
        if number in held
        else _elements(value, map_, last, kernel, places)
        if list(argument.uses)
        else [None] * count
        for number, (argument, value, map_) in enumerate(
            zip(generic.block.arguments, generic.op.operands, generic.maps, strict=True)
        )
    ]
    tables = _tables(generic) or []
    loaded: dict[int, ir.Value] = {}  # words of tables, by the load
    lines, later = Lines(dims[last], -(-size // count) * count, count, count if even else 1), of_lines(generic.block)
    clones = []
    for e in range(count):
        known = {hash(a): xs[e] for a, xs in zip(generic.block.arguments, given, strict=True) if xs[e] is not None}

        def neighbour(op: ir.Operation, see: See, e: int = e) -> ir.Value | None:
            if COLUMN in op.attributes:
                return lines.element(op, see, e)
            if op not in tables or in_line(op) is not None:
                return None
            if hash(op) not in loaded:
                buffer, *at = map(see, op.operands)
                word = word_at(buffer, at, count)
                loaded[hash(op)] = kernel.check_load(op, word.owner)
            return vector.extract(loaded[hash(op)], [], [e])

        clones.append(Clone(generic.block, kernel, known, places[e], neighbour, later))
    return clones, places[0]


def store_all(generic: Generic, kernel: Kernel, found: Sequence[tuple[list[list[ir.Value]], list[ir.Value]]]) -> None:
    """Stores what `neighbours` found, each; all loads stand before, which can pass no store."""
    for values, first in found:
        for number, (buffer, map_) in enumerate(zip(generic.outputs, generic.out_maps, strict=True)):
            store_word([value[number] for value in values], kernel.inside(buffer), evaluate(map_, first))


def _store_some(generic: Generic, kernel: Kernel, found: list[list[ir.Value]], first: list[ir.Value]) -> None:
    """Stores neighbours as far as the line has them, of which the first one is; in the place of each behind its end the
    line's last element once more. Of what a condition asks for alone LLVM would move the whole computation behind that,
    and all that was loaded would be held until then."""
    last, size = generic.parallel[-1], generic.known_size(generic.parallel[-1])
    place, values = list(first), found[0]
    for e, own in enumerate(found):
        if e:
            at = arith.addi(first[last], as_value(e))
            is_there = device.below(at, as_value(size))
            place[last] = arith.minui(at, as_value(size - 1))
            values = [arith.select(is_there, new, before) for new, before in zip(own, values, strict=True)]
        for value, buffer, map_ in zip(values, generic.outputs, generic.out_maps, strict=True):
            memref.store(value, kernel.inside(buffer), evaluate(map_, place))


def _elements(
    value: ir.Value, map_: ir.AffineMap, last: int, kernel: Kernel, places: list[list[ir.Value]]
) -> list[ir.Value]:
    """An operand's elements at the places of the neighbours."""
    brought = kernel.inside(value)
    if not isinstance(value.type, ir.MemRefType):
        return [brought] * len(places)
    if lies_along(value, map_, last):
        count = min(len(places) & -len(places), WORD // bytes_of(value.type))  # a power of two
        if count > 1 and keeps_words(value, count):
            words = [word_at(brought, evaluate(map_, place), count) for place in places[::count]]
            return [part for word in words for part in device.parts(word)]
    if last not in dims_of(map_):
        return [memref.load(brought, evaluate(map_, places[0]))] * len(places)
    return [memref.load(brought, evaluate(map_, place)) for place in places]


def lies_apart(value: ir.Value, map_: ir.AffineMap, last: int) -> bool:
    """Whether neighbours along a loop are a line of a few elements apart in memory, as a coordinate of points is: by
    threads side by side more of them are in a sector."""
    if not isinstance(value.type, ir.MemRefType) or value.type.rank < 2 or not bytes_of(value.type):
        return False
    *_, outer, inner = map_.results
    own = isinstance(outer, ir.AffineDimExpr) and outer.position == last
    line = value.type.shape[value.type.rank - 1] * bytes_of(value.type)
    return own and isinstance(inner, ir.AffineConstantExpr) and bytes_of(value.type) < line <= WORD


def lies_along(value: ir.Value, map_: ir.AffineMap, last: int) -> bool:
    """Whether neighbours along a loop are neighbours in memory, of elements that make words."""
    if not isinstance(value.type, ir.MemRefType) or not value.type.rank or not bytes_of(value.type):
        return False
    inner = map_.results[len(map_.results) - 1]
    own = isinstance(inner, ir.AffineDimExpr) and inner.position == last
    return own and dims_of(map_).count(last) == 1
