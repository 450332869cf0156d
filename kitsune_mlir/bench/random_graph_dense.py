"""Layers of random graph networks (random_graphs.py) on neighbours by number and on batches of whole matrices."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .random_graph_layers import Convolution, Graph, Layer, Widths, network
from .random_graph_sums import rows

DISTANCES = 20  # of two nodes of a graph transformer's


class Near(Convolution):
    """Attention over neighbours by number, [nodes, k] of them (Point Transformer)."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.query, self.key, self.value = (nn.Linear(widths.x, of.width) for _ in range(3))
        self.network = network(of, of.width, of.width)

    def forward(self, g: Graph) -> Graph:
        key, value = (rows(part(g.x), g.near.flatten(), self.of.by_select) for part in (self.key, self.value))
        key, value = (x.view(*g.near.shape, -1) for x in (key, value))
        weights = self.network(self.query(g.x)[:, None] - key).softmax(1)
        return replace(g, x=(weights * value).sum(1))


class NearNetwork(Convolution):
    """EdgeConv over neighbours by number: a network of a node and of the difference to it, then the largest."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.network = network(of, 2 * widths.x, of.width, last=True)

    def forward(self, g: Graph) -> Graph:
        sent = g.x[g.near]
        received = g.x[:, None].expand_as(sent)
        messages = self.network(torch.cat([received, sent - received], -1))
        return replace(g, x=messages.mean(1) if self.of.sums[0] == "mean" else messages.amax(1))


class Dense(Convolution):
    """A batch of graphs with an adjacency matrix each, normalised, its mean, or plain; two layers of nodes."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.near, self.self = nn.Linear(widths.x, of.width, bias=False), nn.Linear(widths.x, of.width)

    def forward(self, g: Graph) -> Graph:
        matrix = g.adjacency
        if self.of.sums[0] == "sum":
            inverse = (matrix.sum(-1) + 1).rsqrt()
            matrix = inverse.unsqueeze(-1) * matrix * inverse.unsqueeze(-2)
        found = matrix @ (self.near(g.x) if self.of.by_select else g.x)
        if self.of.sums[0] == "mean":
            found = found / matrix.sum(-1, keepdim=True).clamp(min=1)
        return replace(g, x=(found if self.of.by_select else self.near(found)) + self.self(g.x))


class Points(Convolution):
    """DGCNN: the neighbours of each point are the nearest of its cloud, found by all distances in the layer."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.count = 4 * of.depth
        self.network = network(of, 2 * widths.x, of.width, last=True)

    def _near(self, x: Tensor) -> Tensor:
        square = (x * x).sum(-1)
        away = square.unsqueeze(-1) - 2 * x @ x.transpose(1, 2) + square.unsqueeze(1)
        return away.topk(self.count, dim=-1, largest=False).indices

    def forward(self, g: Graph) -> Graph:
        graphs, nodes, width = g.x.shape
        first = torch.arange(graphs, device=g.x.device).view(-1, 1, 1) * nodes
        near = (self._near(g.places.float()) + first).view(-1)
        sent = g.x.reshape(graphs * nodes, width)[near].view(graphs, nodes, self.count, width)
        received = g.x.unsqueeze(2).expand_as(sent)
        messages = self.network(torch.cat([sent - received, received], -1))
        return replace(g, x=messages.mean(2) if self.of.sums[0] == "mean" else messages.amax(2))


class Transformer(Convolution):
    """Graphormer: attention over all nodes, with a bias for each distance of two and for each head."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.width = max(8, of.width // of.heads)
        self.projections = nn.Linear(widths.x, 3 * of.heads * self.width)
        self.bias, self.out = nn.Embedding(DISTANCES, of.heads), nn.Linear(of.heads * self.width, of.width)

    def forward(self, g: Graph) -> Graph:
        parts = self.projections(g.x).unflatten(-1, (3, self.of.heads, self.width))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        bias = self.bias(g.adjacency).permute(0, 3, 1, 2)
        if self.of.by_select:
            found = F.scaled_dot_product_attention(query, key, value, bias)
        else:
            found = (query @ key.transpose(-1, -2) / self.width**0.5 + bias).softmax(-1) @ value
        return replace(g, x=self.out(found.transpose(1, 2).flatten(2)))


KINDS: dict[str, type[Convolution]] = {
    "near": Near,
    "near_network": NearNetwork,
    "dense": Dense,
    "points": Points,
    "graphormer": Transformer,
}
