"""Steps of recurrent networks as one kernel: what becomes one, and its numbers in the simulator and the interpreter."""

import re
from collections import Counter

import numpy as np
import pytest
import torch
from kernel_mutants import mutants
from test_gpu_models import check as check_call
from test_gpu_models import interface_of
from test_gpu_schedule_mutants import LOWER, is_found, kind_of
from test_recurrent import ROUNDING, Last, gru, kernels, lstm
from test_schedule_ptx import check as check_ptx
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir, weights
from kitsune_mlir.codegen import gpu
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.schedule_events import Reading
from kitsune_mlir.planning import schedule_proof, step_tiles
from kitsune_mlir.planning import target as targets
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.schedule import Program
from kitsune_mlir.tools.gpusim import Simulation
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

pytestmark = pytest.mark.usefixtures("one_by_one")

ALWAYS = {"gated-products": "steps=always"}
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
GPU = targets.load("sm_90a")


class Ends(nn.Module):
    """What a network's states are behind the last step, of [n, time, width]."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)[1]


class Decoder(nn.Module):
    """A cell whose inputs are computed of its own states, by a layer besides."""

    def __init__(self, width):
        super().__init__()
        self.cell, self.layer = nn.GRUCell(width, width), nn.Linear(width, width)

    def forward(self, x, h):
        for _ in range(3):
            h = self.cell(x, h)
            x = torch.softmax(self.layer(h), -1)
        return h


class Layers(nn.Module):
    """Cells one behind the other, each with weights of its own."""

    def __init__(self, width):
        super().__init__()
        self.cells = nn.ModuleList(nn.GRUCell(width, width) for _ in range(3))

    def forward(self, x, h):
        for cell in self.cells:
            h = cell(x, h)
        return h


class Stepwise(nn.Module):
    """A GRU's cell whose inputs [time, n, 3 * width] have been multiplied, over every so many of them, backwards where
    that is negative, from a state that is given; all states."""

    def __init__(self, width, step):
        super().__init__()
        self.layer, self.step = nn.Linear(width, 3 * width), step

    def forward(self, inputs, h):
        found = []
        for i in range(inputs.shape[0])[:: self.step]:
            a, b, c = inputs[i].chunk(3, -1)
            d, e, f = self.layer(h).chunk(3, -1)
            r, z = torch.sigmoid(a + d), torch.sigmoid(b + e)
            h = (1 - z) * torch.tanh(c + r * f) + z * h
            found.append(h)
        return torch.stack(found)


def compiled(model, args, options=None):
    return kitsune_mlir.compile(model, args, target="sm_90a", options=options or ALWAYS)


def check(got, want, dtype):
    for one, other in zip(got, want, strict=True):
        wanted = other.detach().float()
        torch.testing.assert_close(
            torch.as_tensor(one).float(), wanted, rtol=0, atol=ROUNDING[dtype] * max(1.0, float(wanted.abs().max()))
        )


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    ("make", "size", "dtype", "form"),
    [
        (lambda: lstm(32, 128), (48, 4, 32), BF16, "tensor<16x8xbf16>"),
        (lambda: lstm(24, 64), (70, 4, 24), F16, "tensor<64x8xf16>"),  # the last tile reaches behind the last row
        (lambda: gru(20, 64), (48, 4, 20), F32, "tensor<16x8xbf16>"),
        (lambda: gru(20, 64), (70, 4, 20), F32, "tensor<64x8xbf16>"),
        (lambda: gru(16, 64, num_layers=2), (48, 4, 16), BF16, "tensor<16x8xbf16>"),
        (lambda: Last(nn.RNN(16, 128, batch_first=True)), (32, 3, 16), BF16, "tensor<16x8xbf16>"),  # a product a step
        (lambda: Last(nn.RNN(16, 128, batch_first=True)), (32, 3, 16), F32, "tensor<16x8xbf16>"),
    ],
)
def test_numbers(make, size, dtype, form):
    torch.manual_seed(0)
    model, x = make().to(dtype).eval(), torch.randn(*size).to(dtype)
    program = compiled(model, (x,))
    assert "steps0" in kernels(program)
    assert form in " ".join(re.findall(r'"kitsune.collect".*', program.mlir("sm_90a:gated-products")))
    check([Simulation(program, seed=1)(x)], [model(x)], dtype)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("step", [1, 2, -1])
def test_steps_are_read_and_written_in_any_order(step):
    torch.manual_seed(0)
    dtype = F32 if step == 2 else BF16
    args = torch.randn(1 + 3 * abs(step), 64, 192).to(dtype), torch.randn(64, 64).to(dtype)  # four steps
    model = Stepwise(64, step).to(dtype)
    program = compiled(model, args)
    assert kernels(program).count("steps0") == 1
    check([Simulation(program, seed=2)(*args)], [model(*args)], dtype)


@pytest.mark.usefixtures("unassembled")
def test_states_behind_the_last_step():
    """They leave behind the loop, others nowhere."""
    torch.manual_seed(0)
    model, x = Ends(nn.LSTM(32, 64, batch_first=True)).to(BF16).eval(), torch.randn(64, 6, 32).to(BF16)
    program = compiled(model, (x,))
    assert "steps0" in kernels(program)
    check(Simulation(program, seed=3)(x), model(x), BF16)


class Translator(nn.Module):
    """A decoder that begins with what an encoder of its width ends with."""

    def __init__(self, width):
        super().__init__()
        self.encode, self.decode = (nn.LSTM(16, width, batch_first=True) for _ in range(2))

    def forward(self, x, y):
        return self.decode(y, self.encode(x)[1])[0]


@pytest.mark.usefixtures("unassembled")
def test_steps_that_begin_with_what_others_end_with():
    """Of two kernels the second takes what the first writes, not the operators that it stands for."""
    torch.manual_seed(0)
    model, args = Translator(64).to(BF16).eval(), (torch.randn(64, 4, 16).to(BF16), torch.randn(64, 3, 16).to(BF16))
    program = compiled(model, args)
    assert {"steps0", "steps1"} <= {*kernels(program)}
    check([Simulation(program, seed=1)(*args)], [model(*args)], BF16)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("make", [lambda: Decoder(64), lambda: Layers(64)])
def test_steps_that_are_not_equal(make):
    """Something else stands between them, or their weights differ."""
    torch.manual_seed(0)
    model, args = make().eval(), (torch.randn(64, 64), torch.randn(64, 64))
    program = compiled(model, args)
    assert not any(name.startswith("steps") for name in kernels(program))
    check([Simulation(program, seed=1)(*args)], [model(*args)], F32)


@pytest.mark.usefixtures("unassembled")
def test_widths_that_have_no_such_kernel():
    model, x = gru(20, 72).eval(), torch.randn(64, 5, 20)
    assert "steps0" not in kernels(compiled(model, (x,)))


@pytest.mark.usefixtures("unassembled")
def test_it_is_chosen_by_time():
    """One launch where weights are small, one for each step where each CTA would have much to compute."""
    torch.manual_seed(0)
    x = torch.randn(64, 8, 64).to(BF16)
    small = Last(nn.GRU(64, 128, batch_first=True)).to(BF16).eval()
    assert "steps0" in kernels(kitsune_mlir.compile(small, (x,), target="sm_90a"))
    assert "steps0" not in kernels(compiled(small, (x,), {"gated-products": "steps=never"}))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [BF16, F32])
def test_it_is_proven_and_interpreted(dtype):
    """The kernel alone, agents in random orders."""
    torch.manual_seed(0)
    model, args = Stepwise(64, 1).to(dtype), (torch.randn(5, 64, 192).to(dtype), torch.randn(64, 64).to(dtype))
    module = compiled(model, args).module("sm_90a:gated-products")
    (kernel,) = (op for op in dialect.kernels(module) if op.label == "steps0")
    assert schedule_proof.verify(Reading(kernel).schedule(), GPU) == []
    parameters = [*model.state_dict().values(), *args]
    given = [np.asarray(value.detach().float()) for value in parameters]
    want = model(*args).detach().float()
    for seed in range(2):
        found = Program(kernel).run(given, ctas=2 * kernel.cluster, seed=seed)
        got = torch.as_tensor(np.asarray(found[0], np.float32)).reshape(want.shape)
        torch.testing.assert_close(got, want, rtol=0, atol=ROUNDING[dtype])


def scheduled(model, args, machine):
    """A model's program with its kernels scheduled, those of steps wherever they can be."""
    program = import_model(model, args)
    give(program.module, "highest")
    weights.give(program.module, program.arguments, program.outputs)
    steps = {"prepare-linalg": "", "gated-products": "steps=always", "schedule-products": "", "schedule-rows": ""}
    pipeline.run(program.module, [pipeline.make(name, option, machine) for name, option in steps.items()])
    return program


