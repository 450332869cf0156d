"""Row groups outside pipelines, as kernels at the schedule level: one kernel each, right in numpy and on the stand-in
GPU."""

import pytest
import torch
from functions import Function
from test_gpu_models import check, interface_of
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.codegen import gpu
from kitsune_mlir.codegen.pipeline import evaluate
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.frontend import import_model
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.stage_cost import stage_cost
from kitsune_mlir.planning import row_tiles
from kitsune_mlir.planning import target as targets
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.schedule import run as interpret
from kitsune_mlir.tools.gpusim import Simulation
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

BOUNDS = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 1e-6}
STEPS = ["prepare-linalg", "schedule-products", "schedule-rows", "convert-kitsune-to-gpu"]
STEPS += ["convert-linalg-to-gpu", "join-launches"]


def prepared(model, args, target, dynamic_shapes=None):
    """The program of a model, what runs it, and the device on which it runs."""
    program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    give(program.module, "highest")
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in STEPS])
    section = gpu.build(program.module, targets.load(target))
    assert all(not kernel["spill_stores"] for kernel in section.manifest["kernels"]), section.manifest["kernels"]
    device = SimulatedDevice(program.module, 0)
    return program, GpuRunner(section.manifest, section.files, interface_of(program).constants(), device), device


def run(function, args, target, dynamic_shapes=None, calls=()):
    """Runs a function on the device, which is given, and compares with float64."""
    model = Function(function)
    program, runner, device = prepared(model, args, target, dynamic_shapes)
    for inputs in [args, *calls]:
        exact = function(*(x.double() if x.is_floating_point() else x for x in inputs))
        exact = exact if isinstance(exact, tuple) else (exact,)
        own = model(*inputs)
        own = own if isinstance(own, tuple) else (own,)
        wanted = tuple(x.to(y.dtype) for x, y in zip(exact, own))
        check(program, runner, inputs, wanted if len(wanted) > 1 else wanted[0], BOUNDS[args[0].dtype])
    return device


def drawn(*shapes, dtype=torch.float32):
    torch.manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randn(shape).to(dtype) for shape in shapes)


def norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def twice(x):
    """A statistic in two places, and written."""
    mean = x.mean(-1, keepdim=True)
    return torch.sigmoid(x - mean) * mean, mean


FUNCTIONS = {
    "softmax": (lambda x: x.softmax(-1), 0),
    "log-softmax": (lambda x: x.log_softmax(-1), 0),
    "layer norm": (lambda x: F.layer_norm(x, x.shape[-1:]), 0),
    "layer norm with affine": (norm, 2),
    "rms norm": (lambda x, weight: F.rms_norm(x, x.shape[-1:], weight), 1),
    "mean": (lambda x: (torch.relu(x).mean(-1, keepdim=True) * 2).tanh(), 0),
    "largest": (lambda x: x.amax(-1), 0),
    "statistic twice": (twice, 0),
    "residual before, activation behind": (lambda x, y: F.silu(F.layer_norm(x + y, x.shape[-1:])) + y, 1),
}


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_group_is_one_kernel(name, dtype, small_gpu):
    function, more = FUNCTIONS[name]
    extra = [(7, 100)] if "residual" in name else [(100,)] * more
    device = run(function, drawn((7, 100), *extra, dtype=dtype), small_gpu)
    assert (device.pipeline_launches, device.launches) == (1, 0)


