"""Functions as modules, for tests that compile a few lines."""

import re

from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class OfOne(Function):
    """A function of one tensor, whose sizes `dynamic_shapes` names without a tuple of arguments."""

    def forward(self, x):
        return self.function(x)


def on_both(model, args, gpu="sm_90a", **options):
    """What runs a model on a CPU, and what does on a simulated GPU. It is exported once, and compiled for both."""
    compiled = kitsune_mlir.compile(model, args, target=("cpu", gpu), **options)
    compiled.target = "cpu"
    return compiled, Simulation(compiled, seed=1)


def computed(compiled):
    """What the launches of a compiled model do: the kernels that are joined in one each by itself."""
    return [part for launch in compiled.plan["launches"] for part in re.split("; |, then ", launch["computes"])]
