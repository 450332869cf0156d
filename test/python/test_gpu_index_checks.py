"""Row numbers out of range on GPUs: an error that names the line, no access, and the numbers that torch allows."""

import linecache

import numpy as np
import pytest
import torch
from functions import Function
from test_gpu_graphs import Messages, graph
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.errors import UserError
from kitsune_mlir.tools.gpusim.simulation import Simulation


class Simulated:
    """A compiled model in the simulator, whose results are those of torch for good numbers."""

    def __init__(self, model, args, target, **options):
        with torch.no_grad():
            self.compiled = kitsune_mlir.compile(model.eval(), args, target=target, **options)
        self.model, self.args, self.run = model, args, Simulation(self.compiled)
        self.check(args)

    @property
    def manifest(self):
        (section,) = self.compiled._content.sections.values()
        return section.manifest

    def check(self, args):
        with torch.no_grad():
            wanted = self.model(*args)
        for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (self.run(*args), wanted)), strict=True):
            assert (a.float() - b.float()).norm() <= 3e-2 * b.float().norm() + 1e-5

    def refuses(self, argument, wrong, line):
        """One wrong number raises an error that names a line with this text; the next call is right."""
        args = list(self.args)
        args[argument] = args[argument].clone()
        args[argument].view(-1)[-2] = wrong
        with pytest.raises(UserError, match=r"\.py:\d+: an index is out of range$") as error:
            self.run(*args)
        file, number, _ = str(error.value).split(":", 2)
        assert line in linecache.getline(file, int(number))
        self.check(self.args)


def messages(dtype=torch.int64, nodes=40, edges=140):
    torch.manual_seed(3)
    ends = [end.to(dtype) for end in graph("any", nodes, edges)]
    model = Messages(32, 16, 64, 48).bfloat16()
    return model, (torch.randn(nodes, 32).bfloat16(), torch.randn(edges, 16).bfloat16(), *ends)


@pytest.mark.parametrize("dtype, wrong", [(torch.int64, (40, -1, 1 << 40)), (torch.int32, (-(2**31), 2**31 - 1))])
def test_a_pipeline_that_gathers_and_scatters(dtype, wrong, small_gpu):
    case = Simulated(*messages(dtype), small_gpu)
    assert "scheduled chain" in {launch["form"] for launch in case.compiled.plan["launches"]}
    assert not any(kernel.get("spill_stores") for kernel in case.manifest["kernels"])
    for number in wrong:
        case.refuses(2, number, "ends =")
        case.refuses(3, number, "ends =")


class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(32, 64)

    def forward(self, e, receivers):
        messages = torch.relu(self.net(e))
        return torch.zeros(30, 64, dtype=e.dtype).index_add(0, receivers, messages)


def test_a_pipeline_that_scatters_alone(small_gpu):
    case = Simulated(Sums().bfloat16(), (torch.randn(130, 32).bfloat16(), torch.randint(0, 30, (130,))), small_gpu)
    assert [place for places in case.manifest["checks"].values() for place in places]
    for wrong in (30, -1):
        case.refuses(1, wrong, "index_add")


class SumsLike(Sums):
    def forward(self, e, receivers, x):
        return torch.zeros(x.shape[0], 64, dtype=e.dtype).index_add(0, receivers, torch.relu(self.net(e)))


def test_a_pipeline_that_scatters_to_any_number_of_rows(small_gpu):
    """It takes no other part in what has as many: whose rows it is told is in the manifest."""

    def args(nodes, edges):
        receivers = torch.randint(0, nodes, (edges,)) if nodes else torch.zeros(0, dtype=torch.int64)
        return torch.randn(edges, 32).bfloat16(), receivers, torch.randn(nodes, 5)

    x, e = torch.export.Dim("nodes", min=2), torch.export.Dim("edges", min=2)
    case = Simulated(SumsLike().bfloat16(), args(30, 130), small_gpu, dynamic_shapes=({0: e}, {0: e}, {0: x}))
    (pipeline,) = case.manifest["pipelines"].values()
    assert pipeline["launch"]["sizes"] and pipeline["launch"]["zeroed"] == [0]
    for nodes, edges in ((30, 130), (9, 200), (400, 7), (6, 0)):
        case.args = args(nodes, edges)
        case.check(case.args)
        for wrong in (nodes, -1) if edges else ():
            case.refuses(1, wrong, "index_add")


