"""What nobody wrote, in the interpreter: NaN whose bits say where it comes from.

Arithmetic hands a NaN on with its bits, and so do casts, which leave at least the nine that f16 has. So an element that
is written to an output says which ring or operand it came from where that held no number. Integers cannot say it: in
their place stands one that is the number of no row of any tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SOURCES: list[str] = []
_MOST = (1 << 9) - 1  # sources that are told apart; a NaN of arithmetic has none of these bits
_SHIFT, _QUIET = 13, 0x7FC00000  # of f32


def nan(source: str) -> float:
    """A NaN that comes from `source`, which says what such numbers are."""
    if source not in _SOURCES:
        if len(_SOURCES) == _MOST:
            del _SOURCES[:]
        _SOURCES.append(source)
    bits = np.uint32(_QUIET | _SOURCES.index(source) + 1 << _SHIFT)
    return float(bits.view(np.float32))


def value(dtype: Any, source: str) -> Any:
    """What is where nobody wrote an element of that type."""
    if np.issubdtype(dtype, np.floating):
        return nan(source)
    return np.issubdtype(dtype, np.bool_) or np.iinfo(dtype).min // 3


def source_of(values: np.ndarray) -> str | None:
    """Where the first of the values that nobody wrote comes from."""
    if not np.issubdtype(values.dtype, np.floating):
        return None
    found = values[np.isnan(values)].astype(np.float32)
    numbers = found.view(np.uint32) >> _SHIFT & _MOST
    numbers = numbers[(numbers > 0) & (numbers <= len(_SOURCES))]
    return _SOURCES[numbers[0] - 1] if len(numbers) else None


def plain(values: np.ndarray) -> np.ndarray:
    """The same with NaN that come from nowhere: those that a caller gives."""
    if not np.issubdtype(values.dtype, np.floating):
        return values
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def kept(result: Any, operand: Any) -> Any:
    """The result of a function of an operand, whose NaN it is to hand on as they are: not all of numpy's do."""
    return np.where(np.isnan(operand), operand, result)
