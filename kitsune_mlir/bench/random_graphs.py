"""Random graph networks by seed: layers as people write them (random_graph_layers.py, random_graph_dense.py), graphs of
any form, tables of types and words in front, and nodes, edges or graphs as the answer."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from . import random_graph_dense as dense
from . import random_graph_layers as layers
from .random_graph_layers import ACTIVATIONS, Graph, Layer, Widths, norm_of
from .random_graph_sums import WAYS, joined, rows, softmax, total

MOST_WORK = {False: 1e11, True: 5e7}  # multiply-adds, about; a sixth of it in f32
MOST_ELEMENTS = {False: 3e7, True: 4e5}  # of the messages of a layer
TYPES, WORDS, COLUMNS = 100, 5_000, 3  # rows of tables of nodes, and how many of the first a node has
KINDS = {**layers.KINDS, **dense.KINDS}
# Of graphs: edges by number, perhaps shared by several tables of features; neighbours by number; or whole matrices.
_FAMILIES = {"edges": 70, "shared": 6, "near": 9, "dense": 5, "points": 5, "distances": 5}
_OF_FAMILY = {
    "shared": ("gcn", "sage", "gin", "edge", "edgeconv"),
    "near": ("near", "near_network"),
    "dense": ("dense",),
    "points": ("points",),
    "distances": ("graphormer",),
}
_OF_EDGES = (
    "gcn",
    "sage",
    "gin",
    "edge",
    "edge",
    "edge",
    "edgeconv",
    "gat",
    "gatv2",
    "transformer",
    "gated",
    "crystal",
)
_ARGUMENTS = {
    "relational": "relation",
    "filtered": "edges",
    "matrices": "edges",
    "chosen": "relation",
    "equivariant": "places",
    "radial": "places",
    "points": "places",
}
_MORE = ("pna", "relational", "filtered", "matrices", "chosen", "equivariant", "radial", "recurrent")
_POOLS = ("sum", "mean", "max", "lengths", "attention")
_SUMS = (("sum",), ("sum",), ("mean",), ("max",), ("mean", "max"), ("sum", "softmax"), ("mean", "max", "min", "std"))


@dataclass(frozen=True)
class Drawn:
    """What was drawn. Of the families "dense", "points", "distances" and "shared" nodes are [graphs, nodes, width];
    elsewhere `graphs` are those of one batch, whose nodes are [nodes, width]."""

    family: str
    nodes: int
    edges: int  # or neighbours of each node
    graphs: int
    form: str  # of edges: "any", "hub", "powers", "bands", "few" receivers
    sorted: bool
    joined_ends: bool  # one edge_index; or senders and receivers apart
    index: torch.dtype
    input: str  # "features"; "types" and "columns": embeddings, the sum of a few; "words": an EmbeddingBag
    widths: Widths
    layers: tuple[Layer, ...]
    by_graph: bool  # whether each graph's nodes are normalised together (GraphNorm)
    jump: str  # "": the last layer's nodes answer; or those of all layers, "cat" or "max"
    output: str  # "nodes", "mlp", "edges": a network of both ends, "dots" of them, "pairs" of all, or one of _POOLS
    dtype: torch.dtype
    open: bool = False  # whether nodes and edges are of any number; or graphs, where those have a dimension

    @property
    def flat(self) -> bool:
        """Whether nodes are [nodes, width]."""
        return self.family in ("edges", "near")

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments, in order."""
        found = ["x"]
        if self.family in ("edges", "shared"):
            found += ["edge_index"] if self.joined_ends else ["source", "target"]
            found += ["edges"] if self.widths.edges else []
        elif self.family != "points":
            found.append("near" if self.family == "near" else "adjacency")
        found += [_ARGUMENTS[layer.kind] for layer in self.layers if layer.kind in _ARGUMENTS]
        pooled = self.output in _POOLS and self.flat
        found += ["batch"] if pooled or self.widths.whole or self.by_graph else []
        found += ["lengths"] if pooled and self.output == "lengths" else []
        return tuple(dict.fromkeys([*found, *(["whole"] if self.widths.whole else [])]))


def draw(seed: int, small: bool = False, open: bool = False) -> Drawn:
    """The graph network of a seed; a `small` one for the simulator."""
    rng = random.Random(seed)
    while True:
        found = _draw(rng, small, open)
        elements, work = _size(found)
        work *= 6 if found.dtype == torch.float32 else 1
        if elements <= MOST_ELEMENTS[small] and work <= MOST_WORK[small]:
            return found


