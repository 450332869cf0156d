"""Updates by index that are sorted first and joined in registers: as right as others, and where they pay."""

import pytest
import torch
from functions import Function, computed
from torch import nn

import kitsune_mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.planning import run_sums
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.run_sums import Updates
from kitsune_mlir.tools.gpusim.simulation import Simulation


class Reductions(nn.Module):
    """Sums and others by the same numbers, of rows of several dimensions too."""

    def forward(self, x, weights, source, to):
        messages = x[source] * weights
        rows = to.view(-1, 1).expand_as(messages)
        heads, nodes = messages.view(-1, 2, 8), x.shape[0]
        return (
            torch.zeros(nodes, 16).index_add(0, to, messages.float()),
            torch.zeros(nodes, 16, dtype=x.dtype).scatter_reduce(0, rows, messages, "amax", include_self=False),
            torch.ones(nodes, 2, 8, dtype=x.dtype).scatter_reduce(0, to.view(-1, 1, 1).expand_as(heads), heads, "amin"),
            torch.ones(nodes, 16, dtype=torch.long).index_add(0, to, (4 * messages).long()),
        )


def graph(nodes, edges, kind, dtype):
    to = torch.full((edges,), nodes - 1) if kind == "hub" else torch.randint(0, max(1, nodes - 2), (edges,))
    return torch.randn(nodes, 16).to(dtype), torch.rand(edges, 1).to(dtype), torch.randint(0, nodes, (edges,)), to


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("open_sizes, dtype", [(True, torch.float32), (False, torch.bfloat16)])
def test_they_are_right(open_sizes, dtype, monkeypatch):
    """Compiled as if it paid: of few edges, of none, all to one node, and of one that is no node."""
    monkeypatch.setattr(run_sums, "pays", lambda *_: True)
    monkeypatch.setattr(run_sums, "saved_us", lambda *_: 1.0)
    torch.manual_seed(1)
    nodes, edges = torch.export.Dim("nodes", min=2), torch.export.Dim("edges")
    shapes = ({0: nodes}, {0: edges}, {0: edges}, {0: edges}) if open_sizes else None
    model, args = Reductions(), graph(30, 90, "any", dtype)
    compiled = kitsune_mlir.compile(model, args, target="sm_90a", dynamic_shapes=shapes)
    kernels = computed(compiled)
    assert sum(kernel.startswith("scatter_runs") for kernel in kernels) == (3 if open_sizes else 2), kernels
    assert open_sizes or sum(kernel.startswith("ordered_sort_count") for kernel in kernels) == 1
    run = Simulation(compiled)
    others = [graph(9, 1, "any", dtype), graph(9, 0, "any", dtype), graph(20, 75, "hub", dtype)] if open_sizes else []
    for given in (args, *others):
        for found, wanted in zip(run(*given), model(*given), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    args[3][7] = 30
    with pytest.raises(UserError, match="an index is out of range"):
        run(*args)


@pytest.mark.usefixtures("unassembled")
def test_one_kernel_does_several_that_do_not_need_one_another(monkeypatch):
    """A mean divides a sum before the largest is taken. Messages that are made of a sum come later, and so does what
    is joined to one."""

    class Layer(nn.Module):
        def forward(self, x, weights, source, to):
            messages, zeros = x[source], torch.zeros_like(x)
            total = zeros.index_add(0, to, messages)
            mean = total / 3
            most = zeros.scatter_reduce(0, to.view(-1, 1).expand_as(messages), messages * weights, "amax")
            rows = to.view(-1, 1).expand_as(messages)
            above = zeros.index_add(0, to, messages * 2).scatter_reduce(0, rows, messages * 9, "amax")
            return mean, most, zeros.index_add(0, to, messages - total[to]), above

    monkeypatch.setattr(run_sums, "pays", lambda *_: True)
    monkeypatch.setattr(run_sums, "saved_us", lambda *_: 1.0)
    torch.manual_seed(2)
    model, args = Layer(), graph(30, 90, "hub", torch.float32)
    compiled = kitsune_mlir.compile(model, args, target="sm_90a")
    kernels = computed(compiled)
    assert sum(kernel.startswith("scatter_runs") for kernel in kernels) == 3, kernels
    for found, wanted in zip(Simulation(compiled)(*args), model(*args), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("deterministic", [False, True])
def test_parts_of_the_same_numbers_have_sorts_of_their_own(deterministic, monkeypatch):
    monkeypatch.setattr(run_sums, "pays", lambda *_: True)
    monkeypatch.setattr(run_sums, "saved_us", lambda *_: 1.0)

    def sums(a, b, to):
        zeros = torch.zeros(9, 16)
        return zeros.index_add(0, to, a), zeros.index_add(0, to[:40], b), zeros.index_add(0, to[50:], b)

    torch.manual_seed(4)
    args = torch.randn(90, 16), torch.randn(40, 16), torch.randint(0, 9, (90,))
    compiled = kitsune_mlir.compile(Function(sums), args, target="sm_90a", deterministic=deterministic)
    kernels = computed(compiled)
    assert sum(kernel.startswith("ordered_sort_count") for kernel in kernels) == 3, kernels
    for found, wanted in zip(Simulation(compiled)(*args), sums(*args), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("unassembled")
def test_many_products_are_done_by_place():
    """No atomic operation multiplies: a thread has a place's factors, once there are many, and all before."""

    class Products(nn.Module):
        def forward(self, x, to):
            rows = to.view(-1, 1).expand_as(x)
            few = torch.ones(9, 4).scatter_reduce(0, to[:100].view(-1, 1).expand(100, 4), x[:100], "prod")
            return torch.ones(9, 4).scatter_reduce(0, rows, x, "prod"), few

    torch.manual_seed(3)
    args = 0.8 + 0.4 * torch.rand(300, 4), torch.randint(0, 9, (300,))
    compiled = kitsune_mlir.compile(Products(), args, target="sm_90a")
    kernels = computed(compiled)
    assert sum(kernel.startswith("ordered_scatter") for kernel in kernels) == 1, kernels
    for found, wanted in zip(Simulation(compiled)(*args), Products()(*args), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_they_are_chosen_where_they_pay():
    """Many sums by the same numbers, and the largest of floats; neither few rows, nor one sum, nor narrow rows."""
    target = targets.load("sm_90a")

    def pays(rows, columns, adds, count, is_open=False, each=10):
        return run_sums.pays([Updates(rows, columns, 4, rows // each, adds, 2 * columns)] * count, is_open, target)

    assert pays(200_000, 128, True, 3) and pays(200_000, 128, False, 1) and pays(200_000, 128, False, 3, True)
    assert not pays(200_000, 128, True, 1) and not pays(5_000, 128, False, 1) and not pays(200_000, 4, False, 3)
    assert pays(200_000, 32, False, 3) and not pays(200_000, 16, True, 10)
    assert not pays(200_000, 128, False, 1, each=1000)  # few are larger than all before them
    assert pays(200_000, 128, True, 2) and not pays(200_000, 128, True, 2, True)
