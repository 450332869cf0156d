"""Functions of f64 keep its digits: of small numbers, of tails, and beside numbers that a model gives."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")

SMALL = torch.cat([10.0 ** -torch.arange(1, 30).double(), -(10.0 ** -torch.arange(1, 30).double())])
LINE = torch.cat([SMALL, torch.linspace(-8, 26, 401).double(), torch.tensor([0.0, torch.inf, -torch.inf, torch.nan])])
PART = torch.cat([torch.linspace(-1, 1, 201).double(), 1 - 10.0 ** -torch.arange(1, 15).double()])
FUNCTIONS = {
    "log1p": (torch.log1p, SMALL / 2),
    "expm1": (torch.expm1, SMALL),
    "tanh": (torch.tanh, SMALL),
    "softplus": (lambda x: F.softplus(x - 30, threshold=50), SMALL),
    "elu": (F.elu, SMALL),
    "erfc": (torch.erfc, LINE),
    "erfcx": (torch.special.erfcx, LINE[LINE.abs() < 20]),
    "erfinv": (torch.erfinv, PART),
    "normal": (lambda x: 0.5 * torch.erfc(-x / 2**0.5), LINE),
    "numbers in front": (lambda x: torch.mul(0.1, x) + torch.div(0.1, x) + torch.sub(0.1, x) + (0.7 - x), SMALL),
    "xlogy": (lambda x: torch.xlogy(x.abs(), 0.1) + torch.xlogy(0.1, x.abs()), SMALL),
}


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_digits(name, target):
    function, x = FUNCTIONS[name]
    compiled = kitsune_mlir.compile(Function(function), (x,), target=target)
    found = torch.as_tensor((compiled if target == "cpu" else Simulation(compiled))(x))
    torch.testing.assert_close(found, function(x), rtol=1e-12, atol=1e-300, equal_nan=True)
