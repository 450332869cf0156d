"""argmax and its like over the last dimension: a row group's two reductions, on the tiles of the product before it if
there is one. Ties and NaN as torch has them."""

import pytest
import torch
from functions import Function
from test_gpu_models import interface_of
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.codegen import gpu
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline, schedule_products
from kitsune_mlir.planning import target as targets
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.schedule import run as interpret
from kitsune_mlir.tools.gpusim import Simulation
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

SCHEDULE = ["prepare-linalg", "schedule-products", "schedule-rows"]
INF, NAN = float("inf"), float("nan")
HARD = [[1, 3, 3, 2], [NAN, 5, NAN, 7], [5, NAN, INF, NAN], [-INF] * 4, [0.0, -0.0, 0.0, -1], [-0.0, 0.0, -2, 0.0],
        [NAN] * 4, [-INF, -3, -3, -INF], [1, 2, 3, INF]]  # fmt: skip


def whole_numbers(*shapes, dtype=torch.bfloat16):
    """Of which products and sums are exact, and rows have their largest several times."""
    torch.manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randint(-2, 3, shape).to(dtype) for shape in shapes)


FUNCTIONS = {
    "product": (lambda x, w: F.linear(x, w).argmax(-1), ((200, 64), (64, 64))),
    "product with bias": (lambda x, w, b: F.linear(x, w, b).argmax(-1), ((200, 64), (64, 64), (64,))),
    "batched": (lambda x, w: (x @ w).argmax(-1, keepdim=True), ((3, 70, 64), (3, 64, 64))),
    "behind a norm": (lambda x: F.layer_norm(x, x.shape[-1:]).argmax(-1), ((33, 100),)),
    "alone": (lambda x: x.argmax(-1), ((7, 5000),)),
    "of two columns": (lambda x: x.argmax(1), ((300, 2),)),
}


def scheduled(function, args, target):
    program = import_model(Function(function), args)
    give(program.module, "highest")
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in SCHEDULE])
    return program


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_runs_as_one_kernel(name, dtype, small_gpu, monkeypatch):
    monkeypatch.setattr(schedule_products, "is_faster", lambda *_: True)
    function, shapes = FUNCTIONS[name]
    args = whole_numbers(*shapes, dtype=dtype)
    program = scheduled(function, args, small_gpu)
    kernels = list(dialect.kernels(program.module))
    assert len(kernels) == 1
    steps = ["convert-kitsune-to-gpu", "convert-linalg-to-gpu"]
    pipeline.run(program.module, [pipeline.make(step, "", small_gpu) for step in steps])
    section = gpu.build(program.module, targets.load(small_gpu))
    device = SimulatedDevice(program.module, 0)
    runner = GpuRunner(section.manifest, section.files, interface_of(program).constants(), device)
    interface = interface_of(program)
    (found,) = interface.flat_results(interface.call(runner, args, {}))
    wanted = function(*args)
    assert found.dtype == wanted.dtype == torch.int64 and torch.equal(found, wanted)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_others(dtype, small_gpu):
    """argmin, and the largest and the smallest element beside their places."""
    x = torch.tensor(HARD, dtype=dtype)
    x = torch.cat([x, x.flip(1)])

    def places(x):
        return x.argmin(-1), *x.max(1), *x.min(-1, keepdim=True)

    for target in (small_gpu, "cpu"):
        compiled = kitsune_mlir.compile(Function(places), (x,), target=target)
        assert target == "cpu" or not [one for one in compiled.plan["launches"] if one["computes"] == "reduce"]
        for found, wanted in zip(compiled(x) if target == "cpu" else Simulation(compiled)(x), places(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_ties_and_no_numbers(dtype, small_gpu):
    x = torch.tensor(HARD, dtype=dtype)
    x = torch.cat([x, x.flip(1)])
    wanted = x.argmax(-1)
    program = scheduled(lambda x: x.argmax(-1), (x,), small_gpu)
    (kernel,) = dialect.kernels(program.module)
    for target in (small_gpu, "cpu"):
        compiled = kitsune_mlir.compile(Function(lambda x: x.argmax(-1)), (x,), target=target)
        found = compiled(x) if target == "cpu" else Simulation(compiled)(x)
        assert torch.equal(found, wanted), target
    if dtype == torch.float32:
        (found,) = interpret(kernel, [x.numpy()], ctas=2, seed=1)
        assert torch.equal(torch.from_numpy(found), wanted)


def test_a_model_of_one_layer_and_argmax(small_gpu):
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 64).bfloat16()
    x = torch.randn(500, 64, dtype=torch.bfloat16)
    model = Function(lambda x: layer(x).argmax(-1))
    plain = {"partition-dataflow": "min-products=2"}
    compiled = kitsune_mlir.compile(model, (x,), target=small_gpu, options=plain)
    text = compiled.mlir("small:schedule-rows")
    assert text.count('"kitsune.kernel"') == text.count('"kitsune.write"') == 1 and "kitsune.settle" in text
    found = Simulation(compiled)(x)
    values = layer(x).gather(1, found[:, None])[:, 0]
    torch.testing.assert_close(values, layer(x).amax(-1), rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("unassembled")
def test_of_what_a_reduction_that_no_kernel_on_rows_does_gives():
    """The nearest of points: what asks for NaN among distances is of their rows' kernel, not of a group of the sums
    over coordinates, which is none."""
    torch.manual_seed(0)
    x, y = torch.randn(5, 40, 3), torch.randn(5, 70, 3)

    def nearest(x, y):
        return (x[:, :, None] - y[:, None]).square().sum(-1).min(-1)

    compiled = kitsune_mlir.compile(Function(nearest), (x, y), target="sm_90a")
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["operator", "scheduled rows"]
    for found, wanted in zip(Simulation(compiled)(x, y), nearest(x, y), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("shape", [(5, 300), (3, 70, 9)], ids=str)
def test_open_lengths(shape, small_gpu):
    """Of a dimension that is open until the call, and of all elements: two reductions, which many threads share."""

    def places(x):
        return x.argmax(1), x.min(1).indices, x.argmin(), x.argmax(0), *(x > 1).max(1), *(x > 0).min(1)

    dims = (({0: torch.export.Dim("b", min=1), 1: torch.export.Dim("n", min=2)},),)
    (example,) = whole_numbers(shape, dtype=torch.float32)
    compiled = kitsune_mlir.compile(Function(places), (example,), target=small_gpu, dynamic_shapes=dims)
    for sizes in (shape, (1, 2, *shape[2:]), (7, 511, *shape[2:])):
        (x,) = whole_numbers(sizes, dtype=torch.float32)
        x.view(-1)[x.numel() * 2 // 3] = NAN
        for found, wanted in zip(Simulation(compiled)(x), places(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted)


@pytest.mark.usefixtures("unassembled")
def test_a_length_that_is_open_takes_no_longer():
    """Rows of an open length were a thread's each, and took 309 us."""
    square = {d: torch.export.Dim(name, min=2) for d, name in enumerate("bn")}
    found = [
        kitsune_mlir.compile(
            Function(lambda x: x.argmax(1)), (torch.zeros(2048, 2048),), target="sm_90a", dynamic_shapes=dims
        )
        for dims in (None, ((square,),))
    ]
    known, open_ = (compiled.plan["predicted_us"] for compiled in found)
    assert open_ < 1.5 * known
