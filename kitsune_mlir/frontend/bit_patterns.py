"""What is said of numbers by their bits: other types of as many bits, neighbours, exponents and fractions."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import narrow_floats
from .own_operators import BITS

aten = torch.ops.aten


class _Form(NamedTuple):
    """A type of real numbers: integers of as many bits, and the bits of its fraction and of its exponent."""

    integers: torch.dtype
    fraction: int
    exponent: int


_FORMS = {torch.float32: _Form(torch.int32, 23, 8), torch.float64: _Form(torch.int64, 52, 11)}
_ALIKE = ((torch.float32, torch.int32), (torch.float64, torch.int64), (torch.float16, torch.bfloat16, torch.int16))


def view_as_type(x: Tensor, dtype: torch.dtype) -> Any:
    """The same bits as numbers of another type, of as many bits each."""
    if x.dtype == dtype:
        return x.clone()
    if (x.dtype in narrow_floats.KINDS or dtype in narrow_floats.KINDS) and x.itemsize == dtype.itemsize:
        return narrow_floats.view(x, dtype)
    return BITS(x, dtype) if any(x.dtype in kinds and dtype in kinds for kinds in _ALIKE) else NotImplemented


def next_after(x: Tensor, y: Tensor) -> Any:
    """The number beside x on the way to y: one more, or one less, as bits, which grow with the number's size."""
    form = _FORMS.get(torch.result_type(x, y))
    if form is None:
        return NotImplemented
    kind = torch.result_type(x, y)
    x, y = torch.broadcast_tensors(x.to(kind), y.to(kind))
    bits = BITS(x, form.integers)
    least = torch.ones_like(bits)
    beside = torch.where((y > x) == (x > 0), bits + least, bits - least)
    smallest = torch.where(y > 0, least, least + torch.iinfo(form.integers).min)
    found = BITS(torch.where(x == 0, smallest, beside), kind)
    return torch.where((x != x) | (y != y), torch.nan, torch.where(x == y, y, found))


def fraction_and_exponent(x: Tensor) -> Any:
    """A fraction between 1/2 and 1 and a power of two, whose product is x. Numbers too small for that form are made
    larger first."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    form = _FORMS.get(wide.dtype)
    if form is None:
        return NotImplemented
    places, highest = form.fraction, (1 << form.exponent) - 1
    tiny = wide.abs() < torch.finfo(wide.dtype).tiny
    larger = torch.where(tiny, wide * 2.0 ** (places + 1), wide)
    bits = BITS(larger, form.integers)
    raised = (bits >> places) & highest
    half = highest // 2 - 1  # the exponent of what is between 1/2 and 1
    fraction = BITS((bits & ~(highest << places)) | (half << places), wide.dtype)
    whole = (larger == 0) | (raised == highest)
    exponent = raised - half - torch.where(tiny, places + 1, 0)
    exponent = torch.where(whole, torch.zeros_like(exponent), exponent)
    return torch.where(whole, wide, fraction).to(x.dtype), exponent.to(torch.int32)


BIT_PATTERNS = {
    aten.view.dtype: view_as_type,
    aten.nextafter.default: next_after,
    aten.frexp.Tensor: fraction_and_exponent,
}
