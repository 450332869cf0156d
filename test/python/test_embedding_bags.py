"""nn.EmbeddingBag on a CPU and in the GPU simulator: bags of one size and of any, empty ones, weights, padding."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kitsune_mlir
from kitsune_mlir.errors import UserError
from kitsune_mlir.tools.gpusim.simulation import Simulation

TABLE = torch.randn(30, 16, generator=torch.Generator().manual_seed(1))
MODES = ("sum", "mean", "max")


def check(model, *calls, dynamic_shapes=None):
    """Compiled for the first call's arguments; all calls agree with torch."""
    targets = ["cpu", "sm_90a"]
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, calls[0], target=targets, dynamic_shapes=dynamic_shapes)
    simulation = Simulation(compiled)
    for args in calls:
        with torch.no_grad():
            wanted = model(*args)
        for run in (compiled, simulation):
            for found, right in zip(run(*args), wanted, strict=True):
                bound = 2e-2 if right.dtype == torch.bfloat16 else 1e-5
                torch.testing.assert_close(found, right, rtol=bound, atol=1e-5)
    return compiled.plans["sm_90a"]


class Offsets(nn.Module):
    def forward(self, index, offsets, weights):
        table = TABLE.to(weights.dtype)
        kinds = [F.embedding_bag(index, table, offsets, mode=mode) for mode in MODES]
        padded = [F.embedding_bag(index, table, offsets, mode=mode, padding_idx=5) for mode in MODES]
        ended = [F.embedding_bag(index, table, offsets, mode=mode, include_last_offset=True) for mode in MODES]
        return *kinds, *padded, *ended, F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=weights)


def bags(sizes, dtype=torch.int64, weights=torch.float32):
    """Numbers with some that are padding, where bags of these sizes begin, and weights."""
    sizes = torch.tensor(sizes)
    index = torch.randint(0, 30, (int(sizes.sum()),))
    index[: len(index) // 3] = 5
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return index.to(dtype), offsets.to(dtype), torch.randn(len(index), dtype=weights)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_bags_of_any_size(weights):
    torch.manual_seed(2)
    plan = check(Offsets(), bags([3, 0, 4, 5, 0, 0], torch.int32, weights))
    assert not any(launch["kernel"].startswith("serial") for launch in plan["launches"])


@pytest.mark.usefixtures("unassembled")
def test_wrong_offsets_are_reported():
    """One behind the last index, a first that is not 0, a negative one."""
    index, offsets = bags([3, 0, 4, 5])[:2]
    compiled = kitsune_mlir.compile(Means(), (index, offsets), target=["cpu", "sm_90a"])
    for place, wrong in ((-1, 13), (0, 1), (2, -1)):
        changed = offsets.clone()
        changed[place] = wrong
        for run in (compiled, Simulation(compiled)):
            with pytest.raises(UserError, match="an index is out of range"):
                run(index, changed)


class Means(nn.Module):
    def forward(self, index, offsets):
        return (F.embedding_bag(index, TABLE, offsets, mode="mean"),)


@pytest.mark.usefixtures("unassembled")
def test_open_numbers_of_bags_and_indices():
    torch.manual_seed(3)
    n, b = torch.export.Dim("n", min=1), torch.export.Dim("b", min=2)
    calls = [bags(sizes) for sizes in ([3, 0, 4, 5], [1, 0], [0, 0, 9, 0, 2, 1, 1])]
    check(Means(), *[call[:2] for call in calls], dynamic_shapes=({0: n}, {0: b}))


class Rows(nn.Module):
    """A 2-D input; a row of padding alone is an empty bag."""

    def forward(self, index, weights):
        kinds = [F.embedding_bag(index, TABLE, mode=mode) for mode in MODES]
        padded = [F.embedding_bag(index, TABLE, mode=mode, padding_idx=5) for mode in MODES]
        return *kinds, *padded, F.embedding_bag(index, TABLE, mode="sum", per_sample_weights=weights)


@pytest.mark.usefixtures("unassembled")
def test_bags_of_one_size():
    torch.manual_seed(4)
    index = torch.randint(0, 30, (7, 4))
    index[2], index[3, 1] = 5, 5
    check(Rows(), (index, torch.randn(7, 4)))


@pytest.mark.usefixtures("unassembled")
def test_no_indices():
    check(Offsets(), bags([0, 0, 0]))


class Long(nn.Module):
    """Bags of one size, and the largest of all elements that they have."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(30, 64))

    def forward(self, index):
        return F.embedding_bag(index, self.table, mode="sum"), self.table[index].amax()


@pytest.mark.usefixtures("unassembled")
def test_long_bags_are_read_line_by_line():
    """A warp's lanes have neighbouring columns of a row, not one column of so many rows."""
    plan = check(Long(), (torch.randint(0, 30, (4, 64)),))
    assert sum(launch["work"]["lines"] for launch in plan["launches"] if "work" in launch) < 4 * 64 * 12
