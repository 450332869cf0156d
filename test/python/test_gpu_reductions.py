"""Reductions across memory in the simulator: shared by warps and blocks, of 16 bits too."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.codegen.gpu_columns import Shares, divide
from kitsune_mlir.tools.gpusim import Simulation


class Reduced(torch.nn.Module):
    def __init__(self, function, dim):
        super().__init__()
        self.function, self.dim = function, dim

    def forward(self, x):
        return self.function(x, self.dim)


def launches_of(module, x, target):
    """The kernels of a model, whose result is what torch's is, bit by bit but for the kind of NaN."""
    compiled = kitsune_mlir.compile(module, (x,), target=target)
    found, wanted = torch.as_tensor(Simulation(compiled, seed=1)(x)), module(x)
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[~found.isnan()], wanted[~wanted.isnan()])
    return [(launch["kernel"], launch["ctas"]) for launch in compiled.plan["launches"]]


@pytest.mark.parametrize(
    ("function", "dtype"), [(torch.amax, torch.bfloat16), (torch.amin, torch.float16)], ids=["max", "min"]
)
def test_the_largest_of_16_bits(function, dtype, gpu_of):
    """It is shared by the warps of a block, long ones by blocks, as sums of f32 are. NaN and infinities come out."""
    torch.manual_seed(0)
    blocks = {(2, 300, 70): [("reduce_0", 9)], (5000, 20): [("reduce_0", 39), ("reduce_1", 3)]}
    for shape, wanted in blocks.items():
        x = torch.randn(shape).to(dtype)
        x[0], x[1, 1] = float("-inf"), float("nan")
        assert launches_of(Reduced(function, len(shape) - 2), x, gpu_of(4)) == wanted


def test_sums_of_what_is_long_to_compute_have_more_parts(gpu_of):
    parts = []
    for function in (torch.sum, lambda x, dim: torch.nn.functional.softplus(x).sum(dim)):
        compiled = kitsune_mlir.compile(Reduced(function, 0), (torch.randn(4000, 64),), target=gpu_of(4))
        parts.append([launch["ctas"] for launch in compiled.plan["launches"] if "reduce" in launch["kernel"]])
    plain, long = parts
    assert plain == [8] and len(long) == 2 and long[0] > 8


