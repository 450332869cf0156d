"""Constants that stay behind while a module is lowered come back in their places."""

from pathlib import Path

import numpy as np
import torch

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.frontend import large_constants

SIDE = 128
MATRIX = f"!torch.vtensor<[{SIDE},{SIDE}],f32>"
MODEL = f"""func.func @main(%x: {MATRIX}) -> {MATRIX} {{
  %a = torch.vtensor.literal(dense_resource<a> : tensor<{SIDE}x{SIDE}xf32>) : {MATRIX}
  %splat = torch.vtensor.literal(dense<2.0> : tensor<{SIDE}x{SIDE}xf32>) : {MATRIX}
  %b = torch.vtensor.literal(dense_resource<b> : tensor<{SIDE}x{SIDE}xf32>) : {MATRIX}
  %0 = torch.aten.mm %x, %a : {MATRIX}, {MATRIX} -> {MATRIX}
  %1 = torch.aten.mul.Tensor %0, %splat : {MATRIX}, {MATRIX} -> {MATRIX}
  %2 = torch.aten.mm %1, %b : {MATRIX}, {MATRIX} -> {MATRIX}
  return %2 : {MATRIX}
}}
{{-# dialect_resources: {{ builtin: {{ a: "0x04000000HEX_A", b: "0x04000000HEX_B" }} }} #-}}
"""


def test_they_come_back(tmp_path: Path) -> None:
    x, a, b = (np.random.default_rng(i).standard_normal((SIDE, SIDE), np.float32) for i in range(3))
    path = tmp_path / "model.mlir"
    path.write_text(MODEL.replace("HEX_A", a.tobytes().hex()).replace("HEX_B", b.tobytes().hex()))
    module = mlir.ir.Module.parseFile(str(path), mlir.context())
    lifted, constants = large_constants.lift(module)
    assert len(constants) == 2 and len(mlir.bytecode(lifted)) < 4096 < len(mlir.bytecode(module))
    compiled = kitsune_mlir.compile(path)
    torch.testing.assert_close(torch.as_tensor(compiled(x)), torch.as_tensor(x @ a * 2 @ b), rtol=1e-4, atol=1e-3)