def _width(rng: random.Random, small: bool) -> int:
    if rng.random() < 0.7:
        return rng.choice((8, 16, 32, 48) if small else (16, 32, 64, 64, 128, 128, 256, 512))
    return rng.randint(3, 50) if small else rng.choice((8, 20, 36, 50, 75, 100, 150, 180, 200, 300, 384))


def _draw(rng: random.Random, small: bool, open: bool) -> Drawn:
    family = rng.choices([*_FAMILIES], [*_FAMILIES.values()])[0]
    edges = rng.randint(20, 300) if small else int(math.exp(rng.uniform(math.log(1_000), math.log(200_000))))
    nodes = max(4, int(edges / rng.choice((2, 4, 6, 8, 12, 20, 30))))
    graphs = rng.randint(2, 5) if small else rng.choice((4, 16, 32, 64, 128))
    if family in ("dense", "points", "distances"):
        nodes = rng.randint(13, 20) if small else rng.choice((16, 30, 50, 64, 100, 128, 200, 512))
    elif family == "near":
        edges = rng.choice((3, 4, 8) if small else (4, 8, 10, 16, 20, 32))
    width = _width(rng, small)
    more = rng.choice(_MORE) if family == "edges" and rng.random() < 0.45 else ""
    has_edges = more in ("filtered", "matrices") or more not in ("chosen", "radial") and rng.random() < 0.5
    widths = Widths(
        x=width if rng.random() < 0.5 else _width(rng, small),
        edges=rng.choice((1, 3, 4, 7, 16, 32, width)) if family in ("edges", "shared") and has_edges else 0,
        whole=rng.choice((4, 16, 32)) if family == "edges" and rng.random() < 0.12 else 0,
        relations=rng.choice((2, 4, 8)) if more in ("relational", "chosen") else 0,
    )
    kinds = _OF_FAMILY.get(family, (more,) if more else _OF_EDGES)
    kind, alike = rng.choice(kinds), rng.random() < 0.7
    first = replace(_layer(rng, kind, width, small, family == "edges"), axis=int(family == "shared"))
    drawn = [first]
    for _ in range(rng.choice((0, 0, 1) if small else (0, 1, 1, 2, 3))):
        other = replace(_layer(rng, rng.choice(kinds), width, small, family == "edges"), way=first.way, axis=first.axis)
        drawn.append(first if alike else other)
    if open:  # torch exports no `bincount` of an open number of nodes
        drawn = [replace(layer, way="index_add") if layer.kind == "gcn" else layer for layer in drawn]
    pools = [pool for pool in _POOLS if family in ("edges", "near") or pool in ("sum", "mean", "max")]
    answers = ["nodes", "nodes", "nodes", "mlp", rng.choice(pools), rng.choice(pools)]
    answers += ["edges", "dots"] if family == "edges" else []
    answers += ["pairs"] if nodes < 3_000 else []
    dtypes = (torch.bfloat16, torch.bfloat16, torch.float16, torch.float32, torch.float32)
    return Drawn(
        family=family,
        nodes=nodes,
        edges=edges,
        graphs=graphs,
        form=rng.choice(("any", "any", "hub", "powers", "bands", "few")),
        sorted=rng.random() < 0.4,
        joined_ends=rng.random() < 0.6,
        index=torch.int64 if rng.random() < 0.75 else torch.int32,
        input=rng.choice(("types", "columns", "words"))
        if family in ("edges", "near") and rng.random() < 0.35
        else "features",
        widths=widths,
        layers=tuple(drawn),
        by_graph=family == "edges" and rng.random() < 0.1,
        jump=rng.choice(("cat", "max")) if len(drawn) > 1 and rng.random() < 0.15 else "",
        output=rng.choice(answers),
        # Which neighbours are near is not the same to all roundings, and f32 would be held to be.
        dtype=rng.choice(dtypes[:3] if family == "points" else dtypes),
        open=open,
    )


def _layer(rng: random.Random, kind: str, width: int, small: bool, flat: bool) -> Layer:
    norm = rng.choice(("none", "none", "layer", "rms", *(["batch"] if flat else [])))
    sums = rng.choice(_SUMS[-3:] if kind == "pna" else _SUMS)
    return Layer(
        kind=kind,
        width=width,
        hidden=width if rng.random() < 0.6 else min(_width(rng, small), 2 * width),
        depth=rng.choice((1, 2, 2, 3)),
        act=rng.choice([*ACTIVATIONS]),
        norm=norm,
        heads=rng.choice((1, 2, 4, 8)),
        sums=sums,
        way=rng.choice(WAYS),
        by_select=rng.random() < 0.5,
        residual=rng.random() < 0.6,
        updates_edges=rng.random() < 0.5,
    )


