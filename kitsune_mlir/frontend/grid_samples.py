"""Images and volumes read at places that another tensor has, as fields of displacements do.

Each result is the mean of the elements around its place, four or eight, weighed by how near they are, or the nearest
element; beyond an image's ends there are zeros, or its last elements, or its reflection. All of that is one operator of
ours, an element of whose result is computed of its place (sampled_elements.py): torch's rule is a few dozen operators,
of which all that several corners need is written for each channel.

Many channels are read as lines: the image is turned so that they lie side by side, and the result back.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from .own_operators import SAMPLE
from .working import working

aten = torch.ops.aten

CUBIC = 2
MANY = 8  # channels that are read as lines
# Elements of an image for each place that is read, up to which turning it takes no longer than what lines spare: a
# corner of a place is a sector of memory for each channel otherwise.
SPARSE = 16

_cubic = torch._decomp.decomposition_table[aten.grid_sampler_2d.default]


def sample(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    """[n, c, *sizes] at places [n, *places, d], from -1 to 1 of the last dimension first -> [n, c, *places]."""
    if not x.is_floating_point() or any(isinstance(size, int) and size == 0 for size in x.shape[2:]):
        return NotImplemented
    if mode == CUBIC:
        return _cubic(x, grid, mode, padding, align_corners)
    if not _are_lines(x, grid):
        return SAMPLE(x, working(grid), mode == 0, padding, align_corners, False)
    return SAMPLE(x.movedim(1, -1), working(grid), mode == 0, padding, align_corners, True).movedim(-1, 1)


def _are_lines(x: Tensor, grid: Tensor) -> bool:
    channels = x.shape[1]
    places, elements = (prod(map(_example, sizes)) for sizes in (grid.shape[1:-1], x.shape[2:]))
    return isinstance(channels, int) and channels >= MANY and elements <= SPARSE * places


def _example(size: Any) -> int:
    """A size, as the example has it where it is open."""
    return size if isinstance(size, int) or not size.node.has_hint() else size.node.hint


GRID_SAMPLES = {aten.grid_sampler_2d.default: sample, aten.grid_sampler_3d.default: sample}
