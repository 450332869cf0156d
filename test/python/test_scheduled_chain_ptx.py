"""What ptxas is given of scheduled chains: nothing that it complains of."""

import re

import pytest
import torch
from chained import CHAINED
from test_schedule_chains import chain, gathering, scheduled
from test_schedule_ptx import check
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import ptxas
from kitsune_mlir.planning import target

FORMS = {
    "two sets of sums, round a loop": (20_000, (256, 256, 256, 256, 8)),
    "whole tiles round a loop": (20_000, (128, 128, 128, 128, 24)),
    "a loop over chunks": (20_000, (640, 144, 72)),
    "a loop over columns": (20_000, (64, 136, 600)),
    "weights that are kept": (60_000, (128, 128, 64)),
    "tiles that are stowed": (20_000, (64, 384, 384, 384, 8)),
}


@pytest.mark.skipif(ptxas.find() is None, reason="there is no ptxas")
@pytest.mark.parametrize("form, tile_rows", [*((form, 128) for form in FORMS), ("tiles that are stowed", 64)])
def test_ptxas_has_no_complaint(form, tile_rows):
    (text,) = check(scheduled(chain(*FORMS[form]), tile_rows), target.load("sm_90a"))
    assert "wgmma.wait_group.sync.aligned \t1;" in text or "wgmma.wait_group.sync.aligned 1;" in text
    assert "cp.async.bulk.tensor.2d.global.shared" in text  # tiles leave by tensor copies


@pytest.mark.skipif(ptxas.find() is None, reason="there is no ptxas")
def test_ptxas_has_no_complaint_of_who_asks():
    """Warps that copy and warps that ask for rows give up registers together."""
    (text,) = check(scheduled(gathering(40000)), target.load("sm_90a"))
    assert text.count("cp.async.bulk.prefetch.L2") == 2 * 2 and text.count("setmaxnreg") == 2


@pytest.mark.skipif(ptxas.find() is None, reason="there is no ptxas")
@pytest.mark.parametrize("rows, width, columns", [(1000, 352, 64), (4096, 1024, 1024)], ids=str)
def test_ptxas_has_no_complaint_of_tf32(rows, width, columns):
    """A left operand that a loop makes anew in registers is no longer read where the loop's turn ends: ptxas would wait
    for every single product of the loop."""
    model, x = nn.Linear(width, columns), torch.randn(rows, width)
    options = {"place-stages": "shape=chained", "cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a", options=options, matmul_precision="high")
    (ptx,) = (text for text in re.split(r"(?=^\.version)", compiled.ptx, flags=re.MULTILINE) if "wgmma" in text)
    assembled = ptxas.assemble(ptx, target.load("sm_90a"))
    assert not assembled.warnings and not any(info.spill_stores for info in assembled.kernels.values())


@pytest.mark.parametrize("between, kept", [(nn.ReLU, True), (nn.LayerNorm, False)])
def test_equal_layers_that_reduce_rows_stay_a_loop(between, kept):
    """Others' weights stay in shared memory, each layer code of its own."""
    layers = [
        part for _ in range(6) for part in (nn.Linear(64, 64), between(*([64] if between is nn.LayerNorm else [])))
    ]
    x = torch.zeros(100_000, 64).bfloat16()
    compiled = kitsune_mlir.compile(nn.Sequential(*layers).bfloat16(), (x,), target="sm_90a")
    products = compiled.mlir("sm_90a:schedule-chains").count('"kitsune.product"')
    assert products == 6 if kept else products < 6


class Heads(nn.Module):
    """A tile of two sets of sums, and what is made of it."""

    def __init__(self, *widths):
        super().__init__()
        self.trunk = nn.Linear(16, 256)
        self.heads = nn.ModuleList(nn.Linear(256, width, bias=False) for width in widths)

    def forward(self, x):
        x = self.trunk(x)
        return torch.cat([head(x) for head in self.heads], -1)


def test_sums_do_not_take_registers_of_a_tile_that_is_read_again():
    """ptxas made the second head's operand anew out of registers in which the first head's sums were by then."""
    begun = re.compile(r'"kitsune\.sums"\(%\w+, %\w+')  # in the registers of several pieces
    for widths, count in (((128,), 1), ((128, 48), 0)):
        x = torch.zeros(40_000, 16).bfloat16()
        compiled = kitsune_mlir.compile(Heads(*widths).bfloat16(), (x,), target="sm_90a", options=CHAINED)
        assert len(begun.findall(compiled.mlir("sm_90a:schedule-chains"))) == count


class PostNorm(nn.Module):
    """A tile that a layer reads, and is added to what becomes of it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, x):
        x = self.first(x)
        return x + self.third(self.second(x).relu())


def test_nor_of_one_that_is_added_later():
    x, model = torch.zeros(40_000, 64).bfloat16(), PostNorm().bfloat16()
    text = kitsune_mlir.compile(model, (x,), target="sm_90a", options=CHAINED).mlir("sm_90a:schedule-chains")
    assert len(re.findall(r'"kitsune\.sums"\(%\w+', text)) == 1  # the third's, in the second's
