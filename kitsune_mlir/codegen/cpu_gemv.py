"""Products with few rows, where all the work is to read the right operand once: in the order it lies in."""

from __future__ import annotations

from kitsune_mlir.mlir import arith, ir, memref, scf

from .cpu_build import DYNAMIC, convert, dim, index, loop, zero_of

_ANY = ir.ShapedType.get_dynamic_stride_or_offset()


def multiply_few_rows(a: ir.Value, b: ir.Value, c: ir.Value, accumulate: ir.Value) -> None:
    """Builds c (+)= a b on strided matrices: dot products where the columns of b are contiguous, sums of its
    rows elsewhere. The loops are scalar; LLVM vectorizes them, as the inner strides are known to be 1."""
    a_steps, b_steps = _strides(a), _strides(b)
    one = index(1)
    contiguous = arith.andi(
        arith.cmpi(arith.CmpIPredicate.eq, a_steps[1], one), arith.cmpi(arith.CmpIPredicate.eq, b_steps[0], one)
    )
    branch = scf.IfOp(contiguous, has_else=True)
    with ir.InsertionPoint(branch.then_block):
        _dot_products(_with_unit_stride(a, 1, a_steps[0]), _with_unit_stride(b, 0, b_steps[1]), c, accumulate)
        scf.yield_([])
    with ir.InsertionPoint(branch.else_block):
        _sums_of_rows(a, b, c, accumulate)
        scf.yield_([])


def _dot_products(a: ir.Value, b: ir.Value, c: ir.Value, accumulate: ir.Value) -> None:
    element, zero = c.type.element_type, index(0)
    for n in loop(zero, dim(c, 1)):
        for m in loop(zero, dim(c, 0)):
            start = arith.select(accumulate, memref.load(c, [m, n]), zero_of(element))
            dot = scf.ForOp(zero, dim(b, 0), index(1), [start])
            with ir.InsertionPoint(dot.body):
                k = dot.induction_variable
                left, right = convert(memref.load(a, [m, k]), element), convert(memref.load(b, [k, n]), element)
                scf.yield_([_add(dot.inner_iter_args[0], _multiply(left, right))])
            memref.store(dot.results[0], c, [m, n])
            scf.yield_([])
        scf.yield_([])


def _sums_of_rows(a: ir.Value, b: ir.Value, c: ir.Value, accumulate: ir.Value) -> None:
    element, zero = c.type.element_type, index(0)
    for m in loop(zero, dim(c, 0)):
        for n in loop(zero, dim(c, 1)):
            memref.store(arith.select(accumulate, memref.load(c, [m, n]), zero_of(element)), c, [m, n])
            scf.yield_([])
        for k in loop(zero, dim(b, 0)):
            factor = convert(memref.load(a, [m, k]), element)
            for n in loop(zero, dim(c, 1)):
                term = _multiply(factor, convert(memref.load(b, [k, n]), element))
                memref.store(_add(memref.load(c, [m, n]), term), c, [m, n])
                scf.yield_([])
            scf.yield_([])
        scf.yield_([])


def _strides(matrix: ir.Value) -> list[ir.Value]:
    return list(memref.ExtractStridedMetadataOp(matrix).results)[-2:]


def _with_unit_stride(matrix: ir.Value, axis: int, other: ir.Value) -> ir.Value:
    """The matrix with a type that says its stride along `axis` is 1; `other` is the other stride."""
    base, offset, rows, columns, *_ = memref.ExtractStridedMetadataOp(matrix).results
    strides = [_ANY, 1] if axis == 1 else [1, _ANY]
    layout = ir.StridedLayoutAttr.get(_ANY, strides)
    kind = ir.MemRefType.get([DYNAMIC] * 2, matrix.type.element_type, layout)
    static = [DYNAMIC], [DYNAMIC] * 2, strides
    return memref.ReinterpretCastOp(kind, base, [offset], [rows, columns], [other], *static).result


def _multiply(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.muli(a, b) if isinstance(a.type, ir.IntegerType) else arith.mulf(a, b)


def _add(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.addi(a, b) if isinstance(a.type, ir.IntegerType) else arith.addf(a, b)
