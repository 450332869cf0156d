"""Scheduled chains as GPU code: right numbers in the simulator."""

import copy
import itertools
import re

import numpy as np
import pytest
import torch
from chained import CHAINED, agrees
from test_schedule_chains import arguments, chain, gathering
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.schedule import run
from kitsune_mlir.tools.gpusim import Simulation


@pytest.fixture(scope="module")
def machine(gpu_of):
    """The path of the description of a GPU of two SMs."""
    return gpu_of(2)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "rows, widths, tile_rows",
    [
        (330, (72, 136, 136, 136, 8), 128),  # two sets of sums, a loop over unfinished tiles, three tiles for two CTAs
        (770, (64, 64, 24), 128),  # kept weights
        (70, (320, 3, 200), 128),  # a loop over chunks, rows of no whole 16 bytes, two sets that are stored
        (150, (72, 136, 136, 136, 8), 64),  # one warpgroup
        (300, (64, 330, 330, 330, 8), 128),  # tiles that wait in shared memory, round a loop
        (70, (64, 330, 600), 64),  # one that a loop over columns reads
        (130, (64, 136, 601), 128),  # rows of odd numbers of columns that leave in a loop over columns
    ],
    ids=str,
)
def test_numbers(rows, widths, tile_rows, machine, tmp_path):
    path = tmp_path / "chain.mlir"
    path.write_text(chain(rows, widths))
    options = CHAINED | {"place-stages": f"shape=chained tile-rows={tile_rows}"}
    compiled = kitsune_mlir.compile(str(path), target=machine, options=options)
    assert [launch["form"] for launch in compiled.plan["launches"]].count("scheduled chain") == 1
    given, wanted = arguments(rows, widths)
    found = Simulation(compiled, seed=1)(*(torch.from_numpy(x).bfloat16() for x in given))
    np.testing.assert_array_equal(torch.as_tensor(found).float().numpy(), wanted)


class Skip(nn.Module):
    """A tile that two products read, the second one with another beside it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 40), nn.Linear(40, 64), nn.Linear(104, 24)

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.last(torch.cat([h, torch.relu(self.second(h))], 1))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("tile_rows", [64, 128])
def test_a_tile_that_two_products_read(tile_rows, machine):
    torch.manual_seed(0)
    model, x = Skip().bfloat16(), torch.randn(200, 64).bfloat16()
    options = CHAINED | {"place-stages": f"shape=chained tile-rows={tile_rows}"}
    compiled = kitsune_mlir.compile(model, (x,), target=machine, options=options)
    text = compiled.mlir("small:schedule-chains")
    assert text.count('"kitsune.stow"') == 1 and "kitsune.pipeline" not in text
    agrees(compiled, model, x)


class Joined(nn.Module):
    """A product of two tensors beside each other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(104, 600)

    def forward(self, x, y):
        return torch.relu(self.layer(torch.cat([x, y], 1)))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype, rows", [(torch.bfloat16, 300), (torch.float32, 70)], ids=str)
