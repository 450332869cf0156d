"""Operators one by one on the CPU's plain path, against torch: what torch-mlir brings to linalg runs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from cpu_case import runner
from torch import nn

from kitsune_mlir.codegen import cpu, cpu_object
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import find
from kitsune_mlir.planning import target

R = torch.randn


def I(high: int, *shape: int) -> torch.Tensor:  # noqa: E743, N802
    return torch.randint(0, high, shape)


FLOATS: dict[str, tuple] = {
    "gelu": (F.gelu, R(5, 9)),
    "gelu-tanh": (lambda x: F.gelu(x, approximate="tanh"), R(5, 9)),
    "silu": (F.silu, R(5, 9)),
    "softplus": (F.softplus, R(5, 9)),
    "elu": (F.elu, R(5, 9)),
    "mish": (F.mish, R(5, 9)),
    "softmax": (lambda x: x.softmax(0), R(5, 9)),
    "logsumexp": (lambda x: x.logsumexp(1), R(5, 9)),
    "layer-norm": (lambda x: F.layer_norm(x, (9,)), R(5, 9)),
    "group-norm": (lambda x: F.group_norm(x, 2), R(2, 4, 5, 5)),
    "reductions": (lambda x: (x.sum(), x.mean(0), x.std(1), x.prod(1), x.amax(0), x.amin((0, 1))), R(5, 9)),
    "attention": (F.scaled_dot_product_attention, R(1, 2, 5, 8), R(1, 2, 5, 8), R(1, 2, 5, 8)),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), R(2, 5, 9), R(2, 4, 9)),
    "pools": (lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1)), R(2, 3, 9, 9)),
    "trigonometry": (lambda x: (x.tan(), x.atan(), x.sinh(), x.cosh(), x.asin()), torch.rand(9) * 0.9),
    "logarithms": (lambda x: (x.log2(), x.log10(), x.log1p(), x.expm1(), x.exp2()), torch.rand(9) + 0.1),
    "rounding": (lambda x: (x.floor(), x.ceil(), x.round(), x.sign(), x.clamp(-0.5, 0.5)), R(5, 9)),
}
OTHERS: dict[str, tuple] = {
    "cumsum": (lambda x: x.cumsum(1), R(5, 9)),
    "argmax": (lambda x: (x.argmax(1), x.max(1)[0]), R(5, 9)),
    "topk": (lambda x: x.topk(3)[0], R(5, 9)),
    "sort": (lambda x: x.sort()[0], R(5, 9)),
    "power": (lambda x: (x.abs() ** 2.7, x**3, torch.remainder(x, 0.7)), R(5, 9)),
    "integers": (lambda x, y: (x // y, x % y, x & y, x | y, x ^ y, x << 1), I(50, 9), I(5, 9) + 1),
    "booleans": (lambda x: ((x > 0).any(1), (x > 0).all(0), ~(x > 0)), R(5, 9)),
    "products": (lambda x, y: (torch.outer(x, y), torch.dot(x, x), torch.mv(torch.outer(y, x), x)), R(5), R(7)),
    "batched": (lambda x, y: (torch.bmm(x, y), torch.matmul(x[None], y[None])), R(3, 12, 7), R(3, 7, 5)),
    "gather": (lambda x, i: x.gather(1, i), R(5, 9), I(9, 5, 4)),
    "scatter-add": (lambda x, i, u: x.scatter_add(1, i, u), R(5, 9), I(9, 5, 4), R(5, 4)),
    "scatter-max": (lambda x, i, u: x.scatter_reduce(0, i, u, "amax"), R(5, 9), I(5, 4, 9), R(4, 9)),
    "index-put": (lambda x, i, u: x.index_put((i,), u, accumulate=True), R(5, 9), I(5, 3), R(3, 9)),
    "moves": (lambda x: (x.roll(2, 1), x.flip(1), x.tril(), x.repeat(2, 3), x.split(4, 1), x[1::2, ::3]), R(5, 9)),
    "pads": (lambda x: (F.pad(x, (1, 2, 0, 1), value=3.0), F.pad(x, (1, 2, 1, 1), mode="reflect")), R(1, 2, 5, 9)),
    "joins": (lambda x, y: (torch.cat([x, y, x]), torch.stack([x, x], 1)), R(5, 9), R(2, 9)),
    "upsampling": (lambda x: (F.interpolate(x, scale_factor=2), F.pixel_shuffle(x, 2)), R(1, 4, 3, 3)),
    "losses": (lambda x, t: (F.cross_entropy(x, t), F.mse_loss(x, x * 2)), R(5, 9), I(9, 5)),
    "casts": (lambda x: ((x * 10).to(torch.int32), x.bool(), x.double(), x.half()), R(9)),
    "nothing": (lambda x: (x @ x.T, x.sum(0)), R(0, 4)),
    "lstm-cell": (nn.LSTMCell(4, 6), R(3, 4)),
}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-10, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Call(nn.Module):
    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().contiguous()
    return tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor


def check(function: Callable, args: tuple, dtype: torch.dtype) -> None:
    args = tuple(arg.to(dtype) if arg.is_floating_point() else arg for arg in args)
    model = Call(function).eval()
    program = import_model(model, args)
    with program.module.context:
        find("prepare-linalg")().run(program.module)
    section = cpu.build(program.module, target.load("cpu"), opt_level=0)
    outs = runner(section, [argument.value for argument in program.arguments]).run([bits(arg).numpy() for arg in args])
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(model(*args))
    tolerance = TOLERANCE[dtype]
    for out, expected in zip(outs, wanted, strict=True):
        found = torch.from_numpy(out)
        found = found.view(torch.bfloat16) if expected.dtype == torch.bfloat16 else found
        assert found.shape == expected.shape and found.dtype == expected.dtype
        assert torch.allclose(found.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", [*FLOATS, *OTHERS])
def test_f32(name):
    function, *args = {**FLOATS, **OTHERS}[name]
    check(function, tuple(args), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["gelu", "softmax", "layer-norm", "reductions", "attention", "pools", "rounding"])
def test_other_floats(name, dtype):
    function, *args = FLOATS[name]
    check(function, tuple(args), dtype)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float64], ids=str)
@pytest.mark.parametrize("to", [torch.bfloat16, torch.float16], ids=str)
def test_numbers_of_other_types_become_16_bits(dtype, to):
    """On a CPU without instructions for them, too."""
    x = torch.arange(0, 300, 7).to(dtype)
    check(lambda value: (value.to(to), value.to(to) * 2), (x,), dtype if dtype.is_floating_point else to)


@pytest.mark.parametrize("function", [lambda x: x.sort(1), lambda x: x.topk(2, 1), lambda x: x.clamp(-1, 1)])
def test_bf16_is_moved_as_bits(function, monkeypatch):
    """No number of bf16 reaches LLVM, which would call functions that not every C compiler's library has."""
    lowered = []
    link = cpu_object.shared_object
    monkeypatch.setattr(cpu, "shared_object", lambda module, level: lowered.append(str(module)) or link(module, level))
    check(function, (R(5, 9).bfloat16(),), torch.bfloat16)
    assert "bf16" in lowered[0] and not re.findall(r".*(?::|->) bf16\b.*", lowered[0])
