"""Windows over tensors, and the zeros around these, read where the tensors lie: the elements of a window stand one by
one in the body of an elementwise operator, and what lies outside is in no memory.

    %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] { ... yield %zero }
    %c = linalg.depthwise_conv_2d_nchw_chw ins(%p, %f) outs(%begin)
    %y = linalg.generic {...} ins(%c, %scale) ...                     // if nothing else reads %c
  =>
    %y = linalg.generic {all loops parallel} ins(%begin, %scale) ... {
      %0 = arith.select %inside, %x[...], %zero                       // for each element of the window, then
      ...                                                             // what the convolution does with it,
      linalg.yield ...                                                // and behind all of them what follows
    }

Windows are those of convolutions a channel at a time and of pooling, of up to MOST_WINDOW elements: any reduction that
runs through windows of a tensor, which few results share: of a channel with several filters each, or of few channels
with few filters. Larger filters, such as 5x5x5, are parts of at most so many elements, each of which adds to what the
one before it gave, by a kernel of its own where they are many. Windows of one element are those of elementwise
operators and transposes of a tensor with zeros around it, or of a slice of that, as where rows are shifted by a place
or two and numbers come in at their ends. A tensor that is only widened is read as it was before.
Which elements lie beside one another in memory is said by COLUMN, so that neighbours share words (gpu_words.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import ceil, prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.affine_index import linear
from kitsune_mlir.codegen.gpu_generic import COLUMN
from kitsune_mlir.codegen.gpu_linalg import contract
from kitsune_mlir.generics import cloned, constant_index, empty_generic, sizes_of
from kitsune_mlir.mlir import arith, ir, linalg, tensor, walk
from kitsune_mlir.operations import element_type, erase_unused
from kitsune_mlir.planning.kernel_cost import MOST_WINDOW

from .padded_reads import Read, is_window, read_of

MOST_PARTS = 2  # of a filter that has more, in one kernel; more would spill registers
MOST_KERNELS = 8  # of a filter that has still more, each of one part
PART = "kitsune.part"  # an attribute of such parts: they are not joined
MOST_SHARED = 32  # results that read one window
MOST_AGAIN = 4  # results that read one element, each of which asks whether it is inside

Elements = dict[int, int]  # by loop of a reduction, which of its points


def read_windows(main: ir.Operation) -> None:
    """Rewrites the operators on windows, and on tensors with something around them, of @main."""
    numbers, gone = itertools.count(), set[int]()  # by result: an operation's hash is of its operands, too
    operations = [op.operation for op in main.regions[0].blocks[0].operations if len(op.operation.results)]
    for key, op in [(hash(op.results[0]), op) for op in operations]:
        if key not in gone and (windows := _match(op)) is not None:
            gone.update(hash(replaced.results[0]) for replaced in windows.replaced)
            windows.rewrite(numbers)
    for op in [*reversed(walk(main, "tensor.extract_slice")), *walk(main, "tensor.pad")]:
        erase_unused(op)


@dataclass(frozen=True)
class _Windows:
    """An operator with one result; `order` are the loops of that, in the order of its dimensions."""

    op: ir.Operation
    order: list[int]
    reads: list[Read]
    elements: dict[int, int]  # points of each loop that reduces

    @property
    def is_worth_it(self) -> bool:
        """Whether a tensor is read through windows or has something around it, and few results share a window."""
        special = [read for read in self.reads if read.is_padded or (self.elements and is_window(read.map))]
        sizes = ir.RankedTensorType(self.op.results[0].type).shape
        moving = {loop: size for loop, size in zip(self.order, sizes) if size != 1}
        shared = [prod(size for loop, size in moving.items() if loop not in _loops(read.map)) for read in special]
        most = MOST_SHARED if self.elements else MOST_AGAIN
        parts = (
            MOST_KERNELS if len(self.reads) > 1 else 1
        )  # windows that are pooled do not overlap where they are large
        return bool(special) and max(shared) <= most and prod(self.elements.values()) <= parts * MOST_WINDOW

    @cached_property
    def parts(self) -> list[list[Elements]]:
        """The points of the reduction, in parts of about equal size."""
        points = [dict(zip(self.elements, point)) for point in itertools.product(*map(range, self.elements.values()))]
        size = ceil(len(points) / ceil(len(points) / MOST_WINDOW))
        return [points[first : first + size] for first in range(0, len(points), size)]

    @cached_property
    def follower(self) -> tuple[ir.Operation, int] | None:
        """The elementwise operator that alone reads the results, each once, and which operand of it they are."""
        uses = list(self.op.results[0].uses)
        user = uses[0].owner.operation if uses else None
        if len(uses) != 1 or user.name != "linalg.generic" or user.block != self.op.block:
            return None
        s, number = rows.Structured(user), uses[0].operand_number
        rank = len(self.order)
        alone = number < s.inputs and s.maps[number] == ir.AffineMap.get_identity(rank)
        return (user, number) if alone and s.iterators == ["parallel"] * rank else None

    @property
    def replaced(self) -> list[ir.Operation]:
        """What the elementwise operator takes the place of, in the order in which it can go."""
        return [self.follower[0], self.op] if self.follower else [self.op]

    def rewrite(self, numbers: Iterator[int]) -> None:
        """Puts elementwise operators, one where the filter is no large one, in its place. `numbers` are of lines of
        memory."""
        end = self.follower[0] if self.follower else self.op
        with self.op.location, ir.InsertionPoint(end):
            begin, begin_map = self._begin()
            *before, last = self.parts
            for points in before:
                begin = self._made(points, begin, begin_map, None, numbers).results[0]
                begin_map = ir.AffineMap.get_identity(len(self.order))
            made = self._made(last, begin, begin_map, self.follower, numbers)
        for old, new in zip(end.results, made.results, strict=True):
            old.replace_all_uses_with(new)
        for op in self.replaced:
            op.erase()

    def _made(
        self,
        points: list[Elements],
        begin: ir.Value | None,
        begin_map: ir.AffineMap,
        follower: tuple[ir.Operation, int] | None,
        numbers: Iterator[int],
    ) -> ir.Operation:
        """An elementwise operator of some points of the reduction, and of what follows them."""
        rank = len(self.order)
        inputs = [] if begin is None else [(begin, begin_map)]
        own = [i for i, read in enumerate(self.reads) if not self._is_taken(read)]
        inputs += [(self.reads[i].tensor, self._renamed(self.reads[i].map)) for i in own]
        if follower:
            end, number = follower
            s = rows.Structured(end)
            others = [i for i in range(s.inputs) if i != number]
            starts, maps = list(end.operands)[s.inputs :], s.maps[s.inputs :]
            inputs += [(end.operands[i], s.maps[i]) for i in others]
        else:
            starts, maps = [_like(self.op.operands[len(self.reads)])], [ir.AffineMap.get_identity(rank)]
        maps = [*(map_ for _, map_ in inputs), *maps]
        made = empty_generic([value for value, _ in inputs], starts, maps, ["parallel"] * rank)
        if len(self.parts) > MOST_PARTS:
            made.attributes[PART] = ir.UnitAttr.get()
        given = iter(made.regions[0].blocks[0].arguments)
        with ir.InsertionPoint(made.regions[0].blocks[0]):
            first = self._first() if begin is None else next(given)
            values = self._computed(points, first, {i: next(given) for i in own}, numbers)
            if self.elements:
                contract(made.regions[0].blocks[0].operations)
            if follower:
                rest = [*others, *range(s.inputs, len(end.operands))]
                arguments = dict(zip(rest, given)) | {number: values[0]}
                values = cloned(s.body, [arguments[i] for i in range(len(end.operands))])
            linalg.YieldOp(values)
        return made

    def _is_taken(self, read: Read) -> bool:
        """Whether the body takes an operand's elements out of it by itself."""
        return read.is_padded or is_window(read.map) or not set(_loops(read.map)) <= set(self.order)

    def _renamed(self, map_: ir.AffineMap) -> ir.AffineMap:
        dims = [isinstance(e, ir.AffineDimExpr) for e in map_.results]
        new = [ir.AffineDimExpr.get(self.order.index(e.position)) if dim else e for e, dim in zip(map_.results, dims)]
        return ir.AffineMap.get(len(self.order), 0, new)

    # ---- what results begin with

    def _begin(self) -> tuple[ir.Value | None, ir.AffineMap]:
        """The tensor that results begin with, and how it is read; None where that is one scalar, or nothing."""
        begin, rank = self.op.operands[len(self.reads)], len(self.order)
        whole, made = ir.AffineMap.get_identity(rank), rows.producer(begin)
        if not self._begins() or (made is not None and made.name == "linalg.fill"):
            return None, whole
        if made is not None and made.name == "linalg.broadcast":
            added = list(ir.DenseI64ArrayAttr(made.attributes["dimensions"]))
            kept = [ir.AffineDimExpr.get(d) for d in range(rank) if d not in added]
            return made.operands[0], ir.AffineMap.get(rank, 0, kept)
        return begin, whole

    def _begins(self) -> bool:
        return bool(self.elements) or bool(list(self.op.regions[0].blocks[0].arguments[len(self.reads)].uses))

    def _first(self) -> ir.Value | None:
        return rows.producer(self.op.operands[len(self.reads)]).operands[0] if self._begins() else None

    # ---- the body

    def _computed(
        self, points: list[Elements], first: ir.Value | None, given: dict[int, ir.Value], numbers: Iterator[int]
    ) -> list[ir.Value]:
        """The operator's result, from what it begins with and the operands that are no windows."""
        indices = dict(zip(self.order, [linalg.IndexOp(d).result for d in range(len(self.order))]))
        body, lines = self.op.regions[0].blocks[0], dict[tuple, int]()
        values = [first]
        for elements in points:
            arguments: list[ir.Value | None] = []
            for i, read in enumerate(self.reads):
                used = bool(list(body.arguments[i].uses))
                taken = _Tap(self, read, elements, indices)
                arguments.append(given[i] if i in given else taken.value(i, lines, numbers) if used else None)
            values = cloned(body, [*arguments, *values])
        return values


