"""What else than plain attention mixes the tokens of the random blocks."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .block_attention import Attention, Given, Scores, rotate, steps
from .block_networks import norm
from .draw_blocks import Drawn


class Latent(nn.Module):
    """Multi-head latent attention: keys and values of all heads from a few columns; one rotated key for all heads."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        self.of, self.rank, self.own = of, max(of.width // 4, 8), of.head_width - of.rotated
        self.query = nn.Linear(of.width, of.heads * of.head_width, bias=False)
        self.down = nn.Linear(of.width, self.rank + of.rotated, bias=False)
        self.norm = norm(of, self.rank)
        self.up = nn.Linear(self.rank, 2 * of.heads * self.own, bias=False)
        self.scores, self.out = Scores(of), nn.Linear(of.heads * self.own, of.width, bias=of.bias)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        of = self.of
        query = self.query(x).unflatten(-1, (of.heads, -1)).transpose(1, 2)
        own, turned = query.split((self.own, of.rotated), -1)
        latent, shared = self.down(x).split((self.rank, of.rotated), -1)
        key, value = self.up(self.norm(latent)).unflatten(-1, (of.heads, -1)).transpose(1, 2).chunk(2, -1)
        shared = rotate(of, shared.unsqueeze(1), given).expand(-1, of.heads, -1, -1)
        query, key = torch.cat([own, rotate(of, turned, given)], -1), torch.cat([key, shared], -1)
        return self.out(self.scores(query, key, value, given).transpose(1, 2).flatten(2))


class Differential(nn.Module):
    """The difference of two softmaxes of each head weighs the values."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        self.of, inner = of, of.heads * of.head_width
        self.query, self.key = (nn.Linear(of.width, 2 * inner, bias=of.bias) for _ in range(2))
        self.value, self.out = nn.Linear(of.width, inner, bias=of.bias), nn.Linear(inner, of.width, bias=of.bias)
        self.lambdas, self.norm = nn.Parameter(0.1 * torch.randn(4, of.head_width)), norm(of, of.head_width)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        of = self.of
        query, key = (
            layer(x).unflatten(-1, (2 * of.heads, -1)).transpose(1, 2) * of.head_width**-0.25
            for layer in (self.query, self.key)
        )
        value = self.value(x).unflatten(-1, (of.heads, -1)).transpose(1, 2)
        scores = query @ key.transpose(-1, -2)
        if "causal" in of.mask:
            scores = scores + torch.triu(torch.full(scores.shape[-2:], float("-inf"), device=x.device), 1).to(x.dtype)
        weights = F.softmax(scores, -1, dtype=torch.promote_types(x.dtype, torch.float32)).to(x.dtype)
        weights = weights.unflatten(1, (of.heads, 2))
        dots = (self.lambdas[::2] * self.lambdas[1::2]).sum(-1).exp()
        found = (weights[:, :, 0] - (dots[0] - dots[1] + 0.8) * weights[:, :, 1]) @ value
        return self.out((self.norm(found) * 0.2).transpose(1, 2).flatten(2))


class LinearAttention(nn.Module):
    """Attention without a softmax: sums over all keys first, of positive features."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        self.of, inner = of, of.heads * of.head_width
        self.inputs, self.out = nn.Linear(of.width, 3 * inner, bias=of.bias), nn.Linear(inner, of.width, bias=of.bias)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        query, key, value = (part.unflatten(-1, (self.of.heads, -1)) for part in self.inputs(x).chunk(3, -1))
        query, key = F.elu(query) + 1, F.elu(key) + 1
        if "padding" in self.of.mask:
            key = key * given["padding"][:, :, None, None]
        sums = torch.einsum("bjhd,bjhe->bhde", key, value / value.shape[1])
        total = torch.einsum("bihd,bhd->bih", query, key.mean(1))
        return self.out((torch.einsum("bihd,bhde->bihe", query, sums) / total.unsqueeze(-1)).flatten(2))


