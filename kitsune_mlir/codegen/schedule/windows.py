"""Where a box of a matrix of windows begins in the images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects.windows import WindowsOp
from kitsune_mlir.mlir import ir


def first_of(matrix: WindowsOp, at: Sequence[Int], open_: Sequence[Int] = ()) -> tuple[list[Int], list[Int]]:
    """For the box that begins at an index of the matrix, whose columns are of one element of the filter: the image, the
    element of its space where the first window begins, and the channel; and how far along each dimension of space the
    filter's element is from there. `open_` are the images' sizes that are open until the call."""
    windows = matrix.windows
    windows_along = _places(matrix, open_)
    row, column = (at[axis] for axis in matrix.axes)
    image, block = list(at[: matrix.axes[0]]), device.mul(at[-2], windows.depth) if windows.blocks > 1 else 0
    if not image:
        count = reduce(device.mul, windows_along)
        image, row = [device.div(row, count)], device.mod(row, count)
    places = _split(row, windows_along)
    begin = [
        device.sub(device.mul(place, stride), low) for place, stride, low in zip(places, windows.strides, windows.low)
    ]
    elements = _split(device.div(column, windows.depth), windows.filter)
    offsets = [device.mul(element, dilation) for element, dilation in zip(elements, windows.dilations)]
    return [*image, *begin, device.add(device.mod(column, windows.depth), block)], offsets


def _places(matrix: WindowsOp, open_: Sequence[Int]) -> list[Int]:
    """How many windows there are along each dimension of space."""
    windows, kind = matrix.windows, ir.RankedTensorType(matrix.operands[0].type)
    if not windows.is_open:
        return list(windows.places)
    numbers = iter(open_)
    sizes = [next(numbers) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)][1:-1]
    found: list[Int] = []
    for size, lower, upper, stride in zip(sizes, windows.lower, windows.upper, windows.strides, strict=True):
        found.append(device.add(device.div(device.add(size, upper - lower - 1), stride), 1))
    return found


def _split(number: Int, sizes: Sequence[Int]) -> list[Int]:
    """A row-major number as an index along each of these sizes."""
    found: list[Int] = []
    for size in reversed(sizes[1:]):
        found.append(device.mod(number, size))
        number = device.div(number, size)
    return [number, *reversed(found)]