def test_a_pipeline_of_mma_sync():
    case = Simulated(*messages(), "sm_80")
    assert any("pipeline" in module for module in case.manifest["checks"])
    case.refuses(2, 40, "ends =")


def test_tables_of_any_size(small_gpu):
    """One without rows among them, of which no number is right."""
    model, args = messages()
    x, e = torch.export.Dim("nodes"), torch.export.Dim("edges")
    case = Simulated(model, args, small_gpu, dynamic_shapes=({0: x}, {0: e}, {0: e}, {0: e}))
    assert any(pipeline["launch"].get("sizes") for pipeline in case.manifest["pipelines"].values())
    case.args = messages(nodes=9, edges=50)[1]
    case.check(case.args)
    case.refuses(2, 9, "ends =")
    case.refuses(3, -1, "ends =")
    with pytest.raises(UserError, match="an index is out of range"):
        case.run(torch.zeros(0, 32).bfloat16(), *case.args[1:])
    case.check(case.args)


class Operators(nn.Module):
    """Each with numbers of its own."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8)

    def forward(self, x, a, b, c, d, e, f, g, h):
        ones = torch.ones(5, 8)
        return (
            self.table(a),
            x[b],
            x.index_select(1, c),
            torch.gather(x, 0, d),
            x.index_add(0, e, ones),
            x.scatter_add(0, f, ones),
            x.index_put((g,), ones, accumulate=True),
            x.scatter_reduce(0, h, ones, "amax"),
        )


def test_operators():
    torch.manual_seed(5)
    few, counted, square = torch.randint(0, 8, (5,)), torch.randint(-20, 20, (5,)), torch.randint(0, 20, (5, 8))
    x = torch.randn(20, 8)
    case = Simulated(Operators(), (x, few, counted, few, square, few, square, counted, square), "sm_90a")
    rows = [(20, -1), (20, -21), (8, -1), (20, -1), (20, -1), (20, -1), (20, -21), (20, -1)]
    lines = ["table(a)", "x[b]", "index_select", "gather", "index_add", "scatter_add", "index_put", "scatter_reduce"]
    for argument, (wrong, line) in enumerate(zip(rows, lines, strict=True), start=1):
        for number in wrong:
            case.refuses(argument, number, line)


def test_who_does_not_wait_hears_of_it_later():
    torch.manual_seed(6)
    table, good, wrong = torch.randn(20, 8), torch.arange(5), torch.tensor([0, 1, 2, 3, 20])
    picked = kitsune_mlir.compile(Picked(), (table, good), target="sm_90a")
    simulation = Simulation(picked)
    runner = simulation._runner("sm_90a")
    first = runner.launch([table.numpy(), wrong.numpy()])  # returns before the GPU is done
    with pytest.raises(UserError, match="an index is out of range, in an earlier call"):
        runner.launch([table.numpy(), good.numpy()])
    (found,) = runner.launch([table.numpy(), good.numpy()])
    assert (found.numpy() == table[:5].numpy()).all() and first
    runner.launch([table.numpy(), wrong.numpy()])
    with pytest.raises(UserError, match="an index is out of range$"):
        simulation.synchronize()
    simulation.synchronize()


class Picked(nn.Module):
    def forward(self, table, rows):
        return table[rows]


class Twice(nn.Module):
    """Two equal parts, which share a kernel."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x, i, j):
        x = torch.tanh(self.first(torch.index_select(x, 0, i)))
        return torch.tanh(self.second(torch.index_select(x, 0, j)))


