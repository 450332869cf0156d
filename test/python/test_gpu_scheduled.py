"""Products outside pipelines, as kernels at the schedule level, on the stand-in GPU: any sizes and orders."""

import open_products
import pytest
import torch
import torch.nn.functional as F
from functions import Function
from test_gpu_models import check, interface_of

import kitsune_mlir
from kitsune_mlir import weights
from kitsune_mlir.codegen import gpu
from kitsune_mlir.dialects import schedule
from kitsune_mlir.frontend import import_model
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target as targets
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.tools.gpusim import Simulation
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

pytestmark = pytest.mark.usefixtures("unassembled")

BOUNDS = {torch.bfloat16: 2e-2, torch.float16: 4e-3, "highest": 1e-6, "high": 6e-4}  # of two in tf32


def run(function, args, target, launches=1, dynamic_shapes=None, calls=(), precision="highest"):
    """The device that it ran on, after so many `launches` of these arguments, and one of each of `calls`. One is enough
    where a kernel keeps nothing between them, for the simulator itself finds counters that are not left zero."""
    model = Function(function)
    program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    give(program.module, precision)
    steps = ["prepare-linalg", "convolutions-to-products", "schedule-products", "convert-kitsune-to-gpu"]
    steps.append("convert-linalg-to-gpu")
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in steps])
    section = gpu.build(program.module, targets.load(target))
    device = SimulatedDevice(program.module, 0)
    runner = GpuRunner(section.manifest, section.files, interface_of(program).constants(), device)
    for inputs in [args] * launches + list(calls):
        check(program, runner, inputs, model(*inputs), BOUNDS.get(args[0].dtype) or BOUNDS[precision])
    return device


def drawn(*shapes, dtype=torch.bfloat16):
    torch.manual_seed(sum(map(sum, shapes)))
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


SIZES = [(1, 100, 72, 64), (3, 64, 40, 136), (2, 130, 200, 72), (1, 9, 512, 264), (2, 33, 77, 51)]


@pytest.mark.parametrize("b, m, n, k", SIZES, ids=str)
@pytest.mark.parametrize("left", [False, True], ids=["m x k", "k x m"])
@pytest.mark.parametrize("right", [False, True], ids=["k x n", "n x k"])
def test_orders_of_dimensions(b, m, n, k, left, right, small_gpu):
    shapes = (b, k, m) if left else (b, m, k), (b, n, k) if right else (b, k, n)

    def function(x, y):
        return torch.bmm(x.mT if left else x, y.mT if right else y)

    dtype = torch.float16 if left else torch.bfloat16
    device = run(function, drawn(*shapes, dtype=dtype), small_gpu)
    assert device.pipeline_launches == 1


@pytest.mark.parametrize("m, n", [(3000, 40), (40, 3000)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "tf32"])
def test_an_operand_that_is_kept(m, n, dtype, small_gpu):
    """Eight CTAs take several tiles each, and load the chunks of the short operand once."""
    function, args = (lambda x, y: torch.relu(x @ y.mT)), drawn((m, 264), (n, 264), dtype=dtype)
    device = run(function, args, small_gpu, precision="high")
    assert device.pipeline_launches == 1


def test_rows_of_half_a_tile(small_gpu):
    """Of the last tile the second warpgroup has nothing, and writes nothing."""
    function, args = (lambda x, y: torch.relu(x @ y), drawn((64 * 9, 256), (256, 256)))
    program = import_model(Function(function), args)
    steps = ["prepare-linalg", "schedule-products"]  # for a GPU of few SMs, which have tiles of two warpgroups then
    pipeline.run(program.module, [pipeline.make(step, "", small_gpu) for step in steps])
    (kernel,) = schedule.kernels(program.module)
    assert [agent.count for agent in kernel.agents] == [1, 2]
    device = run(function, args, small_gpu)
    assert device.pipeline_launches == 1


def test_what_follows(small_gpu):
    """Elementwise operators with a column's, a row's, a batch's and an element's numbers, and a residual that is read
    behind another product."""

    def function(x, y, column, row, batch, whole):
        return torch.relu(torch.bmm(x, y) * row + column) * batch + whole

    args = drawn((3, 70, 64), (3, 64, 50), (50,), (3, 70, 1), (3, 1, 1), (3, 70, 50))
    device = run(function, args, small_gpu)
    assert device.pipeline_launches == 1