class Retention(nn.Module):
    """Scores that decay with the distance weigh the values; a norm of each head and a gate follow."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        self.of, inner = of, of.heads * of.head_width
        self.inputs = nn.ModuleList(nn.Linear(of.width, inner, bias=False) for _ in range(4))
        self.out = nn.Linear(inner, of.width, bias=False)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        of = self.of
        *heads, gate = (layer(x) for layer in self.inputs)
        query, key, value = (part.unflatten(-1, (of.heads, -1)).transpose(1, 2) for part in heads)
        step = steps(of, x.shape[1], x.shape[1], given, x.device)
        rates = torch.log1p(-torch.exp2(-2.0 - torch.arange(of.heads, device=x.device)))
        decay = torch.exp(-step * rates[:, None, None]).masked_fill(step > 0, 0).to(x.dtype)
        found = ((query @ key.transpose(-1, -2) * of.head_width**-0.5) * decay) @ value
        found = F.layer_norm(found, found.shape[-1:]).transpose(1, 2).flatten(2)
        return self.out(F.silu(gate) * found)


class Windows(nn.Module):
    """Attention within the windows of an image, moved by half a window in every second block; biases from a table."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        self.of, inner, side = of, of.heads * of.head_width, of.window
        self.shift = side // 2 if of.shifted and block % 2 else 0
        self.inputs, self.out = nn.Linear(of.width, 3 * inner, bias=of.bias), nn.Linear(inner, of.width, bias=of.bias)
        self.table = nn.Parameter(torch.randn((2 * side - 1) ** 2, of.heads))
        places = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
        step = places[:, :, None] - places[:, None] + side - 1
        self.register_buffer("index", step[0] * (2 * side - 1) + step[1])
        parts = torch.zeros(of.side, of.side)
        for number, (first, last) in enumerate(((-self.shift, None), (-side, -self.shift)) if self.shift else ()):
            parts[first:last] += 1 + number
            parts[:, first:last] += 3 * (1 + number)
        parts = self._cut(parts[None, :, :, None]).squeeze(-1)
        self.register_buffer("hidden", (parts[:, None, :] != parts[:, :, None]) if self.shift else None)

    def _cut(self, x: Tensor) -> Tensor:
        """[batch, side, side, columns] -> [windows of all samples, tokens, columns]"""
        across, window = self.of.side // self.of.window, self.of.window
        x = x.view(-1, across, window, across, window, x.shape[-1])
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, x.shape[-1])

    def forward(self, x: Tensor, given: Given) -> Tensor:
        of, side, window = self.of, self.of.side, self.of.window
        image = x.view(-1, side, side, x.shape[-1])
        image = torch.roll(image, (-self.shift, -self.shift), (1, 2)) if self.shift else image
        heads = self.inputs(self._cut(image)).unflatten(-1, (3, of.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        scores = (query * of.head_width**-0.5) @ key.transpose(-1, -2)
        bias = self.table[self.index.view(-1)].view(window**2, window**2, -1).permute(2, 0, 1)
        scores = scores + bias.unsqueeze(0)
        if self.hidden is not None:
            mask = torch.zeros_like(self.hidden, dtype=x.dtype).masked_fill(self.hidden, -100.0)
            scores = (scores.unflatten(0, (-1, len(mask))) + mask[None, :, None]).flatten(0, 1)
        found = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        across = side // window
        found = self.out(found).view(-1, across, across, window, window, x.shape[-1]).permute(0, 1, 3, 2, 4, 5)
        found = found.reshape(-1, side, side, x.shape[-1])
        return (torch.roll(found, (self.shift, self.shift), (1, 2)) if self.shift else found).view(x.shape)


class Tokens(nn.Module):
    """An MLP-Mixer's network over the tokens of each column."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        self.up, self.down = nn.Linear(of.tokens, 2 * of.tokens), nn.Linear(2 * of.tokens, of.tokens)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return self.down(F.gelu(self.up(x.transpose(1, 2)))).transpose(1, 2)


class Fourier(nn.Module):
    """The real part of a Fourier transform over tokens and columns, by matrices."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        for name, size in (("tokens", of.tokens), ("columns", of.width)):
            angles = torch.outer(torch.arange(size), torch.arange(size)) * (2 * math.pi / size)
            self.register_buffer(f"cos_{name}", angles.cos() * size**-0.5)
            self.register_buffer(f"sin_{name}", angles.sin() * size**-0.5)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return self.cos_tokens @ (x @ self.cos_columns) - self.sin_tokens @ (x @ self.sin_columns)


class Scan(nn.Module):
    """A state of each column that decays as its token says: a step for each token."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        self.inputs, self.out = nn.Linear(of.width, 3 * of.width), nn.Linear(of.width, of.width)
        self.decay = nn.Parameter(torch.randn(of.width))

    def forward(self, x: Tensor, given: Given) -> Tensor:
        value, gate, speed = self.inputs(x).chunk(3, -1)
        kept = torch.exp(-F.softplus(speed) * torch.exp(self.decay))
        state, states = torch.zeros_like(value[:, 0]), []
        for token in range(x.shape[1]):
            state = kept[:, token] * state + (1 - kept[:, token]) * value[:, token]
            states.append(state)
        return self.out(torch.stack(states, 1) * F.silu(gate))


class GatedConvolution(nn.Module):
    """A short causal convolution of each column over the tokens, between two gates."""

    def __init__(self, of: Drawn, block: int):
        super().__init__()
        self.inputs, self.out = nn.Linear(of.width, 3 * of.width, bias=False), nn.Linear(of.width, of.width, bias=False)
        self.along = nn.Conv1d(of.width, of.width, 4, padding=3, groups=of.width)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        before, after, value = self.inputs(x).chunk(3, -1)
        found = self.along((before * value).transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        return self.out(after * found)


MODULES = {
    "attention": Attention,
    "latent": Latent,
    "differential": Differential,
    "linear": LinearAttention,
    "retention": Retention,
    "windows": Windows,
    "tokens": Tokens,
    "fourier": Fourier,
    "scan": Scan,
    "gated_conv": GatedConvolution,
}
