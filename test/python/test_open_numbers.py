"""Sizes that are open until the call, as numbers that models compute with, on a CPU and in the GPU simulator."""

import math

import pytest
import torch
from decomposed_functions import error
from functions import Function
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.bench.zoo_features import Sine
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.frontend.decompositions import table
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")

BOUNDS = {torch.bfloat16: 1e-2, torch.float32: 1e-6}
PAIRS = [("sm_90a", torch.bfloat16), ("sm_90a", torch.float32), ("sm_80", torch.float32)]


class Counted(nn.Module):
    """Each result by the number of rows, behind a product, in front of one, and alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        count = x.shape[0]
        return torch.relu(self.layer(x)) / count, self.layer(x * count), (x / count).softmax(-1)


class Ends(nn.Module):
    """Nodes with features and places, read at the ends of edges, whose numbers may count from the end."""

    def __init__(self):
        super().__init__()
        self.edge, self.node = nn.Linear(2 * 16 + 2 * 3, 24), nn.Linear(24, 16)

    def forward(self, x, places, ends):
        sender, receiver = ends
        found = torch.cat([x[sender], x[receiver], places[sender], places[receiver]], -1)
        return torch.relu(self.node(torch.relu(self.edge(found))))


def check(model, arguments, shapes, sizes, dtype, gpu):
    torch.manual_seed(0)
    model = model.to(dtype).eval()
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, arguments(*sizes[0]), target=["cpu", gpu], dynamic_shapes=shapes)
        wanted = [[x.double() if x.is_floating_point() else x for x in arguments(*each)] for each in sizes]
        model = model.double()
        for run in (compiled, Simulation(compiled, seed=1)):
            for args in wanted:
                found, exact = run(*(x.to(dtype) if x.is_floating_point() else x for x in args)), model(*args)
                pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (found, exact)), strict=True)
                assert all(error(torch.as_tensor(a), b) <= BOUNDS[dtype] for a, b in pairs)


@pytest.mark.parametrize("like, dtype", PAIRS, ids=str)
def test_counts(dtype, like, gpu_of):
    def arguments(rows):
        return (torch.randn(rows, 16).to(dtype),)

    shapes = ({0: torch.export.Dim("rows", min=2)},)
    check(Counted(), arguments, shapes, ((300,), (5,)), dtype, gpu_of(4, like))


@pytest.mark.parametrize("like, dtype", PAIRS, ids=str)
def test_rows_from_the_end_of_tables_of_any_size(dtype, like, gpu_of):
    def arguments(nodes, edges):
        ends = torch.randint(-nodes, nodes, (2, edges))
        return torch.randn(nodes, 16).to(dtype), torch.randn(nodes, 3).to(dtype), ends

    nodes, edges = torch.export.Dim("nodes", min=2), torch.export.Dim("edges", min=2)
    shapes = ({0: nodes}, {0: nodes}, {1: edges})
    check(Ends(), arguments, shapes, ((20, 600), (50, 3)), dtype, gpu_of(4, like))


def check_images(model):
    """Compares images of open heights and widths with torch."""
    sizes = {2: torch.export.Dim("h", min=2, max=64), 3: torch.export.Dim("w", min=2, max=64)}
    compiled = kitsune_mlir.compile(model, (torch.randn(2, 4, 6, 9),), dynamic_shapes=(sizes,))
    for rows, columns in ((6, 9), (5, 7), (2, 12)):
        x = torch.randn(2, 4, rows, columns)
        for found, wanted in zip(compiled(x), model(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_numbers_that_torch_computes_of_sizes():
    """As real numbers, roots and what is left of them; and pools and norms whose windows are of open sizes."""

    class Model(nn.Module):
        def forward(self, x):
            rows, columns = x.shape[2:]
            scaled = x / math.sqrt(columns) + x * float(rows) ** -0.5, x + columns % 3
            pools = (
                F.adaptive_avg_pool2d(x, (2, 3)),
                F.adaptive_avg_pool1d(x.flatten(2), 4),
                F.adaptive_avg_pool2d(x, 1),
            )
            norms = F.instance_norm(x), F.instance_norm(x, weight=x[0, :, 0, 0], bias=x[0, :, 0, 1])
            return *scaled, *pools, *norms, F.pad(x, (0, -columns % 4))

    check_images(Model())


def test_quantiles_of_open_rows():
    """Apart from `float(size)`, which older versions of torch trace by bytecode alone, and quantiles not so."""

    class Model(nn.Module):
        def forward(self, x):
            return x.flatten(2).quantile(0.3, dim=2), x.quantile(0.9), x.nanquantile(0.5, dim=3)

    check_images(Model())


def test_rules_of_torch_that_hold_for_the_examples_size_only(monkeypatch):
    def halves(x):
        return x.view(2, -1).sum(0) if x.shape[0] == 6 else x

    rules = table() | {torch.ops.aten.sin.default: halves}
    monkeypatch.setattr("kitsune_mlir.frontend.torch_program.table", lambda: rules)
    with pytest.raises(UnsupportedError, match="for open sizes of which Eq.* only"):
        kitsune_mlir.compile(Sine(), (torch.randn(6),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))


def test_sizes_that_are_returned(gpu_of):
    class Model(nn.Module):
        def forward(self, x):
            return {"rows": x.shape[0], "half": x.shape[0] // 2, "columns": x.shape[1], "sums": x.sum(0)}

    shapes = ({0: torch.export.Dim("rows", min=1, max=64)},)
    gpu = gpu_of(4, "sm_90a")
    compiled = kitsune_mlir.compile(Model(), (torch.randn(6, 3),), target=["cpu", gpu], dynamic_shapes=shapes)
    for run in (compiled, Simulation(compiled, seed=1)):
        for rows in (6, 1, 9):
            found = run(torch.randn(rows, 3))
            assert [found["rows"], found["half"], found["columns"]] == [rows, rows // 2, 3]


def test_sums_of_several_sizes():
    """torch.compile has one for what is as long as several tensors together."""

    def function(x, y, z):
        together = torch.cat([x, y, z, x])
        count = torch.sym_sum([x.shape[0], y.shape[0], 3])
        return together.view(-1, 2, 2).sum(1) + together.shape[0], x.new_ones(count, 2)

    args = [torch.randn(n, 4) for n in (5, 6, 7)]
    sizes = (({0: torch.export.Dim.AUTO},) * 3,)
    compiled = kitsune_mlir.compile(Function(function), tuple(args), target="cpu", dynamic_shapes=sizes)
    for counts in ((5, 6, 7), (2, 9, 4)):
        args = [torch.randn(n, 4) for n in counts]
        for found, wanted in zip(compiled(*args), function(*args), strict=True):
            torch.testing.assert_close(found, wanted)


def test_a_size_in_front_of_a_number_that_is_read():
    def scaled(x, count):
        number, size = count.item(), x.shape[1]
        return x * (size * number), x * (size - number), x * (size * 3 * number)

    either = torch.export.Dim.AUTO
    compiled = kitsune_mlir.compile(
        Function(scaled), (torch.randn(4, 5), torch.tensor(3)), dynamic_shapes=(({0: either, 1: either}, None),)
    )
    x, count = torch.randn(3, 6), torch.tensor(4)
    for found, wanted in zip(compiled(x, count), scaled(x, count), strict=True):
        torch.testing.assert_close(found, wanted)
