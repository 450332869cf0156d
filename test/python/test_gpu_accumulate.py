"""Products that sum over the rows, on the stand-in GPU: partial sums in warpgroups, added up by a tree in L2."""

import pytest
import torch
from functions import Function
from test_gpu_models import check
from test_gpu_pipelines import runner_of
from torch import nn

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

TYPES = {torch.bfloat16: 2e-2, torch.float16: 4e-3}


class Product(nn.Module):
    """x^T y, with what is asked for after it."""

    def __init__(self, after=lambda sums: sums):
        super().__init__()
        self.after = after

    def forward(self, x, y):
        return self.after(x.t() @ y)


def run(model, args, target, bound, shape="chained", launches=1):
    """Each launch has an order of its own, and finds what the one before left."""
    with torch.no_grad():
        wanted = model(*args)
    program, runner, device = runner_of(model, args, target, shape, tile=0)
    for _ in range(launches):
        check(program, runner, args, wanted, bound)
    assert device.pipeline_launches == launches
    return program, runner, device


def tensors(rows, m, n, dtype):
    torch.manual_seed(rows + m)
    return torch.randn(rows, m, dtype=dtype), torch.randn(rows, n, dtype=dtype)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "m, n, rows, dtype",
    [
        (256, 256, 300, torch.float16),
        (64, 64, 1, torch.bfloat16),
        (128, 320, 65, torch.float16),
        (8, 72, 64, torch.bfloat16),
        (200, 104, 1000, torch.bfloat16),
        (384, 256, 129, torch.bfloat16),
    ],
)
def test_widths_and_rows(m, n, rows, dtype, small_gpu):
    run(Product(), tensors(rows, m, n, dtype), small_gpu, TYPES[dtype], launches=2)


@pytest.mark.usefixtures("unassembled")
def test_in_any_order(small_gpu):
    run(Product(), tensors(900, 64, 192, torch.bfloat16), small_gpu, TYPES[torch.bfloat16], launches=4)


@pytest.mark.usefixtures("unassembled")
def test_any_number_of_rows(small_gpu):
    """The sum of no rows is zero."""
    rows = torch.export.Dim("rows", min=0)
    model, args = Product(), tensors(70, 64, 64, torch.bfloat16)
    program, runner, device = runner_of(
        model, args, small_gpu, "chained", tile=0, dynamic_shapes={"x": {0: rows}, "y": {0: rows}}
    )
    for count in (1, 0, 64, 777):
        args = tensors(count, 64, 64, torch.bfloat16)
        check(program, runner, args, model(*args), TYPES[torch.bfloat16])
    assert device.pipeline_launches == 4


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    "after",
    [torch.relu, lambda sums: sums.float() * 0.5, lambda sums: (sums, sums + 1)],
    ids=["in the kernel", "another type", "read twice"],
)
def test_what_follows(after, small_gpu):
    run(Product(after), tensors(200, 64, 64, torch.bfloat16), small_gpu, TYPES[torch.bfloat16])


def test_others_run_bulk_synchronously(small_gpu):
    """A width that tensor copies cannot read."""
    args = tensors(50, 20, 12, torch.bfloat16)
    program, runner, device = runner_of(Product(), args, small_gpu, "auto", tile=0)
    check(program, runner, args, Product()(*args), TYPES[torch.bfloat16])
    assert not device.pipeline_launches


class Layer(nn.Module):
    """The backward pass of a layer with a ReLU: `turned` for the weight's gradient as torch writes it."""

    def __init__(self, inputs, outputs, turned=False, gate=lambda y, dy: torch.where(y > 0, dy, torch.zeros_like(dy))):
        super().__init__()
        self.turned, self.gate = turned, gate
        self.weight = nn.Parameter(torch.randn(*((outputs, inputs) if turned else (inputs, outputs))) / inputs**0.5)

    def forward(self, x, y, dy):
        gradient = self.gate(y, dy)
        weight = self.weight if self.turned else self.weight.t()
        return gradient @ weight, self._sum(x, gradient)

    def _sum(self, x, gradient):
        return gradient.t() @ x if self.turned else x.t() @ gradient


def layer_tensors(rows, inputs, outputs, dtype):
    torch.manual_seed(rows)
    return [torch.randn(rows, width, dtype=dtype) for width in (inputs, outputs, outputs)]


