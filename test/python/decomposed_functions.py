"""What tests of torch functions share: a function as a compiled model, and its error beside torch's own."""

import dataclasses

import torch
from torch import nn

from kitsune_mlir import mlir
from kitsune_mlir.compiler import compile_program
from kitsune_mlir.frontend import import_model
from kitsune_mlir.program import Program
from kitsune_mlir.tools.gpusim import Simulation

TARGETS = ("cpu", "sm_90a")


def results(function, *args, target):
    """The compiled function's results, those of a GPU from the simulator."""
    with torch.no_grad():
        compiled = compile_program(_imported(function, args), target)
        found = (compiled if target == "cpu" else Simulation(compiled, seed=1))(*args)
    return [torch.as_tensor(each) for each in (found if isinstance(found, tuple) else [found])]


_last: list[tuple[object, Program]] = []


def _imported(function, args):
    """A copy of the function's program. Tests come for one target after the other: what torch exported last it does not
    export again, if the function's code is the same, and what it takes from around it."""
    key = _key(function, args)
    if not _last or _last[0][0] != key:

        class Model(nn.Module):
            def forward(self, *values):
                return function(*values)

        _last[:] = [(key, import_model(Model(), args))]
    program = _last[0][1]
    return dataclasses.replace(program, module=mlir.clone(program.module))


def _key(function, args):
    """Tensors of `args` by their types, for their numbers change nothing; everything else that is no plain value is
    the same only if it is the same object."""
    kinds = [(x.dtype, x.shape, x.stride()) for x in args]
    if not hasattr(function, "__code__"):
        return kinds, _Itself(function)
    around = [cell.cell_contents for cell in function.__closure__ or ()] + [*(function.__defaults__ or ())]
    plain = (int, float, str, torch.dtype, type(None))
    return kinds, function.__code__, [(type(x), repr(x)) if isinstance(x, plain) else _Itself(x) for x in around]


@dataclasses.dataclass(eq=False)
class _Itself:
    """An object, which is kept, so that no other has its place; equal to itself alone."""

    value: object

    def __eq__(self, other):
        return isinstance(other, _Itself) and self.value is other.value


def error(found, exact):
    """Relative to all of the exact result."""
    return ((found.double() - exact).norm() / exact.norm()).item()


def check_error(function, *args, target, least=1e-7):
    """The first result is as exact as torch's own, but for a factor of 2 that roundings may make."""
    found, exact = results(function, *args, target=target)[0], function(*(x.double() for x in args))
    torchs = function(*args)
    assert (found.dtype, found.shape) == (torchs.dtype, torchs.shape)
    assert error(found, exact) <= 2 * error(torchs, exact) + least
