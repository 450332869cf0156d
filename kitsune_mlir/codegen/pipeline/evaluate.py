"""Computes single elements of the values in a stage body, pulling through what lies between memory and use.

Elementwise operators, slices, reshapes, transpositions and concatenations are never stored: asking for
an element of their result asks for the elements of their operands. What must be stored first (products,
row reductions, what several operators need) stands in `memories`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import arith, attr_int, ir

from . import device
from .device import Int, Offset
from .memory import Memory, compute_type, element_of, shape_of
from .places import affine, moved, part_at

_CASTS = ("arith.extf", "arith.truncf")
ROUNDS = "kitsune.rounds"  # marks an arith.truncf that is done, though what follows is computed in f32


class _Scalar:
    """An operation of a body, looked through once for all elements that it is cloned for."""

    def __init__(self, op: ir.Operation):
        self.op, self.name = op, op.name
        self.operands = [(hash(operand), operand) for operand in op.operands]
        self.results = [hash(result) for result in op.results]

    @cached_property
    def types(self) -> list[ir.Type]:
        """The types in which its results are computed."""
        return [compute_type(result.type) for result in self.op.results]

    @cached_property
    def attributes(self) -> dict[str, ir.Attribute]:
        return {name: self.op.attributes[name] for name in self.op.attributes}

    def given(self, values: dict[int, ir.Value]) -> list[ir.Value]:
        """Its operands."""
        return [values[key] if key in values else constant(operand) for key, operand in self.operands]

    def clone(self, values: dict[int, ir.Value]) -> None:
        """Puts it, in compute types, where code is made."""
        if self.op.regions and len(self.op.regions):
            raise UnsupportedError(f"{self.name} in an operator's body is not computed in pipelines on a GPU")
        if self.name in ("arith.constant", "tensor.dim"):
            values[self.results[0]] = constant(self.op.results[0])
            return
        operands = self.given(values)
        if self.name in _CASTS and operands[0].type == self.types[0]:
            is_rounded = ROUNDS in self.attributes
            values[self.results[0]] = _rounded(operands[0], self.op.results[0].type) if is_rounded else operands[0]
            return
        if self.name == "arith.bitcast":
            values[self.results[0]] = _reinterpreted(operands[0], self.op)
            return
        clone = ir.Operation.create(self.name, self.types, operands, self.attributes)
        values.update(zip(self.results, clone.results))


def _rounded(x: ir.Value, element: ir.Type) -> ir.Value:
    """A number as it is once it was rounded to elements of this type."""
    return arith.extf(x.type, arith.truncf(element, x))


def _reinterpreted(x: ir.Value, op: ir.Operation) -> ir.Value:
    """What a bitcast gives of an operand that may be computed in a wider type."""
    element, result = op.operands[0].type, op.results[0].type
    bits = arith.bitcast(result, x if x.type == element else arith.truncf(element, x))
    return extended(bits, compute_type(result))


class _Body:
    """A linalg.generic's body, looked through once for all elements that it is asked for."""

    def __init__(self, s: rows.Structured):
        self.structured, self.gathers = s, s.gathers()
        used = (i for i, argument in enumerate(s.body.arguments) if list(argument.uses))
        self.read = [(i, hash(s.body.arguments[i]), list(s.maps[i].results)) for i in used]
        self.operations = [_Scalar(op.operation) for op in s.body.operations]
        operands = (pair for op in self.operations for pair in op.operands)
        self.indices = list(dict.fromkeys(key for key, v in operands if isinstance(v.type, ir.IndexType)))


_DEEP = 50  # elements that are computed for others, in one another, before these are computed in an order of their own