def close(function, args, compiled, *others):
    """Holds a compiled function's results for these arguments, and others, against those in f32."""
    for given in (args, *others):
        found = Simulation(compiled, seed=1)(*given)
        wanted = function(*(x.float() for x in given))
        torch.testing.assert_close(torch.as_tensor(found).float(), wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "word"),
    [
        (4000, 256, "bf16", 2),
        (2000, 16, "bf16", 8),
        (4001, 90, "bf16", 2),
        (4000, 256, "f32", 4),
        (4000, 75, "bf16", 1),
        (900, 3, "f16", 1),
    ],
)
def test_lanes_have_words_of_long_sums(rows, columns, dtype, word, gpu_of):
    torch.manual_seed(0)
    x = torch.randn(rows, columns).to({"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[dtype])
    model = Reduced(torch.sum, 0)
    compiled = kitsune_mlir.compile(model, (x,), target=gpu_of(4))
    loaded = f"vector<{word}x{dtype}>" if word > 1 else f": memref<{rows}x{columns}x{dtype}>"
    assert loaded in compiled.mlir("small:convert-linalg-to-gpu")
    close(model, (x,), compiled)


@pytest.mark.parametrize(
    ("results", "length", "nbytes", "words", "found"),
    [
        (1024, 1000, 2, 8, Shares(1024, 32, 1, 4, 8)),  # 64 blocks have a sector of a row; four turns a thread
        (1024, 262_144, 2, 8, Shares(1024, 16, 66, 8, 1)),  # two blocks an SM, words of 16 bytes
        (16, 1 << 20, 2, 8, Shares(16, 16, 264, 8, 16)),  # 16 rows a warp
        (128, 64, 4, 4, Shares(128, 4, 1, 1, 4)),
        (5, 20_000, 2, 1, Shares(5, 32, 15, 1, 4)),
        (32_000, 1000, 4, 4, Shares(32_000, 16, 1, 4, 1)),
    ],
)
def test_how_a_loop_is_shared(results, length, nbytes, words, found):
    shares = divide(results, length, nbytes, words, 3)
    assert shares == found and shares.wide <= 32 * shares.warps


def test_rows_that_are_open_are_shared_too(gpu_of):
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", min=0, max=4096)
    args, *others = ((torch.randn(count, 64).bfloat16(),) for count in (300, 0, 1, 77))
    model = Reduced(torch.sum, 0)
    compiled = kitsune_mlir.compile(model, args, target=gpu_of(4), dynamic_shapes=({0: rows},))
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["reduce_0", "reduce_1"]
    close(model, args, compiled, *others)


@pytest.mark.parametrize(
    ("function", "dtype", "kernels"),
    [
        (lambda x, dim: x.sum(dim), torch.int64, 1),
        (lambda x, dim: (x > 0).sum(dim), torch.float32, 1),
        (lambda x, dim: x.amin(dim), torch.int16, 1),
        (lambda x, dim: (x > -3).all(dim), torch.float32, 1),
        (lambda x, dim: x.amax(dim), torch.float64, 1),
    ],
    ids=["i64", "count", "i16", "all", "f64"],
)
@pytest.mark.parametrize("dim", [0, 1])
def test_other_widths_are_shared_by_warps_too(function, dtype, kernels, dim, gpu_of):
    torch.manual_seed(0)
    x = (torch.randn(300, 40) * 100).to(dtype)
    compiled = kitsune_mlir.compile(Reduced(function, dim), (x,), target=gpu_of(4))
    shuffles = compiled.mlir("small:convert-linalg-to-gpu").count("gpu.shuffle")
    assert shuffles and len(compiled.plan["launches"]) == kernels
    assert torch.equal(torch.as_tensor(Simulation(compiled, seed=1)(x)), function(x, dim))


@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (lambda x, w: x.float().sum(0) * w + 1, ["reduce_0"]),
        (lambda x, w: torch.nn.functional.gelu(x.float().sum(1)).mT, ["reduce_0"]),
        (lambda x, w: x.float().mean(1, keepdim=True) * w + 1, ["reduce_0"]),
        (lambda x, w: torch.relu((x.float() * w.abs() * x[:1].float()).mean(0, keepdim=True)), ["product_0"]),
        (lambda x, w: x / x.float().sum(0), ["rows0"]),
        (lambda x, w: x / x.float().sum(0, keepdim=True), ["rows0"]),
    ],
)
def test_what_follows_a_reduction_is_in_its_kernel(function, kernels, gpu_of):
    torch.manual_seed(0)
    args = torch.rand(5, 300, 40).bfloat16() + 0.5, torch.randn(40)
    compiled = kitsune_mlir.compile(Function(function), args, target=gpu_of(4))
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == kernels
    close(function, args, compiled)


