"""Chains that load rows ahead, in the simulator: CTAs with several tiles and with one, copies whose rows end first."""

import copy
import json
import re

import pytest
import torch
from chained import CHAINED
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import ptxas
from kitsune_mlir.planning import target
from kitsune_mlir.tools.gpusim import Simulation


class Nodes(nn.Module):
    """The node network of a graph: sums of another precision, LayerNorm, a residual."""

    def __init__(self, width, sums):
        super().__init__()
        self.first, self.last = nn.Linear(width + sums, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes, sums):
        x = torch.relu(self.first(torch.cat([nodes, sums.to(nodes.dtype)], 1)))
        return nodes + self.norm(self.last(x))


class Scaled(nn.Module):
    """16-bit rows that are computed with before the first product; numbers of f32 behind the last one."""

    def __init__(self, width, more):
        super().__init__()
        self.first, self.last = nn.Linear(width, 64), nn.Linear(64, more)

    def forward(self, x, more):
        return (self.last(torch.relu(self.first(x * torch.sigmoid(x)))) + more).to(x.dtype)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The path of a description: a GPU of two SMs."""
    fields = json.loads((target.FOLDER / "sm_90a.json").read_text())
    path = tmp_path_factory.mktemp("targets") / "two.json"
    path.write_text(json.dumps(fields | {"name": "two", "sms": 2}))
    return str(path)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "model, widths, rows, tile_rows, ahead",
    [
        (Nodes, (128, 128), 1000, 128, 3),  # four tiles of a CTA; the second copy has no rows of the last one
        (Nodes, (64, 32), 330, 128, 3),  # weights that are streamed; the second CTA has a tile less
        (Nodes, (128, 128), 200, 64, 3),  # one warpgroup
        (Nodes, (128, 64), 200, 128, 1),  # a CTA has one tile
        (Scaled, (96, 64), 700, 128, 3),
    ],
    ids=str,
)
def test_numbers(model, widths, rows, tile_rows, ahead, two):
    torch.manual_seed(0)
    made = model(*widths).bfloat16()
    args = torch.randn(rows, widths[0]).bfloat16(), torch.randn(rows, widths[1])
    options = CHAINED | {"place-stages": f"shape=chained tile-rows={tile_rows}"}
    compiled = kitsune_mlir.compile(made, args, target=two, options=options)
    assert compiled.mlir("two:schedule-chains").count("ahead,") == ahead
    found = Simulation(compiled, seed=1)(*args)
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(found), made(*args), rtol=2e-2, atol=2e-2)


def layers(*widths, between=nn.ReLU):
    """Linear layers with `between` behind all but the last."""
    pairs = zip(widths, widths[1:])
    parts = [
        part for a, b in pairs for part in (nn.Linear(a, b), nn.LayerNorm(b) if between is nn.LayerNorm else between())
    ]
    return nn.Sequential(*parts[:-1]).bfloat16()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "widths, between, rows, ahead",
    [
        ((64, 96, 96, 96, 96, 8), nn.ReLU, 1000, 2),  # beside the product behind a loop over layers
        ((96, 64, 64, 64, 64), nn.LayerNorm, 700, 2),
        ((64, 64, 64), nn.SiLU, 330, 2),  # weights that are kept
        ((96, 256, 256, 64), nn.ReLU, 700, 2),  # two sets of sums
        ((40, 64, 64), nn.ReLU, 700, 0),  # rows that threads do not load together
        ((128, 64, 64), nn.ReLU, 700, 0),  # comes through shared memory
        ((64, 64), nn.ReLU, 700, 0),  # nothing beside which it would be loaded
        ((64, 64, 64), nn.ReLU, 200, 0),  # a CTA has one tile
    ],
    ids=str,
)
def test_the_first_operand(widths, between, rows, ahead, two):
    torch.manual_seed(0)
    model, x = layers(*widths, between=between), torch.randn(rows, widths[0]).bfloat16()
    compiled = kitsune_mlir.compile(model, (x,), target=two, options=CHAINED)
    assert compiled.mlir("two:schedule-chains").count("ahead,") == ahead
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        wanted = exact(x.double())
    assert (torch.as_tensor(Simulation(compiled, seed=1)(x)).double() - wanted).norm() <= 2e-2 * wanted.norm()


@pytest.mark.usefixtures("unassembled")
def test_any_number_of_rows(two):
    """Also none, and fewer than there are CTAs for."""
    model, given = Nodes(64, 32).bfloat16(), (torch.randn(300, 64).bfloat16(), torch.randn(300, 32))
    rows = torch.export.Dim("rows")
    compiled = kitsune_mlir.compile(model, given, target=two, options=CHAINED, dynamic_shapes=({0: rows}, {0: rows}))
    assert compiled.mlir("two:schedule-chains").count("ahead,") == 3
    simulated = Simulation(compiled, seed=1)
    for count in (0, 1, 130, 700):
        args = torch.randn(count, 64).bfloat16(), torch.randn(count, 32)
        with torch.no_grad():
            torch.testing.assert_close(torch.as_tensor(simulated(*args)), model(*args), rtol=2e-2, atol=2e-2)


def test_loads_stand_beside_products():
    """They are begun where products are in flight, and stay there: ptxas puts none behind bar.warp.sync. Registers hold
    all of it."""
    model, rows = Nodes(128, 128).bfloat16(), 60_000
    args = torch.randn(rows, 128).bfloat16(), torch.randn(rows, 128)
    compiled = kitsune_mlir.compile(model, args, target="sm_90a", options=CHAINED)
    result = ptxas.assemble(compiled.ptx, target.load("sm_90a"))
    (kernel,) = result.kernels.values()
    assert (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (0, 0, 0) and not result.warnings
    words = r"wgmma\.commit_group|wgmma\.wait_group|ld\.global\.v[24]|bar\.warp\.sync"
    order = " ".join(re.findall(words, compiled.ptx))
    for loads in (" ld.global.v2" * 32, " ld.global.v4" * 8):
        assert order.count(f"wgmma.commit_group{loads} bar.warp.sync wgmma.wait_group") == 1


class Messages(nn.Module):
    """An edge network of a graph: what is summed at nodes leaves before the edges' own rows are added."""

    def __init__(self, width):
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, edges, nodes, receivers):
        messages = self.norm(self.last(torch.relu(self.first(edges))))
        return edges + messages, torch.zeros_like(nodes).index_add(0, receivers, messages)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("width, rows", [(512, 300), (256, 330), (128, 200)])
