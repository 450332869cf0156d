"""Complex tensors, which become two real ones, and Fourier transforms, which become products."""

from __future__ import annotations

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check(function, *args, atol=1e-5, rtol=1e-5):
    """The compiled function gives what torch gives in float64."""
    compiled = kitsune_mlir.compile(Function(function), args)
    found = torch.utils._pytree.tree_leaves(compiled(*args))
    wanted = torch.utils._pytree.tree_leaves(function(*(x.double() if x.is_floating_point() else x for x in args)))
    for mine, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(mine).double(), exact.double(), atol=atol, rtol=rtol)


def rotary(x):
    angles = torch.outer(torch.arange(x.shape[1]).float(), 1 / 10000 ** (torch.arange(0, 8, 2).float() / 8))
    turns = torch.polar(torch.ones_like(angles), angles).to(torch.promote_types(x.dtype, torch.complex64))
    y = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(y * turns[None, :, None]).flatten(3)


def arithmetic(x, y):
    a, b = torch.view_as_complex(x), torch.complex(y, y * 2 + 3)
    results = [a + b, a - b * 2j, (a + 1).conj() * y, a / b, a / 2, y / b, torch.exp(a), 3 - a, -a]
    results += [torch.cat((a, b)).sum(0), torch.stack((a, b), 1)[0], a @ b.mT.conj(), a.mean(-1), y * 1j + a]
    return [torch.view_as_real(z) for z in results] + [a.abs(), b.angle(), a.real + b.imag]


def written(x):
    out = torch.zeros(3, 5, dtype=torch.complex64 if x.dtype == torch.float32 else torch.complex128)
    out[:, 1:3] = torch.fft.fft(x)[:, 1:3]
    return torch.view_as_real(out), torch.fft.irfft(out, n=8)


def pieces(x):
    a = torch.view_as_complex(x)
    low, high = a.split([1, 3], dim=1)
    first, *_, last = a.unbind(-1)
    return [torch.view_as_real(z) for z in (torch.cat((high * 2, low), 1), first * last, *a.chunk(2))]


def test_rotary_positions_of_pairs():
    check(rotary, torch.randn(2, 5, 3, 8))


def test_pieces():
    check(pieces, torch.randn(4, 4, 2))


class Turned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(5).float(), torch.rand(4))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles).conj())
        self.mix = torch.nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))

    def forward(self, x):
        y = torch.view_as_complex(x.reshape(2, 5, 4, 2)) * self.turns
        return torch.view_as_real(y @ self.mix)


def test_weights_of_a_complex_type():
    model, x = Turned(), torch.randn(2, 5, 8)
    compiled = kitsune_mlir.compile(model, (x,))
    torch.testing.assert_close(torch.as_tensor(compiled(x)), model(x).detach(), atol=1e-5, rtol=1e-5)


def test_arithmetic():
    check(arithmetic, torch.randn(3, 4, 2), torch.randn(3, 4))


def test_numbers_that_a_mask_chooses():
    def chosen(x, y):
        a, b = torch.view_as_complex(x), torch.complex(y, y * 2)
        results = [
            torch.where(y > 0, a, b),
            torch.where(y > 0, a, y),
            torch.where(y > 0, 0.5, a),
            a.masked_fill(y > 0, 2),
        ]
        return [torch.view_as_real(z) for z in results]

    check(chosen, torch.randn(3, 4, 2), torch.randn(3, 4))


def test_products_of_matrices():
    def products(x, y):
        a, b = torch.view_as_complex(x), torch.view_as_complex(y)
        many = torch.einsum("bixy,ioxy->boxy", a, b)
        return [torch.view_as_real(z) for z in (many, a @ b.mT, a[0, 0] @ b[0, 0].mT)]

    check(products, torch.randn(3, 3, 4, 5, 2), torch.randn(3, 3, 4, 5, 2))


def test_parts_of_a_result_are_written():
    check(written, torch.randn(3, 4))


@pytest.mark.parametrize("size", [1, 2, 7, 12])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_transforms_of_one_dimension(size, norm):
    def all_of_them(x):
        half, whole = torch.fft.rfft(x, norm=norm), torch.fft.fft(x, dim=1, norm=norm)
        back = torch.fft.ifft(whole, dim=1, norm=norm)
        shorter = torch.fft.irfft(half, n=size, norm=norm)
        return *map(torch.view_as_real, (half, whole, back)), shorter

    check(all_of_them, torch.randn(3, 2, size))


def test_transforms_of_other_lengths():
    def fitted(x):
        whole = torch.fft.fft(x, n=5, dim=0)
        return torch.view_as_real(whole), torch.fft.irfft(torch.fft.rfft(x, n=14), n=9), torch.fft.irfft(whole)

    check(fitted, torch.randn(4, 6))


def test_transforms_of_several_dimensions():
    def planes(x):
        half = torch.fft.rfft2(x)
        results = [
            half,
            torch.fft.fft2(x),
            torch.fft.ifftn(half),
            torch.fft.rfftn(x, dim=(0, 1)),
            torch.fft.fftn(x, s=(3, 9)),
        ]
        return *map(torch.view_as_real, results), torch.fft.irfft2(half, s=(5, 7)), torch.fft.irfftn(half, s=(3, 5, 7))

    check(planes, torch.randn(3, 5, 7))


