"""Matrix products as calls, so that neither fusion nor bufferization takes them apart.

`outline_products` turns every contraction with one row, one column and one summed dimension, and at
most one batch dimension, into a call of a function that has no body yet:

    %t = linalg.transpose ins(%w) ... ; %c = linalg.matmul ins(%a, %t) outs(%zeros)
    -> %c = call @product_0(%a, %w)           kitsune.product = [["m", "k"], ["n", "k"]]

Transposed operands are read where they lie. After bufferization `define_products` writes the bodies,
which call the kernels of cpu_gemm.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.mlir import arith, func, ir, linalg, memref, scf, tensor, walk

from .cpu_build import DYNAMIC, dim, index, loop
from .cpu_gemm import GemmKernels

PRODUCT = "kitsune.product"
_NAMES = ("linalg.matmul", "linalg.batch_matmul", "linalg.generic", "linalg.contract")
Roles = tuple[str, ...]


@dataclass(frozen=True)
class Contraction:
    """A product found in the IR: its operands with the role of each of their dimensions."""

    left: ir.Value
    right: ir.Value
    init: ir.Value
    left_roles: Roles
    right_roles: Roles


def outline_products(module: ir.Module) -> None:
    """Replaces the products on tensors in every function of `module` by calls (see the file's docstring)."""
    functions: dict[str, func.FuncOp] = {}
    for op in walk(module, *_NAMES):
        found = match_product(op)
        if found is None:
            continue
        with module.context, op.location, ir.InsertionPoint(op):
            result = _call(module, functions, found, op.results[0].type)
        op.results[0].replace_all_uses_with(result)
        op.erase()


def match_product(op: ir.Operation) -> Contraction | None:
    """The product that `op` computes, or None when it is anything else."""
    if len(op.operands) != 3 or len(op.results) != 1 or not _multiplies_and_adds(op):
        return None
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
    if isinstance(value.owner, ir.Block) or value.owner.name != "linalg.fill":
        return False
    source = value.owner.operands[0].owner
    if isinstance(source, ir.Block) or source.name != "arith.constant":
        return False
    return source.attributes["value"].value == 0


def define_products(module: ir.Module, kernels: GemmKernels) -> None:
    """Gives the outlined functions their bodies, on memrefs."""
    for op in list(module.body.operations):
        if op.operation.name != "func.func" or PRODUCT not in op.attributes:
            continue
        roles = [tuple(role.value for role in operand) for operand in op.attributes[PRODUCT]]
        with module.context, op.location, ir.InsertionPoint(op.add_entry_block()):
            func.ReturnOp([_product_body(op, roles, kernels)])


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
    if isinstance(value.owner, ir.Block) or value.owner.name != "linalg.transpose":
        return value, roles
    permutation = list(value.owner.attributes["permutation"])
    source = [""] * len(roles)
    for role, axis in zip(roles, permutation, strict=True):
        source[axis] = role
    return value.owner.operands[0], tuple(source)


def _call(module: ir.Module, functions: dict, found: Contraction, result: ir.RankedTensorType) -> ir.Value:
    narrow = result.element_type.width < 32
    kind = ir.RankedTensorType.get(result.shape, ir.F32Type.get()) if narrow else result
    operands = [found.left, found.right]
    if not is_zero_filled(found.init):
        operands.append(_cast_elements(found.init, kind))
    types = [value.type for value in operands]
    key = f"{found.left_roles}{found.right_roles}{types}{kind}"
    if key not in functions:
        functions[key] = _declare(module, f"product_{len(functions)}", types, kind, found)
    value = func.CallOp(functions[key], operands).result
    return _cast_elements(value, result)


def _declare(module: ir.Module, name: str, types: list, result: ir.Type, found: Contraction) -> func.FuncOp:
    function = func.FuncOp(
        name, (types, [result]), visibility="private", ip=ir.InsertionPoint.at_block_begin(module.body)
    )
    read = ir.DictAttr.get({"bufferization.access": ir.StringAttr.get("read")})
    function.arg_attrs = [read] * len(types)
    roles = [[ir.StringAttr.get(role) for role in side] for side in (found.left_roles, found.right_roles)]
    function.attributes[PRODUCT] = ir.ArrayAttr.get([ir.ArrayAttr.get(side) for side in roles])
    return function


def _cast_elements(value: ir.Value, to: ir.RankedTensorType) -> ir.Value:
    """The tensor with each floating-point element widened or narrowed."""
    element = to.element_type
    if value.type.element_type == element:
        return value
    sizes = [tensor.dim(value, index(d)) if to.is_dynamic_dim(d) else to.shape[d] for d in range(to.rank)]
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(to.rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    op = linalg.GenericOp(
        [to],
        [value],
        [tensor.empty(sizes, element)],
        ir.ArrayAttr.get([identity] * 2),
        ir.ArrayAttr.get([parallel] * to.rank),
    )
    block = op.regions[0].blocks.append(value.type.element_type, element)
    with ir.InsertionPoint(block):
        source = block.arguments[0]
        widen = source.type.width < element.width
        linalg.YieldOp([arith.extf(element, source) if widen else arith.truncf(element, source)])
    return op.results[0]


def _product_body(function: func.FuncOp, roles: list[Roles], kernels: GemmKernels) -> ir.Value:
    left, right, *init = function.arguments
    kind = function.type.results[0]
    extents = {
        role: (side, axis) for side, names in zip((left, right), roles, strict=True) for axis, role in enumerate(names)
    }
    order = ("b", "m", "n")[-kind.rank :]
    sizes = {role: dim(*extents[role]) for role in (*order, "k")}
    dynamic = [sizes[role] for d, role in enumerate(order) if kind.is_dynamic_dim(d)]
    result = memref.alloc(kind, dynamic, [], alignment=64)
    if init:
        memref.CopyOp(init[0], result)
    accumulate = arith.constant(ir.IntegerType.get_signless(1), int(bool(init)))
    gemm = kernels.gemm(left.type.element_type, right.type.element_type, kind.element_type)

    def multiply(batch: ir.Value) -> None:
        a, b, c = gemm.type.inputs[:3]
        views = [
            _matrix(left, roles[0], ("m", "k"), sizes, batch, a),
            _matrix(right, roles[1], ("k", "n"), sizes, batch, b),
            _matrix(result, order, ("m", "n"), sizes, batch, c),
        ]
        func.CallOp(gemm, [*views, accumulate])

    if "b" in order:
        for batch in loop(index(0), sizes["b"]):
            multiply(batch)
            scf.yield_([])
    else:
        multiply(index(0))
    return result


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
