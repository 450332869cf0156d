"""Matrix products as calls, so that neither fusion nor bufferization takes them apart.

`outline_products` turns every contraction with one row, one column and one summed dimension, and at
most one batch dimension, into a call of a function that has no body yet:

    %t = linalg.transpose ins(%w) ... ; %c = linalg.matmul ins(%a, %t) outs(%zeros)
    -> %c = call @product_0(%a, %w)           kitsune.product = [["m", "k"], ["n", "k"]]

Transposed operands are read where they lie. After bufferization `define_products` writes the bodies,
which call the kernels of cpu_gemm.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.contraction import NAMES, Contraction, Roles, is_zero_filled, match_product
from kitsune_mlir.cpu_symbols import PACK, PANELS, PRODUCT
from kitsune_mlir.generics import elementwise
from kitsune_mlir.mlir import arith, func, ir, memref, replace_op, scf, walk

from .cpu_build import DYNAMIC, dim, index, loop
from .cpu_gemm import GemmKernels, panels_type


def outline_products(module: ir.Module) -> None:
    """Replaces the products on tensors in every function of `module` by calls (see the file's docstring)."""
    functions: dict[str, func.FuncOp] = {}
    for op in walk(module, *NAMES):
        found = match_product(op)
        if found is None:
            continue
        with module.context, op.location, ir.InsertionPoint(op):
            result = _call(module, functions, found, op.results[0].type)
        replace_op(op, result)


def result_sizes(function: func.FuncOp, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """The dynamic sizes of what a product of these operands gives, built at the insertion point."""
    kind, extents = function.type.results[0], _extents(operands, _operand_roles(function))
    order = ("b", "m", "n")[-kind.rank :]
    return [dim(*extents[role]) for d, role in enumerate(order) if kind.is_dynamic_dim(d)]


def define_products(module: ir.Module, kernels: GemmKernels) -> None:
    """Gives the outlined products and packings their bodies, on memrefs; the last argument is the result."""
    for op in walk(module, "func.func"):
        function = op.opview
        if PRODUCT in op.attributes:
            body = _product_body
        elif PACK in op.attributes:
            body = _pack_body
        else:
            continue
        with module.context, op.location, ir.InsertionPoint(function.add_entry_block()):
            body(function, kernels)
            func.ReturnOp([])


def _operand_roles(function: func.FuncOp) -> list[Roles]:
    return [tuple(role.value for role in operand) for operand in function.attributes[PRODUCT]]


def _call(module: ir.Module, functions: dict, found: Contraction, result: ir.RankedTensorType) -> ir.Value:
    narrow = result.element_type.width < 32
    kind = ir.RankedTensorType.get(result.shape, ir.F32Type.get()) if narrow else result
    operands = [found.left, found.right]
    if not is_zero_filled(found.init):
        operands.append(cast_elements(found.init, kind))
    types = [value.type for value in operands]
    key = f"{found.left_roles}{found.right_roles}{types}{kind}"
    if key not in functions:
        functions[key] = _declare(module, f"product_{len(functions)}", types, kind, found)
    value = func.CallOp(functions[key], operands).result
    return cast_elements(value, result)


def _declare(module: ir.Module, name: str, types: list, result: ir.Type, found: Contraction) -> func.FuncOp:
    function = func.FuncOp(
        name, (types, [result]), visibility="private", ip=ir.InsertionPoint.at_block_begin(module.body)
    )
    roles = [[ir.StringAttr.get(role) for role in side] for side in (found.left_roles, found.right_roles)]
    function.attributes[PRODUCT] = ir.ArrayAttr.get([ir.ArrayAttr.get(side) for side in roles])
    return function


def cast_elements(value: ir.Value, to: ir.RankedTensorType) -> ir.Value:
    """The tensor with each floating-point element widened or narrowed."""
    element = to.element_type
    if value.type.element_type == element:
        return value
    widened = value.type.element_type.width < element.width
    return elementwise([value], element, lambda x: (arith.extf if widened else arith.truncf)(element, x))


def _extents(operands: Sequence[ir.Value], roles: Sequence[Roles]) -> dict[str, tuple[ir.Value, int]]:
    """For each role, an operand and the dimension of it that has this role."""
    return {role: (side, axis) for side, names in zip(operands, roles) for axis, role in enumerate(names)}


def _product_body(function: func.FuncOp, kernels: GemmKernels) -> None:
    roles = _operand_roles(function)
    left, right, *init, result = function.arguments
    element, order = result.type.element_type, ("b", "m", "n")[-result.type.rank :]
    extents = {**_extents((left, right), roles), **_extents([result], [order])}
    sizes = {role: dim(*extents[role]) for role in (*order, "k")}
    if init:
        memref.CopyOp(init[0], result)
    accumulate = arith.constant(ir.IntegerType.get_signless(1), int(bool(init)))
    if roles[1] == PANELS:
        kernel = kernels.multiply(left.type.element_type, element)
    else:
        kernel = kernels.gemm(left.type.element_type, right.type.element_type, element)

    def multiply(batch: ir.Value) -> None:
        a, b, c = kernel.type.inputs[:3]
        lhs = _matrix(left, roles[0], ("m", "k"), sizes, batch, a)
        if roles[1] == PANELS:
            rhs = memref.cast(panels_type(element), right)
        else:
            rhs = _matrix(right, roles[1], ("k", "n"), sizes, batch, b)
        func.CallOp(kernel, [lhs, rhs, _matrix(result, order, ("m", "n"), sizes, batch, c), accumulate])

    if "b" in order:
        for batch in loop(index(0), sizes["b"]):
            multiply(batch)
            scf.yield_([])
    else:
        multiply(index(0))


def _pack_body(function: func.FuncOp, kernels: GemmKernels) -> None:
    source, panels = function.arguments
    roles = tuple(role.value for role in function.attributes[PACK])
    sizes = {role: dim(source, axis) for axis, role in enumerate(roles)}
    element = panels.type.element_type
    kernel = kernels.pack(source.type.element_type, element)
    matrix = _matrix(source, roles, ("k", "n"), sizes, index(0), kernel.type.inputs[0])
    func.CallOp(kernel, [matrix, memref.cast(panels_type(element), panels)])


def _matrix(
    source: ir.Value, roles: Roles, wanted: Roles, sizes: dict, batch: ir.Value, kind: ir.MemRefType
) -> ir.Value:
    """One batch's matrix of `source`, rows and columns in the `wanted` order; the layout is all in the strides."""
    base, _, *metadata = memref.ExtractStridedMetadataOp(source).results
    strides = dict(zip(roles, metadata[len(roles) :], strict=True))
    offset = arith.muli(batch, strides["b"]) if "b" in strides else index(0)
    extents, steps = [sizes[role] for role in wanted], [strides[role] for role in wanted]
    fixed = list(kind.layout.strides)
    dynamic_steps = [step for step, given in zip(steps, fixed, strict=True) if given != 1]
    layout = [DYNAMIC], [DYNAMIC] * 2, [1 if given == 1 else DYNAMIC for given in fixed]
    return memref.ReinterpretCastOp(kind, base, [offset], extents, dynamic_steps, *layout).result
