"""Fourier transforms of as many numbers as are open until the call, while a model is traced: what torch knows of their
results asks for sizes as numbers.

Few numbers, or such of which it is not known how many there may be, are multiplied with a matrix of cosines and sines,

    y[j] = sum over k of x[k] w^(j k)           w is the number on the unit circle of angle -2 pi / n

others are a convolution with a chirp (Bluestein), as 2 j k is j^2 + k^2 - (j - k)^2, by transforms of a size that is
large enough for all n:

    y[j] = v^(j^2) (sum over k of x[k] v^(k^2) v^-((j - k)^2))      v^2 = w

Angles are computed of integers, j k mod n and j^2 mod 2 n, so that they are as exact as n is small. Real results of the
first half of the numbers, the others being their conjugates, are twice the sum over that half but for its first number
and the middle one. Short-time transforms are those of windows, and their inverse adds windows up where they overlap."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, _meta_registrations
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional as F

from .fourier import OVER, POWERS
from .shapes import are_known

aten = torch.ops.aten

Parts = tuple[Tensor, Tensor | None]

_DENSE = 512  # the most numbers that are multiplied with a matrix where it is known how many there may be


def _turned(places: Tensor, n: Any, kind: torch.dtype, sign: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angle of integers, 2 pi / n times them."""
    angle = places.remainder(n).to(kind) / n * (2 * math.pi * sign)
    return angle.cos(), angle.sin()