def _size(of: Drawn) -> tuple[float, float]:
    """Elements of the messages of a layer, and multiply-adds of all, about."""
    nodes = of.nodes * (1 if of.flat else of.graphs)
    messages = {"edges": of.edges, "shared": of.edges * of.graphs, "near": nodes * of.edges}.get(of.family, nodes * 12)
    elements, work = 0.0, 0.0
    for layer in of.layers:
        inner = max(layer.width, layer.hidden, of.widths.x)
        on_edges = layer.kind not in ("gcn", "sage", "gin", "gat", "gatv2", "transformer", "gated", "recurrent")
        work += (messages if on_edges else 0) * inner * (2 * layer.width + layer.depth * inner)
        work += nodes * inner * 4 * layer.width * len(layer.sums)
        work += 0 if of.flat else nodes * of.nodes * inner
        elements = max(elements, messages * inner, nodes * inner * 4 * len(layer.sums) * max(1, of.widths.relations))
        if layer.kind in ("matrices", "chosen"):
            elements = max(elements, messages * of.widths.x * layer.width)
            work += messages * of.widths.x * layer.width * max(1, layer.hidden)
    across = nodes * of.nodes * (0 if of.flat and of.output != "pairs" else of.layers[0].heads)
    return max(elements, across), work


def graph_norm(x: Tensor, batch: Tensor, graphs: int, way: str) -> Tensor:
    """torch_geometric's GraphNorm, without weights."""
    away = x - joined(x, batch, graphs, "mean", way)[batch]
    return away / (joined(away * away, batch, graphs, "mean", way) + 1e-5).sqrt()[batch]


class GraphNetwork(nn.Module):
    """The network that was drawn; its arguments are those of `names`."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.of = of
        widths, parts = of.widths, []
        self.table = nn.Embedding(TYPES, widths.x) if of.input in ("types", "columns") else None
        self.words = nn.EmbeddingBag(WORDS, widths.x, mode="mean") if of.input == "words" else None
        for layer in of.layers:
            parts.append(KINDS[layer.kind](layer, widths))
            widths = replace(widths, x=layer.width)
        self.layers = nn.ModuleList(parts)
        self.norms = nn.ModuleList(nn.Sequential(*self._after(layer)) for layer in of.layers)
        width = widths.x * (len(of.layers) if of.jump == "cat" else 1)
        self.gate = nn.Linear(width, 1)
        inputs = 2 * width if of.output == "edges" else width
        self.head = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 3))

    def _after(self, of: Layer) -> list[nn.Module]:
        """What follows a layer: sums of many messages are normalised, or 16 bits would not hold those of the next."""
        kind = of.norm if of.norm != "none" and self.of.flat else "layer"
        return [*norm_of(kind, of.width), ACTIVATIONS[of.act]()]

    def forward(self, *args: Tensor) -> Tensor | tuple[Tensor, ...]:
        given = dict(zip(self.of.names, args))
        lengths = given.pop("lengths", None)
        if (ends := given.pop("edge_index", None)) is not None:
            given["source"], given["target"] = ends[0], ends[1]
        g = Graph(**given | {"x": self._features(given["x"])})
        made = []
        for of, layer, after in zip(self.of.layers, self.layers, self.norms):
            x, g = g.x, layer(g)
            found = graph_norm(g.x, g.batch, self.of.graphs, of.way) if self.of.by_graph else g.x
            found = after(found)
            g = replace(g, x=found + x if of.residual and found.shape == x.shape else found)
            made.append(g.x)
        if self.of.jump:
            g = replace(g, x=torch.cat(made, -1) if self.of.jump == "cat" else torch.stack(made, -1).amax(-1))
        found = self._answer(g, lengths)
        updated = g.edges is not None and g.edges is not given.get("edges")
        return (found, g.edges) if updated and self.of.output == "nodes" else found

    def _features(self, x: Tensor) -> Tensor:
        if self.words is not None:
            return self.words(x)
        if self.table is None:
            return x
        return self.table(x).sum(1) if self.of.input == "columns" else self.table(x)

    def _answer(self, g: Graph, lengths: Tensor | None) -> Tensor:
        of = self.of
        if of.output == "nodes":
            return g.x
        if of.output == "mlp":
            return self.head(g.x)
        if of.output == "pairs":
            return (g.x @ g.x.transpose(-1, -2) / g.x.shape[-1]).sigmoid()
        if of.output in ("edges", "dots"):
            sent, received = (rows(g.x, index, of.layers[0].by_select) for index in (g.source, g.target))
            return (sent * received).sum(-1) if of.output == "dots" else self.head(torch.cat([sent, received], -1))
        return self.head(self._pool(g, lengths))

    def _pool(self, g: Graph, lengths: Tensor | None) -> Tensor:
        of, way = self.of, self.of.layers[0].way
        if not of.flat:
            return {"sum": g.x.sum, "mean": g.x.mean, "max": g.x.amax}[of.output](1)
        if of.output == "lengths":
            return torch.segment_reduce(g.x, "sum", lengths=lengths, axis=0, unsafe=True)
        if of.output == "attention":
            return total(g.x * softmax(self.gate(g.x), g.batch, of.graphs, way), g.batch, of.graphs, way)
        return joined(g.x, g.batch, of.graphs, of.output, way)


def build(of: Drawn, seed: int) -> GraphNetwork:
    """The network with the weights of a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GraphNetwork(of).to(of.dtype).eval()