@dataclass(frozen=True)
class _Tap:
    """An element of a window of an operand, in the body."""

    of: _Windows
    read: Read
    elements: Elements
    indices: dict[int, ir.Value]

    def value(self, operand: int, lines: dict[tuple, int], numbers: Iterator[int]) -> ir.Value:
        """It, or what is outside. `lines` are the numbers of the lines that elements lie in."""
        kind = ir.RankedTensorType(self.read.tensor.type)
        places = [self._place(d) for d in range(kind.rank)]
        at, fits = zip(*(self._index(d, *places[d]) for d in range(kind.rank)))
        x = tensor.extract(self.read.tensor, list(at))
        if self.read.is_padded or is_window(self.read.map):
            outside = self.read.outside or _zero(kind.element_type)
            other = arith.ConstantOp(kind.element_type, outside).result
            if outer := [fit for fit in fits[:-1] if fit is not None]:
                x = arith.select(reduce(arith.andi, outer), x, other)
            inside = fits[-1] if fits[-1] is not None else _within(at[-1], kind, kind.rank - 1, self.read.tensor)
            x = arith.select(inside, x, other)
            line = (operand, *(place[0] for place in places[:-1]))
            if line not in lines:
                lines[line] = next(numbers)
            column = [lines[line], *self._column(places)]
            x.owner.attributes[COLUMN] = ir.DenseI64ArrayAttr.get(column)
        return x if self.read.made is None else cloned(self.read.made, [x, None])[0]

    def _place(self, d: int) -> tuple[int, dict[int, int]]:
        """Where it is along a dimension: a constant, and how much each loop adds to it."""
        constant, steps = linear(self.read.map.results[d], self.read.map.n_dims)
        constant += sum(steps[loop] * point for loop, point in self.elements.items())
        return constant - self.read.low[d], {loop: steps[loop] for loop in self.of.order if steps[loop]}

    def _column(self, places: Sequence[tuple[int, dict[int, int]]]) -> tuple[int, int]:
        """How far apart the elements of neighbours are along the last dimension, and where the first one's is; 0 where
        they are elsewhere."""
        last, (constant, steps) = self.of.order[-1], places[-1]
        along = set(steps) == {last} and steps[last] > 0 and not any(last in others for _, others in places[:-1])
        return (steps[last], constant) if along else (0, 0)

    def _index(self, d: int, constant: int, steps: dict[int, int]) -> tuple[ir.Value, ir.Value | None]:
        """An index that the tensor has, and whether it is the right one; None where it surely is."""
        found = None
        for loop, step in steps.items():
            term = self.indices[loop] if step == 1 else arith.muli(self.indices[loop], constant_index(step))
            found = term if found is None else arith.addi(found, term)
        if found is None:
            found = constant_index(constant)
        elif constant:
            found = arith.addi(found, constant_index(constant))
        if not self.read.low[d] and not self.read.high[d]:
            return found, None
        inside = _within(found, ir.RankedTensorType(self.read.tensor.type), d, self.read.tensor)
        return arith.select(inside, found, constant_index(0)), inside


