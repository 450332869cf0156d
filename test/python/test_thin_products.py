"""Products of few rows or columns: row groups with what follows, in the simulator beside float64; and when they are
taken."""

import pytest
import torch
from functions import Function
from hypothesis import given
from hypothesis import strategies as st
from test_gpu_rows import drawn, run
from torch import nn
from torch.nn import functional as F

from kitsune_mlir import compile
from kitsune_mlir.planning import product_tiles
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.thin_products import MOST_ROWS, MOST_TERMS, elementwise_us, small_us, thin_us
from kitsune_mlir.tools.gpusim import Simulation


def layers(x, w, bias, v):
    return F.silu(x @ w.mT + bias) @ v.mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows, k, n, last", [(1, 250, 99, 320), (3, 520, 72, 5)])
def test_two_layers(rows, k, n, last, dtype, small_gpu):
    device = run(layers, drawn((rows, k), (n, k), (n,), (last, n), dtype=dtype), small_gpu)
    assert device.pipeline_launches == 2


def test_a_vector_for_each_of_a_batch(small_gpu):
    device = run(lambda q, k: torch.softmax(q @ k.mT, -1), drawn((30, 1, 64), (30, 50, 64)), small_gpu)
    assert device.pipeline_launches == 2


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["", "open"])
def test_rows_for_each_of_a_batch_of_two_sizes(is_open):
    """Rows that lie along the sum are read as they lie, not turned first."""
    product = Function(lambda query, keys: (query[:, :, None] @ keys.mT)[:, :, 0])
    args = torch.randn(9, 20, 40), torch.randn(9, 20, 12, 40)
    shapes = (({0: torch.export.Dim("batch")},) * 2,) if is_open else None
    compiled = compile(product, args, target="sm_90a", dynamic_shapes=shapes)
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled rows"]
    wanted = product(*(x.double() for x in args))
    assert (torch.as_tensor(Simulation(compiled)(*args)).double() - wanted).norm() <= 1e-6 * wanted.norm()


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["", "open"])
def test_a_column_for_each_of_a_batch(is_open):
    """The column is no dimension of its rows, and the batch may be open."""
    product = Function(lambda states, keys: torch.einsum("bhkv,bhv->bhk", states, keys))
    args = torch.randn(9, 16, 8, 40).bfloat16(), torch.randn(9, 16, 40).bfloat16()
    shapes = (({0: torch.export.Dim("batch")},) * 2,) if is_open else None
    compiled = compile(product, args, target="sm_90a", dynamic_shapes=shapes)
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled rows"]
    wanted = product(*(x.double() for x in args))
    assert (torch.as_tensor(Simulation(compiled)(*args)).double() - wanted).norm() <= 4e-3 * wanted.norm()


def test_one_column_behind_a_product():
    """It is a sum over rows of what the product's kernel has, which is part of that kernel, and no product any more."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv1d(16, 32, 1), nn.GELU(), nn.Conv1d(32, 1, 1)).eval(), torch.randn(2, 16, 1024)
    compiled = compile(model, (x,), target="sm_90a")
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["operator", "scheduled product"]
    torch.testing.assert_close(Simulation(compiled)(x), model.double()(x.double()).float(), atol=1e-6, rtol=1e-5)


@given(
    few=st.integers(1, MOST_ROWS), columns=st.integers(1, 5000), k=st.integers(1, 4096), width=st.sampled_from([2, 4])
)
def test_more_takes_longer(few, columns, k, width):
    target = targets.load("sm_90a")
    us = thin_us(few, columns, k, width, target)
    assert us is not None and us > target.launch_us
    assert thin_us(few, 64 * columns, k, width, target) > us
    assert thin_us(MOST_ROWS + 1, columns, k, width, target) is None


SHORT = {
    "bmk,bkn->bmn": ((5, 24, 2), (5, 2, 40)),
    "mbk,bnk->bmn": ((24, 3, 3), (3, 33, 3)),
    "mk,nk->mn": ((70, 2), (24, 2)),
    "bkn,mk->bmn": ((3, 7, 48), (2, 7)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("equation", SHORT)
def test_short_sums_are_elementwise(equation, dtype, small_gpu):
    """One kernel of no pipeline, with what follows."""
    args = drawn(*SHORT[equation], dtype=dtype)
    device = run(lambda a, b: torch.tanh(torch.einsum(equation, a, b) + 1), args, small_gpu)
    assert device.pipeline_launches == 0


def test_which_short_sums_are_elementwise():
    """A product of a few thousand rows, whose result is written and read again, takes three times as long."""
    target = targets.load("sm_90a")
    us = elementwise_us(2048 * 24 * 256, 2, 55e6, target)
    assert us is not None and 10 < us < product_tiles.choose(2048, 24, 256, 2, True, 6, target).microseconds
    assert elementwise_us(64, MOST_TERMS + 1, 1e3, target) is None
    # Neighbours of a row of results read rows of a matrix of few columns, as where a layer has a rank of 4: no words.
    apart = elementwise_us(2048 * 1024, 4, 4.2e6, target, apart=True)
    assert apart is not None and apart > 3 * product_tiles.choose(1, 2048, 1024, 4, False, 1, target).microseconds


@pytest.mark.usefixtures("unassembled")
def test_short_sums_that_words_have_are_elementwise():
    """Threads mix a few channels where elements of an image are neighbours. Of a layer of rank 4 they are not."""
    mixed = compile(nn.Conv2d(6, 2, 1).requires_grad_(False), (torch.randn(32, 6, 64, 64),), target="sm_90a")
    assert [launch["form"] for launch in mixed.plan["launches"]] == ["operator"]
    low = Function(lambda x, w, a, b: x @ w.mT + (x @ a.mT) @ b.mT)
    args = drawn((2048, 1024), (1024, 1024), (4, 1024), (1024, 4), dtype=torch.bfloat16)
    assert compile(low, args, target="sm_90a").plan["predicted_us"] < 25


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_small_ones_of_a_batch_are_left_to_threads(dtype, small_gpu):
    """Tiles of tensor cores would be mostly empty; the softmax between has the only kernel of rows."""

    def attention(q, k, v):
        return torch.softmax(q @ k.mT, -1) @ v

    device = run(attention, drawn((11, 4, 16, 6), (11, 4, 16, 6), (11, 4, 16, 6), dtype=dtype), small_gpu)
    assert device.pipeline_launches == 1
    assert small_us(6272, 16, 16, 6, targets.load("sm_90a")) < 10
    assert small_us(6272, 33, 16, 6, targets.load("sm_90a")) is None


def nearest(x, y):
    """Squared distances of points in space to the nearest of others."""
    products = x @ y.mT
    return (x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(1) - 2 * products).amin(-1)


def test_distances_in_space_are_not_written():
    """Each is part of what looks for the least, and the points' coordinates are read along their numbers."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 70, 3), torch.randn(2, 130, 3)
    compiled = compile(Function(nearest), (x, y), target="sm_90a")
    written = [launch["computes"] for launch in compiled.plan["launches"] if launch["form"] != "operator"]
    assert len(written) == 1
    found = torch.as_tensor(Simulation(compiled, seed=1)(x, y)).double()
    torch.testing.assert_close(found, nearest(x.double(), y.double()), rtol=0, atol=2e-5)
    large = compile(Function(nearest), (torch.randn(8, 2048, 3), torch.randn(8, 2048, 3)), target="sm_90a")
    assert large.plan["predicted_us"] < 150  # writing and reading them takes 100 us more
