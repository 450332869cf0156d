"""ldmatrix and stmatrix: 8 x 8 matrices of 16-bit elements between a warp's registers and shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .faults import MemoryFault
from .lanes import spread

if TYPE_CHECKING:
    from .assembler import Assembler

_LANE = np.arange(32)[:, None]
_ROW, _COLUMN = _LANE // 4, _LANE % 4 * 4  # of a matrix, and the byte in it


def _places(run: Assembler, mask: np.ndarray, place: Any, count: int) -> np.ndarray:
    """For `count` 8 x 8 matrices of 16-bit elements, where the two elements of each lane lie, [threads * count]: lane
    8m + r says where row r of matrix m begins, a lane has two elements of row lane / 4."""
    if not run.agent.lanes(mask).all:
        raise MemoryFault("matrices are stored by some of a warp's threads")
    (register,) = place
    places = spread(run.read(register), mask.shape).astype(np.int64).reshape(-1, 32)
    return (places[:, _ROW + 8 * np.arange(count)] + _COLUMN).reshape(-1)


def store(run: Assembler, mask: np.ndarray, place: Any, words: tuple[Any, ...]) -> None:
    """stmatrix."""
    columns = np.empty((len(mask), len(words)), np.int32)
    for number, word in enumerate(words):
        columns[:, number] = run.read(word)
    run.agent.store_cluster(_places(run, mask, place, len(words)), columns.reshape(-1, 1), mask, len(words))


def load(run: Assembler, mask: np.ndarray, words: tuple[Any, ...], place: Any, turns: bool = False) -> None:
    """ldmatrix of four: lane 8m + r says where row r of matrix m begins. Lane 4g + q has of each the elements 2q and
    2q + 1 of row g; if it turns (.trans), of column g."""
    lanes = run.agent.lanes(mask)
    if not lanes.whole_warps or len(words) != 4:
        raise MemoryFault("matrices are loaded by some of a warp's threads")
    (register,) = place
    rows = lanes.of(spread(run.read(register), mask.shape)).astype(np.int64)
    found = run.cta.space.load(rows, np.dtype(np.int32), 4, 16, run.cta.clock, lanes.threads)
    matrices = found.reshape(-1, 4, 8, 4)  # warps, matrices, rows, words
    if turns:
        elements = np.ascontiguousarray(matrices).view(np.int16)
        matrices = np.ascontiguousarray(elements.swapaxes(2, 3)).view(np.int32)
    for number, word in enumerate(words):
        loaded = matrices[:, number].reshape(-1)
        if not lanes.all:
            loaded, own = np.zeros(len(mask), np.int32), loaded
            loaded[lanes.places] = own
        run.write(word, loaded)