GRAM = lambda x, y: x.mT @ y  # noqa: E731
ACROSS = {  # a function, shapes, and how many kernels sum
    "a vector": (GRAM, (491, 31), (491, 1), 1),
    "a vector on the left": (GRAM, (491, 1), (491, 31), 1),
    "weighted rows": (lambda x, y: torch.einsum("rc,r->c", x, y), (700, 40), (700,), 1),
    "few columns of both": (GRAM, (1300, 33), (1300, 3), 1),
    "a batch": (GRAM, (3, 200, 5), (3, 200, 6), 1),
    "long": (GRAM, (20_003, 8), (20_003, 1), 2),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("name", ACROSS)
def test_products_across_the_rows_of_few_columns_are_sums_over_rows(name, dtype, gpu_of):
    """Warps share the rows, however few results there are, and nothing is prepared for tensor cores."""
    torch.manual_seed(0)
    function, *shapes, kernels = ACROSS[name]
    args = tuple((torch.randn(shape) * 4).to(dtype) for shape in shapes)
    compiled = kitsune_mlir.compile(Function(function), args, target=gpu_of(4))
    launches = compiled.plan["launches"]
    assert {launch["form"] for launch in launches} == {"operator"}, launches
    assert [launch["computes"] for launch in launches][:kernels] in (["product"] * kernels, ["reduce"] * kernels)
    assert all(launch["computes"] == "elementwise" for launch in launches[kernels:])  # behind other dimensions
    assert "gpu.shuffle" in compiled.mlir("small:convert-linalg-to-gpu")
    close(function, args, compiled)


SPLIT = {  # and the kernels that they are
    "all": (lambda x, y: x.sum(), (300, 256), ["rows0", "rows1"]),
    "a loss": (lambda x, y: ((x - y) ** 2).mean(), (300, 128), ["rows0", "rows1"]),
    "channels": (lambda x, y: x.mean((0, 2, 3)), (5, 6, 32, 36), ["rows0", "reduce_0"]),
    "channels, kept": (lambda x, y: x - x.mean((0, 2, 3), keepdim=True), (5, 6, 32, 36), None),
    "with a channel's number": (lambda x, y: (x * y[0, :, :1]).sum((0, 2)), (50, 6, 132), None),
    "rows in the middle": (lambda x, y: x.sum((0, 1, 3)), (5, 6, 32, 64), ["rows0", "reduce_0"]),
    "one long dimension": (lambda x, y: x.sum(), (40_000,), ["rows0", "reduce_0"]),
    "the largest": (lambda x, y: x.amax((0, 2)), (50, 6, 132), ["rows0", "reduce_0"]),
    "few": (lambda x, y: x.sum((0, 2)), (5, 6, 7), ["reduce_0"]),
    "no columns": (lambda x, y: x.sum((0, 2)), (2001, 5, 3), None),
}


@pytest.mark.parametrize("name", SPLIT)
def test_sums_over_several_dimensions_are_two(name, gpu_of):
    function, shape, kernels = SPLIT[name]
    torch.manual_seed(0)
    args = torch.randn(shape), torch.randn(shape)
    compiled = kitsune_mlir.compile(Function(function), args, target=gpu_of(4))
    assert kernels in (None, [launch["kernel"] for launch in compiled.plan["launches"]])
    close(function, args, compiled)


@pytest.mark.parametrize("keep", [False, True])
def test_loops_through_neighbouring_dimensions_are_one(keep, gpu_of):
    """Averages of images whose channels are last: all threads share both loops, and what scales each row is read."""

    def model(x, rows):
        return (x * rows[..., None]).mean((1, 2), keepdim=keep), (x * x).sum((1, 2, 3))

    torch.manual_seed(0)
    args = torch.randn(2, 14, 12, 24), torch.randn(14, 12)
    compiled = kitsune_mlir.compile(Function(model), args, target=gpu_of(4))
    assert [launch["ctas"] for launch in compiled.plan["launches"] if launch["form"] == "operator"] == [6]
    for found, wanted in zip(Simulation(compiled, seed=1)(*args), model(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted)


@pytest.mark.usefixtures("unassembled")
def test_numbers_that_all_results_count_are_shared_by_few_parts_where_they_are_open(gpu_of):
    """A part of many times the example's turns is one of a few: the second kernel goes through them one by one."""
    numbers = torch.randint(0, 8, (2048,))
    function = Function(lambda x: torch.histc(x.float(), bins=8, min=0, max=7))
    shapes = (({0: torch.export.Dim("rows", min=2)},),)
    compiled = kitsune_mlir.compile(function, (numbers,), target=gpu_of(132), dynamic_shapes=shapes)
    assert compiled.plan["launches"][0]["ctas"] <= 64
    for count in (5, 3000):
        numbers = torch.randint(0, 8, (count,))
        assert torch.equal(Simulation(compiled)(numbers), function(numbers))


def test_all_elements_of_any_number_of_images():
    """Of a few images of the example a part each would be the work of as many warps: another loop is cut."""
    shapes = (({0: torch.export.Dim("images", min=1, max=99)},),)
    function = Function(lambda x: (x * x).mean())
    compiled = kitsune_mlir.compile(function, (torch.randn(2, 3, 64, 96),), target="sm_90a", dynamic_shapes=shapes)
    assert compiled.plan["predicted_us"] < 10
    simulation = Simulation(compiled, seed=1)
    for images in (1, 3):
        x = torch.randn(images, 3, 64, 96)
        torch.testing.assert_close(torch.as_tensor(simulation(x)), function(x), rtol=1e-5, atol=1e-6)
