"""Long sums of f32 are added up in f64 on the CPU: one after another, each rounding would be that of the whole sum.

    %s = linalg.generic {iterator_types = ["reduction", "parallel", "reduction"]} ins(%x : 640x3x1000xf32) outs(%zero)
  =>
    %w = linalg.generic {...} ins(%x) outs(%wide_zero : 3xf64)     // the same body, whose sum is widened
    %s = linalg.generic {iterator_types = ["parallel"]} ins(%w)    // truncf

Running sums (tm_tensor.scan) are, too.

torch adds up in blocks, pairwise. What LLVM vectorizes has several sums, too, but loops whose innermost does not reduce
are not, and their order is not for a pass to choose. f64 needs no order.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, attr_int, ir, walk
from kitsune_mlir.operations import end_of

from .cpu_products import cast_elements

_LONG = 1024  # terms of a sum; an open number of them may be as many
_LONG_SCAN = 64  # of a running sum, whose terms are added one after another


def widen_long_sums(module: ir.Module) -> None:
    """Rewrites the sums of a module of linalg on tensors."""
    for op in walk(module, "linalg.generic"):
        if len(op.results) == 1 and rows.is_tensor(op.results[0]) and _is_long_sum(op):
            _widen(op)
    for op in walk(module, "tm_tensor.scan"):
        if _is_long_scan(op):
            _widen_scan(op)


def _is_long_sum(op: ir.Operation) -> bool:
    """Whether it adds up many numbers of f32."""
    s = rows.Structured(op)
    kind = ir.RankedTensorType(op.results[0].type)
    if "reduction" not in s.iterators or kind.element_type != ir.F32Type.get(op.context) or _addition(op) is None:
        return False
    sizes = {
        expr.position: size
        for value, map_ in zip(op.operands, s.maps)
        if rows.is_tensor(value)
        for size, expr in zip(rows.shape_of(value), map_.results)
        if isinstance(expr, ir.AffineDimExpr)
    }
    terms = [sizes.get(d, 1) for d in s.reductions]
    return rows.DYNAMIC in terms or prod(terms) >= _LONG


def _addition(op: ir.Operation) -> ir.Operation | None:
    """What adds a term to the sum so far, the only one that reads it."""
    *_, total = (block := op.regions[0].blocks[0]).arguments
    made = rows.producer(end_of(block).operands[0])
    is_sum = made is not None and made.name == "arith.addf" and total in made.operands
    return made if is_sum and len(list(total.uses)) == 1 else None


def _widen(op: ir.Operation) -> None:
    addition, (*_, start) = _addition(op), op.operands
    assert addition is not None
    f64, kind = ir.F64Type.get(op.context), ir.RankedTensorType(start.type)
    *_, total = op.regions[0].blocks[0].arguments
    with op.location:
        wide = ir.RankedTensorType.get(kind.shape, f64)
        with ir.InsertionPoint(op):
            op.operands[len(op.operands) - 1] = cast_elements(start, wide)
        total.set_type(f64)
        with ir.InsertionPoint(addition):
            term = next(value for value in addition.operands if value != total)
            addition.results[0].replace_all_uses_with(arith.addf(total, arith.extf(f64, term)))
        addition.erase()
        op.results[0].set_type(wide)
        uses = list(op.results[0].uses)  # without those that ask for the sizes of what takes its place
        with ir.InsertionPoint.after(op):
            narrow = cast_elements(op.results[0], kind)
    for use in uses:
        use.owner.operands[use.operand_number] = narrow


def _is_long_scan(op: ir.Operation) -> bool:
    """Whether it is the running sum of many numbers of f32."""
    kind = ir.RankedTensorType(op.results[0].type)
    size = kind.shape[attr_int(op, "dimension")]
    adds = op.regions[0].blocks[0].operations[0].operation.name == "arith.addf"
    return adds and kind.element_type == ir.F32Type.get(op.context) and (size == rows.DYNAMIC or size >= _LONG_SCAN)


def _widen_scan(op: ir.Operation) -> None:
    f64, block = ir.F64Type.get(op.context), op.regions[0].blocks[0]
    with op.location:
        with ir.InsertionPoint(op):
            for i, operand in enumerate(op.operands):
                kind = ir.RankedTensorType(operand.type)
                op.operands[i] = cast_elements(operand, ir.RankedTensorType.get(kind.shape, f64))
        for argument in block.arguments:
            argument.set_type(f64)
        addition = block.operations[0].operation
        with ir.InsertionPoint(addition):
            addition.results[0].replace_all_uses_with(arith.addf(*addition.operands))
        addition.erase()
        with ir.InsertionPoint.after(op):
            for result in op.results:
                kind, uses = ir.RankedTensorType(result.type), list(result.uses)
                result.set_type(ir.RankedTensorType.get(kind.shape, f64))
                narrow = cast_elements(result, kind)
                for use in uses:
                    use.owner.operands[use.operand_number] = narrow
