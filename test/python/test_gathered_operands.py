"""Operands of which more is gathered than registers hold: their rows come into the chain's shared memory as they are
gathered, in the interpreter and in the simulator."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.codegen.ampere import cp_async
from kitsune_mlir.codegen.schedule import gather_rows
from kitsune_mlir.codegen.schedule.part import PartCode
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.errors import UserError
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.schedule_events import Reading
from kitsune_mlir.planning import schedule_proof, target
from kitsune_mlir.schedule import run
from kitsune_mlir.schedule.numeric import rounded
from kitsune_mlir.tools.gpusim import KernelFault
from kitsune_mlir.tools.gpusim.simulation import Simulation

BF16 = torch.bfloat16
GPU = target.load("sm_90a")
WHOLE = {"cut-pipelines": "whole=true"}  # a GPU of few SMs would gather in front of the chain
CHAINED = WHOLE | {"place-stages": "shape=chained tile-rows=128"}


class Edges(nn.Module):
    """Two layers of what edges have, and of rows of several tables."""

    def __init__(self, own, widths, inner, width):
        super().__init__()
        self.first, self.last = nn.Linear(own + sum(widths), inner), nn.Linear(inner, width)

    def forward(self, e, numbers, tables):
        ends = [torch.index_select(table, 0, number) for table, number in zip(tables, numbers, strict=True)]
        return self.last(torch.relu(self.first(torch.cat([e, *ends], 1) if e is not None else torch.cat(ends, 1))))


class Residual(nn.Module):
    """Two layers of rows of two tables, added to those of the first."""

    def __init__(self, width, other):
        super().__init__()
        self.up, self.down = nn.Linear(width + other, 128), nn.Linear(128, width)

    def forward(self, table, other, numbers):
        x = torch.index_select(table, 0, numbers)
        both = torch.cat([x, torch.index_select(other, 0, numbers)], 1)
        return x + self.down(torch.relu(self.up(both)))


def case(own, widths, inner, width, edges, index=torch.int64, dtype=BF16):
    """The model, and arguments with numbers that occur twice."""
    torch.manual_seed(5)
    tables = [torch.randn(edges + 7 * i, columns, dtype=dtype) for i, columns in enumerate(widths)]
    numbers = [torch.randint(0, edges, (edges,), dtype=index) for _ in widths]
    e = torch.randn(edges, own, dtype=dtype) if own else None
    return Edges(own, widths, inner, width).to(dtype).eval(), (e, numbers, tables)


def compiled(model, args, target, options=CHAINED):
    found = kitsune_mlir.compile(model, args, target=target, options=options)
    assert [launch["form"] for launch in found.plan["launches"]] == ["scheduled chain"]
    return found


def is_right(found, model, args):
    e, numbers, tables = args
    with torch.no_grad():
        exact = copy.deepcopy(model).double()
        wanted = exact(None if e is None else e.double(), numbers, [table.double() for table in tables])
    return (found.double() - wanted).norm() <= 6e-3 * wanted.norm()


CASES = [  # what edges have, tables, hidden layer, results, edges, numbers
    (64, (64, 128, 256), 128, 64, 301, torch.int32),
    (0, (256, 128), 128, 64, 129, torch.int64),
    (64, (512,), 256, 128, 3, torch.int64),
    (0, (72, 256, 80), 64, 32, 77, torch.int32),  # rows that end within a box
]


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("own, widths, inner, width, edges, index", CASES)
def test_rows_are_gathered_in_the_kernel(own, widths, inner, width, edges, index, gpu_of):
    model, args = case(own, widths, inner, width, edges, index)
    found = compiled(model, args, gpu_of(2))
    assert found.mlir("small:schedule-chains").count('"kitsune.gather_rows"') == sum(-(-w // 64) for w in widths)
    assert is_right(Simulation(found, seed=3)(*args), model, args)


@pytest.mark.usefixtures("unassembled")
def test_each_cta_of_a_cluster_gathers_all_columns(gpu_of):
    model, args = case(0, (320,), 256, 64, 140)
    found = compiled(model, args, gpu_of(4), WHOLE | {"place-stages": "shape=chained tile-rows=128 cluster=2"})
    assert found.mlir("small:schedule-chains").count('"kitsune.gather_rows"') == 5
    assert is_right(Simulation(found)(*args), model, args)


@pytest.mark.usefixtures("unassembled")
def test_a_residual_of_what_is_gathered_is_gathered_too(gpu_of):
    """Whatever reads the rows beside the product has a gather of its own."""
    torch.manual_seed(6)
    model = Residual(192, 128).to(BF16).eval()
    args = torch.randn(200, 192, dtype=BF16), torch.randn(210, 128, dtype=BF16), torch.randint(0, 200, (150,))
    found = compiled(model, args, gpu_of(2))
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(args[0].double(), args[1].double(), args[2])
    assert (Simulation(found)(*args).double() - wanted).norm() <= 6e-3 * wanted.norm()


@pytest.mark.usefixtures("unassembled")
def test_rows_are_gathered_before_where_there_are_no_warpgroups(gpu_of):
    model, args = case(64, (256, 128), 64, 32, 130)
    found = kitsune_mlir.compile(model, args, target=gpu_of(2, "sm_80"))
    forms = [launch["form"] for launch in found.plan["launches"]]
    assert forms[-1] == "scheduled chain" and set(forms[:-1]) == {"operator"}
    assert is_right(Simulation(found)(*args), model, args)


@pytest.mark.usefixtures("unassembled")
def test_mutants_are_found(gpu_of, monkeypatch):
    """No fence between proxies, no wait for copies, an arrival too many, and one too few."""
    model, args = case(0, (320,), 64, 32, 520)
    small, wait_groups, ends = gpu_of(2), cp_async.wait_groups, PartCode._ends

    def is_found():
        found = compiled(model, args, small)
        try:
            return not is_right(Simulation(found)(*args), model, args)
        except (KernelFault, AssertionError):
            return True

    assert not is_found()
    with monkeypatch.context() as broken:
        broken.setattr(gather_rows.tma, "fence", lambda: None)
        assert is_found()
    with monkeypatch.context() as broken:
        broken.setattr(cp_async, "wait_groups", lambda pending: None)
        assert is_found()
    with monkeypatch.context() as broken:
        broken.setattr(cp_async, "wait_groups", lambda pending: wait_groups(pending + 1))
        assert is_found()
    for more in (1, -1):

        def wrong(self, ring, more=more):
            full, empty = ends(self, ring)
            return full + more * (ring.label == "gathered"), empty

        with monkeypatch.context() as broken:
            broken.setattr(PartCode, "_ends", wrong)
            assert is_found()


@pytest.mark.usefixtures("unassembled")
def test_a_number_out_of_range_is_reported(gpu_of):
    model, args = case(0, (256, 128), 64, 32, 140, torch.int32)
    simulation = Simulation(compiled(model, args, gpu_of(2)))
    for wrong in (140, -1, 2**31 - 1):
        e, numbers, tables = args
        numbers = [numbers[0].clone(), numbers[1]]
        numbers[0][131] = wrong
        with pytest.raises(UserError, match=r"test_gathered_operands\.py:\d+: an index is out of range$"):
            simulation(e, numbers, tables)
            simulation.synchronize()


TEXT = Path(__file__).parents[1] / "passes" / "schedule-chains" / "gathered-operand.mlir"


def edges(count):
    """The module of a chain that gathers an operand, of so many rows, scheduled."""
    module = mlir.parse(TEXT.read_text().replace("40000", str(count)), mlir.context())
    steps = ["partition-dataflow", "design-pipeline", "place-stages", "schedule-chains"]
    pipeline.run(module, [pipeline.make(step, CHAINED.get(step, ""), "sm_90a") for step in steps])
    return module


@pytest.mark.parametrize("seed", range(3))
def test_the_interpreter_agrees(seed):
    module = edges(300)
    (kernel,) = dialect.kernels(module)
    random = np.random.default_rng(seed)
    x, e = (random.integers(-2, 3, size).astype(np.float32) for size in ((500, 320), (300, 128)))
    numbers = random.integers(0, 500, 300)
    w, v = (random.integers(-1, 2, size).astype(np.float32) for size in ((64, 448), (16, 64)))
    w *= random.random(w.shape) < 4 / 448
    v *= random.random(v.shape) < 4 / 64
    bias = random.integers(-2, 3, 64).astype(np.float32)
    (found,) = run(kernel, [x, e, numbers, w, bias, v], ctas=2, seed=seed)
    hidden = np.maximum(np.concatenate([e, x[numbers]], 1) @ w.T + bias, 0)
    np.testing.assert_array_equal(found, rounded(rounded(hidden, "bf16") @ v.T, "bf16"))


def test_the_proof_asks_when_slots_are_committed():
    """A commit of another slot's copies, and commits that stand behind more slots than a ring has beside those that
    warpgroups hold."""
    text = str(edges(40000))
    assert not faults(text)
    commits = re.findall(r'"kitsune.commit"\(%\d+, %\d+\)', text[text.index("kitsune.gather_rows") :])
    swapped = commits[0].partition(",")[0] + "," + commits[1].partition(",")[2]
    (fault,) = faults(text.replace(commits[0], swapped))
    assert "gathered" in fault
    (fault,) = faults(text.replace("tensor<128x64xbf16>, 4 : i64>", "tensor<128x64xbf16>, 3 : i64>"))
    assert "closes a cycle of waits: the acquire of ring 'gathered'" in fault


def faults(text):
    module = mlir.parse(text, mlir.context())
    (kernel,) = dialect.kernels(module)
    return [str(fault) for fault in schedule_proof.verify(Reading(kernel).schedule(), GPU)]


@pytest.mark.usefixtures("unassembled")
def test_numbers_of_rows_that_are_read_twice():
    """Numbers that are repeated for each column are not written, whoever reads them."""

    class Neighbours(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(64, 64) for _ in range(3))

        def forward(self, x, at):
            index = at.view(2, -1, 1).expand(-1, -1, 64)
            k, v = (layer(x).gather(1, index).view(2, 32, 4, 64) for layer in (self.k, self.v))
            return (torch.softmax(self.q(x)[:, :, None] - k, 2) * v).sum(2)

    torch.manual_seed(0)
    model, args = Neighbours().to(BF16), (torch.randn(2, 32, 64).to(BF16), torch.randint(0, 32, (2, 32, 4)))
    compiled = kitsune_mlir.compile(model, args, target="sm_90a")
    assert not re.search("memref<[0-9x]*x64xi64", compiled.mlir("sm_90a:convert-linalg-to-gpu"))
    wanted = model(*args).detach()
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(*args)), wanted, rtol=2e-2, atol=2e-2)
