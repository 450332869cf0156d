"""Products of a batch whose matrices are taken out of a tensor by number: the kernel looks the numbers up."""

import numpy as np
import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.codegen.hopper.frame import READS
from kitsune_mlir.codegen.schedule.extents import whole_of
from kitsune_mlir.dialects import schedule
from kitsune_mlir.errors import UserError
from kitsune_mlir.mlir import arith, ir, walk
from kitsune_mlir.schedule import Program
from kitsune_mlir.tools.gpusim import Simulation

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
NUMBERS = torch.tensor([2, 0, -1, 2, 1, -3])


class Chosen(nn.Module):
    """Products with matrices that a call chooses, on the right, or on the left."""

    def __init__(self, dtype, on_the_left=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 72, 40, dtype=dtype), requires_grad=False)
        self.on_the_left = on_the_left

    def forward(self, x, numbers):
        taken = self.weight[numbers]
        return torch.bmm(taken.transpose(1, 2), x) if self.on_the_left else torch.bmm(x, taken)


def case(dtype, on_the_left=False, rows=75):
    torch.manual_seed(0)
    x = torch.randn(6, rows, 72, dtype=dtype)
    return Chosen(dtype, on_the_left), (x.transpose(1, 2).contiguous() if on_the_left else x, NUMBERS)


def compiled(case, target, **options):
    found = kitsune_mlir.compile(*case, target=target, **options)
    text = found.mlir(next(stage for stage in found.stages if stage.endswith("schedule-products")))
    assert '"kitsune.look_up"' in text, text
    assert [launch["form"] for launch in found.plan["launches"]].count("gather") == 0
    return found


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("open_", [False, True])
def test_small_matrices_of_many_vectors_are_made_first(open_, gpu_of):
    """As types of edges choose them: a tile of tensor cores would have one row of each."""
    torch.manual_seed(0)
    weight = torch.randn(8, 16, 32)
    model, count = Function(lambda x, numbers: torch.bmm(x.unsqueeze(1), weight[numbers]).squeeze(1)), 3000
    args = torch.randn(count, 16), torch.randint(8, (count,))
    edges = {0: torch.export.Dim("edges")}
    found = kitsune_mlir.compile(model, args, target=gpu_of(8), dynamic_shapes=((edges, edges),) if open_ else None)
    assert not any(launch["form"] == "scheduled product" for launch in found.plan["launches"])
    torch.testing.assert_close(torch.from_numpy(np.asarray(Simulation(found)(*args))), model(*args))


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    ("dtype", "precision", "on_the_left", "like"),
    [
        (BF16, "highest", False, "sm_90a"),
        (F16, "highest", True, "sm_90a"),
        (F32, "highest", False, "sm_90a"),
        (F32, "high", False, "sm_90a"),
        (BF16, "highest", False, "sm_80"),
    ],
)
def test_matrices_of_a_call(dtype, precision, on_the_left, like, gpu_of):
    model, args = case(dtype, on_the_left)
    found = compiled((model, args), gpu_of(4, like=like), matmul_precision=precision)
    want = model.double()(args[0].double(), args[1])
    got = torch.as_tensor(Simulation(found, seed=1)(*args)).double()
    assert (got - want).norm() <= (1e-6 if dtype == F32 and precision == "highest" else 4e-3) * want.norm()


@pytest.mark.usefixtures("unassembled")
def test_the_interpreter_takes_the_same_matrices(gpu_of):
    model, (x, numbers) = case(BF16)
    module = compiled((model, (x, numbers)), gpu_of(4)).module("small:schedule-products")
    want = model(x, numbers).float()
    np.testing.assert_allclose(interpreted(module, model, x, numbers), want, rtol=1e-2, atol=1e-2)
    (look_up,) = walk(module, "kitsune.look_up")
    del look_up.attributes["wrapped"]  # broken: the number of another matrix
    assert not np.allclose(interpreted(module, model, x, numbers), want, rtol=1e-2, atol=1e-2)
    look_up.attributes["wrapped"] = ir.UnitAttr.get(module.context)
    look_up.operands[1] = walk(module, "kitsune.tiles")[0].results[0]
    assert not np.allclose(interpreted(module, model, x, numbers), want, rtol=1e-2, atol=1e-2)


