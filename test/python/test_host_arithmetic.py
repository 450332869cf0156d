"""Every scalar operation that a host program may hold: translated, and computed as MLIR folds it."""

import math

import numpy as np
import pytest

from kitsune_mlir import mlir
from kitsune_mlir.codegen.host_program import host_program
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.runtime.host_arithmetic import OPERATIONS, compute
from kitsune_mlir.runtime.host_program import make_plan
from kitsune_mlir.runtime.prepared import _pack

INTEGERS, FLOATS = ("i8", "i16", "i32", "i64"), ("f16", "bf16", "f32", "f64")
CASTS = {
    "arith.extf": [("f16", "f32"), ("bf16", "f64")],
    "arith.truncf": [("f64", "f32"), ("f64", "bf16"), ("f32", "f16")],
    "arith.extsi": [("i8", "i64"), ("i1", "i32")],
    "arith.extui": [("i8", "i64"), ("i1", "i32")],
    "arith.trunci": [("i64", "i8"), ("i32", "i1")],
    "arith.index_cast": [("i32", "index"), ("index", "i16")],
    "arith.index_castui": [("i32", "index"), ("index", "i16")],
    "arith.sitofp": [("i64", "f32"), ("i32", "bf16"), ("i1", "f32")],
    "arith.uitofp": [("i8", "f32"), ("i64", "f64"), ("i1", "f32")],
    "arith.fptosi": [("f32", "i32"), ("f64", "i64")],
    "arith.fptoui": [("f64", "i64")],
}
UNSIGNED = "fptoui"  # of a negative number is undefined
SIZES = [(7, 3), (3, 7), (45, 4), (8, 8)]


def lines():
    """Each operation on numbers made of the sizes %a and %b, both positive and negative: (line, result's type)."""
    for name in OPERATIONS:
        operation, _, predicate = name.rpartition(".") if name[-1].isdigit() else (name, "", "")
        if operation == "arith.select":
            for kind in ("i1", "i32", "bf16"):
                yield f'"arith.select"(%i1_0, %{kind}_0, %{kind}_1) : (i1, {kind}, {kind}) -> {kind}', kind
        elif operation in CASTS:
            for of, to in CASTS[operation]:
                number = 1 if operation.endswith(UNSIGNED) else 0
                yield f'"{operation}"(%{of}_{number}) : ({of}) -> {to}', to
        elif operation in ("arith.cmpi", "arith.cmpf"):
            for of in ("i32", "i1") if operation.endswith("i") else ("f32", "f16"):
                attribute = f"<{{predicate = {predicate} : i64}}>"
                yield f'"{operation}"(%{of}_0, %{of}_1) {attribute} : ({of}, {of}) -> i1', "i1"
        else:
            unary = operation.startswith("math.") and "copysign" not in operation or operation == "arith.negf"
            whole = operation.startswith("arith.") and operation.endswith("i") or operation == "math.absi"
            for kind in INTEGERS if whole or operation.endswith("ui") else FLOATS:
                kinds = [kind] if unary else [kind] * 2
                given = ", ".join(f"%{kind}_{i}" for i in range(len(kinds)))
                yield f'"{operation}"({given}) : ({", ".join(kinds)}) -> {kind}', kind


