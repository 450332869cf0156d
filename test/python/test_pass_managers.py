"""Pipelines that are kept with their context."""

import gc
import weakref

from kitsune_mlir import mlir

SIMPLIFY = "builtin.module(canonicalize)"
SUM = "func.func @f(%a: i32) -> i32 { %c = arith.constant 0 : i32\n %r = arith.addi %a, %c : i32\n return %r : i32 }"
ASSUMED = """
func.func @f(%a: index) -> index {
  %w = shape.const_witness true
  %r = shape.assuming %w -> index { shape.assuming_yield %a : index }
  return %r : index
}
"""


def test_a_dialect_that_is_loaded_later_has_its_patterns():
    context = mlir.upstream_context()
    mlir.run_passes(mlir.parse(SUM, context), SIMPLIFY)
    assert not context.is_dialect_loaded("shape")
    module = mlir.parse(ASSUMED, context)
    mlir.run_passes(module, SIMPLIFY)
    assert "shape." not in str(module)


def test_one_for_each_context_and_none_that_outlives_it():
    context, other = mlir.upstream_context(), mlir.upstream_context()
    kept = mlir.pass_manager(context, SIMPLIFY)
    assert mlir.pass_manager(context, SIMPLIFY) is kept
    assert mlir.pass_manager(other, SIMPLIFY) is not kept
    gone = weakref.ref(context)
    del context, kept
    gc.collect()
    assert gone() is None
