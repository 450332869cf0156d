"""Gradients of attention, which AOTAutograd leaves whole as it does attention itself.

The weights are computed again, of the scores and the log of each row's sum of exponentials, and not kept: between the
passes there are queries, keys, values, the results and a number a row (FlashAttention, arXiv 2205.14135, algorithm 4).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .attention import masked_scores
from .working import working

aten = torch.ops.aten
_LOG2_E = 1 / math.log(2)


def _gradients(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sums: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Those of queries [..., heads, T, D], keys and values [..., heads / group, S, D], and scores [..., heads, T, S],
    the last in the type that they are computed in."""
    *_, heads, length, width = query.shape
    cached, out_width = key.shape[-2], value.shape[-1]
    kept, batch = key.shape[-3], math.prod(query.shape[:-2])
    scale = 1 / math.sqrt(width) if scale is None else scale
    keys, values = (_for_heads(of, heads).reshape(batch, cached, of.shape[-1]) for of in (key, value))
    rows, grads = query.reshape(batch, length, width), grad.reshape(batch, length, out_width)
    # As powers of two, which are one instruction; products are scaled rather than what they are of, which is more.
    scores = masked_scores(query, rows, keys, None if mask is None else _in_bits(mask), is_causal, scale * _LOG2_E)
    in_bits = (log_sums * _LOG2_E).clamp(min=torch.finfo(log_sums.dtype).min)  # of a row that is masked throughout
    weights = (scores - in_bits.reshape(batch, length, 1)).exp2()
    products = _summed_products(grad, out).reshape(batch, length, 1)
    of_scores = weights * (working(torch.bmm(grads, values.transpose(1, 2))) - products)
    of_products = of_scores.to(query.dtype)
    of_values = torch.bmm(weights.to(value.dtype).transpose(1, 2), grads)
    of_keys = torch.bmm(of_products.transpose(1, 2), rows) * scale
    of_queries = torch.bmm(of_products, keys) * scale
    of_heads = (of.view(*query.shape[:-2], *of.shape[1:]) for of in (of_keys, of_values))
    given = of_scores.view(*query.shape[:-1], cached)
    return of_queries.view(query.shape), *(_summed(of, kept) for of in of_heads), given


def _in_bits(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else working(mask) * _LOG2_E


def _summed_products(a: Tensor, b: Tensor) -> Tensor:
    """The sums along rows of products of two tensors' elements. Where they lie in another order than that of their
    dimensions, as heads do in a layer's results, it is done there: the sums, which are few, are moved instead."""
    outer = range(a.dim() - 1)
    order = sorted(outer, key=lambda d: -b.stride(d) if isinstance(b.stride(d), int) else d)
    back = [order.index(d) for d in outer]
    a, b = (working(of.permute(*order, -1)) for of in (a, b))
    return (a * b).sum(-1).permute(back)


def _for_heads(kept: Tensor, heads: int) -> Tensor:
    """Keys or values [..., heads / group, S, D] for each of the queries' heads."""
    group = heads // kept.shape[-3]
    if group == 1:
        return kept
    each = kept.unsqueeze(-3).expand(*kept.shape[:-2], group, *kept.shape[-2:])
    return each.reshape(*kept.shape[:-3], heads, *kept.shape[-2:])


def _summed(of_heads: Tensor, kept: int) -> Tensor:
    """The gradients of so many heads of keys or values, from those of all the queries' heads."""
    if of_heads.shape[-3] == kept:
        return of_heads
    return working(of_heads.unflatten(-3, (kept, -1))).sum(-3).to(of_heads.dtype)


def for_cpu(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sums: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    return _gradients(grad, query, key, value, out, log_sums, attn_mask, is_causal, scale)[:3]


def flash(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sums: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    *random: Tensor,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    return _gradients(grad, query, key, value, out, log_sums, None, is_causal, scale)[:3]


def cudnn(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sums: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: Any,
    max_k: Any,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    return _gradients(grad, query, key, value, out, log_sums, attn_bias, is_causal, scale)[:3]


def efficient(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    log_sums: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    wanted: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """`log_sums` is padded to whole 32 rows, as `attention.efficient_attention` has it."""
    log_sums = log_sums[..., : query.shape[-2]]
    *found, scores = _gradients(grad, query, key, value, out, log_sums, attn_bias, is_causal, scale)
    of_bias = None
    if wanted[3] and attn_bias is not None:
        of_bias = scores.sum_to_size(attn_bias.shape).to(attn_bias.dtype)
    return *found, of_bias


ATTENTION_GRADIENTS = {
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: for_cpu,
    aten._scaled_dot_product_flash_attention_backward.default: flash,
    aten._scaled_dot_product_cudnn_attention_backward.default: cudnn,
    aten._scaled_dot_product_efficient_attention_backward.default: efficient,
}