@pytest.mark.usefixtures("unassembled")
def test_each_broken_instruction_is_found(gpu_of, monkeypatch):
    """But for some that are as good: who gives weights back, which nobody fills again, and the wait for their slots to
    be empty at first; and the fence between proxies behind the wait for what other CTAs have stored."""
    monkeypatch.setattr(step_tiles, "ROWS", (16,))
    monkeypatch.setattr(step_tiles, "COLUMNS", (32,))
    machine = gpu_of(5)  # so that clusters go round
    torch.manual_seed(0)
    model, args = Stepwise(64, 1).to(BF16), (torch.randn(3, 64, 192).to(BF16), torch.randn(64, 64).to(BF16))
    program, want = scheduled(model, args, machine), model(*args).detach()
    module = mlir.parse(str(program.module), mlir.context())
    pipeline.run(module, [pipeline.make(name, "", machine) for name in LOWER])
    section, decoded = gpu.build(module, targets.load(machine)), {}

    def run(seed):
        device = SimulatedDevice(module, seed, decoded)
        runner = GpuRunner(section.manifest, section.files, interface_of(program).constants(), device)
        check_call(program, runner, args, want, 2e-2)

    run(0)
    missed = [one for one in mutants(decoded.values()) if not any(is_found(run, one, seed) for seed in range(2))]
    assert Counter(map(kind_of, missed)) == {
        "arrivals in place of": 1,
        "no arrival": 1,
        "an arrival twice": 1,
        "no wait on an mbarrier": 1,
        "no fence between proxies": 1,
    }


@pytest.mark.parametrize(("dtype", "width"), [(BF16, 256), (F16, 128), (F32, 128), (F32, 256)])
def test_ptxas_has_no_complaint(dtype, width):
    """Neither spills nor products that run one after another."""
    model, args = (
        Stepwise(width, 1).to(dtype),
        (torch.randn(5, 64, 3 * width).to(dtype), torch.randn(64, width).to(dtype)),
    )
    program = scheduled(model, args, "sm_90a")
    assert [kernel.label for kernel in dialect.kernels(program.module)] == ["steps0"]
    check_ptx(program.module, GPU)
