"""The plan's launches: what the host program launches, in order, each with a price."""

import re

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir import launches, mlir
from kitsune_mlir.plan_report import report
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.kernel_cost import TRIES
from kitsune_mlir.runtime.host_program import Copy, Launch, make_plan
from kitsune_mlir.runtime.weight_steps import split

GPU = targets.load("sm_90a")


class Mixed(nn.Module):
    """A pipeline, a product of two computed tensors, and operators that run alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.GELU())))

    def forward(self, x):
        y = self.layers(x)
        shares = torch.softmax(y @ x.mT, -1).cumsum(0)
        return torch.sort(torch.bmm(shares.view(2, 512, 1024), torch.stack((y, x))), dim=1)[0]


def compiled(module, x, dynamic=None, **more):
    return kitsune_mlir.compile(module, (x,), target="sm_90a", dynamic_shapes=dynamic, **more)


@pytest.fixture(scope="module")
def mixed():
    torch.manual_seed(0)
    return compiled(Mixed().to(torch.bfloat16), torch.randn(1024, 64, dtype=torch.bfloat16))


def test_launches_are_those_of_the_host_program(mixed):
    section = mixed._content.sections["sm_90a"]
    constants = mixed.interface.constants()
    parts = split(section.manifest, [constant is not None for constant in constants])
    program = section.manifest | {"program": parts.rest, "arguments": section.manifest["arguments"] + parts.kept}
    shapes = [tuple(argument["shape"]) for argument in program["arguments"]]
    calls = make_plan(program, shapes).calls
    names = [
        "copy"
        if isinstance(call, Copy)
        else call.kernel
        if isinstance(call, Launch)
        else section.manifest["pipelines"][call.name]["launch"]["kernel"]
        for call in calls
    ]
    found = mixed.plan["launches"]
    assert [launch["kernel"] for launch in found] == names
    for call, launch in zip(calls, found, strict=True):
        if isinstance(call, Launch):
            assert (launch["ctas"], launch["threads"]) == (call.grid[0], call.block[0])


def test_each_form_is_described_and_priced(mixed):
    found = mixed.plan["launches"]
    forms = {launch["form"] for launch in found}
    assert {"scheduled chain", "scheduled product", "operator"} <= forms
    for launch in found:
        assert launch["predicted_us"] >= GPU.launch_us and launch["limit"]
        assert ("work" in launch) == (launch["form"] in ("operator", "copy"))
        if launch["form"] == "scheduled product":
            assert re.match(r"\d+x2x512x64, k 1024|1024x1024, k 64", launch["computes"])
            assert launch["slots"] >= 2 and len(launch["tile"]) >= 2 and launch["shared_bytes"] > 0
    assert all("test_launches.py:" in launch["location"] for launch in found)
    total = GPU.call_us + sum(launch["predicted_us"] for launch in found)
    assert mixed.plan["predicted_us"] == pytest.approx(total, abs=0.01)


def test_the_report_has_a_line_a_launch_and_folds_equal_ones(mixed):
    found = mixed.plan["launches"]
    text = mixed.report()
    assert f"launches: {len(found)} a call" in text
    many = mixed.plan | {"launches": found * 20}
    assert len(report(many).splitlines()) == len(text.splitlines()) and "20 x" in report(many)


def test_equal_pipelines_are_told_of_once(mixed):
    (pipeline,) = mixed.plan["pipelines"]
    three = [pipeline | {"name": f"p{i}"} for i in range(3)]
    text = report(mixed.plan | {"pipelines": three})
    assert "\npipeline p0 and 2 more like it, tiles of " in text
    assert len(text.splitlines()) == len(mixed.report().splitlines())


def test_a_scheduled_kernel_needs_no_rings_and_no_product():
    text = """func.func @main(%a: tensor<?x64xf32>, %m: index) -> tensor<?x64xf32> {
      %c64 = arith.constant 64 : index
      %p = "kitsune.kernel"() ({
        %lower, %upper, %step = "kitsune.tiles"(%m, %c64) {tile = array<i64: 16, 64>} : (index, index)
          -> (index, index, index)
        "kitsune.agent"() ({
        ^bb0(%copy: index):
          %r = "kitsune.read"(%a, %m, %m) {dims = array<i64: 0, 1>} : (tensor<?x64xf32>, index, index)
            -> tensor<16x64xf32>
          "kitsune.write"(%r, %m, %m) {dims = array<i64: 0, 1>, index = 0 : i64} : (tensor<16x64xf32>, index, index)
            -> ()
        }) {copies = 1 : i64, registers = 40 : i64, sym_name = "rows", warps = 4 : i64} : () -> ()
      }) {sym_name = "rows0", target = "sm_90a"} : () -> !kitsune.outputs
      %y = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<?x64xf32>
      return %y : tensor<?x64xf32>
    }"""
    module = mlir.parse(text, mlir.context())
    found = launches.scheduled(module)["rows0"]
    assert found["form"] == "scheduled rows" and found["computes"] == "?x64"
    assert (found["tile"], found["slots"], found["limit"]) == ([16, 64], None, "latency")


def test_an_artifact_keeps_them(mixed, tmp_path):
    mixed.save(tmp_path / "m.kitsune")
    assert kitsune_mlir.load(tmp_path / "m.kitsune").plan["launches"] == mixed.plan["launches"]


@pytest.mark.usefixtures("unassembled")
def test_open_sizes_are_those_of_the_example():
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to(torch.bfloat16)
    rows = torch.export.Dim("rows")
    few, many = (
        compiled(layers, torch.randn(count, 64, dtype=torch.bfloat16), ({0: rows},)).plan for count in (256, 1 << 20)
    )
    assert few["input_sizes"] == [[256, 64]] and "us for inputs of 256x64\n" in report(few)
    assert GPU.launch_us < few["predicted_us"] < many["predicted_us"] / 10
    fixed = compiled(layers, torch.randn(1 << 20, 64, dtype=torch.bfloat16)).plan
    assert many["predicted_us"] == pytest.approx(fixed["predicted_us"], rel=0.3) and "input_sizes" not in fixed


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize(("dtype", "k"), [("f32", 512), ("bf16", 8192)], ids=["pieces of f32", "a sum in parts"])
def test_products_of_pieces_and_parts_are_priced_with_their_helpers(dtype, k):
    class Product(nn.Module):
        def forward(self, a, b):
            return a @ b.mT

    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    args = torch.randn(2, 128, k, dtype=kind), torch.randn(2, 128, k, dtype=kind)
    plan = kitsune_mlir.compile(Product(), args, target="sm_90a").plan
    forms = [launch["form"] for launch in plan["launches"]]
    assert forms.count("scheduled product") == 1 and forms.count("operator") >= 1
    assert all(GPU.launch_us <= launch["predicted_us"] < 50 for launch in plan["launches"])


def test_a_cpu_launches_nothing():
    plan = kitsune_mlir.compile(nn.Linear(4, 4), (torch.randn(8, 4),)).plan
    assert "launches" not in plan and plan["predicted_us"] > 0


def test_no_rows_are_no_launch():
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to(torch.bfloat16)
    plan = compiled(layers, torch.randn(0, 64, dtype=torch.bfloat16)).plan
    assert plan["launches"] == [] and "launches" not in report(plan)


class Heads(nn.Module):
    """Products of a streamed tile beside one another: their kernel copies biases first."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(264, 48, bias=False), nn.Linear(264, 16)

    def forward(self, x):
        left = self.left(x)
        return torch.cat([left, self.right(x), left], 1)


