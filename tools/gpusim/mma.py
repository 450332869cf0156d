"""mma.sync on registers of whole warps. Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16" and
"mma.m16n8k8"."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np

LANES = 32
_GROUP, _QUAD = np.arange(LANES) // 4, np.arange(LANES) % 4
_SHAPE = re.compile(
    r"mma\.sync\.aligned\.m16n8k(?P<k>\d+)\.row\.col\.f32\.(?P<kind>\w+)\.(?P=kind)\.f32 "
    r"\{(?P<d>[^}]*)\}, \{(?P<a>[^}]*)\}, \{(?P<b>[^}]*)\}, \{(?P<c>[^}]*)\};"
)
_K = {"bf16": 16, "f16": 16, "tf32": 8}


@functools.cache
def parse(text: str) -> dict[str, str] | None:
    """The parts of an mma.sync instruction; None for anything else."""
    match = _SHAPE.fullmatch(text)
    return match.groupdict() if match else None


def mma(kind: str, k: int, a: Sequence[np.ndarray], b: Sequence[np.ndarray], c: Sequence[np.ndarray]) -> np.ndarray:
    """Words of A (4) and B (2) and sums (4), each [warps * 32]; gives the new sums, [4, warps * 32]."""
    assert k == _K[kind] and len(a) == 4 and len(b) == 2 and len(c) == 4
    left, right, total = _matrix(_unpack(kind, a), *_a_places(k)), _matrix(_unpack(kind, b), *_b_places(k)), None
    rows, columns = _sum_places()
    total = _matrix(np.stack(c, -1)[:, :, None], rows[..., None], columns[..., None])
    result = left @ right + total
    if kind == "tf32":  # sums are cut off, never rounded
        result = cut_off(left.astype(np.float64) @ right + total)
    return np.moveaxis(result[:, rows, columns], -1, 0).reshape(4, -1)


def cut_off(x: np.ndarray) -> np.ndarray:
    """f64 as the next f32 towards zero."""
    near = x.astype(np.float32)
    return np.where(np.abs(near) > np.abs(x), np.nextafter(near, np.float32(0)), near)


def to_tf32(x: np.ndarray, ties_up: bool) -> np.ndarray:
    """The nearest numbers with 10 bits of a fraction, as the words that hold them."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    half = np.uint32(0x1000) if ties_up else np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
    rounded = (bits + half) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded, bits).view(np.int32)


def _unpack(kind: str, words: Sequence[np.ndarray]) -> np.ndarray:
    """[warps * 32, registers, elements of a register] as f32."""
    bits = np.ascontiguousarray(np.stack(words, -1)).astype(np.int32).view(np.uint32)
    if kind == "tf32":  # the low 13 bits are not used
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)[..., None]
    if kind == "f16":
        return bits[..., None].view(np.float16).astype(np.float32)
    return np.stack([bits << np.uint32(16), bits & np.uint32(0xFFFF0000)], -1).view(np.float32)


def _matrix(elements: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[warps, rows, columns] from [warps * 32, registers, elements], placed by [32, registers, elements]."""
    warps = elements.reshape(-1, *rows.shape)
    matrix = np.full((len(warps), rows.max() + 1, columns.max() + 1), np.nan, np.float32)
    matrix[:, rows, columns] = warps
    return matrix


def _places(rows: Sequence[np.ndarray], columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.stack(rows, 1), np.stack(columns, 1)


def _pair(first: np.ndarray) -> np.ndarray:
    return np.stack([first, first + 1], -1)


@functools.cache
def _a_places(k: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = _GROUP[:, None], _GROUP[:, None] + 8
    if k == 8:
        q = _QUAD[:, None]
        return _places([low, high, low, high], [q, q, q + 4, q + 4])
    q = _pair(2 * _QUAD)
    low, high = (np.broadcast_to(r, q.shape) for r in (low, high))
    return _places([low, high, low, high], [q, q, q + 8, q + 8])


@functools.cache
def _b_places(k: int) -> tuple[np.ndarray, np.ndarray]:
    if k == 8:
        q, n = _QUAD[:, None], _GROUP[:, None]
        return _places([q, q + 4], [n, n])
    q = _pair(2 * _QUAD)
    n = np.broadcast_to(_GROUP[:, None], q.shape)
    return _places([q, q + 8], [n, n])


@functools.cache
def _sum_places() -> tuple[np.ndarray, np.ndarray]:
    g, q = _GROUP, 2 * _QUAD
    return _places([g, g, g + 8, g + 8], [q, q + 1, q, q + 1])
