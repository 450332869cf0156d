"""Small products of a batch whose rows a warp loads by itself, gathered ones too: one kernel, right beside float64 in
the simulator and in the interpreter, on Hopper and elsewhere."""

import linecache

import numpy as np
import pytest
import torch
from functions import Function
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.errors import UserError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.passes import pipeline
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.dots import MOST_BYTES, MOST_ROWS, choose
from kitsune_mlir.schedule import run as interpret
from kitsune_mlir.tools.gpusim import Simulation

BOUNDS = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 2e-6}
BATCH = 19


class Interactions(nn.Module):
    """Rows that are given and rows of tables, one number a table; of the dots of all pairs a triangle is taken."""

    def __init__(self, tables, width, dtype, flat):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(5 + i, width, dtype=dtype) for i in range(tables))
        self.flat, self.vectors = flat, tables + 1
        row, column = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("row", row)
        self.register_buffer("column", column)

    def forward(self, x, categories):
        found = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        z = torch.stack([*found[:2], x, *found[2:]], 1)
        dots = torch.bmm(z, z.transpose(1, 2))
        if self.flat:
            return dots.flatten(1).index_select(1, self.row * self.vectors + self.column)
        return dots[:, self.row, self.column]


def interactions(tables, width, dtype=torch.bfloat16, index=torch.int64, flat=True, batch=BATCH):
    torch.manual_seed(tables + width)
    numbers = torch.stack([torch.randint(0, 5 + i, (batch,)) for i in range(tables)], 1).to(index)
    return Interactions(tables, width, dtype, flat).eval(), (torch.randn(batch, width).to(dtype), numbers)


class Attention(nn.Module):
    """Rows of one table as the one operand, given rows as the other; what follows elementwise reads another tensor."""

    def __init__(self, width, dtype):
        super().__init__()
        self.table = nn.Embedding(40, width, dtype=dtype)

    def forward(self, q, numbers, mask):
        return torch.tanh(torch.bmm(q, self.table(numbers).transpose(1, 2)) + mask)


def attention(width=24, dtype=torch.bfloat16, rows=11, keys=18):
    torch.manual_seed(width)
    numbers = torch.randint(0, 40, (BATCH, keys))
    q, mask = torch.randn(BATCH, rows, width).to(dtype), torch.randn(BATCH, 1, keys).to(dtype)
    return Attention(width, dtype).eval(), (q, numbers, mask)


def simulated(model, args, target, dtype, calls=(), **options):
    """The compiled model, right for these arguments and those of further calls."""
    with torch.no_grad():
        compiled = kitsune_mlir.compile(model, args, target=target, **options)
        run, exact = Simulation(compiled, seed=1), model.double()
        for given in (args, *calls):
            wanted = exact(*(x.double() if x.is_floating_point() else x for x in given))
            found = run(*given)
            assert (found.double() - wanted).norm() <= BOUNDS[dtype] * wanted.norm() + 1e-9, given[0].shape
    model.to(dtype)
    return compiled, run


def dots_of(compiled):
    kernels = {kernel["name"]: kernel for kernel in compiled.plan["kernels"]}
    found = [launch for launch in compiled.plan["launches"] if launch["form"] == "scheduled dots"]
    assert not any(kernels[launch["kernel"]].get("spill_stores") for launch in found)
    return len(found), len(compiled.plan["launches"])


CASES = {
    "27 rows of 128": lambda: interactions(26, 128),
    "9 rows of 40": lambda: interactions(8, 40, index=torch.int32, flat=False),
    "f16, 48 rows of 8": lambda: interactions(47, 8, torch.float16),
    "f32, 14 rows of 12": lambda: interactions(13, 12, torch.float32),
    "f32, 8 rows of 96": lambda: interactions(7, 96, torch.float32, flat=False),
    "two operands": attention,
    "f32, two operands": lambda: attention(20, torch.float32),
    "64 rows": lambda: attention(128, rows=64, keys=17),
    "long rows": lambda: attention(1000, rows=20, keys=9),
}


@pytest.mark.parametrize("name", CASES)
def test_is_one_kernel(name, gpu_of):
    model, args = CASES[name]()
    compiled, _ = simulated(model, args, gpu_of(2), args[0].dtype)
    assert dots_of(compiled) == (1, 1)
    (kernel,) = (kernel for kernel in compiled.ptx.split(".entry") if "mma.sync" in kernel)
    assert "griddepcontrol.launch_dependents" in kernel and "griddepcontrol.wait" not in kernel


