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

Windows are those of convolutions a channel at a time and of pooling, of up to MOST elements: any reduction that runs
through windows of a tensor, which few results share: of a channel with several filters each. Windows of one element are
those of elementwise operators and transposes of a tensor with zeros around it, or of a slice of that, as where rows are
shifted by a place or two and numbers come in at their ends. A tensor that is only widened is read as it was before.
Which elements lie beside one another in memory is said by COLUMN, so that neighbours share words (gpu_words.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isinf, prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.affine_index import linear
from kitsune_mlir.codegen.gpu_generic import COLUMN
from kitsune_mlir.codegen.gpu_linalg import contract
from kitsune_mlir.mlir import arith, ir, linalg, slice_of, tensor, walk

from .schedule_build import cloned, constant_index, empty_generic

MOST = 64  # elements of a window
MOST_SHARED = 4  # results that read one window

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
        if not list(op.results[0].uses):
            op.erase()


@dataclass(frozen=True)
class _Read:
    """How an operator reads an operand: the tensor that lies in memory, what of it is before and behind each of its
    dimensions, and what that is; the type that elements are widened to."""

    tensor: ir.Value
    map: ir.AffineMap
    low: tuple[int, ...]
    high: tuple[int, ...]
    outside: ir.Attribute | None
    wide: ir.Type | None

    @property
    def is_padded(self) -> bool:
        return self.outside is not None


@dataclass(frozen=True)
class _Windows:
    """An operator with one result; `order` are the loops of that, in the order of its dimensions."""

    op: ir.Operation
    order: list[int]
    reads: list[_Read]
    elements: dict[int, int]  # points of each loop that reduces

    @property
    def is_worth_it(self) -> bool:
        """Whether a tensor is read through windows or has something around it, and few results share a window."""
        special = [read for read in self.reads if read.is_padded or (self.elements and _is_window(read.map))]
        sizes = ir.RankedTensorType(self.op.results[0].type).shape
        moving = {loop: size for loop, size in zip(self.order, sizes) if size != 1}
        shared = [prod(size for loop, size in moving.items() if loop not in _loops(read.map)) for read in special]
        most = MOST_SHARED if self.elements else 1
        return bool(special) and max(shared) <= most and prod(self.elements.values()) <= MOST

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
        """Puts the elementwise operator in its place. `numbers` are of lines of memory."""
        rank, end = len(self.order), self.follower[0] if self.follower else self.op
        with self.op.location, ir.InsertionPoint(end):
            begin, begin_map = self._begin()
            inputs = [] if begin is None else [(begin, begin_map)]
            own = [i for i, read in enumerate(self.reads) if not self._is_taken(read)]
            inputs += [(self.reads[i].tensor, self._renamed(self.reads[i].map)) for i in own]
            if self.follower:
                s = rows.Structured(end)
                others = [i for i in range(s.inputs) if i != self.follower[1]]
                starts, maps = list(end.operands)[s.inputs :], s.maps[s.inputs :]
                inputs += [(end.operands[i], s.maps[i]) for i in others]
            else:
                starts, maps = [_like(self.op.operands[len(self.reads)])], [ir.AffineMap.get_identity(rank)]
            maps = [*(map_ for _, map_ in inputs), *maps]
            made = empty_generic([value for value, _ in inputs], starts, maps, ["parallel"] * rank)
            given = iter(made.regions[0].blocks[0].arguments)
            with ir.InsertionPoint(made.regions[0].blocks[0]):
                first = self._first() if begin is None else next(given)
                values = self._computed(first, {i: next(given) for i in own}, numbers)
                if self.elements:
                    contract(made.regions[0].blocks[0].operations)
                if self.follower:
                    rest = [*others, *range(s.inputs, len(end.operands))]
                    arguments = dict(zip(rest, given)) | {self.follower[1]: values[0]}
                    values = cloned(s.body, [arguments[i] for i in range(len(end.operands))])
                linalg.YieldOp(values)
        for old, new in zip(end.results, made.results, strict=True):
            old.replace_all_uses_with(new)
        for op in self.replaced:
            op.erase()

    def _is_taken(self, read: _Read) -> bool:
        """Whether the body takes an operand's elements out of it by itself."""
        return read.is_padded or _is_window(read.map) or not set(_loops(read.map)) <= set(self.order)

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

    def _computed(self, first: ir.Value | None, given: dict[int, ir.Value], numbers: Iterator[int]) -> list[ir.Value]:
        """The operator's result, from what it begins with and the operands that are no windows."""
        indices = dict(zip(self.order, [linalg.IndexOp(d).result for d in range(len(self.order))]))
        body, lines = self.op.regions[0].blocks[0], dict[tuple, int]()
        values = [first]
        for point in itertools.product(*map(range, self.elements.values())):
            elements: Elements = dict(zip(self.elements, point))
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
    read: _Read
    elements: Elements
    indices: dict[int, ir.Value]

    def value(self, operand: int, lines: dict[tuple, int], numbers: Iterator[int]) -> ir.Value:
        """It, or what is outside. `lines` are the numbers of the lines that elements lie in."""
        kind = ir.RankedTensorType(self.read.tensor.type)
        places = [self._place(d) for d in range(kind.rank)]
        at, fits = zip(*(self._index(d, *places[d]) for d in range(kind.rank)))
        x = tensor.extract(self.read.tensor, list(at))
        if self.read.is_padded or _is_window(self.read.map):
            outside = self.read.outside or _zero(kind.element_type)
            other = arith.ConstantOp(kind.element_type, outside).result
            inside = fits[-1] if fits[-1] is not None else _within(at[-1], kind, kind.rank - 1, self.read.tensor)
            x = arith.select(inside, x, other)
            line = (operand, *(place[0] for place in places[:-1]))
            if line not in lines:
                lines[line] = next(numbers)
            column = [lines[line], *self._column(places)]
            x.owner.attributes[COLUMN] = ir.DenseI64ArrayAttr.get(column)
            for fit in fits[:-1]:
                x = x if fit is None else arith.select(fit, x, other)
        return x if self.read.wide is None else arith.extf(self.read.wide, x)

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
    reads = [_read(value, map_) for value, map_ in zip(op.operands, inputs)]
    elements: dict[int, int] = {}
    for loop in sorted(set(range(out.n_dims)) - set(order)):
        size = _size(op, inputs, loop)
        if size is None or size > MOST:
            return None
        elements[loop] = size
    found = _Windows(op, order, reads, elements)
    return found if found.is_worth_it else None


def _are_linear(maps: Sequence[ir.AffineMap]) -> bool:
    return all(linear(expression, map_.n_dims) is not None for map_ in maps for expression in map_.results)


def _read(value: ir.Value, map_: ir.AffineMap) -> _Read:
    """How an operand is read, without what is put around it and what widens it."""
    value, map_ = _without_units(value, map_)
    rank = len(map_.results)
    low, high, outside = (0,) * rank, (0,) * rank, None
    if (around := _padded(value)) is not None:
        value, low, high, outside = around
    elif not _is_window(map_):
        return _Read(value, map_, low, high, None, None)
    narrow = _widened(value)
    if narrow is None or not (outside is None or outside.value == 0 or isinf(outside.value)):
        return _Read(value, map_, low, high, outside, None)
    narrow_type, wide_type = (ir.RankedTensorType(tensor.type).element_type for tensor in (narrow, value))
    outside = None if outside is None else ir.FloatAttr.get(narrow_type, outside.value)
    return _Read(narrow, map_, low, high, outside, wide_type)


def _without_units(value: ir.Value, map_: ir.AffineMap) -> tuple[ir.Value, ir.AffineMap]:
    """A tensor with zeros around it that has been given dimensions of one element, as the channels of a group of one,
    as it was before, and how that is read."""
    expand = rows.producer(value)
    if expand is None or expand.name != "tensor.expand_shape":
        return value, map_
    before, shape, kept = rows.producer(expand.operands[0]), rows.shape_of(value), list[int]()
    for group in rows.groups_of(expand):
        long = [d for d in group if shape[d] != 1]
        if len(long) > 1:
            return value, map_
        kept += long or group[:1]
    if before is None or before.name != "tensor.pad":
        return value, map_
    return expand.operands[0], ir.AffineMap.get(map_.n_dims, 0, [map_.results[d] for d in kept])


def _padded(value: ir.Value) -> tuple[ir.Value, tuple[int, ...], tuple[int, ...], ir.Attribute] | None:
    """The tensor that a value has with something around it, perhaps a slice of that, which begins and ends elsewhere;
    how much of what is before and behind each of its dimensions."""
    if not rows.is_tensor(value):
        return None
    op, kind = rows.producer(value), ir.RankedTensorType(value.type)
    first = [0] * kind.rank
    while op is not None and op.name == "tensor.extract_slice":
        cut, source = slice_of(op), ir.RankedTensorType(op.operands[0].type)
        if source.rank != kind.rank or not source.has_static_shape or {*cut.strides, 1} != {1}:
            return None
        if rows.DYNAMIC in (*cut.offsets, *cut.sizes):
            return None
        first, op = [a + b for a, b in zip(first, cut.offsets)], rows.producer(op.operands[0])
    if op is None or op.name != "tensor.pad" or (around := _around(op)) is None:
        return None
    low, high, outside = around
    if op.results[0] != value:
        ends = [size - at - own for size, at, own in zip(op.results[0].type.shape, first, kind.shape)]
        low = tuple(own - at for own, at in zip(low, first))
        high = tuple(own - end for own, end in zip(high, ends))
    return op.operands[0], low, high, outside


def _around(pad: ir.Operation) -> tuple[tuple[int, ...], tuple[int, ...], ir.Attribute] | None:
    """How much is before and behind each dimension of a tensor, and what, where all of that is known."""
    low, high = (tuple(ir.DenseI64ArrayAttr(pad.attributes[name])) for name in ("static_low", "static_high"))
    kind = ir.RankedTensorType(pad.operands[0].type)
    filler = rows.producer(list(pad.regions[0].blocks[0].operations)[-1].operation.operands[0])
    known = all(not kind.is_dynamic_dim(d) and kind.shape[d] for d in range(kind.rank) if low[d] or high[d])
    value = None if filler is None else _number(filler)
    return None if value is None or not known or min((*low, *high)) < 0 else (low, high, value)


def _number(op: ir.Operation) -> ir.Attribute | None:
    """The constant that an operation makes, or rounds."""
    if op.name == "arith.truncf" and (made := rows.producer(op.operands[0])) is not None:
        wide = _number(made)
        return None if wide is None else ir.FloatAttr.get(op.results[0].type, ir.FloatAttr(wide).value)
    return op.attributes["value"] if op.name == "arith.constant" else None


def _widened(value: ir.Value) -> ir.Value | None:
    """The tensor whose elements become these by nothing but a wider type."""
    op = rows.producer(value)
    if op is None or op.name != "linalg.generic":
        return None
    s = rows.Structured(op)
    names = [inner.operation.name for inner in s.body.operations]
    plain = s.maps == [ir.AffineMap.get_identity(len(s.iterators))] * 2 and set(s.iterators) == {"parallel"}
    return op.operands[0] if s.inputs == 1 and plain and names == ["arith.extf", "linalg.yield"] else None


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


def _is_window(map_: ir.AffineMap) -> bool:
    """Whether a tensor is read other than by its elements' own loops."""
    return not all(isinstance(expression, ir.AffineDimExpr | ir.AffineConstantExpr) for expression in map_.results)


def _within(index: ir.Value, kind: ir.RankedTensorType, d: int, whole: ir.Value) -> ir.Value:
    """Whether a tensor has an index; one unsigned comparison finds those before its first, too."""
    size = tensor.dim(whole, constant_index(d)) if kind.is_dynamic_dim(d) else constant_index(kind.shape[d])
    return arith.cmpi(arith.CmpIPredicate.ult, index, size)


def _zero(element: ir.Type) -> ir.Attribute:
    return (ir.FloatAttr if isinstance(element, ir.FloatType) else ir.IntegerAttr).get(element, 0)


def _like(start: ir.Value) -> ir.Value:
    """An empty tensor of the same type and sizes."""
    kind = ir.RankedTensorType(start.type)
    dims = range(kind.rank)
    sizes = [tensor.dim(start, constant_index(d)) if kind.is_dynamic_dim(d) else kind.shape[d] for d in dims]
    return tensor.empty(sizes, kind.element_type)
