"""Elementwise operators behind a product, which are computed on its tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Protocol

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.fragments import is_packed
from kitsune_mlir.contraction import match_product
from kitsune_mlir.dialects import schedule
from kitsune_mlir.generics import constant_index, generic
from kitsune_mlir.mlir import ir, tensor
from kitsune_mlir.operations import element_type, is_generic
from kitsune_mlir.planning.kernel_cost import DEAR
from kitsune_mlir.planning.target import Target
from kitsune_mlir.traffic import element_bytes, tensor_bytes

from .chain_tiles import engine_of
from .kernel_build import read_box
from .long_chains import MOST_IN_A_ROW
from .operand_layout import GRANULE

SLOT = 1024  # bytes at multiples of which slots begin
AHEAD = 128  # columns of numbers that are loaded ahead, a register for four of them, or two of f32
MOST_STORED = 2  # results of what follows one product
_MOST_KEPT = 64 << 10  # bytes of a vector that shared memory holds throughout
_NEAR = 100  # operators; sums behind more of them are of kernels of their own


@dataclass(frozen=True)
class Follows:
    """Elementwise operators behind a product, in their order, and those whose results others use."""

    ops: list[ir.Operation] = field(default_factory=list)
    stored: list[ir.Operation] = field(default_factory=list)


class Patch(Protocol):
    """Rows or columns, as `role` says, that are places of images (patch_kernel.py)."""

    role: str

    def view(self, value: ir.Value, named: list[str | None]) -> tuple[ir.Value, list[str | None]]:
        """A tensor whose dimensions have these roles as one of images, and the roles of its dimensions."""

    def mark(self, op: ir.OpView) -> None:
        """Says of an operation that moves a tile which patch its rows are."""


def follows_of(product: ir.Operation) -> Follows:
    """The elementwise operators that a product's kernel computes with it: all that take its elements, and what is
    computed of them, as long as few results are needed elsewhere, and none before the last of the operators. Where rows
    are summed behind it, no more than a chain of operators, each the only reader of the one before: what they are
    summed of is then computed where that is done."""
    chain = _chain_of(product)
    found = _all([product])
    if len(found.ops) <= len(chain) or any(is_reduced(op.results[0]) for op in found.stored):
        return Follows(chain, chain[-1:])
    return found


def _chain_of(first: ir.Operation) -> list[ir.Operation]:
    """Elementwise operators of a block, each the only reader of the one before it, the first of `first`; the last one's
    result can be stored."""
    found: list[ir.Operation] = []
    value = first.results[0]
    while len(uses := list(value.uses)) == 1 and is_elementwise(op := uses[0].owner.operation, [value]):
        if op.block != first.block or len(found) == MOST_IN_A_ROW:
            break
        found.append(op)
        value = op.results[0]
    while found and not is_stored(found[-1]):
        found.pop()
    return found


def follows_of_one_result(
    first: ir.Operation, accepts: Callable[[ir.Operation, list[ir.Value]], bool]
) -> list[ir.Operation]:
    """Elementwise operators that take the elements of `first`, and what is computed of them, as long as `accepts` takes
    an operator with those of these values that it reads. The last one's result alone is used elsewhere, and can be
    stored."""
    return _all([first], accepts, most_stored=1).ops


def joined_follows(products: Sequence[ir.Operation]) -> Follows | None:
    """The elementwise operators that a kernel of several products of equal sizes computes with them, one of which takes
    elements of all of them: None where there is none. Where rows are summed of what becomes of them, that operator is
    the last."""
    found = _all(products)
    behind = [{product.results[0]} for product in products]
    for number, op in enumerate(found.ops):
        for values in behind:
            if any(operand in values for operand in op.operands):
                values.add(op.results[0])
        if all(op.results[0] in values for values in behind):
            is_last = not any(is_reduced(end.results[0]) for end in found.stored)
            ends = found if is_last else _stored_ones(products, found.ops[: number + 1])
            return ends if len(ends.ops) > number else None
    return None


@dataclass(frozen=True)
class _InOrder:
    """An operation of a block, as one that comes before others."""

    op: ir.Operation

    def __lt__(self, other: _InOrder) -> bool:
        return self.op.is_before_in_block(other.op)


def _all(
    products: Sequence[ir.Operation],
    accepts: Callable[[ir.Operation, list[ir.Value]], bool] = lambda _, read: True,
    most_stored: int = MOST_STORED,
) -> Follows:
    block = products[0].block
    values, taken, seen = [product.results[0] for product in products], [], set[ir.Operation]()
    left: list[_InOrder] = []  # a heap: an operator comes behind all that it takes

    def see(value: ir.Value) -> None:
        for use in value.uses:
            op = use.owner.operation
            if op not in seen and op.block == block:
                seen.add(op)
                heappush(left, _InOrder(op))

    for product in products:
        see(product.results[0])
    while left and len(taken) < MOST_IN_A_ROW:
        op = heappop(left).op
        read = [value for value in values if any(value == operand for operand in op.operands)]
        if not is_elementwise(op, read) or not accepts(op, read):
            break  # none behind it would be there before it
        taken.append(op)
        values.append(op.results[0])
        see(op.results[0])
    return _stored_ones(products, taken, most_stored)


def _stored_ones(
    products: Sequence[ir.Operation], taken: list[ir.Operation], most_stored: int = MOST_STORED
) -> Follows:
    """As many of the operators, the first ones, as can be computed with products."""
    taken, made = list(taken), [product.results[0] for product in products]
    while taken:
        last = taken[-1]
        outside = {
            value: [op for use in value.uses if (op := use.owner.operation) not in taken]
            for value in (*made, *(op.results[0] for op in taken))
        }
        stored = [op for op in taken if outside[op.results[0]]]
        before = any(_is_before(user, last) for users in outside.values() for user in users)
        few = len(stored) <= most_stored and not any(outside[value] for value in made)
        if few and not before and all(map(is_stored, stored)):
            return Follows(taken, stored)
        taken.pop()
    return Follows()


def _is_before(op: ir.Operation, last: ir.Operation) -> bool:
    """Whether an operation, or the one that it is in, does not stand behind another one in its block."""
    while op.block != last.block:
        if op.parent is None or op.parent.parent is None:
            return True
        op = op.parent.operation
    return op.is_before_in_block(last)


def is_reduced(value: ir.Value) -> bool:
    """Whether sums along rows are made of it, or of what is computed of it by element, before many operators; products
    are none."""
    left, seen = [value], set[ir.Operation]()
    while left and len(seen) < _NEAR:
        for use in left.pop().uses:
            op = use.owner.operation
            if op in seen or op.name not in (*rows.RESHAPES, "linalg.generic"):
                continue
            if op.name == "linalg.generic" and "reduction" in rows.Structured(op).iterators:
                if match_product(op) is None:
                    return True
                continue
            seen.add(op)
            left += op.results
    return False


def tiled(
    op: ir.Operation,
    tiles: dict[ir.Value, ir.Value],
    at: dict[str, ir.Value],
    slots: Mapping[ir.Value, ir.Value] = MappingProxyType({}),
    ahead: bool = False,
    patch: Patch | None = None,
) -> ir.Value:
    """An elementwise operator of (b x) m x n on a tile of rows and columns, of what `tiles` has tiles of; its other
    inputs are read, those in `slots` out of these, of 16 bits or f32 with rows and columns `ahead`. What is read at an
    element's own place is a tile for further operators, too. Of a `patch` rows or columns are places of images."""
    s = rows.Structured(op)
    tile = next(tiles[value] for value in op.operands if value in tiles)
    batched = len(s.iterators) == 3
    roles = "bmn" if batched else "mn"
    place = {role: number for number, role in enumerate("mn")}
    shape = dict(zip("mn", ir.RankedTensorType(tile.type).shape))
    inputs, maps, identity = [], [], ir.AffineMap.get_identity(len(s.iterators))
    for i in range(s.inputs):
        value, exprs = op.operands[i], list(s.maps[i].results)
        if value in tiles and s.maps[i] == identity:
            inputs.append(tiles[value])
            maps.append(_map("mn", place))
        elif not rows.is_tensor(value):
            inputs.append(value)
            maps.append(_map("", place))
        else:
            named = [roles[e.position] if isinstance(e, ir.AffineDimExpr) else None for e in exprs]
            own = [role for role in named if role in shape]
            if patch is not None and patch.role in named:
                value, named = patch.view(value, named)
            offsets = [constant_index(0) if role is None else at[role] for role in named]
            sizes, element = [shape[r] for r in own], element_type(value)
            if value in slots:
                kind = ir.RankedTensorType.get(sizes, element)
                inputs.append(schedule.ReadOp(slots[value], offsets, kind).results[0])
            else:
                now = ahead and own == ["m", "n"] and (is_packed(element) or element_bytes(element) == 4)
                dims = [d for d, role in enumerate(named) if role is not None and role in "myxn"]
                read = read_box(value, offsets, sizes, dims, ["ahead"] if now else ())
                if patch is not None and patch.role in own:
                    patch.mark(read.owner)
                if s.maps[i] == identity and own == ["m", "n"]:
                    tiles[op.operands[i]] = read
                inputs.append(read)
            maps.append(_map(own, place))
    element = element_type(op.results[0])
    start = tensor.empty(list(shape.values()), element)
    return generic(inputs, [start], [*maps, _map("mn", place)], ["parallel"] * 2, s.body).results[0]


