"""What the interpreter does where tiles and rows are written to a kernel's outputs."""

from __future__ import annotations

import numpy as np

from kitsune_mlir.dialects.schedule import UNTIL
from kitsune_mlir.mlir import ir

from . import poison
from .rings import ScheduleFault, box
from .steps import Frame, Step, whole_vectors


def write(op: ir.Operation, where: str, operands: list[int]) -> Step:
    dims, sizes, index = op.opview.axes, op.opview.box, op.opview.position
    once, until = op.opview.is_once, UNTIL in op.attributes
    vectors = whole_vectors(op, where, dims, sizes)

    def step(frame: Frame) -> None:
        if once and frame.cta.rank:
            return
        tile, *at = [frame.values[o] for o in operands]
        output = frame.cta.outputs[index]
        vectors(output.data.shape, at)
        wanted = sizes
        if until:
            wanted = [*sizes[:-1], max(0, min(sizes[-1], at.pop() - at[dims[-1]]))]
        inside, own = box(output.data, at, dims, wanted)
        part, done = output.data[inside], output.written[inside]
        others = [d for d in range(output.data.ndim) if d not in dims]
        order = [*others, *dims]
        new = tile.reshape(sizes)[own].reshape([part.shape[d] for d in order]).transpose(np.argsort(order))
        if (done & ~((part == new) | (np.isnan(part) & np.isnan(new)))).any():
            raise ScheduleFault(f"{frame.at(where)} writes elements of output {index} again, with other values")
        _check_written(new, index, frame.at(where))
        output.data[inside], output.written[inside] = new, True

    return step


def _check_written(tile: np.ndarray, index: int, where: str) -> None:
    """Raises ScheduleFault for elements of an output that come from where nobody wrote."""
    if (source := poison.source_of(tile)) is not None:
        raise ScheduleFault(f"{where} writes to output {index} {source}")


def write_rows(op: ir.Operation, where: str, operands: list[int]) -> Step:
    index, adds = op.opview.position, op.opview.adds

    def step(frame: Frame) -> None:
        tile, to, first, count, column = [frame.values[o] for o in operands[:5]]
        output = frame.cta.outputs[index]
        columns = slice(column, column + tile.shape[1])
        tile = tile[:, : output.data.shape[1] - column]
        _check_written(tile[: max(0, count - first)], index, frame.at(where))
        if adds and not output.written.any():
            output.data[...], output.written[...] = 0.0, True  # it begins at zero
        for row, place in zip(tile[: max(0, count - first)], to, strict=False):
            if adds:
                if 0 <= place < len(output.data):
                    output.data[place, columns] += row
                continue
            if not 0 <= place < len(output.data) or output.written[place, columns].any():
                raise ScheduleFault(
                    f"{frame.at(where)} writes row {place} of output {index}, which is not there or was"
                )
            output.data[place, columns], output.written[place, columns] = row, True

    return step