def test_transforms_that_torch_has_taken_apart():
    def planes(x):
        half, whole = torch.fft.rfft2(x, norm="ortho"), torch.fft.fft2(x, norm="forward")
        results = half, whole, torch.fft.ifftn(half), torch.fft.fft(half, norm="forward")
        return *map(torch.view_as_real, results), torch.fft.irfft2(half, s=(5, 7)), torch.fft.irfft(whole, norm="ortho")

    x = torch.randn(3, 5, 7)
    apart = torch.export.export(Function(planes), (x,)).run_decompositions()
    assert torch.ops.aten._fft_r2c.default in {node.target for node in apart.graph.nodes}
    for found, exact in zip(kitsune_mlir.compile(apart)(x), planes(x.double()), strict=True):
        torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [513, 521, 1024])
def test_many_numbers_are_transformed_in_two_steps(size):
    def long(x):
        half = torch.fft.rfft(x)
        return torch.view_as_real(half), torch.view_as_real(torch.fft.fft(x, dim=1)), torch.fft.irfft(half, n=size)

    check(long, torch.randn(2, size), atol=1e-4)


def test_frequencies():
    fft = torch.fft
    check(lambda x: [x[0] * f(size, 0.1) for f in (fft.fftfreq, fft.rfftfreq) for size in (1, 4, 5)], torch.ones(2, 1))


def test_a_long_convolution():
    def convolved(x, kernel):
        n = 2 * x.shape[-1]
        return torch.fft.irfft(torch.fft.rfft(x, n=n) * torch.fft.rfft(kernel, n=n), n=n)[..., : x.shape[-1]]

    check(convolved, torch.randn(2, 3, 200), torch.randn(3, 200), atol=1e-4)


def test_a_spectrogram():
    def spectrogram(x):
        window = torch.hann_window(16, dtype=x.dtype)
        return torch.stft(x, 16, 4, window=window, return_complex=True).abs().square()

    check(spectrogram, torch.randn(2, 64))


def test_transforms_of_more_numbers_than_there_are():
    size = torch.export.Dim("size", min=2, max=16)
    shapes = {"args": ({0: size},)}

    def longer(x):
        return torch.fft.fft(x, n=24).real, torch.view_as_real(torch.fft.rfft(x, n=24))

    compiled = kitsune_mlir.compile(Function(longer), (torch.randn(8),), dynamic_shapes=shapes)
    for count in (2, 8, 16):
        x = torch.randn(count)
        for found, wanted in zip(compiled(x), longer(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_two_open_sizes_stay_open(target):
    """Where numbers are made longer or cut, and complex ones padded, the example's sizes are not those of the call."""

    def of(x):
        padded = torch.nn.functional.pad(torch.complex(x, x * 2), (1, 2))
        return torch.fft.rfft(x, n=24).abs(), torch.view_as_real(padded)

    shapes = {"args": ({0: torch.export.Dim("rows", min=1), 1: torch.export.Dim("size", min=1, max=23)},)}
    compiled = kitsune_mlir.compile(Function(of), (torch.randn(3, 7),), target=target, dynamic_shapes=shapes)
    run = compiled if target == "cpu" else Simulation(compiled, seed=1)
    for sizes in ((3, 7), (1, 5), (5, 9)):
        x = torch.randn(sizes)
        for found, wanted in zip(run(x), of(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)


def functions(x, y):
    """Functions, comparisons, sums by index, and products with a bias, of numbers that lie otherwise than torch's."""
    a, b = torch.view_as_complex(x), torch.complex(y, y * 2 + 3)
    turned = torch.einsum("bij,bxjy->bxiy", a.view(3, 2, 2), b.view(3, 1, 2, 2)).reshape(3, 4)
    results = [a.log(), b.sqrt(), 1 / b, a**3, b**0.5, a.sin(), b.cos(), a.tanh(), a.cumsum(1), a.cumprod(0), turned]
    results += [a.index_put((torch.tensor([0, 2]),), b[:2]), torch.zeros_like(a).scatter_add(1, (y > 0).long(), b)]
    results += [a.unfold(1, 2, 1), torch.addmm(a[:, :3], a, b.T), torch.eye(3, dtype=a.dtype) @ a]
    results.append(torch.fft.fftshift(torch.fft.fft2(a)))
    return [torch.view_as_real(z) for z in results] + [a.norm(dim=1), a == b, a != a, torch.isfinite(a)]


def test_functions():
    check(functions, torch.randn(3, 4, 2), torch.randn(3, 4), atol=1e-4)


@pytest.mark.parametrize("length", [None, 30])
def test_inverse_of_short_time_transforms(length):
    def there_and_back(x):
        window = torch.hann_window(12, dtype=x.dtype)
        spectra = torch.stft(x, 16, 4, 12, window, return_complex=True)
        return torch.istft(spectra * (spectra.abs() > 0.5), 16, 4, 12, window, length=length)

    check(there_and_back, torch.randn(2, 36))
