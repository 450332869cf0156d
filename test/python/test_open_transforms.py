"""Fourier transforms of open sizes: of even and odd, few and many numbers, by a matrix and by a chirp."""

import pytest
import torch
from functions import OfOne, on_both
from torch.export import Dim

pytestmark = pytest.mark.usefixtures("unassembled")
fft = torch.fft
HANN = torch.hann_window(12)


def filtered(x):
    """Numbers that are filtered by a few of the lowest frequencies, as Fourier layers are."""
    spectrum = fft.rfft(x)
    kept = torch.zeros_like(spectrum)
    kept[:, :4] = spectrum[:, :4] * torch.complex(torch.arange(4.0), torch.ones(4))
    return fft.irfft(kept, n=x.shape[-1]) + fft.rfftfreq(x.shape[-1]).sum()


def windows(x):
    """Short-time transforms, and the signal of what is left of them."""
    spectra = torch.stft(x, 12, 3, window=HANN.to(x.dtype), return_complex=True)
    return spectra.abs(), torch.istft(spectra * 0.5, 12, 3, window=HANN.to(x.dtype), length=x.shape[-1])


ONE = {
    "complex": lambda x: fft.ifft(fft.fft(x, norm="ortho") * fft.fftfreq(x.shape[-1])).imag,
    "of Hermitian ones": lambda x: fft.hfft(fft.ihfft(x), n=x.shape[-1]),
    "longer": lambda x: fft.irfft(fft.rfft(x, n=2 * x.shape[-1]).abs().square(), norm="ortho"),
    "shifted": lambda x: fft.fftshift(fft.fft(x)).real,
    "filtered": filtered,
}


def check(function, example, others, shapes):
    for run in on_both(OfOne(function), (example,), dynamic_shapes={"x": shapes}):
        for x in others:
            found, wanted = run(x), function(x.double())
            pairs = zip(found, wanted) if isinstance(wanted, tuple) else [(found, wanted)]
            for own, exact in pairs:
                assert (torch.as_tensor(own).double() - exact).norm() <= 2e-6 * exact.norm()


@pytest.mark.parametrize(
    "name, most", [*((name, 64) for name in ONE), ("complex", 600), ("filtered", 600), ("filtered", None)]
)
def test_lines(name, most):
    shapes = {0: Dim("batch", min=1, max=99), 1: Dim("count", min=8, max=most)}
    check(ONE[name], torch.randn(2, 20), [torch.randn(3, 33), torch.randn(1, 64)], shapes)


def test_windows():
    check(windows, torch.randn(2, 60), [torch.randn(2, 75), torch.randn(2, 44)], {1: Dim("samples", min=20, max=900)})


def test_images():
    def mixed(x):
        return fft.irfft2(fft.rfft2(x, norm="ortho") * 0.5, s=x.shape[-2:], norm="ortho"), fft.fftn(x, dim=(2, 1)).real

    shapes = {1: Dim("height", min=8, max=64), 2: Dim("width", min=8, max=64)}
    check(mixed, torch.randn(2, 12, 20), [torch.randn(2, 15, 11), torch.randn(2, 8, 24)], shapes)
