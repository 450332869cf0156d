"""Expanded math operations, executed on the CPU: error over wide ranges, special values, narrow types."""

import math

import ml_dtypes
import numpy as np
import pytest
from host_math import apply, run

from kitsune_mlir import mlir
from kitsune_mlir.codegen import ptx, ptxas
from kitsune_mlir.codegen.device_math import expand_math
from kitsune_mlir.planning import target

RANDOM = np.random.default_rng(7)
erf, erfc = np.vectorize(math.erf, otypes=[float]), np.vectorize(math.erfc, otypes=[float])


def normal(scale):
    return RANDOM.standard_normal(500) * scale


def span(low, high):
    return RANDOM.uniform(low, high, 500)


WIDE = np.exp(RANDOM.uniform(math.log(1e-30), math.log(1e30), 500)) * RANDOM.choice([-1, 1], 500)
POSITIVE = np.r_[abs(WIDE), 1 + normal(1e-3)]
UNARY = {
    "exp": (np.exp, np.r_[normal(1), span(-87, 88)]),
    "exp2": (np.exp2, np.r_[normal(1), span(-125, 127)]),
    "expm1": (np.expm1, np.r_[normal(1e-3), normal(1), span(-87, 88)]),
    "log": (np.log, POSITIVE),
    "log2": (np.log2, POSITIVE),
    "log10": (np.log10, POSITIVE),
    "log1p": (np.log1p, np.r_[normal(1e-6), span(-0.999, 1), abs(WIDE)]),
    "tanh": (np.tanh, np.r_[normal(1e-4), normal(1), span(-30, 30)]),
    "sinh": (np.sinh, np.r_[normal(1e-4), normal(1), span(-88, 88)]),
    "cosh": (np.cosh, np.r_[normal(1), span(-88, 88)]),
    "asinh": (np.arcsinh, np.r_[normal(1e-4), normal(1), WIDE]),
    "acosh": (np.arccosh, 1 + np.r_[abs(normal(1e-3)), abs(WIDE)]),
    "atanh": (np.arctanh, np.r_[normal(1e-4), span(-0.9999, 0.9999)]),
    "sin": (np.sin, np.r_[normal(1), span(-1e5, 1e5), WIDE, math.pi * np.arange(1, 200)]),
    "cos": (np.cos, np.r_[normal(1), span(-1e5, 1e5), WIDE, math.pi / 2 * np.arange(1, 200)]),
    "tan": (np.tan, np.r_[normal(1), span(-1e5, 1e5), WIDE]),
    "asin": (np.arcsin, np.r_[normal(1e-4), span(-1, 1)]),
    "acos": (np.arccos, np.r_[normal(1e-4), span(-1, 1)]),
    "atan": (np.arctan, np.r_[normal(1), WIDE]),
    "erf": (erf, np.r_[normal(1e-3), normal(1), normal(3)]),
    "erfc": (erfc, np.r_[normal(1), span(-5, 8)]),
    "rsqrt": (lambda x: 1 / np.sqrt(x), POSITIVE),
    "cbrt": (np.cbrt, WIDE),
}


def relative_error(found, wanted):
    """The largest, over the wanted values that are normal f32 numbers."""
    fits = (abs(wanted) < 3e38) & (abs(wanted) > 1e-37)
    assert np.isfinite(found[fits]).all()
    return float(np.max(abs(found[fits] - wanted[fits]) / abs(wanted[fits])))


@pytest.mark.parametrize(("kind", "bound"), [("f32", 8e-7), ("f64", 1e-14)])
@pytest.mark.parametrize("name", UNARY)
def test_error_over_the_range(name, kind, bound):
    function, points = UNARY[name]
    x = points.astype({"f32": np.float32, "f64": np.float64}[kind])
    exact = function(x.astype(np.float64))
    if kind == "f64" and name not in ("erf", "erfc"):
        exact = function(x.astype(np.longdouble))
    found = apply(f"math.{name}", [x], kind, prepare=expand_math)
    assert relative_error(found, exact) < bound