FOLLOWED = {
    "a result and what follows it": lambda y: (y, F.elu(y)),
    "operators that share an input": F.mish,
    "more dimensions": lambda y: F.softplus(y.view(4, 25, 72)),
    "more dimensions, with a bias of columns": lambda y: torch.relu(y.view(2, 2, 25, 72) + y.new_ones(72)),
    "more dimensions, with a number for each row": lambda y: torch.tanh(y.view(4, 25, 72) * y.new_ones(4, 25, 1)),
    "sums of rows": lambda y: (z := F.softplus(y)) * z.sum(-1, keepdim=True),
    "a result before what follows": lambda y: (y + y.sum(), y),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_follows_that_are_no_chain(name, small_gpu):
    function = FOLLOWED[name]
    device = run(lambda x, w: function(x @ w), drawn((100, 136), (136, 72)), small_gpu)
    assert device.pipeline_launches
    if not name.startswith(("sums", "a result before")):
        assert device.launches == 0, "operators of their own"


BROADCAST = {  # behind a product of x (100 x 72, or 3 batches of it) and y (72 x 56)
    "distances": lambda x, y: (x * x).sum(-1, keepdim=True) + (y * y).sum(0) - 2 * x @ y,
    "read twice": lambda x, y: (p := x @ y) * (s := x[:, :1] - y[0]) + torch.relu(p - s),
    "of an operator's result": lambda x, y: torch.relu(x @ y) * (x[:, :1] * 2 - y[0]),
    "of batches": lambda x, y: torch.bmm(torch.stack([x] * 3), torch.stack([y] * 3)) + (x[:, :1] + y[0]),
}


@pytest.mark.parametrize("name", BROADCAST)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_what_is_made_of_broadcasts_is_computed_behind_the_product(name, dtype, small_gpu):
    args = drawn((100, 72), (72, 56), dtype=dtype)
    device = run(BROADCAST[name], args, small_gpu)
    assert device.pipeline_launches == 1
    if name == "distances":  # sums of rows, of columns, twice x; f32's pieces of y
        assert device.launches == (3 if dtype == torch.bfloat16 else 4)


def test_broadcasts_of_any_number_of_rows(small_gpu):
    rows = torch.export.Dim("rows", max=1000)
    calls = [drawn((count, 72), (72, 56)) for count in (0, 1, 129)]
    run(BROADCAST["distances"], drawn((100, 72), (72, 56)), small_gpu, 1, (({0: rows}, None),), calls)


def pairs(x, y):
    """Labels of pairs, by operators one after another, of which no tensor of pairs is written."""
    products = x @ y.t()
    return (2 * torch.eye(len(x), dtype=x.dtype, device=x.device) - 1) * products


def test_chains_of_what_is_made_of_broadcasts(small_gpu):
    rows = torch.export.Dim("rows", min=2, max=1000)
    args, *calls = (drawn((count, 72), (count, 72), dtype=torch.bfloat16) for count in (100, 2, 129))
    device = run(pairs, args, small_gpu, 1, (({0: rows},) * 2,), calls)
    assert (device.pipeline_launches, device.launches) == (3, 3)  # and the numbers of the rows


def test_attention(small_gpu):
    def function(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    device = run(function, drawn((2, 2, 72, 32), (2, 2, 72, 32), (2, 2, 72, 32)), small_gpu)
    assert device.pipeline_launches == 2


@pytest.mark.parametrize("rows", [3000, 4097])
def test_long_sums_in_parts(rows, small_gpu):
    device = run(lambda x, y: x.t() @ y, drawn((rows, 40), (rows, 72)), small_gpu, launches=2)
    assert device.pipeline_launches == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
@pytest.mark.parametrize("function", [lambda x, y: x.t() @ y, lambda x, y: x @ y.t()], ids=["k", "m"])
def test_any_number_of_rows(function, dtype, small_gpu):
    """A sum over rows, whatever their number; without rows it is zero."""
    rows = torch.export.Dim("rows", min=0, max=100_000)
    summed = function(torch.ones(3, 2), torch.ones(3, 2)).shape == (2, 2)
    shapes = ({0: rows}, {0: rows} if summed else {})
    counts = (1, 300, 64, *([0] if summed else []))
    calls = [drawn((count, 64), (count if summed else 96, 64), dtype=dtype) for count in counts]
    args = drawn((70, 64), (70 if summed else 96, 64), dtype=dtype)
    device = run(function, args, small_gpu, 1, ((shapes),), calls)
    assert device.pipeline_launches == 1 + len(calls)


@pytest.mark.parametrize("name", open_products.CASES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_open_sizes(name, dtype, small_gpu):
    """The same with rows that are no tensor's first size, and where several sizes are the open one."""
    function, shapes, (args, *calls) = open_products.drawn(name, dtype)
    device = run(function, args, small_gpu, 0, (shapes,), calls)
    empty = "sums" not in name and any(0 in x.shape for x in calls[-1])  # without rows there is nothing but sums
    products = 2 if name in ("retention", "heads") else 1
    assert device.pipeline_launches == products * (len(calls) - empty)


@pytest.mark.parametrize("name", open_products.APART)
def test_several_open_sizes(name, small_gpu):
    """Each tensor's sizes are asked for; lines that have been made longer are as long as the other operand says."""
    function, shapes, (args, *calls) = open_products.drawn_apart(name, torch.bfloat16)
    assert run(function, args, small_gpu, 0, (shapes,), calls).pipeline_launches == len(calls)


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_all_sizes_open_f32(precision, small_gpu):
    """Pieces of lines that end in zeros end in zeros."""
    function, shapes, (args, *calls) = open_products.drawn_apart("all sizes", torch.float32)
    device = run(function, args, small_gpu, 0, (shapes,), calls, precision=precision)
    assert device.pipeline_launches == len(calls)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
@pytest.mark.parametrize("is_batched", [False, True])
def test_parts_of_an_open_sum(is_batched, dtype, small_gpu):
    """Few tiles of a long sum: parts of it, some of which may be of nothing, are summed beside each other."""
    batch = (2,) if is_batched else ()
    rows = torch.export.Dim("rows", min=1, max=100_000)
    args, *calls = (drawn((*batch, k, 40), (*batch, k, 64), dtype=dtype) for k in (1500, 5, 64, 515))
    shapes = ({len(batch): rows},) * 2
    run(lambda x, y: torch.relu(x.mT @ y), args, small_gpu, 1, (shapes,), calls)
    compiled = kitsune_mlir.compile(Function(lambda x, y: x.mT @ y), args, target="sm_90a", dynamic_shapes=(shapes,))
    modules = [compiled.module(f"sm_90a:schedule-{name}") for name in ("chains", "products")]
    tiles = [op.opview.sizes for module in modules for op in walk(module, "kitsune.tiles")]
    assert 3 + is_batched in map(len, tiles)  # the parts, rows and columns


@pytest.mark.parametrize("k", [16, 20, 40, 56])
@pytest.mark.parametrize("m, n, name", [(900, 96, "bf16"), (70, 130, "highest"), (300, 130, "high")], ids=str)
def test_short_sums(m, n, k, name, small_gpu):
    """Boxes have no more columns than steps of a product; beside them nobody may read, as the simulator checks. The
    last tile has fewer rows."""
    dtype = torch.bfloat16 if name == "bf16" else torch.float32
    precision = "highest" if name == "bf16" else name
    device = run(lambda x, w: x @ w.T, drawn((m, k), (n, k), dtype=dtype), small_gpu, precision=precision)
    assert device.pipeline_launches == 1


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("sizes", [(2, 70, 130, 200), (1, 30, 40, 3000)], ids=str)
def test_f32(sizes, precision, small_gpu):
    b, m, n, k = sizes
    x, y, bias = drawn((b, m, k), (b, k, n), (n,), dtype=torch.float32)
    device = run(lambda x, y, bias: torch.bmm(x, y) + bias, (x, y, bias), small_gpu, 1, precision=precision)
    assert device.pipeline_launches == 1


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("left", [False, True], ids=["m x k", "k x m"])
@pytest.mark.parametrize("right", [False, True], ids=["k x n", "n x k"])
@pytest.mark.parametrize("b, m, n, k", [(3, 64, 40, 136), (2, 133, 77, 51), (1, 300, 128, 64)], ids=str)
def test_orders_of_dimensions_of_f32(b, m, n, k, left, right, precision, small_gpu):
    """Pieces are made in the kernel, of boxes along rows and along columns, of rows that are made longer before."""
    shapes = (b, k, m) if left else (b, m, k), (b, n, k) if right else (b, k, n)

    def function(x, y):
        return torch.bmm(x.mT if left else x, y.mT if right else y)

    device = run(function, drawn(*shapes, dtype=torch.float32), small_gpu, precision=precision)
    assert device.pipeline_launches == 1


def test_pieces_of_a_computed_operand_and_of_a_weight(small_gpu):
    """The weight's are copied; several chunks, a bias and a residual behind."""
    model, args = torch.nn.Linear(264, 136), drawn((300, 264), (300, 136), dtype=torch.float32)
    program = import_model(Function(lambda x, z: model(x) + z), args)
    weights.give(program.module, program.arguments, program.outputs)
    steps = [
        "prepare-linalg",
        "schedule-products",
        "verify-dataflow",
        "convert-kitsune-to-gpu",
        "convert-linalg-to-gpu",
    ]
    pipeline.run(program.module, [pipeline.make(name, "", small_gpu) for name in steps])
    section = gpu.build(program.module, targets.load(small_gpu))
    runner = GpuRunner(
        section.manifest, section.files, interface_of(program).constants(), SimulatedDevice(program.module)
    )
    check(program, runner, args, (model(args[0]) + args[1]).detach(), BOUNDS["highest"])


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_infinities_and_no_numbers(precision, small_gpu):
    """Come out where torch has them, and nowhere else."""
    x, y = drawn((1, 70, 64), (1, 64, 40), dtype=torch.float32)
    inf, nan = float("inf"), float("nan")
    x[0, 0, 0], x[0, 1, 1], x[0, 2, 2], x[0, 3, 3], x[0, 4, 5] = inf, -inf, nan, 3.4e38, 1e-42
    y[0, 0, 3], y[0, 1, 4], y[0, 4, 5], y[0, 5, 6], y[0, 7, 7] = 0.0, inf, -inf, nan, 1.0
    y[0, 3] = y[0, 3].clamp(-0.5, 0.5)
    model, target = Function(torch.bmm), targets.load(small_gpu)
    program = import_model(model, (x, y))
    give(program.module, precision)
    steps = ["prepare-linalg", "schedule-products", "convert-kitsune-to-gpu", "convert-linalg-to-gpu"]
    pipeline.run(program.module, [pipeline.make(name, "", small_gpu) for name in steps])
    section = gpu.build(program.module, target)
    runner = GpuRunner(
        section.manifest, section.files, interface_of(program).constants(), SimulatedDevice(program.module, 0)
    )
    interface, wanted = interface_of(program), torch.bmm(x, y)
    (found,) = interface.flat_results(interface.call(runner, (x, y), {}))
    finite = torch.isfinite(wanted)
    assert torch.equal(torch.isnan(found), torch.isnan(wanted))
    assert torch.equal(found[torch.isinf(wanted)], wanted[torch.isinf(wanted)])
    off = 1e-3 if precision == "highest" else 2e-2
    torch.testing.assert_close(found[finite], wanted[finite], rtol=off, atol=off)


def attended(q, k, v):
    """Products of heads, which lie side by side in what is multiplied and in the result."""
    q, k, v = (x.permute(0, 2, 1, 3) for x in (q, k, v))
    return (torch.relu(q @ k.mT) @ v).permute(0, 2, 1, 3)


@pytest.mark.parametrize("d", [24, 20], ids=["whole words", "padded"])
def test_heads_are_read_and_written_where_they_lie(d, small_gpu):
    device = run(attended, drawn((2, 70, 3, d), (2, 48, 3, d), (2, 48, 3, 40)), small_gpu)
    assert device.pipeline_launches == 2 and device.launches == (0 if d % 8 == 0 else 2)


def test_heads_of_f32(small_gpu):
    device = run(attended, drawn(*[(2, 66, 3, 16)] * 3, dtype=torch.float32), small_gpu, precision="high")
    assert device.pipeline_launches == 2


@pytest.mark.parametrize("columns", [True, False], ids=["columns last", "columns not last"])
def test_a_batch_between_rows_and_columns(columns, small_gpu):
    form = "neh,ehd->ned" if columns else "neh,ehd->nde"
    device = run(lambda x, w: torch.einsum(form, x, w).contiguous(), drawn((70, 3, 24), (3, 24, 40)), small_gpu)
    assert device.pipeline_launches == 1 and device.launches == (0 if columns else 1)


class Scores(torch.nn.Module):
    def forward(self, queries, keys):
        return torch.softmax((queries @ keys.mT).float(), -1) + 1


def layer(inputs, outputs, rows, target, dtype=torch.bfloat16):
    """What schedule-products makes of a single layer, whose numbers are right in the simulator."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(inputs, outputs).to(dtype), torch.randn(rows, inputs).to(dtype)
    compiled = kitsune_mlir.compile(model, (x,), target=target)
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), model(x), rtol=2e-2, atol=2e-2)
    return compiled.mlir("small:schedule-products")


def test_columns_behind_the_last_tile(gpu_of):
    """Of 896 columns in tiles of 256 the last has 128: what would be added to its other 128 is read nowhere."""
    assert "tile = array<i64: 64, 256>" in layer(225, 896, 2, gpu_of(4))


@pytest.mark.parametrize(
    "columns, rows, dtype",
    [(380, 300, torch.bfloat16), (381, 130, torch.float16), (131, 130, torch.float32), (254, 70, torch.float32)],
)
def test_rows_that_warps_store(columns, rows, dtype, gpu_of):
    """Rows of no multiple of 16 bytes, of which tiles have more or less."""
    assert 'engine = "warps"' in layer(64, columns, rows, gpu_of(4), dtype)


@pytest.mark.parametrize("columns, dtype", [(197, torch.bfloat16), (131, torch.float32)])
def test_batches_of_rows_that_warps_store(columns, dtype, small_gpu):
    """The last rows of one matrix are not the first of the next."""
    torch.manual_seed(0)
    args = torch.randn(3, 197, 64).to(dtype), torch.randn(3, columns, 64).to(dtype)
    compiled = kitsune_mlir.compile(Scores(), args, target=small_gpu)
    assert 'engine = "warps"' in compiled.mlir("small:schedule-products")
    found = torch.as_tensor(Simulation(compiled, seed=1)(*args))
    torch.testing.assert_close(found, Scores()(*args), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("rows, inputs, outputs", [(130, 72, 200), (40, 1024, 384), (300, 37, 24)], ids=str)
def test_layers_in_tf32(rows, inputs, outputs, small_gpu):
    """Each is a kernel of its own, where warpgroups multiply what copies rounded: of whole tiles, of few rows, of rows
    that are made longer."""
    torch.manual_seed(rows)
    model, x = torch.nn.Sequential(torch.nn.Linear(inputs, outputs), torch.nn.GELU()), torch.randn(rows, inputs)
    compiled = kitsune_mlir.compile(model, (x,), target=small_gpu, matmul_precision="high")
    kernels = compiled.mlir("small:schedule-products")
    assert 'sym_name = "pipeline0"' in kernels and kernels.count("rounded,") + kernels.count("rounded}") >= 2
    error = (Simulation(compiled, seed=1)(x) - model(x)).norm() / model(x).norm()
    assert 1e-5 < error <= BOUNDS["high"]


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("place", [0, 5])
def test_one_row_of_keys_out_of_others(place, small_gpu):
    """A dimension of a single element is still the product's own: the slice that makes it is done before."""

    def scores(query, keys):
        query, keys = (x.unflatten(-1, (4, 64)).transpose(1, 2) for x in (query, keys))
        return torch.einsum("bhcqd,bhd->bhcq", query.unflatten(2, (4, -1)), keys[:, :, place])

    run(scores, drawn((2, 512, 256), (2, 512, 256), dtype=torch.float16), small_gpu)
