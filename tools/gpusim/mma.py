"""mma.sync on registers of whole warps. Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16", "mma.m16n8k8"
and, of f64, "mma.m8n8k4"."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LANES = 32
_GROUP, _QUAD = np.arange(LANES) // 4, np.arange(LANES) % 4
_SHAPE = re.compile(
    r"mma\.sync\.aligned\.m16n8k(?P<k>\d+)\.row\.col\.f32\.(?P<kind>\w+)\.(?P=kind)\.f32 "
    r"\{(?P<d>[^}]*)\}, \{(?P<a>[^}]*)\}, \{(?P<b>[^}]*)\}, \{(?P<c>[^}]*)\};"
)
_WIDE = re.compile(
    r"mma\.sync\.aligned\.m8n8k(?P<k>4)\.row\.col\.(?P<kind>f64)\.f64\.f64\.f64 "
    r"\{(?P<d>[^}]*)\}, \{(?P<a>[^}]*)\}, \{(?P<b>[^}]*)\}, \{(?P<c>[^}]*)\};"
)
_K = {"bf16": 16, "f16": 16, "tf32": 8}


@functools.cache
def parse(text: str) -> dict[str, str] | None:
    """The parts of an mma.sync instruction; None for anything else."""
    match = _SHAPE.fullmatch(text) or _WIDE.fullmatch(text)
    return match.groupdict() if match else None


def mma(kind: str, k: int, a: Sequence[np.ndarray], b: Sequence[np.ndarray], c: Sequence[np.ndarray]) -> np.ndarray:
    """Words of A (4) and B (2) and sums (4), each [warps * 32]; gives the new sums, [4, warps * 32]. Of f64 elements
    of A (1) and B (1), and two sums."""
    if kind == "f64":
        return _wide(a, b, c)
    assert k == _K[kind] and len(a) == 4 and len(b) == 2 and len(c) == 4
    places = _Places.of(k)
    left, right = (_matrix(kind, words, *place) for words, place in ((a, places.a), (b, places.b)))
    total = _matrix("f32", c, *places.sums)
    if kind == "tf32":  # sums are cut off, never rounded
        result = cut_off(left.astype(np.float64) @ right + total)
    else:
        result = left @ right + total
    return result.reshape(len(result), -1).take(places.out, 1).swapaxes(0, 1).reshape(4, -1)


def _wide(a: Sequence[np.ndarray], b: Sequence[np.ndarray], c: Sequence[np.ndarray]) -> np.ndarray:
    left = np.asarray(a[0], np.float64).reshape(-1, 8, 4)  # lane 4g + q: row g, column q
    right = np.asarray(b[0], np.float64).reshape(-1, 8, 4).swapaxes(1, 2)
    total = np.stack([np.asarray(sums, np.float64).reshape(-1, 8, 4) for sums in c], -1).reshape(-1, 8, 8)
    result = (left @ right + total).reshape(-1, 8, 4, 2)
    return np.moveaxis(result, -1, 0).reshape(2, -1)


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


def _matrix(kind: str, words: Sequence[np.ndarray], shape: tuple[int, int], source: np.ndarray) -> np.ndarray:
    """[warps, rows, columns] as f32, from a word of each lane in each register; `source` says which of a warp's
    elements each of the matrix is, counted register by register, lane by lane."""
    packed = np.empty((len(words[0]) // LANES, len(words), LANES), np.float32 if kind == "f32" else np.int32)
    for register, word in enumerate(words):
        packed[:, register] = word.reshape(-1, LANES)
    elements = packed.view(_ELEMENTS[kind]).reshape(len(packed), -1).take(source, 1)
    if kind == "bf16":
        elements = (elements.astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif kind == "tf32":  # the low 13 bits are not used
        elements = (elements & np.uint32(0xFFFFE000)).view(np.float32)
    elif kind == "f16":
        elements = elements.astype(np.float32)
    return elements.reshape(-1, *shape)


_ELEMENTS = {"bf16": np.uint16, "f16": np.float16, "tf32": np.uint32, "f32": np.float32}


@dataclass(frozen=True)
class _Places:
    """Of A, B and sums: the shape, and where each element of a warp's matrix is among those in its registers (see
    _matrix). `out`: where in the matrix each lane of each register finds its sum."""

    a: tuple[tuple[int, int], np.ndarray]
    b: tuple[tuple[int, int], np.ndarray]
    sums: tuple[tuple[int, int], np.ndarray]
    out: np.ndarray

    @staticmethod
    @functools.cache
    def of(k: int) -> _Places:
        rows, columns = _sum_places()
        return _Places(
            _sources((16, k), *_a_places(k)),
            _sources((k, 8), *_b_places(k)),
            _sources((16, 8), rows[..., None], columns[..., None]),
            (rows * 8 + columns).T,
        )


def _sources(shape: tuple[int, int], rows: np.ndarray, columns: np.ndarray) -> tuple[tuple[int, int], np.ndarray]:
    """From the rows and columns [32, registers, elements] of all elements of a matrix."""
    if rows.ndim == 2:
        rows, columns = rows[..., None], columns[..., None]
    places = np.moveaxis(rows * shape[1] + columns, 1, 0).reshape(-1)
    found = np.argsort(places)
    assert np.array_equal(places[found], np.arange(shape[0] * shape[1]))
    return shape, found


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
