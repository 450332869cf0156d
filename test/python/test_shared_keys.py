"""Few rows of several heads that share keys are rows of one product."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

ROWS, KEYS, WIDTH = 3, 20, 16


def repeated(x, times):
    batch, heads, *matrix = x.shape
    return x[:, :, None].expand(-1, -1, times, -1, -1).reshape(batch, heads * times, *matrix)


def fused(q, k, v, mask):
    return F.scaled_dot_product_attention(q, repeated(k, 4), repeated(v, 4), mask)


def written_out(q, k, v, mask):
    scores = q @ repeated(k, 4).transpose(2, 3) * 0.25 + mask
    return scores.softmax(-1) @ repeated(v, 4)


def one_head(q, k, v, mask):
    k, v = (x[:, :1].expand(-1, q.shape[1], -1, -1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, mask)


def heads_of_batches(q, k, v, mask):
    """Neighbours have keys of their own here: every second one has the same."""
    k, v = (x.repeat(1, 4, 1, 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, mask)


CASES = {fused: 4, written_out: 4, one_head: 8, heads_of_batches: 1}


def arguments(batch):
    torch.manual_seed(batch)
    shapes = (batch, 8, ROWS, WIDTH), (batch, 2, KEYS, WIDTH), (batch, 2, KEYS, WIDTH), (batch, 1, ROWS, KEYS)
    return tuple(torch.randn(shape) for shape in shapes)


@pytest.mark.parametrize("is_open", [False, True], ids=["", "open"])
@pytest.mark.parametrize("function", CASES)
def test_products_of_a_cpu(function, is_open):
    args, batch = arguments(2), torch.export.Dim("batch")
    shapes = (({0: batch},) * 4,) if is_open else None
    compiled = kitsune_mlir.compile(Function(function), args, target="cpu", dynamic_shapes=shapes)
    products = [line for line in compiled.mlir("linalg").splitlines() if "linalg.batch_matmul" in line]
    assert len(products) == 2 and all(f"x{CASES[function] * ROWS}x" in line for line in products)
    for args in (arguments(2), *([arguments(1), arguments(5)] if is_open else [])):
        torch.testing.assert_close(compiled(*args), function(*args))


@pytest.mark.usefixtures("unassembled")
def test_a_step_of_decoding_is_one_kernel(small_gpu):
    args = [x.bfloat16() for x in (torch.randn(2, 8, 1, 64), *torch.randn(2, 2, 2, 96, 64), torch.randn(2, 1, 1, 96))]
    batch = torch.export.Dim("batch")
    for function in (fused, written_out):
        compiled = kitsune_mlir.compile(Function(function), args, target=small_gpu, dynamic_shapes=(({0: batch},) * 4,))
        assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["attention0"]
        found = torch.as_tensor(Simulation(compiled)(*args))
        torch.testing.assert_close(found.float(), function(*(x.float() for x in args)), rtol=2e-2, atol=2e-2)
