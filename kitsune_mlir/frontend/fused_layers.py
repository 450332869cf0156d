"""The layers that torch computes by one operator where no gradients are asked for, `nn.TransformerEncoderLayer` and
`nn.MultiheadAttention`, as the operators that they stand for: torch.compile traces the fused ones."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .attention import attention

aten = torch.ops.aten

_OF_QUERIES, _OF_KEYS = 0, 1  # kinds of masks: [queries, keys], [batch, keys]; others have all four dimensions


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """The result, and the weights of each head or their mean. A mask says which keys are not seen."""
    if query is key is value:
        projected = functional.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
        projected = map(functional.linear, (query, key, value), weights, biases)
    projected = [x.unflatten(-1, (num_head, -1)).transpose(1, 2) for x in projected]
    seen = None if mask is None else _of_four_dimensions(mask, mask_type).to(torch.bool).logical_not()
    if need_weights:
        out, shown = _with_weights(*projected, seen)
        shown = shown.mean(1) if average_attn_weights else shown
    else:
        out, shown = attention(*projected, seen), query.new_empty((0,))
    out = functional.linear(out.transpose(1, 2).flatten(2), proj_weight, proj_bias)
    return out, shown


def _of_four_dimensions(mask: Tensor, mask_type: int | None) -> Tensor:
    if mask_type == _OF_QUERIES:
        return mask[None, None]
    return mask[:, None, None] if mask_type == _OF_KEYS else mask


def _with_weights(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
    scores = query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1]))
    weights = (scores if seen is None else scores.masked_fill(~seen, float("-inf"))).softmax(-1)
    return weights @ value, weights


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Attention and two linear layers, each added to what it was given, with a norm before or after it."""

    def attend(x: Tensor) -> Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type)[0]

    def feed(x: Tensor) -> Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else hidden.relu()
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    x = src
    for part, weight, bias in ((attend, norm_weight_1, norm_bias_1), (feed, norm_weight_2, norm_bias_2)):
        if norm_first:
            x = x + part(functional.layer_norm(x, (embed_dim,), weight, bias, eps))
        else:
            x = functional.layer_norm(x + part(x), (embed_dim,), weight, bias, eps)
    return x


FUSED_LAYERS = {
    aten._native_multi_head_attention.default: multi_head_attention,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
}
