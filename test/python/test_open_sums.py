"""Sums of all elements, also where a size is open until the call: along rows first, in the kernel of what stands
before, or by blocks that go through the elements together, all sums of the same in one pass."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

BATCH, TOKENS = (torch.export.Dim(name, min=1, max=1 << 16) for name in ("batch", "tokens"))


def focal(x, y):
    p = torch.sigmoid(x)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    return ((0.25 * y + 0.75 * (1 - y)) * loss * (1 - p * y - (1 - p) * (1 - y)) ** 2).mean()


def dice(x, y):
    p = torch.sigmoid(x)
    return 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)


def soft_targets(x, y):
    return F.cross_entropy(x, y, reduction="sum"), (x * y).amax()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [focal, dice, soft_targets])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_kernel_reads_the_inputs(function, dtype, small_gpu):
    """Threads that went through elements one by one read them, and what sums share was written to memory."""
    torch.manual_seed(0)

    def inputs(batch):
        return torch.randn(batch, 128).to(dtype), torch.rand(batch, 128).to(dtype)

    shapes = ({0: BATCH}, {0: BATCH})
    compiled = kitsune_mlir.compile(Function(function), inputs(67), target=small_gpu, dynamic_shapes=(shapes,))
    assert [launch["kernel"] for launch in compiled.plan["launches"]][0] == "rows0"
    simulated = Simulation(compiled)
    for batch in (1, 2, 31, 67):
        check(function, simulated, *inputs(batch))


def check(function, simulated, *args):
    wanted = function(*(x.double() for x in args))
    low = args[0].dtype == torch.bfloat16
    tolerance = {"rtol": 1.6e-2, "atol": 1e-2} if low else {"rtol": 2e-6, "atol": 1e-6}
    for found, exact in zip(_all(simulated(*args)), _all(wanted), strict=True):
        torch.testing.assert_close(torch.as_tensor(found).double(), exact.double(), **tolerance)


def _all(found):
    return found if isinstance(found, list | tuple) else [found]


def metrics(x, y):
    error = x - y
    return error.abs().mean(), (error * error).mean(), error.amax(), (error.sigmoid() * x).sum(), (x > 0).sum()


def areas(x, y):
    """Of boxes: the elements of one lie apart, and sizes are computed where they are multiplied."""
    size = (x[..., 2:4] - y[..., :2]).clamp(min=0)
    return (size[..., 0] * size[..., 1]).mean()


def weighed(x, y):
    """Means of quantiles: the last loop is short, another operand does not have it."""
    error = y[..., :1] - x
    return torch.maximum(error / 3, -error / 2).mean()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [metrics, areas, weighed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_blocks_share_the_elements(function, dtype, small_gpu):
    """Threads had parts of their own: four blocks of boxes, as many kernels as metrics."""
    torch.manual_seed(0)

    def inputs(batch, tokens):
        return torch.randn(batch, tokens, 5).to(dtype), torch.rand(batch, tokens, 5).to(dtype)

    shapes = ({0: BATCH, 1: TOKENS},) * 2
    compiled = kitsune_mlir.compile(Function(function), inputs(37, 83), target=small_gpu, dynamic_shapes=(shapes,))
    assert len(compiled.plan["launches"]) == 2
    simulated = Simulation(compiled)
    for sizes in (1, 1), (2, 31), (37, 83):
        check(function, simulated, *inputs(*sizes))


@pytest.mark.usefixtures("unassembled")
def test_blocks_share_known_elements_that_lie_apart(small_gpu):
    x, y = torch.randn(20000, 4), torch.randn(20000, 4)
    compiled = kitsune_mlir.compile(Function(areas), (x, y), target=small_gpu)
    assert compiled.plan["launches"][0]["ctas"] == 20000 // (8 * 256)
    check(areas, Simulation(compiled), x, y)


def per_image(x, y):
    p, y = x.sigmoid().flatten(1), y.flatten(1)
    return (2 * (p * y).sum(1) + 1) / (p.sum(1) + y.sum(1) + 1)


def variation(x, y):
    """Differences of neighbours are computed where they are summed, not written as rows."""
    return (x[..., 1:, :] - x[..., :-1, :]).abs().sum((1, 2, 3)) + y[..., 1:].mean()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("function", [per_image, variation])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_images_are_read_once(function, is_open, small_gpu):
    """Eight multiprocessors had three rows to sum, whose elements had been computed before."""
    torch.manual_seed(0)
    x, y = torch.randn(3, 1, 128, 160), torch.rand(3, 1, 128, 160)
    shapes = {0: BATCH} if is_open else {}
    compiled = kitsune_mlir.compile(Function(function), (x, y), target=small_gpu, dynamic_shapes=((shapes, shapes),))
    first = compiled.plan["launches"][0]
    assert "elementwise" not in first["computes"] and first["ctas"] > 3
    check(function, Simulation(compiled), x, y)


@pytest.mark.usefixtures("unassembled")
def test_weights_of_classes_are_taken_where_they_are(small_gpu):
    """They were repeated for each row, and all of the logarithms were multiplied with them."""
    torch.manual_seed(0)
    x, y, weight = torch.randn(9, 50), torch.randint(0, 50, (9,)), torch.rand(50)
    y[4] = -100
    compiled = kitsune_mlir.compile(
        Function(F.cross_entropy), (x, y, weight), target=small_gpu, dynamic_shapes=(({0: BATCH}, {0: BATCH}, None),)
    )
    extracts = [line for line in compiled.mlir("prepare-linalg").splitlines() if "tensor.extract" in line]
    assert all("%arg0" in line for line in extracts if "tensor<?x50xf32>" in line)
    found = torch.as_tensor(Simulation(compiled)(x, y, weight))
    torch.testing.assert_close(found.double(), F.cross_entropy(x.double(), y, weight.double()), rtol=2e-6, atol=1e-6)


def dice_of_classes(x, y):
    p = x.softmax(1)
    t = F.one_hot(y, x.shape[1]).permute(0, 3, 1, 2).to(p.dtype)
    return 1 - ((2 * (p * t).sum((0, 2, 3)) + 1e-5) / ((p + t).sum((0, 2, 3)) + 1e-5)).mean()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_codes_of_classes_are_compared_where_they_are_read(is_open, small_gpu):
    """They were written as numbers of 64 bits, classes last, and turned."""
    torch.manual_seed(0)
    x, y = torch.randn(3, 5, 24, 32), torch.randint(0, 5, (3, 24, 32))
    shapes = {0: BATCH} if is_open else {}
    compiled = kitsune_mlir.compile(
        Function(dice_of_classes), (x, y), target=small_gpu, dynamic_shapes=((shapes, shapes),)
    )
    assert "linalg.transpose" not in compiled.mlir("prepare-linalg")
    assert compiled.plan["launches"][0]["kernel"] == "rows0"
    found = torch.as_tensor(Simulation(compiled)(x, y)).double()
    torch.testing.assert_close(found, dice_of_classes(x.double(), y), rtol=2e-6, atol=1e-6)


@pytest.mark.usefixtures("unassembled")
def test_masked_sums_of_an_open_batch():
    """The mask is one number for all columns of a row, in front of a sum in other dimensions: nothing masked is
    written."""
    torch.manual_seed(0)
    table, places, layer = torch.randn(30, 64), torch.randn(128, 64), torch.nn.Linear(64, 64)

    def masked(words, lengths):
        x = F.embedding(words, table) + places
        y = x * layer(x).sigmoid()
        mask = (torch.arange(128)[None] < lengths[:, None])[..., None]
        last = y[torch.arange(y.shape[0]), lengths - 1]
        return (y * mask).sum(1), y.masked_fill(~mask, -torch.inf).amax(1), last

    def arguments(batch):
        return torch.randint(0, 30, (batch, 128)), torch.randint(1, 129, (batch,))

    args = arguments(4)
    compiled = kitsune_mlir.compile(Function(masked), args, target="sm_90a", dynamic_shapes=(({0: BATCH}, {0: BATCH}),))
    assert not any("elementwise; elementwise" in launch["computes"] for launch in compiled.plan["launches"])
    args = arguments(5)
    for found, wanted in zip(Simulation(compiled)(*args), masked(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), wanted.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.usefixtures("unassembled")
def test_sums_over_rows_of_an_open_number_of_columns(target):
    """Sums that CTAs have a part of have a place each, which an open number of them has not: such models ended with an
    InternalError."""

    def function(x, weights):
        return weights.T @ torch.relu(x)

    shapes = ({0: BATCH}, {0: BATCH, 1: TOKENS})
    args = torch.randn(70, 16), torch.randn(70, 33)
    compiled = kitsune_mlir.compile(Function(function), args, target=target, dynamic_shapes=(shapes,))
    run = compiled if target == "cpu" else Simulation(compiled)
    for rows, columns in ((70, 33), (3, 80)):
        args = torch.randn(rows, 16), torch.randn(rows, columns)
        torch.testing.assert_close(torch.as_tensor(run(*args)), function(*args), rtol=1e-4, atol=1e-4)
