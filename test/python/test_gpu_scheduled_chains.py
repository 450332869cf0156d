"""Scheduled chains as GPU code: right numbers in the simulator, and nothing that ptxas complains of."""

import json

import numpy as np
import pytest
import torch
from test_schedule_chains import arguments, chain, scheduled
from test_schedule_ptx import check
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import ptxas
from kitsune_mlir.planning import target
from kitsune_mlir.tools.gpusim import Simulation

ALWAYS = {"place-stages": "shape=chained tile-rows=128", "schedule-chains": "when=always"}
FORMS = {
    "two sets of sums, round a loop": (20_000, (256, 256, 256, 256, 8)),
    "whole tiles round a loop": (20_000, (128, 128, 128, 128, 24)),
    "a loop over chunks": (20_000, (640, 144, 72)),
    "a loop over columns": (20_000, (64, 136, 600)),
    "weights that are kept": (60_000, (128, 128, 64)),
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """The path of a description: a GPU of two SMs."""
    fields = json.loads((target.FOLDER / "sm_90a.json").read_text())
    path = tmp_path_factory.mktemp("targets") / "two.json"
    path.write_text(json.dumps(fields | {"name": "two", "sms": 2}))
    return str(path)


@pytest.mark.parametrize(
    "rows, widths",
    [
        (330, (72, 136, 136, 136, 8)),  # two sets of sums, a loop over unfinished tiles, three tiles for two CTAs
        (770, (64, 64, 24)),  # kept weights
        (70, (320, 3, 200)),  # a loop over chunks, rows of no whole 16 bytes, two sets that are stored
    ],
    ids=str,
)
def test_numbers(rows, widths, machine, tmp_path):
    path = tmp_path / "chain.mlir"
    path.write_text(chain(rows, widths))
    compiled = kitsune_mlir.compile(str(path), target=machine, options=ALWAYS)
    assert [launch["form"] for launch in compiled.plan["launches"]].count("scheduled chain") == 1
    given, wanted = arguments(rows, widths)
    found = Simulation(compiled, seed=1)(*(torch.from_numpy(x).bfloat16() for x in given))
    np.testing.assert_array_equal(torch.as_tensor(found).float().numpy(), wanted)


class Beside(nn.Module):
    """Products beside a tile that begins in the middle of a block of columns: the last block goes on behind it."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(200, 16), nn.Linear(200, 13, bias=False)

    def forward(self, x, y):
        return torch.cat([torch.exp(self.left(x)), self.right(x), y], 1) - y[:, 105:106]


def test_columns_behind_a_tile(machine):
    torch.manual_seed(0)
    model, args = Beside().bfloat16(), (torch.randn(300, 200).bfloat16(), torch.randn(300, 200).bfloat16())
    options = ALWAYS | {"cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, args, target=machine, options=options)
    assert "kitsune.kernel" in compiled.mlir("two:schedule-chains")
    found = Simulation(compiled, seed=1)(*args)
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(found), model(*args), rtol=2e-2, atol=2e-2)


@pytest.mark.skipif(ptxas.find() is None, reason="there is no ptxas")
@pytest.mark.parametrize("form", FORMS)
def test_ptxas_has_no_complaint(form):
    (text,) = check(scheduled(chain(*FORMS[form])), target.load("sm_90a"))
    assert "wgmma.wait_group.sync.aligned \t1;" in text or "wgmma.wait_group.sync.aligned 1;" in text
    assert "cp.async.bulk.tensor.2d.global.shared" in text  # tiles leave by tensor copies


def test_row_reductions(machine):
    """Two norms between products, in the simulator; by default such a chain is left a pipeline."""
    torch.manual_seed(0)
    parts = (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 100), nn.LayerNorm(100))
    model, x = nn.Sequential(*parts).bfloat16().eval(), torch.randn(200, 64).bfloat16()
    compiled = kitsune_mlir.compile(model, (x,), target=machine, options=ALWAYS)
    assert "scheduled chain" in {launch["form"] for launch in compiled.plan["launches"]}
    wanted = model(x).detach().float()
    found = torch.as_tensor(Simulation(compiled)(x)).float()
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=4e-2)
    compiled = kitsune_mlir.compile(model, (x,), target=machine, options={"place-stages": "shape=chained"})
    assert "scheduled chain" not in {launch["form"] for launch in compiled.plan["launches"]}
