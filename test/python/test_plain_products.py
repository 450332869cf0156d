"""Products as einsum makes them, between views and transposes that move dimensions of one element."""

import pytest
import torch
from functions import Function
from hypothesis import given
from hypothesis import strategies as st

import kitsune_mlir
from kitsune_mlir.bench.zoo_models import BatchedExperts
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes.plain_products import _split
from kitsune_mlir.tools.gpusim import Simulation


class Einsums(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = (torch.nn.Parameter(torch.randn(3, *size)) for size in ((8, 5), (5, 8)))

    def forward(self, x, weights):
        hidden = torch.tanh(torch.einsum("nd,edh->neh", x, self.up))
        apart = torch.einsum("neh,ehd->ned", hidden, self.down)
        return (
            torch.einsum("neh,ehd,ne->nd", hidden, self.down, weights),
            torch.relu(torch.einsum("ned,ne->nd", apart, weights)),
            torch.einsum("ned,ne->dn", apart, weights),
            (x[None] @ self.up[:1])[0],
            torch.einsum("nd,nd,ne->ne", x, x, weights),
        )


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "open"])
def test_einsums(dynamic):
    model, args = Einsums().eval(), (torch.randn(7, 8), torch.rand(7, 3))
    rows = torch.export.Dim("rows", min=2)
    shapes = ({0: rows}, {0: rows}) if dynamic else None
    compiled = kitsune_mlir.compile(model, args, dynamic_shapes=shapes)
    for count in (7, 2) if dynamic else (7,):
        given_args = (torch.randn(count, 8), torch.rand(count, 3))
        torch.testing.assert_close(compiled(*given_args), model(*given_args), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("unassembled")
def test_what_follows_products_of_an_open_batch(small_gpu):
    """It is done before the batch is split again, into an open size and heads: as many as there were."""

    def scores(q, k):
        return q @ k.transpose(-1, -2) / 3 + q[..., :1]

    batch = torch.export.Dim("batch")
    args = torch.randn(3, 8, 15, 4), torch.randn(3, 8, 15, 4)
    compiled = kitsune_mlir.compile(
        Function(scores), args, target=["cpu", small_gpu], dynamic_shapes=(({0: batch}, {0: batch}),)
    )
    module = compiled.module("prepare-linalg")
    (expand,) = walk(module, "tensor.expand_shape")
    assert expand.operands[1].owner.name == "tensor.dim"
    for count in (3, 5):
        args = torch.randn(count, 8, 15, 4), torch.randn(count, 8, 15, 4)
        for run in (compiled, Simulation(compiled)):
            torch.testing.assert_close(torch.as_tensor(run(*args)), scores(*args))


@pytest.mark.usefixtures("unassembled")
def test_batched_experts_move_nothing():
    model, x = BatchedExperts(64, 128, 3).eval(), torch.randn(96, 64)
    model = model.bfloat16()
    compiled = kitsune_mlir.compile(model, (x.bfloat16(),), target="sm_90a")
    names = [launch["kernel"].rpartition("_")[0] or launch["form"] for launch in compiled.plan["launches"]]
    assert names.count("elementwise") == 1  # the weighted sum of the experts: nothing is transposed
    found, wanted = Simulation(compiled)(x.bfloat16()).float(), model.float()(x)
    assert (found - wanted).norm() < 2e-2 * wanted.norm()


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4))
def test_sizes_are_split_into_those_that_make_them(parts):
    finer = [size for part in parts for size in part]
    shape = [torch.Size(part).numel() for part in parts]
    groups = _split(shape, finer)
    if len(finer) == len(shape):
        assert groups is None
        return
    assert groups is not None and sum(groups, []) == list(range(len(finer)))
    assert [torch.Size([finer[d] for d in group]).numel() for group in groups] == shape
