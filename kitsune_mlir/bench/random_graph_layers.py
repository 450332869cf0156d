"""Layers of random graph networks (random_graphs.py), each written as its authors or torch_geometric write it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .random_graph_sums import degree, joined, rows, softmax, total

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "softplus": nn.Softplus,
}


@dataclass(frozen=True)
class Layer:
    """What was drawn of a layer. `width` is that of the nodes it makes, `hidden` and `depth` are its networks'."""

    kind: str
    width: int
    hidden: int
    depth: int
    act: str
    norm: str
    heads: int
    sums: tuple[str, ...]  # how messages are joined: each of them, side by side
    way: str  # of sums, one of random_graph_sums.WAYS
    by_select: bool  # whether rows are gathered by index_select, or by brackets
    residual: bool
    updates_edges: bool
    axis: int = 0  # that of nodes: 1 where several tables of features have one graph


@dataclass(frozen=True)
class Graph:
    """The tensors of a graph while it goes through the layers; what a graph does not have is None."""

    x: Tensor  # [nodes, width]; [graphs, nodes, width] of dense graphs, of points and of batches with one graph
    source: Tensor | None = None
    target: Tensor | None = None
    edges: Tensor | None = None  # features of edges
    relation: Tensor | None = None  # the number of each edge's type
    batch: Tensor | None = None  # the number of each node's graph, in order
    whole: Tensor | None = None  # features of graphs
    places: Tensor | None = None  # [nodes, 3]
    near: Tensor | None = None  # [nodes, k], numbers of nodes
    adjacency: Tensor | None = None  # [graphs, nodes, nodes]; numbers of distances of a graph transformer


@dataclass(frozen=True)
class Widths:
    """The widths of a graph's features, 0 of those that it does not have, and the number of types of edges."""

    x: int
    edges: int = 0
    whole: int = 0
    relations: int = 0


def norm_of(kind: str, width: int) -> list[nn.Module]:
    kinds = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d, "rms": nn.RMSNorm}
    return [kinds[kind](width)] if kind in kinds else []


def network(of: Layer, inputs: int, outputs: int, last: bool = False) -> nn.Sequential:
    """Linear layers, activations between them and perhaps behind; norms of columns before these, others at the end."""
    widths = [inputs, *[of.hidden] * (of.depth - 1), outputs]
    parts: list[nn.Module] = []
    for number, (a, b) in enumerate(zip(widths, widths[1:])):
        parts.append(nn.Linear(a, b))
        if number < of.depth - 1 or last:
            parts += [*(norm_of(of.norm, b) if of.norm == "batch" else []), ACTIVATIONS[of.act]()]
    return nn.Sequential(*parts, *(norm_of(of.norm, outputs) if of.norm in ("layer", "rms") else []))


class Convolution(nn.Module):
    """A layer on the edges of a graph: makes nodes of the width that was drawn."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__()
        self.of = of

    def ends(self, g: Graph) -> tuple[Tensor, Tensor]:
        """The nodes that edges come from, and those that they go to."""
        of = self.of
        return rows(g.x, g.source, of.by_select, of.axis), rows(g.x, g.target, of.by_select, of.axis)

    def sent(self, x: Tensor, g: Graph) -> Tensor:
        return rows(x, g.source, self.of.by_select, self.of.axis)

    def joined(self, messages: Tensor, g: Graph, sums: tuple[str, ...] = ()) -> Tensor:
        """All of the layer's sums side by side, or those that are given."""
        of = self.of
        found = [joined(messages, g.target, g.x.shape[of.axis], how, of.way, of.axis) for how in sums or of.sums]
        return torch.cat(found, -1) if len(found) > 1 else found[0]

    def softmax(self, scores: Tensor, g: Graph) -> Tensor:
        return softmax(scores, g.target, g.x.shape[0], self.of.way)


