"""Models of PyTorch Geometric, as users write them: exported, compiled, the same results."""

import re
import warnings
from pathlib import Path

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.tools.gpusim.simulation import Simulation

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pyg = pytest.importorskip("torch_geometric.nn", reason="it is in the extra 'test'")

PAGE = Path(__file__).parents[2] / "docs" / "graphs.md"
LAYERS = {
    "SAGEConv of maxima": lambda: pyg.SAGEConv(16, 32, aggr="max"),
    "GATv2Conv": lambda: pyg.GATv2Conv(16, 8, heads=4),
}
MODELS = {
    "GCN": lambda: pyg.GCN(16, 32, 2, 8),
    "GraphSAGE": lambda: pyg.GraphSAGE(16, 32, 2, 8),
    "GIN": lambda: pyg.GIN(16, 32, 2, 8),
    "GAT": lambda: pyg.GAT(16, 32, 2, 8, heads=4),
}
ON_GPU = ("GAT", "SAGEConv of maxima")


def graph(nodes, edges, kind="any"):
    """Duplicate edges, self loops and isolated nodes among them; all into one node where it is a hub."""
    ends = torch.randint(0, max(1, nodes * 3 // 4), (2, edges))
    ends[:, : edges // 8] = ends[:, edges // 8 : edges // 8 * 2]
    ends[1, edges // 2 : edges // 2 + 3] = ends[0, edges // 2 : edges // 2 + 3]
    if kind == "hub":
        ends[1] = nodes - 1
    return torch.randn(nodes, 16), ends


def check(run, model, args):
    with torch.no_grad():
        torch.testing.assert_close(run(*args), model(*args), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", [*LAYERS, *MODELS])
def test_graphs_of_any_size(name, small_gpu):
    torch.manual_seed(1)
    model = (LAYERS | MODELS)[name]().eval()
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    shapes = {"x": {0: nodes}, "edge_index": {1: edges}}
    targets = ["cpu", small_gpu] if name in ON_GPU else "cpu"
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, graph(37, 150), target=targets, dynamic_shapes=shapes)
    runs = [compiled, Simulation(compiled)] if name in ON_GPU else [compiled]
    for args in (graph(37, 150), graph(20, 90, "hub"), graph(9, 1), graph(3, 0)):
        for run in runs:
            check(run, model, args)


class Edges(pyg.MessagePassing):
    """A network on edges, as users write one: its messages are summed where they are computed."""

    def __init__(self, nodes, edges, width):
        super().__init__(aggr="add")
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2 * nodes + edges, width), torch.nn.SiLU(), torch.nn.Linear(width, nodes)
        )

    def forward(self, x, edge_index, e):
        return x + self.propagate(edge_index, x=x, e=e)

    def message(self, x_i, x_j, e):
        return self.net(torch.cat([x_i, x_j, e], 1))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("open_", [True, False])
def test_messages_are_summed_where_they_are_computed(open_, small_gpu):
    torch.manual_seed(3)
    model = Edges(16, 8, 48).eval()
    nodes, edges = torch.export.Dim("nodes", min=2), torch.export.Dim("edges", min=2)
    shapes = {"x": {0: nodes}, "edge_index": {1: edges}, "e": {0: edges}} if open_ else None

    def args(nodes, edges, kind="any"):
        return *graph(nodes, edges, kind), torch.randn(edges, 8)

    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, args(37, 150), target=["cpu", small_gpu], dynamic_shapes=shapes)
    kernels = [launch["kernel"] for launch in compiled.plans["small"]["launches"]]
    assert "pipeline0" in kernels and not any(kernel.startswith("scatter") for kernel in kernels)
    simulation = Simulation(compiled)
    for sizes in ((37, 150), (20, 90, "hub"), (90, 7), (3, 0))[: 4 if open_ else 1]:
        for run in (compiled, simulation):
            check(run, model, args(*sizes))


@pytest.mark.usefixtures("unassembled")
def test_a_graph_of_one_size_and_weights_of_edges(small_gpu):
    torch.manual_seed(2)
    model, args = MODELS["GCN"]().eval(), (*graph(37, 150), torch.rand(150))
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, args, target=["cpu", small_gpu])
    for run in (compiled, Simulation(compiled)):
        check(run, model, args)


def test_the_example_of_the_page_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(compile(example, "graphs.md", "exec"), {})