def _times(x: Parts, y: tuple[Tensor, Tensor], multiply: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    (re, im), (cos, sin) = x, y
    if im is None:
        return multiply(re, cos), multiply(re, sin)
    return multiply(re, cos) - multiply(im, sin), multiply(re, sin) + multiply(im, cos)


def _along_last(x: Parts, n: Any, count: Any, sign: int) -> tuple[Tensor, Tensor]:
    """The first `count` results of numbers along the last dimension, of which there are n, or fewer, the others 0."""
    re, most = x[0], _most(n)
    kind, given = re.dtype, re.shape[-1]
    if most is None or most <= _DENSE:
        rows, columns = (torch.arange(size, device=re.device) for size in (given, count))
        return _times(x, _turned(rows[:, None] * columns, n, kind, sign), torch.matmul)
    whole = 1 << (2 * most - 2).bit_length()
    places = torch.arange(whole, device=re.device)
    chirp = _turned(places * places, 2 * n, kind, sign)
    re, im = _times(x, (chirp[0][:given], chirp[1][:given]), torch.mul)
    re, im = (F.pad(part, (0, whole))[..., :whole] for part in (re, im))
    near = torch.minimum(places, whole - places)
    cos, sin = _turned(near * near, 2 * n, kind, -sign)
    cos, sin = (torch.where(near < n, part, 0.0) for part in (cos, sin))
    spectrum = torch.fft.fft(torch.complex(re, im)) * torch.fft.fft(torch.complex(cos, sin))
    y = torch.fft.ifft(spectrum)[..., :count]
    return _times((y.real, y.imag), (chirp[0][:count], chirp[1][:count]), torch.mul)


def _most(n: Any) -> int | None:
    """The largest that an open size may be, if that is known."""
    found = n.node.shape_env.bound_sympy(n.node.expr).upper
    return int(found) if found.is_Integer else None


def _parts(x: Tensor) -> Parts:
    return (x.real, x.imag) if x.is_complex() else (x if x.is_floating_point() else x.float(), None)


def _fitted(x: Tensor, size: Any, dim: int) -> Tensor:
    """Numbers along a dimension, cut or made longer by zeros."""
    if statically_known_true(x.shape[dim] == size):
        return x
    behind = x.dim() - 1 - dim
    return F.pad(x, (*[0, 0] * behind, 0, size)).narrow(dim, 0, size)


def _complex(x: Tensor, n: Any, dim: int, count: Any, sign: int) -> Tensor:
    """The first results of a transform of n numbers along a dimension, not scaled."""
    re, im = _parts(_fitted(x, n, dim))
    parts = re.movedim(dim, -1), None if im is None else im.movedim(dim, -1)
    re, im = (part.movedim(-1, dim) for part in _along_last(parts, n, count, sign))
    return torch.complex(re, im)


def _real(x: Tensor, n: Any, dim: int, sign: int) -> Tensor:
    """The n real results of a transform of the first half of numbers along a dimension, not scaled."""
    half = n // 2 + 1
    re, im = _parts(_fitted(x, half, dim))
    places = torch.arange(half, device=x.device)
    weights = torch.where((places == 0) | (2 * places == n), 1.0, 2.0).to(re.dtype)
    parts = re.movedim(dim, -1) * weights, None if im is None else im.movedim(dim, -1) * weights
    return _along_last(parts, n, n, sign)[0].movedim(-1, dim)


def _one(x: Tensor, n: Any, dim: int, transform: Callable[..., Tensor], half: bool, to_real: bool, sign: int) -> Tensor:
    """One of the transforms along a dimension, not scaled; of a known size as torch names it."""
    if isinstance(n, int):
        return transform(x, n, dim, norm="forward" if sign > 0 else "backward")
    return _real(x, n, dim, sign) if to_real else _complex(x, n, dim, n // 2 + 1 if half else n, sign)


def _rule(name: str, half: bool, to_real: bool, inverse: bool) -> Callable[..., Any]:
    """For the transforms of this name, along one dimension or several. Those of several are the named one along the
    last dimension, where half of the numbers say all, and of complex numbers along the others."""
    sign = 1 if name in ("ifft", "irfft", "ihfft") else -1
    others = torch.fft.ifft if sign > 0 else torch.fft.fft
    named = getattr(torch.fft, name)

    def along(x: Tensor, sizes: Any, dims: Any, norm: str | None) -> Any:
        if dims is None:
            dims = range(x.dim() - len(sizes), x.dim()) if sizes is not None else range(x.dim())
        dims = [dim % x.dim() for dim in dims]
        given = [None if size == -1 else size for size in sizes or [None] * len(dims)]
        counts = [x.shape[dim] if size is None else size for dim, size in zip(dims, given, strict=True)]
        if to_real and given[-1] is None:
            counts[-1] = 2 * (x.shape[dims[-1]] - 1)
        if all(isinstance(count, int) for count in counts):
            return NotImplemented
        order = list(zip(dims, counts))
        if half and not to_real:
            order.reverse()  # of real numbers first, of which half the results are kept
        for dim, n in order:
            is_named = not half or dim == dims[-1]
            x = _one(x, n, dim, named if is_named else others, half and is_named, to_real and is_named, sign)
        power = POWERS[norm][inverse]
        for n in counts if power else ():
            count = torch.full((), n, dtype=x.dtype.to_real(), device=x.device)
            x = x / (count.sqrt() if power == -0.5 else count)
        return x

    return along


def _of_one(rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, n=None, dim=-1, norm=None: rule(x, None if n is None else [n], [dim], norm)


def _of_several(rule: Callable[..., Any], own: Any) -> Callable[..., Any]:
    return lambda x, s=None, dim=own, norm=None: rule(x, s, dim, norm)


@contextlib.contextmanager
def open_sizes() -> Iterator[None]:
    """Within the `with`, results of transforms of open sizes lie row by row while torch traces: to find how its own
    would, it takes the example's sizes. For one thread at a time, as all tracing."""
    _meta_registrations._exec_fft = _laid_out
    try:
        yield
    finally:
        _meta_registrations._exec_fft = _torchs_own


def _laid_out(out: Tensor, x: Tensor, sizes: Sequence[Any], dim: Sequence[int], *, forward: bool) -> Tensor:
    if are_known((*x.shape, *sizes)):
        return _torchs_own(out, x, sizes, dim, forward=forward)
    return out.new_empty(sizes)


_torchs_own = _meta_registrations._exec_fft
_NAMES = {  # whether half of the numbers say all, whether the results are real, whether it is scaled as an inverse
    "fft": (False, False, False),
    "ifft": (False, False, True),
    "rfft": (True, False, False),
    "irfft": (True, True, True),
    "hfft": (True, True, False),
    "ihfft": (True, False, True),
}
OPEN_TRANSFORMS = {
    getattr(aten, f"fft_{name}{over}").default: (_of_several(rule, OVER[over]) if over else _of_one(rule))
    for name, rule in ((name, _rule(name, *of)) for name, of in _NAMES.items())
    for over in OVER
}
