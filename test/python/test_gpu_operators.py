"""Operators that the sample models lack, through the plain GPU path on the stand-in device.

They are cases of bench/gpu_operators.py, some of each kind of kernel; bench/check_gpu_models.py runs all on a GPU.
Those of a group are compiled as one model, which costs less than one by one.
"""

import pytest
import torch
from functions import Function
from test_gpu_models import check, compiled, interface_of, runner_of

from bench.gpu_operators import CASES
from bench.operator_cases import wrong
from kitsune_mlir import mlir
from kitsune_mlir.codegen import gpu_copy, gpu_linalg, gpu_products
from kitsune_mlir.tools.gpusim.faults import MemoryFault

GROUPS = {
    "elementwise": "unary/rsqrt activation/gelu-tanh binary/remainder binary/mixed-types "
    "binary-whole/bitwise_and compare/eq compare/nan special/max-min special/clamp "
    "where/masked-fill cast/float32 cast/bool pool/avg-2d",
    "reductions": "reduce/sum-1 reduce/var-0 reduce/amax-all reduce/argmin-last reduce/any-0-2 reduce/prod-1 "
    "reduce/max-with-index reduce-whole/amin softmax/-1 norm/layer-bfloat16 norm/group-float32 pool/max-2d",
    "products": "product/mm-int64 product/bmm-bf16 product/vector einsum/three attention/causal conv/2d-stride-padding "
    "conv/2d-depthwise conv/transposed-2d",
    "indices": "gather/dim-1 gather/as-strided gather/embedding gather/element scatter/index-add-bf16 "
    "scatter/index-add-whole scatter/add scatter/reduce-amax scatter/reduce-prod scatter/index-put scatter/slice",
    "movement": "move/cat-padded move/flip move/slice-strided move/triangles move/swapped move/bool pad/constant "
    "upsample/nearest-size upsample/nearest",
    "loops": "scan/cumsum sort/values sort/topk linear/determinant linear/multinomial",
    "sizes": "size/no-columns size/no-inside size/nothing size/one-element constant/arange-float constant/tensor",
}


IMAGE = torch.randn(2, 3, 9, 11)


class Together(torch.nn.Module):
    """Several cases as one model."""

    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def forward(self, *args):
        given, found = iter(args), []
        for case in self.cases:
            results = case.function(*[next(given) for _ in case.args])
            found += [results] if isinstance(results, torch.Tensor) else results
        return tuple(found)


@pytest.mark.parametrize("group", GROUPS)
def test_operators(group):
    names = GROUPS[group].split()
    cases = [CASES[name] for name in names]
    args = tuple(arg for case in cases for arg in case.args)
    program, section = compiled(Together(cases), args)
    runner, _ = runner_of(program, section)
    interface = interface_of(program)
    found = iter(interface.flat_results(interface.call(runner, args, {})))
    for name, case in zip(names, cases, strict=True):
        for wanted, dtype in zip(case.wanted(case.args), case.types(), strict=True):
            said = wrong(next(found), wanted, dtype, case.looser)
            assert not said, f"{name}: {said}"


def test_any_number_of_rows_of_operators():
    """One model of cases whose first size is dynamic, with none and one row too."""
    names = "elementwise softmax reshape transposed count weights-gradient".split()
    cases = [CASES[f"dynamic/{name}"] for name in names]
    rows = torch.export.Dim("rows", min=0, max=4096)
    model = Function(lambda x: tuple(case.function(x) for case in cases))
    program, section = compiled(model, cases[0].args, (({0: rows},),))
    runner, _ = runner_of(program, section)
    for args in ((torch.randn(count, 8),) for count in (0, 1, 41)):
        check(program, runner, args, tuple(case.function(*args) for case in cases), 1e-5)


def test_sizes_that_floats_decide():
    """The host computes the floor of 1.5 times the rows."""
    model = Function(lambda x: torch.nn.functional.interpolate(x, scale_factor=1.5))
    program, section = compiled(model, (IMAGE,), (({2: torch.export.Dim("rows", min=2, max=99)},),))
    runner, _ = runner_of(program, section)
    for rows in (9, 2, 5):
        args = (IMAGE[:, :, :rows],)
        check(program, runner, args, model(*args), 1e-6)


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


