"""Scheduled chains some of whose columns other threads have, or other tensors: right numbers in the simulator."""

import re

import pytest
import torch
from chained import CHAINED, agrees
from torch import nn

import kitsune_mlir


@pytest.fixture(scope="module")
def machine(gpu_of):
    """The path of the description of a GPU of two SMs."""
    return gpu_of(2)


class Beside(nn.Module):
    """Products beside a tile that begins in the middle of a block of columns: the last block goes on behind it."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(200, 16), nn.Linear(200, 13, bias=False)

    def forward(self, x, y):
        return torch.cat([torch.exp(self.left(x)), self.right(x), y], 1) - y[:, 105:106]


def test_columns_behind_a_tile(machine):
    torch.manual_seed(0)
    model, args = Beside().bfloat16(), (torch.randn(300, 200).bfloat16(), torch.randn(300, 200).bfloat16())
    options = CHAINED | {"cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, args, target=machine, options=options)
    assert "kitsune.kernel" in compiled.mlir("small:schedule-chains")
    agrees(compiled, model, *args)


class Gates(nn.Module):
    """Columns that all threads of a row read: one of a tile of many, and the only one of another."""

    def __init__(self):
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(64, 40), nn.Linear(40, 1), nn.Linear(40, 24)

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.last(h * torch.sigmoid(self.gate(h)) + h[:, 19:20])


class OneColumn(nn.Module):
    """A product whose operand is one column of another's tile: of four threads of a row only one has it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 40), nn.Linear(1, 24)

    def forward(self, x):
        return self.last(self.first(x)[:, 21:22])


class Streamed(nn.Module):
    """A column of a loaded tile that is in registers, for two products read it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(128, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.last(self.first(torch.cat([x, x], 1)) - x[:, 26:27])


class Stored(nn.Module):
    """A column that is stored, and others of what is loaded beside that itself, in the middle of a block."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(67, 16), nn.Linear(16, 8)

    def forward(self, x):
        return torch.exp(self.last(torch.relu(self.first(torch.cat([x, x[:, 2:5]], 1)))))[:, 5:6]


@pytest.mark.parametrize("form", [Gates, OneColumn, Streamed, Stored])
def test_columns_of_other_threads(form, machine):
    torch.manual_seed(0)
    model, x = form().bfloat16(), torch.randn(150, 64).bfloat16()
    options = CHAINED | {"cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, (x,), target=machine, options=options)
    text = compiled.mlir("small:schedule-chains")
    assert "kitsune.pipeline" not in text
    assert form is not Gates or '"kitsune.spread"' in text and "columns = array<i64: 19>" in text
    agrees(compiled, model, x)


class Film(nn.Module):
    """What a product gives is scaled by some columns of an input, and moved by others."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 320)

    def forward(self, x, by):
        return self.layer(x) * by[:, :320] + by[:, 320:]


def test_columns_of_an_input_beside_those_of_a_product(machine):
    torch.manual_seed(0)
    model, args = Film().bfloat16(), (torch.randn(70, 64).bfloat16(), torch.randn(70, 640).bfloat16())
    options = {"place-stages": "shape=chained", "cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, args, target=machine, options=options)
    assert re.search(r"tile = array<i64: \d+, \d+>", compiled.mlir("small:schedule-chains"))
    agrees(compiled, model, *args)


class Several(nn.Module):
    """Columns from the middle of a block on of three inputs side by side, and one of three products' single ones."""

    def __init__(self):
        super().__init__()
        self.last, self.gates = nn.Linear(176, 40), nn.ModuleList(nn.Linear(176, 1) for _ in range(3))

    def forward(self, x, y, z):
        h = torch.cat([x, y, z], 1)[:, 35:211]
        gates = torch.cat([torch.sigmoid(gate(h)) for gate in self.gates], 1)
        return self.last(h) * gates[:, 2:3]


def test_columns_of_tiles_side_by_side(machine):
    torch.manual_seed(0)
    model, args = Several().bfloat16(), tuple(torch.randn(150, n).bfloat16() for n in (14, 5, 240))
    options = {"place-stages": "shape=chained", "cut-pipelines": "whole=true"}
    compiled = kitsune_mlir.compile(model, args, target=machine, options=options)
    assert "kitsune.pipeline" not in compiled.mlir("small:schedule-chains")
    agrees(compiled, model, *args)
