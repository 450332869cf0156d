"""Pipelines that are kept with their context, and contexts that are kept for the next module."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

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
    gc.collect(0)  # of what is new
    assert gone() is None


def test_modules_have_a_context_one_after_another():
    mlir.let_context_go()
    kept = mlir.kept_context()
    assert all(mlir.kept_context() is kept for _ in range(mlir._MODULES - 1))
    assert mlir.kept_context() is not kept
    kept = mlir.kept_context()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(mlir.kept_context).result() is not kept
    mlir.let_context_go()
    assert mlir.kept_context() is not kept
