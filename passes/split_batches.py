"""Operands of products where they lie: in front of what moves them to where a product has its dimensions.

Projections have the heads of a sequence side by side, often with keys and values, products want them apart, so that
models slice, transpose and repeat:

    %e = tensor.expand_shape %x ... into tensor<4x512x3x12x64xbf16>
    %t = linalg.transpose ins(%e) ... permutation = [2, 0, 3, 1, 4]
    %s = tensor.extract_slice %t[1, 0, 0, 0, 0] [1, 4, 12, 512, 64] ...
    %k = tensor.collapse_shape %s [[0, 1, 2], [3], [4]] : ... into tensor<48x512x64xbf16>
    %p = linalg.batch_matmul ins(%q, %k)

Copies of boxes and stores of tiles take an offset for each dimension, so that a kernel reads %e, or writes the tensor
in front of such a transpose, where the heads lie. The role of a dimension is then "b/D%S", number b / D modulo S of the
batch, "b/D%S+N", number N behind that, "=N", always N, or "@", what numbers say of the batch (numbered_matrices.py):
what a layer makes of queries, keys and values side by side is read in its parts. Where a tile has rows of some
neighbours alone, "m" may be cut so too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import NUMBERED, Contraction, Roles
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.operations import only_user, permutation_of, slice_of, users_of
from kitsune_mlir.planning import open_sizes

from .reshapes import reshaped, reshaped_as
from .tensor_sizes import Shape, or_dynamic, or_none

MOST_DIMENSIONS = 5  # of a tensor that is copied by boxes (CUDA driver API, cuTensorMapEncodeTiled)


@dataclass(frozen=True)
class Stored:
    """How a product's result is wanted: as the last of these operations gives it, in dimensions of these roles and
    sizes, of which neighbours may be one of its."""

    operations: tuple[ir.Operation, ...]
    roles: Roles
    sizes: tuple[int, ...]


def is_batch(role: str) -> bool:
    """Whether a dimension is the batch, a part of it, or where numbers say of it."""
    return role.startswith(("b", NUMBERED))


def with_split_batches(
    found: Contraction,
    rows_together: int = 0,
    shape: Shape = rows.shape_of,
    converted: Container[str] = (),
    number: Callable[[int], ir.Value] = constant_index,
) -> Contraction:
    """The product, of operands where they lie. Rows may be cut into so many, which no tile crosses. `shape` says the
    sizes of tensors: where some are open until the call, and it knows them, they are dimensions of their own, and
    `number` gives them as values. Where an operand is `converted`, "left" or "right", all of the tensor that it lies in
    is, so that it is read behind a slice that alone reads a tensor and takes no more than half of it."""
    left, left_roles = _in_front(found.left, found.left_roles, rows_together, shape, number, "left" in converted)
    found = replace(found, left=left, left_roles=left_roles)
    return with_split_right(found, shape, number, "right" in converted)


def with_split_right(
    found: Contraction, shape: Shape, number: Callable[[int], ir.Value], is_converted: bool = False
) -> Contraction:
    """The same, of the right operand alone."""
    right, right_roles = _in_front(found.right, found.right_roles, 0, shape, number, is_converted)
    return replace(found, right=right, right_roles=right_roles)


def stored_apart(value: ir.Value, rows_together: int = 0, shape: Shape = rows.shape_of) -> Stored | None:
    """The reshapes and transposes that alone read a product's result (b x m x n), up to the last transpose; None where
    there is none, or columns are not its last dimension. Rows may be cut into so many, which no tile crosses."""
    sizes, found = shape(value), None
    if rows.DYNAMIC in sizes or len(sizes) != 3:
        return None
    dims: list[list[_Dim]] | None = [[_Dim(n, r, together=rows_together)] for n, r in zip(sizes, "bmn")]
    operations: list[ir.Operation] = []
    while (op := _only_mover(value)) is not None and (dims := _onwards(op, dims, shape)) is not None:
        operations.append(op)
        value = op.results[0]
        flat = [dim for own in dims for dim in own]
        known = all(open_sizes.is_alone(dim.size) for dim in flat if open_sizes.is_open(dim.size))
        is_last = op.name == "linalg.transpose" and flat[-1].role == "n" and known and _has_own(("m", "n"), dims)
        if is_last and (rows_together or len(flat) == len(dims)):
            found = Stored(tuple(operations), tuple(dim.name for dim in flat), tuple(dim.size for dim in flat))
    return found


def has_open_parts(roles: Iterable[str]) -> bool:
    """Whether a dimension is a part of another one that numbers which are open until the call say."""
    return any(open_sizes.is_open(int(number)) for role in roles for number in re.findall(r"\d+", role))


def along(roles: Roles, role: str) -> int:
    """The dimension of a tensor along which neighbours of a role, "m", "n" or "k", lie."""
    return next(d for d, own in enumerate(roles) if own == role or own.startswith(f"{role}/1%"))


def offsets_of(
    roles: Roles, place: dict[str, ir.Value], size: Callable[[int], ir.Value] = constant_index
) -> list[ir.Value]:
    """Where a tile lies in each dimension of a tensor with these roles. Where rows are cut, `place` has the first row
    that lies with the tile's, "apart", and how far behind that it is, "together". `size` gives sizes as values."""
    return [_offset(role, place, size) for role in roles]


