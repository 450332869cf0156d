"""Where a box of a matrix of windows begins in the images."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.dialects.windows import WindowsOp


def first_of(matrix: WindowsOp, at: Sequence[Int]) -> tuple[list[Int], list[Int]]:
    """For the box that begins at an index of the matrix, whose columns are of one element of the filter: the image, the
    element of its space where the first window begins, and the channel; and how far along each dimension of space the
    filter's element is from there."""
    windows = matrix.windows
    row, column = (at[axis] for axis in matrix.axes)
    image, block = list(at[: matrix.axes[0]]), device.mul(at[-2], windows.depth) if windows.blocks > 1 else 0
    if not image:
        image, row = [device.div(row, windows.count)], device.mod(row, windows.count)
    places = _split(row, windows.places)
    begin = [
        device.sub(device.mul(place, stride), low) for place, stride, low in zip(places, windows.strides, windows.low)
    ]
    elements = _split(device.div(column, windows.depth), windows.filter)
    offsets = [device.mul(element, dilation) for element, dilation in zip(elements, windows.dilations)]
    return [*image, *begin, device.add(device.mod(column, windows.depth), block)], offsets


def _split(number: Int, sizes: Sequence[int]) -> list[Int]:
    """A row-major number as an index along each of these sizes."""
    found: list[Int] = []
    for size in reversed(sizes[1:]):
        found.append(device.mod(number, size))
        number = device.div(number, size)
    return [number, *reversed(found)]
