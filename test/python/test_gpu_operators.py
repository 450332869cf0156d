"""Operators that the sample models lack, through the plain GPU path on the stand-in device."""

import pytest
import torch
from test_gpu_models import check, compiled, runner_of

from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu_linalg

torch.manual_seed(11)
X = torch.randn(6, 40)
WHOLE = torch.randint(-9, 9, (6, 40))
ROWS = torch.tensor([0, 3, 3, 1, 0, 3])
IMAGE = torch.randn(2, 3, 9, 11)

OPERATORS = {
    "argmax": (lambda x: x.argmax(1), (X,)),
    "argmin-all": (lambda x: x.argmin(), (X,)),
    "amax-all": (lambda x: x.amax(), (X,)),
    "prod": (lambda x: x.prod(1), (X,)),
    "any": (lambda x: (x > 2).any(1), (X,)),
    "var": (lambda x: x.var(0), (X,)),
    "cumsum": (lambda x: x.cumsum(1), (X,)),
    "sort": (lambda x: x.sort(1)[0], (X,)),
    "topk": (lambda x: x.topk(3, 1)[0], (X,)),
    "softmax-f64": (lambda x: x.double().softmax(0), (X,)),
    "log-softmax-f16": (lambda x: x.half().log_softmax(1), (X,)),
    "gelu-tanh": (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), (X,)),
    "remainder": (lambda x: torch.remainder(x * 100, 7.0), (X,)),
    "floor-divide": (lambda i: i // 4, (WHOLE,)),
    "integer-remainder": (lambda i: i % 5, (WHOLE,)),
    "bits": (lambda i: (i & 6) | (i << 2), (WHOLE,)),
    "integer-matmul": (lambda i: i @ i.t(), (WHOLE,)),
    "to-int": (lambda x: (x * 10).to(torch.int32), (X,)),
    "where": (lambda x, i: torch.where(i > 0, x, -x), (X, WHOLE)),
    "pow": (lambda x: x.abs() ** 1.7 + x**3, (X,)),
    "clamp": (lambda x: x.clamp(-0.5, 0.25), (X,)),
    "flip-roll": (lambda x: x.flip(1).roll(3, 0), (X,)),
    "tril": (lambda x: x.tril(1), (X,)),
    "gather": (lambda x: x.gather(1, torch.arange(12).reshape(6, 2) * 3), (X,)),
    "strided": (lambda x: x[1::2, :39:3] + x[::2, 1::3], (X,)),
    "as-strided": (lambda x: torch.as_strided(x, (5, 3), (7, 2), 4), (X,)),
    "group-norm": (lambda x: torch.nn.functional.group_norm(x, 1, torch.ones(3), torch.arange(3.0)), (IMAGE,)),
    "slice-scatter": (lambda x: torch.slice_scatter(x, x[:, :5] * 2, 1, 3, 8), (X,)),
    "pad": (lambda x: torch.nn.functional.pad(x, (1, 2, 0, 3), value=7.0), (X,)),
    "einsum": (lambda x: torch.einsum("ij,kj->ik", x, x + 1), (X,)),
    "outer-sum": (lambda x: (x[:, None, :] - x[None, :, :]).abs().sum(-1), (X,)),
    "vector": (lambda x: x @ x[0], (X,)),
    "index-add": (lambda x, r: torch.zeros(4, 40).index_add(0, r, x), (X, ROWS)),
    "index-add-bf16": (lambda x, r: torch.zeros(4, 40).bfloat16().index_add(0, r, x.bfloat16()), (X, ROWS)),
    "index-add-int": (lambda i, r: torch.zeros(4, 40, dtype=torch.int64).index_add(0, r, i), (WHOLE, ROWS)),
    "scatter-add": (lambda x, i: torch.zeros(6, 9).scatter_add(1, i.abs() % 9, x), (X, WHOLE)),
    "scatter-amax": (lambda x, r: torch.zeros(4, 40).scatter_reduce(0, r[:, None].expand(6, 40), x, "amax"), (X, ROWS)),
    "scatter-prod": (lambda x, r: torch.ones(4, 40).scatter_reduce(0, r[:, None].expand(6, 40), x, "prod"), (X, ROWS)),
    "no-inner-dimension": (lambda x: (x[:, :0] @ x[:0], x[:0] @ x.t(), x[:, :0].sum(1), x[:, 3:3].exp()), (X,)),
    "determinant": (lambda x: torch.linalg.det(x[:, :16].reshape(6, 4, 4)), (X,)),
    "multinomial": (lambda x: torch.multinomial((x == x.amax(1, True)).float(), 2, True), (X,)),
    "arange": (lambda x: torch.arange(0.0, 4.0, 0.1) + x, (X,)),
    "index-put": (lambda x: x.index_put((torch.tensor([4, 1]),), torch.ones(2, 40)), (X,)),
    "conv": (lambda x: torch.nn.functional.conv2d(x, torch.ones(4, 3, 3, 3), stride=2, padding=1), (IMAGE,)),
    "conv-groups": (lambda x: torch.nn.functional.conv2d(x, torch.ones(3, 1, 3, 3), groups=3), (IMAGE,)),
    "conv-transpose": (lambda x: torch.nn.functional.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2), (IMAGE,)),
    "max-pool": (lambda x: torch.nn.functional.max_pool2d(x, 3, 2), (IMAGE,)),
    "avg-pool": (lambda x: torch.nn.functional.avg_pool2d(x, 2), (IMAGE,)),
    "interpolate": (lambda x: torch.nn.functional.interpolate(x, scale_factor=2), (IMAGE,)),
    "identity": (lambda x: (x, x, x * 2), (X,)),
    "constant": (lambda x: (torch.tensor([1.5, -2.0]), x.sum()), (X,)),
    "scalar-of-tensor": (lambda x: x * x[2, 3] + x.max(), (X,)),
}


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
    function, args = OPERATORS[name]
    program, section = compiled(Function(function), args)
    runner, _ = runner_of(program, section)
    check(program, runner, args, function(*args), 1e-2 if "16" in name else 1e-5)