def _offset(role: str, place: dict[str, ir.Value], value_of: Callable[[int], ir.Value]) -> ir.Value:
    if role.startswith("="):
        return constant_index(int(role[1:]))
    name, _, part = role.partition("/")
    found = place[name]
    if part:
        part, _, behind = part.partition("+")
        step, _, size = part.partition("%")
        if name == "m":  # the place among rows that lie together may be behind the last of them
            if step == "1":
                return place["together"]
            found = place["apart"]
        found = found if step == "1" else arith.divui(found, value_of(int(step)))
        found = arith.remui(found, value_of(int(size))) if size else found
        found = arith.addi(found, constant_index(int(behind))) if behind else found
    return found


@dataclass(frozen=True)
class _Dim:
    """A dimension of a tensor, or a part of one: its size and its role. Of the batch it is number b / `step`, modulo
    how many are `taken`, or else its size, unless it is the `first`, `number` further; of role "=" it is `number`. Rows
    are cut into as many as are `together` alone."""

    size: int
    role: str
    step: int = 1
    first: bool = True
    number: int = 0
    together: int = 0
    taken: int = 0

    @property
    def name(self) -> str:
        if self.role == "=":
            return f"={self.number}"
        if self.first and self.step == 1 and not self.number:
            return self.role
        modulo = "" if self.first else f"%{self.taken or self.size}"
        return f"{self.role}/{self.step}{modulo}" + (f"+{self.number}" if self.number else "")

    def cut(self, size: int) -> tuple[_Dim, _Dim] | None:
        """Two in its place, the second of this size; None where it is not cut."""
        may = self.role in ("b", "=") or self.role == "m" and (self.step > 1 or size == self.together)
        if self.size % size or not may or self.taken:
            return None
        outer = replace(self, size=self.size // size, step=self.step * size, number=self.number // size)
        return outer, replace(self, size=size, first=False, number=self.number % size)


def _in_front(
    value: ir.Value,
    roles: Roles,
    rows_together: int,
    shape: Shape,
    number: Callable[[int], ir.Value],
    is_converted: bool,
) -> tuple[ir.Value, Roles]:
    """The tensor that an operand's elements lie in, cut into dimensions of which each has one role."""
    found, dims = lies(value, roles, rows_together, shape, is_converted)
    names = tuple(dim.name for dim in dims)
    if found == value and names in ((), roles):
        return value, roles
    return _shaped(found, [dim.size for dim in dims], shape, number), names


def lies(
    value: ir.Value, roles: Roles, rows_together: int, shape: Shape, is_converted: bool = False
) -> tuple[ir.Value, list[_Dim]]:
    """The tensor that an operand's elements lie in, and what it is to be cut into; nothing where its sizes are not
    known."""
    sizes, found = shape(value), value
    if rows.DYNAMIC in sizes:
        return value, []
    dims: list[list[_Dim]] | None = [[_Dim(n, role, together=rows_together)] for n, role in zip(sizes, roles)]
    flat = _apart(dims)
    while dims is not None and (op := rows.producer(value)) is not None and len(op.operands):
        if is_converted and _takes_little(op, shape):
            break
        dims = _through(op, dims, shape)
        if dims is None or not _has_own(roles, dims):
            break
        value, own = op.operands[0], _few(_apart(dims))
        if op.name not in rows.RESHAPES and _is_copied(own):
            found, flat = value, own
    return found, flat


def _takes_little(op: ir.Operation, shape: Shape) -> bool:
    """Whether an operation is a slice that alone reads a tensor, or a reshape of one, and takes half of it at most."""
    if op.name != "tensor.extract_slice" or 2 * prod(shape(op.results[0])) > prod(shape(op.operands[0])):
        return False
    before: ir.Operation | None = op
    while before is not None and (before is op or before.name in rows.RESHAPES):
        value = before.operands[0]
        readers = [user for user in users_of(value) if user.name != "tensor.dim"]
        if readers[1:]:
            return False
        before = rows.producer(value)
    return True


def _has_own(roles: Roles, dims: list[list[_Dim]]) -> bool:
    """Whether the dimensions of a product's own are still among these: one of a single element may be lost."""
    left = {dim.role for own in dims for dim in own}
    return all(role in left for role in roles if role in ("m", "n", "k"))


def _apart(dims: list[list[_Dim]]) -> list[_Dim]:
    """Dimensions, of which those that are open until the call are no part of another one."""
    found: list[_Dim] = []
    for dim in (dim for own in dims for dim in own):
        inner = dim.together if dim.role == "m" else open_sizes.factors(dim.size)[0]
        is_part = open_sizes.is_open(dim.size) and not open_sizes.is_alone(dim.size)
        found += (dim.cut(inner) if is_part and inner else None) or [dim]
    return found


def _few(dims: list[_Dim]) -> list[_Dim]:
    """As few dimensions as boxes have, if need be: parts of the batch that lie behind one another are one, and so are
    one of which a number is always taken, such as that of the keys, and the part of the batch behind it."""
    for i, (one, part) in enumerate(pairwise(dims)):
        if len(dims) <= MOST_DIMENSIONS:
            break
        if part.role != "b" or part.first or part.number or part.taken or open_sizes.is_open(one.size):
            continue
        size = one.size * part.size
        if one.role == "=":
            both = replace(part, size=size, number=one.number * part.size, taken=part.size)
        elif one.role == "b" and one.step == part.step * part.size and not (one.number or one.taken):
            both = replace(one, size=size, step=part.step)
        else:
            continue
        return _few([*dims[:i], both, *dims[i + 2 :]])
    return dims


def _is_copied(dims: Sequence[_Dim]) -> bool:
    """Whether a tensor of such dimensions can be copied by boxes, or stored."""
    known = all(open_sizes.is_alone(dim.size) for dim in dims if open_sizes.is_open(dim.size))
    return known and len(dims) <= MOST_DIMENSIONS and dims[-1].role in ("m", "n", "k")


def rows_together(found: Contraction, least: int, shape: Shape = rows.shape_of) -> int:
    """How many rows of the left operand, at least so many, lie apart from the others where they lie; 0 where all do so
    alike. A kernel whose tiles do not cross these reads them there."""
    if lies(found.left, found.left_roles, 0, shape)[0] != found.left:
        return 0
    value, rows_ = found.left, shape(found.left)[found.left_roles.index("m")]
    sizes, before = set[int](), rows.producer(value)
    while before is not None and before.name in (*rows.RESHAPES, "linalg.transpose"):
        sizes |= set(shape(before.operands[0]))
        before = rows.producer(before.operands[0])
    for size in sorted(sizes, reverse=True):
        if least <= size < rows_ and rows_ % size == 0 and lies(value, found.left_roles, size, shape)[0] != value:
            return size
    return 0


def _shaped(value: ir.Value, sizes: Sequence[int], shape: Shape, number: Callable[[int], ir.Value]) -> ir.Value:
    """A tensor as one of these sizes, of which `number` gives open ones as values."""
    op, several = rows.producer(value), sum(map(open_sizes.is_open, sizes)) > 1
    if op is not None and op.name in rows.RESHAPES and rows.shape_of(op.operands[0]) == list(map(or_dynamic, sizes)):
        if not several or shape(op.operands[0]) == list(sizes):
            return op.operands[0]
    here = ir.InsertionPoint.at_block_begin(value.owner) if op is None else ir.InsertionPoint.after(op)
    with here:
        if several:
            return reshaped_as(value, shape(value), sizes, number)
        return reshaped(value, list(map(or_none, sizes)))


def _through(op: ir.Operation, dims: list[list[_Dim]], shape: Shape) -> list[list[_Dim]] | None:
    """What the dimensions of an operation's result are in its operand; None where that is not known."""
    if not rows.is_tensor(op.operands[0]) or rows.DYNAMIC in (source := shape(op.operands[0])):
        return None
    if op.name == "tensor.collapse_shape":
        return _parted(dims, rows.groups_of(op), source)
    if op.name == "tensor.expand_shape":
        return _joined(dims, rows.groups_of(op))
    if op.name == "linalg.transpose":
        found: list[list[_Dim]] = [[] for _ in dims]
        for own, axis in zip(dims, permutation_of(op)):
            found[axis] = own
        return found
    if op.name == "tensor.extract_slice":
        return _sliced(op, dims, source, shape(op.results[0]))
    return _repeated(op, dims) if op.name == "linalg.generic" else None


def _cut(dims: list[_Dim], sizes: Sequence[int]) -> list[list[_Dim]] | None:
    """Neighbouring dimensions that become these."""
    left, found = list(dims), []
    for size in reversed(sizes):
        own: list[_Dim] = []
        while prod(dim.size for dim in own) < size and left:
            last, rest = left.pop(), size // prod(dim.size for dim in own)
            if last.size > rest:
                cut = last.cut(rest)
                if cut is None:
                    return None
                left.append(cut[0])
                last = cut[1]
            own.insert(0, last)
        if prod(dim.size for dim in own) != size:
            return None
        found.insert(0, own or [_Dim(1, "=")])
    return found if prod(dim.size for dim in left) == 1 else None


def _sliced(
    op: ir.Operation, dims: list[list[_Dim]], source: Sequence[int], sizes: Sequence[int]
) -> list[list[_Dim]] | None:
    """The same for a slice of such sizes: of each dimension all, some of what the batch is a part of, such as heads, or
    one of several equal parts; or some of these of which another slice takes some."""
    offsets, _, strides = slice_of(op)
    found = []
    if len(dims) != len(source) or any(stride != 1 for stride in strides) or rows.DYNAMIC in offsets:
        return None
    for own, offset, size, whole in zip(dims, offsets, sizes, source):
        inner = size // own[0].size
        if size == whole:
            found.append(own)
        elif size > 1 and own[0].role in ("b", "=") and not (whole % inner or offset % inner):
            some = replace(own[0], size=whole // inner, number=own[0].number + offset // inner)
            found.append([replace(some, taken=own[0].taken or own[0].size if own[0].role == "b" else 0), *own[1:]])
        elif not (whole % size or offset % size):
            found.append([_Dim(whole // size, "=", number=offset // size), *(own if size > 1 else ())])
        else:
            return None
    return found


def _repeated(op: ir.Operation, dims: list[list[_Dim]]) -> list[list[_Dim]] | None:
    """The same for an operator that gives elements of one tensor as they are, perhaps several times."""
    s = rows.Structured(op)
    body = list(s.body.operations)
    if s.inputs != 1 or len(op.results) != 1 or len(body) != 1 or body[0].operands[0] != s.body.arguments[0]:
        return None
    loops = [rows.dim_of(expr) for expr in s.maps[0].results]
    if s.maps[1] != ir.AffineMap.get_identity(len(dims)) or None in loops or len(set(loops)) != len(loops):
        return None
    gone = [dim for d, own in enumerate(dims) if d not in loops for dim in own]
    return [dims[d] for d in loops if d is not None] if all(dim.role in ("b", "=") for dim in gone) else None


def _only_mover(value: ir.Value) -> ir.Operation | None:
    """The reshape or transpose that alone reads a tensor."""
    user = only_user(value)
    return user if user is not None and user.name in (*rows.RESHAPES, "linalg.transpose") else None


def _onwards(op: ir.Operation, dims: list[list[_Dim]], shape: Shape) -> list[list[_Dim]] | None:
    """What the dimensions of a tensor are in what a reshape or a transpose makes of it; None where they are none."""
    if op.name == "linalg.transpose":
        return [dims[axis] for axis in permutation_of(op)]
    if op.name == "tensor.collapse_shape":
        return _joined(dims, rows.groups_of(op))
    return _parted(dims, rows.groups_of(op), shape(op.results[0]))


def _joined(dims: list[list[_Dim]], groups: list[list[int]]) -> list[list[_Dim]]:
    """Dimensions of which groups become one each."""
    return [[dim for d in group for dim in dims[d] if dim.size > 1] or dims[group[0]] for group in groups]


def _parted(dims: list[list[_Dim]], groups: list[list[int]], sizes: Sequence[int]) -> list[list[_Dim]] | None:
    """Dimensions each of which becomes a group of these sizes; None where they are not cut so."""
    cut = [_cut(own, [sizes[d] for d in group]) for own, group in zip(dims, groups)]
    return None if None in cut else [own for group in cut for own in group]
