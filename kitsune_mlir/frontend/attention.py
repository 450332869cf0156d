"""Attention as two products with a softmax between them, which carries neither max-with-indices nor the f64 chain of
torch's safe softmax. Grouped-query attention multiplies each key once instead of repeating it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .working import number, working

aten = torch.ops.aten


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """[..., heads, T, D] x [..., heads / group, S, D]: products of three dimensions, rows being group x T."""
    if dropout_p > 0.0 or query.dim() < 3 or query.shape[:-3] != key.shape[:-3]:
        return NotImplemented
    return _attention(query, key, value, attn_mask, is_causal, scale)[0]


def attention_for_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """What AOTAutograd has left of attention; the second result is the log of each row's sum of exponentials.

    torch's own decomposition returns the weights there, which makes gradients wrong.
    """
    if dropout_p > 0.0 or query.shape[:-3] != key.shape[:-3]:
        return NotImplemented
    return _attention(query, key, value, attn_mask, is_causal, scale)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    *_, heads, length, width = query.shape
    cached, out_width = key.shape[-2], value.shape[-1]
    group = heads // key.shape[-3]
    batch = math.prod(query.shape[:-2]) // group
    scale = 1 / math.sqrt(width) if scale is None else scale
    rows = query.reshape(batch, group * length, width)
    scores = torch.bmm(rows, key.reshape(batch, cached, width).transpose(1, 2))
    scores = working(scores) * scale
    if is_causal or mask is not None:
        scores = scores.view(*query.shape[:-1], cached)
        never = number(float("-inf"), scores)
        if is_causal:
            steps, own = torch.arange(cached, device=query.device), torch.arange(length, device=query.device)
            scores = torch.where(steps <= own[:, None], scores, never)
        if mask is not None and mask.dtype == torch.bool:
            scores = torch.where(mask, scores, never)
        elif mask is not None:
            scores = scores + mask
        scores = scores.view(batch, group * length, cached)
    largest = scores.amax(-1, keepdim=True)
    if mask is not None:  # so that a row masked throughout gives zeros, as torch's does
        largest = largest.clamp(min=torch.finfo(largest.dtype).min)
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    if mask is not None:
        total = total.clamp(min=torch.finfo(total.dtype).tiny)
    weights = (weights / total).to(value.dtype)
    out = torch.bmm(weights, value.reshape(batch, cached, out_width)).view(*query.shape[:-1], out_width)
    return out, (largest + total.log()).view(query.shape[:-1])


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    return cudnn_attention(query, key, value, None, False, dropout_p, is_causal, scale=scale)


def cudnn_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """What AOTAutograd has left of attention on a GPU. Results after the second serve torch's backward pass only."""
    if dropout_p > 0.0 or query.shape[:-3] != key.shape[:-3]:
        return NotImplemented
    out, log_sums = _attention(query, key, value, attn_bias, is_causal, scale)
    unused = query.new_empty((0,))
    return out, log_sums, unused, unused, query.shape[-2], key.shape[-2], unused, unused, unused


def efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    results = cudnn_attention(query, key, value, attn_bias, False, dropout_p, is_causal, scale=scale)
    return results if results is NotImplemented else results[:4]


ATTENTION = {
    aten.scaled_dot_product_attention.default: attention,
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention_for_cpu,
    aten._scaled_dot_product_flash_attention.default: flash_attention,
    aten._scaled_dot_product_cudnn_attention.default: cudnn_attention,
    aten._scaled_dot_product_efficient_attention.default: efficient_attention,
}
