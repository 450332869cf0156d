"""Calls with torch tensors on the GPU: one plan for many calls, results of torch's allocator, stream capture. Here
torch's tensors are on the CPU, and said to be on the GPU that stands in."""

import threading
import types

import numpy as np
import pytest
import test_gpu_pipelines
import torch
from test_gpu_models import compiled, interface_of
from test_gpu_pipelines import runner_of

from kitsune_mlir.errors import UserError
from kitsune_mlir.runtime import gpu
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float64: "f64", torch.int64: "i64"}


class TorchDevice(SimulatedDevice):
    """`made` are the tensors of torch.empty, by their addresses."""

    def __init__(self, module, seed=0):
        super().__init__(module, seed)
        self.made = {}
        self.current = 0

    def adopt(self, tensor):
        """A tensor that kernels may use."""
        content = tensor.detach().reshape(-1).view(torch.uint8).numpy()
        self.add(types.SimpleNamespace(pointer=tensor.data_ptr(), bytes=content))
        return tensor

    def array(self, value, stream):
        if not isinstance(value, torch.Tensor):
            return None
        return value.data_ptr(), tuple(value.shape), DTYPES[value.dtype], value

    def torch_stream(self):
        return self.current


@pytest.fixture
def call(monkeypatch, small_gpu):
    """call(model, args, ...) gives a callable model and its device."""

    def make(model, args, dynamic_shapes=None, pipelines=False):
        if pipelines:
            monkeypatch.setattr(test_gpu_pipelines, "SimulatedDevice", TorchDevice)
            program, runner, stand_in = runner_of(model, args, small_gpu, "spatial")
            interface = interface_of(program)
        else:
            program, section = compiled(model, args, dynamic_shapes=dynamic_shapes)
            interface, stand_in = interface_of(program), TorchDevice(program.module)
            runner = GpuRunner(section.manifest, section.files, interface.constants(), stand_in)
        real = torch.empty

        def empty(*shape, dtype, device=None):
            assert device == torch.device("cuda", 0)
            tensor = stand_in.adopt(real(*shape, dtype=dtype).view(torch.uint8).fill_(0xFF).view(dtype))
            stand_in.made[tensor.data_ptr()] = tensor  # not freed, so that no two have one address
            return tensor

        monkeypatch.setattr(torch, "empty", empty)
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True), raising=False)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: stand_in.captured)
        return lambda *values: interface.call(runner, values, {}), stand_in, runner

    return make


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_steady_caller_allocates_results_alone(call, monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3)).eval()
    run, device, _ = call(model, (torch.randn(9, 5),))
    first = device.adopt(torch.randn(9, 5))
    close(run(first), model(first).detach())
    plans, checks = [], []
    monkeypatch.setattr(gpu, "make_plan", lambda *args: plans.append(args))
    monkeypatch.setattr("kitsune_mlir.runtime.arrays.check", lambda *args: checks.append(args))
    before, made = device.allocations, len(device.made)
    for _ in range(3):
        x = device.adopt(torch.randn(9, 5))
        y = run(x)
        close(y, model(x).detach())
        assert y.data_ptr() in device.made
    assert not plans and not checks
    assert device.allocations - before == 6 and len(device.made) - made == 3  # an input and a result a call


@pytest.mark.parametrize("wrong", [torch.zeros(9, 6), torch.zeros(9, 5, dtype=torch.float64), torch.zeros(45)])
def test_wrong_inputs_are_refused_at_every_call(call, wrong):
    model = torch.nn.Linear(5, 7).eval()
    run, device, _ = call(model, (torch.randn(9, 5),))
    x = device.adopt(torch.randn(9, 5))
    for _ in range(2):
        run(x)
        with pytest.raises(UserError, match="input 'input' must"):
            run(wrong)


def test_a_tensor_that_is_not_dense(call):
    model = torch.nn.Linear(5, 7).eval()
    run, device, _ = call(model, (torch.randn(9, 5),))
    dense = device.adopt(torch.randn(9, 5))
    close(run(dense), model(dense).detach())
    contiguous = torch.Tensor.contiguous
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "contiguous", lambda self: device.adopt(contiguous(self)))
        x = torch.randn(5, 9).T
        close(run(x), model(x).detach())


def test_an_input_on_the_host_among_others(call):
    class Sum(torch.nn.Module):
        def forward(self, a, b):
            return (a * b).sum(0)

    run, device, _ = call(Sum(), (torch.randn(6, 4), torch.randn(6, 4)))
    a, b = device.adopt(torch.randn(6, 4)), np.random.default_rng(0).random((6, 4), np.float32)
    for _ in range(2):
        close(run(a, b), (a * torch.from_numpy(b)).sum(0))
    device.captured = True
    with pytest.raises(UserError, match="an input on the host cannot be captured"):
        run(a, b)


def test_a_capture_needs_no_reserve(call):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3)).eval()
    rows = torch.export.Dim("rows", min=2)
    run, device, _ = call(model, (torch.randn(9, 5),), dynamic_shapes=({0: rows},))
    run(device.adopt(torch.randn(9, 5)))
    device.captured, device.current = True, 7  # another stream, and new sizes: SimulatedDevice allows no allocation
    for count in (9, 4):
        x, other = device.adopt(torch.randn(count, 5)), device.adopt(torch.randn(count, 5))
        y, z = run(x), run(other)
        assert y.data_ptr() != z.data_ptr()
        close(y, model(x).detach())
        close(z, model(other).detach())


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


@pytest.mark.parametrize("reserved", [False, True])
def test_a_captured_pipeline_has_a_workspace_of_its_own(call, reserved):
    model, rows = Mlp().eval().bfloat16(), torch.randn(64, 64, dtype=torch.bfloat16)
    run, device, runner = call(model, (rows,), pipelines=True)
    x = device.adopt(rows)
    torch.testing.assert_close(run(x), model(x).detach(), rtol=2e-2, atol=2e-2)
    zeroed = []
    zero = device.zero
    device.zero = lambda pointer, nbytes, stream: (zeroed.append(nbytes), zero(pointer, nbytes, stream))
    if reserved:
        runner.reserve([x], 7)
    device.captured, device.current = True, 7
    launches = device.pipeline_launches
    torch.testing.assert_close(run(x), model(x).detach(), rtol=2e-2, atol=2e-2)
    assert device.pipeline_launches == launches + 1
    assert len(zeroed) == 1 and zeroed[0] > 0  # by reserve, or in the capture


def test_two_threads(call):
    model = torch.nn.Linear(5, 7).eval()
    run, device, _ = call(model, (torch.randn(9, 5),))
    inputs = [device.adopt(torch.randn(9, 5)) for _ in range(8)]
    found = {}

    def work(part):
        for i in part:
            found[i] = run(inputs[i])

    threads = [threading.Thread(target=work, args=(part,)) for part in (range(0, 8, 2), range(1, 8, 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, x in enumerate(inputs):
        close(found[i], model(x).detach())
