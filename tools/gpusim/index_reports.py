"""What kernels report of row numbers outside of their tables (kitsune_mlir/codegen/index_checks.py)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import numpy as np

from kitsune_mlir.runtime.index_reports import WORD

from .lanes import spread

_NUMBER = re.compile(r"red\.relaxed\.gpu\.global\.max\.u32 \[word\], (\d+);")
_REPORT: ContextVar[Callable[[int], None] | None] = ContextVar("report", default=None)


@contextlib.contextmanager
def reported(report: Callable[[int], None]) -> Iterator[None]:
    """Kernels that run inside write what they report by `report`."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)


def is_report(text: str) -> bool:
    """Whether inline PTX is a check of a row number."""
    return WORD in text


def run(text: str, wrong: np.ndarray, mask: np.ndarray) -> None:
    """The check, for the threads of the mask."""
    if np.any(spread(np.asarray(wrong), mask.shape) & mask):
        report, number = _REPORT.get(), _NUMBER.search(text)
        assert report is not None and number is not None
        report(int(number[1]))