def _match(op: ir.Operation) -> _Windows | None:
    """The operator as one on windows, or None for any other."""
    maps = linalg.get_indexing_maps(op) if op.name.startswith("linalg.") else None
    if maps is None or len(op.results) != 1 or len(op.operands) < 2:
        return None
    *inputs, out = [map_.value for map_ in maps]
    order = _loops(out) if _is_plain(out) else []
    body = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    reads_places = "linalg.index" in body or "tensor.extract" in body
    if not order or (reads_places and order != list(range(out.n_dims))) or not _are_linear(inputs):
        return None  # places are those of the operator's own loops
    elements: dict[int, int] = {}
    for loop in sorted(set(range(out.n_dims)) - set(order)):
        size = _size(op, inputs, loop)
        if size is None or size > MOST_WINDOW * MOST_KERNELS:
            return None
        elements[loop] = size
    points = prod(elements.values()) * _known(op.results[0])
    reads = [
        read_of(x, map_, rows.is_tensor(x) and points <= _known(x), elements) for x, map_ in zip(op.operands, inputs)
    ]
    found = _Windows(op, order, reads, elements)
    return found if found.is_worth_it else None


def _known(value: ir.Value) -> int:
    """The product of a tensor's sizes, but for that of an open number of images."""
    return prod(size for size in ir.RankedTensorType(value.type).shape if size != rows.DYNAMIC)


