"""Results that torch returns as views of one tensor, or of an input, are that on a GPU too: no kernel copies them."""

import numpy as np
import pytest
import torch
from test_gpu_models import compiled, runner_of
from test_torch_call import call, close  # noqa: F401

import kitsune_mlir
from kitsune_mlir.errors import InternalError
from kitsune_mlir.planning import target
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.tools.gpusim import Simulation


class Returns(torch.nn.Module):
    """Results are what `views` makes of the input and of a tensor that is computed."""

    def __init__(self, views):
        super().__init__()
        self.views, self.scale = views, torch.nn.Parameter(torch.rand(12) + 1)

    def forward(self, x):
        return self.views(x, torch.cos(x) * self.scale)


def kernels_of(section):
    return [kernel["name"].rpartition("_")[0] for kernel in section.manifest["kernels"]]


def run(views, rows=6, dynamic=False):
    """What torch returns, what the model returns on the device that stands in, the memory of its input, its kernels and
    copies."""
    model, x = Returns(views).eval(), torch.randn(rows, 12)
    shapes = ({0: torch.export.Dim("rows")},) if dynamic else None
    program, section = compiled(model, (torch.randn(5, 12) if dynamic else x,), dynamic_shapes=shapes)
    runner, device = runner_of(program, section)
    given = runner.upload([x.numpy()])
    copies, copy = [], device.copy
    device.copy = lambda *args: (copies.append(args), copy(*args))
    found = runner.launch(given)
    with torch.no_grad():
        wanted = model(x)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    return wanted, found, (x, given[0]), kernels_of(section) + ["copy"] * len(copies)


def strides_of(tensor):
    return tensor.strides or tuple(int(np.prod(tensor.shape[d + 1 :])) for d in range(len(tensor.shape)))


def assert_laid_out_alike(wanted, found, inputs):
    """Strides and offsets are torch's, and results share memory where torch's do."""
    owners = {inputs[0].untyped_storage().data_ptr(): inputs[1].memory}
    for a, b in zip(wanted, found, strict=True):
        memory = owners.setdefault(a.untyped_storage().data_ptr(), b.memory)
        assert b.memory is memory
        assert strides_of(b) == a.stride()
        assert b.pointer - memory.pointer == 4 * a.storage_offset()
    assert len(set(map(id, owners.values()))) == len(owners)


VIEWS = {
    "of what is computed": lambda x, y: (
        y[:, 3:7], y.t(), y.view(-1, 3, 4).permute(1, 0, 2), y[1:, 2], y[::2, 1::3], y.unsqueeze(1).expand(-1, 3, 12),
        y, *y.chunk(3, -1),
    ),
    "of the input": lambda x, y: (x, x[:, 5:9], x.t(), x.view(-1, 2, 6)[:, 1], y),
    "of a transposed tensor": lambda x, y: y.view(-1, 3, 4).permute(1, 0, 2).unbind(0),
    "of what is returned twice": lambda x, y: (y, y, y.view(-1)),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "open"])
@pytest.mark.parametrize("views", VIEWS.values(), ids=VIEWS)
def test_views_are_no_work(views, dynamic):
    wanted, found, inputs, work = run(views, dynamic=dynamic)
    assert work == ["elementwise"]
    assert_laid_out_alike(wanted, found, inputs)


def test_no_kernel_at_all():
    wanted, found, inputs, work = run(lambda x, y: (x[:, 3:5],))
    assert work == []
    assert_laid_out_alike(wanted, found, inputs)


@pytest.mark.parametrize("rows", [0, 1])
def test_of_few_rows(rows):
    views = VIEWS["of what is computed"] if rows else lambda x, y: (y[:, 3:7], y.t(), x[:, 1:3])
    run(views, rows=rows, dynamic=rows > 0)


def test_what_torch_copies_is_a_tensor_of_its_own():
    """Also where two results are computed alike, so that one computation makes both."""

    def views(x, y):
        return x.clone(), y, y.clone(), x[:, 2:4].contiguous(), torch.cos(x) * 2, (torch.cos(x) * 2)[:, :3]

    _, found, inputs, _ = run(views)
    assert len({id(tensor.memory) for tensor in found} | {id(inputs[1].memory)}) == len(found) + 1


