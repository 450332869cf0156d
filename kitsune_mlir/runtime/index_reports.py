"""What kernels report of row numbers outside of their tables (kitsune_mlir/codegen/index_checks.py). ctypes only.

A kernel writes to memory of the host while it runs, as CUDA's assert does, so that a call waits for nothing: who next
waits for the device, or calls the model again, finds the report and raises it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kitsune_mlir.errors import UserError

WORD = "kitsune_wild"  # the global of a module that holds the address of its word
FIRST = (1 << 31) - 1  # what the first check of a module writes; check n writes n less
WORD_BYTES = 4


class HostWords(Protocol):
    """Words of the host's memory that kernels write, zero at first; freed with this object."""

    address: int  # on the host
    pointer: int  # on the device


class IndexReports:
    """The reports of a section's modules. `checks` gives, for each module that has any, where its checks stand."""

    def __init__(self, device: Any, codes: Mapping[str, Any], checks: Mapping[str, Sequence[str]]):
        self._checks = list(checks.values())
        self._words: HostWords = device.host_words(len(checks))
        self._bytes = (ctypes.c_char * (WORD_BYTES * len(checks))).from_address(self._words.address)
        self._none = bytes(WORD_BYTES * len(checks))
        for number, module in enumerate(checks):
            device.point(codes[module], WORD, self._words.pointer + WORD_BYTES * number)

    def check(self, when: str = "") -> None:
        """Raises UserError if a check has failed, once: the first of the first module."""
        if self._bytes.raw == self._none:
            return
        words = (ctypes.c_uint32 * len(self._checks)).from_address(self._words.address)
        places, found = next((one, word) for one, word in zip(self._checks, words, strict=True) if word)
        ctypes.memset(self._words.address, 0, len(self._none))
        raise UserError(f"{places[FIRST - found]}: an index is out of range{when}")