def interpreted(module, model, x, numbers):
    (kernel,) = schedule.kernels(module)
    return Program(kernel).run([model.weight.float().numpy(), x.float().numpy(), numbers.numpy()], ctas=2)[0]


class Computed(nn.Module):
    """Numbers that the call computes, or that come with it."""

    def __init__(self, dtype, is_computed):
        super().__init__()
        self.chosen, self.is_computed = Chosen(dtype), is_computed

    def forward(self, x, numbers):
        return self.chosen(x, numbers - 1 if self.is_computed else numbers)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("is_computed", [False, True])
def test_weights_are_fetched_once_the_numbers_are_there(is_computed, gpu_of):
    """The thread that copies weights does not wait for the kernel before, unless that computes which ones."""
    torch.manual_seed(0)
    found = compiled((Computed(BF16, is_computed), case(BF16)[1]), gpu_of(4))
    module = found.module("small:overlap-launches")
    early = [len(ir.DenseI64ArrayAttr(op.attributes[READS])) for op in walk(module, "scf.if") if READS in op.attributes]
    assert early == ([1] if is_computed else [3])  # x alone, or the weights and the numbers too


@pytest.mark.usefixtures("unassembled")
def test_a_number_out_of_range_is_an_error(gpu_of):
    model, (x, numbers) = case(BF16)
    simulation = Simulation(compiled((model, (x, numbers)), gpu_of(4)))
    for wrong in (3, -4, 1 << 40):
        with pytest.raises(UserError, match=r"test_numbered_matrices\.py:\d+: an index is out of range$"):
            simulation(x, numbers.where(numbers != 1, wrong))
            simulation.synchronize()
    torch.testing.assert_close(simulation(x, numbers), model(x, numbers), rtol=1e-2, atol=1e-1)


class Experts(nn.Module):
    """Several experts a token, side by side, as mixtures for few tokens are written."""

    def __init__(self, equation):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 168, 136, dtype=BF16), requires_grad=False)
        self.equation = equation

    def forward(self, x, numbers):
        return torch.einsum(self.equation, self.weight[numbers], x)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(
    ("equation", "tokens"),
    [("beck,bk->bec", 6), ("beck,bk->bec", 1), ("tkdh,td->tkh", 6), ("beck,bek->bec", 6), ("tkdh,tnd->tnkh", 2)],
)
def test_experts_of_tokens(equation, tokens, gpu_of):
    torch.manual_seed(0)
    model, numbers = Experts(equation), torch.randint(0, 5, (tokens, 3))
    inner = 136 if "ck" in equation else 168
    shape = {"bek": (tokens, 3, inner), "tnd": (tokens, 7, inner)}.get(equation[5:8], (tokens, inner))
    args = torch.randn(shape, dtype=BF16), numbers
    got = Simulation(compiled((model, args), gpu_of(4)))(*args)
    torch.testing.assert_close(got, model(*args), rtol=2e-2, atol=2e-1)


def test_an_index_is_followed_once():
    """To what an index is computed of, both operands of which are the same at every step, there are 2^64 ways."""
    module = mlir.parse(
        """func.func @main(%m: index) {
          %p = "kitsune.kernel"() ({
            %lo, %hi, %st = "kitsune.tiles"(%m) {tile = array<i64: 64>} : (index) -> (index, index, index)
            "kitsune.agent"() ({
            ^bb0(%copy: index):
              %x = arith.addi %copy, %lo : index
            }) {copies = 2, registers = 24, sym_name = "a", warps = 4} : () -> ()
          }) {sym_name = "k"} : () -> !kitsune.outputs
          return
        }""",
        mlir.context(),
    )
    (kernel,) = schedule.kernels(module)
    (agent,) = kernel.agents
    x = agent.block.operations[0].results[0]
    with module.context, ir.Location.unknown(), ir.InsertionPoint(agent.block):
        for _ in range(64):
            x = arith.remui(x, x)
        whole, tile = (ir.RankedTensorType.get([rows], ir.F32Type.get()) for rows in (128, 64))
    assert whole_of(agent, whole, [x], [0], tile.shape) == []
