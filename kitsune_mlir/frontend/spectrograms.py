"""Short-time Fourier transforms and their inverse, by windows that overlap, and shifts of spectra."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten


def _stft(
    x: Tensor, n_fft: int, hop: int | None = None, length: int | None = None, window: Tensor | None = None, *rest: Any
) -> Tensor:
    """Windows that overlap, and the Fourier transform of each."""
    return torch._refs.stft(x, n_fft, hop, length, window, False, "reflect", *rest)


def _overlapped(windows: Tensor, hop: int) -> Tensor:
    """Windows beside each other, as columns, added up where they overlap: steps of `hop` samples, of which all windows'
    first are one signal, their second ones another that begins a step later, and so on."""
    count = -(-windows.shape[1] // hop)
    steps = F.pad(windows, (0, 0, 0, count * hop - windows.shape[1])).unflatten(1, (count, hop))
    lines = steps.permute(1, 0, 3, 2).flatten(2)
    return sum(F.pad(line, (n * hop, (count - 1 - n) * hop)) for n, line in enumerate(lines.unbind(0)))


def signal_of_windows(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """Each spectrum's samples by its window, added up where they overlap, and divided by the sum of the squared
    windows there."""
    if onesided is False or return_complex:
        return NotImplemented
    hop, size = hop_length or n_fft // 4, win_length or n_fft
    kind = x.dtype.to_real()
    window = torch.ones(size, dtype=kind, device=x.device) if window is None else window
    window = F.pad(window, ((n_fft - size) // 2, n_fft - size - (n_fft - size) // 2))
    spectra = x if x.dim() == 3 else x[None]
    samples = torch.fft.irfft(spectra, n=n_fft, dim=1, norm="ortho" if normalized else "backward")
    frames = samples.shape[-1]
    total, first = n_fft + hop * (frames - 1), n_fft // 2 if center else 0

    def added(windows: Tensor) -> Tensor:
        if isinstance(frames, int):
            whole = F.fold(windows, (1, total), (1, n_fft), stride=(1, hop)).flatten(1)
        else:
            whole = _overlapped(windows, hop)[:, :total]
        if length is None:
            return whole[:, first : total - first]
        return F.pad(whole, (0, first + length))[:, first : first + length]

    squares = added((window * window).view(1, n_fft, 1).expand(1, n_fft, frames))
    result = added(samples * window.view(1, n_fft, 1))
    result = result / (squares if length is None else torch.where(squares == 0, 1.0, squares))
    return result if x.dim() == 3 else result[0]


SPECTROGRAMS = {
    aten.stft.default: _stft,
    aten.stft.center: torch._refs.stft,
    aten.istft.default: signal_of_windows,
    aten.fft_fftshift.default: torch._refs.fft.fftshift,
    aten.fft_ifftshift.default: torch._refs.fft.ifftshift,
}
