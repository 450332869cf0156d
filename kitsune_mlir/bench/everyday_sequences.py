"""Everyday models of sequences: transformers, recurrent networks, convolutions along time."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .zoo_models import SwiGlu, mlp


class Block(nn.Module):
    """A transformer's, normalised before each half; one product makes queries, keys and values."""

    def __init__(self, width: int, heads: int, causal: bool = False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.attention_norm, self.network_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = mlp(width, 4 * width, width, activation=nn.GELU)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = heads_of(self.inputs(self.attention_norm(x)), self.heads)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.network(self.network_norm(x))


def heads_of(x: Tensor, heads: int) -> Tensor:
    """[n, tokens, 3 width] -> queries, keys and values, [3, n, heads, tokens, width / heads]."""
    return x.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)


class VisionTransformer(nn.Module):
    """ViT-S with six blocks: [n, 3, 224, 224] -> [n, 1000]."""

    def __init__(self, width: int = 384, depth: int = 6, heads: int = 6):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token, self.positions = (nn.Parameter(torch.randn(1, count, width)) for count in (1, 197))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class ShiftedWindows(nn.Module):
    """Swin's block: attention within windows of 7x7, which are shifted by three pixels; [n, h, w, width]."""

    def __init__(self, width: int, heads: int, window: int = 7):
        super().__init__()
        self.heads, self.window = heads, window
        self.attention_norm, self.network_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = mlp(width, 4 * width, width, activation=nn.GELU)
        self.bias = nn.Parameter(torch.randn(heads, window**2, window**2))

    def forward(self, x: Tensor) -> Tensor:
        batch, height, wide, width = x.shape
        side, rows, columns = self.window, height // self.window, wide // self.window
        y = torch.roll(self.attention_norm(x), (-3, -3), (1, 2)).view(batch, rows, side, columns, side, width)
        query, key, value = heads_of(self.inputs(y.transpose(2, 3).reshape(-1, side**2, width)), self.heads)
        scores = (query @ key.transpose(-2, -1)) * (width // self.heads) ** -0.5 + self.bias
        y = self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
        y = y.view(batch, rows, columns, side, side, width).transpose(2, 3).reshape(x.shape)
        x = x + torch.roll(y, (3, 3), (1, 2))
        return x + self.network(self.network_norm(x))


class Gpt(nn.Module):
    """GPT-2 with four blocks: tokens [n, tokens] -> logits [n, tokens, words]."""

    def __init__(self, width: int = 768, depth: int = 4, heads: int = 12, words: int = 8192):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def bert() -> nn.Module:
    """Four layers of torch's own encoder."""
    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def decoder_layer() -> nn.Module:
    """torch's own decoder layer: it reads [n, tokens, 512] and another sequence."""
    return nn.TransformerDecoderLayer(512, 8, 2048, batch_first=True, norm_first=True)


class RootMeanSquare(nn.Module):
    """A norm by the mean square, written out in f32."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding; the two halves of a head are the pairs."""
    low, high = x.chunk(2, -1)
    return x * cosine + torch.cat([-high, low], -1) * sine


class LlamaLayer(nn.Module):
    """Attention whose keys and values are repeated for several heads, then SwiGLU."""

    def __init__(self, width: int = 1024, heads: int = 16, key_heads: int = 4, hidden: int = 2816):
        super().__init__()
        self.heads, self.key_heads, head = heads, key_heads, width // heads
        self.attention_norm, self.network_norm = RootMeanSquare(width), RootMeanSquare(width)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, key_heads * head, bias=False) for _ in range(2))
        self.network = SwiGlu(width, hidden)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        y = self.attention_norm(x)
        query = self.query(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = (of(y).unflatten(-1, (self.key_heads, -1)).transpose(1, 2) for of in (self.key, self.value))
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        key, value = (kept.repeat_interleave(self.heads // self.key_heads, 1) for kept in (key, value))
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.network(self.network_norm(x))


class Llama(nn.Module):
    """Two layers: [n, tokens, 1024], and the rotations' cosines and sines [tokens, 64] -> [n, tokens, 1024]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(2))

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return x


class RelativeAttention(nn.Module):
    """T5's attention: a bias by the distance of two tokens; keys that the mask [n, tokens] leaves out weigh nothing."""

    def __init__(self, width: int = 256, heads: int = 4, tokens: int = 64):
        super().__init__()
        self.heads, self.inputs, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Embedding(2 * tokens - 1, heads)
        places = torch.arange(tokens)
        self.register_buffer("distances", places[:, None] - places[None] + tokens - 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = heads_of(self.inputs(x), self.heads)
        scores = query @ key.mT / math.sqrt(query.shape[-1]) + self.bias(self.distances).permute(2, 0, 1)
        weights = F.softmax(scores.masked_fill(~mask[:, None, None], float("-inf")), -1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class LinearAttention(nn.Module):
    """Attention without a softmax: the keys' and values' product comes first."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.inputs = heads, nn.Linear(width, 3 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = heads_of(self.inputs(x), self.heads)
        query, key = F.elu(query) + 1, F.elu(key) + 1
        found = key.mT @ value
        scale = 1 / (query * key.sum(2, keepdim=True)).sum(-1, keepdim=True)
        return (query @ found * scale).transpose(1, 2).flatten(2)


class Perceiver(nn.Module):
    """32 learnt queries read a sequence by torch's own attention; the mean of what a network makes of them."""

    def __init__(self, width: int):
        super().__init__()
        self.queries, self.norm = nn.Parameter(torch.randn(1, 32, width)), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.network = mlp(width, 2 * width, width, activation=nn.GELU)

    def forward(self, x: Tensor) -> Tensor:
        queries = self.queries.expand(x.shape[0], -1, -1)
        y = self.norm(queries + self.attention(queries, x, x, need_weights=False)[0])
        return (y + self.network(y)).mean(1)


class RoutedExperts(nn.Module):
    """A mixture where a row's two best experts weigh, though all see it."""

    def __init__(self, width: int = 512, hidden: int = 1024, experts: int = 4):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        best, experts = torch.topk(F.softmax(self.router(x), -1), 2)
        weights = torch.zeros_like(best[:, :1]).expand(-1, len(self.up)).scatter(1, experts, best)
        hidden = F.gelu(torch.einsum("td,edf->etf", x, self.up))
        return torch.einsum("etf,efd,te->td", hidden, self.down, weights)


class GatedMlp(nn.Module):
    """gMLP's block: half of the channels are a gate, which a product over tokens makes."""

    def __init__(self, width: int, tokens: int):
        super().__init__()
        self.norm, self.gate_norm = nn.LayerNorm(width), nn.LayerNorm(2 * width)
        self.up, self.down, self.tokens = (
            nn.Linear(width, 4 * width),
            nn.Linear(2 * width, width),
            nn.Linear(tokens, tokens),
        )

    def forward(self, x: Tensor) -> Tensor:
        value, gate = F.gelu(self.up(self.norm(x))).chunk(2, -1)
        gate = self.tokens(self.gate_norm(gate).transpose(1, 2)).transpose(1, 2)
        return x + self.down(value * gate)


class Recurrent(nn.Module):
    """torch's own GRU or LSTM of a sequence, and a linear layer of all that it gives, or of the last step's alone."""

    def __init__(self, network: nn.Module, width: int, outputs: int, last: bool = False):
        super().__init__()
        self.network, self.out, self.last = network, nn.Linear(width, outputs), last

    def forward(self, x: Tensor) -> Tensor:
        found = self.network(x)[0]
        return self.out(found[:, -1] if self.last else found)


def lstm_tagger() -> nn.Module:
    """Tokens [n, tokens] -> [n, tokens, 20]."""
    return nn.Sequential(nn.Embedding(5000, 256), Recurrent(nn.LSTM(256, 256, batch_first=True), 256, 20))


class WaveNet(nn.Module):
    """Gated convolutions that see ever farther: [n, channels, time] -> the same, the sum of what each adds."""

    def __init__(self, channels: int):
        super().__init__()
        self.gates = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 3, dilation=2**i, padding=2**i) for i in range(4))
        self.layers = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        total: Any = 0
        for gates, layer in zip(self.gates, self.layers):
            value, gate = gates(x).chunk(2, 1)
            y = layer(torch.tanh(value) * torch.sigmoid(gate))
            x, total = x + y, total + y
        return F.relu(total)


class ConformerConvolution(nn.Module):
    """Conformer's half that convolves along time: [n, time, width] -> the same."""

    def __init__(self, width: int, size: int = 31):
        super().__init__()
        self.norm, self.batch_norm = nn.LayerNorm(width), nn.BatchNorm1d(width)
        self.up, self.down = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise = nn.Conv1d(width, width, size, padding=size // 2, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.glu(self.up(self.norm(x).transpose(1, 2)), 1)
        return x + self.down(F.silu(self.batch_norm(self.depthwise(y)))).transpose(1, 2)


class StateSpace(nn.Module):
    """Mamba's layer, its steps written as a loop: [n, time, width] -> the same."""

    def __init__(self, width: int, states: int = 8):
        super().__init__()
        self.inputs, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.conv, self.choice = nn.Conv1d(width, width, 4, padding=3, groups=width), nn.Linear(width, 2 * states)
        self.rates = nn.Parameter(torch.rand(width, states))

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        value, gate = self.inputs(x).chunk(2, -1)
        value = F.silu(self.conv(value.transpose(1, 2))[..., :time].transpose(1, 2))
        into, out = self.choice(value).chunk(2, -1)
        state = torch.zeros(batch, width, self.rates.shape[1], device=x.device, dtype=x.dtype)
        found = []
        for i in range(time):
            state = state * torch.exp(-self.rates) + value[:, i, :, None] * into[:, i, None]
            found.append((state * out[:, i, None]).sum(-1))
        return self.out(torch.stack(found, 1) * F.silu(gate))


class FourierLayer(nn.Module):
    """A Fourier neural operator's: weights for each of 17 frequencies, which products with cosines find."""

    def __init__(self, points: int = 128, channels: int = 32, frequencies: int = 17):
        super().__init__()
        places = torch.arange(points)
        turns = places[:, None] * places[None, :frequencies] / points
        self.register_buffer("waves", torch.cos(2 * math.pi * turns))
        self.weights = nn.Parameter(torch.randn(frequencies, channels, channels) * 0.1)
        self.layer = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        found = torch.einsum("bnc,nk->bkc", x, self.waves)
        found = torch.einsum("bkc,kcd->bkd", found, self.weights)
        return F.gelu(self.layer(x) + torch.einsum("bkd,nk->bnd", found, self.waves))
