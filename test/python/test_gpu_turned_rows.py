"""Row groups whose columns stand in front of rows, as the channels of images do: one kernel each, whose neighbouring
threads have neighbouring rows."""

import pytest
import torch
from functions import Function
from test_gpu_rows import BOUNDS, drawn, run
from torch.nn import functional as F

from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import row_tiles
from kitsune_mlir.planning import target as targets
from kitsune_mlir.schedule import run as interpret


def over_channels(t):
    return t.view(-1, 1, 1)


def norm(x, weight, bias):
    centred = x - x.mean(1, keepdim=True)
    found = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-6)
    return over_channels(weight) * found + over_channels(bias)


def scaled(x, weight, bias):
    """A norm of channels that each image scales in its own way."""
    return norm(x * torch.sigmoid(bias.view(1, -1, 1, 1) * x.amax((2, 3), keepdim=True)), weight, bias)


def response(x, weight, bias):
    found = F.gelu(x + over_channels(bias)) * torch.rsqrt(x.square().sum(1, keepdim=True) + 1)
    return found * over_channels(weight), x.square().sum(1)


def moved(x, weight, bias):
    """Channels last for the norm alone; the transposes go."""
    return F.layer_norm(x.movedim(1, -1), weight.shape, weight, bias).movedim(-1, 1)


FUNCTIONS = {
    "norm": norm,
    "moved": moved,
    "moved, and an activation and a residual behind": lambda x, weight, bias: F.gelu(moved(x, weight, bias)) + x,
    "softmax": lambda x, weight, bias: (x * over_channels(weight)).softmax(1),
    "log-softmax": lambda x, weight, bias: x.log_softmax(1) + over_channels(bias),
    "scales of images": scaled,
    "two results": response,
    "unit vectors": lambda x, weight, bias: F.normalize(x, dim=1) * over_channels(weight),
}


def args_of(shape, dtype=torch.float32):
    return drawn(shape, shape[1:2], shape[1:2], dtype=dtype)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_group_is_one_kernel(name, dtype, small_gpu):
    device = run(FUNCTIONS[name], args_of((2, 24, 5, 9), dtype), small_gpu)
    if name != "scales of images":
        assert (device.pipeline_launches, device.launches) == (1, 0)


@pytest.mark.parametrize("shape", [(1, 3, 24), (3, 2, 40), (2, 300, 4, 16), (1, 700, 33), (5, 7, 3, 2, 6)], ids=str)
def test_sizes(shape, small_gpu):
    for function in (lambda x: x.softmax(1), lambda x: x - x.mean(1, keepdim=True)):
        device = run(function, drawn(shape, dtype=torch.bfloat16), small_gpu)
        assert (device.pipeline_launches, device.launches) == (1, 0)


def test_few_neighbours_are_left_to_operators(small_gpu):
    """Nor is a kernel of rows made for one reduction, or of columns that registers do not hold."""
    cases = [(lambda x: x.softmax(1), (6, 20, 7)), (lambda x: x.sum(1), (6, 20, 64))]
    for function, shape in [*cases, (lambda x: x.softmax(1), (1, 3000, 32))]:
        device = run(function, drawn(shape), small_gpu)
        assert device.pipeline_launches == 0


def test_any_number_of_images(small_gpu):
    images = torch.export.Dim("images", min=0, max=1000)
    calls = [args_of((count, 12, 6, 7)) for count in (1, 30, 0)]
    device = run(norm, args_of((4, 12, 6, 7)), small_gpu, (({0: images}, None, None),), calls)
    assert device.pipeline_launches == len(calls)


@pytest.mark.parametrize("vector, warps, copies", [(2, 1, 4), (2, 4, 1), (4, 1, 2), (4, 2, 1), (4, 8, 1)])
@pytest.mark.parametrize("name, dtype", [("two results", torch.bfloat16), ("scales of images", torch.float32)])
def test_neighbouring_rows_of_a_thread(name, dtype, vector, warps, copies, small_gpu, monkeypatch):
    """Of lines of 40 places tiles have 64 or 128; a thread's rows are loaded and stored together."""

    def forced(group, target):
        return row_tiles.of_lanes(group, vector, warps, copies, target)

    monkeypatch.setattr(row_tiles, "_turned", forced)
    run(FUNCTIONS[name], args_of((3, 22, 5, 40), dtype), small_gpu)


def test_threads_have_as_many_rows_as_lines_allow():
    """Two of 14 x 14 places, or four of 16 x 16, where all threads have some anyway; one of 5 x 9."""
    for places, most in ((45, 1), (196, 4), (50, 2), (1 << 14, 4)):
        group = row_tiles.RowGroup(64 * places, 32, 2, 128.0, 1.5, 4, 1, segments=64, turned=True)
        found = row_tiles.choose(group, targets.load("sm_90a"))
        assert places % found.vector == 0 and found.vector <= most and found.rows == found.copies * 32 * found.vector
    assert found.vector > 1


@pytest.mark.parametrize("chip", ["sm_80", "sm_100a"])
def test_other_gpus(chip):
    device = run(norm, args_of((2, 40, 6, 6), torch.bfloat16), chip)
    assert (device.pipeline_launches, device.launches) == (1, 0)


@pytest.mark.parametrize("name", ["norm", "moved", "softmax", "two results"])
@pytest.mark.parametrize("shape", [(2, 24, 5, 9), (1, 3, 64), (3, 130, 27)], ids=str)
def test_the_interpreter_agrees(name, shape):
    if len(shape) == 3 and name != "softmax":
        shape = (*shape, 1)
    args = args_of(shape)
    if len(shape) == 3:
        args = (args[0], *(t[0].expand(t.shape) for t in args[1:]))
        function = lambda x, weight, bias: (x * weight.view(-1, 1)).softmax(1)  # noqa: E731
    else:
        function = FUNCTIONS[name]
    program = import_model(Function(function), args)
    steps = ["prepare-linalg", "schedule-rows", "verify-dataflow"]
    pipeline.run(program.module, [pipeline.make(step, "", "sm_90a") for step in steps])
    (kernel,) = dialect.kernels(program.module)
    found = interpret(kernel, [x.numpy() for x in args], ctas=3, seed=1)
    wanted = function(*(x.double() for x in args))
    for b in wanted if isinstance(wanted, tuple) else (wanted,):
        (a,) = (a for a in found if a.size == b.numel())
        torch.testing.assert_close(torch.from_numpy(a).reshape(b.shape).double(), b, rtol=1e-5, atol=1e-5)
