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
batch, or "=N", always N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, Roles
from kitsune_mlir.mlir import arith, ir, slice_of

from .schedule_build import constant_index, reshaped

MOST_DIMENSIONS = 5  # of a tensor that is copied by boxes (CUDA driver API, cuTensorMapEncodeTiled)
_GROUPS = [[0, 1], [2], [3]]


@dataclass(frozen=True)
class Stored:
    """How a product's result is wanted: as the last of these operations gives it, with these roles of its
    dimensions."""

    operations: tuple[ir.Operation, ...]
    roles: Roles


def is_batch(role: str) -> bool:
    """Whether a dimension is the batch, or a part of it."""
    return role.startswith("b")


def with_split_batches(found: Contraction) -> Contraction:
    """The product, of operands where they lie."""
    left, left_roles = _in_front(found.left, found.left_roles)
    right, right_roles = _in_front(found.right, found.right_roles)
    return replace(found, left=left, right=right, left_roles=left_roles, right_roles=right_roles)


def stored_apart(value: ir.Value) -> Stored | None:
    """The transpose that alone reads a product's result (b x m x n), its batch perhaps as two dimensions; None where
    there is none, or columns are not its last dimension."""
    expansion = _only_user(value, "tensor.expand_shape")
    transpose = _only_user(value if expansion is None else expansion.results[0], "linalg.transpose")
    kind = ir.RankedTensorType(value.type)
    if transpose is None or not kind.has_static_shape or kind.rank != 3:
        return None
    roles: Roles = ("b", "m", "n")
    if expansion is not None:
        inner = ir.RankedTensorType(expansion.results[0].type).shape[1]
        roles = (f"b/{inner}", f"b/1%{inner}", "m", "n")
    permutation = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
    if permutation[-1] != len(roles) - 1 or (expansion is not None and _groups(expansion) != _GROUPS):
        return None
    stored = tuple(roles[d] for d in permutation)
    return Stored((transpose,) if expansion is None else (expansion, transpose), stored)


def offsets_of(roles: Roles, place: dict[str, ir.Value]) -> list[ir.Value]:
    """Where a tile lies in each dimension of a tensor with these roles."""
    return [_offset(role, place) for role in roles]


def _offset(role: str, place: dict[str, ir.Value]) -> ir.Value:
    if role.startswith("="):
        return constant_index(int(role[1:]))
    name, _, part = role.partition("/")
    found = place[name]
    if part:
        step, _, size = part.partition("%")
        found = found if step == "1" else arith.divui(found, constant_index(int(step)))
        found = arith.remui(found, constant_index(int(size))) if size else found
    return found