class GCN(Convolution):
    """Degrees normalise messages on both sides, a loop at each node is added apart; several steps, as in APPNP."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.layer, self.bias = nn.Linear(widths.x, of.width, bias=False), nn.Parameter(torch.randn(of.width) / 8)

    def forward(self, g: Graph) -> Graph:
        x = self.layer(g.x)
        inverse = degree(g.target, x.shape[self.of.axis], x, self.of.way).pow(-0.5)
        inverse = inverse.masked_fill(inverse == float("inf"), 0)
        weight = inverse[g.source] * inverse[g.target]
        found = x
        for _ in range(self.of.depth):
            found = self.joined(weight.view(-1, 1) * self.sent(found, g), g, ("sum",)) + x / 2
        return replace(g, x=found + self.bias)


class SAGE(Convolution):
    """Joined neighbours beside the node itself."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.left, self.right = nn.Linear(len(of.sums) * widths.x, of.width), nn.Linear(widths.x, of.width, bias=False)

    def forward(self, g: Graph) -> Graph:
        x = self.left(self.joined(self.sent(g.x, g), g)) + self.right(g.x)
        return replace(g, x=F.normalize(x, dim=-1) if self.of.norm == "rms" else x)


class GIN(Convolution):
    """A network of the sum of neighbours, to which edges are added before an activation where they have features."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.scale = nn.Parameter(torch.zeros(1))
        self.network = network(of, widths.x, of.width, last=True)
        self.edge = nn.Linear(widths.edges, widths.x) if widths.edges else None

    def forward(self, g: Graph) -> Graph:
        messages = self.sent(g.x, g)
        if self.edge is not None:
            messages = (messages + self.edge(g.edges)).relu()
        found = self.joined(messages, g, self.of.sums[:1])
        return replace(g, x=self.network(found + (1 + self.scale) * g.x))


class EdgeNetwork(Convolution):
    """A network on each edge's ends, features and graph, then one on nodes (Battaglia et al., arXiv 1806.01261)."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        out = widths.edges if of.updates_edges and widths.edges else of.hidden
        self.edge = network(of, 2 * widths.x + widths.edges + widths.whole, out)
        self.node = network(of, widths.x + len(of.sums) * out + widths.whole, of.width)

    def forward(self, g: Graph) -> Graph:
        updates = self.of.updates_edges and g.edges is not None
        sent, received = self.ends(g)
        parts = [received, sent, *([] if g.edges is None else [g.edges])]
        whole = [] if g.whole is None else [g.whole[g.batch]]
        parts += [] if g.whole is None else [g.whole[g.batch[g.source]]]
        messages = self.edge(torch.cat(parts, -1))
        messages = g.edges + messages if updates else messages
        x = self.node(torch.cat([g.x, self.joined(messages, g), *whole], -1))
        return replace(g, x=x, edges=messages if updates else g.edges)


class EdgeConv(Convolution):
    """A network of a node and of the difference to it."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.network = network(of, 2 * widths.x, of.width, last=True)

    def forward(self, g: Graph) -> Graph:
        sent, received = self.ends(g)
        messages = self.network(torch.cat([received, sent - received], -1))
        return replace(g, x=self.joined(messages, g, self.of.sums[:1]))


class Attention(Convolution):
    """Attention by destination: of two scores of each node, of their joined vector, or of queries and keys."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.width = max(1, of.width // of.heads)
        inner = of.heads * self.width
        self.value, self.key = nn.Linear(widths.x, inner), nn.Linear(widths.x, inner)
        self.query = nn.Linear(widths.x, inner)
        self.edge = nn.Linear(widths.edges, inner, bias=False) if widths.edges else None
        self.left = nn.Parameter(torch.randn(1, of.heads, self.width) / math.sqrt(self.width))
        self.right = nn.Parameter(torch.randn(1, of.heads, self.width) / math.sqrt(self.width))
        self.out = nn.Linear(inner, of.width)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(-1, self.of.heads, self.width)

    def forward(self, g: Graph) -> Graph:
        value, edge = self._heads(self.value(g.x)), None if self.edge is None else self._heads(self.edge(g.edges))
        sent = self.sent(value, g)
        if self.of.kind == "gat":
            left, right = ((value * part).sum(-1) for part in (self.left, self.right))
            scores = self.sent(left, g) + right[g.target]
            scores = F.leaky_relu(scores if edge is None else scores + (edge * self.left).sum(-1), 0.2)
        elif self.of.kind == "gatv2":
            both = sent + self._heads(self.query(g.x))[g.target]
            scores = (F.leaky_relu(both if edge is None else both + edge, 0.2) * self.left).sum(-1)
        else:
            key = self.sent(self._heads(self.key(g.x)), g)
            key, sent = (key, sent) if edge is None else (key + edge, sent + edge)
            scores = (self._heads(self.query(g.x))[g.target] * key).sum(-1) / math.sqrt(self.width)
        messages = sent * self.softmax(scores, g).unsqueeze(-1)
        found = total(messages, g.target, g.x.shape[0], self.of.way)
        return replace(g, x=self.out(found.flatten(1)))


