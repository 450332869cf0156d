"""Brings imported linalg into the forms that the other passes look for. Idempotent.

Transposed operands become maps of the product, one-value tensors fills or scalars, 16-bit arithmetic
f32; results that nobody uses go, equal scatters, and operators that have nothing to do (here %z is %y):

    %t = linalg.transpose ins(%w : tensor<8x4xbf16>) outs(...) permutation = [1, 0]
    %p = linalg.matmul ins(%x, %t : ...) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
    %m:2 = linalg.generic {...} ins(%p : ...) outs(%lowest, %zero : tensor<2xf32>, tensor<2xi64>) {
      ... linalg.yield %value, %index : f32, i64 }
    %y = linalg.generic {...} ins(%c : tensor<2xbf16>) outs(...) {
      %0 = arith.divf %in, %two : bf16
      %1 = math.fpowi %0, %c2_i64 : bf16, i64
      linalg.yield %1 : bf16 }
    cf.assert %inside, "index out of range"
    %z = linalg.matmul ins(%a, %b : tensor<2x0xf32>, tensor<0x8xf32>) outs(%y : tensor<2x8xf32>)

becomes

    %p = linalg.matmul indexing_maps = [(m, n, k) -> (m, k), (m, n, k) -> (n, k), (m, n, k) -> (m, n)]
           ins(%x, %w : ...) outs(%f : tensor<2x8xf32>) -> tensor<2x8xf32>
    %m = linalg.generic {...} ins(%p : ...) outs(%lowest : tensor<2xf32>) { ... linalg.yield %value : f32 }
    %y = linalg.generic {...} ins(%c : tensor<2xbf16>) outs(...) {
      %0 = arith.extf %in : bf16 to f32
      %1 = arith.mulf %0, %half : f32
      %2 = arith.mulf %1, %1 : f32
      %3 = arith.truncf %2 : f32 to bf16
      linalg.yield %3 : bf16 }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from kitsune_mlir.generics import indexing_maps, set_maps
from kitsune_mlir.mlir import ir, linalg, replace_op, run_passes, tensor, walk
from kitsune_mlir.operations import permutation_of

from .absorb_casts import absorb_cast, multiply_narrow
from .affine_reads import read_by_maps
from .asked_roundings import mark_asked
from .base import ModulePass
from .broadcast_reads import read_plainly
from .centred_rows import centre_again
from .constant_columns import fold_constant_columns
from .counted_places import count_places
from .elements_taken import take_elements
from .equal_scatters import merge_equal_scatters
from .folded_sizes import fold_sizes
from .gathers_of_gathers import gather_once
from .generic_operands import inline_constants, prune, splat_of
from .kept_dimensions import keep_dimensions
from .open_reshapes import reassociate, split_in_place
from .plain_products import concatenate_collapsed, plain_products
from .row_scatters import SCATTER, scatter_rows
from .scalar_bodies import constant_of, simplify, widen
from .side_operands import compute_beside
from .sliced_elements import compute_slices
from .sliced_parts import pass_whole_slices, slice_fill, slice_part
from .stacked_sums import add_up_stacks
from .turned_broadcasts import turn_broadcasts


@dataclass(frozen=True)
class PrepareLinalg(ModulePass):
    """Normalises linalg in place; computes the same values, 16-bit ones with fewer roundings."""

    name: ClassVar[str] = "prepare-linalg"

    def run(self, module: ir.Module) -> None:
        with module.context:
            for op in walk(module, "cf.assert"):
                op.erase()
            for op in [op for op in walk(module) if _is_idle(op)]:
                _pass_by(op)
            for step, *names in _STEPS:
                for each in walk(module, *names) if names else [module]:
                    step(each)
            if compute_beside(module):
                run_passes(module, "builtin.module(cse)")


def _tidy(module: ir.Module) -> None:
    run_passes(module, "builtin.module(canonicalize,cse)")


def _read_transposed(product: ir.Operation) -> None:
    product = multiply_narrow(product)
    _absorb_transposes(product)
    multiply_narrow(product)


def _take_inputs(generic: ir.Operation) -> None:
    inline_constants(generic)
    count_places(generic)
    prune(generic)


def _give_numbers(generic: ir.Operation) -> None:
    simplify(generic)
    _fill_of(generic)


def _is_idle(op: ir.Operation) -> bool:
    """Whether an operator on tensors, of which one has no elements, has no turns."""
    structured = op.name.startswith(("linalg.", "tm_tensor.")) and op.name != "tm_tensor.attention"
    return structured and bool(op.results) and any(_is_empty(operand.type) for operand in op.operands)


def _pass_by(op: ir.Operation) -> None:
    """Takes what the outputs held for the results."""
    replace_op(op, *list(op.operands)[-len(op.results) :])


def _is_empty(type_: ir.Type) -> bool:
    return isinstance(type_, ir.RankedTensorType) and 0 in type_.shape


def _absorb_transposes(product: ir.Operation) -> None:
    """Reads a transposed operand where it lies: the map of the product permutes instead."""
    maps = indexing_maps(product)
    for i in range(2):
        transpose = product.operands[i].owner
        if isinstance(transpose, ir.Block) or transpose.name != "linalg.transpose":
            continue
        permutation = permutation_of(transpose)
        if product.name == "linalg.batch_matmul" and permutation[0] != 0:
            continue
        results: list[ir.AffineExpr] = [maps[i].results[0]] * len(permutation)
        for position, source in enumerate(permutation):
            results[source] = maps[i].results[position]
        maps[i] = ir.AffineMap.get(maps[i].n_dims, 0, results)
        product.operands[i] = transpose.operands[0]
        set_maps(product, maps)


def _fill_instead(constant: ir.Operation) -> None:
    """A tensor of one value is filled where it is used, not stored in the program."""
    type_ = constant.result.type
    element = splat_of(constant.result)
    if element is None or not isinstance(type_, ir.RankedTensorType) or type_.rank == 0:
        return
    with ir.InsertionPoint(constant), constant.location:
        scalar = ir.Operation.create("arith.constant", results=[type_.element_type], attributes={"value": element})
        filled = _filled(scalar.result, type_)
    for use in list(constant.result.uses):
        if use.owner.name != "linalg.generic":  # a generic takes the scalar itself
            use.owner.operands[use.operand_number] = filled
    if not list(constant.result.uses):
        constant.erase()


def _fill_of(generic: ir.Operation) -> None:
    """A generic that writes one constant everywhere is a fill."""
    operations = list(generic.regions[0].blocks[0].operations)
    value = operations[-1].operands[0]
    type_ = generic.results[0].type
    if len(generic.operands) != 1 or constant_of(value) is None:
        return
    with ir.InsertionPoint(generic), generic.location:
        attribute = value.owner.attributes["value"]
        scalar = ir.Operation.create("arith.constant", results=[value.type], attributes={"value": attribute})
        start = generic.operands[0]
        filled = _filled(scalar.result, type_) if type_.has_static_shape else linalg.fill(scalar.result, outs=[start])
        generic.results[0].replace_all_uses_with(filled)
    generic.erase()


def _filled(scalar: ir.Value, type_: ir.RankedTensorType) -> ir.Value:
    empty = tensor.empty(type_.shape, type_.element_type)
    return linalg.fill(scalar, outs=[empty])


# What is done, in order: to the module, or to each of its operations of these names.
_GENERICS, _FUNCTIONS = "linalg.generic", "func.func"
_STEPS: tuple[tuple[Any, ...], ...] = (
    (mark_asked, _GENERICS),
    (_tidy,),
    (fold_sizes, _FUNCTIONS),
    (read_by_maps, _GENERICS),
    (_tidy,),
    (reassociate, "tensor.reshape"),
    (split_in_place, "tensor.expand_shape"),
    (plain_products,),
    (concatenate_collapsed, "tensor.concat"),
    (compute_slices,),
    (slice_part, "tensor.extract_slice"),
    (pass_whole_slices, _FUNCTIONS),
    (_fill_instead, "arith.constant"),
    (_read_transposed, "linalg.matmul", "linalg.batch_matmul"),
    (read_plainly, _GENERICS),
    (_take_inputs, _GENERICS),
    (keep_dimensions,),
    (absorb_cast, _GENERICS),
    (widen, _GENERICS),
    (_tidy,),
    (scatter_rows, SCATTER),
    (_give_numbers, _GENERICS),
    (slice_fill, "tensor.extract_slice"),
    (add_up_stacks, _FUNCTIONS),
    (_tidy,),
    (turn_broadcasts,),
    (merge_equal_scatters,),
    (gather_once,),
    (take_elements,),
    (fold_sizes, _FUNCTIONS),
    (fold_constant_columns, "linalg.matmul"),
    (_tidy,),
    (centre_again, _GENERICS),
)
