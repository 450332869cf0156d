"""Operators as small models with inputs that are the same in every run: see gpu_operators.py."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TYPES = (*FLOATS, *WHOLE, torch.bool)
# Largest difference from the result in float64, relative to the element and to the tensor's root mean square.
BOUNDS = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A model and its inputs. With `dynamic`, the first size of the inputs of these numbers is dynamic, and `others`
    are inputs of other sizes. `exact` results are torch's for the inputs as they are, not for float64."""

    function: Callable[..., Any]
    args: Tensors
    exact: bool = False
    looser: float = 1.0  # times the bound
    dynamic: tuple[int, ...] = ()
    others: tuple[Tensors, ...] = ()

    def model(self) -> torch.nn.Module:
        """What is compiled."""
        return _Model(self.function)

    def dynamic_shapes(self) -> Any:
        """As torch.export takes them."""
        if not self.dynamic:
            return None
        rows = torch.export.Dim("rows", min=0, max=4096)
        return (tuple({0: rows} if i in self.dynamic else None for i in range(len(self.args))),)

    def wanted(self, args: Tensors) -> list[torch.Tensor]:
        """torch's results in float64, in shapes and types of what it makes of the inputs."""
        with torch.no_grad():
            plain = listed(self.function(*args))
            if self.exact:
                return plain
            double = [x.double() if x.is_floating_point() else x for x in args]
            return [
                b if a.is_floating_point() else a for a, b in zip(plain, listed(self.function(*double)), strict=True)
            ]

    def types(self) -> list[torch.dtype]:
        """The element types of the results."""
        with torch.no_grad():
            return [value.dtype for value in listed(self.function(*self.args))]


class _Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def listed(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def wrong(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype, looser: float = 1.0) -> str:
    """How a result differs from what is wanted of it; empty where it does not. NaN and infinities must be where they
    are wanted; integers must be equal."""
    if found.dtype != dtype or found.shape != wanted.shape:
        return f"{found.dtype} {list(found.shape)}, wanted {dtype} {list(wanted.shape)}"
    if not dtype.is_floating_point:
        count = int((found != wanted).sum())
        return f"{count} of {found.numel()} elements differ" if count else ""
    a, b = found.double(), wanted.to(dtype).double() if wanted.dtype == torch.bool else wanted.double()
    finite = b.isfinite()
    special = torch.where(finite, a.isfinite(), (a == b) | (a.isnan() & b.isnan()))
    if not special.all():
        return f"{int((~special).sum())} of {found.numel()} elements are NaN or infinite, or should be"
    a, b = a[finite], b[finite]
    if not a.numel():
        return ""
    error = ((a - b).abs() / (b.abs() + b.square().mean().sqrt()).clamp_min(1e-30)).max().item()
    return f"relative error {error:.1e}" if error > BOUNDS[dtype] * looser else ""


CASES: dict[str, Case] = {}


def case(name: str, function: Callable[..., Any], *args: torch.Tensor, **options: Any) -> None:
    assert name not in CASES, name
    CASES[name] = Case(function, args, **options)


def numbers(name: str, shape: Sequence[int], dtype: torch.dtype, low: float, high: float) -> torch.Tensor:
    """Uniform between two bounds, whole for integers, within what a type holds; the same for the same name."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {list(shape)}".encode()))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.4
    if dtype == torch.uint8 and low < 0:
        low, high = 0, 250  # beyond what it would be with a sign
    if not dtype.is_floating_point:
        low, high = max(low, torch.iinfo(dtype).min), min(high, torch.iinfo(dtype).max)
        return torch.randint(math.ceil(low), math.floor(high) + 1, shape, generator=generator, dtype=dtype)
    return (torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype)


def reals(*shape: int, low: float = -2.0, high: float = 2.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return numbers("f", shape, dtype, low, high)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return numbers("i", shape, dtype, low, high)


def each(
    name: str,
    function: Callable[..., Any],
    types: Sequence[torch.dtype],
    *ranges: tuple[float, float],
    shape: Sequence[int] = (7, 37),
    **options: Any,
) -> None:
    """A case of one tensor for each of `ranges` in each of `types`: results are of one type after the other."""
    count = len(ranges)
    args = [numbers(f"{name} {n}", shape, dtype, *ranges[n]) for dtype in types for n in range(count)]

    def every(*args: torch.Tensor) -> Tensors:
        found = (listed(function(*args[i : i + count])) for i in range(0, len(args), count))
        return tuple(value for values in found for value in values)

    case(name, every, *args, **options)
