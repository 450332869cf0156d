"""Colours taken from tables by number: a thread has all channels of a place, from the image as it lies."""

import pytest
import torch
from functions import computed, on_both
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.usefixtures("unassembled")
H, W = Dim("h", min=2, max=999), Dim("w", min=2, max=999)


class Table(nn.Module):
    """Reads a table of this shape by a function of it and the image."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function, self.table = function, nn.Parameter(torch.rand(shape))

    def forward(self, x):
        return self.function(self.table, x)


def corners(table, at):
    """The mean of four entries around places [..., 2]."""
    low = at.floor().clamp(max=table.shape[0] - 2)
    part, low, found = at - low, low.long(), 0
    for corner in range(4):
        up = [(corner >> axis) & 1 for axis in range(2)]
        weight = torch.ones_like(part[..., :1])
        for axis in range(2):
            weight = weight * (part[..., axis : axis + 1] if up[axis] else 1 - part[..., axis : axis + 1])
        found = found + weight * table[tuple(low[..., axis] + up[axis] for axis in range(2))]
    return found


def of_planes(table, x):
    return corners(table, x.permute(0, 2, 3, 1).clamp(0, 1)[..., :2] * (table.shape[0] - 1)).permute(0, 3, 1, 2)


def channels_last(table, x):
    return corners(table, x.clamp(0, 1)[..., :2] * (table.shape[0] - 1))


def from_the_end(table, x):
    """Negative numbers count from the end."""
    number = (x[:, 0] * -3).long() - 1
    return (table[number] + table[number - 1]).permute(0, 3, 1, 2)


def check(function, table, shape, sizes, dims=None):
    """Compares with torch, on both targets; gives the one of the GPU."""
    module = Table(function, *table)
    runs = on_both(module, (torch.rand(shape),), dynamic_shapes=None if dims is None else (dims,))
    for size in sizes:
        x = torch.rand(size)
        for run in runs:
            torch.testing.assert_close(torch.as_tensor(run(x)), module(x).detach())
    return runs[1]


@pytest.mark.parametrize("columns", [2, 3, 4, 5])
def test_a_cube_of_colours(columns):
    sizes = [(2, 3, 6, 7), (2, 3, 2, 2), (2, 3, 3, 33)]
    assert computed(check(of_planes, (4, 4, columns), sizes[0], sizes, {2: H, 3: W})) == ["gather"]


def test_channels_last():
    sizes = [(2, 6, 7, 3), (2, 3, 33, 3)]
    compiled = check(channels_last, (4, 4, 3), sizes[0], sizes, {1: H, 2: W})
    assert computed(compiled) == ["gather"]


def test_known_sizes():
    compiled = check(of_planes, (4, 4, 3), (2, 3, 6, 7), [(2, 3, 6, 7)])
    assert computed(compiled) == ["gather"]


def test_numbers_from_the_end():
    check(from_the_end, (9, 3), (2, 1, 6, 7), [(2, 1, 6, 7), (2, 1, 2, 5)], {2: H, 3: W})


def test_one_column_of_an_image_whose_channels_are_moved():
    """Slices of what is moved are slices of the image itself."""

    def mixed(table, x):
        wave = x.permute(0, 2, 3, 1).sin() * table[0]
        return wave[..., 0] * wave[..., 1] + wave[..., 2]

    compiled = check(mixed, (1,), (2, 3, 6, 7), [(2, 3, 6, 7), (2, 3, 2, 5)], {2: H, 3: W})
    assert computed(compiled) == ["elementwise"]
