"""What schedule-products makes, without a GPU: the proof accepts it, and the interpreter gives torch's numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitsune_mlir import mlir
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.cost import DRAM, L2, LATENCY, TENSOR
from kitsune_mlir.schedule import run

BATCHED = """
func.func @main(%a: tensor<{left}xf32>, %b: tensor<{right}xf32>) -> tensor<{b}x{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{b}x{m}x{n}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{b}x{m}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32>
  %c = linalg.batch_matmul indexing_maps = [affine_map<(b, m, n, k) -> (b, {order_a})>,
    affine_map<(b, m, n, k) -> (b, {order_b})>, affine_map<(b, m, n, k) -> (b, m, n)>]
    ins(%a, %b : tensor<{left}xf32>, tensor<{right}xf32>) outs(%f : tensor<{b}x{m}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32>
  return %c : tensor<{b}x{m}x{n}xf32>
}}
"""


def scheduled(b, m, n, k, turned, element="bf16"):
    """The module with the kernel of a batched product of random sizes, proven."""
    shapes = {"m": m, "n": n, "k": k}
    orders = ["k, m" if turned[0] else "m, k", "n, k" if turned[1] else "k, n"]
    left, right = ("x".join(map(str, [b, *(shapes[d] for d in order.split(", "))])) for order in orders)
    text = BATCHED.format(left=left, right=right, b=b, m=m, n=n, order_a=orders[0], order_b=orders[1])
    text = text.replace(f"%a: tensor<{left}xf32>", f"%a: tensor<{left}x{element}>")
    text = text.replace(f"%b: tensor<{right}xf32>", f"%b: tensor<{right}x{element}>")
    both = "tensor<{0}x{2}>, tensor<{1}x{2}>)"
    text = text.replace(both.format(left, right, "f32"), both.format(left, right, element))
    module = mlir.parse(text, mlir.context())
    steps = [pipeline.make("schedule-products", "", "sm_90a"), pipeline.make("verify-dataflow", "", "sm_90a")]
    pipeline.run(module, steps)
    return module


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 200), st.integers(1, 300), st.integers(1, 5000))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(SIZES, st.tuples(st.booleans(), st.booleans()), st.sampled_from(["bf16", "f16", "f32"]))
def test_our_own_schedules_are_proven(sizes, turned, element):
    """Sizes that are no multiples of anything, few rows with long sums, both orders of both operands."""
    module = scheduled(*sizes, turned, element)
    kernels = list(dialect.kernels(module))
    assert len(kernels) == (np.prod(np.array(sizes, float)) >= 1 << 16)
    for kernel in kernels:
        assert kernel.attributes["predicted_us"].value >= targets.load("sm_90a").launch_us
        assert kernel.attributes["limit"].value in (TENSOR, L2, DRAM, LATENCY)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", [(2, 72, 136, 200), (1, 16, 48, 2504)], ids=str)
def test_the_interpreter_agrees(sizes, turned):
    """Sizes whose rows tensor copies take as they are; the second one's sum is cut into parts."""
    b, m, n, k = sizes
    module = scheduled(*sizes, turned)  # kept: the kernel goes with it
    (kernel,) = dialect.kernels(module)
    rng = np.random.default_rng(0)
    left, right = (np.float32(rng.integers(-8, 8, shape)) for shape in ((b, m, k), (b, k, n)))
    arguments = [left.mT if turned[0] else left, right.mT if turned[1] else right]
    (found,) = run(kernel, arguments, ctas=3, seed=1)
    wanted = np.float32(left @ right)
    np.testing.assert_allclose(found.sum(0) if found.ndim == 4 else found, wanted, rtol=1e-5, atol=1e-3)
