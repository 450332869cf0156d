"""Forms of models that chained kernels must get right: widths, element types, what goes where, rows of any number."""

from collections.abc import Callable

import pytest
import torch
from test_gpu_chained import TYPES, maps_of, run
from test_gpu_models import check
from test_gpu_pipelines import runner_of
from torch import Tensor, nn

import kitsune_mlir

BF16 = torch.bfloat16


class Form(nn.Module):
    """`body` of layers of these (inputs, outputs), and the inputs."""

    def __init__(self, body: Callable[..., object], *sizes: tuple[int, int]):
        super().__init__()
        self.body = body
        self.layers = nn.ModuleList(nn.Linear(*size) for size in sizes)

    def forward(self, *inputs: Tensor) -> object:
        return self.body(*self.layers, *inputs)


def rows(*sizes: int) -> tuple[Tensor, ...]:
    """Inputs of 200 rows, of these widths."""
    return tuple(torch.randn(200, size).to(BF16) for size in sizes)


def tail(h: Tensor, g: nn.Linear, x: Tensor) -> Tensor:
    return g(torch.relu(h)) + x


FORMS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "sums that start from a tile": lambda: (
        Form(lambda f, x, y: torch.addmm(y, x, f.weight.t()), (64, 64)),
        rows(64, 64),
    ),
    "scaled sums": lambda: (
        Form(lambda f, x, y: torch.addmm(y, x, f.weight.t(), beta=0.5, alpha=2.0), (64, 64)),
        rows(64, 64),
    ),
    "a bias for each row": lambda: (Form(lambda f, x, r: torch.relu(f(x) + r), (64, 64)), rows(64, 1)),
    "a skip": lambda: (Form(lambda f, g, x: tail(f(x), g, x), (64, 128), (128, 64)), rows(64)),
    "a wide skip": lambda: (Form(lambda f, g, x: tail(f(x), g, x), (256, 64), (64, 256)), rows(256)),
    "a loaded skip beside columns in parts": lambda: (Form(lambda f, x: f(x) + x, (300, 300)), rows(300)),
    "a computed skip beside columns in parts": lambda: (
        Form(lambda f, x: f(h := torch.softmax(x, 1)) + h, (264, 264)),
        rows(264),
    ),
    "two products of a tile": lambda: (Form(lambda f, g, x: torch.sigmoid(f(x)) * g(x), (64, 96), (64, 96)), rows(64)),
    "one weight three times": lambda: (Form(lambda f, x: f(torch.relu(f(torch.relu(f(x))))), (64, 64)), rows(64)),
    "a concatenation whose last part ends within a block": lambda: (
        Form(lambda f, x, y: f(z := torch.cat([y, x], 1)) + z, (33, 1)),
        rows(32, 1),
    ),
    "concatenated": lambda: (
        Form(lambda f, g, x, y: g(torch.cat([torch.relu(f(x)), y], 1)), (64, 37), (40, 32)),
        rows(64, 3),
    ),
    "columns that begin at no 16 bytes of a weight's row": lambda: (
        Form(
            lambda f, g, h, x: h(torch.cat([f(x), x, torch.tanh(g(x))], 1)),
            (64, 3),
            (64, 16),
            (83, 40),
        ),
        rows(64),
    ),
    "gated halves": lambda: (
        Form(lambda f, g, x: g((h := f(x))[:, :64] * torch.sigmoid(h[:, 64:])), (64, 128), (64, 32)),
        rows(64),
    ),
    "an output that is read on": lambda: (
        Form(lambda f, g, x: ((h := torch.relu(f(x))), h, g(h) + h), (64, 64), (64, 64)),
        rows(64),
    ),
    "an f32 output beside": lambda: (
        Form(lambda f, g, x: (g(h := torch.relu(f(x))), h.float().exp()), (64, 64), (64, 32)),
        rows(64),
    ),
    "a bool output": lambda: (Form(lambda f, g, x: (g(h := torch.relu(f(x))), h > 0), (64, 64), (64, 32)), rows(64)),
    "a bool input": lambda: (
        Form(lambda f, g, x, k: g(torch.relu(f(x)).masked_fill(k, 0.0)), (64, 64), (64, 32)),
        (*rows(64), torch.rand(200, 64) > 0.5),
    ),
    "a bool a row": lambda: (
        Form(lambda f, g, x, k: g(torch.where(k, torch.relu(f(x)), 0.0)), (64, 64), (64, 32)),
        (*rows(64), torch.rand(200, 1) > 0.5),
    ),
    "an int8 input": lambda: (
        Form(lambda f, g, x, k: g(torch.relu(f(x)) * k.to(BF16)), (64, 64), (64, 32)),
        (*rows(64), torch.randint(0, 5, (200, 64), dtype=torch.int8)),
    ),
    "softmax": lambda: (Form(lambda f, g, x: g(torch.softmax(f(x), 1)), (64, 72), (72, 32)), rows(64)),
    "softmax of more columns than an instruction has": lambda: (
        Form(lambda f, x: torch.softmax(f(x), 1), (64, 300)),
        rows(64),
    ),
    "numbers of rows as outputs": lambda: (
        Form(
            lambda f, g, x: (g(torch.relu(h := f(x))), h.float().sum(1), h.float().amax(1, keepdim=True)),
            (64, 72),
            (72, 64),
        ),
        rows(64),
    ),
    "numbers of rows from a cluster": lambda: (
        Form(lambda f, g, x: (g(torch.relu(h := f(x))), h.float().sum(1)), (64, 512), (512, 64)),
        rows(64),
    ),
    "numbers of rows for a later stage": lambda: (
        Form(lambda f, g, x: g(torch.relu(h := f(x))) * h.sum(1, keepdim=True), (64, 64), (64, 64)),
        rows(64),
    ),
    "two dimensions of rows": lambda: (
        Form(lambda f, g, x: g(torch.relu(f(x))), (64, 64), (64, 32)),
        (torch.randn(4, 33, 64).to(BF16),),
    ),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", FORMS)
