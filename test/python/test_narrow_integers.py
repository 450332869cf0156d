"""8-bit integers, signed and unsigned: every operator gives what torch gives, wrapped around where torch wraps."""

from __future__ import annotations

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir

OPERATORS = {
    "mul": lambda x: x * 2,
    "floor_divide": lambda x: x // 3,
    "floor_divide by a number that wraps": lambda x: x // 300,
    "remainder": lambda x: x % 7,
    "sub": lambda x: x - 200,
    "add with alpha": lambda x: torch.add(x, x, alpha=3),
    "rsub": lambda x: 3 - x,
    "max": lambda x: x.max(),
    "max.dim": lambda x: x.max(1),
    "amax": lambda x: x.amax(1),
    "argmax": lambda x: x.argmax(1),
    "min": lambda x: x.min(),
    "maximum": lambda x: torch.maximum(x, x.flip(1)),
    "mm of nothing": lambda x: torch.mm(x[:, :0], x[:, :0].t()),
    "mm": lambda x: x @ x.t(),
    "full": lambda x: torch.full((3,), 7, dtype=x.dtype) + x[0, :3],
    "zeros": torch.zeros_like,
    "arange": lambda x: torch.arange(4, dtype=x.dtype) + x,
    "pad": lambda x: nn.functional.pad(x, (1, 1), value=3),
    "where": lambda x: torch.where(x > 3, x, 5),
    "masked_fill": lambda x: x.masked_fill(x > 3, 9),
    "clamp": lambda x: x.clamp(2, 50),
    "sum": torch.sum,
    "prod": torch.prod,
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(2),
    "abs": torch.abs,
    "neg": lambda x: -x,
    "shifts": lambda x: (x << 1) + (x >> 1),
    "bits": lambda x: (x & 7) | ~x,
    "pow": lambda x: x**2,
    "div": lambda x: x / 2,
    "mul by a float": lambda x: x * 0.5,
    "comparisons": lambda x: (x < 100, x == 300, x.any()),
    "from float": lambda x: (x.float() * 1.5).to(x.dtype),
    "to others": lambda x: (x.bool(), x.to(torch.bfloat16), x.to(torch.int16), x.to(torch.int8), x.to(torch.uint8)),
    "with another type": lambda x: (x * x.to(torch.int16), x + torch.ones(4)),
    "beside another type": lambda x: (torch.cat([x, x.long() * 3]), torch.stack([x.float(), x]), torch.cat([x > 3, x])),
    "moves": lambda x: (torch.cat([x, x.roll(1, 1)]), x.gather(1, torch.zeros(2, 2, dtype=torch.int64)), x[:, [1, 0]]),
    "scatter": lambda x: torch.scatter(x, 1, torch.zeros(2, 1, dtype=torch.int64), 9),
    "triangle": lambda x: x.tril(),
    "split": lambda x: [part + 1 for part in x.split(2, 1)],
}


class Everything(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, object]:
        return {name: operator(x) for name, operator in OPERATORS.items()}


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
def test_operators(dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 2, 100, 120], [3, 127, -1, -128]], dtype=torch.int8).view(dtype)
    model = Everything()
    found = kitsune_mlir.compile(model, (x,))(x)
    for name, wanted in model(x).items():
        said = f"{name}: {found[name]}, not {wanted}"
        torch.testing.assert_close(found[name], _plain(wanted), rtol=0, atol=0, msg=said)


def _plain(value: object) -> object:
    """Tuples in place of torch's named ones."""
    return tuple(value) if isinstance(value, tuple) else value


def test_torch_compile_with_a_constant() -> None:
    table = torch.tensor([3, 200], dtype=torch.uint8)
    x = torch.tensor([250, 7], dtype=torch.uint8)
    found = torch.compile(lambda x: (x * table) / 3, backend="kitsune", options={"target": "cpu"})(x)
    torch.testing.assert_close(found, (x * table) / 3)


def test_negative_numbers_of_many_bits() -> None:
    """f32 does not hold them."""
    x = torch.tensor([16777217, -(2**40) - 1, 5])
    compiled = kitsune_mlir.compile(Function(lambda x: (-x, -x.int())), (x,), target="cpu")
    assert [y.tolist() for y in compiled(x)] == [(-x).tolist(), (-x.int()).tolist()]