@pytest.mark.usefixtures("unassembled")
def test_products_beside_one_another_are_described():
    found = compiled(Heads().to(torch.bfloat16), torch.randn(40_000, 264, dtype=torch.bfloat16)).plan["launches"]
    assert [(launch["form"], launch["tile"]) for launch in found] == [("scheduled product", [128])]
    assert "k 264" in found[0]["computes"]


def test_atomic_operations_are_counted():
    """An addition of four numbers is one, the largest of two floats another; that of f64 is tried again and again."""

    def sums(x, y, to):
        rows = to.view(-1, 1).expand_as(x)
        sums = torch.zeros(2000, 32).index_add(0, to, x)
        largest = torch.zeros(2000, 32, dtype=torch.float64).scatter_reduce(0, rows, y, "amax")
        return sums, torch.zeros(2000, 32).scatter_reduce(0, rows, x, "amax"), largest

    args = (torch.randn(512, 32), torch.randn(512, 32, dtype=torch.float64), torch.randint(0, 2000, (512,)))
    compiled = kitsune_mlir.compile(Function(sums), args, target="sm_90a")
    found = [launch["work"]["atomics"] for launch in compiled.plan["launches"] if "scatter" in launch["computes"]]
    assert sum(found) == 512 * 8 + 512 * 32 + 512 * 32 * TRIES
