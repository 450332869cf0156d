"""Gradients of samples between the elements of images and volumes (grid_sample): by the images, whose rows of channels
are added up by number, and by the places, a dot of channels for each neighbour."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from .working import working

aten = torch.ops.aten

_LINEAR, _NEAREST = range(2)
_ZEROS, _BORDER, _REFLECTION = range(3)


def sample_backward(dims: int) -> Callable[..., Any]:
    """A rule for samples of x [N, C, ...] at the places of a grid [N, ..., dims], the last dimension's first."""

    def rule(
        grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool, wanted: Sequence[bool]
    ) -> Any:
        if mode not in (_LINEAR, _NEAREST):
            return NotImplemented
        places = [_place(working(grid[..., dims - 1 - i]), x.shape[2 + i], padding, corners) for i in range(dims)]
        sides = [_neighbours(place, mode) for place, _ in places]
        count, batch = prod(x.shape[2:]), x.shape[0]
        rows = working(grad).movedim(1, -1).flatten(0, -2)
        elements = working(x).movedim(1, -1).flatten(0, -2)
        images = torch.arange(batch, device=x.device).view(-1, *[1] * dims) * count
        of_x: Tensor | None = torch.zeros_like(elements) if wanted[0] else None
        steps: list[Any] = [0.0] * dims
        for corner in itertools.product(*sides):
            number: Any = 0
            inside: Any = True
            for (at, _, _), size in zip(corner, x.shape[2:], strict=True):
                inside = inside & (at >= 0) & (at < size)
                number = number * size + at.clamp(0, size - 1)
            taken = (number + images).flatten()
            if of_x is not None:
                weight = torch.where(inside, prod(weight for _, weight, _ in corner), 0.0)
                of_x = of_x.index_add(0, taken, rows * weight.flatten()[:, None])
            if wanted[1] and mode == _LINEAR:
                dots = (rows * elements.index_select(0, taken)).sum(1).view(number.shape)
                dots = torch.where(inside, dots, 0.0)
                for i in range(dims):
                    others = prod(weight for j, (_, weight, _) in enumerate(corner) if j != i)
                    steps[i] = steps[i] + dots * others * corner[i][2]
        of_grid = None
        if wanted[1] and mode == _LINEAR:
            moved = [step * slope for step, (_, slope) in zip(steps, places, strict=True)]
            of_grid = torch.stack(moved[::-1], -1).to(grid.dtype)
        elif wanted[1]:
            of_grid = torch.zeros_like(grid)
        if of_x is not None:
            of_x = of_x.view(batch, *x.shape[2:], x.shape[1]).movedim(-1, 1).to(x.dtype)
        return of_x, of_grid

    return rule


def _place(grid: Tensor, size: Any, padding: int, corners: bool) -> tuple[Tensor, Any]:
    """Where in a dimension of so many elements numbers from -1 to 1 are, and the slope there."""
    slope: Any = (size - 1) / 2 if corners else size / 2
    place = (grid + 1) * slope - (0.0 if corners else 0.5)
    if padding == _ZEROS:
        return place, slope
    if padding == _REFLECTION:
        least, span = (0.0, size - 1) if corners else (-0.5, size)
        away = place - least
        turns = torch.div(away.abs(), span, rounding_mode="floor")
        rest = away.abs() - turns * span
        back = torch.remainder(turns, 2.0) > 0
        place = torch.where(back, span - rest, rest) + least
        slope = slope * torch.where(back, -1.0, 1.0) * torch.where(away < 0, -1.0, 1.0)
    within = (place > 0) & (place < size - 1)
    return place.clamp(0, size - 1), torch.where(within, slope, 0.0)


def _neighbours(place: Tensor, mode: int) -> list[tuple[Tensor, Any, Any]]:
    """The numbers of the elements beside places, their weights and how these grow with the place."""
    if mode == _NEAREST:
        return [(place.round().to(torch.int64), 1.0, 0.0)]
    first = place.floor()
    rest, number = place - first, first.to(torch.int64)
    return [(number, 1.0 - rest, -1.0), (number + 1, rest, 1.0)]


SAMPLE_GRADIENTS = {
    aten.grid_sampler_2d_backward.default: sample_backward(2),
    aten.grid_sampler_3d_backward.default: sample_backward(3),
}
