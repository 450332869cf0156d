"""Debug kernels: every wait has a budget; one in vain is reported and ends the kernel (codegen/pipeline/watch.py)."""

import functools

import gpu_steps
import pytest
import test_gpu_pipelines as pipelines
import torch
from functions import Function
from test_gpu_accumulate import Layer, Product, layer_tensors, tensors
from test_gpu_chained import mlp
from test_gpu_models import check
from test_gpu_pipelines import runner_on
from torch import nn

import kitsune_mlir
from examples.models import SMALL
from kitsune_mlir.codegen.hopper import cluster, mbarrier, tma
from kitsune_mlir.codegen.hopper.tile_ring import TileRing
from kitsune_mlir.tools.gpusim.faults import Deadlock

BUDGET = 120


@pytest.fixture(scope="module")
def four_sms(gpu_of):
    """The path of the description of a GPU of four SMs."""
    return gpu_of(4)


@functools.cache
def compiled(budget=0, target="sm_90a"):
    model, args = SMALL["mlp"](torch.bfloat16)[:2]
    options = {"place-stages": "shape=chained"} | gpu_steps.watched(budget)
    return kitsune_mlir.compile(model, args, target=target, options=options)


def test_each_wait_of_a_debug_kernel_of_warpgroups_can_end_it():
    debug = compiled(BUDGET)
    asked = debug.ptx.count("mbarrier.try_wait")
    assert asked and debug.ptx.count("exit;") == debug.ptx.count("cas.b32") == asked
    assert "@!done bra again" not in debug.ptx
    plain = compiled()
    assert plain.ptx.count("@!done bra again") == asked
    assert not any(word in plain.ptx for word in ("exit;", "cas.b32", "barrier.red", "bar.red"))


def test_each_wait_of_a_debug_kernel_of_warps_can_end_it():
    plain, debug = compiled(0, "sm_80"), compiled(BUDGET, "sm_80")
    asked = debug.ptx.count("mbarrier.test_wait")
    assert asked and debug.ptx.count("exit;") == debug.ptx.count("cas.b32") == asked
    assert plain.ptx.count("mbarrier.test_wait") and "exit;" not in plain.ptx


def test_the_runtime_knows_what_a_debug_kernel_waits_for():
    section = compiled(BUDGET, "sm_80")._content.sections["sm_80"]
    watched = section.manifest["pipelines"]["pipeline0"]["launch"]["watched"]
    assert {wait["awaited"].split(":")[0] for wait in watched} >= {
        f"a {slot} slot of the ring of {ring}" for slot in ("free", "full") for ring in ("vectors_bf16", "weights")
    }
    assert all("mlp.py" in wait["location"] for wait in watched)


class Normalised(nn.Module):
    """Products that share tiles and sums of rows in a cluster."""

    def __init__(self, width):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, width), nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return self.norm(self.second(torch.relu(self.first(x))))


def chained(rows=300):
    return mlp(torch.bfloat16, (64, 256, 256, 64), nn.ReLU), (torch.randn(rows, 64, dtype=torch.bfloat16),), "chained"


def shared(rows=300):
    torch.manual_seed(0)
    return Normalised(64).bfloat16(), (torch.randn(rows, 64, dtype=torch.bfloat16),), "chained cluster=2"


def apart(rows=450):
    return mlp(torch.bfloat16, (64, 64, 64), nn.ReLU), (torch.randn(rows, 64, dtype=torch.bfloat16),), "spatial"


def summed():
    return Product(), tensors(450, 64, 192, torch.bfloat16), "chained"


def told():
    """A case in which one tile goes to two products."""
    return Layer(256, 128).bfloat16(), layer_tensors(350, 256, 128, torch.bfloat16), "chained"


def scheduled():
    """A product outside of pipelines, and a row group."""
    torch.manual_seed(0)
    args = torch.randn(2, 200, 640, dtype=torch.bfloat16), torch.randn(2, 640, 128, dtype=torch.bfloat16)
    return Function(lambda x, y: (x @ y).softmax(-1)), args, "auto"