def test_equal_kernels_name_both_lines(small_gpu):
    torch.manual_seed(7)
    i, j = torch.randint(0, 140, (2, 140))
    case = Simulated(Twice().bfloat16(), (torch.randn(140, 32).bfloat16(), i, j), small_gpu)
    args = [*case.args[:2], torch.full_like(j, 140)]
    with pytest.raises(UserError, match=r"\.py:\d+ or \S+\.py:\d+: an index is out of range"):
        case.run(*args)


def test_models_without_row_numbers_have_no_checks():
    compiled = kitsune_mlir.compile(nn.Linear(32, 32), (torch.randn(64, 32),), target="sm_90a")
    assert "checks" not in compiled._content.sections["sm_90a"].manifest and "kitsune_wild" not in compiled.ptx


@pytest.mark.parametrize(
    "taken, checked",
    [
        (lambda x, i: x[i.clamp(0, 19)], False),
        (lambda x, i: x[i.clamp(min=-3).clamp(max=16) + 3], False),
        (lambda x, i: x[torch.where(i > 5, i.clamp(0, 9), 19)], False),
        (lambda x, i: x[(i > 5).long()], False),
        (lambda x, i: x[i.clamp(max=19)], True),
        (lambda x, i: x[i.clamp(0, 20)], True),
        (lambda x, i: x[i.clamp(0, 9) * i.clamp(0, 3)], True),
    ],
)
def test_numbers_that_lie_in_a_table_need_no_check(taken, checked, small_gpu):
    args = torch.randn(20, 8), torch.tensor([0, 3, 6, 2] if checked else [-70, 3, 9, 200])
    compiled = kitsune_mlir.compile(Function(taken), args, target=small_gpu)
    assert ("kitsune_wild" in compiled.mlir(f"{compiled.targets[0]}:convert-linalg-to-gpu")) == checked
    torch.testing.assert_close(Simulation(compiled)(*args), taken(*args))


def test_the_first_check_is_named():
    """Where several checks fail, the error names the one that ran first."""
    from kitsune_mlir.runtime.index_reports import FIRST, IndexReports

    words = np.zeros(2, np.uint32)

    class Device:
        pointed = {}

        def host_words(self, count):
            assert count == 2
            self.address = self.pointer = words.ctypes.data
            return self

        def point(self, code, name, pointer):
            self.pointed[code] = pointer

    device = Device()
    reports = IndexReports(device, {"a": 1, "b": 2, "c": 3}, {"a": ["x.py:1"], "c": ["x.py:2", "x.py:3"]})
    assert device.pointed == {1: words.ctypes.data, 3: words.ctypes.data + 4}
    reports.check()
    words[1] = max(FIRST - 1, FIRST)
    with pytest.raises(UserError, match=r"^x\.py:2: an index is out of range$"):
        reports.check()
    reports.check()


def test_columns_of_a_table_of_any_size_are_held_against_its_width():
    """Its rows, which the kernel is told, bound row numbers alone: a table may have more of them than columns."""
    module = mlir.parse(
        """func.func @gather(%t: tensor<?x8xf32>, %i: i32, %j: i32, %rows: i64) -> f32 {
             %a = arith.index_cast %i : i32 to index
             %b = arith.index_cast %j : i32 to index
             %x = tensor.extract %t[%a, %b] : tensor<?x8xf32>
             return %x : f32
           }""",
        mlir.context(),
    )
    (extract,), (end,) = mlir.walk(module, "tensor.extract"), mlir.walk(module, "func.return")
    _, row, column, rows = end.block.arguments
    with module.context, mlir.ir.Location.unknown(), index_checks.of_pipeline(module), mlir.ir.InsertionPoint(end):
        index_checks.know_sizes([rows])
        for axis, number in enumerate((row, column)):
            index_checks.row_inside(extract, axis, number)
    of_row, of_column = [check.operands[1].owner for check in mlir.walk(module, "arith.cmpi")]
    assert (of_row.name, of_column.name) == ("arith.index_cast", "arith.constant")
    assert mlir.attr_int(of_column.operation, "value") == 8
