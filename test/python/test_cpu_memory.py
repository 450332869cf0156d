# ruff: noqa: E501  (MLIR text)
"""Placing buffers in one block of memory: those in use together never overlap, others share."""

import numpy as np
from cpu_case import build, runner
from hypothesis import given
from hypothesis import strategies as st

from kitsune_mlir.codegen.cpu_memory import Buffer, place_buffers

BUFFERS = st.lists(
    st.builds(lambda size, first, length: Buffer(size, first, first + length), st.integers(0, 300), st.integers(0, 20), st.integers(0, 9)),
    max_size=25,
)  # fmt: skip


@given(BUFFERS)
def test_buffers_in_use_together_are_apart(buffers):
    offsets, total = place_buffers(buffers)
    assert all(offset % 64 == 0 and offset + b.size <= total for offset, b in zip(offsets, buffers, strict=True))
    for i, a in enumerate(buffers):
        for j, b in enumerate(buffers[:i]):
            if a.first <= b.last and b.first <= a.last and a.size and b.size:
                assert offsets[i] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[i]


def test_a_chain_needs_two_buffers():
    chain = [Buffer(1024, step, step + 1) for step in range(10)]
    assert place_buffers(chain)[1] == 2048


def test_reused_memory_keeps_what_is_still_needed():
    # %a is used first and last; in between, two sums of other buffers want memory.
    source = """
    func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
      %0 = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<64x64xf32>
      %z = linalg.fill ins(%0 : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
      %a = linalg.matmul ins(%x, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%z : tensor<64x64xf32>) -> tensor<64x64xf32>
      %b = linalg.matmul ins(%a, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%z : tensor<64x64xf32>) -> tensor<64x64xf32>
      %c = linalg.matmul ins(%b, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%z : tensor<64x64xf32>) -> tensor<64x64xf32>
      %d = linalg.matmul ins(%c, %a : tensor<64x64xf32>, tensor<64x64xf32>) outs(%z : tensor<64x64xf32>) -> tensor<64x64xf32>
      %r = linalg.add ins(%d, %a : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
      return %r : tensor<64x64xf32>
    }"""
    section = build(source)
    assert section.manifest["scratch_bytes"] < 4 * 64 * 64 * 4
    call = runner(section)
    for _ in range(2):
        x = np.random.default_rng(0).standard_normal((64, 64)).astype("f4") / 8
        (found,) = call.run([x])
        a = x.astype("f8") @ x
        assert np.allclose(found, a @ x @ x @ a + a, rtol=1e-4, atol=1e-6)
