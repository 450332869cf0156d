"""Products of elements that a mask makes zero: kernels leave out columns where torch adds zeros, and nowhere else."""

from math import inf

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.passes import schedule_back_to_back
from kitsune_mlir.tools.gpusim import Simulation

ROWS, WIDTH = 136, 32


def mask():
    return torch.arange(ROWS) <= torch.arange(ROWS)[:, None]


def chosen(other, then):
    """A second product of what `then` makes of the first, which is `other` above the diagonal."""
    return Function(lambda q, k, v: then(torch.where(mask(), q @ k.mT * 0.1, other)) @ v)


ELEMENTS = {  # and whether columns above the diagonal are left out
    "squared": (chosen(0.0, lambda x: x * x), True),
    "of a quotient": (chosen(0.0, lambda x: x / (1 + x.abs())), True),
    "of a constant quotient": (chosen(0.0, lambda x: x / 3), True),
    "weighed": (chosen(-inf, lambda x: (x - 1).exp() * 2), True),
    "their own quotients": (chosen(0.0, lambda x: x / x.abs()), False),
    "by their logarithms": (chosen(0.0, lambda x: x.sigmoid() * 0 + x * (x + 0).abs().log()), False),
    "weights by their logarithms": (chosen(-inf, lambda x: x.exp() * x), False),
    "weights by what is less": (chosen(-inf, lambda x: x.exp() * -x), False),
    "weights by a part of it": (chosen(-inf, lambda x: x.exp() * (0.5 * x).clamp(max=2)), False),
    "weights by what is masked again": (chosen(-inf, lambda x: x.exp() * torch.where(mask(), x, 0)), False),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_no_column_is_left_out_where_zeros_meet_infinities(name, monkeypatch):
    monkeypatch.setattr(schedule_back_to_back._Kernels, "is_faster", lambda kernels: True)
    found = []
    range_of_elements = schedule_back_to_back.range_of_elements
    monkeypatch.setattr(
        schedule_back_to_back, "range_of_elements", lambda *args: found.append(range_of_elements(*args)) or found[-1]
    )
    torch.manual_seed(0)
    model, leaves_out = ELEMENTS[name]
    args = [torch.randn(2, 2, ROWS, WIDTH).bfloat16() for _ in range(3)]
    compiled = kitsune_mlir.compile(model, tuple(args), target="sm_90a")
    assert [launch["kernel"] for launch in compiled.plan["launches"]][:1] == ["back_to_back0"]
    assert {one.last is not None for one in found} == {leaves_out}
    wanted = model(*(arg.double() for arg in args))
    result = torch.as_tensor(Simulation(compiled, seed=1)(*args)).double()
    assert torch.equal(result.isnan(), wanted.isnan())
    difference = (result - wanted).nan_to_num()
    assert float(difference.norm()) < 2e-2 * float(wanted.nan_to_num().norm()) + 1e-6