class Gated(Convolution):
    """ResGatedGraphConv: a gate for each number of a message; or CGConv's, of networks of one layer of all parts."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        inputs = 2 * widths.x + widths.edges if of.kind == "crystal" else widths.x
        self.gate, self.value = nn.Linear(inputs, of.width), nn.Linear(inputs, of.width)
        self.key, self.skip = nn.Linear(widths.x, of.width), nn.Linear(widths.x, of.width, bias=False)

    def forward(self, g: Graph) -> Graph:
        if self.of.kind == "crystal":
            sent, received = self.ends(g)
            parts = torch.cat([received, sent, *([] if g.edges is None else [g.edges])], -1)
            messages = self.gate(parts).sigmoid() * F.softplus(self.value(parts))
        else:
            gate = self.key(g.x)[g.target] + self.sent(self.gate(g.x), g)
            messages = gate.sigmoid() * self.sent(self.value(g.x), g)
        found = self.joined(messages, g, self.of.sums[:1])
        return replace(g, x=found + self.skip(g.x))


class PNA(Convolution):
    """Several aggregations, each scaled by powers of the logarithms of degrees."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.edge = nn.Linear(widths.edges, widths.x) if widths.edges else None
        self.before = nn.Linear((3 if widths.edges else 2) * widths.x, widths.x)
        self.after = network(of, (1 + 3 * len(of.sums)) * widths.x, of.width)

    def forward(self, g: Graph) -> Graph:
        sent, received = self.ends(g)
        parts = [received, sent, *([] if self.edge is None else [self.edge(g.edges)])]
        found = self.joined(self.before(torch.cat(parts, -1)), g)
        scale = (degree(g.target, g.x.shape[0], found).clamp(min=1) + 1).log().view(-1, 1)
        return replace(g, x=self.after(torch.cat([g.x, found, found * (scale / 2), found * (2 / scale)], -1)))


class Relational(Convolution):
    """RGCN: weights by the type of an edge, of a few bases; the types one by one, or rows of all by number."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.bases = nn.Parameter(torch.randn(2, widths.x, of.width) / math.sqrt(widths.x))
        self.mix = nn.Parameter(torch.randn(widths.relations, 2) / math.sqrt(2))
        self.root = nn.Linear(widths.x, of.width)

    def forward(self, g: Graph) -> Graph:
        weight, size = (self.mix @ self.bases.flatten(1)).view(-1, *self.bases.shape[1:]), g.x.shape[0]
        found = self.root(g.x)
        if self.of.by_select:
            made = torch.einsum("ni,rio->nro", g.x, weight)
            return replace(g, x=found + total(made[g.source, g.relation], g.target, size, self.of.way))
        for number, one in enumerate(weight):
            messages = g.x[g.source] * (g.relation == number).to(g.x.dtype).view(-1, 1)
            found = found + total(messages, g.target, size, self.of.way) @ one
        return replace(g, x=found)


class Filtered(Convolution):
    """SchNet: each edge's features, or its length, make the numbers that a message is multiplied by."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.register_buffer("centres", torch.linspace(0, 4, 20))
        self.filter = network(of, 20 if of.kind == "radial" else widths.edges, of.hidden)
        self.first, self.last = nn.Linear(widths.x, of.hidden, bias=False), nn.Linear(of.hidden, of.width)

    def _filter(self, g: Graph) -> Tensor:
        if self.of.kind != "radial":
            return self.filter(g.edges)
        length = (g.places[g.source] - g.places[g.target]).norm(dim=-1)
        smeared = torch.exp(-2 * (length.view(-1, 1) - self.centres.view(1, -1)) ** 2)
        return self.filter(smeared) * (0.5 * (torch.cos(length * math.pi / 10) + 1)).view(-1, 1)

    def forward(self, g: Graph) -> Graph:
        messages = self.sent(self.first(g.x), g) * self._filter(g)
        return replace(g, x=self.last(self.joined(messages, g, self.of.sums[:1])))


