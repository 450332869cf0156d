"""Windows of signals, such as spectrograms have: numbers of known places."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _of_cosines(*weights: float) -> Callable[[Tensor], Tensor]:
    """A window as weights of cos(2 pi k t), at places t from 0 to 1."""
    return lambda t: sum((w * (2 * math.pi * k * t).cos() for k, w in enumerate(weights)), torch.zeros_like(t))


def _bartlett(t: Tensor) -> Tensor:
    return 1 - (2 * t - 1).abs()


def _kaiser(beta: float) -> Callable[[Tensor], Tensor]:
    def window(t: Tensor) -> Tensor:
        inside = (1 - (2 * t - 1).square()).clamp(min=0).sqrt()
        return torch.special.i0(beta * inside) / torch.special.i0(torch.full_like(t, beta))

    return window


def _rule(make: Callable[..., Callable[[Tensor], Tensor]]) -> Callable[..., Any]:
    """A rule for windows whose numbers at places from 0 to 1 `make` gives, for what torch's arguments say of them."""

    def rule(length: Any, periodic: bool = True, *args: float, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        kind = dtype or torch.get_default_dtype()
        if not isinstance(length, int) or not kind.is_floating_point:
            return NotImplemented
        if length < 2:
            return torch.ones(length, dtype=kind, device=device)
        wide = kind if kind == torch.float64 else torch.float32
        places = torch.arange(length, dtype=wide, device=device) * (1 / (length if periodic else length - 1))
        return make(*args)(places).to(kind)

    return rule


_hann = _rule(lambda: _of_cosines(0.5, -0.5))
_hamming = _rule(lambda alpha=0.54, beta=0.46: _of_cosines(alpha, -beta))
_kaisers = _rule(lambda beta=12.0: _kaiser(beta))
_blackman = _rule(lambda: _of_cosines(0.42, -0.5, 0.08))
_bartletts = _rule(lambda: _bartlett)

SIGNAL_WINDOWS = {
    aten.hann_window.default: _hann,
    aten.hann_window.periodic: _hann,
    aten.hamming_window.default: _hamming,
    aten.hamming_window.periodic: _hamming,
    aten.hamming_window.periodic_alpha: _hamming,
    aten.hamming_window.periodic_alpha_beta: _hamming,
    aten.blackman_window.default: _blackman,
    aten.blackman_window.periodic: _blackman,
    aten.bartlett_window.default: _bartletts,
    aten.bartlett_window.periodic: _bartletts,
    aten.kaiser_window.default: _kaisers,
    aten.kaiser_window.periodic: _kaisers,
    aten.kaiser_window.beta: _kaisers,
}
