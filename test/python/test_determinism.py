"""deterministic=True: rows that meet are added, and written, in their order, so that each call gives the same bits."""

import pytest
import torch
from functions import Function, computed
from torch import nn

import kitsune_mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.tools.gpusim.simulation import Simulation


class Meeting(nn.Module):
    """Sums of what a pipeline makes, elements that go to rows of their own, and rows that overwrite each other."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, e, to):
        messages = self.net(e)
        into = (to.view(-1, 1) + torch.arange(16)) % 9
        return (
            torch.zeros(9, 16).index_add(0, to, messages),
            torch.ones(9, 16).scatter_add(0, into, messages),
            torch.zeros(9, 16).index_put((to,), messages),
            torch.zeros(9, 16).scatter_reduce(0, into, messages, "amax"),
        )


def in_order(model, e, to):
    """What a processor computes that takes rows one after another."""
    messages, rows = model.net(e), torch.arange(16)
    sums, elements, written, most = torch.zeros(9, 16), torch.ones(9, 16), torch.zeros(9, 16), torch.zeros(9, 16)
    for row, into in zip(messages, to.tolist(), strict=True):
        sums[into] += row
        elements[(into + rows) % 9, rows] += row
        written[into] = row
        most[(into + rows) % 9, rows] = torch.maximum(most[(into + rows) % 9, rows], row)
    return sums, elements, written, most


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("open_sizes", [False, True], ids=["fixed", "open"])
def test_rows_come_in_their_order(open_sizes, small_gpu):
    torch.manual_seed(1)
    model, args = Meeting().eval(), (torch.randn(150, 16), torch.randint(0, 9, (150,)))
    edges = torch.export.Dim("edges")
    shapes = ({0: edges}, {0: edges}) if open_sizes else None
    options = {"dynamic_shapes": shapes, "target": small_gpu, "matmul_precision": "highest"}
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, args, deterministic=True, **options)
        wanted = in_order(model, *args)
    kernels = computed(compiled)
    assert sum(kernel.startswith("ordered_scatter") for kernel in kernels) == 3
    assert "deterministic: " in compiled.report() and compiled.plan["deterministic_us"] > 0
    first, second = (Simulation(compiled, seed=seed)(*args) for seed in (1, 2))
    for a, b, right in zip(first, second, wanted, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, right, rtol=1e-5, atol=1e-5)


def test_sums_by_the_same_numbers_share_a_sort():
    """Of 600 places, two digits; one row number is that of no place."""

    def sums(e, to):
        once = torch.zeros(600, 16).index_add(0, to, e)
        return torch.zeros(600, 16).index_add(0, to, torch.relu(once[to] + e)), once

    torch.manual_seed(4)
    args = torch.randn(500, 16), torch.randint(0, 600, (500,))
    compiled = kitsune_mlir.compile(Function(sums), args, deterministic=True, target="sm_90a")
    kernels = computed(compiled)
    assert sum(kernel.startswith("ordered_scatter") for kernel in kernels) == 2
    assert sum(kernel.startswith("ordered_sort_place") for kernel in kernels) == 2
    assert sum(kernel.startswith("ordered_sort_bounds") for kernel in kernels) == 1
    run = Simulation(compiled)
    for a, b in zip(run(*args), sums(*args), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    args[1][7] = 600
    with pytest.raises(UserError, match="an index is out of range"):
        run(*args)


@pytest.mark.usefixtures("unassembled")
def test_torch_asks_for_it():
    model, args = Meeting().eval(), (torch.randn(150, 16), torch.randint(0, 9, (150,)))
    with torch.no_grad():
        assert "deterministic_us" not in kitsune_mlir.compile(model, args, target="sm_90a").plan
        torch.use_deterministic_algorithms(True)
        try:
            assert "deterministic_us" in kitsune_mlir.compile(model, args, target="sm_90a").plan
        finally:
            torch.use_deterministic_algorithms(False)