def test_without_warpgroups(gpu_of):
    model, args = interactions(10, 32)
    compiled, _ = simulated(model, args, gpu_of(2, "sm_80"), args[0].dtype)
    assert dots_of(compiled) == (1, 1)


def test_any_batch(gpu_of):
    model, args = interactions(5, 64)
    batch = torch.export.Dim("batch", min=0, max=1 << 20)
    calls = [interactions(5, 64, batch=count)[1] for count in (1, 130, 0)]
    shapes = ({0: batch}, {0: batch})
    compiled, _ = simulated(model, args, gpu_of(2), torch.bfloat16, calls, dynamic_shapes=shapes)
    assert dots_of(compiled) == (1, 1)


class Top(nn.Module):
    """A layer of given rows and the dots beside them: rows of 600 bytes, which tensor copies want longer."""

    def __init__(self):
        super().__init__()
        self.interactions, self.top = Interactions(24, 64, torch.bfloat16, True), nn.Linear(364, 256).bfloat16()

    def forward(self, x, categories):
        return torch.relu(self.top(torch.cat([x, self.interactions(x, categories)], 1)))


@pytest.mark.usefixtures("unassembled")
def test_rows_leave_as_tensor_copies_take_them(gpu_of):
    _, args = interactions(24, 64, batch=130)
    torch.manual_seed(2)
    compiled, _ = simulated(Top().eval(), args, gpu_of(2), torch.bfloat16)
    assert [launch["form"] for launch in compiled.plan["launches"]] == ["scheduled dots", "scheduled chain"]


@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
def test_numbers_out_of_range(index, gpu_of):
    """Each table has a bound of its own, since table i has 5 + i rows."""
    model, args = interactions(9, 32, index=index)
    _, run = simulated(model, args, gpu_of(2), torch.bfloat16)
    wanted = run(*args)
    for column, wrong in ((0, 5), (8, 13), (3, -1), (8, torch.iinfo(index).max)):
        numbers = args[1].clone()
        numbers[BATCH - 1, column] = wrong
        with pytest.raises(UserError, match=r"\.py:\d+: an index is out of range$") as error:
            run(args[0], numbers)
        file, line, _ = str(error.value).split(":", 2)
        assert "table(categories[:, i])" in linecache.getline(file, int(line))
    assert torch.equal(run(*args), wanted)


def test_in_the_interpreter():
    def function(x, table, other, numbers, places):
        z = torch.cat([F.embedding(numbers, table), x.unsqueeze(1), other[numbers[:, 1]].unsqueeze(1)], 1)
        return torch.bmm(z, z.mT).flatten(1).index_select(1, places)

    torch.manual_seed(1)
    x, table, other = (torch.randn(shape).bfloat16() for shape in ((BATCH, 24), (30, 24), (25, 24)))
    args = (x, table, other, torch.randint(0, 25, (BATCH, 5)), torch.randint(0, 49, (20,)))
    program = import_model(Function(function), args)
    steps = ["prepare-linalg", "schedule-products", "verify-dataflow"]
    pipeline.run(program.module, [pipeline.make(step, "", "sm_90a") for step in steps])
    (kernel,) = dialect.kernels(program.module)
    (found,) = interpret(kernel, [v.float().numpy() if v.is_floating_point() else v.numpy() for v in args], 3, 1)
    wanted = function(*(v.double() if v.is_floating_point() else v for v in args)).numpy()
    assert np.linalg.norm(found - wanted) <= 1e-2 * np.linalg.norm(wanted)


def test_others_are_left_alone():
    target = targets.load("sm_90a")

    def form(m, n, k, width=2):
        return choose(4096, m, n, k, m == n, width, 1e7, m * n, target)

    assert form(27, 27, 128) is not None and form(64, 64, 64) is not None and form(27, 27, 64, 4) is not None
    assert form(MOST_ROWS + 1, 8, 64) is None and form(8, 8, MOST_BYTES // 2 + 8) is None and form(8, 8, 12) is None
    assert form(9, 9, 128).keeps_places and not form(64, 64, 64).keeps_places
    for m, n in ((1, 1), (27, 27), (64, 64), (64, 5)):
        found = form(m, n, 128)
        assert found.ctas % 4 == 0 and found.registers % 8 == 0 and found.registers * found.ctas * 32 <= 65536
