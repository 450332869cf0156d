"""Windows on images, as operators make them: of open sizes (open_windows.py), and of known ones (summed_windows.py)."""

from __future__ import annotations

from typing import NamedTuple

from kitsune_mlir import rows
from kitsune_mlir.codegen.affine_index import linear
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type, padding_of
from kitsune_mlir.planning.product_engines import CHUNK
from kitsune_mlir.planning.windows import OPEN, STEP, Windows

from .convolutions import is_zero_padded
from .split_windows import reads_windows


def are_open_windows(matrix: ir.Value) -> bool:
    """Whether a matrix is what reshapes make of such windows, which the copy engine can read where they lie."""
    made = rows.producer(matrix)
    while made is not None and made.name == "tensor.collapse_shape":
        made = rows.producer(made.operands[0])
    return made is not None and reads_windows(made) and windows_on(made) is not None


class _Seen(NamedTuple):
    """The images that windows are on, without the zeros `low` before and `high` behind them, and what windows have."""

    images: ir.Value
    places: tuple[int, ...]
    filter: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those of the images."""
        return tuple(OPEN if size == rows.DYNAMIC else size for size in rows.shape_of(self.images)[1:-1])


def windows_on(op: ir.Operation) -> tuple[ir.Value, Windows] | None:
    """The images that windows of open sizes are on, without zeros around them, and the windows; None where the copy
    engine cannot read them."""
    seen, channels = _seen(op), rows.shape_of(op.results[0])[-1]
    if seen is None or OPEN not in seen.sizes or rows.DYNAMIC in (*seen.filter, channels):
        return None
    least = CHUNK if isinstance(element_type(seen.images), ir.F32Type) else STEP
    chunk = next((width for width in range(CHUNK, least - 1, -STEP) if channels % width == 0), None)
    if chunk is None:
        return None
    reach = ((size - 1) * dilation for size, dilation in zip(seen.filter, seen.dilations))
    upper = tuple(behind - far for behind, far in zip(seen.high, reach))
    steps = seen.strides, seen.low, seen.dilations
    found = Windows(seen.sizes, channels, seen.filter, *steps, seen.places, chunk=chunk, ends=upper)
    return None if found.unreadable() else (seen.images, found)


def known_windows_on(op: ir.Operation) -> tuple[ir.Value, Windows] | None:
    """The same of windows of known sizes, in chunks of 64 channels."""
    seen, channels = _seen(op), rows.shape_of(op.results[0])[-1]
    if seen is None or rows.DYNAMIC in (*rows.shape_of(seen.images), *rows.shape_of(op.results[0])):
        return None
    found = Windows(seen.sizes, channels, seen.filter, seen.strides, seen.low, seen.dilations, seen.places)
    return None if found.unreadable() else (seen.images, found)


def _seen(op: ir.Operation) -> _Seen | None:
    """What an operator's windows are of, where these are all that it has."""
    s, images = rows.Structured(op), op.operands[0]
    shape, rank = rows.shape_of(op.results[0]), len(s.maps[0].results) - 2
    if rank < 1 or len(s.iterators) != 2 + 2 * rank or not _yields_all(s.body):
        return None
    first, *_, last = (rows.dim_of(expr) for expr in s.maps[0].results)
    if first != 0 or last != len(shape) - 1:
        return None
    strides, dilations = [], []
    for d, expr in enumerate(list(s.maps[0].results)[1:-1], 1):
        begin, steps = linear(expr, len(shape)) or (1, [])
        if begin or {at for at, step in enumerate(steps) if step} != {d, d + rank} or min(steps) < 0:
            return None
        strides.append(steps[d])
        dilations.append(steps[d + rank])
    low = high = (0,) * rank
    pad = rows.producer(images)
    if pad is not None and is_zero_padded(pad):
        around = padding_of(pad)
        if min(min(own) for own in around) >= 0 and not any(own[0] or own[-1] for own in around):
            images, low, high = pad.operands[0], *(tuple(own[1:-1]) for own in around)
    places = tuple(OPEN if size == rows.DYNAMIC else size for size in shape[1 : 1 + rank])
    return _Seen(images, places, tuple(shape[1 + rank : -1]), tuple(strides), tuple(dilations), low, high)


def _yields_all(body: ir.Block) -> bool:
    """Whether an operator's results are the elements that it reads."""
    end, *others = reversed(list(body.operations))
    return not others and end.operation.operands[0] == body.arguments[0]
