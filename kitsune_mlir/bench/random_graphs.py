"""Random graph networks by seed: layers as people write them (random_graph_layers.py), graphs of any form, tables of
types and words in front, and nodes, edges or graphs as the answer."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .random_graph_layers import ACTIVATIONS, KINDS, WAYS, Graph, Layer, Widths, norm_of, rows, total

MOST_WORK = {False: 2e11, True: 5e7}  # multiply-adds, about; fewer of f32
MOST_ELEMENTS = {False: 3e7, True: 4e5}  # of the messages of a layer
TYPES, WORDS, COLUMNS = 100, 5_000, 3  # rows of tables of nodes, and how many of the first a node has
_OF_EDGES = ("gcn", "sage", "gin", "edge", "edge", "edge", "edgeconv", "gat", "gatv2", "transformer", "gated", "crystal")
_WITH_MORE = {"pna": "", "relational": "relation", "filtered": "edges", "equivariant": "places"}
_OF_NODES = ("mlp", "sum", "mean", "max", "lengths")  # what becomes of nodes; the last four are pools
_SUMS = (("sum",), ("sum",), ("mean",), ("max",), ("mean", "max"), ("sum", "softmax"), ("mean", "max", "min", "std"))


@dataclass(frozen=True)
class Drawn:
    """What was drawn. `family` says which graphs: "edges" [2, edges], "near" [nodes, k] or "dense" [graphs, n, n]."""

    family: str
    nodes: int
    edges: int
    graphs: int
    form: str  # of edges: "any", "hub", "powers", "bands", "few" receivers
    sorted: bool
    joined_ends: bool  # one edge_index; or senders and receivers apart
    index: torch.dtype
    input: str  # "features"; "types" and "columns": embeddings, the sum of a few; "words": an EmbeddingBag
    widths: Widths
    layers: tuple[Layer, ...]
    output: str  # "nodes", "mlp", "edges": a network of both ends, "dots" of them, or pools of graphs
    dtype: torch.dtype
    open: bool = False  # whether nodes and edges are of any number; of dense graphs, graphs

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments, in order."""
        kinds = {layer.kind for layer in self.layers}
        ends = ("edge_index",) if self.joined_ends else ("source", "target")
        found = {
            "edges": [*ends, *(["edges"] if self.widths.edges else [])],
            "near": ["near"],
            "dense": ["adjacency"],
        }[self.family]
        found += [name for kind, name in _WITH_MORE.items() if kind in kinds and name and name not in found]
        pooled = self.output in _OF_NODES[1:] and self.family != "dense"
        found += ["batch"] if pooled or self.widths.whole else []
        found += ["lengths"] if self.output == "lengths" and pooled else []
        return ("x", *found, *(["whole"] if self.widths.whole else []))


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
    family = rng.choices(("edges", "near", "dense"), (80, 12, 8))[0]
    edges = rng.randint(20, 300) if small else int(math.exp(rng.uniform(math.log(1_000), math.log(200_000))))
    nodes = max(4, int(edges / rng.choice((2, 4, 6, 8, 12, 20, 30))))
    graphs = rng.randint(2, 5) if small else rng.choice((4, 16, 32, 64, 128))
    if family == "dense":
        nodes = rng.randint(5, 20) if small else rng.choice((16, 30, 50, 64, 100, 128, 200))
    elif family == "near":
        edges = rng.choice((3, 4, 8) if small else (4, 8, 10, 16, 20, 32))  # neighbours of each node
    width = _width(rng, small)
    more = rng.choice([*_WITH_MORE]) if rng.random() < 0.35 else ""
    has_edges = more == "filtered" or rng.random() < 0.5
    widths = Widths(
        x=width if rng.random() < 0.5 else _width(rng, small),
        edges=rng.choice((1, 3, 4, 7, 16, 32, width)) if family == "edges" and has_edges else 0,
        whole=rng.choice((4, 16, 32)) if family == "edges" and rng.random() < 0.12 else 0,
        relations=rng.choice((2, 4, 8)) if more == "relational" else 0,
    )
    kinds = {"near": ("near", "edgeconv"), "dense": ("dense",)}.get(family, (more,) if more else _OF_EDGES)
    kind, alike = rng.choice(kinds), rng.random() < 0.7
    first = _layer(rng, kind, width, small)
    layers = [first]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        layers.append(first if alike else replace(_layer(rng, rng.choice(kinds), width, small), way=first.way))
    answers = ("nodes", "nodes", "nodes", *_OF_NODES, *(("edges", "dots") if family == "edges" else ()))
    return Drawn(
        family=family,
        nodes=nodes,
        edges=edges,
        graphs=graphs,
        form=rng.choice(("any", "any", "hub", "powers", "bands", "few")),
        sorted=rng.random() < 0.4,
        joined_ends=rng.random() < 0.6,
        index=torch.int64 if rng.random() < 0.75 else torch.int32,
        input="features" if family == "dense" or rng.random() < 0.65 else rng.choice(("types", "columns", "words")),
        widths=widths,
        layers=tuple(layers),
        output=rng.choice(answers),
        dtype=rng.choice((torch.bfloat16, torch.bfloat16, torch.float16, torch.float32, torch.float32)),
        open=open,
    )


