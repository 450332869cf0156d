"""Products of a value with itself: its rows go by tiles on one side, all of it stands on the other."""

import itertools

import pytest
import torch
from test_gpu_chained import TYPES, run
from test_gpu_chained_forms import Form
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

FORMS = {
    "an input": lambda: (Form(lambda x: F.linear(x, x)), (200, 64)),
    "an input that is added too": lambda: (Form(lambda x: F.linear(x, x) @ x + x), (200, 37)),
    "square": lambda: (Form(lambda x: x @ x), (100, 100)),
    "a layer": lambda: (Form(lambda f, x: (h := torch.relu(f(x))) @ h.t(), (64, 32)), (200, 64)),
    "attention without weights": lambda: (Form(lambda x: torch.softmax(x @ x.t(), -1) @ x), (200, 64)),
    "cosines": lambda: (Form(lambda f, x: (h := F.normalize(f(x))) @ h.t(), (64, 32)), (100, 64)),
}


@pytest.mark.parametrize("name, gpu", list(zip(FORMS, itertools.cycle(["sm_90a", "sm_80"]))))
def test_on_a_cpu(name, gpu):
    """Right numbers there; the code of a GPU is generated, and assembled where there is ptxas."""
    torch.manual_seed(0)
    model, shape = FORMS[name]()
    x = torch.randn(shape)
    compiled = kitsune_mlir.compile(model.eval(), (x,), target=["cpu", gpu])
    compiled.target = "cpu"
    torch.testing.assert_close(compiled(x), model(x).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [64, 37])
def test_on_a_gpu(width, small_gpu):
    """The copy engine wants rows of whole 16 bytes: those of 37 columns are made longer for it, and read so by all."""
    x, model = torch.randn(100, width).bfloat16(), Form(lambda x: torch.softmax(F.linear(x, x), 1) + x.sum(1, True))
    run(model, (x,), small_gpu, TYPES[torch.bfloat16])


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "shape, turned_there",
    [((1003, 256), True), ((517, 101), True), ((1, 200), False), ((0, 64), False)],
    ids=str,
)
def test_sums_over_the_rows_in_tf32(shape, turned_there, gpu_of):
    """What a gram matrix is of lies across k, on both sides: it is turned in the kernel, by an agent of its own."""
    torch.manual_seed(0)
    x, model = torch.randn(shape), Form(lambda x: x.t() @ x)
    compiled = kitsune_mlir.compile(model, (x,), target=gpu_of(16), matmul_precision="high")
    assert ('sym_name = "make"' in compiled.mlir("small:schedule-products")) == turned_there
    simulation = Simulation(compiled, seed=1)
    for _ in range(2):
        torch.testing.assert_close(simulation(x), model(x.double()).float(), rtol=2e-3, atol=2e-3 * shape[0] ** 0.5)


@pytest.mark.usefixtures("unassembled")
def test_a_kernel_turns_what_many_tiles_read(gpu_of):
    """Once for both operands, into rows that are longer where k is no multiple of 4, which no kernel copies."""
    torch.manual_seed(0)
    x, model = torch.randn(515, 512), Form(lambda x: x.t() @ x)
    compiled = kitsune_mlir.compile(model, (x,), target=gpu_of(4), matmul_precision="high")
    launches = [(launch["form"], launch["computes"].partition(",")[0]) for launch in compiled.plan["launches"]]
    assert launches[:2] == [("operator", "elementwise"), ("scheduled product", "512x512")]
    torch.testing.assert_close(Simulation(compiled, seed=1)(x), model(x.double()).float(), rtol=2e-3, atol=0.07)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_twice_an_open_number_of_rows(dtype, gpu_of):
    """Scores of all views of a batch with all: both sizes are the same, though no open size of an argument."""

    def scores(x, y):
        z = torch.cat([x, y])
        return (z @ z.t() / 8).relu()

    def inputs(rows):
        return tuple(torch.randn(rows, 64).to(dtype) for _ in range(2))

    torch.manual_seed(0)
    rows = ({0: torch.export.Dim("rows", min=1)},) * 2
    compiled = kitsune_mlir.compile(Form(scores), inputs(70), target=gpu_of(16), dynamic_shapes=(rows,))
    assert "scheduled product" in [launch["form"] for launch in compiled.plan["launches"]]
    simulation = Simulation(compiled, seed=1)
    for number in (70, 1, 33):
        args = inputs(number)
        found, wanted = simulation(*args).double(), scores(*(x.double() for x in args))
        assert (found - wanted).norm() <= (1e-5 if dtype == torch.float32 else 6e-3) * wanted.norm()