class Evaluator:
    """Elements of one loop nest. A nest's code asks at indices that are SSA values or numbers; asking twice
    for one element computes it once within a region. In a `nested` one not all threads of a warp may be."""

    def __init__(self, memories: Mapping[int, Memory], nested: bool = False):
        self.memories, self._nested = memories, nested
        self._known: dict[tuple[int, tuple[tuple[str, Int], ...]], ir.Value] = {}
        self._scalars: dict[tuple[int, tuple[ir.Value, ...]], ir.Value] = {}  # of bodies that gather
        self._tables: dict[tuple[int, ir.Value], Memory] = {}  # a table from a gathered row on
        self._places: dict[tuple[ir.Value, int], ir.Value] = {}  # what is taken by number, of so many elements
        self._bodies: dict[int, _Body] = {}  # by the operator's first result
        self._depth = 0  # of elements that are computed for others

    def know(self, value: ir.Value, index: Sequence[Int], element: ir.Value) -> None:
        """Says what an element is: an accumulator in a register."""
        self.know_key(hash(value), index, element)

    def know_key(self, key: int, index: Sequence[Int], element: ir.Value) -> None:
        """The same of the value of this hash."""
        self._known[key, _key(index)] = element

    def fork(self, nested: bool = True) -> Evaluator:
        """For code in a region: what it computes is not known outside. Not `nested` is one where all threads are."""
        inner = Evaluator(self.memories, nested)
        inner._depth = self._depth
        inner._known = dict(self._known)
        inner._scalars, inner._tables, inner._places = dict(self._scalars), dict(self._tables), dict(self._places)
        inner._bodies = self._bodies
        return inner

    def __call__(self, value: ir.Value, index: Sequence[Int]) -> ir.Value:
        """The element of `value` at `index`, of the compute type of its elements."""
        key = hash(value), _key(index)
        if key not in self._known:
            is_deep = self._depth % _DEEP == _DEEP - 1
            (self._after_operands if is_deep else self._now)(value, index)
        return self._known[key]

    def _now(self, value: ir.Value, index: Sequence[Int]) -> None:
        self._depth += 1
        self._known[hash(value), _key(index)] = self._compute(value, list(index))
        self._depth -= 1

    def _after_operands(self, value: ir.Value, index: Sequence[Int]) -> None:
        """Computes an element when all that it is computed of are there: an unrolled recurrence is longer than Python's
        stack."""
        left, seen = [(value, index, False)], {(hash(value), _key(index))}
        while left:
            value, index, ready = left.pop()
            if ready:
                self._now(value, index)
                continue
            left.append((value, index, True))
            for operand, place in reversed(self._operands(value, index)):
                key = hash(operand), _key(place)
                if key not in self._known and key not in seen:
                    seen.add(key)
                    left.append((operand, place, False))

    def _operands(self, value: ir.Value, index: Sequence[Int]) -> list[tuple[ir.Value, list[Int]]]:
        """The elements that one of an elementwise operator, or of a tensor that is seen otherwise, is computed of."""
        op = rows.producer(value)
        if op is None or self.memories.get(hash(value)) is not None:
            return []
        if op.name == "linalg.generic":
            s, loops, _ = self._at(op, value, index)
            return [
                (s.op.operands[i], [affine(expr, loops) for expr in exprs])
                for i, _, exprs in self._looked_through(op).read
            ]
        if (place := moved(op, value, index)) is not None:
            return [(op.operands[0], place)]
        if op.name == "tensor.concat" and (part := part_at(op, index)) is not None:
            return [part]
        return []

    def _compute(self, value: ir.Value, index: list[Int]) -> ir.Value:
        memory = self.memories.get(hash(value))
        if memory is None:
            return self._anew(value, index)
        together = None if self._nested else getattr(memory, "load_together", None)
        return (together or memory.load)(index)

    def _anew(self, value: ir.Value, index: list[Int]) -> ir.Value:
        op = rows.producer(value)
        if op is None:
            raise UnsupportedError("a stage reads a value that no kernel argument gives")
        if op.name == "linalg.generic":
            return self._generic(op, value, index)
        if op.name == "linalg.fill":
            return constant(op.operands[0])
        if op.name == "tensor.concat":
            return self._concat(op, index)
        if (place := moved(op, value, index)) is not None:
            return self(op.operands[0], place)
        if op.name == "arith.constant" and ir.DenseElementsAttr(op.attributes["value"]).is_splat:
            splat = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            return _constant_attribute(splat)
        raise UnsupportedError(f"{op.name} is not computed in pipelines on a GPU")

    def _generic(self, op: ir.Operation, value: ir.Value, index: list[Int]) -> ir.Value:
        s, loops, position = self._at(op, value, index)
        return self.body(s, loops)[position]

    def _at(self, op: ir.Operation, value: ir.Value, index: Sequence[Int]) -> tuple[rows.Structured, list[Int], int]:
        """The loop counters at which a generic computes an element, and the number of its result that it is of."""
        s = self._looked_through(op).structured
        position = [hash(result) for result in op.results].index(hash(value))
        loops: list[Int] = [0] * len(s.iterators)
        for expr, i in zip(s.maps[s.inputs + position].results, index):
            if not isinstance(expr, ir.AffineDimExpr):
                raise UnsupportedError("a generic with a computed result index is not computed in pipelines on a GPU")
            loops[expr.position] = i
        return s, loops, position

    def _looked_through(self, op: ir.Operation) -> _Body:
        key = hash(op.results[0])
        if key not in self._bodies:
            self._bodies[key] = _Body(rows.Structured(op))
        return self._bodies[key]

    def body(
        self, s: rows.Structured, loops: list[Int], accumulators: dict[int, ir.Value] | None = None
    ) -> list[ir.Value]:
        """The values that a generic's body yields at given loop counters. `accumulators` gives outputs, by
        number, values of their own; others start from their initial value."""
        values: dict[int, ir.Value] = {}
        places: dict[int, Int] = {}  # of linalg.index
        body = self._looked_through(s.op)
        known = {key: self.memories.get(key) for key in body.indices}  # numbers from around it
        values.update((key, memory.load([])) for key, memory in known.items() if memory is not None)
        for i, argument, exprs in body.read:
            if accumulators is not None and i - s.inputs in accumulators:
                values[argument] = accumulators[i - s.inputs]
            else:
                values[argument] = self(s.op.operands[i], [affine(expr, loops) for expr in exprs])
        for scalar in body.operations:
            op = scalar.op
            if scalar.name == "linalg.yield":
                return scalar.given(values)
            if scalar.name == "linalg.index":
                place = loops[attr_int(op, "dim")]
                places[scalar.results[0]] = place
                values[scalar.results[0]] = arith.index_cast(ir.IndexType.get(), device.value(place))
            elif scalar.name == "tensor.extract":
                together = not self._nested and _is_of_one_row(s, loops)
                values[scalar.results[0]] = self._extracted(op, values, places, together)
            elif body.gathers:
                self._scalar_once(scalar, values)
            else:
                scalar.clone(values)
        raise AssertionError("a generic's body ends with linalg.yield")

    def _scalar_once(self, scalar: _Scalar, values: dict[int, ir.Value]) -> None:
        """Its clone, once for the same operands: a row's number is the same for all its columns."""
        given = tuple(values.get(key, operand) for key, operand in scalar.operands)
        for result in scalar.results:
            if (known := self._scalars.get((result, given))) is not None:
                values[result] = known
        if not all(result in values for result in scalar.results):
            scalar.clone(values)
            self._scalars.update(((result, given), values[result]) for result in scalar.results)

    def _extracted(
        self, op: ir.Operation, values: dict[int, ir.Value], places: dict[int, Int], together: bool
    ) -> ir.Value:
        """An element of a resident: of a row that the body computes, `together` with the threads of the same tile's
        row."""
        table, *index = op.operands
        memory = self.memories.get(hash(table))
        if not isinstance(memory, Memory):
            return self._taken(op, values, places)
        if not index:
            return memory.load([])
        first = _use(values, index[0])
        key = hash(table), first
        if key not in self._tables:
            inside = index_checks.row_inside(op, 0, first)
            self._tables[key] = memory.from_row(arith.index_cast(ir.IntegerType.get_signless(64), inside))
        rest: list[Int] = []
        for axis, i in enumerate(index[1:], start=1):
            place = places.get(hash(i))
            if place is None:
                inside = index_checks.row_inside(op, axis, _use(values, i))
                place = arith.index_cast(device.i32(), inside)
            rest.append(place)
        found = self._tables[key]
        return found.load_together([0, *rest]) if together else found.load([0, *rest])

    def _taken(self, op: ir.Operation, values: dict[int, ir.Value], places: dict[int, Int]) -> ir.Value:
        """An element of a row that is in registers: each is chosen where its place is the one asked for."""
        table, *index = op.operands
        at = [places.get(hash(i)) for i in index]
        if at[0] is None:
            raise UnsupportedError("a gather from what its own pipeline computes is not computed in pipelines on a GPU")

        def chosen(known: list[Int]) -> ir.Value:
            axis = len(known)
            if axis == len(index):
                return self(table, known)
            if at[axis] is not None:
                return chosen([*known, at[axis]])
            size = shape_of(table)[axis]
            place, found = self._place(op, axis, _use(values, index[axis]), size), chosen([*known, 0])
            for number in range(1, size):
                is_here = arith.cmpi(arith.CmpIPredicate.eq, place, arith.constant(place.type, number))
                found = arith.select(is_here, chosen([*known, number]), found)
            return found

        return chosen([])

    def _place(self, op: ir.Operation, axis: int, place: ir.Value, size: int) -> ir.Value:
        """An index (i32) of one of so many elements, which is checked once for all that are taken there."""
        cast = rows.producer(place)
        key = cast.operands[0] if cast is not None and cast.name == "arith.index_cast" else place, size
        if key not in self._places:
            self._places[key] = arith.index_cast(device.i32(), index_checks.row_inside(op, axis, place))
        return self._places[key]

    def _concat(self, op: ir.Operation, index: list[Int]) -> ir.Value:
        """Branches to the part that holds the element."""
        dim = attr_int(op, "dim")
        type_ = compute_type(element_of(op.results[0]))

        def pick(parts: list[ir.Value], start: int, inside: Evaluator) -> ir.Value:
            place = device.sub(index[dim], start)
            at = [*index[:dim], place, *index[dim + 1 :]]
            if len(parts) == 1:
                return inside(parts[0], at)
            size = shape_of(parts[0])[dim]
            if (here := device.is_less(place, size)) is not None:
                return inside(parts[0], at) if here else pick(parts[1:], start + size, inside)
            return device.choose(
                device.less(place, size),
                type_,
                lambda: inside.fork()(parts[0], at),
                lambda: pick(parts[1:], start + size, inside.fork()),
            )

        return pick(list(op.operands), 0, self)