def test_forms(name, small_gpu):
    torch.manual_seed(1)
    model, args = FORMS[name]()
    run(model.to(BF16), args, small_gpu, TYPES[BF16])


@pytest.mark.parametrize(
    "inputs, hidden, outputs",
    [(64, 64, 1), (64, 64, 7), (64, 64, 250), (1, 64, 8), (3, 1, 8), (130, 13, 9), (316, 72, 8), (351, 256, 8)],
)
def test_widths(inputs, hidden, outputs, small_gpu, request):
    if inputs not in (1, 130, 351):
        request.getfixturevalue("unassembled")
    torch.manual_seed(1)
    model = Form(lambda f, g, x: g(torch.relu(f(x))), (inputs, hidden), (hidden, outputs))
    run(model.to(BF16), rows(inputs), small_gpu, TYPES[BF16])


@pytest.mark.parametrize("half", [37, 256])
def test_columns_of_other_threads(half, small_gpu):
    """What warpgroups do not chain, columns 37 further on or in another CTA of a cluster, is cut there."""
    torch.manual_seed(1)
    model = Form(lambda f, g, x: g((h := f(x))[:, :half] * h[:, half:]), (64, 2 * half), (half, 32)).to(BF16).eval()
    args = rows(64)
    program, runner, device = runner_of(model, args, small_gpu, "auto", tile=0)
    with torch.no_grad():
        check(program, runner, args, model(*args), TYPES[BF16])
    assert device.pipeline_launches == 2 and maps_of(runner)


def test_open_rows(small_gpu):
    """One kernel for any number of rows, none among them."""
    torch.manual_seed(1)
    model = Form(lambda f, g, x: g(torch.relu(f(x))), (64, 128), (128, 72)).to(BF16).eval()
    shapes = ({0: torch.export.Dim("rows", min=0, max=1 << 20)},)
    program, runner, device = runner_of(
        model, rows(64), small_gpu, "chained", dynamic_shapes={"inputs": shapes}, tile=0
    )
    for count in (200, 0, 1, 127, 128, 129, 1100):
        x = torch.randn(count, 64).to(BF16)
        with torch.no_grad():
            check(program, runner, (x,), model(x), TYPES[BF16])
    assert device.pipeline_launches == 6


def test_stores_of_odd_rows_are_short():
    """Rows that all exist take no branch each: LLVM takes minutes for thousands of them."""
    model = Form(lambda f, x, y: torch.cat([torch.tanh(f(x)), y], 1), (64, 261)).to(BF16)
    compiled = kitsune_mlir.compile(model, rows(64, 6), target="sm_90a", options={"place-stages": "shape=chained"})
    assert compiled.plan["launches"][0]["form"] == "scheduled chain"
    assert compiled.ptx.count("\tbra") < 200  # 9 boxes of 16 rows were 600
