"""The fast forms of math operations: errors and special values on the CPU, the code they become for a GPU."""

import math
import re

import numpy as np
import pytest
from host_math import apply, run
from test_device_math import SPECIAL, UNARY

from kitsune_mlir import mlir
from kitsune_mlir.codegen import math_fast, ptx, ptxas
from kitsune_mlir.codegen.device_math import expand_math
from kitsune_mlir.planning import target

FAST = ["cos", "erf", "erfc", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2", "sin", "sqrt", "tan", "tanh"]
KNOWN = UNARY | {"sqrt": (np.sqrt, UNARY["log"][1])}
HOPPER = target.load("sm_90a")


def expand_fast(module):
    for function in mlir.walk(module, "func.func"):
        with module.context:
            function.attributes["kitsune.fast_math"] = mlir.ir.UnitAttr.get()
    expand_math(module)
    assert not mlir.walk(module, "scf.if", "scf.while", "memref.alloca")


@pytest.mark.parametrize("name", FAST)
def test_error_over_the_range(name):
    function, points = KNOWN[name]
    x = points.astype(np.float32)
    wanted = function(x.astype(np.float64))
    found = apply(f"math.{name}", [x], "f32", prepare=expand_fast).astype(np.float64)
    fits = (abs(wanted) < 3e38) & (abs(wanted) < 1e3 if name == "tan" else True)
    bound = 1e-6 + 2e-5 * abs(wanted) * (1 + abs(wanted) * (name == "tan"))
    assert np.all(abs(found - wanted)[fits] < bound[fits])


@pytest.mark.parametrize("name", FAST)
def test_special_values(name):
    x = np.array([value for value in SPECIAL if abs(value) != 1e-42], np.float32)
    with np.errstate(all="ignore"):
        wanted = np.asarray(KNOWN[name][0](x.astype(np.float64)), np.float64).astype(np.float32)
    found = apply(f"math.{name}", [x], "f32", prepare=expand_fast)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sin", "erf"])
def test_small_arguments_keep_their_digits(name):
    x = np.array([1e-30, -1e-10, 1e-5, 0.01, -0.0624, 0.0626, 0.1], np.float32)
    wanted = KNOWN[name][0](x.astype(np.float64))
    found = apply(f"math.{name}", [x], "f32", prepare=expand_fast)
    relative = {"sin": 1e-6, "erf": 1e-3}[name]
    np.testing.assert_allclose(found, wanted, rtol=relative, atol=1e-7 if name == "erf" else 0)


def test_turns_of_every_exponent():
    x = np.ldexp(np.float32(1.7315), np.arange(-126, 128)).astype(np.float32)
    for name in ("sin", "cos"):
        found = apply(f"math.{name}", [x], "f32", prepare=expand_fast)
        np.testing.assert_allclose(found, KNOWN[name][0](x.astype(np.float64)), atol=3e-7)


FUNCTION = """func.func @main(%in: memref<?xf32>, %out: memref<?xf32>) {{
  %zero = arith.constant 0 : index
  %step = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %size = memref.dim %out, %zero : memref<?xf32>
  scf.for %i = %zero to %size step %step {{
    %x = memref.load %in[%i] : memref<?xf32>
    %three = arith.constant 3.0 : f32
    %n = arith.negf %x : f32
    %e = math.exp %n : f32
    %d = arith.addf %e, %one : f32
    %s = arith.divf %one, %d : f32
    {body}
    memref.store %y, %out[%i] : memref<?xf32>
  }}
  return }}"""
X = np.r_[np.linspace(-30, 30, 301), math.inf, math.nan].astype(np.float32)


def shortened(body):
    """What is left of the function's instructions, and its values at X."""
    module = mlir.parse(FUNCTION.format(body=body), mlir.context())
    expand_fast(module)
    text = str(module)
    out = np.zeros_like(X)
    run(module, X, out)
    return text, out.astype(np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


@pytest.mark.parametrize(
    ("body", "factor", "instructions"),
    [
        ("%y = arith.mulf %s, %x : f32", X, 3),
        ("%y = arith.mulf %x, %s : f32", X, 3),
        ("%y = arith.mulf %s, %three : f32", 3.0, 4),
    ],
)
def test_gates_go_through_tanh(body, factor, instructions):
    text, found = shortened(body)
    assert re.findall(r'"(\w+\.approx)', text) == ["tanh.approx"]
    assert len(re.findall(r"mulf|addf|divf|negf|llvm.inline_asm|fma|math.exp", text)) == instructions
    np.testing.assert_allclose(found, sigmoid(X) * factor, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "function"),
    [
        ("%y = arith.addf %s, %x : f32", lambda s, e: s + X),
        ("%p = arith.mulf %s, %x : f32\n%y = arith.addf %p, %s : f32", lambda s, e: s * X + s),
        ("%y = arith.mulf %s, %e : f32", lambda s, e: s * e),  # the exponential has another use
        ("%y = arith.mulf %s, %d : f32", lambda s, e: s * (1 + e)),
    ],
)
def test_a_sigmoid_with_other_uses_keeps_its_exponential(body, function):
    text, found = shortened(body)
    assert re.findall(r'"(\w+\.approx)', text) == ["ex2.approx", "rcp.approx"]
    wanted = function(sigmoid(X), np.exp(-X.astype(np.float64)))
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


def test_division_by_a_constant_is_a_product():
    text, found = shortened("%y = arith.divf %x, %three : f32")
    assert "divf" not in text and "div.approx" not in text
    np.testing.assert_allclose(found, X / 3.0, rtol=3e-7)


@pytest.mark.parametrize(
    ("body", "function"),
    [
        ("%t = arith.addf %x, %one : f32\n%y = arith.mulf %three, %t : f32", lambda x: 3 * (x + 1)),
        ("%t = arith.addf %one, %x : f32\n%y = arith.mulf %t, %x : f32", lambda x: x * (x + 1)),
    ],
)
def test_a_product_with_one_more_is_one_fma(body, function):
    text, found = shortened(body)
    assert text.count("llvm.fma.f32") == 1
    np.testing.assert_allclose(found, function(X.astype(np.float64)), rtol=1e-5)


def test_an_inexact_product_of_constants_stays():
    text, found = shortened(
        "%k = arith.constant -0.1 : f32\n%t = arith.addf %x, %k : f32\n%y = arith.mulf %t, %k : f32"
    )
    assert "fma" not in text and "mulf" in text
    np.testing.assert_allclose(found, (X - np.float32(0.1)) * np.float32(-0.1), rtol=1e-6)


@pytest.mark.parametrize(("limit", "wide"), [("20.0", False), ("0.1", True), ("1.0e300", True)])
def test_comparisons_with_a_constant_of_f32_are_in_f32(limit, wide):
    text, found = shortened(
        f"""%k = arith.constant {limit} : f64
    %w = arith.extf %x : f32 to f64
    %c = arith.cmpf ogt, %w, %k : f64
    %y = arith.select %c, %x, %three : f32"""
    )
    assert ("ogt" in text) and bool(re.search(r"cmpf ogt, .* : f64", text)) == wide
    np.testing.assert_array_equal(found, np.where(X.astype(np.float64) > float(limit), X, 3.0))


KERNEL = """gpu.func @{name}(%in: memref<?xf32>, %out: memref<?xf32>) kernel attributes {{{marks}}} {{
    %i = gpu.thread_id x
    %x = memref.load %in[%i] : memref<?xf32>
    {body}
    memref.store %y, %out[%i] : memref<?xf32>
    gpu.return
  }}"""
MARK = "kitsune.fast_math"


def assembled(module_marks, *kernels):
    text = f"gpu.module @kernels {module_marks} {{\n" + "\n".join(kernels) + "\n}"
    module = mlir.parse(text, mlir.context())
    text = ptx.to_ptx(mlir.walk(module, "gpu.module")[0], HOPPER)
    return text, ptxas.assemble(text, HOPPER).kernels


@pytest.mark.parametrize("module_marks", ["", "attributes {kitsune.scheduled}"])
def test_kernels_share_one_table_of_turns(module_marks):
    body = "%s = math.sin %x : f32\n%c = math.cos %x : f32\n%y = arith.addf %s, %c : f32"
    text, kernels = assembled(module_marks, *(KERNEL.format(name=n, marks=MARK, body=body) for n in ("a", "b")))
    assert len(re.findall(rf"\.global .*{math_fast.TURNS}\[", text)) == 1
    assert text.count("sin.approx") == text.count("cos.approx") == 2
    assert len(kernels) == 2 and all(kernel.stack == 0 for kernel in kernels.values())


@pytest.mark.parametrize("marks", ["", MARK])
def test_products_and_sums_contract(marks):
    body = "%p = arith.mulf %x, %x : f32\n%y = arith.addf %p, %x : f32"
    text, _ = assembled("attributes {kitsune.scheduled}", KERNEL.format(name="a", marks=marks, body=body))
    assert ("fma.rn.f32" in text) == bool(marks)


def test_erf_is_short():
    kernel = KERNEL.format(name="a", marks=MARK, body="%y = math.erf %x : f32")
    text, _ = assembled("attributes {kitsune.scheduled}", kernel)
    assert len(re.findall(r"\.f32 \t%", text)) + text.count("ex2.approx.ftz.f32 ") <= 12
    assert text.count(".approx") == 1 and "bra" not in text
