"""Large contractions have tensor cores where the target has them."""

import json

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.bench import zoo
from kitsune_mlir.bench.scalar_products import scalar_products
from kitsune_mlir.planning import target as targets


def compiled(name, target):
    module, args, _ = zoo.make(f"zoo/{name}-small", "bf16")
    return kitsune_mlir.compile(module, args, target=target)


@pytest.mark.parametrize("name", ["attention-cross", "conv3x3"])
def test_none_is_a_scalar_loop(name):
    """All of the zoo: bench/check_zoo.py --target sm_80."""
    model = compiled(name, "sm_80")
    torch.set_float32_matmul_precision("highest")
    assert not scalar_products(model, "sm_80")
    assert any(launch["form"] == "scheduled product" for launch in model.plan["launches"])


def test_without_tensor_cores_they_are_found(tmp_path):
    path = tmp_path / "fma.json"
    fields = json.loads((targets.FOLDER / "sm_80.json").read_text())
    path.write_text(json.dumps(fields | {"name": "fma", "products": "fma"}))
    (found,) = scalar_products(compiled("batched-product", str(path)), "fma")
    assert "linalg.batch_matmul of 4194304 multiply-adds" in found
