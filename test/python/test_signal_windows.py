"""Windows of signals are the same numbers as torch's."""

import pytest
import torch
from functions import Function

import kitsune_mlir

WINDOWS = {
    "hamming": lambda: torch.hamming_window(10),
    "hamming, of other weights": lambda: torch.hamming_window(10, False, 0.5, 0.4),
    "blackman": lambda: torch.blackman_window(11, False),
    "bartlett": lambda: torch.bartlett_window(10),
    "kaiser": lambda: torch.kaiser_window(10, False, 8.0),
    "one number": lambda: torch.kaiser_window(1),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_as_torch(name):
    make = WINDOWS[name]
    x = torch.ones(3, len(make()))
    compiled = kitsune_mlir.compile(Function(lambda x: x * make()), (x,), target="cpu")
    torch.testing.assert_close(compiled(x), x * make(), rtol=1e-5, atol=1e-6)
