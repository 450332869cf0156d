"""Attention sinks: a column more for the softmax, which is left out of the weights."""

import pytest
import torch
from functions import Function
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

HEADS, ROWS, WIDTH = 2, 70, 32


def weights(scores, sink, is_first=False, takes_off=False, is_wide=False):
    sink = sink.view(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
    both = torch.cat([sink, scores] if is_first else [scores, sink], -1)
    if takes_off:
        both = both - both.max(-1, keepdim=True).values
    shares = (both.float().softmax(-1) if is_wide else both.softmax(-1)).to(scores.dtype)
    return shares[..., 1:] if is_first else shares[..., :-1]


FORMS = {
    "last": {},
    "first": {"is_first": True},
    "as gpt-oss": {"takes_off": True},
    "of f32": {"is_wide": True},
}


def attention(form, q, k, v, sink, mask):
    return weights(q @ k.mT * 0.2 + mask, sink, **FORMS[form]) @ v


def arguments(dtype):
    torch.manual_seed(0)
    mask = torch.full((ROWS, ROWS), -torch.inf).triu(1)
    mask[5] = -torch.inf  # all of its weight goes to the sink
    sizes = 1, HEADS, ROWS, WIDTH
    return [x.to(dtype) for x in (*(torch.randn(sizes) for _ in range(3)), torch.tensor([3.0, -40.0]), mask)]


@pytest.mark.parametrize("form", FORMS)
def test_no_concatenation_is_left(form):
    model, args = Function(lambda *args: attention(form, *args)), arguments(torch.float32)
    compiled = kitsune_mlir.compile(model, args, target="cpu")
    assert "tensor.concat" not in compiled.mlir("linalg")
    torch.testing.assert_close(compiled(*args), model(*args))


def test_a_column_that_is_wanted_stays():
    model = Function(lambda scores, sink: torch.cat([scores, sink], -1).softmax(-1)[..., 1:])
    args = torch.randn(3, 5), torch.randn(3, 1)
    torch.testing.assert_close(kitsune_mlir.compile(model, args, target="cpu")(*args), model(*args))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("form", ["as gpt-oss", "of f32"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_attention_is_one_kernel(small_gpu, form, is_open):
    model, args = Function(lambda *args: attention(form, *args)), arguments(torch.bfloat16)
    length = Dim("length", min=2, max=999)
    shapes = (({2: length},) * 3 + (None, {0: length, 1: length}),) if is_open else None
    compiled = kitsune_mlir.compile(model, args, target=small_gpu, dynamic_shapes=shapes)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["attention0"]
    wanted = attention(form, *(x.double() for x in args))
    found = torch.as_tensor(Simulation(compiled)(*args)).double()
    assert (found - wanted).norm() <= 1e-2 * wanted.norm()
