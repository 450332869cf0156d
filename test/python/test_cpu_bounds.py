"""Indices out of range are an error that names the model's line, and touch no other memory."""

import numpy as np
import pytest
import torch
from cpu_case import runner
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import cpu
from kitsune_mlir.errors import UserError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import find
from kitsune_mlir.planning import target


class Pick(nn.Module):
    def forward(self, table, rows):
        return table[rows]  # the line that is named


class Add(nn.Module):
    def forward(self, table, rows):
        return table.index_add(0, rows, torch.ones(rows.shape[0], table.shape[1]))


def compiled(model, count=4):
    program = import_model(model, (torch.zeros(5, 3), torch.zeros(count, dtype=torch.int64)))
    with program.module.context:
        find("prepare-linalg")().run(program.module)
    section = cpu.build(program.module, target.load("cpu"), opt_level=0)
    return runner(section, [argument.value for argument in program.arguments])


@pytest.mark.parametrize("model", [Pick(), Add()], ids=["gather", "scatter"])
def test_indices_out_of_range(model):
    table, call = np.arange(15, dtype="f4").reshape(5, 3), compiled(model)
    rows = np.array([0, 4, 2, 2])
    (found,) = call.run([table, rows])
    assert (found == model(torch.from_numpy(table), torch.from_numpy(rows)).numpy()).all()
    for wrong in (5, 1 << 40, -(1 << 40)):
        with pytest.raises(UserError, match=r"test_cpu_bounds.py:\d+: an index is out of range"):
            call.run([table, np.array([0, wrong, 1, 2])])
    (again,) = call.run([table, rows])
    assert (again == found).all()


def test_a_single_index_out_of_range():
    """No loop reads it."""
    table, call = np.arange(15, dtype="f4").reshape(5, 3), compiled(Pick(), 1)
    assert (call.run([table, np.array([-1])])[0] == table[[-1]]).all()
    for wrong in (5, -6):
        with pytest.raises(UserError, match=r"test_cpu_bounds.py:\d+: an index is out of range"):
            call.run([table, np.array([wrong])])


def test_negative_indices_count_from_the_end():
    table = np.arange(15, dtype="f4").reshape(5, 3)
    (found,) = compiled(Pick()).run([table, np.array([-1, -5, 0, 1])])
    assert (found == table[[-1, -5, 0, 1]]).all()


class Gathered(nn.Module):
    """Rows that a pipeline gathers, after columns of theirs were chosen."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(40, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, table, e, rows):
        found = table[rows[:, 1]]  # the line that is named
        return self.net(torch.cat([found, e], 1))


@pytest.mark.parametrize("open_sizes", [False, True], ids=["fixed", "open"])
def test_gathers_of_pipelines(open_sizes):
    """Stages keep tables of fixed shape at hand; with others the operators run one at a time."""
    torch.manual_seed(1)
    model, args = Gathered(), (torch.randn(50, 24), torch.randn(300, 16), torch.randint(-50, 50, (300, 2)))
    n, m = torch.export.Dim("n"), torch.export.Dim("m")
    shapes = ({0: n}, {0: m}, {0: m}) if open_sizes else None
    with torch.no_grad():
        compiled, wanted = kitsune_mlir.compile(model, args, target="cpu", dynamic_shapes=shapes), model(*args)
    assert bool(compiled.plan["pipelines"]) != open_sizes
    for wrong in (50, -51, 1 << 40):
        rows = args[2].clone()
        rows[7, 1] = wrong
        with pytest.raises(UserError, match=r"test_cpu_bounds.py:\d+: an index is out of range"):
            compiled(*args[:2], rows)
    torch.testing.assert_close(compiled(*args), wanted)
