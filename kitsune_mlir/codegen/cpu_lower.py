"""linalg on tensors -> x86 (or whatever the host is) machine code, through upstream passes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from kitsune_mlir.mlir import arith, ir, run_passes, walk
from kitsune_mlir.runtime import cpu_features

from .bufferize import bufferize, results_to_out_params
from .cpu_calls import pass_results_by_reference
from .cpu_conv import convolutions_to_products
from .cpu_filter_gradient import lower_filter_gradients
from .cpu_fourier import lower_transforms
from .cpu_gemm import GemmKernels
from .cpu_math import expand_math
from .cpu_memory import take_scratch
from .cpu_pipelines import define_pipelines
from .cpu_products import define_products, outline_products
from .cpu_recurrent import lower_recurrent
from .cpu_sort import lower_sorts
from .cpu_stages import add_entry, add_stage_entry, argument_types, stage_functions
from .cpu_sums import widen_long_sums
from .cpu_systems import lower_systems
from .filter_gradient import outline_filter_gradients
from .firsts import sort_whole_rows
from .fourier import outline_transforms
from .fused_loops import behind_calls, ends_of_loops
from .recurrent import outline_recurrent
from .systems import outline_systems

_FUSE = (
    "builtin.module(canonicalize,cse,linalg-generalize-named-ops,"
    "func.func(linalg-fuse-elementwise-ops),canonicalize,cse)"
)
_DEALLOCATE = (
    "builtin.module(func.func(promote-buffers-to-stack{max-alloc-size-in-bytes=1024}),buffer-deallocation-pipeline)"
)
_TO_LOOPS = (
    "builtin.module(func.func(tm-tensor-to-loops,refback-munge-memref-copy,convert-linalg-to-loops),"
    "fold-memref-alias-ops,func.func(math-extend-to-supported-types),"
    "arith-emulate-unsupported-floats{source-types=bf16,f16 target-type=f32},canonicalize,cse)"
)
_TIDY = "builtin.module(canonicalize,cse,loop-invariant-code-motion)"
_TO_LLVM = (
    "builtin.module(func.func(refback-expand-ops-for-llvm,memref-expand,arith-expand{include-bf16=1}),expand-strided-metadata,"
    "convert-vector-to-scf,lower-affine,convert-scf-to-cf,func.func(convert-math-to-llvm),convert-math-to-libm,"
    "convert-vector-to-llvm,finalize-memref-to-llvm,func.func(convert-arith-to-llvm),convert-index-to-llvm,"
    "convert-ub-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts,canonicalize,cse)"
)


def lower_to_llvm(module: ir.Module) -> tuple[list[dict[str, Any]], int]:
    """Takes every function of `module` to the llvm dialect, in place.

    Returns the plans of its pipelines, and the bytes of scratch space that @main's last argument has;
    before it, static results become out-parameters. Raises InternalError when an upstream
    pass fails.
    """
    kernels = GemmKernels(module, cpu_features.vector_bytes())
    convolutions_to_products(module)
    outline_products(module)
    _fuse(module)
    widen_long_sums(module)
    outline_transforms(module)
    outline_systems(module)
    outline_recurrent(module)
    outline_filter_gradients(module)
    sort_whole_rows(module)
    bufferize(module)
    lower_sorts(module)
    lower_transforms(module)
    lower_systems(module)
    lower_recurrent(module)
    lower_filter_gradients(module)
    pass_results_by_reference(module)
    scratch = {}
    for op in walk(module, "func.func"):
        if not op.opview.is_external:
            results_to_out_params(op.opview)
            scratch[op.opview.name.value] = take_scratch(op.opview)
    entries = {function.name.value: argument_types(function) for function in stage_functions(module)}
    run_passes(module, _DEALLOCATE)
    define_products(module, kernels)
    plans = define_pipelines(module)
    run_passes(module, _TO_LOOPS)
    _let_sums_reorder(module)  # before the expansions, which count on the order they are written in
    expand_math(module)
    run_passes(module, _TIDY)
    _through_f32(module)  # which tidying would undo
    run_passes(module, _TO_LLVM)
    _bf16_as_bits(module)
    add_entry(module)
    for name, types in entries.items():
        add_stage_entry(module, name, types)
    for plan in plans:
        for stage in plan["stages"]:
            stage["scratch"] = scratch[stage["symbol"]]
    module.operation.verify()
    return plans, scratch["main"]


def _fuse(module: ir.Module) -> None:
    """Elementwise operators that read each other become one, of not too many instructions."""
    with contextlib.ExitStack() as apart, module.context:
        for function in walk(module, "func.func"):
            apart.enter_context(behind_calls(function, ends_of_loops(function)))
        run_passes(module, _FUSE)


def _through_f32(module: ir.Module) -> None:
    """Makes numbers of bf16 of f32 alone, which is expanded to plain arithmetic: of anything else LLVM calls a function
    of the compiler's own library, unless the CPU has instructions for bf16."""
    for op in walk(module, "arith.sitofp", "arith.uitofp", "arith.truncf"):
        kind, f32 = op.results[0].type, ir.F32Type.get(module.context)
        if kind != ir.BF16Type.get(module.context) or op.operands[0].type == f32:
            continue
        with op.location, ir.InsertionPoint(op):
            number = ir.Operation.create(op.name, [f32], [op.operands[0]]).results[0]
            op.results[0].replace_all_uses_with(arith.truncf(kind, number))
        op.erase()


def _bf16_as_bits(module: ir.Module) -> None:
    """Numbers of bf16, of which only moves and bit casts are left, become the integers of their bits: a number of bf16
    that lives on in another block LLVM widens to f32, and calls a function to narrow it, as `_through_f32` says."""
    bf16, i16 = ir.BF16Type.get(module.context), ir.IntegerType.get_signless(16, module.context)
    for op in walk(module):
        values = [*op.results, *(argument for region in op.regions for block in region for argument in block.arguments)]
        for value in values:
            if value.type == bf16:
                value.set_type(i16)
        if op.name == "llvm.mlir.constant" and op.attributes["value"].type == bf16:
            bits = np.float32(ir.FloatAttr(op.attributes["value"]).value).view(np.uint32) >> 16
            op.attributes["value"] = ir.IntegerAttr.get(i16, int(np.uint16(bits).view(np.int16)))


def _let_sums_reorder(module: ir.Module) -> None:
    """Allows fused multiply-adds, and sums in any order: without that no reduction is vectorized."""
    with module.context:
        flags = ir.Attribute.parse("#arith.fastmath<reassoc,contract>")
    for op in walk(module, "arith.addf", "arith.mulf"):
        op.attributes["fastmath"] = flags
