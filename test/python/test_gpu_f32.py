"""Chains of f32 on warpgroups, on the stand-in GPU: as tf32, and in full precision."""

import pytest
import torch
from test_gpu_chained import SideBySide, maps_of
from test_gpu_models import check
from test_gpu_pipelines import runner_of
from torch import nn

import kitsune_mlir

pytestmark = pytest.mark.usefixtures("unassembled")

BOUNDS = {"highest": 2e-6, "high": 1e-3}
HEIGHTS = {"highest": 128, "high": 64}  # rows of a tile: two warpgroups', one's


def run(model, args, target, precision, place="", seed=0):
    model = model.eval()
    with torch.no_grad():
        wanted = model.double()(*(x.double() for x in args)).float()
    program, runner, device = runner_of(
        model.float(),
        args,
        target,
        "chained",
        seed=seed,
        tile=0 if place else HEIGHTS[precision],
        place=place,
        precision=precision,
    )
    check(program, runner, args, wanted, BOUNDS[precision])
    assert device.pipeline_launches and maps_of(runner)


def mlp(widths, between=nn.ReLU):
    torch.manual_seed(7)
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.LayerNorm(b) if between is nn.LayerNorm else between()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize(
    "widths, rows, between, precision",
    [
        ((13, 37, 6), 129, nn.SiLU, "high"),
        ((100, 128, 128, 128, 12), 130, nn.LayerNorm, "highest"),
    ],
    ids=str,
)
def test_widths_and_rows(widths, rows, between, precision, small_gpu):
    run(mlp(widths, between), (torch.randn(rows, widths[0]),), small_gpu, precision)


def test_columns_shared_by_a_cluster(small_gpu):
    run(mlp((32, 256, 256)), (torch.randn(9, 32),), small_gpu, "high", "cluster=2")


def test_a_wide_product(small_gpu):
    run(nn.Linear(200, 328), (torch.randn(130, 200),), small_gpu, "high")


class Skip(nn.Module):
    """A tile that waits in shared memory, and one weight for two tiles."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(93, 8)

    def forward(self, x, y):
        kept = torch.relu(self.first(x))
        found = torch.relu(self.second(kept))
        return self.last(torch.cat([y, torch.relu(self.second(found) + kept)], 1))


@pytest.mark.parametrize("precision", BOUNDS)
def test_skip_and_concatenation(precision, small_gpu):
    torch.manual_seed(3)
    run(Skip(), (torch.randn(130, 64), torch.randn(130, 29)), small_gpu, precision)


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("chip", ["sm_90a", "sm_80"])
def test_infinities_and_no_numbers(chip, precision, gpu_of):
    """Of rows and of weights, where they meet zeros, numbers of either sign, with a low part and without, and each
    other: come out where torch has them, and nowhere else."""
    inf, nan = float("inf"), float("nan")
    model, x = mlp((64, 24)).eval(), torch.randn(12, 64)
    w = model[0].weight
    x[::2], x[0, 3], x[2, 5], x[4, 7], x[6, 9] = x[::2].bfloat16(), inf, -inf, nan, 0
    x[8, :2] = torch.tensor([inf, -inf])
    with torch.no_grad():
        w[::2] = w[::2].bfloat16()
        w[0, 3], w[1, 5], w[2, 9], w[3, 11], w[4, 11], w[5, 3] = inf, inf, -inf, inf, nan, 0
        w[6, 20:22], w[7, 5] = inf, -inf
        wanted = model(x)
    program, runner, _ = runner_of(model, (x,), gpu_of(8, chip), "chained", precision=precision)
    found, finite = program_result(program, runner, x), wanted.isfinite()
    assert torch.equal(found.isnan(), wanted.isnan()) and torch.equal(found[wanted.isinf()], wanted[wanted.isinf()])
    assert (found - wanted)[finite].norm() <= BOUNDS[precision] * wanted[finite].norm()


def test_mma_sync_as_tf32(gpu_of):
    """Neither more nor less precise."""
    model, x = mlp((24, 40, 8)).eval(), torch.randn(40, 24)
    with torch.no_grad():
        wanted = model.double()(x.double())
    program, runner, _ = runner_of(model.float(), (x,), gpu_of(8, "sm_80"), "chained", precision="high")
    error = (program_result(program, runner, x) - wanted).norm() / wanted.norm()
    assert 1e-5 < error <= BOUNDS["high"]


def program_result(program, runner, x):
    from test_gpu_models import interface_of

    interface = interface_of(program)
    return interface.flat_results(interface.call(runner, (x,), {}))[0]


@pytest.mark.parametrize(
    "widths, precision",
    [((64, 128, 72), "high"), ((64, 128, 72), "highest"), ((72, 200), "highest"), ((64, 179), "highest")],
    ids=str,
)
def test_long_operands_side_by_side(widths, precision, small_gpu):
    """In full precision the columns behind those of one operand are those of the next."""
    torch.manual_seed(2)
    run(SideBySide(*widths), tuple(torch.randn(70, width) for width in widths), small_gpu, precision)


class Tied(nn.Module):
    """One weight of three products, each too wide to chain with the next."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 256)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


def test_a_weight_of_several_pipelines():
    """What one pipeline has its weight laid out as does not keep the next from it."""
    compiled = kitsune_mlir.compile(Tied().eval(), (torch.randn(16384, 256),), target="sm_90a")
    assert not [declined for declined in compiled.plan["declined"] if declined["operator"] == "kitsune.pipeline"]
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled product"] * 3