@pytest.mark.parametrize(("kind", "dtype", "bound"), [("f32", np.float32, 5e-7), ("f64", np.float64, 1e-13)])
def test_power_and_remainder(kind, dtype, bound):
    x, y = np.r_[abs(WIDE), abs(normal(1))].astype(dtype), np.r_[span(-1, 1), normal(20)].astype(dtype)
    found = apply("math.powf", [x, y], kind, prepare=expand_math)
    assert relative_error(found, x.astype(np.longdouble) ** y.astype(np.longdouble)) < bound
    x, y = np.r_[normal(1e4), WIDE[:50]].astype(dtype), np.r_[normal(1), normal(1e-3)[:50]].astype(dtype)
    np.testing.assert_array_equal(apply("arith.remf", [x, y], kind, prepare=expand_math), np.fmod(x, y))


SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-42, 3e38, -3e38, 100.0, -110.0]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name, kind):
    x = np.array(SPECIAL, {"f32": np.float32, "f64": np.float64}[kind])
    with np.errstate(all="ignore"):
        wanted = np.asarray(UNARY[name][0](x.astype(np.float64)), np.float64).astype(x.dtype)
    found = apply(f"math.{name}", [x], kind, prepare=expand_math)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=0 if kind == "f64" else 1e-44)


@pytest.mark.parametrize(("name", "function"), [("powf", np.power), ("atan2", np.arctan2)])
def test_special_values_of_two(name, function):
    values = np.array([*SPECIAL, 2.0, 3.0, -3.0, 0.5, -2.5], np.float32)
    x, y = (grid.ravel().copy() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        wanted = function(x, y)
    found = apply(f"math.{name}", [x, y], "f32", prepare=expand_math)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-45)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(("kind", "dtype", "ulp"), [("bf16", ml_dtypes.bfloat16, 2**-8), ("f16", np.float16, 2**-11)])
def test_narrow_types(name, kind, dtype, ulp):
    function, points = UNARY[name]
    with np.errstate(over="ignore"):
        x = points.astype(np.float32).astype(dtype)
    x = x[np.isfinite(x.astype(np.float64))]
    with np.errstate(all="ignore"):
        wanted = np.asarray(function(x.astype(np.float64)), np.float64)
    found = apply(f"math.{name}", [x], kind, prepare=expand_math).astype(np.float64)
    fits = (abs(wanted) < 6e4) & (abs(wanted) > 7e-5)
    assert np.max((abs(found[fits] - wanted[fits]) - 1e-6) / abs(wanted[fits])) < ulp


def with_constant_exponent(operation, kind, exponent):
    def prepare(module):
        op = mlir.walk(module, operation)[0]
        with op.context, op.location, mlir.ir.InsertionPoint(op):
            op.operands[1] = mlir.arith.constant(op.operands[1].type, exponent)
        expand_math(module)
        assert not mlir.walk(module, "scf.while", "llvm.inline_asm")

    return prepare


@pytest.mark.parametrize("exponent", [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 10.0, 0.5])
def test_constant_exponents_become_products(exponent):
    x = np.array([0.5, 1.5, 2.0, 7.0, 100.0], np.float32)
    found = apply("math.powf", [x, x], "f32", prepare=with_constant_exponent("math.powf", "f32", exponent))
    np.testing.assert_allclose(found, x**exponent, rtol=3e-7)


def test_integer_powers():
    x, n = np.array([1.5, -2.0, 0.5, 3.0, 0.0], np.float32), np.array([7, 3, -4, 0, 2], np.int32)
    module = mlir.parse(
        """func.func @main(%x: memref<?xf32>, %n: memref<?xi32>, %out: memref<?xf32>) {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %size = memref.dim %out, %c0 : memref<?xf32>
          scf.for %i = %c0 to %size step %c1 {
            %a = memref.load %x[%i] : memref<?xf32>
            %b = memref.load %n[%i] : memref<?xi32>
            %r = math.fpowi %a, %b : f32, i32
            memref.store %r, %out[%i] : memref<?xf32>
          }
          return }""",
        mlir.context(),
    )
    expand_math(module)
    out = np.zeros(5, np.float32)
    run(module, x, n, out)
    np.testing.assert_allclose(out, x**n)
    whole = np.array([3, -2, 1, -1, 2, 5], np.int64)
    count = np.array([5, 3, -4, -3, -1, 0], np.int64)
    found = apply("math.ipowi", [whole, count], "i64", prepare=expand_math)
    np.testing.assert_array_equal(found, [243, -8, 1, -1, 0, 1])


