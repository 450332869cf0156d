"""Random tensor programs (kitsune_mlir/bench/random_programs.py) beside float64, on a CPU and in the simulator."""

import copy
import warnings

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.bench import cases, random_programs
from kitsune_mlir.bench.check import relative_error
from kitsune_mlir.tools.gpusim import Simulation

BOUNDS = {torch.float32: 5e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float64: 1e-10}  # or twice torch's own


def compare(module, args, found):
    """Each result with float64; integers are the same."""
    with torch.no_grad():
        own, exact = module(*args), copy.deepcopy(module).double()(*(_wide(x) for x in args))
    for number, (ours, torchs, wanted) in enumerate(zip(found, own, exact, strict=True)):
        ours = torch.as_tensor(ours)
        error, least = relative_error([ours], [wanted]), relative_error([torchs], [wanted])
        assert error <= max(BOUNDS.get(torchs.dtype, 0), 2 * least), number


def _wide(x):
    return x.double() if x.is_floating_point() else x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
def test_on_a_cpu(seed):
    module, args = random_programs.make(seed, small=True)
    found = kitsune_mlir.compile(module, args)(*args)
    compare(module, args, found)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("seed", [6, 7, 8, 9])
def test_in_the_simulator(seed, small_gpu):
    module, args = random_programs.make(seed, small=True)
    found = Simulation(kitsune_mlir.compile(module, args, target=small_gpu), seed=seed)(*args)
    compare(module, args, found)


def test_a_seed_says_all():
    """A program is drawn alike each time, and its case has the tensors that it was drawn with."""
    with warnings.catch_warnings(action="ignore"):
        assert random_programs.draw(17) == random_programs.draw(17)
    module, args, shapes = cases.find("program-17", None).make()
    assert shapes is None and module.of == random_programs.draw(17)
    assert all(torch.equal(a, b) for a, b in zip(args, random_programs.arguments(module.of, 17), strict=True))
