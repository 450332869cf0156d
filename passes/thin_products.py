"""Products of few rows, or of few columns, as row groups: what schedule-rows makes kernels of, with what follows."""

from __future__ import annotations

from kitsune_mlir.contraction import Contraction
from kitsune_mlir.dialects.windows import in_memory
from kitsune_mlir.mlir import arith, ir, linalg
from kitsune_mlir.planning.target import Target
from kitsune_mlir.planning.thin_products import across_us, thin_us

from .schedule_build import empty_generic

THIN = "kitsune.thin"  # marks a linalg.generic that is one for schedule-rows
_F32 = ir.F32Type
_16_BITS = ir.BF16Type | ir.F16Type


def predicted_us(found: Contraction, sizes: dict[str, int | None], target: Target) -> float | None:
    """Microseconds of a product as a row group, by the sizes of its roles; None where it is not known to be one."""
    element = ir.RankedTensorType(found.left.type).element_type
    known = {role: size for role, size in sizes.items() if size is not None}
    if any(in_memory(value) != value for value in (found.left, found.right)):
        return None  # windows are in no memory
    along = found.left_roles[-1] == found.right_roles[-1] == "k"
    if not along or known.keys() != sizes.keys() or not isinstance(element, _F32 | _16_BITS):
        return None
    few, many = sorted((known["m"], known["n"]))
    return thin_us(few, many * known.get("b", 1), known["k"], element.width // 8, target)


def across_predicted_us(found: Contraction, sizes: dict[str, int | None], target: Target) -> float | None:
    """The same of a product across the rows of both operands, as sums over rows."""
    m, n, k = (sizes.get(role) for role in "mnk")
    element = ir.RankedTensorType(found.left.type).element_type
    across = (found.left_roles, found.right_roles) == (("k", "m"), ("k", "n"))
    if not across or m is None or n is None or k is None or in_memory(found.left) != found.left:
        return None
    return across_us(m, n, k, element.width // 8, target)


def by_rows(op: ir.Operation, found: Contraction) -> ir.Value:
    """The same sums by a linalg.generic over (b,) m, n and k, in front of the product, whose sums begin at zero."""
    roles = [role for role in "bmnk" if role in found.left_roles + found.right_roles]
    dims = {role: ir.AffineDimExpr.get(number) for number, role in enumerate(roles)}
    orders = (found.left_roles, found.right_roles, tuple(roles[:-1]))
    maps = [ir.AffineMap.get(len(roles), 0, [dims[role] for role in order]) for order in orders]
    kinds = ["parallel"] * (len(roles) - 1) + ["reduction"]
    with op.location, ir.InsertionPoint(op):
        generic = empty_generic([found.left, found.right], [found.init], maps, kinds)
        generic.attributes[THIN] = ir.UnitAttr.get()
        with ir.InsertionPoint(generic.regions[0].blocks[0]):
            *factors, before = generic.regions[0].blocks[0].arguments
            wide = [x if x.type == before.type else arith.extf(before.type, x) for x in factors]
            linalg.YieldOp([arith.addf(before, arith.mulf(*wide))])
    return generic.results[0]
