"""Products of few rows, or of few columns, as row groups: what schedule-rows makes kernels of, with what follows. Those
of short sums as elementwise operators, which convert-linalg-to-gpu fuses with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, Roles
from kitsune_mlir.dialects.windows import in_memory
from kitsune_mlir.generics import extended, generic, map_of
from kitsune_mlir.mlir import arith, ir, tensor
from kitsune_mlir.operations import element_type, permutation_of, users_of
from kitsune_mlir.planning.target import Target
from kitsune_mlir.planning.thin_products import across_us, elementwise_us, thin_us
from kitsune_mlir.traffic import tensor_bytes

from .convolution_operands import transposed
from .reshapes import reshaped, slice_at
from .tensor_sizes import or_none

THIN = "kitsune.thin"  # marks a linalg.generic that is one for schedule-rows
_F32 = ir.F32Type
_16_BITS = ir.BF16Type | ir.F16Type


def has_windows(found: Contraction) -> bool:
    """Whether an operand is a matrix of windows, which is in no memory: a kernel on tensor cores alone reads it."""
    return any(in_memory(value) != value for value in (found.left, found.right))


def predicted_us(found: Contraction, sizes: dict[str, int | None], target: Target) -> float | None:
    """Microseconds of a product as a row group, by the sizes of its roles; None where it is not known to be one."""
    element = element_type(found.left)
    known = {role: size for role, size in sizes.items() if size is not None}
    if found.numbers is not None or has_windows(found):
        return None  # matrices that numbers name, and windows, are in no memory
    operands = (found.left, found.left_roles), (found.right, found.right_roles)
    along = all(_long(*operand)[-1] == "k" for operand in operands)
    if not along or known.keys() != sizes.keys() or not isinstance(element, _F32 | _16_BITS):
        return None
    few, many = sorted((known["m"], known["n"]))
    return thin_us(few, many * known.get("b", 1), known["k"], element.width // 8, target)


def along_k(found: Contraction) -> Contraction:
    """The product, of operands whose rows lie along k in memory, where matrices are turned before a batch is made of
    their other dimensions."""
    left, left_roles = _rows_along_k(found.left, found.left_roles)
    right, right_roles = _rows_along_k(found.right, found.right_roles)
    return replace(found, left=left, left_roles=left_roles, right=right, right_roles=right_roles)


def _rows_along_k(value: ir.Value, roles: Roles) -> tuple[ir.Value, Roles]:
    """collapse_shape (transpose %x) is a collapse_shape of %x where two last dimensions alone are turned."""
    collapse = rows.producer(value)
    if len(roles) != 3 or roles[0] != "b" or roles[1] != "k" or collapse is None:
        return value, roles
    turned = rows.producer(collapse.operands[0]) if collapse.name == "tensor.collapse_shape" else None
    if turned is None or turned.name != "linalg.transpose":
        return value, roles
    rank = ir.RankedTensorType(turned.operands[0].type).rank
    order = permutation_of(turned)
    if order != [*range(rank - 2), rank - 1, rank - 2]:
        return value, roles
    groups = [list(range(rank - 2)), [rank - 2], [rank - 1]]
    shape = rows.shape_of(value)
    kind = ir.RankedTensorType.get([shape[0], shape[2], shape[1]], element_type(value))
    with collapse.location, ir.InsertionPoint.after(collapse):
        own = tensor.CollapseShapeOp(kind, turned.operands[0], groups).result
    return own, ("b", roles[2], "k")


def _long(value: ir.Value, roles: Roles) -> Roles:
    """The roles of an operand's dimensions that have more than one element, or all where k has one."""
    sizes = dict(zip(roles, ir.RankedTensorType(value.type).shape, strict=True))
    return roles if sizes["k"] == 1 else tuple(role for role in roles if sizes[role] != 1)


