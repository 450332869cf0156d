"""Indices out of range are an error that names the model's line, and touch no other memory."""

import numpy as np
import pytest
import torch
from cpu_case import runner
from torch import nn

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


def compiled(model):
    program = import_model(model, (torch.zeros(5, 3), torch.zeros(4, dtype=torch.int64)))
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


def test_negative_indices_count_from_the_end():
    table = np.arange(15, dtype="f4").reshape(5, 3)
    (found,) = compiled(Pick()).run([table, np.array([-1, -5, 0, 1])])
    assert (found == table[[-1, -5, 0, 1]]).all()
