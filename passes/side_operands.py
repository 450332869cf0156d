"""What an operator behind a product reads besides the product is computed in that operator.

    %g = linalg.generic ins(%y) { sigmoid } ...                  // of what is there before the product
    %p = linalg.matmul ins(%x, %w) ...
    %z = linalg.generic ins(%p, %g) { %p * %g } ...
  =>
    %p = linalg.matmul ins(%x, %w) ...
    %z = linalg.generic ins(%p, %y) { %p * sigmoid(%y) } ...

The product's kernel computes what is behind the product; what is beside it would be a pass over memory of its own. What
is behind another product is left to that one's kernel, what is made of sums along rows to the kernel that makes these.
Values are rounded as before.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.contraction import match_product
from kitsune_mlir.generics import cloned, generic
from kitsune_mlir.mlir import ir, replace_op, walk
from kitsune_mlir.operations import element_type, users_of
from kitsune_mlir.traffic import element_bytes

from . import convolutions
from .generic_operands import prune
from .product_follows import is_elementwise

_MOST_READ = 2  # tensors as large as the result: threads load them ahead
_VIEWS = (*rows.RESHAPES, "tensor.extract_slice")


def compute_beside(module: ir.Module) -> bool:
    """Moves such operators of a module into their readers; whether there were any."""
    if not any(map(_multiplies, walk(module))):
        return False
    sources, again, found = _Sources(), True, False
    while again:  # what one reader takes may leave others as the only ones of what it is made of
        again = False
        for op in walk(module, "linalg.generic"):
            while sources.are_behind_product(op) and (beside := sources.beside(op)) is not None:
                sources.forget(op.operands[beside], op.results[0])
                op, again, found = _merged(op, beside), True, True
    return found


class _Sources:
    """What values are made of, each asked once: models are long chains."""

    def __init__(self) -> None:
        self._behind: dict[ir.Value, bool] = {}
        self._before: dict[ir.Value, bool] = {}
        self._elementwise: dict[ir.Value, bool] = {}

    def forget(self, *values: ir.Value) -> None:
        """Values that will be gone: others may come to stand where they stood."""
        for value in values:
            for known in (self._behind, self._before, self._elementwise):
                known.pop(value, None)

    def are_behind_product(self, op: ir.Operation) -> bool:
        """Whether an elementwise operator takes what a product gives, as it is or with others in between."""
        return self._is_elementwise(op) and any(map(self._is_behind, _inputs(op)))

    def beside(self, reader: ir.Operation) -> int | None:
        """The number of an input of an operator that is computed of what is there before, for the operator alone."""
        s = rows.Structured(reader)
        identity = ir.AffineMap.get_identity(len(s.iterators))
        for number, value in enumerate(_inputs(reader)):
            op = rows.producer(value)
            if op is None or s.maps[number] != identity or not self._is_elementwise(op) or op.block != reader.block:
                continue
            large = [v for v in _inputs(op) if rows.is_tensor(v) and sum(size != 1 for size in rows.shape_of(v)) > 1]
            if len(large) > _MOST_READ or not all(map(self._is_before, _inputs(op))):
                continue
            if len(list(value.uses)) == 1 or self._are_again(value, large):
                return number
        return None

    def _are_again(self, value: ir.Value, large: list[ir.Value]) -> bool:
        """Whether a value is computed by each of its readers, all of which are behind products: of no more bytes than
        it has itself."""
        readers = set(users_of(value))
        return sum(map(_bytes, large)) <= _bytes(value) and all(map(self.are_behind_product, readers))

    def _is_behind(self, value: ir.Value) -> bool:
        op = rows.producer(value)
        if op is None:
            return False
        if value not in self._behind:
            passes_on = op.name in _VIEWS or self._is_elementwise(op)
            self._behind[value] = (passes_on and any(map(self._is_behind, _inputs(op)))) or _multiplies(op)
        return self._behind[value]

    def _is_before(self, value: ir.Value) -> bool:
        """Whether a value is an argument, what a product reads, which is stored, or computed of such."""
        op = rows.producer(value)
        if op is None or op.name in rows.SUPPORT:
            return True
        if value not in self._before:
            read = any(_multiplies(use.owner.operation) for use in value.uses)
            passed = op.name in _VIEWS or self._is_elementwise(op)
            self._before[value] = read or (passed and all(map(self._is_before, _inputs(op))))
        return self._before[value]

    def _is_elementwise(self, op: ir.Operation) -> bool:
        if op.name != "linalg.generic":
            return False
        if op.results[0] not in self._elementwise:
            self._elementwise[op.results[0]] = _is_elementwise(op)
        return self._elementwise[op.results[0]]


def _inputs(op: ir.Operation) -> list[ir.Value]:
    operands = list(op.operands)
    return operands[: rows.Structured(op).inputs] if op.name == "linalg.generic" else operands[:1]


def _bytes(value: ir.Value) -> int:
    return element_bytes(element_type(value))


def _multiplies(op: ir.Operation) -> bool:
    return op.name in convolutions.NAMES or (op.name.startswith("linalg.") and match_product(op) is not None)


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether an operator is elementwise, of numbers that lie where its own do, or are the same for a dimension."""
    if not is_elementwise(op, ()):
        return False
    s = rows.Structured(op)
    dims = [[dim for expr in map_.results if (dim := rows.dim_of(expr)) is not None] for map_ in s.maps]
    return not s.tables() and all(own == sorted(own) for own in dims)


def _merged(reader: ir.Operation, number: int) -> ir.Operation:
    """The operator that computes its input of that number itself, in the reader's place."""
    s, beside = rows.Structured(reader), rows.Structured(rows.producer(reader.operands[number]))
    inputs = [value for i, value in enumerate(_inputs(reader)) if i != number]
    maps = [map_ for i, map_ in enumerate(s.maps[: s.inputs]) if i != number]

    def body(*arguments: ir.Value) -> list[ir.Value]:
        (found,) = cloned(beside.body, [*arguments[len(inputs) : -1], None])
        own = [*arguments[: len(inputs)], arguments[-1]]
        own.insert(number, found)
        return cloned(s.body, own)

    with reader.location, ir.InsertionPoint(reader):
        maps = [*maps, *beside.maps[: beside.inputs], s.maps[s.inputs]]
        made = generic([*inputs, *_inputs(beside.op)], [reader.operands[s.inputs]], maps, s.iterators, body)
    replace_op(reader, made.results[0])
    if not list(beside.op.results[0].uses):
        beside.op.erase()
    return prune(made)