def matrices_of(products: Sequence[ir.Operation], follows: Follows) -> list[ir.Value]:
    """Tensors of numbers for both rows and columns that what follows products reads besides them."""
    made = {op.results[0] for op in [*products, *follows.ops]}
    read = (value for op in follows.ops for value in rows.Structured(op).given)
    long = (value for value in read if rows.is_tensor(value) and sum(size != 1 for size in value.type.shape) > 1)
    return list(dict.fromkeys(value for value in long if value not in made))


def stored_bytes(op: ir.Operation, follows: Follows) -> int:
    """The bytes of an element of what becomes of a product, where that are tensors of such elements that the copy
    engine stores; 0 where it is not."""
    kinds = [ir.RankedTensorType(one.results[0].type) for one in follows.stored or [op]]
    sizes = {element_bytes(kind.element_type) for kind in kinds}
    known = all(kind.rank == 2 and not kind.is_dynamic_dim(1) for kind in kinds)
    copied = len(sizes) == 1 and known and not any(kind.shape[1] * min(sizes) % GRANULE for kind in kinds)
    return min(sizes) if copied else 0


def leaves_by_rows(op: ir.Operation, follows: Follows, target: Target) -> bool:
    """Whether what becomes of a product are tensors of rows that the copy engine does not store."""
    kinds = [ir.RankedTensorType(one.results[0].type) for one in follows.stored or [op]]
    if any(kind.rank not in (2, 3) for kind in kinds):
        return False
    rows = [ir.RankedTensorType.get(kind.shape[-2:], kind.element_type) for kind in kinds]
    return all(engine_of(kind, target) == schedule.BY_ROWS for kind in rows)


