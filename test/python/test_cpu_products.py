# ruff: noqa: E501  (MLIR text)
"""Matrix products on the CPU: sizes that divide nothing, transposes, batches, element types, accumulation."""

import numpy as np
import pytest
from cpu_case import build, error, from_bf16, run, runner, to_bf16

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i32": np.int32, "i64": np.int64, "i8": np.int8}
RANDOM = np.random.default_rng(0)


def product(m, n, k, left="f32", right="f32", result="f32", maps="", init="zero"):
    zero = "0" if result.startswith("i") else "0.0"
    b = f"{n}x{k}" if maps else f"{k}x{n}"
    return f"""
    func.func @main(%a: tensor<{m}x{k}x{left}>, %b: tensor<{b}x{right}>, %c: tensor<{m}x{n}x{result}>) -> tensor<{m}x{n}x{result}> {{
      %0 = arith.constant {zero} : {result}
      %e = tensor.empty() : tensor<{m}x{n}x{result}>
      %zero = linalg.fill ins(%0 : {result}) outs(%e : tensor<{m}x{n}x{result}>) -> tensor<{m}x{n}x{result}>
      %r = linalg.matmul {maps} ins(%a, %b : tensor<{m}x{k}x{left}>, tensor<{b}x{right}>) outs(%{init} : tensor<{m}x{n}x{result}>) -> tensor<{m}x{n}x{result}>
      return %r : tensor<{m}x{n}x{result}>
    }}"""


TRANSPOSED = "indexing_maps = [affine_map<(m,n,k)->(m,k)>, affine_map<(m,n,k)->(n,k)>, affine_map<(m,n,k)->(m,n)>]"


def numbers(shape, dtype):
    return (
        RANDOM.integers(-9, 9, shape).astype(dtype)
        if np.dtype(dtype).kind == "i"
        else RANDOM.standard_normal(shape).astype(dtype)
    )


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (7, 33, 5), (64, 32, 16), (65, 31, 513), (3, 100, 1), (130, 70, 600)])
def test_any_sizes(m, n, k):
    a, b, c = numbers((m, k), "f4"), numbers((n, k), "f4"), numbers((m, n), "f4")
    (found,) = run(product(m, n, k, maps=TRANSPOSED), a, b, c)
    assert error(found, a.astype("f8") @ b.T.astype("f8")) < 1e-6


@pytest.mark.parametrize(
    "left, right, result",
    [("f64", "f64", "f64"), ("f16", "f16", "f32"), ("i32", "i32", "i32"), ("i8", "i8", "i32"), ("i64", "i64", "i64")],
)
def test_element_types(left, right, result):
    a, b = numbers((9, 20), DTYPES[left]), numbers((20, 35), DTYPES[right])
    (found,) = run(product(9, 35, 20, left, right, result), a, b, np.zeros((9, 35), DTYPES[result]))
    assert found.dtype == DTYPES[result]
    assert error(found, a.astype("f8") @ b.astype("f8")) < 1e-6


@pytest.mark.parametrize("result", ["f32", "bf16"])
def test_bf16_sums_in_f32(result):
    a, b = to_bf16(numbers((9, 700), "f4")), to_bf16(numbers((700, 35), "f4"))
    out = np.zeros((9, 35), np.uint16 if result == "bf16" else np.float32)
    (found,) = run(product(9, 35, 700, "bf16", "bf16", result), a, b, out)
    found = from_bf16(found) if result == "bf16" else found
    assert error(found, from_bf16(a).astype("f8") @ from_bf16(b)) < (5e-3 if result == "bf16" else 1e-6)


@pytest.mark.parametrize("m", [5, 9])
@pytest.mark.parametrize("k", [0, 3, 1030])
def test_adds_to_what_is_there(m, k):
    a, b, c = numbers((m, k), "f4"), numbers((k, 40), "f4"), numbers((m, 40), "f4")
    kept = c.copy()
    (found,) = run(product(m, 40, k, init="c"), a, b, c)
    assert error(found, c + a.astype("f8") @ b.astype("f8")) < 1e-6
    assert (c == kept).all()


