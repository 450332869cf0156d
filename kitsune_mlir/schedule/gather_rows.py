"""What the interpreter does where rows of a table are gathered into a slot."""

from __future__ import annotations

import numpy as np

from .rings import Copy
from .steps import Frame, Step


def gather_rows(where: str, operands: list[int], results: list[int]) -> Step:
    """Row 0 stands for a number that is no row of the table, zeros for a row that the tile does not have."""

    def step(frame: Frame) -> None:
        slot, table, rows, first, count, column = [frame.values[o] for o in operands]
        slot.check_open(frame.at(where), "producer")
        height, width = slot.buffer.shape
        found = np.zeros((height, width), table.dtype)
        here = min(height, max(0, count - first))
        numbers = np.asarray(rows[:here], np.int64)
        numbers = np.where((numbers >= 0) & (numbers < len(table)), numbers, 0)
        taken = table[numbers, column : column + width]
        found[:here, : taken.shape[1]] = taken
        copy = Copy(slot, found)
        slot.writers.append(copy)
        frame.cta.copies.append(copy)
        frame.values[results[0]] = copy

    return step
