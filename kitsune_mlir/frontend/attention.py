"""Attention as two products with a softmax between them, which carries neither max-with-indices nor the f64 chain of
torch's safe softmax. Grouped-query attention multiplies each key once instead of repeating it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

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
    scores = masked_scores(query, rows, key.reshape(batch, cached, width), mask, is_causal, scale)
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


def masked_scores(
    query: Tensor, rows: Tensor, keys: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """The scores [batch, group * T, S] of `rows`, which are the queries [..., heads, T, D] as products read them, in
    the type that softmax works in; minus infinity where a mask leaves a key out."""
    cached, length = keys.shape[-2], query.shape[-2]
    scores = working(torch.bmm(rows, keys.transpose(1, 2))) * scale
    if not is_causal and mask is None:
        return scores
    scores = scores.view(*query.shape[:-1], cached)
    never = number(float("-inf"), scores)
    if is_causal:
        steps, own = torch.arange(cached, device=query.device), torch.arange(length, device=query.device)
        scores = torch.where(steps <= own[:, None], scores, never)
    if mask is not None and mask.dtype == torch.bool:
        scores = torch.where(mask, scores, never)
    elif mask is not None:
        scores = scores + mask
    return scores.view(*rows.shape[:-1], cached)


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
    """What AOTAutograd has left of attention on a GPU. Results behind the second are for torch's own kernels only."""
    if dropout_p > 0.0 or query.shape[:-3] != key.shape[:-3]:
        return NotImplemented
    out, log_sums = _attention(query, key, value, None, is_causal, scale)
    unused, seed = query.new_empty((0,)), query.new_empty((), dtype=torch.int64)
    return out, log_sums, unused, unused, query.shape[-2], key.shape[-2], seed, seed, unused


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
    if dropout_p > 0.0 or query.shape[:-3] != key.shape[:-3]:
        return NotImplemented
    out, log_sums = _attention(query, key, value, attn_bias, is_causal, scale)
    unused, seed = query.new_empty((0,)), query.new_empty((), dtype=torch.int64)
    return out, log_sums.unsqueeze(-1), unused, unused, query.shape[-2], key.shape[-2], seed, seed, unused


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
    """The log of the sums is padded to whole 32 rows, as torch's kernel has it, where gradients want it."""
    if dropout_p > 0.0 or query.shape[:-3] != key.shape[:-3]:
        return NotImplemented
    out, log_sums = _attention(query, key, value, attn_bias, is_causal, scale)
    if compute_log_sumexp:
        log_sums = F.pad(log_sums, (0, -query.shape[-2] % 32))
    seed = query.new_empty((), dtype=torch.int64)
    return out, log_sums, seed, seed


ATTENTION = {
    aten.scaled_dot_product_attention.default: attention,
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention_for_cpu,
    aten._scaled_dot_product_flash_attention.default: flash_attention,
    aten._scaled_dot_product_cudnn_attention.default: cudnn_attention,
    aten._scaled_dot_product_efficient_attention.default: efficient_attention,
}