@pytest.mark.parametrize("rows", [1, 60, 61])
def test_ctas_of_a_single_tile(rows, small_gpu, monkeypatch):
    """As many as tiles, whatever a GPU holds; they do not wait one by one for the kernel before."""
    monkeypatch.setattr(row_tiles, "_LARGE", 0)
    compiled = kitsune_mlir.compile(Function(norm), drawn((rows, 72), (72,), (72,)), target=small_gpu)
    (launch,) = compiled.plan["launches"]
    assert launch["ctas"] == -(-rows // launch["tile"][0])
    assert "griddepcontrol.wait" not in str(compiled.ptx)
    run(norm, drawn((rows, 72), (72,), (72,)), small_gpu)


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 100, 513, 2048, 5000, 16384])
@pytest.mark.parametrize("rows", [1, 300])
def test_sizes(rows, columns, small_gpu):
    rows = min(rows, max(10, (1 << 16) // columns))
    dtype = torch.bfloat16 if columns % 2 else torch.float32
    for function in (lambda x: x.softmax(-1), lambda x: F.layer_norm(x, x.shape[-1:])):
        device = run(function, drawn((rows, columns), dtype=dtype), small_gpu)
        assert device.pipeline_launches == (columns > 1)


def test_rows_that_are_too_wide_stay_as_they_are(small_gpu):
    """A prime number of columns makes no several rows."""
    device = run(lambda x: x.softmax(-1), drawn((2, 40_009)), small_gpu)
    assert device.pipeline_launches == 0


def test_no_rows(small_gpu):
    device = run(lambda x: x.softmax(-1), drawn((0, 64)), small_gpu)
    assert device.pipeline_launches == 0


@pytest.mark.parametrize("shape", [(7, 64), (5, 3, 40)], ids=str)
def test_any_number_of_rows(shape, small_gpu):
    rows = torch.export.Dim("rows", min=0, max=100_000)
    calls = [drawn((count, *shape[1:]), shape[-1:], shape[-1:]) for count in (1, 300, 0, 33)]
    device = run(norm, drawn(shape, shape[-1:], shape[-1:]), small_gpu, (({0: rows}, None, None),), calls)
    assert device.pipeline_launches == len(calls)


def modulated(x, shift, scale):
    """A norm of an open number of tokens, whose shift and scale each batch has."""
    return F.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift, x.amax(-1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_tokens_of_a_batch_are_open(dtype, small_gpu):
    tokens = torch.export.Dim("tokens", min=2, max=64)
    args, *calls = (drawn((3, count, 40), (3, 1, 40), (3, 1, 40), dtype=dtype) for count in (9, 2, 33))
    device = run(modulated, args, small_gpu, (({1: tokens}, None, None),), calls)
    assert device.pipeline_launches == 1 + len(calls)


def test_rows_of_several_dimensions(small_gpu):
    """Scores, masked by what all heads share, and by what all queries of a batch do."""

    def function(x, mask, padding):
        return (x.masked_fill(mask, -1e4) + padding).softmax(-1)

    scores, padding = drawn((4, 33, 65), (4, 1, 65))
    mask = torch.ones(33, 65).triu(1).bool()
    device = run(function, (scores, mask, padding), small_gpu)
    assert (device.pipeline_launches, device.launches) == (1, 0)


def test_columns_of_several_dimensions(small_gpu):
    device = run(lambda x, w: F.layer_norm(x, (6, 10), w), drawn((9, 6, 10), (6, 10)), small_gpu)
    assert (device.pipeline_launches, device.launches) == (1, 0)


def test_what_leaves_a_group_does_not_come_back(small_gpu):
    """The sum at the end waits for a product of what the group gives."""

    def function(x, w):
        y = F.layer_norm(x, x.shape[-1:])
        return (y @ w + y).softmax(-1)

    device = run(function, drawn((9, 24), (24, 24)), small_gpu)
    assert device.pipeline_launches == 2


@pytest.mark.usefixtures("unassembled")
def test_the_first_of_a_longer_dimension(small_gpu):
    """Rows that are read by a number that is known are no rows of the whole tensor."""

    def function(x):
        numbers = torch.arange(x.shape[0])
        return x[numbers, torch.zeros_like(numbers)].softmax(1)

    (x,) = drawn((40, 7, 8))
    found = Simulation(kitsune_mlir.compile(Function(function), (x,), target=small_gpu))(x)
    torch.testing.assert_close(torch.as_tensor(found), x[:, 0].softmax(1))


def test_all_elements_to_one_that_others_read(small_gpu):
    run(lambda x, y: torch.exp(x - x.amax()) + y, drawn((60, 4), (60, 4)), small_gpu)


def test_two_groups_do_not_wait_for_each_other(small_gpu):
    """Each reads something of the other: as two kernels, neither could be first."""

    def function(x, y):
        first = x.sum(-1, keepdim=True)
        behind = (y + first).sum(-1)
        largest = y.amax(-1, keepdim=True)
        return behind, (x * largest).sum(-1)

    device = run(function, drawn((9, 24), (9, 48)), small_gpu)
    assert (device.pipeline_launches, device.launches) == (3, 0)


@pytest.mark.parametrize("chip", ["sm_80", "sm_89", "sm_100a", "sm_120"])
def test_other_gpus(chip):
    """Nothing of it is Hopper's."""
    for dtype in (torch.bfloat16, torch.float32):
        device = run(norm, drawn((7, 5000), (5000,), (5000,), dtype=dtype), chip)
        assert (device.pipeline_launches, device.launches) == (1, 0)


def test_infinities_and_no_numbers(small_gpu):
    """Come out where torch has them."""
    inf, nan = float("inf"), float("nan")
    (x,) = drawn((6, 40))
    x[0], x[1, 3], x[2, 5], x[3, :20], x[4, 39] = -inf, nan, inf, -inf, nan
    model = Function(lambda x: (x.softmax(-1), x.amax(-1), x.sum(-1)))
    program = import_model(model, (x,))
    pipeline.run(program.module, [pipeline.make(name, "", small_gpu) for name in STEPS])
    section = gpu.build(program.module, targets.load(small_gpu))
    device, interface = SimulatedDevice(program.module, 0), interface_of(program)
    runner = GpuRunner(section.manifest, section.files, interface.constants(), device)
    for found, wanted in zip(interface.flat_results(interface.call(runner, (x,), {})), model(x)):
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_attention(small_gpu):
    """Two products, a kernel that makes the mask, and the rest in one."""

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    args = drawn((2, 2, 72, 32), (2, 2, 72, 32), (2, 2, 72, 32), dtype=torch.bfloat16)
    device = run(function, args, small_gpu)
    assert (device.pipeline_launches, device.launches) == (3, 1)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(5, 100), (2, 513), (40, 9)], ids=str)
def test_the_interpreter_agrees(name, shape):
    function, more = FUNCTIONS[name]
    extra = [shape] if "residual" in name else [shape[-1:]] * more
    args = drawn(shape, *extra)
    program = import_model(Function(function), args)
    module = program.module
    steps = ["prepare-linalg", "schedule-rows", "verify-dataflow"]
    pipeline.run(module, [pipeline.make(step, "", "sm_90a") for step in steps])
    (kernel,) = dialect.kernels(module)
    found = interpret(kernel, [x.numpy() for x in args], ctas=3, seed=1)
    wanted = function(*(x.double() for x in args))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for b in wanted:
        (a,) = (a for a in found if a.size == b.numel())
        torch.testing.assert_close(torch.from_numpy(a).reshape(b.shape).double(), b, rtol=1e-5, atol=1e-5)


def test_the_planner_counts_a_group_as_one_kernel():
    """A stage of a product and a layer norm, run an operator at a time: two kernels."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.LayerNorm(512)).eval()
    program = import_model(model, drawn((300, 64)))
    steps = ["prepare-linalg", "partition-dataflow", "design-pipeline"]
    pipeline.run(program.module, [pipeline.make(step) for step in steps])
    stages = [stage_cost(op.opview) for op in walk(program.module, "kitsune.stage")]
    assert sum(len(stage.products or ()) for stage in stages) == 1
    assert sum(stage.kernels for stage in stages) == 1


def statistic(x, y, w, b):
    z = x @ y
    return z.amax(-1), F.rms_norm(z + b, w.shape, w)


def elsewhere(x, y, w, b):
    z = x @ y
    return z.softmax(-1), (z @ y.mT) @ y


FOLLOWING = {
    "layer norm": lambda x, y, w, b: F.layer_norm(x @ y + b, w.shape, w, b),
    "softmax of scores": lambda x, y, w, b: (x @ y * 0.125 + w).softmax(-1),
    "a statistic beside": statistic,
}


@pytest.mark.parametrize(
    "sizes, dtype",
    [
        ((1, 130, 64, 128), torch.bfloat16),
        ((3, 70, 64, 64), torch.float32),
        ((1, 130, 136, 256), torch.bfloat16),
        ((1, 130, 136, 256), torch.float32),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", FOLLOWING)
def test_rows_behind_a_product(name, sizes, dtype, small_gpu, monkeypatch):
    """On the product's tiles, which have all columns; where sums are added outside tensor cores, of few columns."""
    monkeypatch.setattr("kitsune_mlir.passes.schedule_products.is_faster", lambda *_: True)
    batch, rows, k, columns = sizes
    args = drawn((batch, rows, k), (batch, k, columns), (columns,), (columns,), dtype=dtype)
    if batch == 1:
        args = (args[0][0], args[1][0], *args[2:])
    device = run(FOLLOWING[name], args, small_gpu)
    assert device.pipeline_launches == (1 if dtype == torch.bfloat16 or columns == 64 else 2)


def test_rows_behind_a_product_that_others_read_too(small_gpu):
    """It is written beside them."""
    args = drawn((300, 64), (64, 64), (64,), (64,), dtype=torch.bfloat16)
    device = run(elsewhere, args, small_gpu)
    assert device.pipeline_launches == 3


@pytest.mark.parametrize("name", FOLLOWING)
def test_the_interpreter_agrees_behind_a_product(name):
    args = drawn((70, 64), (64, 64), (64,), (64,), dtype=torch.bfloat16)
    program = import_model(Function(FOLLOWING[name]), args)
    module = program.module
    steps = ["prepare-linalg", "schedule-products", "verify-dataflow"]
    pipeline.run(module, [pipeline.make(step, "", "sm_90a") for step in steps])
    (kernel,) = dialect.kernels(module)
    assert not [op for op in walk(module, "linalg.generic") if op.parent.name == "func.func"]
    found = interpret(kernel, [x.float().numpy() for x in args], ctas=3, seed=1)
    wanted = FOLLOWING[name](*(x.double() for x in args))
    for b in wanted if isinstance(wanted, tuple) else (wanted,):
        (a,) = (a for a in found if a.size == b.numel())
        torch.testing.assert_close(torch.from_numpy(a).reshape(b.shape).double(), b, rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("unassembled")
def test_who_asks_for_a_size_has_nothing_written():
    """Of an open batch, too, what the mean and the product with it are computed of stays in registers."""

    def squeeze(x, weight):
        x = F.silu(x * weight[:, None, None])
        return x * x.mean((2, 3)).sigmoid()[..., None, None]

    args, batch = (torch.randn(8, 32, 28, 28).bfloat16(), torch.randn(32).bfloat16()), torch.export.Dim("batch")
    compiled = kitsune_mlir.compile(Function(squeeze), args, target="sm_90a", dynamic_shapes=(({0: batch}, None),))
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["rows0"]
    assert compiled.mlir("sm_90a:schedule-rows").count('"kitsune.write"') == 1


@pytest.mark.usefixtures("unassembled")
def test_elements_that_are_computed_one_of_another_many_times(monkeypatch):
    """A volatility of 120 steps went deeper than Python's stack. What lies deep is computed in an order of its own."""

    def function(x, r):
        total = 0.0
        for t in range(r.shape[1]):
            total = total + torch.tanh(x) * r[:, t : t + 1]
            x = torch.where(x < 0, x * r[:, t : t + 1], total.view(4, -1).view(x.shape)) * 0.5
        return total.softmax(-1), x.sum(-1)

    deep, after = [], evaluate.Evaluator._after_operands
    monkeypatch.setattr(evaluate, "_DEEP", 3)
    monkeypatch.setattr(evaluate.Evaluator, "_after_operands", lambda *args: deep.append(args) or after(*args))
    args = torch.randn(64, 32), torch.randn(64, 6)
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a")
    assert deep and any(launch["form"] == "scheduled rows" for launch in compiled.plan["launches"])
    for found, wanted in zip(Simulation(compiled, seed=1)(*args), function(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("unassembled")
def test_columns_that_rows_read(small_gpu):
    """Steps of a series behind a sum of all are one kernel, which reads their columns where they lie; of a part of
    the rows they are other rows' columns."""

    def of(x):
        found = x.var(1)
        for t in range(x.shape[1]):
            found = 0.1 + 0.2 * x[:, t].square() + 0.7 * found
        return found

    batch = torch.export.Dim("batch", min=5)
    shapes = (({0: batch},),)
    compiled = kitsune_mlir.compile(Function(of), (torch.randn(40, 12),), target=small_gpu, dynamic_shapes=shapes)
    assert len(compiled.plan["launches"]) == 1
    for count in (5, 333):
        x = torch.randn(count, 12)
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(x)), of(x), rtol=1e-4, atol=1e-5)

    def part(x):
        return x[:-3].sum(1) * x[:-3, 2]

    for shapes in (None, (({0: batch},),)):
        compiled = kitsune_mlir.compile(Function(part), (torch.randn(40, 12),), target=small_gpu, dynamic_shapes=shapes)
        x = torch.randn(40 if shapes is None else 57, 12)
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(x)), part(x), rtol=1e-4, atol=1e-5)
