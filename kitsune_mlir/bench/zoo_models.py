"""Small models of the forms that users write, which zoo.py names and gives sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Function(nn.Module):
    """A function without weights."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def repeated(count: int, make: Callable[..., nn.Module], *args: int) -> nn.Module:
    """Several of a kind, one after another."""
    return nn.Sequential(*(make(*args) for _ in range(count)))


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these widths, activations between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


class Residual(nn.Module):
    """x + body(x)"""

    def __init__(self, *body: nn.Module):
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def prenorm(width: int) -> nn.Module:
    """x + network(norm(x))"""
    return Residual(nn.LayerNorm(width), mlp(width, 2 * width, width, activation=nn.GELU))


def postnorm(width: int) -> nn.Module:
    """norm(x + network(x))"""
    return nn.Sequential(Residual(mlp(width, 2 * width, width)), nn.LayerNorm(width))


def normed(*widths: int) -> nn.Module:
    """Linear layers of these widths, each followed by batch norm and ReLU."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU()) for a, b in zip(widths, widths[1:]))
    )


def batchnorm_residual(width: int) -> nn.Module:
    """x + relu(norm(linear(x)))"""
    return Residual(normed(width, width))


def two_layer_residual(width: int) -> nn.Module:
    """x + linear(relu(linear(x)))"""
    return Residual(mlp(width, width, width))


class Heads(nn.Module):
    """Heads of these widths on one trunk, apart or side by side."""

    def __init__(self, inputs: int, width: int, heads: Sequence[int], joined: bool = False):
        super().__init__()
        self.trunk, self.joined = mlp(inputs, width, width, width), joined
        self.heads = nn.ModuleList(nn.Linear(width, columns) for columns in heads)

    def forward(self, x: Tensor) -> Any:
        hidden = F.relu(self.trunk(x))
        found = tuple(head(hidden) for head in self.heads)
        return torch.cat(found, -1) if self.joined else found


class Nerf(nn.Module):
    """Eight layers, the position joined again after the fifth; density from them, colour from them and a direction."""

    def __init__(self, joined: bool, width: int = 256):
        super().__init__()
        self.joined = joined
        self.first = nn.Sequential(mlp(60, *[width] * 5), nn.ReLU())
        self.second = nn.Sequential(mlp(width + 60, *[width] * 3), nn.ReLU())
        self.density, self.feature = nn.Linear(width, 1), nn.Linear(width, width)
        self.colour = nn.Sequential(mlp(width + 24, width // 2, 3), nn.Sigmoid())

    def forward(self, position: Tensor, direction: Tensor) -> Any:
        hidden = self.second(torch.cat([self.first(position), position], -1))
        colour = self.colour(torch.cat([self.feature(hidden), direction], -1))
        density = F.relu(self.density(hidden))
        return torch.cat([colour, density], -1) if self.joined else (colour, density)


class Joined(nn.Module):
    """Its inputs side by side, then a body."""

    def __init__(self, *body: nn.Module):
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.body(torch.cat(inputs, -1))


class Dense(nn.Module):
    """Each layer reads all earlier values (DenseNet); or, with `at_end`, all values are joined at the output alone."""

    def __init__(self, width: int, growth: int, layers: int, at_end: bool = False):
        super().__init__()
        self.at_end = at_end
        inputs = [width if i == 0 else growth if at_end else width + i * growth for i in range(layers)]
        self.layers = nn.ModuleList(nn.Linear(count, growth) for count in inputs)

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(F.relu(layer(found[-1] if self.at_end else torch.cat(found, -1))))
        return torch.cat(found, -1)


class Unet(nn.Module):
    """Layers that grow narrower, then wider again, each of which is joined with its counterpart."""

    def __init__(self, *widths: int):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.down = nn.ModuleList(nn.Linear(wide, narrow) for wide, narrow in pairs)
        self.up = nn.ModuleList(nn.Linear(narrow + wide, wide) for wide, narrow in reversed(pairs))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            kept.append(x)
            x = F.relu(layer(x))
        for layer in self.up:
            x = F.relu(layer(torch.cat([x, kept.pop()], -1)))
        return x


class Chunked(nn.Module):
    """One product whose halves are a value and a gate, multiplied, then a second product."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor]):
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width), activation

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.up(x).chunk(2, -1)
        return self.down(value * self.activation(gate))