@pytest.mark.parametrize("name", ["isfinite", "isinf", "isnan", "isnormal"])
def test_predicates(name):
    x = np.array(SPECIAL, np.float32)
    wanted = {
        "isfinite": np.isfinite(x),
        "isinf": np.isinf(x),
        "isnan": np.isnan(x),
        "isnormal": np.isfinite(x) & (abs(x) >= np.finfo(np.float32).tiny),
    }[name]
    np.testing.assert_array_equal(apply(f"math.{name}", [x], "f32", "i1", prepare=expand_math), wanted)


KERNEL = """gpu.module @kernels {{
  gpu.func @kernel(%in: memref<?x{kind}>, %out: memref<?x{kind}>) kernel {marks} {{
    %i = gpu.thread_id x
    %x = vector.load %in[%i] : memref<?x{kind}>, vector<4x{kind}>
    {body}
    vector.store %y, %out[%i] : memref<?x{kind}>, vector<4x{kind}>
    gpu.return
  }}
}}"""


@pytest.mark.parametrize(
    "kind, chip",
    [
        *((kind, "sm_90a") for kind in ("f32", "bf16", "f16", "f64")),
        *((kind, chip) for kind in ("f32", "bf16") for chip in ("sm_80", "sm_120")),
    ],
)
def test_vectors_of_every_operation_assemble(kind, chip):
    """Of two elements where those of four are twice the same instructions as elsewhere."""
    count = 4 if chip == "sm_90a" and kind in ("f32", "bf16") else 2
    names = [*UNARY, "absf", "ceil", "floor", "round", "roundeven", "sqrt", "trunc"]
    lines = [f"%v0 = arith.addf %x, %x : vector<4x{kind}>"]
    lines += [f"%v{i + 1} = math.{name} %v{i} : vector<4x{kind}>" for i, name in enumerate(names)]
    lines += [f"%p = math.powf %x, %v{len(names)} : vector<4x{kind}>", f"%y = math.fma %p, %x, %x : vector<4x{kind}>"]
    text = KERNEL.format(kind=kind, marks="", body="\n".join(lines)).replace("<4x", f"<{count}x")
    module = mlir.parse(text, mlir.context())
    text = ptx.to_ptx(mlir.walk(module, "gpu.module")[0], target.load(chip))
    assert "__nv_" not in text
    assert ptxas.assemble(text, target.load(chip)).kernels["kernel"].registers > 0


@pytest.mark.parametrize(("marks", "fast"), [("", False), ("attributes {kitsune.fast_math}", True)])
def test_fast_forms_are_asked_for_by_an_attribute(marks, fast):
    body = "%t = math.tanh %x : vector<4xf32>\n%y = arith.divf %t, %x : vector<4xf32>"
    module = mlir.parse(KERNEL.format(kind="f32", marks=marks, body=body), mlir.context())
    text = ptx.to_ptx(mlir.walk(module, "gpu.module")[0], target.load("sm_90a"))
    assert ("tanh.approx.f32" in text) == fast
    assert ("div.approx.ftz.f32" in text) == fast
    assert ("div.rn.f32" in text) != fast


@pytest.mark.parametrize("name", ["absi", "ctlz", "cttz", "ctpop"])
def test_integers(name):
    x = np.array([0, 1, -5, 1 << 20, -(2**31) + 1], np.int32)
    unsigned = [int(value) & 0xFFFFFFFF for value in x]
    wanted = {
        "absi": abs(x),
        "ctlz": [32 - value.bit_length() for value in unsigned],
        "cttz": [(value & -value).bit_length() - 1 if value else 32 for value in unsigned],
        "ctpop": [value.bit_count() for value in unsigned],
    }[name]
    np.testing.assert_array_equal(apply(f"math.{name}", [x], "i32", prepare=expand_math), wanted)
