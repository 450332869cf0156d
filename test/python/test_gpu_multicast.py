"""CTAs of a cluster with tiles of their own that load boxes of weights for one another, on the stand-in device."""

import dataclasses
from functools import partialmethod

import pytest
import torch
from test_gpu_chained import maps_of, mlp
from test_gpu_models import check
from test_gpu_pipelines import runner_of
from torch import nn

from kitsune_mlir.codegen.hopper import cluster, tma, waits
from kitsune_mlir.codegen.hopper.mbarrier import Ring
from kitsune_mlir.codegen.pipeline import device as words
from kitsune_mlir.tools.gpusim.faults import Deadlock, MemoryFault

BF16 = torch.bfloat16


def runner(model, rows, target, seed=0, multicast=2, dynamic=False, convert=""):
    """The program, a runner of it, the device, and an input of so many rows."""
    width = next(model.parameters()).shape[1]
    sizes = ({0: torch.export.Dim("rows", min=0)},) if dynamic else None
    args, shape = (torch.randn(rows, width, dtype=BF16),), f"chained multicast={multicast}"
    return *runner_of(model.eval(), args, target, shape, sizes, seed=seed, tile=0, convert=convert), args


def run(model, rows, target, **how):
    program, made, device, args = runner(model, rows, target, **how)
    with torch.no_grad():
        wanted = model(*args)
    for _ in range(2):
        check(program, made, args, wanted, 2e-2)
    assert device.pipeline_launches and maps_of(made)
    return device.described


@pytest.mark.parametrize(
    "widths, rows, multicast",
    [((64, 128, 64), 1, 2), ((64, 256, 64), 385, 2), ((13, 37, 6), 257, 2), ((72, 8, 264), 700, 4)],
    ids=str,
)
def test_chains(widths, rows, multicast, small_gpu):
    """Pieces of boxes beyond the weight too, and rows beyond the last that threads load and store."""
    (launch,) = run(mlp(BF16, widths, nn.SiLU), rows, small_gpu, seed=rows, multicast=multicast)
    assert launch["cluster"] == multicast


def test_the_columns_of_a_wide_product(small_gpu):
    """Row tiles beyond the rows, with every tile of the columns; a loop over the chunks of a streamed operand."""
    (launch,) = run(mlp(BF16, (320, 640), nn.ReLU), 257, small_gpu)
    assert launch["cluster"] == 2


def test_any_number_of_rows(gpu_of):
    torch.manual_seed(1)
    model = mlp(BF16, (64, 128, 128, 128, 24), nn.ReLU)
    program, made, device, _ = runner(model, 130, gpu_of(4), dynamic=True)
    for count in (385, 1, 0, 128, 129, 650):
        x = torch.randn(count, 64, dtype=BF16)
        check(program, made, (x,), model(x).detach(), 2e-2)
    assert device.pipeline_launches == 5


def nothing(*_) -> None:
    """In place of a signal."""


def alone(method):
    """The method, called on a ring that its CTA shares with no other."""
    return lambda ring, *others: method(dataclasses.replace(ring, ctas=1), *others)


def once(emit):
    """The first time alone."""
    calls = iter([emit])
    return lambda: next(calls, nothing)()


def arrive_without_fence(barrier, condition):
    text = "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [$0];"
    with words.when(condition):
        words.assembly(text, "r,~{memory}", [barrier], None)


def to_the_first(map_, at, place, barrier, ctas=0, load=tma.load):
    load(map_, at, place, barrier, ctas and 1)


# What is broken, and what is found. The chain takes more boxes than there are slots.
MUTATIONS = {
    "slots that only the own consumers release": (
        lambda: [(Ring, "init", alone(Ring.init)), (Ring, "release", alone(Ring.release))],
        (MemoryFault, "a copy that lands .* writes what is (read|written)|more bytes land than are expected"),
    ),
    "no release to the other CTA": (
        lambda: [(Ring, "release", alone(Ring.release))],
        (Deadlock, "2 arrivals and 0 bytes are missing"),
    ),
    "a release of nothing": (
        lambda: [(cluster, "remote_arrive", arrive_without_fence)],
        (MemoryFault, "a copy that lands .* writes what is (read|written)"),
    ),
    "a wait for the own CTA": (
        lambda: [(Ring, "wait_empty", partialmethod(Ring.wait_empty, wait=waits.on_barrier))],
        (MemoryFault, "a copy that lands .* writes what is (read|written)"),
    ),
    "boxes for the first CTA alone": (
        lambda: [(tma, "load", to_the_first)],
        (Deadlock, "CTA [13] .* 0 arrivals and 16384 bytes are missing"),
    ),
    "no barrier at the end": (
        lambda: [(cluster, "barrier", once(cluster.barrier))],
        (MemoryFault, "may end before|which ended"),
    ),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", MUTATIONS)
def test_finds_what_is_broken(name, gpu_of, monkeypatch):
    broken, (error, said) = MUTATIONS[name]
    for owner, method, other in broken():
        monkeypatch.setattr(owner, method, other)
    program, made, _, args = runner(mlp(BF16, (64, 256, 256, 64), nn.ReLU), 700, gpu_of(4))
    with pytest.raises(error, match=said):
        check(program, made, args, torch.zeros(700, 64, dtype=BF16), 1)
