"""Elementwise operators whose threads compute neighbours: they load and store words of up to 16 bytes.

One thread computes as many neighbours along the last dimension of the results as make a word of the widest element. An
operand that lies along it, or a row of a table, is loaded as words, one that does not know it once for all, any other
element by element; see gpu_turned.py for one that lies along a loop of its own, as a transpose's.
Buffers begin at multiples of 16 bytes: allocations do, and the runtime copies arguments that do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType

from kitsune_mlir.mlir import arith, attr_int, ir, memref, vector, walk

from .affine_index import evaluate
from .gpu_clone import clone_into
from .gpu_generic import COLUMN, Generic, dims_of
from .gpu_kernel import THREADS, Kernel, See, Size, as_value, ceildiv, only_if, product, thread_of
from .pipeline import device
from .stride_factors import stride_factors

WORD = 16  # bytes
LINES = 2  # of windows' results that a thread computes
ENOUGH = 132 * THREADS  # threads below which elements are better shared by more of them
UNEVEN = 4  # neighbours that are not even: more would leave fewer threads, and many idle at the end of a short line
# Elements of a window of strides of 1 from which on that is faster: threads of a warp then load every UNEVEN-th element
# of a line, and of more lines. Where windows are further apart they share less, and lie in more lines.
LEAST_TAPS = 9
# Lines of a window from which on threads that have uneven neighbours keep so much that small blocks leave fewer
# registers idle, and that two lines of them share more than they take.
TALL, FEW_THREADS = 5, 128


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
    buffers = [*(value for value, _ in along), *(load.operands[0] for load in tables)]
    found = WORD // max(bytes_of(buffer.type) for buffer in buffers)
    while found > 1 and not (sizes[-1] % found == 0 and all(keeps_words(buffer, found) for buffer in buffers)):
        found //= 2
    results, known = prod(size for size in sizes if size is not None), None not in sizes
    while found > 1 and known and not few and results // found < ENOUGH:
        found //= 2
    return max(found, 1)


def keeps_words(buffer: ir.Value, count: int) -> bool:
    """Whether words of so many neighbours of a buffer that begins at a multiple of them do not cross their bounds."""
    kind = ir.MemRefType(buffer.type)
    strides, (_, offset) = stride_factors(buffer), kind.get_strides_and_offset()
    known = [*strides[:-1], offset, kind.shape[-1]]
    return strides[-1] == 1 and all(x >= 0 and x % count == 0 for x in known)


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

    @property
    def lines(self) -> int:
        """LINES where sizes allow it, and results are enough for all threads."""
        sizes = [self.generic.known_size(d) for d in self.generic.parallel]
        one = (
            len(sizes) < 2
            or len(_window_lines(self.generic)) < 2
            or None in sizes[-2:]
            or sizes[-2] % LINES
            or self.count == 1
            or (not self.even and len(_window_lines(self.generic)) < TALL)
        )
        few = None not in sizes and prod(sizes) // (self.count * LINES) < ENOUGH
        return 1 if one or few else LINES

    def groups(self, see: object) -> list[Size]:
        """The sizes of the loops, that of the last in words, that before it in so many lines."""
        *sizes, last = [self.generic.size(d, see) for d in self.generic.parallel]
        sizes[-1:] = [size // self.lines if self.lines > 1 else size for size in sizes[-1:]]
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
                places = [{**dims, line: arith.addi(first, as_value(n))} for n in range(self.lines)]
            found = [neighbours(generic, kernel, place, self.count, even=self.even) for place in places]
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
    is_tall = len(_window_lines(generic)) >= TALL
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
    for op in (op.operation for op in generic.block.operations):
        if op.name == "linalg.index" and attr_int(op, "dim") == last:
            along.add(hash(op.results[0]))
            moving.add(hash(op.results[0]))
            continue
        if op.name == "memref.load" and (line := _in_line(op)) is not None and bytes_of(op.operands[0].type):
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


def _window_lines(generic: Generic) -> set[int]:
    """The numbers of the lines of memory that windows see (COLUMN)."""
    marked = [op.operation for op in generic.block.operations if COLUMN in op.operation.attributes]
    return {ir.DenseI64ArrayAttr(op.attributes[COLUMN])[0] for op in marked}


def taps_of_lines(generic: Generic) -> tuple[int, int]:
    """How many elements a window has that neighbours' windows see too, and how far these are apart; 0 where there are
    none, or a body loads anything else that is not the same for neighbours."""
    marked = [op.operation for op in generic.block.operations if COLUMN in op.operation.attributes]
    steps = [ir.DenseI64ArrayAttr(op.attributes[COLUMN])[1] for op in marked]
    tables = _tables(generic)
    alone = bool(tables) and all(steps) and None not in map(_in_line, tables)
    return (len(steps), max(steps)) if alone and len(_window_lines(generic)) < len(steps) else (0, 0)


def _of_lines(block: ir.Block) -> set[int]:
    """The operations that nothing but elements of lines needs, most of which are parts of words that are there."""
    found = set[int]()
    for op in reversed([op.operation for op in block.operations]):
        users = [use.owner.operation for result in op.results for use in result.uses]
        if users and all(COLUMN in user.attributes or hash(user) in found for user in users):
            found.add(hash(op))
    return found


def _in_line(load: ir.Operation) -> list[int] | None:
    """What COLUMN says of the element that is loaded, if that is selected so."""
    users = [use.owner.operation for use in load.results[0].uses]
    marked = [user for user in users if COLUMN in user.attributes]
    return list(ir.DenseI64ArrayAttr(marked[0].attributes[COLUMN])) if marked else None


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
    lines, later = _Lines(dims[last], -(-size // count) * count, count, count if even else 1), _of_lines(generic.block)
    found = []
    for e in range(count):
        known = {hash(a): xs[e] for a, xs in zip(generic.block.arguments, given, strict=True) if xs[e] is not None}

        def neighbour(op: ir.Operation, see: See, e: int = e) -> ir.Value | None:
            if COLUMN in op.attributes:
                return lines.element(op, see, e)
            if op not in tables or _in_line(op) is not None:
                return None
            if hash(op) not in loaded:
                buffer, *at = map(see, op.operands)
                word = word_at(buffer, at, count)
                loaded[hash(op)] = kernel.check_load(op, word.owner)
            return vector.extract(loaded[hash(op)], [], [e])

        found.append(clone_into(generic.block, kernel, known, places[e], neighbour, later))
    return found, places[0]


@dataclass
class _Lines:
    """Elements of lines of memory, for `count` neighbours of `size` from `first` on. Words are loaded once, each of so
    many elements, all of which are in the line or none."""

    first: ir.Value
    size: int
    count: int
    word: int
    elements: dict[tuple[int, int], ir.Value] = field(default_factory=dict)
    words: dict[tuple[int, int], tuple[ir.Value, ir.Value | None]] = field(default_factory=dict)

    def element(self, select: ir.Operation, see: See, number: int) -> ir.Value | None:
        """What a marked select gives neighbour `number`; None where that is no part of a word."""
        line, step, start = ir.DenseI64ArrayAttr(select.attributes[COLUMN])
        if not step:
            return None
        key = (line, number * step + start)
        if key not in self.elements:
            place, part = divmod(key[1], self.word)
            if (line, place) not in self.words:
                self.words[line, place] = self._word(see(select.operands[1]).owner.operation, step, place * self.word)
            word, inside = self.words[line, place]
            found = vector.extract(word, [], [part])
            self.elements[key] = found if inside is None else arith.select(inside, found, see(select.operands[2]))
        return self.elements[key]

    def _word(self, load: ir.Operation, step: int, start: int) -> tuple[ir.Value, ir.Value | None]:
        """The word that is `start` elements from the first neighbour's, and whether the line has it, if that is not
        certain."""
        buffer, *outer, _ = load.operands
        length = ir.MemRefType(buffer.type).shape[-1]
        at = self.first if step == 1 else arith.muli(self.first, as_value(step))
        at = arith.addi(at, as_value(start)) if start else at
        if start >= 0 and (self.size - self.count) * step + start + self.word <= length:
            return word_at(buffer, [*outer, at], self.word), None
        inside = device.below(at, as_value(length))
        return word_at(buffer, [*outer, arith.select(inside, at, as_value(0))], self.word), inside


def store_all(generic: Generic, kernel: Kernel, found: Sequence[tuple[list[list[ir.Value]], list[ir.Value]]]) -> None:
    """Stores what `neighbours` found, each; all loads stand before, which can pass no store."""
    for values, first in found:
        for number, (buffer, map_) in enumerate(zip(generic.outputs, generic.out_maps, strict=True)):
            store_word([value[number] for value in values], kernel.inside(buffer), evaluate(map_, first))


def _store_some(generic: Generic, kernel: Kernel, found: list[list[ir.Value]], first: list[ir.Value]) -> None:
    """Stores neighbours as far as the line has them."""
    last = generic.parallel[-1]
    for e, values in enumerate(found):
        place = [arith.addi(index, as_value(e)) if e and d == last else index for d, index in enumerate(first)]
        with only_if(place[last], generic.known_size(last)):
            for value, buffer, map_ in zip(values, generic.outputs, generic.out_maps, strict=True):
                memref.store(value, kernel.inside(buffer), evaluate(map_, place))


def store_word(values: Sequence[ir.Value], buffer: ir.Value, at: Sequence[ir.Value]) -> None:
    """Stores neighbouring elements from a place on whose number is a multiple of theirs."""
    vector.store(device.whole(values), buffer, list(at), alignment=len(values) * bytes_of(buffer.type))


def load_word(buffer: ir.Value, at: Sequence[ir.Value], count: int, once: bool = False) -> list[ir.Value]:
    """The neighbouring elements from a place on, one by one where they make no word; `once`: nobody reads them
    again."""
    if keeps_words(buffer, count) and 0 < count * bytes_of(buffer.type) <= WORD:
        word = word_at(buffer, at, count, once)
        return device.parts(word)
    steps = [arith.ConstantOp.create_index(e).result for e in range(count)]
    return [memref.load(buffer, [*at[:-1], arith.addi(at[-1], step)]) for step in steps]


def word_at(buffer: ir.Value, indices: Sequence[ir.Value], count: int, once: bool = False) -> ir.Value:
    """A vector of so many elements; see `load_word`."""
    kind = ir.VectorType.get([count], ir.MemRefType(buffer.type).element_type)
    return vector.load(kind, buffer, indices, nontemporal=once or None, alignment=count * bytes_of(buffer.type))


def _elements(
    value: ir.Value, map_: ir.AffineMap, last: int, kernel: Kernel, places: list[list[ir.Value]]
) -> list[ir.Value]:
    """An operand's elements at the places of the neighbours."""
    brought = kernel.inside(value)
    if not isinstance(value.type, ir.MemRefType):
        return [brought] * len(places)
    if lies_along(value, map_, last) and keeps_words(value, len(places)):
        word = word_at(brought, evaluate(map_, places[0]), len(places))
        return device.parts(word)
    if last not in dims_of(map_):
        return [memref.load(brought, evaluate(map_, places[0]))] * len(places)
    return [memref.load(brought, evaluate(map_, place)) for place in places]


def lies_along(value: ir.Value, map_: ir.AffineMap, last: int) -> bool:
    """Whether neighbours along a loop are neighbours in memory, of elements that make words."""
    if not isinstance(value.type, ir.MemRefType) or not value.type.rank or not bytes_of(value.type):
        return False
    inner = map_.results[len(map_.results) - 1]
    own = isinstance(inner, ir.AffineDimExpr) and inner.position == last
    return own and dims_of(map_).count(last) == 1


def bytes_of(buffer: ir.Type) -> int:
    """Bytes of a memref's element; 0 of what makes no words: truths, whose bits are no bytes, and indices."""
    width = getattr(ir.MemRefType(buffer).element_type, "width", 0)
    return width // 8
