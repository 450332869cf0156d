"""Code marked `kitsune.short_math`: as accurate as f32, without branches; on the CPU, and the code it becomes."""

import math
import re

import numpy as np
import pytest
from host_math import apply, run
from test_device_math import SPECIAL, WIDE
from test_fast_math import FUNCTION, KERNEL

from kitsune_mlir import mlir
from kitsune_mlir.codegen import ptx
from kitsune_mlir.codegen.device_math import expand_math
from kitsune_mlir.codegen.math_simplify import SHORT, simplify
from kitsune_mlir.planning import target

GELU = """%root = arith.constant 0.707106769 : f32
    %half = arith.constant 0.5 : f32
    %scaled = arith.mulf %x, %root : f32
    %erf = math.erf %scaled : f32
    %whole = arith.addf %erf, %one : f32
    %h = arith.mulf %x, %half : f32
    %y = arith.mulf %h, %whole : f32"""
SIGMOID, SILU = "%y = arith.mulf %s, %one : f32", "%y = arith.mulf %s, %x : f32"
POINTS = np.r_[np.linspace(-87, 87, 4001), np.linspace(-7, 7, 4001), np.ldexp(1.3, np.arange(-40, 0))]
X = np.r_[POINTS, -POINTS].astype(np.float32)


def expand_short(module):
    for function in mlir.walk(module, "func.func"):
        with module.context:
            function.attributes[SHORT] = mlir.ir.UnitAttr.get()
    simplify(module)
    mlir.run_passes(module, "builtin.module(func.func(canonicalize))")  # without what is no longer used
    expand_math(module)
    assert not mlir.walk(module, "scf.if", "scf.while")


def computed(body, x, approximations):
    """The values of a function's body at x; it takes these instructions of the special function unit and no others."""
    module = mlir.parse(FUNCTION.format(body=body), mlir.context())
    expand_short(module)
    text = str(module)
    assert re.findall(r'"(\w+\.(?:approx|full))', text) == approximations and "math." not in text
    out = np.zeros_like(x)
    run(module, x, out)
    return out.astype(np.float64)


def exact_sigmoid(x):
    return 1 / (1 + np.exp(-x))


def exact_gelu(x):
    """x N(x); small values of N(x) by erfc, which does not cancel."""
    return x * np.vectorize(math.erfc)(-x * math.sqrt(0.5)) / 2


def test_the_error_of_gelu():
    x = np.r_[X, WIDE].astype(np.float32)
    found, wide = computed(GELU, x, ["ex2.approx"]), x.astype(np.float64)
    assert np.all(abs(found - exact_gelu(wide)) <= np.maximum(3e-7, 2.0**-23 * abs(wide)))
    divided = GELU.replace("0.707106769", "1.41421354").replace("mulf %x, %root", "divf %x, %root")
    np.testing.assert_array_equal(computed(divided, x, ["ex2.approx"]), found)


@pytest.mark.parametrize(("body", "units"), [(SIGMOID, 1), (SILU, 1.5)])
def test_the_error_of_sigmoid_and_silu(body, units):
    """In units of 2^-23 (1 + |x|) of the value; SiLU's product is rounded once more."""
    x = X.astype(np.float64)
    wanted = exact_sigmoid(x) * (x if body == SILU else 1)
    found = computed(body, X, ["ex2.approx", "rcp.approx"])
    fits = abs(wanted) >= 2.0**-126
    assert np.all(abs(found - wanted)[fits] <= (units * 2.0**-23 * (1 + abs(x)) * abs(wanted))[fits])
    assert fits.mean() > 0.9


@pytest.mark.parametrize(
    ("body", "function", "approximations"),
    [
        (GELU, exact_gelu, ["ex2.approx"]),
        (SIGMOID, exact_sigmoid, ["ex2.approx", "rcp.approx"]),
        (SILU, lambda x: x * exact_sigmoid(x), ["ex2.approx", "rcp.approx"]),
    ],
    ids=["gelu", "sigmoid", "silu"],
)
def test_special_values_of_activations(body, function, approximations):
    """As of the plain formulas, which torch computes: minus infinity times zero is no number."""
    x = np.array(SPECIAL, np.float32)
    with np.errstate(all="ignore"):
        wanted = function(x.astype(np.float64)).astype(np.float32)
    found = computed(body, x, approximations)
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=1e-37 if body != GELU else 3e-7)


def test_quotients_and_roots():
    x, y = np.r_[WIDE, 1.0].astype(np.float32), np.r_[WIDE[::-1], 3.0].astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        quotient = x.astype(np.float64) / y
        fits = (abs(quotient) > 1e-37) & (abs(quotient) < 3e38)
    found = apply("arith.divf", [x, y], "f32", prepare=expand_short)
    np.testing.assert_allclose(found[fits], quotient[fits], rtol=2.0**-22)
    found = apply("math.sqrt", [abs(x)], "f32", prepare=expand_short)
    np.testing.assert_allclose(found, np.sqrt(abs(x.astype(np.float64))), rtol=2.0**-22)


def test_special_values_of_quotients_and_roots():
    values = np.array(SPECIAL, np.float32)
    x, y = (grid.ravel().copy() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wanted, roots = x / y, np.sqrt(values)
    np.testing.assert_allclose(apply("arith.divf", [x, y], "f32", prepare=expand_short), wanted, rtol=3e-7)
    np.testing.assert_allclose(apply("math.sqrt", [values], "f32", prepare=expand_short), roots, rtol=3e-7)


@pytest.mark.parametrize(
    ("constant", "approximations"), [("-3.0", []), ("2.0e30", []), ("1.0e-42", ["div.full"]), ("0.0", ["div.full"])]
)
def test_a_constant_divisor_is_a_product_where_its_reciprocal_is_a_number(constant, approximations):
    x = np.r_[WIDE, SPECIAL].astype(np.float32)
    found = computed(f"%k = arith.constant {constant} : f32\n%y = arith.divf %x, %k : f32", x, approximations)
    with np.errstate(all="ignore"):
        wanted = x / np.float32(constant)
    np.testing.assert_allclose(found, wanted, rtol=3e-7, atol=1e-44)


@pytest.mark.parametrize("divisor", ["%k = arith.constant 49.0 : f32", "%k = arith.addf %c, %c : f32"])
def test_a_quotient_that_is_rounded_down_is_exact(divisor):
    """49 * (1 / 49) is below 1, and an approximate quotient may be."""
    x = np.arange(-490, 490, 49, dtype=np.float32)
    body = f"%c = arith.constant 24.5 : f32\n{divisor}\n%q = arith.divf %x, %k : f32\n%y = math.floor %q : f32"
    np.testing.assert_array_equal(computed(body, x, []), x / 49)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a"])
def test_the_code_has_no_branches(chip):
    body = "%q = arith.divf %x, %r : f32\n%e = math.exp %q : f32\n%y = math.tanh %e : f32"
    kernel = KERNEL.format(name="a", marks=SHORT, body=f"%r = math.sqrt %x : f32\n{body}")
    module = mlir.parse(f"gpu.module @kernels attributes {{kitsune.scheduled}} {{\n{kernel}\n}}", mlir.context())
    text = ptx.to_ptx(mlir.walk(module, "gpu.module")[0], target.load(chip))
    assert "div.full.f32" in text and "sqrt.approx.f32" in text
    assert not re.search(r"\bbra\b|\bcall\b|div\.rn|sqrt\.rn", text)
