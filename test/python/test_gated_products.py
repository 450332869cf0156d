"""Two products of one operand that meet in elementwise operators, as one kernel, on the stand-in GPU."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_gpu_models import check, interface_of
from test_gpu_scheduled import BOUNDS
from test_schedule_products import refused

from kitsune_mlir import mlir, weights
from kitsune_mlir.codegen import gpu
from kitsune_mlir.contraction import match_product
from kitsune_mlir.dialects import schedule
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target as targets
from kitsune_mlir.precision import give
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.schedule import run as interpret
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

pytestmark = pytest.mark.usefixtures("unassembled")
SCHEDULE = ["prepare-linalg", "gated-products", "schedule-products", "schedule-rows", "verify-dataflow"]
LOWER = ["convert-kitsune-to-gpu", "convert-linalg-to-gpu"]


class Gated(torch.nn.Module):
    """Two layers of one input, of which `join` makes something; `chunked` they are one layer's halves."""

    def __init__(self, width, hidden, join, chunked=False, bias=True):
        super().__init__()
        torch.manual_seed(width + hidden)
        count, columns = (1, 2 * hidden) if chunked else (2, hidden)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, columns, bias=bias) for _ in range(count))
        self.join = join

    def forward(self, x, *more):
        found = [layer(x) for layer in self.layers]
        value, gate = found if len(found) == 2 else found[0].chunk(2, -1)
        return self.join(value, gate, *more)


class Beside(torch.nn.Module):
    """The sum of what two modules make of one input."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, x):
        return sum(part(x) for part in self.parts)


def scheduled(model, args, target="sm_90a", dynamic_shapes=None, precision="highest"):
    """The program of a model, its products scheduled and proven, and the kernels' products."""
    program = import_model(model, args, dynamic_shapes=dynamic_shapes)
    give(program.module, precision)
    weights.give(program.module, program.arguments, program.outputs)
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in SCHEDULE])
    kernels = [
        kernel
        for kernel in schedule.kernels(program.module)
        if len({str(op.operands[2]) for op in mlir.walk(kernel, schedule.ProductOp.OPERATION_NAME)})
    ]
    return program, kernels


def right(model, args, target="sm_90a", dynamic_shapes=None, calls=(), kernels=1, precision="highest"):
    """Whether the simulator gives torch's numbers, in so many kernels of products."""
    program, found = scheduled(model, args, target, dynamic_shapes, precision)
    assert len(found) == kernels
    pipeline.run(program.module, [pipeline.make(name, "", target) for name in LOWER])
    section = gpu.build(program.module, targets.load(target))
    device = SimulatedDevice(program.module, 0)
    runner = GpuRunner(section.manifest, section.files, interface_of(program).constants(), device)
    bound = BOUNDS.get(args[0].dtype) or 2 * BOUNDS[precision]  # of what two products make
    for inputs in (args, *calls):
        check(program, runner, inputs, model(*inputs).detach(), bound)
    return section


def swiglu(value, gate):
    return value * F.silu(gate)


TARGETS = ["sm_90a", "sm_80"]
SIZES = [(127, 64, 128), (130, 72, 136), (129, 17, 51), (260, 200, 96)]
ON_BOTH = [(target, size) for target in TARGETS for size in (SIZES if target == "sm_90a" else SIZES[1:3])]