def debug(case, target):
    """The model and its inputs, and the program with debug kernels; a product alone has its sum over k shared."""
    model, args, shape = case
    tile, convert = 128 if shape == "spatial" else 0, gpu_steps.watched(BUDGET) | {"schedule-products": "split-k=4"}
    return model.eval(), args, *pipelines.compiled(model, args, target, shape, tile=tile, convert=convert)


def split(rows=40):
    model, args = nn.Linear(512, 64).bfloat16(), (torch.randn(rows, 512, dtype=torch.bfloat16),)
    return model, args, "auto"


CASES = [scheduled, chained, shared, split, apart, summed, told]


@pytest.mark.parametrize("case", CASES)
def test_a_budget_changes_no_result(case, four_sms, request):
    if case not in (scheduled, shared, apart):  # ptxas is asked of waits on mbarriers, in clusters and on counters
        request.getfixturevalue("unassembled")
    model, args, program, section = debug(case(), four_sms)
    with torch.no_grad():
        wanted = model(*args)
    runner, device = runner_on(program, section)
    for _ in range(2):
        check(program, runner, args, wanted, 2e-2)
    assert all(launch["watched"] for launch in device.described if launch["maps"])


def nothing(*_) -> None:
    """In place of a signal."""


# A signal that is left out, in which kernel, and the reports that may come of it.
HANGS = {
    "slots of a scheduled kernel are not given back": (
        scheduled,
        (mbarrier.Ring, "release"),
        r"CTA \d waits, at tile \d+, for a (free|full) slot of the ring of (left|right): slot \d, parity [01] \(.*\)",
    ),
    "what a scheduled kernel waits for is not copied": (
        scheduled,
        (tma, "load"),
        r"CTA \d waits, at tile \d+, for a (free|full) slot of the ring of left: slot \d, parity [01] \(.*\)",
    ),
    "slots of weights are not given back": (
        chained,
        (mbarrier.Ring, "release"),
        r"CTA \d waits, at tile \d+, for a free slot of the ring of (weights|tiles): slot \d, parity [01] \(.*\)",
    ),
    "a tile is not published": (
        apart,
        (TileRing, "publish"),
        r"for the tile of queue 'q0': its counter is 0, wanted 2 \(.*\.py:\d+\)",
    ),
    "a tile is not released": (
        lambda: apart(1500),
        (TileRing, "release"),
        r"for (a free slot|the tile) of queue 'q\d': its counter is [02], wanted [124] \(.*\.py:\d+\)",
    ),
    "others are not told that a tile was used": (
        shared,
        (cluster, "remote_arrive"),
        r"for a free slot of the ring of sent_1: slot \d, parity [01] \(.*test_wait_budget.py:\d+\)",
    ),
    "a computed tile is not committed": (
        told,
        (mbarrier, "arrive"),
        r"for a (full|free) slot of the ring of (made|load\d|left): slot \d, parity [01] \(.*_accumulate.py:\d+\)",
    ),
    "sums over a part of k are not sent": (
        split,
        (cluster, "send"),
        r"for the other CTAs' sums over their parts of k: ",
    ),
    "a tile is not sent": (
        shared,
        (cluster, "send"),
        r"for a full slot of the ring of sent_1: slot \d, parity [01] \(",
    ),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_reported(name, four_sms, monkeypatch):
    """In any order of warps."""
    case, (owner, method), report = HANGS[name]
    monkeypatch.setattr(owner, method, nothing)
    model, args, program, section = debug(case(), four_sms)
    wanted = model(*args)
    for seed in range(2):
        runner, _ = runner_on(program, section, seed)
        with pytest.raises(Deadlock, match=f"reported: .*{report}"):
            check(program, runner, args, wanted, 1)