def test_a_product_alone(dtype, rows, machine):
    """Its columns are dealt out, too."""
    torch.manual_seed(0)
    model, args = Joined().to(dtype), (torch.randn(rows, 64, dtype=dtype), torch.randn(rows, 40, dtype=dtype))
    options = {"place-stages": "shape=chained", "cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, args, target=machine, options=options)
    assert re.search(r"tile = array<i64: (64|128), \d+>", compiled.mlir("small:schedule-chains"))
    agrees(compiled, model, *args)


@pytest.mark.usefixtures("unassembled")
def test_rows_of_more_dimensions(machine):
    """Heads that are loaded apart are one row of columns; frequencies beside each number of a row make one."""

    class Encoded(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3 * 8 + 128, 64), nn.Linear(64, 16)

        def forward(self, x, heads):
            angles = (x[..., None].float() * torch.arange(1, 9)).flatten(1)
            beside = heads.flatten(1)
            return self.last(torch.relu(self.first(torch.cat([torch.sin(angles).to(x.dtype), beside], 1))))

    torch.manual_seed(0)
    model, args = Encoded().bfloat16(), (torch.randn(300, 3).bfloat16(), torch.randn(300, 2, 64).bfloat16())
    compiled = kitsune_mlir.compile(model, args, target=machine)
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled chain"]
    agrees(compiled, model, *args)


class Heads(nn.Module):
    """Rows of heads that leave, and go on to a product."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 256), nn.Linear(256, 64)
        self.scale, self.shift = nn.Parameter(torch.randn(4, 64)), nn.Parameter(torch.randn(64))

    def forward(self, x):
        h = torch.tanh(self.first(x)).unflatten(-1, (4, 64))
        return h * self.scale, self.last(torch.relu(h).flatten(-2)).unflatten(-1, (1, 64)) + self.shift


class OneToken(nn.Module):
    """Sequences of one token, with a norm and a sum along the rows."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 136), nn.LayerNorm(136), nn.Linear(136, 64)

    def forward(self, x):
        h = nn.functional.gelu(self.first(x))
        return torch.softmax(self.last(self.norm(h)), -1) + x, h, h.sum(-1, keepdim=True)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "form, shape", [(Heads, (300, 64)), (Heads, (5, 30, 64)), (OneToken, (150, 1, 64))], ids=["heads", "batch", "token"]
)
def test_rows_of_more_dimensions_that_leave(form, shape, machine):
    torch.manual_seed(0)
    model, x = form().bfloat16(), torch.randn(shape).bfloat16()
    options = {"place-stages": "shape=chained", "cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, (x,), target=machine, options=options)
    assert "kitsune.pipeline" not in compiled.mlir("small:schedule-chains")
    agrees(compiled, model, x)


class Table(nn.Module):
    """Sums of a product in passes that begin with rows of a table."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.table = nn.Linear(64, 512), nn.Linear(512, 1024, bias=False), nn.Embedding(40, 1024)

    def forward(self, x, numbers):
        return torch.relu(self.last(torch.tanh(self.first(x))) + self.table(numbers))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("cluster", [2, 4])
def test_ctas_take_their_columns_of_a_table(cluster, gpu_of):
    torch.manual_seed(0)
    model, args = Table().bfloat16(), (torch.randn(200, 64).bfloat16(), torch.randint(0, 40, (200,)))
    options = {"place-stages": f"shape=chained cluster={cluster}", "cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, args, target=gpu_of(4), options=options)
    agrees(compiled, model, *args)


class Sharing(nn.Module):
    """Equal layers with what they read kept, a norm, and a number a row: tiles of which CTAs have columns each."""

    def __init__(self, width):
        super().__init__()
        self.first, self.layers = nn.Linear(64, width), nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, 1)

    def forward(self, x):
        h = torch.relu(self.first(x))
        for layer in self.layers:
            h = h + torch.relu(layer(h))
        return torch.sigmoid(self.last(self.norm(h)))


def layers(*widths):
    """Layers with an activation behind each."""
    return nn.Sequential(*itertools.chain(*((nn.Linear(*pair), nn.ReLU()) for pair in itertools.pairwise(widths))))


SHARED = {
    "two CTAs": (Sharing(256).bfloat16(), 2, 2e-2),
    "four CTAs": (Sharing(192).bfloat16(), 4, 2e-2),
    "round a loop": (layers(64, 288, 288, 288, 288, 32).bfloat16(), 2, 2e-2),
    "f32": (Sharing(96), 2, 2e-5),
    "in passes of no whole boxes": (layers(64, 64, 704).bfloat16(), 2, 2e-2),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("form", SHARED)
def test_a_cluster_shares_tiles(form, gpu_of):
    """In the simulator, two tiles a cluster, and in the interpreter, whose agents run in random order."""
    torch.manual_seed(5)
    model, ctas, bound = SHARED[form]
    x = torch.randn(150, 64).to(next(model.parameters()).dtype)
    options = {"place-stages": f"shape=chained cluster={ctas}", "cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(
        model.eval(), (x,), target=gpu_of(ctas), options=options, matmul_precision="highest"
    )
    module = compiled.module("small:schedule-chains")
    (kernel,) = dialect.kernels(module)
    assert kernel.cluster == ctas and mlir.walk(kernel, dialect.SEND)
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(x.double())
    given = [*(value.detach().float().numpy() for value in model.parameters()), x.float().numpy()]
    (interpreted,) = run(kernel, given, ctas=4, seed=1)
    for found in (torch.as_tensor(Simulation(compiled, seed=1)(x)), torch.as_tensor(interpreted)):
        assert (found.double() - wanted).norm() <= bound * wanted.norm()


class Waiting(nn.Module):
    """A tile that waits in shared memory for a product in passes, and then for another."""

    def __init__(self):
        super().__init__()
        self.first, self.wide, self.last = nn.Linear(64, 32), nn.Linear(32, 344), nn.Linear(32, 10)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.wide(h), self.last(h)


@pytest.mark.usefixtures("unassembled")
def test_what_waits_for_a_product_in_passes_is_given_back(machine):
    torch.manual_seed(0)
    model, x = Waiting().half(), torch.randn(100, 64).half()
    options = CHAINED | {"place-stages": "shape=chained tile-rows=64", "cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, (x,), target=machine, options=options)
    assert '"kitsune.stow"' in compiled.mlir("small:schedule-chains")
    with torch.no_grad():
        for found, wanted in zip(Simulation(compiled, seed=1)(x), model(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=4e-3, atol=4e-3)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("precision, bound", [("high", 2e-3), ("highest", 2e-6)])
@pytest.mark.parametrize("form", ["streamed", "kept", "round a loop", "stowed"])
def test_f32(form, precision, bound, machine):
    """Products of one tf32 number an element, and of two: in the simulator, and in the interpreter."""
    torch.manual_seed(4)
    widths = {"streamed": (200, 40, 37), "kept": (160, 16, 8), "round a loop": (32, 64, 64, 64, 8)}
    layers = [(nn.Linear(*pair), nn.ReLU()) for pair in itertools.pairwise(widths.get(form, ()))]
    model = nn.Sequential(*itertools.chain(*layers)) if layers else Skip()
    count, tile_rows = 800 if form == "kept" else 150, 64 if form == "streamed" else 128
    x = torch.randn(count, 64 if form == "stowed" else widths[form][0])
    options = CHAINED | {"place-stages": f"shape=chained tile-rows={tile_rows}"}
    compiled = kitsune_mlir.compile(model, (x,), target=machine, options=options, matmul_precision=precision)
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(x.double())
    module = compiled.module("small:schedule-chains")
    (kernel,) = dialect.kernels(module)
    pieces = {op.opview.piece for op in mlir.walk(kernel, dialect.ProductOp.OPERATION_NAME)}
    assert pieces == ({None} if precision == "high" else {"high", "low"})
    (interpreted,) = run(kernel, [*(value.detach().numpy() for value in model.parameters()), x.numpy()], ctas=2)
    for found in (torch.as_tensor(Simulation(compiled, seed=1)(x)), torch.as_tensor(interpreted)):
        assert (found.double() - wanted).norm() <= bound * wanted.norm()


class Edges(nn.Module):
    """Gathered operands, sums that begin with gathered rows, sums at receivers, and an output beside them."""

    def __init__(self, width):
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(16 + 2 * width, 40), nn.Linear(40, 20), nn.LayerNorm(20)

    def forward(self, x, e, senders, receivers):
        rows = torch.cat([e, x[senders], x[receivers]], 1)
        messages = self.norm(self.last(torch.relu(self.first(rows))))
        return torch.zeros(len(x), 20, dtype=x.dtype).index_add(0, receivers, messages), messages


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("tile_rows, width", [(64, 24), (128, 256)])
def test_gathers_and_sums_by_index(tile_rows, width, machine):
    """A chain of a graph network, whose wide rows are multiplied before they are gathered; a second launch begins at
    zero again."""
    torch.manual_seed(3)
    model, nodes, edges = Edges(width).bfloat16().eval(), 30, 150
    ends = torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))
    args = torch.randn(nodes, width).bfloat16(), torch.randn(edges, 16).bfloat16(), *ends
    options = {"place-stages": f"shape=chained tile-rows={tile_rows}"}
    compiled = kitsune_mlir.compile(model, args, target=machine, options=options)
    text = compiled.mlir("small:schedule-chains")
    assert text.count('"kitsune.write_rows"') == 1 and ("{begin," in text) == (width > 200)
    simulation = Simulation(compiled, seed=1)
    wanted = copy.deepcopy(model).double()(*(x.double() if x.is_floating_point() else x for x in args))
    for _ in range(2):
        for found, one in zip(simulation(*args), wanted, strict=True):
            assert (found.double() - one).norm() <= 5e-3 * one.norm()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("tile_rows", [64, 128])
def test_rows_are_asked_for(tile_rows, machine, tmp_path):
    """In the interpreter and in the simulator, of tiles beyond the CTAs' first ones and of a last one of few rows."""
    count = 5 * tile_rows + 10
    path = tmp_path / "edges.mlir"
    path.write_text(gathering(count))
    options = {"place-stages": f"shape=chained tile-rows={tile_rows}"}
    compiled = kitsune_mlir.compile(str(path), target=machine, options=options)
    module = compiled.module("small:schedule-chains")
    (kernel,) = dialect.kernels(module)
    assert str(kernel).count('"kitsune.prefetch"') == 2
    random = np.random.default_rng(0)
    x, e, w, b, v = (
        random.integers(-2, 3, shape).astype(np.float32)
        for shape in ((500, 32), (count, 128), (64, 192), (64,), (16, 64))
    )
    ends = random.integers(0, 500, count), random.integers(-500, 500, count)
    wanted = np.maximum(np.concatenate([e, x[ends[0]], x[ends[1]]], 1) @ w.T + b, 0)
    wanted = torch.from_numpy(torch.from_numpy(wanted).bfloat16().float().numpy() @ v.T).bfloat16()
    (interpreted,) = run(kernel, [x, e, *ends, w, b, v], ctas=2)
    given = [
        torch.from_numpy(one) if one.dtype == np.int64 else torch.from_numpy(one).bfloat16()
        for one in (x, e, *ends, w, b, v)
    ]
    for found in (torch.as_tensor(Simulation(compiled, seed=1)(*given)), torch.as_tensor(interpreted)):
        torch.testing.assert_close(found.float(), wanted.float(), rtol=1e-2, atol=0.5)


@pytest.mark.usefixtures("unassembled")
def test_row_reductions(machine):
    """Two norms between products, in the simulator."""
    torch.manual_seed(0)
    parts = (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 100), nn.LayerNorm(100))
    model, x = nn.Sequential(*parts).bfloat16().eval(), torch.randn(200, 64).bfloat16()
    compiled = kitsune_mlir.compile(model, (x,), target=machine, options=CHAINED)
    assert "scheduled chain" in {launch["form"] for launch in compiled.plan["launches"]}
    wanted = model(x).detach().float()
    found = torch.as_tensor(Simulation(compiled)(x)).float()
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=4e-2)
