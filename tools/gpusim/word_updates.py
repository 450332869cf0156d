"""Atomic operations on words of a table in memory, of threads one after another (codegen/gpu_scatter.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .faults import MemoryFault

_ADDS = "red.relaxed.gpu.global.add.v"
# The larger, or the lesser, of a float in memory and another one, by their bits.
_EXTREME = re.compile(r"\{\n\.reg \.pred p;\nsetp\.ge\.s32 p, \$1, 0;\n@p red\S*\.(?P<above>max|min)\.s32 [^}]*\}")
_WAYS = {"max": np.maximum, "min": np.minimum}


def run(text: str, tables: Sequence[Any], operands: Sequence[Any], mask: np.ndarray) -> bool:
    """Whether an instruction is one of these. It is done then, for the threads of the mask, in the one of the tables
    that has the address. Raises MemoryFault where none has."""
    extreme = _EXTREME.fullmatch(text)
    if extreme is None and not text.startswith(_ADDS):
        return False
    addresses, *columns = (np.broadcast_to(x, mask.shape)[mask] for x in operands)
    for thread, address in enumerate(addresses):
        words, values = _words_at(tables, int(address), len(columns)), [column[thread] for column in columns]
        if extreme is None:
            words += values
        else:
            _join_bits(extreme["above"], words, np.int32(values[0]))
    return True


def _join_bits(above: str, words: np.ndarray, value: np.int32) -> None:
    """The largest, or the least, of an f32 and another one by their bits: those from zero on as signed integers by
    `above`, others as unsigned ones by the other of the two."""
    signed = words.view(np.int32)
    if value >= 0:
        signed[:] = _WAYS[above](signed, value)
    else:
        below = next(way for name, way in _WAYS.items() if name != above)
        signed.view(np.uint32)[:] = below(signed.view(np.uint32), value.view(np.uint32))


def _words_at(tables: Sequence[Any], address: int, count: int) -> np.ndarray:
    """Neighbouring numbers of 32 bits, which `address` is that of the first of."""
    table = next((table for table in tables if table.holds(address, count)), None)
    if table is None or address % (4 * count):
        raise MemoryFault(f"an atomic operation on {count} numbers at {address:#x}")
    at = (address - table.data.ctypes.data) // table.data.itemsize
    return table.data[at : at + count]