def _layer(rng: random.Random, kind: str, width: int, small: bool) -> Layer:
    norm = rng.choice(("none", "none", "layer", "batch", "rms"))
    sums = rng.choice(_SUMS[-3:] if kind == "pna" else _SUMS)
    return Layer(
        kind=kind,
        width=width,
        hidden=width if rng.random() < 0.6 else min(_width(rng, small), 2 * width),
        depth=rng.choice((1, 2, 2, 3)),
        act=rng.choice([*ACTIVATIONS]),
        norm="none" if norm == "batch" and kind in ("near", "edgeconv") else norm,
        heads=rng.choice((1, 2, 4, 8)),
        sums=sums,
        way=rng.choice(WAYS),
        by_select=rng.random() < 0.5,
        residual=rng.random() < 0.6,
        updates_edges=rng.random() < 0.5,
    )


def _size(of: Drawn) -> tuple[float, float]:
    """Elements of the messages of a layer, and multiply-adds of all, about."""
    messages = {"edges": of.edges, "near": of.nodes * of.edges, "dense": of.graphs * of.nodes}[of.family]
    nodes = of.nodes * (of.graphs if of.family == "dense" else 1)
    widest = max(max(layer.width, layer.hidden) for layer in of.layers)
    work = 0.0
    for layer in of.layers:
        on_edges = layer.kind in ("edge", "edgeconv", "crystal", "pna", "filtered", "equivariant", "near")
        inner = max(layer.width, layer.hidden)
        work += (messages if on_edges else 0) * inner * (2 * layer.width + layer.depth * inner)
        work += nodes * inner * 4 * layer.width * len(layer.sums)
        work += of.graphs * of.nodes**2 * inner if of.family == "dense" else 0
    parts = max(len(layer.sums) for layer in of.layers)
    return max(messages * max(widest, of.widths.x), nodes * widest * 4 * parts * max(1, of.widths.relations)), work


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
        self.layers, width = nn.ModuleList(parts), widths.x
        self.norms = nn.ModuleList(nn.Sequential(*self._after(layer)) for layer in of.layers)
        inputs = 2 * width if of.output == "edges" else width
        self.head = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, 3))

    def _after(self, of: Layer) -> list[nn.Module]:
        """What follows a layer: sums of many messages are normalised, or 16 bits would not hold those of the next."""
        flat = "layer" if of.norm == "none" or self.of.family == "dense" else of.norm
        return [*norm_of(flat, of.width), ACTIVATIONS[of.act]()]

    def forward(self, *args: Tensor) -> Tensor | tuple[Tensor, ...]:
        given = dict(zip(self.of.names, args))
        lengths = given.pop("lengths", None)
        if (ends := given.pop("edge_index", None)) is not None:
            given["source"], given["target"] = ends[0], ends[1]
        g = Graph(**given | {"x": self._features(given["x"])})
        for of, layer, after in zip(self.of.layers, self.layers, self.norms):
            x, g = g.x, layer(g)
            found = after(g.x)
            g = replace(g, x=found + x if of.residual and found.shape == x.shape else found)
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
        if of.output in ("edges", "dots"):
            sent, received = (rows(g.x, index, of.layers[0].by_select) for index in (g.source, g.target))
            return (sent * received).sum(-1) if of.output == "dots" else self.head(torch.cat([sent, received], -1))
        return self.head(self._pool(g, lengths))

    def _pool(self, g: Graph, lengths: Tensor | None) -> Tensor:
        of, way = self.of, self.of.layers[0].way
        if of.family == "dense":
            return {"sum": g.x.sum, "mean": g.x.mean, "max": g.x.amax}.get(of.output, g.x.mean)(1)
        if lengths is not None:
            return torch.segment_reduce(g.x, "sum", lengths=lengths, axis=0, unsafe=True)
        if of.output == "mean":
            count = total(torch.ones_like(g.x[:, :1]), g.batch, of.graphs, way).clamp(min=1)
            return total(g.x, g.batch, of.graphs, way) / count
        return total(g.x, g.batch, of.graphs, way, "amax" if of.output == "max" else "sum")


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
            "features": lambda: floats(*([of.graphs] if of.family == "dense" else []), of.nodes, of.widths.x),
            "types": lambda: numbers(TYPES, of.nodes),
            "columns": lambda: numbers(TYPES, of.nodes, COLUMNS),
            "words": lambda: numbers(WORDS, of.nodes, 8),
        }[of.input](),
        "whole": floats(of.graphs, of.widths.whole),
        "batch": numbers(of.graphs, of.nodes).sort().values,
    }
    found["lengths"] = torch.bincount(found["batch"].long(), minlength=of.graphs)
    if of.family == "near":
        found["near"] = numbers(of.nodes, of.nodes, of.edges)
    elif of.family == "dense":
        near = (torch.rand(of.graphs, of.nodes, of.nodes, generator=generator) < 0.2).to(of.dtype)
        found["adjacency"] = torch.maximum(near, near.transpose(1, 2))
    else:
        found["edge_index"] = ends = _ends(of, generator)
        found |= {"source": ends[0].clone(), "target": ends[1].clone()}
        found |= {"edges": floats(of.edges, of.widths.edges), "places": floats(of.nodes, 3)}
        found["relation"] = numbers(max(1, of.widths.relations), of.edges)
    return tuple(found[name] for name in of.names)


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
    if of.family == "dense":
        graphs = torch.export.Dim("graphs")
        return (tuple({0: graphs} for _ in of.names),)
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    sizes = {"edge_index": {1: edges}} | {name: {0: edges} for name in ("source", "target", "edges", "relation")}
    sizes |= {name: {0: nodes} for name in ("x", "batch", "places", "near")}
    return (tuple(sizes.get(name) for name in of.names),)
