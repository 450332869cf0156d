# ruff: noqa: E501  (MLIR text)
"""Elementary functions on the CPU against the C library, over their whole range and at its ends."""

import numpy as np
import pytest
from cpu_case import run
from scipy import special

FUNCTIONS = {
    "math.exp": (np.exp, -87, 88.7),
    "math.log": (np.log, 1e-6, 1e6),
    "math.sin": (np.sin, -1e4, 1e4),
    "math.cos": (np.cos, -1e4, 1e4),
    "math.tanh": (np.tanh, -10, 10),
    "math.erf": (special.erf, -5, 5),
    "math.rsqrt": (lambda x: 1 / np.sqrt(x), 1e-6, 1e6),
    "math.exp2": (np.exp2, -20, 20),
    "math.log1p": (np.log1p, -0.9, 100),
    "math.expm1": (np.expm1, -5, 5),
    "math.sqrt": (np.sqrt, 0, 100),
    "math.atan": (np.arctan, -20, 20),
}
ENDS = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e-3, -1e-3, 100.0, -100.0, 1.0, 88.5], np.float32)


def elementwise(name: str, size: int, dtype: str = "f32") -> str:
    kind = f"tensor<{size}x{dtype}>"
    return f"""
    func.func @main(%x: {kind}) -> {kind} {{
      %e = tensor.empty() : {kind}
      %y = linalg.generic {{indexing_maps = [affine_map<(i)->(i)>, affine_map<(i)->(i)>], iterator_types = ["parallel"]}}
          ins(%x : {kind}) outs(%e : {kind}) {{
      ^bb0(%in: {dtype}, %out: {dtype}):
        %v = {name} %in : {dtype}
        linalg.yield %v : {dtype}
      }} -> {kind}
      return %y : {kind}
    }}"""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name):
    function, low, high = FUNCTIONS[name]
    x = np.concatenate([np.linspace(low, high, 9000), np.linspace(max(low, -1), min(high, 1), 1000)]).astype("f4")
    (found,) = run(elementwise(name, len(x)), x)
    wanted = function(x.astype("f8"))
    # Sine and cosine cross zero, where only the absolute error is small.
    scale = np.maximum(np.abs(wanted), 1e-2 if name in ("math.sin", "math.cos") else 1e-30)
    assert (np.abs(found - wanted) / scale).max() < 1e-6


@pytest.mark.parametrize("name", ["math.sin", "math.cos", "math.log1p", "math.expm1"])
def test_large_arguments(name):
    x = np.float32(2.0) ** np.linspace(10, 128, 20_000, endpoint=False, dtype="f4")
    x = np.concatenate([x, -x]) if "log1p" not in name else x
    (found,) = run(elementwise(name, len(x)), x)
    with np.errstate(over="ignore"):
        wanted = FUNCTIONS[name][0](x.astype("f8")).astype("f4")
    assert np.allclose(found, wanted, rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize(
    "name", ["math.exp", "math.log", "math.tanh", "math.erf", "math.rsqrt", "math.sin", "math.log1p", "math.expm1"]
)
def test_special_values(name):
    (found,) = run(elementwise(name, len(ENDS)), ENDS)
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[name][0](ENDS)
    assert np.allclose(found, wanted, rtol=1e-6, atol=1e-37, equal_nan=True)
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()


@pytest.mark.parametrize("name, function", [("math.tanh", np.tanh), ("math.erf", special.erf), ("math.exp", np.exp)])
def test_f64_goes_to_the_c_library(name, function):
    x = np.linspace(-3, 3, 100)
    (found,) = run(elementwise(name, 100, "f64"), x)
    assert np.allclose(found, function(x), rtol=1e-14)
