"""Numbers of 8 bits with an exponent (float8), on a CPU and in the GPU simulator."""

import pytest
import torch
from functions import on_both
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError

pytestmark = [
    pytest.mark.usefixtures("unassembled"),
    pytest.mark.filterwarnings("error:kitsune backend"),
]
E4M3, E5M2, POWERS = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
ALL = torch.arange(256, dtype=torch.int32).to(torch.uint8)


class Weights(nn.Module):
    """What a checkpoint has: weights of 8 bits, and scales of their rows or blocks."""

    def __init__(self, kind, block):
        super().__init__()
        self.register_buffer("weight", (torch.randn(32, 64) * 9).to(kind))
        self.register_buffer("scale", torch.rand(4, 4).to(POWERS) if block else torch.rand(32, 1))

    def forward(self, x):
        scale = self.scale.to(x.dtype)
        if scale.shape[0] < 32:
            scale = scale.repeat_interleave(8, 0).repeat_interleave(16, 1)
        return F.linear(x, self.weight.to(x.dtype) * scale)


@pytest.mark.parametrize("kind", [E4M3, E5M2])
@pytest.mark.parametrize("block", [False, True])
def test_weights(kind, block):
    torch.manual_seed(0)
    model = Weights(kind, block)
    rows = torch.export.Dim("rows", min=2, max=99)
    for run in on_both(model, (torch.randn(5, 64),), dynamic_shapes=({0: rows},)):
        for count in (5, 17):
            x = torch.randn(count, 64)
            torch.testing.assert_close(torch.as_tensor(run(x)), model(x), rtol=1e-4, atol=1e-4)


class Bits(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.register_buffer("numbers", ALL.view(kind))

    def forward(self, bits):
        return self.numbers.float(), self.numbers[:9].bfloat16() * 1, bits.view(self.kind).float()


@pytest.mark.parametrize("kind", [E4M3, E5M2, POWERS])
def test_every_number(kind):
    model = Bits(kind)
    for run in on_both(model, (ALL,)):
        for found, wanted in zip(run(ALL), model(ALL), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=0, atol=0, equal_nan=True)


class Rounded(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        return x.to(self.kind).view(torch.uint8), x.softmax(1).to(self.kind).float()


@pytest.mark.parametrize("kind", [E4M3, E5M2])
@pytest.mark.parametrize("wide", [torch.float16, torch.bfloat16])
def test_rounding(kind, wide):
    """Of every number of 16 bits: ties, what is too large and too small, infinities."""
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(wide).view(256, 256)
    x = torch.where(x == x, x, 1).float()
    model = Rounded(kind)
    for run in on_both(model, (x,)):
        (bits, shares), (wanted, near) = run(x), model(x)
        assert torch.equal(torch.as_tensor(bits), wanted)
        torch.testing.assert_close(torch.as_tensor(shares), near, rtol=0.25, atol=1e-3, equal_nan=True)


class Scaled(nn.Module):
    """As layers are computed whose inputs are quantised while they are computed."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.register_buffer("weight", torch.randn(48, 64).to(E4M3))
        self.register_buffer("scale", torch.rand(48, 1) if rows else torch.tensor(0.3))

    def forward(self, x):
        scale = (x.abs().amax(1, keepdim=True) if self.rows else x.abs().amax()) / 448
        x = (x / scale).clamp(-448, 448).to(E4M3)
        scales = scale.float(), self.scale.t() if self.rows else self.scale
        return torch._scaled_mm(x, self.weight.t(), *scales, out_dtype=torch.bfloat16)


@pytest.mark.parametrize("rows", [False, True])
def test_products(rows):
    torch.manual_seed(0)
    model, x = Scaled(rows), torch.randn(32, 64)
    try:
        wanted = model(x)
    except RuntimeError as error:  # torch 2.11 has one scale on a CPU
        pytest.skip(str(error).partition("\n")[0])
    exact = x.double() @ (model.weight.double() * model.scale).t()
    for run in on_both(model, (x,)):
        error = (torch.as_tensor(run(x)).double() - exact).abs().mean()
        assert error < 1.1 * (wanted.double() - exact).abs().mean()


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 16).to(E5M2))

    def forward(self, x, place):
        self.keys[:, place] = x.to(E5M2)
        rows = torch.cat([self.keys[0], x.to(E5M2)], 0)[1:].float()
        return (self.keys.to(x.dtype) * 2).sum(1), rows, F.embedding(place[None], self.keys[1]).float()


def test_a_cache():
    model = Cache()
    compiled = kitsune_mlir.compile(model, (torch.randn(2, 16), torch.tensor(3)))
    for place in (0, 3, 7):
        args = torch.randn(2, 16), torch.tensor(place)
        for found, wanted in zip(compiled(*args), model(*args), strict=True):
            torch.testing.assert_close(found, wanted)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.register_buffer("weight", torch.randn(16, 16).to(E4M3))

    def forward(self, x, y):
        self.weight[0] = y[0]
        return F.linear(self.first(x), self.weight.to(x.dtype)).square().sum(), y.t(), x.detach().to(E5M2)


def test_torch_compile():
    """Values and results may be such numbers, too; gradients go through layers of such weights."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, compiled = Mixed(), Mixed()
    compiled.load_state_dict(model.state_dict())
    run = torch.compile(compiled, backend="kitsune")
    for _ in range(2):
        args = torch.randn(4, 16), torch.randn(3, 16).to(E4M3)
        found, wanted = run(*args), model(*args)
        found[0].backward()
        wanted[0].backward()
        for one, other in zip((*found, compiled.weight), (*wanted, model.weight)):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one.float(), other.float())
    for one, other in zip(compiled.parameters(), model.parameters()):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_inputs_are_bits():
    class Model(nn.Module):
        def forward(self, x):
            return x.float()

    with pytest.raises(UnsupportedError, match="float8_e4m3fn.*uint8"):
        kitsune_mlir.compile(Model(), (torch.randn(3).to(E4M3),))