@pytest.mark.parametrize("shape", [(203, 7), (4, 300), (3, 500), (5, 2, 60)], ids=str)
def test_rows_together(shape, monkeypatch):
    """Rows that four divides and does not, and too few."""
    monkeypatch.setattr(gpu_linalg, "FILL", 1)
    args = (torch.randn(shape), torch.randn(shape[-1]))
    program, section = compiled(Function(lambda x, y: torch.relu(x) + y), args)
    (kernel,) = mlir.walk(program.module, "gpu.func")
    assert len(mlir.walk(kernel, "memref.store")) == (4 if shape[0] >= 4 else 1)
    runner, _ = runner_of(program, section)
    check(program, runner, args, torch.relu(args[0]) + args[1], 1e-6)


PRODUCTS = {
    "rows-by-rows": (lambda x, y: x @ y.t(), (torch.randn(203, 70), torch.randn(165, 70))),
    "rows-by-columns": (lambda x, y: x @ y, (torch.randn(203, 7), torch.randn(7, 165))),
    "batches": (lambda x, y: x @ y.transpose(1, 2), (torch.randn(3, 109, 40), torch.randn(3, 103, 40))),
}


@pytest.mark.parametrize("least", [1, 4096])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_blocks(name, least, monkeypatch):
    monkeypatch.setattr(gpu_linalg, "FILL", least)
    function, args = PRODUCTS[name]
    program, section = compiled(Function(function), args)
    kernel = next(op for op in mlir.walk(program.module, "gpu.func") if op.opview.name.value == "product_0")
    blocked = least == 1 or name != "rows-by-columns"  # whose products a warp does not share, so that it needs more
    assert len(mlir.walk(kernel, "arith.mulf")) == (16 if blocked else 1)
    runner, _ = runner_of(program, section)
    check(program, runner, args, function(*args), 1e-5)
