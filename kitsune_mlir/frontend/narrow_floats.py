"""Numbers of 8 bits with an exponent, as weights and their scales have them: their bits, as uint8.

    %w : f8E4M3FN                            %w : uint8
    %v = aten._to_copy(%w, bf16)      =>     %h = bits(%w << 7, f16); %v = aten._to_copy(%h * 256, bf16)

They are read as 8 bits, and a product of them is one of bf16, which has all of them: see `integer_products.py`. What
becomes such a number is rounded to the nearest one; to what this torch says where it is too large, which is the largest
number, NaN or an infinity."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from .own_operators import BITS

aten, prims = torch.ops.aten, torch.ops.prims


class _Form(NamedTuple):
    """Where a number's bits are in one of f16, and by what that is then multiplied; the bits of NaN; and, of f32, the
    least number that is too large, the greatest power of two below which are those of the least exponent, what is added
    to round these, how many bits of the fraction are left out, and how much less its exponents are."""

    moved: int
    scale: float
    nan: int
    largest: int
    smallest: int
    rounding: int
    cut: int
    less: int


_FORMS = {
    torch.float8_e4m3fn: _Form(7, 256.0, 0x7F, 1087 << 20, 121 << 23, 141 << 23, 20, 120 << 23),
    torch.float8_e5m2: _Form(8, 1.0, 0x7F, 143 << 23, 113 << 23, 134 << 23, 21, 112 << 23),
}
_BEYOND = {kind: int(torch.tensor(torch.inf).to(kind).view(torch.uint8)) for kind in _FORMS}  # of what is too large
POWERS = torch.float8_e8m0fnu  # of two, as scales of blocks are
KINDS = (*_FORMS, POWERS)


def convert(x: Tensor | float, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """`x` as numbers of another type, if one of both has 8 bits. torch.func converts numbers of Python so, too."""
    if not isinstance(x, Tensor) or dtype is None or dtype == x.dtype or not (x.dtype in KINDS or dtype in _FORMS):
        return NotImplemented
    wide = _decoded(x) if x.dtype in KINDS else x
    return _encoded(wide, dtype) if dtype in _FORMS else wide.to(dtype)


def scaled_product(
    x: Tensor,
    y: Tensor,
    scale_x: Tensor,
    scale_y: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    """[m, k] and [k, n] of 8 bits -> [m, n]; a scale is of all, or one of each row of x and each column of y."""
    single = scale_x.numel() == 1 and scale_y.numel() == 1
    rows = scale_x.dtype == torch.float32 and scale_x.dim() == 2 and scale_x.shape[1] == 1 and scale_y.shape[0] == 1
    if scale_result is not None or not (single or rows) or x.dtype not in _FORMS or y.dtype not in _FORMS:
        return NotImplemented
    if single:
        scale_x, scale_y = scale_x.reshape(()), scale_y.reshape(())
    found = _decoded(x).bfloat16().float() @ _decoded(y).bfloat16().float() * scale_x * scale_y
    if bias is not None:
        found = found + bias.float()
    return found.to(x.dtype if out_dtype is None else out_dtype)


def view(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The same bits as numbers of another type of 8 bits, of which one is of this file."""
    if x.dtype not in KINDS and dtype in KINDS:
        return BITS(x.view(torch.uint8), dtype)
    bits = BITS(x, torch.uint8)
    return BITS(bits, dtype) if dtype in KINDS else bits.view(dtype)


def as_bits(graph: Graph) -> None:
    """Makes what is left of such numbers in a functional graph uint8: operators that move them, and their tensors."""
    for node in graph.find_nodes(op="call_function", target=BITS):
        if node.args[1] in KINDS or are_held_by(node.args[0]):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    for node in graph.nodes:
        if not are_held_by(node):
            continue
        node.meta.pop("tensor_meta", None)  # it says what the value was, and torch-mlir asks it first
        value = node.meta["val"]
        with detect_fake_mode((value,)) or contextlib.nullcontext():
            node.meta["val"] = value.new_empty(value.shape, dtype=torch.uint8)
        node.kwargs = map_aggregate(node.kwargs, lambda leaf: torch.uint8 if leaf in KINDS else leaf)


def are_held_by(node: Any) -> bool:
    """Whether a value of a graph is a tensor of such numbers."""
    return _kind(node) in KINDS


def _kind(node: Any) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.dtype if isinstance(value, Tensor) else None


def _decoded(x: Tensor) -> Tensor:
    """f16, or f32 of powers."""
    bits = BITS(x, torch.uint8).to(torch.int32)
    if x.dtype == POWERS:
        least = torch.where(bits == 0, 1 << 22, bits << 23)
        return BITS(torch.where(bits == 255, 0x7FC00000, least), torch.float32)
    form = _FORMS[x.dtype]
    size = bits & 0x7F
    wide = BITS((((bits & 0x80) << 8) | (size << form.moved)).to(torch.int16), torch.float16)
    return torch.where(size == form.nan, torch.nan, wide * form.scale) if form.scale != 1.0 else wide


def _encoded(x: Tensor, kind: torch.dtype) -> Tensor:
    form = _FORMS[kind]
    bits = BITS(x.float(), torch.int32)
    size, sign = bits & 0x7FFFFFFF, (bits >> 24) & 0x80
    odd = (size >> form.cut) & 1
    normal = (size - form.less + (1 << form.cut - 1) - 1 + odd) >> form.cut
    small = BITS(BITS(size, torch.float32) + BITS(torch.full_like(size, form.rounding), torch.float32), torch.int32)
    found = torch.where(size < form.smallest, small - form.rounding, normal)
    beyond = _BEYOND[kind]
    found = torch.where(size >= form.largest, beyond, found).clamp(max=beyond)
    found = torch.where(size > 255 << 23, 0x7F, found)
    return BITS((found | sign).to(torch.uint8), kind)


NARROW_FLOATS = {
    aten._to_copy.default: convert,
    prims.convert_element_type.default: lambda x, dtype: convert(x, dtype=dtype),
    aten._scaled_mm.default: scaled_product,
}
