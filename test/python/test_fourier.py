"""Discrete Fourier transforms: which there are, and what the code of both targets computes, beside torch's in f64."""

from __future__ import annotations

from math import prod

import pytest
import torch
from functions import Function, computed, on_both
from hypothesis import given
from hypothesis import strategies as st

import kitsune_mlir
from kitsune_mlir.frontend.complex_numbers import is_transform
from kitsune_mlir.planning.fourier import MOST_PRIME, fits, most, radices
from kitsune_mlir.tools.gpusim import Simulation

fft = torch.fft


@given(st.integers(2, 6000))
def test_radices_make_the_size(size: int) -> None:
    """They do where its primes are small, and are few: no fewer passes of up to 16 numbers would do."""
    found, rest = radices(size), size
    for prime in range(2, MOST_PRIME + 1):
        while rest % prime == 0:
            rest //= prime
    assert (found is not None) == (rest == 1)
    if found is not None:
        assert prod(found) == size and max(found) <= 16 and 16 ** (len(found) - 1) <= size * 8 ** (len(found) - 1)
    assert fits(size, 4, False) == (found is not None and size <= most(4, False))


def _real(z: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(z.resolve_conj())


def _every(size: int, dim: int):
    """All kinds of transforms of so many numbers."""

    def of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        half, whole = fft.rfft(x, n=size, dim=dim), fft.fft(x, n=size, dim=dim)
        back = fft.ihfft(x, n=size, dim=dim)
        results = half, whole, fft.ifft(whole, dim=dim), back
        reals = fft.irfft(half, n=size, dim=dim), fft.hfft(back, n=size, dim=dim)
        return *map(_real, results), *reals

    return of


def _check(of, x: torch.Tensor, **options) -> None:
    for run in on_both(Function(of), (x,), **options):
        for own, wanted in zip(run(x), of(x.double()), strict=True):
            own = torch.as_tensor(own)
            assert own.dtype == x.dtype and own.shape == wanted.shape
            bound = (1e-6 if x.dtype == torch.float32 else 1e-14) * wanted.abs().max()
            assert (own.double() - wanted).abs().max() <= bound


@pytest.mark.parametrize(
    "shape, dim, size",
    [
        ((3, 2), 1, 2),  # two numbers, and one given
        ((3, 11), 1, 15),  # an odd count, made longer
        ((2, 30, 5), 1, 24),  # cut, and apart in memory
        ((5, 26), -1, 26),
        ((2, 105), 1, 105),
        ((37, 16), 0, 16),  # more than are transformed, along the first dimension
        ((2, 500), 1, 1000),
    ],
)
def test_transforms(shape: tuple[int, ...], dim: int, size: int, request: pytest.FixtureRequest) -> None:
    if size < 100:  # ptxas is asked of the larger ones
        request.getfixturevalue("unassembled")
    _check(_every(size, dim), torch.randn(shape))


def test_open_batches_in_f64() -> None:
    open_ = {"args": ({0: torch.export.Dim("rows", min=1)},)}
    _check(_every(24, 1), torch.randn(5, 24, dtype=torch.float64), dynamic_shapes=open_)


def test_longer_ones_are_two() -> None:
    """A transform of more numbers than a block holds is taken apart; parts of one with a large prime are products."""
    _check(lambda x: (_real(fft.rfft(x)), fft.irfft(fft.rfft(x), n=x.shape[-1])), torch.randn(1, 16384))
    _check(lambda x: (_real(fft.fft(x)), fft.irfft(fft.rfft(x))), torch.randn(1, 8192))  # real ones are one
    _check(lambda x: (_real(fft.fft(x)),), torch.randn(3, 17 * 41))


def test_a_row_with_nan_spoils_no_other() -> None:
    x = torch.randn(4, 32)
    x[1, 7] = torch.nan
    for run in on_both(Function(lambda x: fft.irfft(fft.rfft(x))), (x,)):
        found = torch.as_tensor(run(x))
        assert found[1].isnan().all() and found[[0, 2, 3]].isfinite().all()


def test_convolutions_by_transforms() -> None:
    """A long convolution as sequence models have it: one kernel a transform, none for the zeros behind the sequence,
    for the products of numbers, or for what is added behind."""

    def convolve(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        n = 2 * x.shape[-1]
        y = fft.irfft(fft.rfft(x, n=n) * fft.rfft(kernel, n=n), n=n)[..., : x.shape[-1]]
        return torch.relu(y + kernel[:, :1])

    x, kernel = torch.randn(2, 3, 64), torch.randn(3, 64)
    compiled = kitsune_mlir.compile(Function(convolve), (x, kernel), target="sm_90a")
    assert [launch["computes"] for launch in compiled.plan["launches"]] == ["fourier"] * 3
    found = torch.as_tensor(Simulation(compiled, seed=1)(x, kernel))
    torch.testing.assert_close(found, convolve(x, kernel), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 2])
def test_operators_around_transforms_are_in_their_kernels(dim: int) -> None:
    """What makes all that a transform is given, and what takes all that it gives, but not in another order."""

    def of(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = fft.fft(torch.complex(x * y, x - y), dim=dim)
        half = fft.rfft(torch.tanh(x), dim=dim).real.transpose(1, 2)
        return both.abs(), half + z[: half.shape[1], : half.shape[2]]

    x, y, z = torch.randn(2, 24, 12), torch.randn(12), torch.randn(24, 24)
    compiled = kitsune_mlir.compile(Function(of), (x, y, z), target="sm_90a")
    assert sorted(computed(compiled)) == ["elementwise", "fourier", "fourier"]
    for found, wanted in zip(Simulation(compiled, seed=1)(x, y, z), of(x, y, z), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["irfft", "hfft", "irfft2", "hfft2", "irfftn", "hfftn", "ihfft2", "ihfftn"])
def test_of_real_spectra(name: str) -> None:
    """What is transformed to real numbers may be real, too, as cepstra are."""

    def function(x: torch.Tensor) -> torch.Tensor:
        found = getattr(fft, name)(x)
        return _real(found) if found.is_complex() else found

    x = torch.randn(3, 5, 9)
    for run in on_both(Function(function), (x,)):
        torch.testing.assert_close(run(x).double(), function(x.double()), atol=1e-5, rtol=1e-5)


def test_every_name_is_known() -> None:
    assert all(is_transform(getattr(torch.ops.aten, f"fft_{name}")) for name in ("hfft", "ihfft", "fft2", "irfftn"))
