"""prepare-linalg on the sample models: what the later passes may rely on."""

import pytest
import torch
from sample_models import imported

from examples.models import SMALL
from kitsune_mlir import mlir
from kitsune_mlir.passes.prepare_linalg import PrepareLinalg

NARROW = ("bf16", "f16")
PRODUCTS = ("linalg.matmul", "linalg.batch_matmul")


def prepared(name, dtype):
    module = imported(name, dtype)[2].module
    PrepareLinalg().run(module)
    assert module.operation.verify()
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_what_later_passes_rely_on(name, dtype):
    module = prepared(name, dtype)
    assert not mlir.walk(module, "cf.assert", "math.fpowi")
    for op in mlir.walk(module):
        owners = [operand.owner for operand in op.operands]
        sources = [owner for owner in owners if not isinstance(owner, mlir.ir.Block)]
        if op.name in PRODUCTS:
            turned = [source for source in sources if source.name == "linalg.transpose"]
            batched = [mlir.ir.DenseI64ArrayAttr(source.attributes["permutation"])[0] != 0 for source in turned]
            assert op.name == "linalg.batch_matmul" and all(batched) if turned else True
        if op.name == "linalg.generic":
            assert len(op.results) == 1
        if op.name.startswith(("arith.", "math.")) and op.parent.name == "linalg.generic":
            kinds = {str(value.type) for value in (*op.operands, *op.results)}
            assert op.name in ("arith.extf", "arith.truncf") or not kinds & set(NARROW), op
            assert "f64" not in kinds, op
        if op.name == "arith.constant" and isinstance(op.result.type, mlir.ir.RankedTensorType):
            assert not mlir.ir.DenseElementsAttr(op.attributes["value"]).is_splat, op


def test_bf16_has_no_more_operators_than_f32_but_for_what_products_and_reshapes_need():
    """Casts stand alone only between a product and something that is no generic."""
    module = prepared("transformer", torch.bfloat16)
    for op in mlir.walk(module, "linalg.generic"):
        body = [inner.name for inner in op.regions[0].blocks[0].operations]
        if body == ["arith.truncf", "linalg.yield"]:
            assert op.operands[0].owner.name in PRODUCTS
            assert all(use.owner.name != "linalg.generic" for use in op.results[0].uses)
        assert body != ["arith.extf", "linalg.yield"]
    wide = prepared("transformer", torch.float32)
    assert len(mlir.walk(module, "linalg.generic")) <= len(mlir.walk(wide, "linalg.generic")) + 2


@pytest.mark.parametrize("name", ["nerf", "meshgraphnets", "llama-decode"])
def test_is_idempotent(name):
    module = prepared(name, torch.bfloat16)
    once = str(module)
    PrepareLinalg().run(module)
    assert str(module) == once


def test_locations_survive():
    module = prepared("mlp", torch.bfloat16)
    for op in mlir.walk(module, "linalg.generic", "linalg.matmul"):
        assert "mlp.py:" in mlir.location(op.location)