def test_rounding_does_not_grow_with_what_is_summed():
    """Parts of 512 products are summed apart: one sum after another was 1.9e-6 off."""
    a, b = RANDOM.standard_normal((16, 11_520), "f4"), RANDOM.standard_normal((11_520, 24), "f4")
    got = run(product(16, 24, 11_520), a, b, np.zeros((16, 24), "f4"))
    want = a.astype("f8") @ b.astype("f8")
    assert np.linalg.norm(got - want) < 6e-7 * np.linalg.norm(want)


@pytest.mark.parametrize("m", [1, 8, 9])
def test_nothing_to_sum_is_zero(m):
    (found,) = run(product(m, 40, 0), numbers((m, 0), "f4"), numbers((0, 40), "f4"), numbers((m, 40), "f4"))
    assert (found == 0).all()


@pytest.mark.parametrize("register_bytes", [16, 32, 64])
def test_narrower_registers(monkeypatch, register_bytes):
    """What a processor without AVX-512, or without AVX, would run."""
    monkeypatch.setattr("kitsune_mlir.runtime.cpu_features.vector_bytes", lambda: register_bytes)
    a, b = numbers((21, 40), "f4"), numbers((70, 40), "f4")
    (found,) = run(product(21, 70, 40, maps=TRANSPOSED), a, b, np.zeros((21, 70), "f4"))
    assert error(found, a.astype("f8") @ b.T.astype("f8")) < 1e-6


def test_transposed_operands_are_read_in_place():
    source = """
    func.func @main(%a: tensor<3x20x9xf32>, %w: tensor<3x35x20xf32>) -> tensor<3x9x35xf32> {
      %0 = arith.constant 0.0 : f32
      %ea = tensor.empty() : tensor<3x9x20xf32>
      %at = linalg.transpose ins(%a : tensor<3x20x9xf32>) outs(%ea : tensor<3x9x20xf32>) permutation = [0, 2, 1]
      %ew = tensor.empty() : tensor<3x20x35xf32>
      %wt = linalg.transpose ins(%w : tensor<3x35x20xf32>) outs(%ew : tensor<3x20x35xf32>) permutation = [0, 2, 1]
      %e = tensor.empty() : tensor<3x9x35xf32>
      %z = linalg.fill ins(%0 : f32) outs(%e : tensor<3x9x35xf32>) -> tensor<3x9x35xf32>
      %r = linalg.batch_matmul ins(%at, %wt : tensor<3x9x20xf32>, tensor<3x20x35xf32>) outs(%z : tensor<3x9x35xf32>) -> tensor<3x9x35xf32>
      return %r : tensor<3x9x35xf32>
    }"""
    a, w = numbers((3, 20, 9), "f4"), numbers((3, 35, 20), "f4")
    (found,) = run(source, a, w)
    assert error(found, np.einsum("bkm,bnk->bmn", a.astype("f8"), w.astype("f8"))) < 1e-6


def test_dynamic_rows():
    source = """
    func.func @main(%x: tensor<?x6xf32>, %w: tensor<6x50xf32>) -> (tensor<?x50xf32>, tensor<1x6xf32>) {
      %0 = arith.constant 0.0 : f32
      %c0 = arith.constant 0 : index
      %n = tensor.dim %x, %c0 : tensor<?x6xf32>
      %e = tensor.empty(%n) : tensor<?x50xf32>
      %z = linalg.fill ins(%0 : f32) outs(%e : tensor<?x50xf32>) -> tensor<?x50xf32>
      %r = linalg.matmul ins(%x, %w : tensor<?x6xf32>, tensor<6x50xf32>) outs(%z : tensor<?x50xf32>) -> tensor<?x50xf32>
      %s = tensor.extract_slice %w[0, 0] [1, 6] [1, 1] : tensor<6x50xf32> to tensor<1x6xf32>
      return %r, %s : tensor<?x50xf32>, tensor<1x6xf32>
    }"""
    w, call = numbers((6, 50), "f4"), runner(build(source))
    for rows in (5, 0, 1, 129):
        x = numbers((rows, 6), "f4")
        found, part = call.run([x, w])
        assert found.shape == (rows, 50) and error(found, x.astype("f8") @ w) < 1e-6
        assert (part == w[:1, :6]).all()
