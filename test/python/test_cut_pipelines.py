"""Models whose pipelines are cut compute what torch does: the parts placed for a CPU, and run there."""

import math

import pytest
import torch
from cpu_case import runner
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.codegen import cpu
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import cut_pipelines, pipeline
from kitsune_mlir.planning import target
from kitsune_mlir.tools.gpusim import Simulation


class Branches(nn.Module):
    """A wide tile that three stages and an output want."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.side = nn.Linear(64, 1280), nn.Linear(1280, 1280), nn.Linear(1280, 64)

    def forward(self, x):
        h = torch.relu(self.up(x))
        return self.side(torch.relu(self.down(h)) + h) + x, h


class Turned(nn.Module):
    """Weights of (inputs, outputs), one of them of two products."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.randn(1280, 1280) / 36) for _ in range(2))

    def forward(self, x):
        return torch.relu(torch.relu(x @ self.first) @ self.second) @ self.first


def layers(width):
    return nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(width, width), nn.ReLU())])


CASES = {
    "layers": (lambda: layers(1280), 1280),
    "up-down": (lambda: nn.Sequential(nn.Linear(64, 1280), nn.GELU(), nn.Linear(1280, 64)), 64),
    "branches": (Branches, 64),
    "turned": (Turned, 1280),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_cut_models_agree_with_torch(name, dynamic, monkeypatch):
    monkeypatch.setattr("kitsune_mlir.planning.cut._apart_us", lambda *stage: math.inf)  # no operator by itself
    torch.manual_seed(0)
    make, width = CASES[name]
    model = make().bfloat16()
    # Enough rows that a launch is cheap beside the products.
    x = torch.randn(40 if dynamic else 1024, width, dtype=torch.bfloat16)
    with torch.no_grad():
        wanted = model(x)
    shapes = ({0: torch.export.Dim("rows")},) if dynamic else None
    program = import_model(model, (x,), dynamic_shapes=shapes)
    module = program.module
    for step in ("prepare-linalg", "partition-dataflow", "design-pipeline"):
        pipeline.run(module, [pipeline.make(step)])
    pipeline.run(module, [pipeline.make("cut-pipelines", "", "sm_90a")])
    assert len(mlir.walk(module, "kitsune.pipeline")) > 1
    for step in ("place-stages", "verify-dataflow", "convert-kitsune-to-cpu"):
        pipeline.run(module, [pipeline.make(step)])
    section = cpu.build(module, target.load("cpu"), opt_level=0)
    found = runner(section, [argument.value for argument in program.arguments]).run([x.view(torch.uint16).numpy()])
    for a, b in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        a = torch.from_numpy(a).view(torch.bfloat16).double()
        assert (a - b.double()).norm() <= 2e-2 * b.double().norm()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("rows, apart", [(65, True), (16_384, False)])
def test_layers_of_f32_are_multiplied_in_pieces_where_few_rows_sum_over_many_columns(rows, apart):
    """A chain has too few tiles then, each a long sum; pieces of many rows would go through DRAM."""
    compiled = kitsune_mlir.compile(nn.Linear(1440, 512), (torch.randn(rows, 1440),), target="sm_90a")
    computes = [launch["computes"] for launch in compiled.plan["launches"]]
    assert any("6 pairs of pieces" in one for one in computes) == apart, computes


class Gated(nn.Module):
    """A product whose result is an output and meets its operand."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        y = self.layer(x)
        return y, x * torch.sigmoid(y)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("width", [256, 1024])
def test_a_product_of_two_results_is_a_kernel_of_its_own(width):
    """However wide: as a chain's, its columns would be shared by a cluster of few CTAs."""
    compiled = kitsune_mlir.compile(Gated(width).bfloat16(), (torch.randn(72, width).bfloat16(),), target="sm_90a")
    (launch,) = compiled.plan["launches"]
    assert "columns shared" not in launch["computes"] and launch["ctas"] >= width // 64, launch


@pytest.mark.parametrize("width, apart", [(400, False), (512, True)])
def test_rows_that_registers_do_not_hold_are_normed_by_a_kernel_of_their_own(width, apart):
    """Threads would keep all of a row until it is normed, and spill (H100: 464 columns took 2.5 times as long)."""
    model = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.Linear(64, 192)).bfloat16()
    compiled = kitsune_mlir.compile(model, (torch.zeros(65_536, width).bfloat16(),), target="sm_90a")
    assert [kernel["spill_loads"] for kernel in compiled.plan["kernels"]] == [0] * len(compiled.plan["kernels"])
    assert any(launch["form"] == "scheduled rows" for launch in compiled.plan["launches"]) == apart