class SwiGlu(nn.Module):
    """Llama's: the gate and the value are products of their own, without biases."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Highway(nn.Module):
    """t * h(x) + (1 - t) * x with a computed t."""

    def __init__(self, width: int):
        super().__init__()
        self.gate, self.layer = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * F.relu(self.layer(x)) + (1 - gate) * x


class Gate(nn.Module):
    """tanh of one product times sigmoid of another (WaveNet, gated attention pooling)."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.value, self.gate, self.out = nn.Linear(width, hidden), nn.Linear(width, hidden), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.value(x)) * torch.sigmoid(self.gate(x)))


class Film(nn.Module):
    """Layers whose values are scaled and moved by what another input says."""

    def __init__(self, width: int, condition: int):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.modulation = nn.Linear(condition, 2 * width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.modulation(condition).chunk(2, -1)
        return self.second(F.relu(self.first(x) * (1 + scale) + shift))


class Experts(nn.Module):
    """A dense mixture: every expert sees every row, a softmax weighs them."""

    def __init__(self, width: int, hidden: int, experts: int):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(mlp(width, hidden, width, activation=nn.GELU) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(self.gate(x), -1)
        return sum(weights[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class BatchedExperts(nn.Module):
    """The same with the experts' weights in one tensor."""

    def __init__(self, width: int, hidden: int, experts: int):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(torch.einsum("nd,edh->neh", x, self.up))
        return torch.einsum("neh,ehd,ne->nd", hidden, self.down, torch.softmax(self.gate(x), -1))


class GraphConvolution(nn.Module):
    """Two layers A X W of a dense adjacency matrix."""

    def __init__(self, width: int, hidden: int, classes: int):
        super().__init__()
        self.first, self.second = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, classes, bias=False)

    def forward(self, adjacency: Tensor, x: Tensor) -> Tensor:
        return adjacency @ self.second(F.relu(adjacency @ self.first(x)))


class LstmStep(nn.LSTMCell):
    """torch's cell with its state as two arguments."""

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x, (hidden, cell))


class RnnStep(nn.Module):
    """tanh(W x + U h) and the output that is read from it."""

    def __init__(self, inputs: int, width: int, outputs: int):
        super().__init__()
        self.input, self.state = nn.Linear(inputs, width), nn.Linear(width, width)
        self.out = nn.Linear(width, outputs)

    def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.input(x) + self.state(hidden))
        return self.out(hidden), hidden


class Mixer(nn.Module):
    """MLP-mixer: a network over tokens, one over channels, each in front of a residual. `hidden` is the first one's
    width, twice the tokens where none is given."""

    def __init__(self, tokens: int, width: int, hidden: int | None = None):
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = mlp(tokens, hidden or 2 * tokens, tokens, activation=nn.GELU)
        self.channels = mlp(width, 4 * width, width, activation=nn.GELU)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.channel_norm(x))


class VaeEncoder(nn.Module):
    """784-400-(20, 20): the mean, and a sample with given noise."""

    def __init__(self) -> None:
        super().__init__()
        self.network = mlp(784, 400, 40)

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, logarithm = self.network(x).chunk(2, -1)
        return mean, mean + noise * torch.exp(logarithm / 2)


def classifier() -> nn.Module:
    """The probabilities of 1000 classes."""
    return nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 1000), nn.Softmax(-1))


class GraphCastBlock(nn.Module):
    """Edges of GraphCast: an edge and the nodes at its ends through 1536-512-512 and a LayerNorm, added to the edge."""

    def __init__(self, width: int = 512):
        super().__init__()
        self.network = nn.Sequential(mlp(3 * width, width, width, activation=nn.SiLU), nn.LayerNorm(width))

    def forward(self, edge: Tensor, sender: Tensor, receiver: Tensor) -> Tensor:
        return edge + self.network(torch.cat([edge, sender, receiver], -1))


class Lora(nn.Module):
    """A layer and a product of low rank beside it."""

    def __init__(self, width: int, rank: int):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + 2 * self.up(self.down(x))


class TiedLayer(nn.Module):
    """One layer several times over."""

    def __init__(self, width: int, times: int):
        super().__init__()
        self.layer, self.times = nn.Linear(width, width), times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = torch.tanh(self.layer(x))
        return x


class TiedAutoencoder(nn.Module):
    """The decoder's weight is the encoder's, transposed."""

    def __init__(self, width: int, code: int):
        super().__init__()
        self.encoder, self.bias = nn.Linear(width, code), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.relu(self.encoder(x)), self.encoder.weight.t(), self.bias)


class Points(nn.Module):
    """PointNet: a network of each point, the largest of all points, a network of that."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.whole = mlp(3, 64, 128, 1024), mlp(1024, 256, 40)

    def forward(self, x: Tensor) -> Tensor:
        return self.whole(self.points(x).amax(1))
