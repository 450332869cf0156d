"""wgmma on the registers of a warpgroup (PTX ISA, Asynchronous Warpgroup Level Matrix Multiply-Accumulate
Instructions): fragment layouts, matrix descriptors, and results that are not there before a wait."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .faults import MemoryFault
from .lanes import spread

THREADS, ROWS = 128, 64
UNUSED = 16  # leading bytes where there is one box
_TEXT = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.f32\.(\w+)\.(\w+)")
_ITEMSIZE = {"bf16": 2, "f16": 2, "tf32": 4}
_T = np.arange(THREADS)
_ROW, _QUAD = 16 * (_T // 32) + _T % 32 // 4, _T % 4


@dataclass(frozen=True)
class Shape:
    n: int
    element: str

    @property
    def itemsize(self) -> int:
        return _ITEMSIZE[self.element]


def shape_of(opcode: str) -> Shape | None:
    """The shape of a wgmma instruction; None for anything else. The depth is always 32 bytes."""
    match = _TEXT.fullmatch(opcode)
    if not match:
        return None
    n, k, a, b = int(match[1]), int(match[2]), match[3], match[4]
    assert a == b and a in _ITEMSIZE and k * _ITEMSIZE[a] == 32 and n % 8 == 0 and 8 <= n <= 256, opcode
    return Shape(n, a)


class Product:
    """A group of products in flight: sums by row and column, that must not be looked at until it is `done`, and the
    registers of the left operand with what they held, which must stay there until then."""

    def __init__(self, number: int, sums: np.ndarray, left: Mapping[int, Any]):
        self.number, self.sums, self.done, self.location = number, sums, False, ""
        self._left = left
        self._registers: np.ndarray | None = None

    def end(self, registers: Mapping[int, Any]) -> None:
        """Once it was waited for; `registers` are the agent's."""
        for register, value in self._left.items():
            now = registers[register]
            if now is not value and not np.array_equal(now, value):
                raise MemoryFault("a register of a product's left operand is written before a wait for the product")
        self.done = True

    def __getitem__(self, register: int) -> Sum:
        return Sum(self, register)

    def registers(self) -> np.ndarray:
        """The sums by register and thread."""
        if not self.done:
            raise MemoryFault("sums of a product are read before a wait for it")
        if self._registers is None:
            rows, columns = _sum_places(self.sums.shape[1])
            self._registers = self.sums[rows, columns]
        return self._registers


class Sum:
    """A register of a product that may be in flight; an array to whom reads it."""

    ndim, shape, dtype = 1, (THREADS,), np.dtype(np.float32)

    def __init__(self, product: Product, register: int):
        self.product, self.register = product, register

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        found = self.product.registers()[self.register]
        return found if dtype is None else found.astype(dtype)

    def astype(self, dtype: Any) -> np.ndarray:
        return np.asarray(self).astype(dtype)


def settled(value: Any) -> Any:
    """An array, unless it is of a product in flight."""
    return np.asarray(value) if isinstance(value, Sum) and value.product.done else value


def matrix_of(sums: Sequence[Any]) -> np.ndarray:
    """[64, n] of registers; those of a product in flight may be summed on by the next one."""
    first = sums[0]
    if isinstance(first, Sum) and len(sums) * 2 == first.product.sums.shape[1]:
        if all(isinstance(x, Sum) and x.product is first.product and x.register == i for i, x in enumerate(sums)):
            return first.product.sums
    rows, columns = _sum_places(2 * len(sums))
    matrix = np.empty((ROWS, 2 * len(sums)), np.float32)
    matrix[rows, columns] = np.stack([spread(np.asarray(x), (THREADS,)) for x in sums])
    return matrix


@functools.cache
def _sum_places(n: int) -> tuple[np.ndarray, np.ndarray]:
    """[n / 2, 128] rows and columns."""
    register = np.arange(n // 2)[:, None]
    return _ROW + 8 * (register // 2 % 2), 8 * (register // 4) + 2 * _QUAD + register % 2


def fragment(words: Sequence[np.ndarray], element: str) -> np.ndarray:
    """[64, k] of four words for every 32 bytes of k."""
    bits = np.stack([spread(word, (THREADS,)) for word in words], -1).astype(np.int32).view(np.uint32)
    values = widened(bits.reshape(THREADS, -1, 4, 1).view(np.uint8), element)  # [thread, step, word, elements]
    steps, pair = values.shape[1], values.shape[3]
    matrix = np.empty((ROWS, steps, 2, 4 * pair), np.float32)  # row, step, half of k, column
    columns = _QUAD[:, None] * pair + np.arange(pair)
    for word in range(4):
        rows = (_ROW + 8 * (word % 2))[:, None]
        matrix[rows, :, word // 2, columns] = values[:, :, word].transpose(0, 2, 1)
    return matrix.reshape(ROWS, -1)


def widened(content: np.ndarray, element: str) -> np.ndarray:
    """Elements as f32; the last dimension is bytes."""
    if element == "f16":
        return content.view(np.float16).astype(np.float32)
    if element == "bf16":
        return (content.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return (content.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@dataclass(frozen=True)
class Descriptor:
    """A matrix in shared memory: rows along which k runs, or rows of k."""

    start: int  # bytes
    stride: int  # bytes from 8 rows to the next 8
    swizzle: int
    leading: int  # across only: bytes from one row's `swizzle` bytes to the next

    def chunks(self, rows: int) -> np.ndarray:
        """[rows, 2]: where the 16-byte chunks of 32 bytes of k lie, counted in chunks."""
        row = np.arange(rows)[:, None]
        place = self.start + row // 8 * self.stride + row % 8 * self.swizzle + 16 * np.arange(2)
        return self._swizzled(place)

    def chunks_across(self, rows: int) -> np.ndarray:
        """[16, rows / 8]: the same of 16 rows of k, in each of which 16-bit elements of `rows` rows or columns of
        the product follow one another."""
        if self.start % (8 * self.swizzle) >= self.swizzle or self.stride % (8 * self.swizzle):
            raise MemoryFault(f"a matrix descriptor of {self}: its start is not in the first row of the pattern")
        k, chunk = np.arange(16)[:, None], np.arange(-(-rows // 8))
        each = self.swizzle // 16
        place = self.start + k // 8 * self.stride + k % 8 * self.swizzle + chunk // each * self.leading
        return self._swizzled(place + 16 * (chunk % each))

    def _swizzled(self, place: np.ndarray) -> np.ndarray:
        return (place >> 4) ^ (place >> 7 & self.swizzle // 16 - 1)


def descriptor(bits: int) -> Descriptor:
    """PTX ISA, Matrix Descriptor Format, for operands with a swizzle."""
    bits &= (1 << 64) - 1
    swizzle = {1: 128, 2: 64, 3: 32}.get(bits >> 62)
    if swizzle is None or bits >> 49 & 7 or bits & 0xC000 or bits >> 46 & 3:
        raise MemoryFault(f"no such matrix descriptor here: {bits:#x}")
    found = Descriptor((bits & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, swizzle, (bits >> 16 & 0x3FFF) << 4)
    if found.stride % swizzle:
        raise MemoryFault(f"a matrix descriptor of {found}: 8 rows are no whole rows from the next ones")
    if found.leading != UNUSED and found.leading % (8 * swizzle):
        raise MemoryFault(f"a matrix descriptor of {found}: no box is so far from another; is the CTA's rank in it?")
    return found
