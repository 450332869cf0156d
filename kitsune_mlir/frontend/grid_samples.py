"""Volumes read at places that another tensor has, as fields of displacements do; torch has a rule for images alone.

Each result is the mean of the eight elements around its place, weighed by how near they are, or the nearest element.
Beyond a volume's ends there are zeros, or its last elements, or its reflection.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from .working import working

aten = torch.ops.aten

_LINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


def sample_volume(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    sizes = x.shape[2:]
    if mode not in (_LINEAR, _NEAREST) or not all(isinstance(size, int) for size in sizes) or 0 in sizes:
        return NotImplemented
    places = [
        _place(working(grid[..., 2 - axis]), size, padding, align_corners) for axis, size in enumerate(sizes)
    ]  # a grid has the last dimension's places first
    if mode == _NEAREST:
        return _taken(x, [place.round() for place in places])[0]
    lower, found = [place.floor() for place in places], None
    for corner in itertools.product((0, 1), repeat=3):
        at = [low + up for low, up in zip(lower, corner, strict=True)]
        element, inside = _taken(x, at)
        weight = inside
        for place, one in zip(places, at, strict=True):
            weight = weight * (1 - (place - one).abs()).unsqueeze(1)
        # What is outside has no part in it, even where there are infinite numbers.
        part = torch.where(inside, working(element) * weight, 0.0)
        found = part if found is None else found + part
    return found.to(x.dtype)


def _place(at: Tensor, size: int, padding: int, align_corners: bool) -> Tensor:
    """Where elements of a dimension are that places from -1 to 1 say, inside of it where padding says so."""
    at = (at + 1) * ((size - 1) / 2) if align_corners else ((at + 1) * size - 1) * 0.5
    if padding == _ZEROS:
        return at
    if padding != _BORDER:
        first, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        if not span:
            return torch.zeros_like(at)
        turned = (at - first).abs()
        over = turned % span
        at = torch.where(torch.floor(turned / span) % 2 == 0, over, span - over) + first
    return at.clamp(0, size - 1)


def _taken(x: Tensor, at: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The elements at whole places, 0 where there are none, and whether there are."""
    sizes = x.shape[2:]
    inside = torch.ones_like(at[0], dtype=torch.bool)
    number = torch.zeros_like(at[0], dtype=torch.int64)
    for one, size in zip(at, sizes, strict=True):
        inside = inside & (one >= 0) & (one <= size - 1)
        number = number * size + one.clamp(0, size - 1).long()
    flat, inside = number.flatten(1).unsqueeze(1), inside.unsqueeze(1)
    element = x.flatten(2).gather(2, flat.expand(-1, x.shape[1], -1)).unflatten(2, number.shape[1:])
    return torch.where(inside, element, 0.0), inside


GRID_SAMPLES = {aten.grid_sampler_3d.default: sample_volume}