def source(sizes):
    """A module whose one launch is given all results; %a and %b are sizes of the argument, or constants."""
    told = list(lines())
    out = ["%c0 = arith.constant 0 : index", "%c1 = arith.constant 1 : index"]
    for i, name in enumerate("ab"):
        if sizes:
            out.append(f"%{name} = arith.constant {sizes[i]} : index")
        else:
            out.append(f"%{name} = memref.dim %x, %c{i} : memref<?x?xf32>")
    out += ["%k5 = arith.constant 5 : index", "%b5 = arith.muli %b, %k5 : index"]
    out += ["%index_0 = arith.subi %a, %b5 : index", "%index_1 = arith.addi %b, %c0 : index"]
    out += ["%i1_0 = arith.cmpi slt, %a, %b : index", "%i1_1 = arith.cmpi ne, %a, %b : index"]
    for kind in INTEGERS:
        out += [f"%{kind}_{i} = arith.index_cast %index_{i} : index to {kind}" for i in range(2)]
    for kind in FLOATS:
        out.append(f"%{kind}_s = arith.constant 0.75 : {kind}")
        for i in range(2):
            out.append(f"%{kind}_w{i} = arith.sitofp %i64_{i} : i64 to {kind}")
            out.append(f"%{kind}_{i} = arith.mulf %{kind}_w{i}, %{kind}_s : {kind}")
    out += [f"%r{i} = {line}" for i, (line, _) in enumerate(told)]
    results = ", ".join(f"%r{i} : {kind}" for i, (_, kind) in enumerate(told))
    out.append(f"gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args({results})")
    body = "\n    ".join([*out, "return"])
    kernel = ", ".join(f"%r{i}: {kind}" for i, (_, kind) in enumerate(told))
    return f"""module attributes {{gpu.container_module}} {{
  func.func @main(%x: memref<?x?xf32>) {{
    {body}
  }}
  gpu.module @kernels {{ gpu.func @k({kernel}) kernel {{ gpu.return }} }}
}}"""


def plan(program, sizes):
    manifest = {"program": program, "arguments": [{"dtype": "f32", "shape": [None, None]}], "globals": {}}
    return make_plan(manifest, [sizes]).calls[0].arguments


def test_computed_as_mlir_folds_it():
    context = mlir.context()
    program = host_program(mlir.parse(source(None), context))
    assert {step["op"] for step in program} >= OPERATIONS.keys()
    for sizes in SIZES:
        folded = host_program(mlir.parse(source(sizes), context))
        assert len(folded) < 20  # a launch, a return, and the few that MLIR leaves: what truncf would round
        for (line, _), (kind, found), (_, wanted) in zip(
            lines(), plan(program, sizes), plan(folded, sizes), strict=True
        ):
            same = found == wanted or (math.isnan(found) and math.isnan(wanted))
            assert same and type(found) is type(wanted), f"{line} of {sizes}: {found} {kind}, MLIR says {wanted}"


def test_what_mlir_does_not_fold():
    assert compute("arith.truncf", [0.3], ["f64", "f32"]) == float(np.float32(0.3))
    assert compute("arith.truncf", [0.3], ["f64", "bf16"]) == 0.30078125
    with pytest.raises(ZeroDivisionError, match=r"arith.remui by zero"):
        compute("arith.remui", [4, 0], ["i64"] * 3)
    assert math.isnan(compute("arith.maximumf", [1.0, math.nan], ["f32"] * 3))
    assert compute("arith.maxnumf", [1.0, math.nan], ["f32"] * 3) == 1.0
    assert compute("arith.cmpf.4", [math.nan, 1.0], ["f32", "f32", "i1"]) is False
    assert compute("arith.cmpf.11", [math.nan, 1.0], ["f32", "f32", "i1"]) is True
    assert compute("math.round", [-2.5], ["f32"] * 2) == -3.0 and compute("math.roundeven", [2.5], ["f32"] * 2) == 2.0


def test_a_number_for_a_kernel_is_its_bits():
    slots = []
    for argument in (("bf16", 1.5), ("f32", 1.5), ("i8", -1), ("i1", True)):
        _pack(argument, slots, [])
    assert slots == [0x3FC0, 0x3FC00000, 0xFF, 1]


def test_others_are_refused():
    module = """func.func @main(%x: memref<?xf32>) -> memref<?xf32> {
      %c0 = arith.constant 0 : index
      %n = memref.dim %x, %c0 : memref<?xf32>
      %i = arith.index_cast %n : index to i32
      %b = arith.bitcast %i : i32 to f32
      %m = arith.fptosi %b : f32 to i32
      %s = arith.index_cast %m : i32 to index
      %y = memref.alloc(%s) : memref<?xf32>
      return %y : memref<?xf32>
    }"""
    with pytest.raises(UnsupportedError, match=r"arith.bitcast cannot run on the host"):
        host_program(mlir.parse(module, mlir.context()))
