"""What is linked into the CPU's shared object: large constants as they are, and no functions but the runner's."""

import ctypes

import numpy as np
import pytest
from cpu_case import build, from_bf16, runner, to_bf16

from kitsune_mlir import mlir
from kitsune_mlir.codegen.cpu_object import shared_object
from kitsune_mlir.errors import UserError
from kitsune_mlir.runtime.cpu import Library
from kitsune_mlir.runtime.manifest import ENTRY

SUM = """
func.func @main(%x: tensor<40x50x{kind}>) -> tensor<40x50x{kind}> {{
  %w = arith.constant {value} : tensor<40x50x{kind}>
  %init = tensor.empty() : tensor<40x50x{kind}>
  %0 = linalg.{operation} ins(%x, %w : tensor<40x50x{kind}>, tensor<40x50x{kind}>) outs(%init : tensor<40x50x{kind}>)
    -> tensor<40x50x{kind}>
  return %0 : tensor<40x50x{kind}>
}}
"""
RESOURCE = """
{{-# dialect_resources: {{ builtin: {{ weights: "0x04000000{digits}" }} }} #-}}
"""


def run(kind, value, x, operation="add", resource=""):
    section = build(SUM.format(kind=kind, value=value, operation=operation) + resource)
    return runner(section).run([x])[0]


@pytest.mark.parametrize("held", ["dense", "dense_resource"])
def test_large_constants_of_f32(held):
    x, w = np.random.default_rng(0).standard_normal((2, 40, 50), np.float32)
    digits = w.tobytes().hex()
    if held == "dense":
        found = run("f32", f'dense<"0x{digits}">', x)
    else:
        found = run("f32", "dense_resource<weights>", x, resource=RESOURCE.format(digits=digits))
    assert (found == x + w).all()


def test_large_constants_of_bf16():
    x, w = (to_bf16(part) for part in np.random.default_rng(0).standard_normal((2, 40, 50), np.float32))
    found = run("bf16", f'dense<"0x{w.tobytes().hex()}">', x)
    assert (found == to_bf16(from_bf16(x) + from_bf16(w))).all()


def test_large_constants_of_truth():
    x, w = np.random.default_rng(0).random((2, 40, 50)) < 0.5
    words = str(w.astype(int).tolist()).replace("0", "false").replace("1", "true")
    assert (run("i1", f"dense<{words}>", x, operation="mul") == (x & w)).all()


def test_nothing_but_entries_is_seen():
    section = build(SUM.format(kind="f32", value="dense<1.0>", operation="add"))
    library = Library(section.files["main.so"])
    assert library.function(ENTRY)
    assert not hasattr(library.handle, "main") and not hasattr(library.handle, "_mlir_ciface_main")
    with pytest.raises(UserError):
        library.function("main")


EQUAL = f"""
llvm.func @doubled(%x: i64) -> i64 {{
  %0 = llvm.add %x, %x : i64
  llvm.return %0 : i64
}}
llvm.func @twice(%x: i64) -> i64 {{
  %0 = llvm.add %x, %x : i64
  llvm.return %0 : i64
}}
llvm.func @{ENTRY}(%place: !llvm.ptr) {{
  %x = llvm.load %place : !llvm.ptr -> i64
  %0 = llvm.call @doubled(%x) : (i64) -> i64
  %1 = llvm.call @twice(%0) : (i64) -> i64
  llvm.store %1, %place : i64, !llvm.ptr
  llvm.return
}}
"""


def test_equal_functions_stand_once():
    code, x = shared_object(mlir.parse(EQUAL, mlir.context()), 0), np.array([21], np.int64)
    library = Library(code)  # unmapped with the object
    library.function(ENTRY)(ctypes.c_void_p(x.ctypes.data))
    assert x[0] == 84
    assert [name in code for name in (b"doubled", b"twice")].count(True) == 1
