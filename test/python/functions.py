"""Functions as modules, for tests that compile a few lines."""

import re

from torch import nn


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def computed(compiled):
    """What the launches of a compiled model do: the kernels that are joined in one each by itself."""
    return [part for launch in compiled.plan["launches"] for part in re.split("; |, then ", launch["computes"])]