def _is_of_one_row(s: rows.Structured, loops: Sequence[Int]) -> bool:
    """Whether all columns of a tile's row take elements of the same row of a table: no input changes with the column,
    and the column is the last index of what is taken."""
    columns = {loop for loop, place in enumerate(loops) if isinstance(place, Offset)}
    if any(rows.loops_of(expr) & columns for map_ in s.maps[: s.inputs] for expr in map_.results):
        return False
    for op in s.index_ops():
        uses = list(op.results[0].uses)
        if attr_int(op, "dim") in columns and not all(_is_last_index(use) for use in uses):
            return False
    return True


def _is_last_index(use: ir.OpOperand) -> bool:
    owner = use.owner.operation
    return owner.name == "tensor.extract" and use.operand_number == len(owner.operands) - 1 > 1


def _use(values: dict[int, ir.Value], operand: ir.Value) -> ir.Value:
    return values[hash(operand)] if hash(operand) in values else constant(operand)


def constant(scalar: ir.Value) -> ir.Value:
    """A copy, in the kernel, of a scalar constant from around it, or the rows of a table that has any number."""
    op = rows.producer(scalar)
    if op is not None and op.name == "arith.constant":
        return _constant_attribute(op.attributes["value"])
    if op is not None and op.name == "tensor.dim":
        return index_checks.open_rows(op.operands[0])
    if op is not None and op.name == "arith.index_cast":
        return arith.index_cast(scalar.type, constant(op.operands[0]))
    if op is not None and op.name in _CASTS:
        inner = constant(op.operands[0])
        type_ = compute_type(scalar.type)
        if inner.type == type_:
            return inner
        return (arith.truncf if inner.type.width > type_.width else arith.extf)(type_, inner)
    raise UnsupportedError("a stage reads a scalar that is not a constant; a GPU pipeline takes tensors only")


def _constant_attribute(attribute: ir.Attribute) -> ir.Value:
    if isinstance(attribute, ir.FloatAttr):
        return arith.ConstantOp(compute_type(attribute.type), attribute.value).result
    return arith.ConstantOp(attribute.type, attribute).result


def _key(index: Sequence[Int]) -> tuple[tuple[str, Int], ...]:
    """An index as a key of a map. Not by its hash: in Python those of -1 and of -2 are one."""
    return tuple(("n" if isinstance(i, int) else "v", i) for i in index)
