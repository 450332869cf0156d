"""Threads that are active, and values over threads: the questions that are asked of them again and again."""

from __future__ import annotations

from typing import Any

import numpy as np

# numpy's own function goes through Python first, which takes twice as long as to count a few threads.
_count = (np._core if hasattr(np, "_core") else np.core).multiarray.count_nonzero


class Lanes:
    """A mask of an agent's threads, looked through once. `threads` are the CTA's numbers of the active ones."""

    def __init__(self, mask: np.ndarray, thread_id: np.ndarray):
        self.places = np.flatnonzero(mask)
        self.count, self.all = len(self.places), len(self.places) == len(mask)
        self.threads = thread_id[mask]
        by_warp = mask.reshape(-1, 32) if len(mask) % 32 == 0 else mask[None]
        active = by_warp.any(1)
        self.warps = int(thread_id[0]) // 32 + np.flatnonzero(active)  # of the CTA, with active threads
        self.whole_warps = bool((by_warp.all(1) == active).all())

    def of(self, values: np.ndarray) -> np.ndarray:
        """Those of the active threads."""
        return values if self.all else values[self.places]


# The least and the greatest of numbers: an array's own methods go through Python first, which takes as long again.
least, most = np.minimum.reduce, np.maximum.reduce


def some(flags: np.ndarray) -> bool:
    """Whether one of them holds: numpy counts those of a few threads four times as fast as it asks for any."""
    return _count(flags) != 0


def every(flags: np.ndarray) -> bool:
    """Whether all of them hold."""
    return _count(flags) == flags.size


def spread(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A value for every thread."""
    if type(value) is not np.ndarray:
        value = np.asarray(value)
    if value.shape == shape:
        return value
    if value.ndim:
        return np.broadcast_to(value, shape)
    found = np.empty(shape, value.dtype)
    found.fill(value[()])
    return found
