# ruff: noqa: E501  (MLIR text)
"""What the CPU runner checks and promises: inputs untouched, dtypes and shapes named, the right processor."""

import copy

import numpy as np
import pytest
from cpu_case import build, from_bf16, run, runner, to_bf16

from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.runtime import cpu_features

# Tempts bufferization to write into its arguments: inserts into %x, fills %y, returns both and %x twice.
CLOBBER = """
func.func @main(%x: tensor<4x4xf32>, %y: tensor<2x4xf32>) -> (tensor<4x4xf32>, tensor<2x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %0 = arith.constant 7.0 : f32
  %f = linalg.fill ins(%0 : f32) outs(%y : tensor<2x4xf32>) -> tensor<2x4xf32>
  %i = tensor.insert_slice %f into %x[1, 0] [2, 4] [1, 1] : tensor<2x4xf32> into tensor<4x4xf32>
  return %i, %f, %x, %i : tensor<4x4xf32>, tensor<2x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}
"""
CAST = """
func.func @main(%x: tensor<3xbf16>, %n: tensor<i64>, %b: tensor<2xi1>) -> (tensor<3xbf16>, tensor<i64>, tensor<2xi1>) {
  %e = tensor.empty() : tensor<3xbf16>
  %y = linalg.generic {indexing_maps = [affine_map<(i)->(i)>, affine_map<(i)->(i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<3xbf16>) outs(%e : tensor<3xbf16>) {
  ^bb0(%in: bf16, %out: bf16):
    %v = arith.addf %in, %in : bf16
    linalg.yield %v : bf16
  } -> tensor<3xbf16>
  return %y, %n, %b : tensor<3xbf16>, tensor<i64>, tensor<2xi1>
}
"""


@pytest.fixture(scope="module")
def clobber():
    return build(CLOBBER)


def test_inputs_are_never_written(clobber):
    x, y = np.arange(16, dtype="f4").reshape(4, 4), np.ones((2, 4), "f4")
    x.flags.writeable = y.flags.writeable = False
    inserted, filled, same, again = runner(clobber).run([x, y])
    assert (x == np.arange(16).reshape(4, 4)).all() and (y == 1).all()
    assert (filled == 7).all() and (inserted[1:3] == 7).all() and (inserted[[0, 3]] == x[[0, 3]]).all()
    assert (same == x).all() and (again == inserted).all()
    same[:] = 0
    assert x[0, 1] == 1, "a result must not share memory with an input"


def test_strided_inputs_are_copied(clobber):
    x = np.arange(32, dtype="f4").reshape(4, 8)[:, ::2]
    assert (runner(clobber).run([x, np.ones((2, 4), "f4")])[2] == x).all()


def test_weights_are_bound_once(clobber):
    y = np.ones((2, 4), "f4")
    call = runner(clobber, [None, y])
    assert (call.run([np.zeros((4, 4), "f4")])[2] == 0).all()
    with pytest.raises(UserError, match="takes 1 inputs, and 2 were given"):
        call.run([y, y])


@pytest.mark.parametrize(
    "x, message",
    [
        (np.zeros((4, 4), "f8"), "input 0 must be f32, and float64 was given"),
        (np.zeros((4, 5), "f4"), "input 0 must be 4 x 4, and 4 x 5 was given"),
        (np.zeros(4, "f4"), "input 0 must be 4 x 4, and 4 was given"),
    ],
)
def test_wrong_inputs_are_named(clobber, x, message):
    with pytest.raises(UserError, match=message):
        runner(clobber).run([x, np.ones((2, 4), "f4")])


def test_dtypes_pass_through():
    x, flags = np.array([1.5, -2, 1e30], "f4"), np.array([True, False])
    doubled, number, same = runner(build(CAST)).run([to_bf16(x), np.array(5), flags])
    assert np.allclose(from_bf16(doubled), from_bf16(to_bf16(2 * x)))
    assert number.shape == () and number == 5 and number.dtype == np.int64
    assert (same == flags).all() and same.dtype == np.bool_


def test_another_processor_is_refused(clobber):
    manifest = copy.deepcopy(clobber.manifest)
    manifest["host"]["features"].append("avx1024f")
    with pytest.raises(UnsupportedError, match="avx1024f"):
        type(runner(clobber))(manifest, clobber.files, [None, None])
    manifest["host"] = {"machine": "riscv64", "features": []}
    with pytest.raises(UnsupportedError, match="riscv64"):
        type(runner(clobber))(manifest, clobber.files, [None, None])


def test_hundreds_of_arguments():
    """numpy hands out small arrays from memory of its own and larger ones from the heap, where what is freed too
    early is overwritten."""
    kind, identity = "tensor<2xf32>", "affine_map<(i)->(i)>"
    names, types = ", ".join(f"%a{i}" for i in range(300)), ", ".join(["tensor<2xf32>"] * 300)
    terms = "".join(f"%s{i} = arith.addf {f'%s{i - 1}' if i > 1 else '%b0'}, %b{i} : f32\n" for i in range(1, 300))
    source = f"""
    func.func @main({", ".join(f"%a{i}: {kind}" for i in range(300))}) -> {kind} {{
      %e = tensor.empty() : {kind}
      %y = linalg.generic {{indexing_maps = [{", ".join([identity] * 301)}], iterator_types = ["parallel"]}}
          ins({names} : {types}) outs(%e : {kind}) {{
      ^bb0({", ".join(f"%b{i}: f32" for i in range(300))}, %out: f32):
        {terms}
        linalg.yield %s299 : f32
      }} -> {kind}
      return %y : {kind}
    }}"""
    (total,) = run(source, *(np.full(2, i, "f4") for i in range(300)))
    assert (total == sum(range(300))).all()


def test_this_processor_is_described():
    assert cpu_features.missing(cpu_features.host()) == []
    assert cpu_features.vector_bytes() in (16, 32, 64)


def test_no_compiler_is_a_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnsupportedError, match="C compiler"):
        build(CLOBBER)
