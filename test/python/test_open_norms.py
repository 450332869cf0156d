"""Norms and softmaxes of which several sizes are open until the call: kernels of rows, beside float64."""

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

BATCH, ROWS, COLUMNS = (torch.export.Dim(name, min=1, max=1 << 16) for name in ("batch", "rows", "columns"))


def logs(x, mask):
    return torch.log_softmax(x.masked_fill(~mask[:, None], -1e4), -1)


# The model, its arguments, what is open of them, and the kernels of a call.
CASES = {
    "softmax": (lambda x: x.softmax(-1), [(3, 2, 70, 50)], [{0: BATCH, 2: ROWS, 3: COLUMNS}], ["rows0"]),
    "biased": (
        lambda x, y: (x + y).softmax(-1),
        [(3, 2, 70, 50), (70, 50)],
        [{0: BATCH, 2: ROWS, 3: COLUMNS}, {0: ROWS, 1: COLUMNS}],
        ["rows0"],
    ),
    "of products": (lambda x: (x[:, :, None] * x[:, None]).softmax(-1), [(3, 50)], [{0: BATCH, 1: ROWS}], ["rows0"]),
    "instances": (nn.InstanceNorm2d(6, affine=True), [(2, 6, 20, 30)], [{0: BATCH, 2: ROWS, 3: COLUMNS}], ["rows0"]),
    "instances and a slope": (  # one number for all channels
        nn.Sequential(nn.InstanceNorm2d(6), nn.PReLU()),
        [(2, 6, 20, 30)],
        [{0: BATCH, 2: ROWS, 3: COLUMNS}],
        ["rows0"],
    ),
    "groups": (
        nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU()),  # hands on numbers of rows, not what they are made of
        [(2, 8, 20, 30)],
        [{0: BATCH, 2: ROWS, 3: COLUMNS}],
        ["rows0", "elementwise_0"],
    ),
}
CALLS = ((3, 70, 50), (1, 3, 2), (2, 40, 70))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_norms(name, dtype):
    function, sizes, open_, kernels = CASES[name]
    torch.manual_seed(0)
    model = function.to(dtype).eval() if isinstance(function, nn.Module) else Function(function)
    args = [torch.randn(size).to(dtype) for size in sizes]
    shapes = tuple(open_) if isinstance(function, nn.Module) else (tuple(open_),)
    compiled = kitsune_mlir.compile(model, tuple(args), target="sm_90a", dynamic_shapes=shapes)
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == kernels
    simulation = Simulation(compiled, seed=1)
    for call in CALLS:
        given = dict(zip((BATCH, ROWS, COLUMNS), call))
        args = [
            torch.randn([given.get(own.get(d), n) for d, n in enumerate(size)]).to(dtype)
            for size, own in zip(sizes, open_)
        ]
        wanted = model.double()(*(x.double() for x in args))
        found = torch.as_tensor(simulation(*args)).double()
        assert (found - wanted).abs().max() <= (2e-2 if dtype == torch.bfloat16 else 2e-5) * max(1, wanted.abs().max())
        model.to(dtype)


@pytest.mark.usefixtures("unassembled")
def test_a_mask_of_the_columns_that_are_there():
    args = torch.randn(3, 70, 50), torch.rand(3, 50) > 0.2
    shapes = (({0: BATCH, 1: ROWS, 2: COLUMNS}, {0: BATCH, 1: COLUMNS}),)
    compiled = kitsune_mlir.compile(Function(logs), args, target="sm_90a", dynamic_shapes=shapes)
    assert [launch["kernel"] for launch in compiled.plan["launches"]][-1] == "rows0"
    simulation = Simulation(compiled, seed=1)
    for batch, rows, columns in CALLS:
        x, mask = torch.randn(batch, rows, columns), torch.rand(batch, columns) > 0.2
        found = torch.as_tensor(simulation(x, mask)).double()
        torch.testing.assert_close(found, logs(x.double(), mask), rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("unassembled")
def test_one_open_size_beside_two():
    """A square's kernel is not that of other matrices, alike as they are."""
    function = Function(lambda x, y: (x.softmax(-1), y.softmax(-1), x @ x.mT, x @ y))
    shapes = (({0: ROWS, 1: ROWS}, {0: ROWS, 1: COLUMNS}),)
    args = torch.randn(70, 70), torch.randn(70, 50)
    simulation = Simulation(kitsune_mlir.compile(function, args, target="sm_90a", dynamic_shapes=shapes))
    for rows, columns in ((70, 50), (33, 129), (2, 1)):
        args = torch.randn(rows, rows), torch.randn(rows, columns)
        for found, wanted in zip(simulation(*args), function(*args), strict=True):
            torch.testing.assert_close(torch.as_tensor(found), wanted, rtol=1e-5, atol=1e-5)
