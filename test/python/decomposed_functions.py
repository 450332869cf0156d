"""What tests of torch functions share: a function as a compiled model, and its error beside torch's own."""

import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

TARGETS = ("cpu", "sm_90a")


def results(function, *args, target):
    """The compiled function's results, those of a GPU from the simulator."""

    class Model(nn.Module):
        def forward(self, *values):
            return function(*values)

    with torch.no_grad():
        compiled = kitsune_mlir.compile(Model(), args, target=target)
        found = (compiled if target == "cpu" else Simulation(compiled, seed=1))(*args)
    return [torch.as_tensor(each) for each in (found if isinstance(found, tuple) else [found])]


def error(found, exact):
    """Relative to all of the exact result."""
    return ((found.double() - exact).norm() / exact.norm()).item()


def check_error(function, *args, target, least=1e-7):
    """The first result is as exact as torch's own, but for a factor of 2 that roundings may make."""
    found, exact = results(function, *args, target=target)[0], function(*(x.double() for x in args))
    torchs = function(*args)
    assert (found.dtype, found.shape) == (torchs.dtype, torchs.shape)
    assert error(found, exact) <= 2 * error(torchs, exact) + least