def make(seed: int, small: bool = False, open: bool = False) -> tuple[nn.Module, tuple[Any, ...]]:
    """The module of a seed, and its arguments."""
    of = draw(seed, small, open)
    return build(of, seed), arguments(of, seed)


def arguments(of: Drawn, seed: int) -> tuple[Tensor, ...]:
    """Arguments for what was drawn."""
    generator = torch.Generator().manual_seed(seed)

    def floats(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator).to(of.dtype)

    def numbers(most: int, *sizes: int) -> Tensor:
        return torch.randint(most, sizes, generator=generator).to(of.index)

    found = {
        "x": {
            "features": lambda: floats(*_tables(of), of.nodes, of.widths.x),
            "types": lambda: numbers(TYPES, of.nodes),
            "columns": lambda: numbers(TYPES, of.nodes, COLUMNS),
            "words": lambda: numbers(WORDS, of.nodes, 8),
        }[of.input](),
        "whole": floats(of.graphs, of.widths.whole),
        "batch": numbers(of.graphs, of.nodes).sort().values,
    }
    found["lengths"] = torch.bincount(found["batch"].long(), minlength=of.graphs)
    match of.family:
        case "near":
            found["near"] = numbers(of.nodes, of.nodes, of.edges)
        case "dense":
            near = (torch.rand(of.graphs, of.nodes, of.nodes, generator=generator) < 0.2).to(of.dtype)
            found["adjacency"] = torch.maximum(near, near.transpose(1, 2))
        case "distances":
            found["adjacency"] = numbers(dense.DISTANCES, of.graphs, of.nodes, of.nodes)
        case "points":
            found["places"] = floats(of.graphs, of.nodes, 3)
        case _:
            found["edge_index"] = ends = _ends(of, generator)
            found |= {"source": ends[0].clone(), "target": ends[1].clone()}
            found |= {"edges": floats(*_tables(of), of.edges, of.widths.edges), "places": floats(of.nodes, 3)}
            found["relation"] = numbers(max(1, of.widths.relations), of.edges)
    return tuple(found[name] for name in of.names)


def _tables(of: Drawn) -> list[int]:
    return [] if of.flat else [of.graphs]


def _ends(of: Drawn, generator: torch.Generator) -> Tensor:
    """[2, edges] with loops, equal edges and nodes without edges; in the order of receivers where they are sorted."""
    draws = torch.rand(2, of.edges, generator=generator)
    ends = (draws * of.nodes).long()
    match of.form:
        case "hub":  # a fifth of all edges
            ends[1, torch.rand(of.edges, generator=generator) < 0.2] = of.nodes // 2
        case "powers":
            ends = (draws**3 * of.nodes).long()
        case "bands":
            ends[0] = (ends[1] + (draws[0] * 20).long() - 10) % of.nodes
        case "few":
            ends[1] = (draws[1] * max(1, of.nodes // 10)).long()
    if of.sorted:
        ends = ends[:, ends[1].argsort(stable=True)]
    return ends.to(of.index)


def open_sizes(of: Drawn) -> tuple[dict[int, Any] | None, ...] | None:
    """torch.export's `dynamic_shapes` of what was drawn."""
    if not of.open:
        return None
    if not of.flat:
        ends = ("edge_index", "source", "target")  # the same for all graphs
        graphs = torch.export.Dim("graphs")
        return (tuple(None if name in ends else {0: graphs} for name in of.names),)
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    sizes = {"edge_index": {1: edges}} | {name: {0: edges} for name in ("source", "target", "edges", "relation")}
    sizes |= {name: {0: nodes} for name in ("x", "batch", "places", "near")}
    return (tuple(sizes.get(name) for name in of.names),)