def across_predicted_us(found: Contraction, sizes: dict[str, int | None], target: Target) -> float | None:
    """The same of a product across the rows of both operands, as sums over rows."""
    m, n, k = (sizes.get(role) for role in "mnk")
    element = element_type(found.left)
    across = (found.left_roles, found.right_roles) == (("k", "m"), ("k", "n"))
    if not across or m is None or n is None or k is None or has_windows(found):
        return None
    return across_us(m, n, k, element.width // 8, target)


def elementwise_predicted_us(
    op: ir.Operation, found: Contraction, sizes: dict[str, int], target: Target
) -> float | None:
    """The same as an elementwise operator, of these sizes; None where it is not known to be one."""
    wide = isinstance(element_type(found.left), _F32 | _16_BITS)
    if found.numbers is not None or not wide or has_windows(found):
        return None
    moved = [found.left, found.right, *([] if _is_summed(op.results[0]) else [op.results[0]])]
    last = next((role for role in "nmb" if sizes.get(role, 1) != 1), "n")  # along which results are neighbours
    turned = _is_turned(found)
    moved += 2 * turned * [found.right]
    apart = last in found.left_roles and found.left_roles[-1] != last
    apart = apart or last in found.right_roles and found.right_roles[-1] != last and not turned
    results = prod(size for role, size in sizes.items() if role != "k")
    return elementwise_us(results, sizes["k"], sum(map(tensor_bytes, moved)), target, apart)


def _is_turned(found: Contraction) -> bool:
    """Whether the right operand has rows of terms, of which columns are made first."""
    return found.right_roles[-1] == "k"


def _is_summed(value: ir.Value) -> bool:
    """Whether sums of its elements, or of what elementwise operators make of them, are all that reads it: they are of
    one kernel with it, and nothing else is written."""
    while len(uses := [user for user in users_of(value) if user.name != "tensor.dim"]) == 1:
        reader = uses[0]
        if reader.name == "linalg.generic":
            s = rows.Structured(reader)
            if "reduction" in s.iterators:
                return True
            if not s.is_elementwise():
                return False
        elif reader.name not in (*rows.RESHAPES, "linalg.transpose"):
            return False
        value = reader.results[0]
    return False


def by_elements(op: ir.Operation, found: Contraction) -> ir.Value:
    """The same sums by a linalg.generic over (b,) m and n, each operand once for each term, in front of the product,
    whose sums begin at zero. Of rows of terms, which the last loop would read at a distance, columns are made first."""
    roles = [role for role in "bmn" if role in found.left_roles + found.right_roles]
    with op.location, ir.InsertionPoint(op):
        operands, maps = list[ir.Value](), list[ir.AffineMap]()
        for value, own in ((found.left, found.left_roles), (found.right, found.right_roles)):
            if "n" in own and _is_turned(found):
                order = [len(own) - 1, *range(len(own) - 1)]
                value, own = transposed(value, order), tuple(own[d] for d in order)
            map_ = map_of(len(roles), [roles.index(role) for role in own if role != "k"])
            for term in range(rows.shape_of(value)[own.index("k")]):
                operands.append(slice_at(value, {own.index("k"): term}))
                maps.append(map_)
        maps.append(ir.AffineMap.get_identity(len(roles)))

        def total(*given: ir.Value) -> ir.Value:
            wide = _widened(given)
            half = len(wide) // 2
            return reduce(arith.addf, [arith.mulf(a, b) for a, b in zip(wide[:half], wide[half:], strict=True)])

        return generic(operands, [found.init], maps, ["parallel"] * len(roles), total).results[0]


def by_rows(op: ir.Operation, found: Contraction) -> ir.Value:
    """The same sums by a linalg.generic over (b,) m, n and k, in front of the product, whose sums begin at zero."""
    roles = [role for role in "bmnk" if role in found.left_roles + found.right_roles]
    dims = {role: ir.AffineDimExpr.get(number) for number, role in enumerate(roles)}
    operands, orders = [], []
    for value, own in ((found.left, found.left_roles), (found.right, found.right_roles)):
        orders.append(order := _long(value, own) if own[-1] != "k" else own)  # a single column is no dimension
        sizes = dict(zip(own, ir.RankedTensorType(value.type).shape, strict=True))
        with op.location, ir.InsertionPoint(op):
            operands.append(reshaped(value, [or_none(sizes[role]) for role in order]))
    orders.append(roles[:-1])
    maps = [ir.AffineMap.get(len(roles), 0, [dims[role] for role in order]) for order in orders]
    kinds = ["parallel"] * (len(roles) - 1) + ["reduction"]

    def added(*given: ir.Value) -> ir.Value:
        return arith.addf(given[-1], arith.mulf(*_widened(given)))

    with op.location, ir.InsertionPoint(op):
        made = generic(operands, [found.init], maps, kinds, added)
        made.attributes[THIN] = ir.UnitAttr.get()
    return made.results[0]


def _widened(given: Sequence[ir.Value]) -> list[ir.Value]:
    """The factors among a body's arguments, in the type of the sum, which is the last."""
    *factors, total = given
    return [extended(x, total.type) for x in factors]
