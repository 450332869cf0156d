"""Runs device code on the CPU: the special function unit's instructions by their mathematics."""

from __future__ import annotations

import ctypes

import numpy as np

from kitsune_mlir import mlir
from kitsune_mlir.mlir import arith, ir, math, run_passes, walk

LOWER = (
    "builtin.module(convert-linalg-to-loops,expand-strided-metadata,lower-affine,convert-vector-to-scf,"
    "convert-scf-to-cf,func.func(math-extend-to-supported-types,memref-expand,arith-expand{include-bf16=1}),"
    "func.func(convert-math-to-llvm),"
    "convert-math-to-libm,finalize-memref-to-llvm,func.func(convert-arith-to-llvm),convert-vector-to-llvm,"
    "convert-index-to-llvm,convert-ub-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)"
)


def stand_in(root) -> None:
    """Replaces inline assembly of the special function unit under `root` by math operations."""
    for op in walk(root, "llvm.inline_asm"):
        with op.context, op.location, ir.InsertionPoint(op):
            x = op.operands[0]
            instruction = ir.StringAttr(op.attributes["asm_string"]).value.split(".")[0]
            match instruction:
                case "ex2":
                    value = math.exp2(x)
                case "lg2":
                    value = math.log2(x)
                case "tanh":
                    value = math.tanh(x)
                case "sin":
                    value = math.sin(x)
                case "cos":
                    value = math.cos(x)
                case "sqrt":
                    value = math.sqrt(x)
                case "rsqrt":
                    value = math.rsqrt(x)
                case "rcp":
                    value = arith.divf(arith.constant(x.type, 1.0), x)
                case "div":
                    value = arith.divf(x, op.operands[1])
                case _:
                    raise AssertionError(f"no stand-in for {instruction}")
            op.results[0].replace_all_uses_with(value)
            op.erase()


class Descriptor(ctypes.Structure):
    """A memref of rank 1."""

    _fields_ = [
        ("base", ctypes.c_void_p),
        ("aligned", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("stride", ctypes.c_int64),
    ]


def run(module: ir.Module, *arrays: np.ndarray) -> None:
    """Runs @main of a module of memref code on flat arrays; writes into them."""
    from torch_mlir.execution_engine import ExecutionEngine

    stand_in(module)
    main = walk(module, "func.func")[0]
    with module.context:
        main.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
    run_passes(module, LOWER)
    engine = ExecutionEngine(module, opt_level=1)
    arguments = []
    for array in arrays:
        descriptor = Descriptor(array.ctypes.data, array.ctypes.data, 0, array.size, 1)
        arguments.append(ctypes.pointer(ctypes.pointer(descriptor)))
    engine.invoke("main", *arguments)


def apply(operation: str, arrays: list[np.ndarray], kind: str, result: str | None = None, prepare=None) -> np.ndarray:
    """One scalar operation over flat arrays, after `prepare(module)`."""
    result = result or kind
    count = len(arrays)
    names = [f"%x{i}" for i in range(count)]
    arguments = ", ".join(f"{name}: memref<?x{kind}>" for name in names)
    loads = "\n".join(f"{name}v = memref.load {name}[%i] : memref<?x{kind}>" for name in names)
    values = ", ".join(f"{name}v" for name in names)
    types = ", ".join([kind] * count)
    module = mlir.parse(
        f"""func.func @main({arguments}, %out: memref<?x{result}>) {{
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %n = memref.dim %out, %c0 : memref<?x{result}>
          scf.for %i = %c0 to %n step %c1 {{
            {loads}
            %r = "{operation}"({values}) : ({types}) -> {result}
            memref.store %r, %out[%i] : memref<?x{result}>
          }}
          return }}""",
        mlir.context(),
    )
    if prepare is not None:
        prepare(module)
    dtype = {"i1": np.bool_}.get(result, arrays[0].dtype)
    out = np.zeros(arrays[0].size, dtype)
    run(module, *arrays, out)
    return out
