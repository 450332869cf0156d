"""Sums of products over a few channels that do not lie along lines: elementwise, as exact as torch's."""

import pytest
import torch
from decomposed_functions import TARGETS, check_error
from functions import Function, computed
from torch import nn
from torch.export import Dim

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")
# Equations with the shapes of both operands.
COLOURS = {
    "ij,njhw->nihw": ((3, 3), (2, 3, 4, 5)),
    "njhw,ij->nihw": ((2, 3, 4, 5), (2, 3)),
    "nchw,nchw->nhw": ((2, 4, 3, 5), (2, 4, 3, 5)),
    "chw,kc->hwk": ((2, 3, 4), (5, 2)),
    "nij,njp->npi": ((2, 3, 3), (2, 3, 7)),
    "bijc,bij->bic": ((2, 3, 9, 3), (2, 3, 9)),
    "ji,ijc->ic": ((9, 5), (5, 9, 2)),
    "ijc,ji->c": ((5, 9, 4), (9, 5)),
    "bijo,bijc->bic": ((2, 3, 9, 1), (2, 3, 9, 3)),
    "bko,bkc->bc": ((2, 9, 5), (2, 9, 3)),
    "abc,bd->a": ((2, 3, 4), (3, 5)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("equation", COLOURS)
def test_as_torch(equation, target):
    torch.manual_seed(0)
    args = [torch.randn(shape) for shape in COLOURS[equation]]
    check_error(lambda x, y: torch.einsum(equation, x, y), *args, target=target)


def test_16_bits_are_added_up_in_f32():
    torch.manual_seed(0)
    args = torch.randn(3, 3).bfloat16(), torch.randn(1, 3, 8, 8).bfloat16()
    check_error(lambda x, y: torch.einsum("ij,njhw->nihw", x, y), *args, target="cpu")


@pytest.mark.parametrize("equation", ["ntl,tlc->nc", "tlc,ntl->nc", "Ztl,tlZ->Z"])
def test_several_sums_turn_nothing(equation):
    """The larger operand is read as it lies, whatever its indices are called."""
    torch.manual_seed(0)
    sizes = {"n": 512, "t": 12, "l": 20, "c": 24, "Z": 16}
    left, right, _ = equation.replace("->", ",").split(",")
    args = [torch.randn([sizes[letter] for letter in term]) for term in (left, right)]
    check_error(lambda x, y: torch.einsum(equation, x, y), *args, target="cpu")
    if "n" in equation:
        compiled = kitsune_mlir.compile(Function(lambda x, y: torch.einsum(equation, x, y)), args, target="sm_90a")
        assert "transpose" not in compiled.mlir("prepare-linalg")


def test_vectors_that_are_weighed_are_no_products():
    """What makes the vectors, and the weights, is computed with their sums."""

    def forces(x):
        away = x[:, None] - x
        return torch.einsum("ijc,ij->ic", away, torch.exp(-(away * away).sum(-1)))

    compiled = kitsune_mlir.compile(Function(forces), (torch.randn(200, 3),), target="sm_90a")
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["operator"] * 2
    written = max(launch["work"]["written_bytes"] for launch in compiled.plan["launches"])
    assert written < 4 * 200 * 200, "what is there for each pair is written"


def test_what_makes_the_channels_is_in_its_kernel():
    """Also where sizes are open: all that is sliced off a part of a concatenation is that part."""

    def function(matrix, x):
        colours = torch.cat([x.sin(), x.cos(), x + 1], 1)
        return torch.einsum("ij,njhw->nihw", matrix, colours).relu()

    args, sizes = (torch.randn(3, 3), torch.randn(2, 1, 8, 12)), {2: Dim("h", min=2), 3: Dim("w", min=2)}
    for shapes in (None, ((None, sizes),)):
        compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a", dynamic_shapes=shapes)
        assert computed(compiled) == ["elementwise"]


def test_tables_that_a_layer_mixes():
    """What a layer makes is in a pipeline, whose tiles are no rows of the tables."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables, self.layer = nn.Parameter(torch.randn(3, 2, 17, 17, 17)), nn.Linear(8, 3)

        def forward(self, x):
            return torch.einsum("nk,kcdhw->ncdhw", self.layer(x).softmax(-1), self.tables)

    model, x = Mixed().eval(), torch.randn(2, 8)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), model(x), rtol=1e-4, atol=1e-5)