def _are_linear(maps: Sequence[ir.AffineMap]) -> bool:
    return all(linear(expression, map_.n_dims) is not None for map_ in maps for expression in map_.results)


def _size(op: ir.Operation, maps: Sequence[ir.AffineMap], loop: int) -> int | None:
    """The points of a loop, where they are known."""
    for value, map_ in zip(op.operands, maps):
        for d, expression in enumerate(map_.results):
            if isinstance(expression, ir.AffineDimExpr) and expression.position == loop:
                kind = ir.RankedTensorType(value.type)
                return None if kind.is_dynamic_dim(d) else kind.shape[d]
    return None


def _loops(map_: ir.AffineMap) -> list[int]:
    """The loops that a map goes by, in the order of its results."""
    found = [linear(expression, map_.n_dims) for expression in map_.results]
    return [loop for term in found for loop, step in enumerate(term[1] if term else []) if step]


def _is_plain(map_: ir.AffineMap) -> bool:
    return all(isinstance(expression, ir.AffineDimExpr) for expression in map_.results)


def _within(index: ir.Value, kind: ir.RankedTensorType, d: int, whole: ir.Value) -> ir.Value:
    """Whether a tensor has an index; one unsigned comparison finds those before its first, too."""
    size = tensor.dim(whole, constant_index(d)) if kind.is_dynamic_dim(d) else constant_index(kind.shape[d])
    return arith.cmpi(arith.CmpIPredicate.ult, index, size)


def _zero(element: ir.Type) -> ir.Attribute:
    return (ir.FloatAttr if isinstance(element, ir.FloatType) else ir.IntegerAttr).get(element, 0)


def _like(start: ir.Value) -> ir.Value:
    """An empty tensor of the same type and sizes."""
    return tensor.empty(sizes_of(start), element_type(start))
