"""Products outside pipelines, as kernels at the schedule level, on the stand-in GPU: any sizes and orders."""

import pytest
import torch
from fake_pipeline import PipelineDevice
from test_gpu_models import check, interface_of
from test_gpu_pipelines import small_gpu  # noqa: F401  (a fixture)

from kitsune_mlir.codegen import gpu
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target as targets
from kitsune_mlir.runtime.gpu import GpuRunner

BOUNDS = {torch.bfloat16: 2e-2, torch.float16: 4e-3}


class Function(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def run(function, args, target, launches=2, dynamic_shapes=None, calls=()):
    """The names of the kernels that ran."""
    model = Function(function)
    program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    steps = ["prepare-linalg", "schedule-products", "lower-schedule", "convert-linalg-to-gpu"]
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in steps])
    section = gpu.build(program.module, targets.load(target))
    device = PipelineDevice(program.module, 0)
    runner = GpuRunner(section.manifest, section.files, interface_of(program).constants(), device)
    for inputs in [args] * launches + list(calls):
        check(program, runner, inputs, model(*inputs), BOUNDS[args[0].dtype])
    return device


def drawn(*shapes, dtype=torch.bfloat16):
    torch.manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


SIZES = [(1, 100, 72, 64), (3, 64, 40, 136), (2, 130, 200, 72), (1, 1, 512, 264), (2, 33, 77, 51)]


@pytest.mark.parametrize("b, m, n, k", SIZES, ids=str)
@pytest.mark.parametrize("left", [False, True], ids=["m x k", "k x m"])
@pytest.mark.parametrize("right", [False, True], ids=["k x n", "n x k"])
def test_orders_of_dimensions(b, m, n, k, left, right, small_gpu):  # noqa: F811
    shapes = (b, k, m) if left else (b, m, k), (b, n, k) if right else (b, k, n)

    def function(x, y):
        return torch.bmm(x.mT if left else x, y.mT if right else y)

    dtype = torch.float16 if left else torch.bfloat16
    device = run(function, drawn(*shapes, dtype=dtype), small_gpu)
    assert device.pipeline_launches == 2


def test_what_follows(small_gpu):  # noqa: F811
    """Elementwise operators with a column's, a row's, a batch's and an element's numbers, and a residual that is read
    behind another product."""

    def function(x, y, column, row, batch, whole):
        return torch.relu(torch.bmm(x, y) * row + column) * batch + whole

    args = drawn((3, 70, 64), (3, 64, 50), (50,), (3, 70, 1), (3, 1, 1), (3, 70, 50))
    device = run(function, args, small_gpu)
    assert device.pipeline_launches == 2


def test_attention(small_gpu):  # noqa: F811
    def function(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    device = run(function, drawn((2, 2, 72, 32), (2, 2, 72, 32), (2, 2, 72, 32)), small_gpu)
    assert device.pipeline_launches == 4


@pytest.mark.parametrize("rows", [3000, 4097])
def test_long_sums_in_parts(rows, small_gpu):  # noqa: F811
    device = run(lambda x, y: x.t() @ y, drawn((rows, 40), (rows, 72)), small_gpu)
    assert device.pipeline_launches == 2


@pytest.mark.parametrize("function", [lambda x, y: x.t() @ y, lambda x, y: x @ y.t()], ids=["k", "m"])
def test_any_number_of_rows(function, small_gpu):  # noqa: F811
    """Of a sum over them; of no rows it is zero."""
    rows = torch.export.Dim("rows", min=0, max=100_000)
    summed = function(torch.ones(3, 2), torch.ones(3, 2)).shape == (2, 2)
    shapes = ({0: rows}, {0: rows} if summed else {})
    calls = [drawn((count, 64), (count if summed else 96, 64)) for count in (1, 300, 64, *([0] if summed else []))]
    device = run(function, drawn((70, 64), (70 if summed else 96, 64)), small_gpu, 1, ((shapes),), calls)
    assert device.pipeline_launches == 1 + len(calls)