def work_of(follows: Follows, dear: Mapping[str, int] = DEAR) -> float:
    """Instructions that deal with an element, where operations take as many as `dear` says, others one. What one of
    the operators rounds for the next stays as it is, in registers; what several compute alike is computed once."""
    found, stored = 0, {op.results[0] for op in follows.stored}
    alike: dict[object, object] = {op.results[0]: op.results[0] for op in follows.ops}  # by what values are made of
    for op in follows.ops:
        s, kept = rows.Structured(op), op.results[0] not in stored
        own = {
            argument: alike.get(value, (value, map_))
            for argument, value, map_ in zip(s.body.arguments, op.operands, s.maps)
        }
        between = [argument for argument, value in zip(s.body.arguments, op.operands) if value in alike]
        for inner in s.body.operations:
            inner = inner.operation
            made = (inner.name, *(own.get(value, value) for value in inner.operands), str(inner.attributes.values()))
            is_new = alike.setdefault(made, made) is made
            own |= dict.fromkeys(inner.results, alike[made])
            widens = inner.name == "arith.extf" and inner.operands[0] in between
            narrows = inner.name == "arith.truncf" and kept
            found += dear.get(inner.name, 1) if is_new and not widens and not narrows else 0
    return float(found)


def vectors_of(follows: Follows, columns: int) -> list[ir.Value]:
    """Tensors of one number for each column that what follows reads: of whole 16 bytes, and not too many to be kept."""
    found = []
    for op in follows.ops:
        s = rows.Structured(op)
        for value in s.given:
            kind = ir.RankedTensorType(value.type) if rows.is_tensor(value) else None
            if kind is None or kind.shape != [columns] or not isinstance(kind.element_type, ir.FloatType):
                continue
            nbytes = columns * element_bytes(kind.element_type)
            if nbytes % GRANULE == 0 and nbytes <= _MOST_KEPT and value not in found:
                found.append(value)
    return found


def vector_bytes(follows: Follows, columns: int) -> int:
    """The bytes of shared memory that such tensors take."""
    return sum(-(-tensor_bytes(vector) // SLOT) * SLOT for vector in vectors_of(follows, columns))


def _map(roles: Sequence[str], place: dict[str, int]) -> ir.AffineMap:
    return ir.AffineMap.get(len(place), 0, [ir.AffineDimExpr.get(place[role]) for role in roles])


def is_elementwise(op: ir.Operation, values: Iterable[ir.Value]) -> bool:
    """Whether it computes each element of its one result from those of `values` at the same place, and of others."""
    if not is_generic(op):
        return False
    s, own = rows.Structured(op), [hash(value) for value in values]
    identity = ir.AffineMap.get_identity(len(s.iterators))
    if not s.is_elementwise() or s.reads_start or hash(op.operands[s.inputs]) in own:
        return False
    if any(inner.operation.name == "linalg.index" or inner.operation.regions for inner in s.body.operations):
        return False
    if isinstance(element_type(op.results[0]), ir.F64Type):
        return False  # as digamma computes: a tile's code would have so long a function once for each of its elements
    at_its_point = all(
        s.maps[i] == identity if hash(op.operands[i]) in own else _is_readable(op.operands[i], s.maps[i])
        for i in range(s.inputs)
    )
    return at_its_point and not s.asks_for_sizes()


def _is_readable(value: ir.Value, map_: ir.AffineMap) -> bool:
    """Whether tiles of an operand can be read: each dimension a loop's of its own, or of size 1."""
    if not rows.is_tensor(value):
        return rows.producer(value) is not None and rows.producer(value).name == "arith.constant"
    dims = [e.position for e in map_.results if isinstance(e, ir.AffineDimExpr)]
    kind = ir.RankedTensorType(value.type)
    zeros = [e for e, size in zip(map_.results, kind.shape) if isinstance(e, ir.AffineConstantExpr) and size == 1]
    return len(set(dims)) == len(dims) and len(dims) + len(zeros) == kind.rank


def is_stored(op: ir.Operation) -> bool:
    element = element_type(op.results[0])
    return isinstance(element, ir.F32Type | ir.BF16Type | ir.F16Type)