GATES = {
    "relu": lambda y, dy: torch.where(y > 0, dy, torch.zeros_like(dy)),
    "not zero of zero": lambda y, dy: torch.exp(y) * 0.1 + dy,
    "one input": lambda y, dy: torch.relu(dy),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("turned", [False, True], ids=["x^T g", "g^T x"])
@pytest.mark.parametrize(
    "inputs, outputs, rows, dtype",
    [
        (256, 256, 200, torch.float16),
        (128, 72, 1, torch.bfloat16),
        (256, 64, 65, torch.float16),
        (128, 128, 700, torch.bfloat16),
    ],
)
def test_one_tile_to_two_products(inputs, outputs, rows, turned, dtype, small_gpu):
    model = Layer(inputs, outputs, turned).to(dtype).eval()
    run(model, layer_tensors(rows, inputs, outputs, dtype), small_gpu, TYPES[dtype])


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("gate", GATES)
def test_any_tile_to_two_products(gate, small_gpu):
    model = Layer(128, 72, gate=GATES[gate]).bfloat16().eval()
    run(model, layer_tensors(330, 128, 72, torch.bfloat16), small_gpu, TYPES[torch.bfloat16], launches=2)


@pytest.mark.usefixtures("unassembled")
def test_two_products_of_any_number_of_rows(small_gpu):
    rows = torch.export.Dim("rows", min=0)
    model = Layer(256, 256, gate=GATES["not zero of zero"]).bfloat16().eval()
    args = layer_tensors(70, 256, 256, torch.bfloat16)
    shapes = {name: {0: rows} for name in ("x", "y", "dy")}
    program, runner, device = runner_of(model, args, small_gpu, "chained", tile=0, dynamic_shapes=shapes)
    for count in (1, 0, 300):
        args = layer_tensors(count, 256, 256, torch.bfloat16)
        with torch.no_grad():
            check(program, runner, args, model(*args), TYPES[torch.bfloat16])
    assert device.pipeline_launches == 3


def spilled(model, args):
    """What ptxas says of the one pipeline's kernel on the real target."""
    pipelined = {"partition-dataflow": "min-summed=0"}
    found = kitsune_mlir.compile(model, args, target="sm_90a", options=pipelined)
    (kernel,) = [kernel for kernel in found.plan["kernels"] if kernel["name"] == "pipeline0"]
    return kernel["spill_stores"] + kernel["spill_loads"]


@pytest.mark.parametrize("m, n", [(256, 256), (64, 64), (512, 1024), (136, 320)])
def test_registers(m, n):
    assert not spilled(Product(), tensors(4096, m, n, torch.bfloat16))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("gate", GATES)
def test_registers_of_two_products(gate, turned):
    model = Layer(256, 256, turned, GATES[gate]).bfloat16().eval()
    assert not spilled(model, layer_tensors(4096, 256, 256, torch.bfloat16))


def shaped(*shapes, dtype=torch.bfloat16):
    return tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


def many(x, *others):
    total = others[0]
    for other in others[1:]:
        total = total + other
    return x.t() @ total


OTHERS = {  # what has no such kernel, or one with fewer tiles: each found by drawing models
    "wide beside": (
        lambda x, y, w: (torch.relu(y) @ w, x.t() @ torch.relu(y)),
        shaped((200, 128), (200, 64), (64, 512)),
    ),
    "a box of 384 rows": (
        lambda x, y, w: (torch.relu(y) @ w.t(), x.t() @ torch.relu(y)),
        shaped((200, 128), (200, 64), (384, 64)),
    ),
    "two types": (lambda x, y: x.t() @ y.half().bfloat16().relu(), shaped((200, 64), (200, 64))),
    "a cast of what is loaded": (
        lambda x, y: x.t() @ y.to(torch.bfloat16),
        (*shaped((200, 64)), *shaped((200, 64), dtype=torch.float16)),
    ),
    "six tiles": (many, shaped(*[(200, 64)] * 7)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_have_kernels_that_do_not_spill(name):
    function, args = OTHERS[name]
    found = kitsune_mlir.compile(
        Function(function), args, target="sm_90a", options={"partition-dataflow": "min-summed=0"}
    )
    assert not sum(kernel["spill_stores"] + kernel["spill_loads"] for kernel in found.plan["kernels"])
    simulated = Simulation(found)
    for one, other in zip(leaves(simulated(*args)), leaves(function(*args)), strict=True):
        torch.testing.assert_close(one.float(), other.float(), rtol=2e-2, atol=0.5)


def leaves(results):
    return torch.utils._pytree.tree_leaves(results)
