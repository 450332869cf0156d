"""Vectors of pairs that are summed over one of the two, in the simulator of GPUs and on a CPU beside f64."""

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

BODIES, OTHERS = (torch.export.Dim(name, min=2, max=4096) for name in ("bodies", "others"))


def gravity(x, m):
    """Forces between bodies, summed over the second of the two: [b, n, 3], [b, n] -> [b, n, 3]."""
    away = x[:, None] - x[:, :, None]
    squares = (away**2).sum(-1) + 0.01
    return ((away * (m[:, None] * squares**-1.5)[..., None]).sum(2),)


def lennard_jones(x, m):
    """Forces and energy, whose distances keep a dimension of one coordinate."""
    away = x[:, None] - x[:, :, None]
    squares = away.pow(2).sum(-1, keepdim=True) + 1
    inverse = m[:, None, :, None] / squares**3
    return ((2 * inverse * inverse - inverse) / squares * away).sum(1), (inverse * inverse - inverse).sum()


def mean_shift(x, y):
    """Two sets in a plane, with the largest step besides: [n, 2], [m, 2] -> [m, 2] twice."""
    away = y[:, None] - x[None]
    weights = torch.exp(-(away * away).sum(-1) / 2)
    return (weights[..., None] * away).sum(1) / weights.sum(1, keepdim=True), away.abs().amax(1)


OF_BODIES, OF_BOTH = ({1: BODIES}, {1: BODIES}), ({0: BODIES}, {0: OTHERS})
CASES = {  # a function, its arguments' sizes in each of the calls, and which are open
    "gravity": (gravity, [((2, 11, 3), (2, 11)), ((2, 40, 3), (2, 40))], OF_BODIES),
    "Lennard and Jones": (lennard_jones, [((2, 9, 3), (2, 9)), ((2, 17, 3), (2, 17))], OF_BODIES),
    "mean shift": (mean_shift, [((20, 2), (9, 2)), ((5, 2), (33, 2))], OF_BOTH),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_open", [False, True], ids=["", "open"])
@pytest.mark.parametrize("name", CASES)
def test_right(name, is_open):
    function, calls, shapes = CASES[name]
    torch.manual_seed(0)
    drawn = [tuple(torch.rand(size) * 2 for size in call) for call in (calls if is_open else calls[:1])]
    given = {"dynamic_shapes": (shapes,)} if is_open else {}
    cpu, gpu = (kitsune_mlir.compile(Function(function), drawn[0], target=name, **given) for name in ("cpu", "sm_90a"))
    for args in drawn:
        wanted = function(*(x.double() for x in args))
        for found in (cpu(*args), Simulation(gpu, seed=1)(*args)):
            for own, exact in zip(found if isinstance(found, tuple | list) else [found], wanted, strict=True):
                assert (torch.as_tensor(own).double() - exact).norm() <= 2e-6 * exact.norm()
