"""Batches of products that are two dimensions of a tensor, which need not be neighbours: heads of attention.

Projections have the heads of a sequence side by side, products want them apart, so that models transpose:

    %t = linalg.transpose ins(%x : tensor<128x100x4x64xbf16>) ... permutation = [0, 2, 1, 3]
    %q = tensor.collapse_shape %t [[0, 1], [2], [3]] : ... into tensor<512x100x64xbf16>
    %p = linalg.batch_matmul ins(%q, ...)

Copies of boxes and stores of tiles take an offset for each dimension, so that a kernel reads %x, or writes the tensor
in front of such a transpose, where the heads lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kitsune_mlir.contraction import Contraction, Roles
from kitsune_mlir.mlir import arith, ir

from .schedule_build import constant_index

OUTER, INNER = "b0", "b1"  # the roles of the two dimensions
_GROUPS = [[0, 1], [2], [3]]


@dataclass(frozen=True)
class Stored:
    """How a product's result is wanted: as the last of these operations gives it, with these roles of its dimensions,
    of which INNER, where it is one, has the size `inner`."""

    operations: tuple[ir.Operation, ...]
    roles: Roles
    inner: int = 1


def with_split_batches(found: Contraction) -> Contraction:
    """The product, of operands in front of such transposes."""
    left, left_roles = _in_front(found.left, found.left_roles)
    right, right_roles = _in_front(found.right, found.right_roles)
    return replace(found, left=left, right=right, left_roles=left_roles, right_roles=right_roles)


def stored_apart(value: ir.Value) -> Stored | None:
    """The transpose that alone reads a product's result (b x m x n), its batch perhaps as two dimensions; None where
    there is none, or columns are not its last dimension."""
    expansion = _only_user(value, "tensor.expand_shape")
    transpose = _only_user(value if expansion is None else expansion.results[0], "linalg.transpose")
    if transpose is None or not _is_static(value) or ir.RankedTensorType(value.type).rank != 3:
        return None
    roles = ("b", "m", "n") if expansion is None else (OUTER, INNER, "m", "n")
    permutation = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
    if permutation[-1] != len(roles) - 1 or (expansion is not None and _groups(expansion) != _GROUPS):
        return None
    stored = tuple(roles[d] for d in permutation)
    if expansion is None:
        return Stored((transpose,), stored)
    return Stored((expansion, transpose), stored, ir.RankedTensorType(expansion.results[0].type).shape[1])


def offsets_of(roles: Roles, sizes: dict[str, int], place: dict[str, ir.Value]) -> list[ir.Value]:
    """Where a tile lies in each dimension of a tensor with these roles; `sizes` has that of INNER."""
    found = []
    for role in roles:
        if role == OUTER:
            found.append(arith.divui(place["b"], constant_index(sizes[INNER])))
        elif role == INNER:
            found.append(arith.remui(place["b"], constant_index(sizes[INNER])))
        else:
            found.append(place[role])
    return found


def inner_size(value: ir.Value, roles: Roles) -> dict[str, int]:
    """The size of the batch's second dimension in a tensor, by its role; of another tensor nothing."""
    return {INNER: ir.RankedTensorType(value.type).shape[roles.index(INNER)]} if INNER in roles else {}


def _in_front(value: ir.Value, roles: Roles) -> tuple[ir.Value, Roles]:
    collapse = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if collapse is None or collapse.name != "tensor.collapse_shape" or "b" not in roles or not _is_static(value):
        return value, roles
    at = roles.index("b")
    groups = _groups(collapse)
    inside = collapse.operands[0].owner
    transpose = None if isinstance(inside, ir.Block) else inside.operation
    sizes = [len(group) for group in groups]
    if transpose is None or transpose.name != "linalg.transpose" or sizes != [1 + (d == at) for d in range(3)]:
        return value, roles
    split = [*roles[:at], OUTER, INNER, *roles[at + 1 :]]
    permutation = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
    found = [""] * len(split)
    for role, source in zip(split, permutation, strict=True):
        found[source] = role
    if found[-1] in (OUTER, INNER):
        return value, roles
    return transpose.operands[0], tuple(found)


def _only_user(value: ir.Value, name: str) -> ir.Operation | None:
    users = [use.owner.operation for use in value.uses]
    return users[0] if len(users) == 1 and users[0].name == name else None


def _groups(reshape: ir.Operation) -> list[list[int]]:
    groups = ir.ArrayAttr(reshape.attributes["reassociation"])
    return [[ir.IntegerAttr(d).value for d in ir.ArrayAttr(group)] for group in groups]


def _is_static(value: ir.Value) -> bool:
    return ir.RankedTensorType(value.type).has_static_shape