@dataclass(frozen=True)
class _Dim:
    """A dimension of a tensor, or a part of one: its size and its role. Of the batch it is number b / `step`, modulo
    its size unless it is the `first`; of role "=" it is `number`."""

    size: int
    role: str
    step: int = 1
    first: bool = True
    number: int = 0

    @property
    def name(self) -> str:
        if self.role == "=":
            return f"={self.number}"
        if self.role != "b" or self.first and self.step == 1:
            return self.role
        return f"b/{self.step}" + ("" if self.first else f"%{self.size}")

    def cut(self, size: int) -> tuple[_Dim, _Dim] | None:
        """Two in its place, the second of this size; None where it is not cut."""
        if self.size % size or self.role not in ("b", "="):
            return None
        outer = replace(self, size=self.size // size, step=self.step * size, number=self.number // size)
        return outer, replace(self, size=size, first=False, number=self.number % size)


def _in_front(value: ir.Value, roles: Roles) -> tuple[ir.Value, Roles]:
    """The tensor that an operand's elements lie in, cut into dimensions of which each has one role."""
    kind = ir.RankedTensorType(value.type)
    if not kind.has_static_shape:
        return value, roles
    found, flat = value, list[_Dim]()
    dims: list[list[_Dim]] | None = [[_Dim(size, role)] for size, role in zip(kind.shape, roles)]
    while (op := rows.producer(value)) is not None and len(op.operands):
        dims = _through(op, dims)
        if dims is None:
            break
        value, own = op.operands[0], [dim for own in dims for dim in own]
        if op.name not in rows.RESHAPES and len(own) <= MOST_DIMENSIONS and own[-1].role in ("m", "n", "k"):
            found, flat = value, own
    if not flat:
        return found, roles
    return _shaped(found, [dim.size for dim in flat]), tuple(dim.name for dim in flat)


def _shaped(value: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """A tensor as one of these sizes."""
    op = rows.producer(value)
    if op is not None and op.name in rows.RESHAPES and rows.shape_of(op.operands[0]) == list(sizes):
        return op.operands[0]
    here = ir.InsertionPoint.at_block_begin(value.owner) if op is None else ir.InsertionPoint.after(op)
    with here:
        return reshaped(value, sizes)


def _through(op: ir.Operation, dims: list[list[_Dim]]) -> list[list[_Dim]] | None:
    """What the dimensions of an operation's result are in its operand; None where that is not known."""
    if not rows.is_tensor(op.operands[0]) or rows.DYNAMIC in rows.shape_of(op.operands[0]):
        return None
    source = ir.RankedTensorType(op.operands[0].type)
    if op.name == "tensor.collapse_shape":
        cut = [_cut(own, [source.shape[d] for d in group]) for own, group in zip(dims, _groups(op))]
        return None if None in cut else [own for group in cut for own in group]
    if op.name == "tensor.expand_shape":
        return [[dim for d in group for dim in dims[d] if dim.size > 1] or dims[group[0]] for group in _groups(op)]
    if op.name == "linalg.transpose":
        found: list[list[_Dim]] = [[] for _ in dims]
        for own, axis in zip(dims, ir.DenseI64ArrayAttr(op.attributes["permutation"])):
            found[axis] = own
        return found
    if op.name == "tensor.extract_slice" and len(op.operands) == 1:
        return _sliced(op, dims)
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


def _sliced(op: ir.Operation, dims: list[list[_Dim]]) -> list[list[_Dim]] | None:
    """Of a slice that has all, or one, of each dimension."""
    offsets, sizes, strides = slice_of(op)
    found, source = [], ir.RankedTensorType(op.operands[0].type).shape
    if len(dims) != len(source) or any(stride != 1 for stride in strides):
        return None
    for own, offset, size, whole in zip(dims, offsets, sizes, source):
        if size not in (1, whole):
            return None
        found.append(own if size == whole else [_Dim(whole, "=", number=offset)])
    return found


def _repeated(op: ir.Operation, dims: list[list[_Dim]]) -> list[list[_Dim]] | None:
    """Of an operator that gives elements of one tensor as they are, perhaps several times."""
    s = rows.Structured(op)
    body = list(s.body.operations)
    if s.inputs != 1 or len(op.results) != 1 or len(body) != 1 or body[0].operands[0] != s.body.arguments[0]:
        return None
    loops = [rows.dim_of(expr) for expr in s.maps[0].results]
    if s.maps[1] != ir.AffineMap.get_identity(len(dims)) or None in loops or len(set(loops)) != len(loops):
        return None
    gone = [dim for d, own in enumerate(dims) if d not in loops for dim in own]
    return [dims[d] for d in loops if d is not None] if all(dim.role in ("b", "=") for dim in gone) else None


def _only_user(value: ir.Value, name: str) -> ir.Operation | None:
    users = [use.owner.operation for use in value.uses]
    return users[0] if len(users) == 1 and users[0].name == name else None


def _groups(reshape: ir.Operation) -> list[list[int]]:
    groups = ir.ArrayAttr(reshape.attributes["reassociation"])
    return [[ir.IntegerAttr(d).value for d in ir.ArrayAttr(group)] for group in groups]