def test_rows_are_read_around_those_that_leave(width, rows, two):
    """In two halves, where the registers of a product do not hold them: those that a CTA of a cluster has, or all."""
    torch.manual_seed(0)
    model, nodes = Messages(width).bfloat16(), 20
    args = torch.randn(rows, width).bfloat16(), torch.randn(nodes, width).bfloat16(), torch.randint(0, nodes, (rows,))
    compiled = kitsune_mlir.compile(model, args, target=two, options={"place-stages": "tile-rows=128"})
    text = compiled.mlir("two:schedule-chains")
    share = min(width, 256)
    before, behind = text.split('"kitsune.write_rows"')
    halves = [part.count(f"together}} : (tensor<{rows}x{width}xbf16>") for part in (before, behind)]
    assert halves == ([1, 1] if width > 128 else [1, 0])
    assert text.count(f"tensor<64x{share // 2}xbf16>\n") >= 2 * (width > 128)
    found = Simulation(compiled, seed=1)(*args)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        for one, wanted in zip(found, exact(*(x.double() if x.is_floating_point() else x for x in args)), strict=True):
            assert (torch.as_tensor(one).double() - wanted).norm() <= 5e-3 * wanted.norm()


@pytest.mark.parametrize("width", [256, 512])
def test_registers_hold_rows_around_those_that_leave(width):
    model, edges = Messages(width).bfloat16(), 60_000
    args = torch.zeros(edges, width).bfloat16(), torch.zeros(2_000, width).bfloat16(), torch.zeros(edges).long()
    compiled = kitsune_mlir.compile(model, args, target="sm_90a")
    assert compiled.mlir("sm_90a:schedule-chains").count("together}") == 2
    kernels = [kernel for kernel in compiled.plan["kernels"] if kernel["name"].startswith("pipeline")]
    assert [kernel["spill_stores"] for kernel in kernels] == [0]
