"""Rows in the order of their receivers (order-rows), whatever order they come in, in the simulator."""

import copy
from pathlib import Path

import pytest
import torch
from test_gpu_graphs import BOUNDS, Messages, graph, run
from torch import nn

import kitsune_mlir
from examples.models import meshgraphnets
from kitsune_mlir.tools.gpusim.simulation import Simulation

ALWAYS = {"order-rows": "when=always"}


def check(simulation, exact, args, bound):
    with torch.no_grad():
        wanted = exact(*(x.double() if x.is_floating_point() else x for x in args))
    for a, b in zip(simulation(*args), wanted, strict=True):
        assert a.shape == b.shape and (a.double() - b).norm() <= bound * b.norm() + 1e-6


@pytest.mark.usefixtures("unassembled")
def test_one_order_for_all_blocks(small_gpu):
    """Edges of two blocks are ordered once, senders and receivers with them; nothing is summed but by stages."""
    torch.manual_seed(1)
    model, args = meshgraphnets(60, 300, 32, 2, torch.bfloat16)
    launches = run(model, args, small_gpu, **ALWAYS)
    kernels = [launch["kernel"] for launch in launches]
    assert [name for name in kernels if name.startswith("order_")] == ["order_count_0", "order_scan_0", "order_place_0"]
    assert not [launch for launch in launches if launch["computes"] == "scatter" or launch["form"] == "copy"]
    assert not [name for name in kernels if name.startswith("gather")]


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype, index", [(torch.bfloat16, torch.int64), (torch.float32, torch.int32)], ids=str)
def test_whatever_order_they_come_in(dtype, index, small_gpu):
    """Compiled once: isolated nodes, a hub, loops, sorted and reversed edges; sums of bf16 and of f32."""
    torch.manual_seed(2)
    model = Messages(32, 16, 32, 48).to(dtype).eval()
    x, e, (senders, receivers) = (
        torch.randn(30, 32, dtype=dtype),
        torch.randn(140, 16, dtype=dtype),
        graph("any", 30, 140),
    )
    args = x, e, senders.to(index), receivers.to(index)
    compiled = kitsune_mlir.compile(model, args, target=small_gpu, options=ALWAYS)
    assert "kitsune.order" in compiled.mlir("order-rows")
    simulation, exact = Simulation(compiled), copy.deepcopy(model).double()
    ordered = torch.sort(receivers)[0]
    graphs = [graph(kind, 30, 140) for kind in ("any", "hub", "few", "loops")]
    for ends in [*graphs, (senders, ordered), (senders, ordered.flip(0))]:
        check(simulation, exact, (x, e, *(end.to(index) for end in ends)), BOUNDS[dtype])


@pytest.mark.usefixtures("unassembled")
def test_open_sizes(small_gpu, tmp_path):
    """A layer whose rows are summed where the second of two ends says, one edge and none among them; a sum of all rows
    and the rows from the last to the first do not see the order. Ends are counted from the end where they are negative.
    """
    _, module, _ = (Path(__file__).parents[1] / "passes/order-rows/spaces.mlir").read_text().split("// -----")
    (path := tmp_path / "ends.mlir").write_text(module)
    simulation = Simulation(kitsune_mlir.compile(str(path), target=small_gpu, options=ALWAYS))
    torch.manual_seed(6)
    weight = torch.randn(16, 16).bfloat16()
    for nodes, edges in ((20, 70), (7, 300), (50, 3), (3, 1), (5, 0)):
        e, ends = torch.randn(edges, 16).bfloat16(), torch.randint(-nodes, nodes, (2, edges))
        sums, total, turned = simulation(torch.zeros(nodes, 16), e, ends, weight)
        y = e.float() @ weight.float().t()
        torch.testing.assert_close(sums, torch.zeros(nodes, 16).index_add(0, ends[1] % nodes, y), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(total, y.sum(0), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(turned, y.flip(0), rtol=1e-3, atol=1e-3)


class Both(nn.Module):
    """Messages that are summed at both ends, compared with all others, and read in another order."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(48, 32), nn.Linear(32, 32)

    def forward(self, x, e, seen, ends, others):
        both = x[seen] + x[(seen + ends[1]) % len(x)]  # an operator of two that are brought in order
        m = self.last(torch.tanh(self.first(torch.cat([e, both], 1))))
        zeros = torch.zeros(len(x), 32, dtype=x.dtype)
        sums = zeros.index_add(0, ends[1], m), zeros.index_put((ends[0],), m.relu(), accumulate=True)
        return *sums, m[others], m @ m.t(), m.mean(0), m


@pytest.mark.usefixtures("unassembled")
def test_what_leaves_the_row_space(small_gpu):
    """Rows that are read are counted from the end as well; one of the ends gives the order."""
    torch.manual_seed(3)
    model, rows = Both().bfloat16().eval(), 150
    ends = torch.randint(-30, 30, (rows,)), torch.randint(0, 30, (2, rows)), torch.randint(0, rows, (40,))
    args = torch.randn(30, 32).bfloat16(), torch.randn(rows, 16).bfloat16(), *ends
    launches = run(model, args, small_gpu, **ALWAYS)
    assert sum("order_place" in launch["kernel"] + launch["computes"] for launch in launches) == 1


class Placed(nn.Module):
    """Sums of a layer's rows, and a function of them."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, e, to, places):
        m = self.layers(e)
        return torch.zeros_like(places).index_add(0, to, m), torch.tanh(m)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "dtype, width", [(torch.bfloat16, 24), (torch.float16, 200), (torch.bfloat16, 512), (torch.float32, 108)], ids=str
)
def test_rows_are_stored_where_they_were(dtype, width, small_gpu):
    """Less than a box, several, of two CTAs, of f32; tiles that end before their last row."""
    torch.manual_seed(7)
    args = torch.randn(300, 32, dtype=dtype), torch.randint(0, 40, (300,)), torch.randn(40, width, dtype=dtype)
    model = Placed(width).to(dtype).eval()
    compiled = kitsune_mlir.compile(model, args, target=small_gpu, options=ALWAYS | {"cut-pipelines": "whole=true"})
    assert "kitsune.place" in compiled.mlir("small:scatter-outputs")
    check(Simulation(compiled), copy.deepcopy(model).double(), args, BOUNDS[dtype])


@pytest.mark.usefixtures("unassembled")
def test_wide_rows_are_brought_in_order_before(small_gpu):
    torch.manual_seed(4)
    args = torch.randn(40, 32).bfloat16(), torch.randn(200, 520).bfloat16(), *graph("any", 40, 200)
    run(Messages(32, 520, 64, 64).bfloat16(), args, small_gpu, **ALWAYS)


@pytest.mark.usefixtures("unassembled")
def test_both_targets():
    """Ordered for the sake of the GPU, the rows are right on a CPU, too."""
    torch.manual_seed(5)
    model, args = meshgraphnets(60, 300, 32, 2, torch.float32)
    compiled = kitsune_mlir.compile(model, args, target=["cpu", "sm_90a"], options=ALWAYS)
    compiled.target = "cpu"
    for found, wanted in zip(compiled(*args), model(*args), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
