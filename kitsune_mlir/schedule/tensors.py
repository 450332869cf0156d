"""Slices, reshapes and elements of tensors, in numpy: for numeric.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import attr_int, ir, location
from kitsune_mlir.operations import slice_of
from kitsune_mlir.rows import DYNAMIC

from . import poison

Function = Callable[[Sequence[Any]], Sequence[Any]]  # operands to results


def part(op: ir.Operation) -> Function:
    first, width = op.opview.first_column, ir.RankedTensorType(op.results[0].type).shape[1]
    return lambda xs: [xs[0][:, first : first + width].copy()]


def concat(op: ir.Operation) -> Function:
    dim = attr_int(op, "dim")
    return lambda xs: [np.concatenate(xs, axis=dim)]


def reshape(op: ir.Operation) -> Function:
    shape = list(ir.RankedTensorType(op.results[0].type).shape)
    return lambda xs: [np.reshape(xs[0], shape)]


def slice_(op: ir.Operation) -> Function:
    """A slice whose sizes are constants."""
    places, sizes, steps = slice_of(op)
    if DYNAMIC in (*sizes, *steps):
        raise UnsupportedError(f"{location(op.location)}: a slice whose sizes are no constants")
    shape = list(ir.RankedTensorType(op.results[0].type).shape)

    def cut(xs: Sequence[Any]) -> list[Any]:
        given = iter(xs[1:])
        starts = [int(next(given)) if place == DYNAMIC else place for place in places]
        return [xs[0][tuple(slice(o, o + n * s, s) for o, n, s in zip(starts, sizes, steps))].reshape(shape)]

    return cut


def extract(op: ir.Operation) -> Function:
    """An element, or many at once. Outside of the tensor are none."""
    source = f"numbers that {location(op.location)} takes from outside of a tensor"

    def take(xs: Sequence[Any]) -> Sequence[Any]:
        tensor, *places = xs
        if not places:
            return [tensor[()]]
        outside = np.logical_or.reduce(
            np.broadcast_arrays(*((place < 0) | (place >= size) for place, size in zip(places, tensor.shape)))
        )
        if not outside.any():
            return [tensor[tuple(places)]]
        beyond = poison.value(tensor.dtype, source)
        if outside.all():
            return [np.full(outside.shape, beyond, tensor.dtype)[()]]
        inside = tuple(np.where(outside, 0, place) for place in places)
        return [np.where(outside, tensor.dtype.type(beyond), tensor[inside])]

    return take