def test_weights_are_never_given_away():
    class Weights(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(4, 6))

        def forward(self, x):
            return self.table[1:3], x + self.table

    program, section = compiled(Weights().eval(), (torch.randn(4, 6),))
    runner, _ = runner_of(program, section)
    before = runner.launch([np.zeros((4, 6), np.float32)])
    device_weight = next(constant for constant in runner._constants if constant is not None)
    assert all(tensor.memory is not device_weight.owner for tensor in before)


def test_an_input_that_the_model_changes(call):  # noqa: F811
    class Adds(torch.nn.Module):
        def forward(self, x):
            before = x[:, :2] * 1
            x.add_(1)
            return before, x[:, 1:3]

    execute, device, _ = call(Adds(), (torch.randn(5, 4),))
    for_torch = torch.randn(5, 4)
    for_us = device.adopt(for_torch.clone())
    wanted = Adds()(for_torch)
    found = execute(for_us)
    close(for_us, for_torch)
    for a, b in zip(found, wanted, strict=True):
        close(a, b)


def test_torch_tensors(call):  # noqa: F811
    model = Returns(VIEWS["of what is computed"]).eval()
    execute, device, runner = call(model, (torch.randn(6, 12),))
    x = device.adopt(torch.randn(6, 12))
    before = len(device.made)
    found, wanted = execute(x), model(x)
    assert len(device.made) == before + 1
    for a, b in zip(found, wanted, strict=True):
        close(a, b.detach())
        assert a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
    found[0].zero_()  # as in torch, results that are views of one tensor show each other's changes
    assert not found[6][:, 3:7].any()


def test_a_view_of_torchs_input_is_the_inputs_memory(call):  # noqa: F811
    model = Returns(lambda x, y: (x[:, 3:7], y)).eval()
    execute, device, _ = call(model, (torch.randn(6, 12),))
    memory = device.adopt(torch.randn(100))
    x = memory[3:75].view(6, 12)  # begins between words
    part, computed = execute(x)
    close(part, x[:, 3:7])
    close(computed, model(x)[1].detach())
    assert part.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr() and part.stride() == (12, 1)


def test_an_input_from_the_host_among_torchs(call):  # noqa: F811
    class Two(torch.nn.Module):
        def forward(self, a, b):
            return b[:, 1:3], a + b

    execute, device, _ = call(Two(), (torch.randn(6, 4), torch.randn(6, 4)))
    a, b = device.adopt(torch.randn(6, 4)), np.random.default_rng(0).random((6, 4), np.float32)
    part, total = execute(a, b)
    close(part, torch.from_numpy(b)[:, 1:3])
    close(total, a + torch.from_numpy(b))


def test_a_returned_view_is_an_input_again():
    program, section = compiled(Returns(lambda x, y: (x.t(), y)).eval(), (torch.randn(12, 12),))
    runner, _ = runner_of(program, section)
    x = np.random.default_rng(0).random((12, 12), np.float32)
    transposed, _ = runner.launch([x])
    assert transposed.strides == (1, 12)
    np.testing.assert_array_equal(runner.launch([transposed])[0].numpy(), x)


def test_a_program_may_not_return_a_weight():
    program, section = compiled(Returns(lambda x, y: (x[:, 3:5], y)).eval(), (torch.randn(6, 12),))
    runner, _ = runner_of(program, section)
    bound = [np.zeros(argument["shape"], np.float32) for argument in section.manifest["arguments"]]
    runner = GpuRunner(section.manifest, section.files, bound, runner.device)
    with pytest.raises(InternalError, match="result 0 is a weight's memory"):
        runner.launch([])


def test_the_plan_of_what_is_no_work():
    compiled = kitsune_mlir.compile(Returns(lambda x, y: x[:, 3:5]), (torch.randn(6, 12),), target="sm_90a")
    assert compiled.plan["launches"] == [] and compiled.plan["kernels"] == []
    assert compiled.plan["predicted_us"] == target.load("sm_90a").call_us
    x = torch.randn(6, 12)
    assert torch.equal(Simulation(compiled)(x), x[:, 3:5])
    assert "launches" not in compiled.report()