class Joined(nn.Module):
    """A wide layer of a tensor beside itself."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(3 * width, 2816, bias=False)

    def forward(self, x):
        return self.layer(torch.cat([x, x, x], -1))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("width, copied", [(504, True), (512, False)])
def test_long_rows_are_made_of_several_where_these_lie_in_the_middle_of_lines(width, copied):
    """Each tile of columns would read each part, and its weights, in twice the lines (H100: 0.59 of torch)."""
    args = (torch.zeros(12_544, width).half(),)
    compiled = kitsune_mlir.compile(Joined(width).half(), args, target="sm_90a")
    assert ([launch["form"] for launch in compiled.plan["launches"]] == ["operator", "scheduled product"]) == copied


class Unrolled(nn.Module):
    """Equal steps of two layers and a skip, every second of which gives its state; then layers too wide to chain."""

    def __init__(self, steps=10):
        super().__init__()
        self.steps = steps
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.wide = nn.Sequential(nn.Linear(32, 1280), nn.ReLU(), nn.Linear(1280, 1280))

    def forward(self, x):
        states = []
        for step in range(self.steps):
            x = x + self.down(torch.tanh(self.up(x) + 0.1 * step))
            states += [x] * (step % 2)
        return *states, self.wide(x)


@pytest.mark.usefixtures("unassembled")
def test_runs_of_equal_form_are_built_once(monkeypatch):
    """An unrolled recurrence of 370 stages took minutes: each run of twelve was built, to ask how it chains."""
    monkeypatch.setattr("kitsune_mlir.planning.cut.MANY_STAGES", 0)
    monkeypatch.setattr("kitsune_mlir.planning.cut.LONG", 4)
    cutter, asked, built = cut_pipelines._Cutter, {}, []
    ask, build = cutter._chains, cutter._chains_built

    def chains(self, first, last):
        asked[first, last] = ask(self, first, last)
        if last - first < 3:
            assert asked[first, last] == build(self, cut_pipelines.Run(first, last))
        return asked[first, last]

    monkeypatch.setattr(cutter, "_chains", chains)
    monkeypatch.setattr(cutter, "_chains_built", lambda self, run: built.append(run) or build(self, run))
    kitsune_mlir.compile(Unrolled().bfloat16(), (torch.zeros(4096, 32).bfloat16(),), target="sm_90a")
    assert len(asked) > 2 * len(built) > 0, (len(asked), len(built))


class UnrolledTwice(nn.Module):
    """A recurrence, and another one behind sorted columns."""

    def __init__(self, times):
        super().__init__()
        self.cells = nn.ModuleList(Unrolled(4) for _ in range(times))

    def forward(self, x):
        for cell in self.cells:
            *_, state, wide = cell(x.sort(0).values)
            x = state + wide[:, : x.shape[1]]
        return x


@pytest.mark.usefixtures("unassembled")
def test_runs_of_equal_pipelines_are_built_once(monkeypatch):
    built, build = [], cut_pipelines._Cutter._chains_built
    monkeypatch.setattr(cut_pipelines._Cutter, "_chains_built", lambda self, run: built.append(run) or build(self, run))
    counts = []
    for times in (1, 2):
        built.clear()
        model = UnrolledTwice(times).bfloat16()
        kitsune_mlir.compile(model, (torch.zeros(1024, 32).bfloat16(),), target="sm_90a")
        counts.append(len(built))
    assert counts[0] == counts[1] > 0


class FirstColumn(nn.Module):
    """The first column of what a layer's halves make of x [rows, 12], which lie 12 columns apart."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(12, 64), nn.Linear(64, 24)

    def forward(self, x):
        mean, scale = self.down(torch.relu(self.up(x))).chunk(2, 1)
        return (x * torch.tanh(scale) + mean)[:, :1]


@pytest.mark.usefixtures("unassembled")
def test_one_column_of_what_other_threads_hold():
    """An autoregressive flow was refused: the one column was taken to be read as such, not as the first of several."""
    torch.manual_seed(0)
    model, x = FirstColumn(), torch.randn(128, 12)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    torch.testing.assert_close(
        torch.as_tensor(Simulation(compiled, seed=1)(x)), model(x).detach(), atol=1e-5, rtol=1e-5
    )
