"""Matrix products, found by their indexing maps and bodies whatever the operation is called."""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.operations import made_by, permutation_of

from .example_sizes import shape_of
from .mlir import ir, linalg

NAMES = ("linalg.matmul", "linalg.batch_matmul", "linalg.generic", "linalg.contract")
Roles = tuple[str, ...]  # of each dimension of an operand: "b" batch, "m" row, "n" column, "k" summed
NUMBERED = "@"  # the role of a dimension along which numbers say where each b is


@dataclass(frozen=True)
class Numbers:
    """Which matrix each product of a batch takes: an integer for each, one of `size`. Where they are `wrapped` negative
    ones are counted from the end. `location` is what takes the matrices."""

    tensor: ir.Value
    size: int
    wrapped: bool
    location: ir.Location

    @property
    def part(self) -> float:
        """Of all matrices the part that products read, by the example where their number is open until the call."""
        return min(1.0, shape_of(self.tensor)[0] / self.size)


@dataclass(frozen=True)
class Contraction:
    """left (m x k) times right (k x n) added to init, perhaps for each b; dimensions in the order of the roles. One
    operand may have its matrices along a dimension that is NUMBERED, by these `numbers`."""

    left: ir.Value
    right: ir.Value
    init: ir.Value
    left_roles: Roles
    right_roles: Roles
    numbers: Numbers | None = None


def match_product(op: ir.Operation) -> Contraction | None:
    """The product that `op` computes, or None when it is anything else."""
    if len(op.operands) != 3 or len(op.results) != 1 or len(op.regions) != 1 or not _multiplies_and_adds(op):
        return None  # a reshape to two open sizes has three operands, too
    maps = linalg.get_indexing_maps(op)
    if maps is None:
        return None
    dims = [_dimensions(attr.value) for attr in maps]
    if any(found is None for found in dims):
        return None
    left, right, result = dims
    roles = _roles(left, right, result)
    if roles is None:
        return None
    a, b, init = op.operands
    if not _computable(a.type.element_type, b.type.element_type, init.type.element_type):
        return None
    a, left_roles = _through_transpose(a, tuple(roles[d] for d in left))
    b, right_roles = _through_transpose(b, tuple(roles[d] for d in right))
    return Contraction(a, b, init, left_roles, right_roles)


def is_zero_filled(value: ir.Value) -> bool:
    """Whether a tensor is `linalg.fill` of a constant zero."""
    if made_by(value, "linalg.fill") is None:
        return False
    source = value.owner.operands[0].owner
    if isinstance(source, ir.Block) or source.name != "arith.constant":
        return False
    return source.attributes["value"].value == 0


def _multiplies_and_adds(op: ir.Operation) -> bool:
    """The body is `yield(c + a * b)`, operands perhaps widened first; signed integers only."""
    body = list(op.regions[0].blocks[0].operations)
    names = [inner.operation.name for inner in body]
    widened = [name for name in names if name not in ("arith.extf", "arith.extsi")]
    if widened not in (["arith.mulf", "arith.addf", "linalg.yield"], ["arith.muli", "arith.addi", "linalg.yield"]):
        return False
    product, total = body[-3].operation, body[-2].operation
    arguments = op.regions[0].blocks[0].arguments
    factors = {_argument(value) for value in product.operands}
    terms = [value for value in total.operands if value != product.results[0]]
    return (
        factors == {0, 1} and len(terms) == 1 and terms[0] == arguments[2] and body[-1].operands[0] == total.results[0]
    )


def _argument(value: ir.Value) -> int | None:
    """The number of the block argument that `value` is, or is widened from."""
    while not isinstance(value.owner, ir.Block):
        if value.owner.name not in ("arith.extf", "arith.extsi"):
            return None
        value = value.owner.operands[0]
    return ir.BlockArgument(value).arg_number


def _dimensions(found: ir.AffineMap) -> list[int] | None:
    """The loop dimension of each tensor dimension, or None for a map that is no projected permutation."""
    dims = []
    for expression in found.results:
        if not isinstance(expression, ir.AffineDimExpr):
            return None
        dims.append(ir.AffineDimExpr(expression).position)
    return dims if len(set(dims)) == len(dims) else None


def _roles(left: list[int], right: list[int], result: list[int]) -> dict[int, str] | None:
    roles = {}
    for d in {*left, *right, *result}:
        where = (d in left, d in right, d in result)
        role = {(True, True, True): "b", (True, False, True): "m", (False, True, True): "n", (True, True, False): "k"}
        if where not in role:
            return None
        roles[d] = role[where]
    if len(result) == 3 and len(set(roles.values())) < 4:
        roles[result[0]] = "b"  # a batch of which one operand is the same throughout
    named = [roles[d] for d in result]
    one_of_each = sorted(roles.values()) in (["k", "m", "n"], ["b", "k", "m", "n"])
    return roles if one_of_each and named in (["m", "n"], ["b", "m", "n"]) else None


def _computable(left: ir.Type, right: ir.Type, result: ir.Type) -> bool:
    floats = (ir.BF16Type, ir.F16Type, ir.F32Type, ir.F64Type)
    if all(any(isinstance(t, kind) for kind in floats) for t in (left, right, result)):
        return max(left.width, right.width) <= result.width
    integers = all(isinstance(t, ir.IntegerType) for t in (left, right, result))
    return integers and result.width in (32, 64) and max(left.width, right.width) <= result.width


def _through_transpose(value: ir.Value, roles: Roles) -> tuple[ir.Value, Roles]:
    if made_by(value, "linalg.transpose") is None:
        return value, roles
    permutation = permutation_of(value.owner)
    source = [""] * len(roles)
    for role, axis in zip(roles, permutation, strict=True):
        source[axis] = role
    if source[-1] == "b":
        return value, roles  # no row or column of one product would have neighbours
    return value.owner.operands[0], tuple(source)
