"""Models in which Python goes on by numbers of tensors that are known when they are traced."""

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir.errors import UnsupportedError


def solved(y):
    """Four steps of Euler's method, as torchdiffeq takes them: it compares times, and computes their number."""
    times = torch.linspace(0, 1, 3)
    assert (times[1:] > times[:-1]).all()
    count = torch.ceil((times[-1] - times[0]) / 0.25 + 1).item()
    grid = torch.arange(0, count, dtype=times.dtype) * 0.25 + times[0]
    grid[-1] = times[-1]
    assert grid[0] == times[0]
    found, j = [y], 1
    for before, after in zip(grid[:-1], grid[1:]):
        y = y + (after - before) * (before - y)
        if after >= times[j]:
            found.append(y)
            j += 1
    return torch.stack(found)


def with_sizes_of_tensors(x):
    rows = torch.div(x.shape[0], 2, rounding_mode="trunc")
    y = x.new_zeros((rows + 1, 3))
    y[:-1] = x[:rows]
    y = y.repeat_interleave(torch.tensor([2, 0, 1]), dim=1)
    return y if x.new_ones(2).any() else x


@pytest.mark.parametrize("function", [solved, with_sizes_of_tensors])
def test_numbers_that_are_made_of_numbers(function):
    compiled = kitsune_mlir.compile(Function(function), (torch.randn(4, 3),))
    x = torch.randn(4, 3)
    torch.testing.assert_close(compiled(x), function(x))


class Padded(nn.Module):
    """A convolution's padding is a buffer, as EnCodec has it; `calls` changes."""

    def __init__(self, counted):
        super().__init__()
        self.register_buffer("padding", torch.tensor(2))
        self.register_buffer("calls", torch.tensor(0))
        self.counted = counted

    def forward(self, x):
        if self.counted:
            x = x + 1 if self.calls > 0 else x
            self.calls += 1
        return nn.functional.pad(x, (self.padding, 0))[..., : self.padding + x.shape[-1]]


def test_buffers_are_numbers_unless_the_model_changes_them():
    x = torch.randn(2, 3)
    compiled = kitsune_mlir.compile(Padded(counted=False), (x,))
    torch.testing.assert_close(compiled(x), nn.functional.pad(x, (2, 0)))
    with pytest.raises(UnsupportedError, match="a number that depends on the data"):
        kitsune_mlir.compile(Padded(counted=True), (x,))


def test_what_is_written_is_not_known_any_more():
    def function(x):
        found = torch.zeros(3)
        found[0] = x[0]
        return x + 1 if found[0] > 0 else x

    with pytest.raises(UnsupportedError, match="a number that depends on the data"):
        kitsune_mlir.compile(Function(function), (torch.randn(3),))


def test_masks_of_transformers_are_compared_with_causal_ones():
    """nn.TransformerEncoder goes on by whether its mask is one."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()

    def function(x):
        return encoder(x, mask=torch.full((70, 70), float("-inf")).triu(1))

    x = torch.randn(2, 70, 8)
    torch.testing.assert_close(kitsune_mlir.compile(Function(function), (x,))(x), function(x).detach())