@pytest.mark.parametrize("target, sizes", ON_BOTH, ids=str)
@pytest.mark.parametrize("chunked", [False, True], ids=["two layers", "halves"])
def test_a_gate(target, sizes, chunked):
    """Sizes that divide tiles, and others; both with a bias."""
    rows, width, hidden = sizes
    model = Gated(width, hidden, swiglu, chunked).bfloat16()
    right(model, (torch.randn(rows, width, dtype=torch.bfloat16),), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("chunked", [False, True], ids=["two layers", "halves"])
def test_a_gate_of_f32(target, precision, chunked):
    """Each form in both precisions; of the two sizes, one with each precision and each form."""
    rows, width, hidden = SIZES[1 + (chunked ^ (precision == "high"))]
    right(Gated(width, hidden, swiglu, chunked), (torch.randn(rows, width),), target, precision=precision)


@pytest.mark.parametrize("chunked", [False, True], ids=["two layers", "halves"])
def test_a_residual(chunked):
    """Another matrix, and a vector, behind the gate, in f16."""
    vector = torch.nn.Parameter(torch.randn(104))
    model = Gated(72, 104, lambda v, g, r: v * F.gelu(g) * vector + r, chunked, bias=False)
    model.vector = vector
    args = (torch.randn(130, 72).half(), torch.randn(130, 104).half())
    right(model.half(), args)


@pytest.mark.parametrize("chunked", [False, True], ids=["two layers", "halves"])
def test_rows_of_more_dimensions(chunked):
    model = Gated(64, 128, swiglu, chunked).bfloat16()
    right(model, (torch.randn(3, 50, 64, dtype=torch.bfloat16),))


@pytest.mark.parametrize("chunked", [False, True], ids=["two layers", "halves"])
def test_any_number_of_rows(chunked):
    model = Gated(64, 136, swiglu, chunked).bfloat16()
    calls = [(torch.randn(rows, 64, dtype=torch.bfloat16),) for rows in (1, 333)]
    shapes = {"x": {0: torch.export.Dim("rows", min=1, max=100_000)}}
    right(model, (torch.randn(150, 64, dtype=torch.bfloat16),), dynamic_shapes=shapes, calls=calls)


@pytest.mark.parametrize("chunked", [False, True], ids=["two layers", "halves"])
def test_halves_that_others_read(chunked):
    """One that others read is stored by the kernel, too; where both are, each product stays what it was."""
    x = torch.randn(150, 64, dtype=torch.bfloat16)
    right(Gated(64, 128, lambda v, g: (v * torch.relu(g)) + torch.flip(v, [0]), chunked).bfloat16(), (x,))
    right(Gated(64, 128, lambda v, g: v * torch.relu(g) + v.sum(-1, keepdim=True), chunked).bfloat16(), (x,))
    every = Gated(64, 128, lambda v, g: torch.cat([v * torch.relu(g), v, g], 0), chunked).bfloat16()
    right(every, (x,), kernels=1 if chunked else 2)


def test_what_is_no_gate():
    """Halves that are no halves, or overlap, and layers of several inputs, are left as they are."""
    x = torch.randn(150, 64, dtype=torch.bfloat16)

    class Uneven(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 192).bfloat16()

        def forward(self, x):
            y = self.layer(x)
            return y[:, :96] * torch.relu(y[:, 32:128])

    right(Uneven(), (x,))
    _, (kernel,) = scheduled(Uneven(), (x,))
    assert {ring.attributes["sym_name"].value for part in kernel.parts for ring in part.rings} >= {"left", "right"}
    assert sum(ring.attributes["sym_name"].value.startswith("right") for ring in kernel.parts[0].rings) == 1


@pytest.mark.parametrize("chunked", [False, True], ids=["two layers", "halves"])
@pytest.mark.parametrize("rows, hidden, rights", [(300, 128, ["right"]), (4096, 1024, ["right", "right0"])])
def test_one_operand_is_copied_once(chunked, rows, hidden, rights):
    """The kernel has a ring for what both products read, and one for the weights: one each, where tiles are wide."""
    model = Gated(64, hidden, swiglu, chunked).bfloat16()
    _, (kernel,) = scheduled(model, (torch.randn(rows, 64, dtype=torch.bfloat16),))
    names = [ring.label for part in kernel.parts for ring in part.rings]
    assert [name for name in names if not name.startswith("vector")] == ["left", *rights]
    assert str(kernel.result_ops[0].results[0].type) == f"tensor<{rows}x{hidden}xbf16>"


def test_long_sums_of_few_rows_are_left():
    """What is faster as sums over rows stays so."""
    model = Gated(4096, 64, swiglu).bfloat16()
    _, kernels = scheduled(model, (torch.randn(1, 4096, dtype=torch.bfloat16),))
    assert not kernels


def test_a_gate_behind_another():
    """Two layers of halves, and two pairs of layers of one input, each pair a kernel."""
    model = torch.nn.Sequential(Gated(128, 96, swiglu, True), Gated(96, 136, swiglu, True)).bfloat16()
    right(model, (torch.randn(130, 128, dtype=torch.bfloat16),), kernels=2)
    both = Beside(Gated(96, 136, swiglu), Gated(96, 136, swiglu)).bfloat16()
    right(both, (torch.randn(130, 96, dtype=torch.bfloat16),), kernels=2)


def kernel_of(sizes):
    """A module with the kernel of a gate of random numbers of these rows, columns and sums, proven, and its gate."""
    m, n, k = sizes
    text = Path(__file__).parents[1] / "passes" / "gated-products" / "layers.mlir"
    found = text.read_text().split("func.func @apart")[0]
    for old, new in (("300x", f"{m}x"), ("x256x", f"x{n}x"), ("<256x", f"<{n}x"), ("128x", f"{k}x")):
        found = found.replace(old, new)
    module = mlir.parse(found, mlir.context())
    pipeline.run(module, [pipeline.make(step, "", "sm_90a") for step in ("gated-products", "verify-dataflow")])
    return module


@pytest.mark.parametrize("sizes", [(300, 256, 128), (70, 40, 264), (257, 136, 72)], ids=str)
def test_the_interpreter_agrees(sizes):
    m, n, k = sizes
    module = kernel_of(sizes)  # kept: the kernel goes with it
    (kernel,) = schedule.kernels(module)
    rng = np.random.default_rng(0)
    x, w, v = (np.float32(rng.integers(-3, 4, shape)) for shape in ((m, k), (n, k), (n, k)))
    (found,) = interpret(kernel, [x, w, v], ctas=3, seed=1)
    wanted = torch.tensor((x @ w.T) * (x @ v.T)).bfloat16().float().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-2)


def test_the_left_slot_waits_for_both_products():
    """The proof refuses a kernel that gives it back behind the first one."""
    module = kernel_of((300, 256, 128))
    releases = [op for op in mlir.walk(module, "kitsune.release") if len(op.operands) == 3]
    assert len(releases) == 2
    for op in releases:
        with op.location, mlir.ir.InsertionPoint(op):
            schedule.ReleaseOp(op.operands[0], [op.operands[1]])
        op.erase()
    assert "without the token of the product" in refused(module)


def test_a_reshape_to_two_open_sizes_is_no_product():
    """It has three operands, as products have; what follows products is asked whether it is one."""
    text = """func.func @main(%x: tensor<?x4xf32>, %a: index, %b: index) -> tensor<?x?x4xf32> {
      %y = tensor.expand_shape %x [[0, 1], [2]] output_shape [%a, %b, 4] : tensor<?x4xf32> into tensor<?x?x4xf32>
      return %y : tensor<?x?x4xf32>
    }"""
    (reshape,) = mlir.walk(mlir.parse(text, mlir.context()), "tensor.expand_shape")
    assert match_product(reshape) is None
