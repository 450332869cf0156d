"""Large contractions have tensor cores where the target has them."""

import json

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.bench import scalar_products as module
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


def few_rows():
    return kitsune_mlir.compile(nn.Linear(4096, 1000), (torch.randn(2, 4096),), target="sm_90a")


def test_a_thin_product_is_none():
    """Of two rows most of a tile of 64 would be empty: what takes time is reading the weights."""
    model = few_rows()
    assert any(launch["form"] == "scheduled rows" for launch in model.plan["launches"])
    assert not scalar_products(model, "sm_90a")


def test_a_thin_product_without_a_kernel_of_rows_is_one(monkeypatch):
    monkeypatch.setattr(module, "LAST", module.AFTER)
    monkeypatch.setattr(module, "AFTER", "place-stages")
    assert scalar_products(few_rows(), "sm_90a")


def test_a_batch_that_lies_last_has_tensor_cores():
    """A copy of it comes first, as no row of one of the products has neighbours in memory."""

    class Product(nn.Module):
        def forward(self, x, y):
            return torch.einsum("mkb,bkn->bmn", x, y)

    args = torch.randn(64, 32, 17), torch.randn(17, 32, 64)
    model = kitsune_mlir.compile(Product(), args, target="sm_90a")
    assert "scheduled product" in [launch["form"] for launch in model.plan["launches"]]
    assert not scalar_products(model, "sm_90a")


def test_f64_has_tensor_cores():
    """In a kernel of a single operator."""
    args = torch.randn(300, 200).double(), torch.randn(64, 200).double()
    model = kitsune_mlir.compile(Linear(), args, target="sm_90a")
    assert "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64" in model.ptx


class Linear(nn.Module):
    def forward(self, x, w):
        return nn.functional.linear(x, w)


def test_groups_have_tensor_cores():
    layer = nn.Conv2d(64, 64, 3, padding=1, groups=16).bfloat16()
    model = kitsune_mlir.compile(layer, (torch.randn(2, 64, 28, 28).bfloat16(),), target="sm_90a")
    assert not scalar_products(model, "sm_90a")


def test_without_tensor_cores_they_are_found(tmp_path):
    path = tmp_path / "fma.json"
    fields = json.loads((targets.FOLDER / "sm_80.json").read_text())
    path.write_text(json.dumps(fields | {"name": "fma", "products": "fma"}))
    (found,) = scalar_products(compiled("batched-product", str(path)), "fma")
    assert "linalg.batch_matmul of 4194304 multiply-adds" in found
