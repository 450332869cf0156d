"""The sample models through the plain GPU path: right on a stand-in device, and every kernel assembles."""

import itertools

import numpy as np
import pytest
import torch
from functions import Function
from sample_models import imported

from examples.models import SMALL
from kitsune_mlir.codegen import gpu
from kitsune_mlir.errors import UserError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target
from kitsune_mlir.runtime.executable import Interface
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def compiled(model, args, dynamic_shapes=None):
    """The program, its module after convert-linalg-to-gpu, and its section."""
    return built(import_model(model, args, dynamic_shapes=dynamic_shapes))


def built(program, chip="sm_90a"):
    steps = [pipeline.make("prepare-linalg"), pipeline.make("convert-linalg-to-gpu", "", chip)]
    pipeline.run(program.module, steps)
    return program, gpu.build(program.module, target.load(chip))


def runner_of(program, section):
    device = SimulatedDevice(program.module)
    return GpuRunner(section.manifest, section.files, interface_of(program).constants(), device), device


def interface_of(program):
    return Interface(program.name, program.signature, program.arguments, program.outputs)


def check(program, runner, args, wanted, bound):
    """Calls the model on the device; compares all it returns."""
    interface = interface_of(program)
    found = interface.flat_results(interface.call(runner, args, {}))
    for a, b in zip(found, interface.flat_results(wanted), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        a, b = a.double(), b.double()
        assert (a - b).norm() <= bound * b.norm() + 1e-6, float((a - b).norm() / b.norm())


@pytest.mark.parametrize("name, dtype", list(zip(SMALL, itertools.cycle(BOUNDS))), ids=str)
def test_agrees_with_torch(name, dtype):
    model, args, program = imported(name, dtype)
    with torch.no_grad():
        wanted = model(*args)
    program, section = built(program)
    assert all(kernel["spill_stores"] == 0 for kernel in section.manifest["kernels"])
    runner, _ = runner_of(program, section)
    check(program, runner, args, wanted, BOUNDS[dtype])


@pytest.mark.parametrize("chip", ["sm_80", "sm_89", "sm_100a", "sm_120"])
@pytest.mark.parametrize("name", ["meshgraphnets", "gat"])
def test_assembles_for_other_gpus(name, chip):
    dtype = torch.bfloat16 if chip in ("sm_80", "sm_100a") else torch.float32
    _, section = built(imported(name, dtype)[2], chip)
    assert section.manifest["chip"] == chip
    assert section.files["kernels.cubin"].startswith(b"\x7fELF")


def test_any_number_of_rows():
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(), torch.nn.LayerNorm(7)).eval()
    rows = torch.export.Dim("rows", min=2)
    program, section = compiled(model, (torch.randn(9, 5),), dynamic_shapes=({0: rows},))
    runner, device = runner_of(program, section)
    for count in (9, 300, 2, 9):
        x = torch.randn(count, 5)
        check(program, runner, (x,), model(x).detach(), 1e-5)
    before = device.allocations
    runner.run([np.zeros((9, 5), np.float32)])
    assert device.allocations == before + 2  # one input, one result: plans and arenas are kept


def test_captured_runs_write_the_reserved_results():
    model = torch.nn.Linear(5, 7).eval()
    x = torch.randn(9, 5)
    program, section = compiled(model, (x,))
    runner, device = runner_of(program, section)
    resident = runner.upload([x.numpy()])
    device.captured = True
    with pytest.raises(UserError, match="reserve"):
        runner.launch(resident)
    device.captured = False
    runner.reserve(resident)
    device.captured = True
    first, second = runner.launch(resident)[0], runner.launch(resident)[0]
    assert first.pointer == second.pointer
    np.testing.assert_allclose(second.numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [np.zeros((9, 6), np.float32), np.zeros((9, 5), np.float64), np.zeros(5, np.float32)])
def test_wrong_inputs_are_refused(value):
    program, section = compiled(torch.nn.Linear(5, 7).eval(), (torch.randn(9, 5),))
    runner, _ = runner_of(program, section)
    with pytest.raises(UserError, match=r"input 0 must be f32 \[9, 5\]"):
        runner.run([value])
    with pytest.raises(UserError, match="takes 1 inputs"):
        runner.run([])


LONG = {
    "columns": (lambda x: x.abs().sum(0), (20_000, 16)),
    "all": (lambda x: x.abs().sum(), (3, 7000)),
    "outer and inner": (lambda x: x.abs().sum((0, 2)), (2001, 5, 3)),
    "of 16 bits": (lambda x: x.bfloat16().abs().sum(0), (5000, 7)),
    "read again": (lambda x: x.softmax(0), (5001, 5)),
    "of nothing": (lambda x: x.sum(0), (0, 4)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_reductions_to_few_elements_are_done_in_parts(name):
    function, shape = LONG[name]
    torch.manual_seed(0)
    args = (torch.randn(shape),)
    program, section = compiled(Function(function).eval(), args)
    runner, _ = runner_of(program, section)
    check(program, runner, args, function(*args), 1e-2 if name == "of 16 bits" else 1e-5)
    reductions = [kernel for kernel in section.manifest["kernels"] if "reduce" in kernel["name"]]
    assert len(reductions) == {"read again": 4, "of nothing": 0}.get(name, 2)


@pytest.mark.parametrize("count", [0, 1, 300])
def test_parts_of_a_reduction_whose_length_is_open(count):
    rows = torch.export.Dim("rows", min=0)
    function = Function(lambda x: x.abs().sum(0))
    program, section = compiled(function, (torch.randn(70, 6),), dynamic_shapes=(({0: rows},),))
    runner, _ = runner_of(program, section)
    args = (torch.randn(count, 6),)
    check(program, runner, args, function(*args), 1e-5)