class Equivariant(Convolution):
    """EGNN: networks of ends and distances, which move places as well."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.edge = network(of, 2 * widths.x + widths.edges + 1, of.hidden, last=True)
        self.move = nn.Sequential(nn.Linear(of.hidden, of.hidden), nn.SiLU(), nn.Linear(of.hidden, 1))
        self.node = network(of, widths.x + of.hidden, of.width)

    def forward(self, g: Graph) -> Graph:
        away, size = g.places[g.source] - g.places[g.target], g.x.shape[0]
        square = (away * away).sum(-1, keepdim=True)
        sent, received = self.ends(g)
        messages = self.edge(torch.cat([received, sent, square, *([] if g.edges is None else [g.edges])], -1))
        places = g.places + joined(
            away / (square.sqrt() + 1) * self.move(messages), g.target, size, "mean", self.of.way
        )
        found = joined(messages, g.target, size, self.of.sums[0], self.of.way)
        return replace(g, x=self.node(torch.cat([g.x, found], -1)), places=places)


class Recurrent(Convolution):
    """GatedGraphConv: sums of messages are what a GRU's cell reads, nodes its state."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.first, self.cell = nn.Linear(widths.x, of.width), nn.GRUCell(of.width, of.width)
        self.message = nn.Linear(of.width, of.width, bias=False)

    def forward(self, g: Graph) -> Graph:
        x = self.first(g.x)
        for _ in range(self.of.depth):
            x = self.cell(self.joined(self.sent(self.message(x), g), g, self.of.sums[:1]), x)
        return replace(g, x=x)


class Matrices(Convolution):
    """NNConv: each edge's features make a matrix for its message, or the edge's type chooses one."""

    def __init__(self, of: Layer, widths: Widths):
        super().__init__(of, widths)
        self.sizes = widths.x, of.width
        self.matrix = network(replace(of, norm="none"), widths.edges, widths.x * of.width) if widths.edges else None
        self.chosen = nn.Parameter(torch.randn(max(1, widths.relations), *self.sizes) / widths.x**0.5)
        self.root = nn.Linear(widths.x, of.width)

    def forward(self, g: Graph) -> Graph:
        weight = self.chosen[g.relation] if self.matrix is None else self.matrix(g.edges).view(-1, *self.sizes)
        messages = torch.matmul(self.sent(g.x, g).unsqueeze(1), weight).squeeze(1)
        return replace(g, x=self.joined(messages, g, self.of.sums[:1]) + self.root(g.x))


KINDS: dict[str, type[Convolution]] = {
    "gcn": GCN,
    "sage": SAGE,
    "gin": GIN,
    "edge": EdgeNetwork,
    "edgeconv": EdgeConv,
    "gat": Attention,
    "gatv2": Attention,
    "transformer": Attention,
    "gated": Gated,
    "crystal": Gated,
    "pna": PNA,
    "relational": Relational,
    "filtered": Filtered,
    "radial": Filtered,
    "equivariant": Equivariant,
    "recurrent": Recurrent,
    "matrices": Matrices,
    "chosen": Matrices,
}