@pytest.mark.parametrize("count", [8, 19, 5, 1])
def test_rows_together_of_open_sizes(count, monkeypatch):
    """A thread has eight rows, or fewer, at places that one division by the open sizes gives; so have copies."""
    monkeypatch.setattr(gpu_linalg, "ENOUGH", 1)
    monkeypatch.setattr(gpu_copy, "SMALL", 0)
    model, size = Function(lambda x, y: (torch.relu(x) * y, torch.cat([x, x + y], 1))), torch.export.Dim("size", min=2)
    example = torch.randn(count, 9, 7), torch.randn(7)
    program, section = compiled(model, example, (({2: size}, {0: size}),))
    stores = [len(mlir.walk(kernel, "memref.store")) for kernel in mlir.walk(program.module, "gpu.func")]
    assert max(stores) >= (8 if count >= 8 else 4 if count == 5 else 1)
    runner, _ = runner_of(program, section)
    for columns in (7, 4, 12):
        args = torch.randn(count, 9, columns), torch.randn(columns)
        check(program, runner, args, model(*args), 1e-6)


PRODUCTS = {
    "rows-by-rows": (lambda x, y: x @ y.t(), (torch.randn(203, 70), torch.randn(165, 70))),
    "rows-by-columns": (lambda x, y: x @ y, (torch.randn(203, 7), torch.randn(7, 165))),
    "batches": (lambda x, y: x @ y.transpose(1, 2), (torch.randn(3, 109, 40), torch.randn(3, 103, 40))),
}


@pytest.mark.parametrize("least", [1, 4096])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_blocks(name, least, monkeypatch):
    monkeypatch.setattr(gpu_linalg, "FILL", least)
    monkeypatch.setattr(gpu_products, "LEAST", 1 << 40)
    function, args = PRODUCTS[name]
    program, section = compiled(Function(function), args)
    kernel = next(op for op in mlir.walk(program.module, "gpu.func") if op.opview.name.value == "product_0")
    blocked = least == 1 or name != "rows-by-columns"  # whose products a warp does not share, so that it needs more
    assert len(mlir.walk(kernel, "arith.mulf")) == (16 if blocked else 1)
    runner, _ = runner_of(program, section)
    check(program, runner, args, function(*args), 1e-5)


class Sums(torch.nn.Module):
    def forward(self, x):
        return x.sum(0), x.sum(1), (x * x).mean()


@pytest.mark.parametrize("shape", [(3000, 5), (5, 3000)])
def test_long_sums_of_f32_are_summed_in_parts(shape):
    torch.manual_seed(0)
    x = torch.rand(shape)
    program, section = compiled(Sums(), (x,))
    runner, _ = runner_of(program, section)
    check(program, runner, (x,), tuple(value.float() for value in Sums()(x.double())), 3e-7)


ACROSS = {  # and the kernels that a sum and a maximum take together
    "few rows": ((126, 89), (0,), 1),
    "no more rows than warps have turns": ((16, 40), (0,), 1),
    "parts that a second kernel joins": ((5000, 33), (0,), 2),
    "two loops": ((5, 40, 70), (0, 1), 3),  # of the sum; a maximum has a kernel for each
    "rows in the middle": ((3, 60, 34), (1,), 1),
}


class Across(torch.nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.sum(self.dims), x.amax(self.dims)


@pytest.mark.parametrize("name", ACROSS)
def test_warps_share_a_sum_over_rows(name):
    shape, dims, kernels = ACROSS[name]
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1)) - 0.5
    program, section = compiled(Across(dims), (x,))
    launched = [op for op in mlir.walk(program.module, "gpu.launch_func") if "reduce" in str(op.attributes["kernel"])]
    assert len(launched) == kernels
    runner, _ = runner_of(program, section)
    check(program, runner, (x,), tuple(one.float() for one in Across(dims)(x.double())), 3e-7)


def test_what_warps_found_is_read_behind_a_barrier():
    x = torch.rand(126, 89)
    program, section = compiled(Function(lambda x: x.sum(0)), (x,))
    (barrier,) = mlir.walk(program.module, "gpu.barrier")
    barrier.erase()
    runner, _ = runner_of(program, section)
    with pytest.raises(MemoryFault, match="before a barrier"):
        check(program, runner, (x,), x.sum(0), 1e-6)
