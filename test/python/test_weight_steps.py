"""What depends on weights alone runs once: the analysis on host programs, and whole models on the stand-in device."""

import copy
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpu_models import check, compiled, interface_of, runner_of
from test_gpu_pipelines import runner_of as pipelined

from kitsune_mlir import mlir
from kitsune_mlir.codegen.host_program import host_program
from kitsune_mlir.runtime.gpu import GpuRunner
from kitsune_mlir.runtime.host_program import Copy, Launch, make_plan
from kitsune_mlir.runtime.weight_steps import CALLS, split
from kitsune_mlir.tools.gpusim.device import SimulatedDevice

INPUT, WEIGHT = False, True


def manifest(*program, shapes=((4, 8), (4, 8))):
    return {
        "program": list(program),
        "arguments": [{"dtype": "f32", "shape": list(shape)} for shape in shapes],
        "globals": {"g": {"offset": 0, "dtype": "f32", "shape": [4, 8]}},
        "pipelines": defaultdict(lambda: {"launch": {}}),  # whatever their names are
    }


def alloc(name, *shape):
    return {"op": "alloc", "to": name, "dtype": "f32", "shape": list(shape) or [4, 8]}


def launch(kernel, *arguments, writes=None):
    """Writes its last argument unless told."""
    writes = [len(arguments) - 1] if writes is None else writes
    args = list(arguments)
    return {"op": "launch", "kernel": kernel, "grid": [1, 1, 1], "block": [1, 1, 1], "args": args, "writes": writes}


def result(name):
    return {"op": "return", "values": [name]}


def names(program):
    return [step["kernel"] for step in program if step["op"] == "launch"]


def parts(*program, bound=(INPUT, WEIGHT), **keys):
    """The kernels that run once, those of each run, and the split. a0 is an input, a1 a weight."""
    found = split(manifest(*program, **keys), bound)
    return names(found.once), names(found.rest), found


def test_a_padded_weight():
    program = [
        *(alloc("b", 4, 16), alloc("y")),
        *(launch("fill", "b"), launch("pad", "a1", "b"), launch("product", "a0", "b", "y"), result("y")),
    ]
    once, rest, found = parts(*program)
    assert (once, rest) == (["fill", "pad"], ["product"])
    assert found.kept == [{"dtype": "f32", "shape": [4, 16]}] and found.released == [1]
    assert found.once[-1] == result("b") and {"op": "kept", "to": "b", "argument": 2} in found.rest
    plan = make_plan({**manifest(), "program": found.rest, "arguments": manifest()["arguments"] + found.kept},
                     [(4, 8), (4, 8), (4, 16)])  # fmt: skip
    assert [plan.buffers[view.buffer].index for view in plan.calls[0].arguments[:2]] == [0, 2]


def test_only_what_is_used_later_is_kept():
    program = [alloc("b"), alloc("c"), alloc("y"), launch("first", "a1", "b"), launch("second", "b", "c")]
    once, rest, found = parts(*program, launch("product", "a0", "c", "y"), result("y"))
    assert (once, rest) == (["first", "second"], ["product"]) and found.once[-1] == result("c")
    assert parts(*program, launch("copy", "a0", "y"), result("y"))[0] == []


def test_weights_that_each_run_reads_stay():
    _, _, found = parts(alloc("b"), alloc("y"), launch("pad", "a1", "b"), launch("product", "a1", "a0", "b", "y"),
                        result("y"))  # fmt: skip
    assert found.released == []


def test_weights_given_with_each_call():
    program = [alloc("b"), alloc("y"), launch("pad", "a1", "b"), launch("product", "a0", "b", "y"), result("y")]
    found = split(manifest(*program), [INPUT, INPUT])
    assert found.once == [] and found.rest == program


@pytest.mark.parametrize("change", [launch("update", "a0", "b"), {"op": "copy", "from": "a0", "into": "v"}])
def test_what_a_later_call_changes(change):
    view = {"op": "view", "to": "v", "of": "b", "offset": 0, "shape": [4, 8], "strides": [8, 1]}
    once, _, _ = parts(alloc("b"), view, alloc("y"), launch("pad", "a1", "b"), launch("product", "a0", "b", "y"),
                       change, result("y"))  # fmt: skip
    assert once == []


def test_what_is_made_anew_in_the_same_place():
    once, _, _ = parts(alloc("b"), alloc("y"), launch("pad", "a1", "b"), launch("product", "a0", "b", "y"),
                       launch("twice", "a1", "b"), launch("product", "a0", "b", "y"), result("y"))  # fmt: skip
    assert once == []


@pytest.mark.parametrize("source", ["a0", "a1"])
def test_a_weight_that_a_kernel_writes(source):
    once, _, _ = parts(alloc("b"), alloc("y"), launch("update", source, "a1"), launch("pad", "a1", "b"),
                       launch("product", "a0", "b", "y"), result("y"))  # fmt: skip
    assert once == []


def test_results_are_new_in_each_run():
    once, rest, _ = parts(alloc("b"), alloc("y"), launch("pad", "a1", "b"), launch("scale", "b", "y"),
                          result("y"))  # fmt: skip
    assert (once, rest) == (["pad"], ["scale"])


def test_sizes_of_the_inputs():
    size = {"op": "dim", "to": "n", "of": "a0", "dim": 0}
    end = [launch("product", "a0", "b", "y"), result("y")]
    counted = launch("repeat", "a1", ["i64", "n"], "b")
    assert parts(size, alloc("b"), alloc("y"), counted, *end)[0] == []
    assert parts(size, alloc("b", "n", 8), alloc("y"), launch("repeat", "a1", "b"), *end)[0] == []
    view = {"op": "view", "to": "v", "of": "b", "offset": "n", "shape": [1], "strides": [1]}
    assert parts(size, alloc("b"), view, alloc("y"), launch("repeat", "a1", "v"), *end)[0] == []


def test_constants_of_the_code():
    once, _, _ = parts({"op": "global", "to": "g", "name": "g"}, alloc("b"), alloc("y"), launch("pad", "g", "b"),
                       launch("product", "a0", "b", "y"), result("y"))  # fmt: skip
    assert once == ["pad"]


@pytest.mark.parametrize(("rows", "kept"), [(1 << 13, True), (1 << 16, False)])
def test_what_is_large_is_made_in_each_run(rows, kept):
    """A bias of 32 bytes repeated: 256 KB is nothing, 2 MB is."""
    once, _, _ = parts(alloc("b", rows, 8), alloc("y"), launch("repeat", "a1", "b"), launch("add", "a0", "b", "y"),
                       result("y"), shapes=[(4, 8), (8,)])  # fmt: skip
    assert bool(once) == kept


def test_large_weights_may_be_packed():
    once, _, _ = parts(alloc("b", 1 << 20, 8), alloc("y"), launch("pack", "a1", "b"),
                       launch("product", "a0", "b", "y"), result("y"), shapes=[(4, 8), (1 << 19, 8)])  # fmt: skip
    assert once == ["pack"]


def test_what_is_large_on_the_way_is_not_kept():
    """As numbers of four bits are that are unpacked to numbers of 32, to become 16-bit ones."""
    program = [alloc("b", 64, 4096, 4), alloc("c", 64, 4096), alloc("y")]
    program += [launch("unpack", "a1", "b"), launch("round", "b", "c"), launch("product", "a0", "c", "y"), result("y")]
    once, rest, found = parts(*program, shapes=((4, 8), (64, 1024)))
    assert (once, rest) == (["unpack", "round"], ["product"])
    assert [kept["shape"] for kept in found.kept] == [[64, 4096]]


def test_a_pipeline_of_weights():
    entry = [{"to": "p", "dtype": "f32", "shape": [4, 8]}, {"to": "q", "dtype": "f32", "shape": [4, 8]}]
    call = {"op": "pipeline", "name": "encode", "args": ["a1"], "results": entry}
    size = {"op": "dim", "to": "n", "of": "q", "dim": 0}
    end = [alloc("y"), launch("product", "a0", "p", ["i64", "n"], "y"), result("y")]
    _, _, found = parts(call, size, *end)
    assert [step["op"] for step in found.rest if step["op"] in CALLS] == ["launch"]
    described = manifest()["arguments"] + found.kept
    plan = make_plan({**manifest(), "program": found.rest, "arguments": described}, [(4, 8)] * 3)
    assert plan.calls[0].arguments[2] == ("i64", 4) and plan.buffers[plan.calls[0].arguments[1].buffer].index == 2


WRITES = """
module attributes {gpu.container_module} {
  func.func @main(%a: memref<4xf32>, %b: memref<4xf32>, %c: memref<4x4xf32>, %d: memref<4xf32>) {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%a : memref<4xf32>, %c1 : index, %b : memref<4xf32>, %c : memref<4x4xf32>, %d : memref<4xf32>)
    return
  }
  gpu.module @kernels {
    gpu.func @k(%a: memref<4xf32>, %i: index, %b: memref<4xf32>, %c: memref<4x4xf32>, %d: memref<4xf32>) kernel {
      %va = memref.subview %a[1] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1], offset: 1>>
      %x = memref.load %va[%i] : memref<2xf32, strided<[1], offset: 1>>
      %vc = memref.subview %c[1, 0] [1, 4] [1, 1] : memref<4x4xf32> to memref<4xf32, strided<[1], offset: 4>>
      memref.store %x, %vc[%i] : memref<4xf32, strided<[1], offset: 4>>
      %y = memref.load %d[%i] : memref<4xf32>
      %old = memref.atomic_rmw addf %y, %b[%i] : (f32, memref<4xf32>) -> f32
      gpu.return
    }
  }
}
"""


def test_what_a_kernel_writes():
    (step, _) = host_program(mlir.parse(WRITES, mlir.context()))
    assert step["args"] == ["a0", ["i64", 1], "a1", "a2", "a3"] and step["writes"] == [2, 3]


# A buffer's content, when programs are run in the head: what was computed, as nested tuples, hashed.


def contents(description, arguments):
    """Runs a program; what it returns. A kernel leaves in what it writes a mark of all that it was given."""
    shapes = [tuple(argument["shape"]) for argument in description["arguments"]]
    plan = make_plan(description, shapes)
    writes = {step["kernel"]: step["writes"] for step in description["program"] if step["op"] == "launch"}
    held = [arguments[b.index] if b.kind == "argument" else 0 for b in plan.buffers]
    for call in plan.calls:
        if isinstance(call, Copy):
            held[call.target.buffer] = hash((held[call.source.buffer], held[call.target.buffer]))
        elif isinstance(call, Launch):
            mark = hash((call.kernel, *(held[view.buffer] for view in call.arguments)))
            for i in writes[call.kernel]:
                held[call.arguments[i].buffer] = hash((mark, i))
        else:
            mark = hash((call.name, *(held[view.buffer] for view in call.arguments)))
            for i, view in enumerate(call.results):
                held[view.buffer] = hash((mark, i))
    return [held[view.buffer] for view in plan.results]


@st.composite
def programs(draw):
    """Random programs that write a buffer before they read it, on two inputs and two weights."""
    program, ready, buffers = [], ["a0", "a1", "a2", "a3"], []
    for n in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["new", "new", "write", "view", "copy", "pipeline"]))
        given_ = draw(st.lists(st.sampled_from(ready), min_size=1, max_size=3, unique=True))
        if kind == "write" and buffers:
            target = draw(st.sampled_from(buffers))
            args = [*given_, target]
            program.append(launch(f"k{n}", *args, writes=[i for i, name in enumerate(args) if name == target]))
        elif kind == "copy" and buffers:
            program.append({"op": "copy", "from": given_[0], "into": draw(st.sampled_from(buffers))})
        elif kind == "view":
            shape = {"shape": [4, 8], "strides": [8, 1]}
            program.append({"op": "view", "to": f"v{n}", "of": given_[0], "offset": 0, **shape})
            ready.append(f"v{n}")
            if given_[0] in buffers:
                buffers.append(f"v{n}")
        elif kind == "pipeline":
            entry = [{"to": f"p{n}", "dtype": "f32", "shape": [4, 8]}]
            program.append({"op": "pipeline", "name": f"k{n}", "args": given_, "results": entry})
            ready.append(f"p{n}")
            buffers.append(f"p{n}")
        else:
            program += [alloc(f"b{n}"), launch(f"k{n}", *given_, f"b{n}")]
            ready.append(f"b{n}")
            buffers.append(f"b{n}")
    program += [alloc("y"), launch("last", *draw(st.lists(st.sampled_from(ready), min_size=1, unique=True)), "y")]
    return manifest(*program, result("y"), shapes=[(4, 8)] * 4)


@given(programs())
@settings(max_examples=150, deadline=None)
def test_both_parts_do_what_the_whole_does(description):
    weights = [103, 104]
    found = split(description, [INPUT, INPUT, WEIGHT, WEIGHT])
    kept = []
    if found.once:
        kept = contents(description | {"program": found.once}, [None, None, *weights])
    held = [None if 2 + i in found.released else weight for i, weight in enumerate(weights)]
    rest = description | {"program": found.rest, "arguments": description["arguments"] + found.kept}
    for inputs in ([1, 2], [3, 4], [1, 2]):
        assert contents(rest, [*inputs, *held, *kept]) == contents(description, [*inputs, *weights])


class Padded(torch.nn.Module):
    """A product with a weight that is padded and sorted first; a buffer counts the calls if asked."""

    def __init__(self, counts=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(9, 5))
        self.counts = counts
        if counts:
            self.register_buffer("count", torch.zeros(9, 5))

    def forward(self, x, weight=None):
        weight = self.weight if weight is None else weight
        if self.counts:
            self.count.add_(1)
            weight = weight + self.count
        return x @ torch.nn.functional.pad(weight, (0, 3), value=0.5).sort(0)[0]


def run_twice(model, args):
    """Launches of the first call, of the second, and when the runner was made. Both calls must be right."""
    program, section = compiled(model, args)
    runner, device = runner_of(program, section)
    counted = [device.launches]
    for _ in range(2):
        with torch.no_grad():
            wanted = model(*args)
        before = device.launches
        check(program, runner, args, wanted, 1e-5)
        counted.append(device.launches - before)
    return counted


def test_a_model_whose_weight_is_made_ready():
    at_start, *calls = run_twice(Padded(), (torch.randn(6, 9),))
    assert at_start >= 2 and calls == [1, 1]


def test_a_weight_that_each_call_gives():
    model = Padded()
    program, section = compiled(model, (torch.randn(6, 9), torch.randn(9, 5)))
    runner, _ = runner_of(program, section)
    for _ in range(2):
        args = torch.randn(6, 9), torch.randn(9, 5)
        check(program, runner, args, model(*args).detach(), 1e-5)


def test_a_weight_that_the_model_changes():
    model = Padded(counts=True)
    program, section = compiled(copy.deepcopy(model), (torch.randn(6, 9),))
    runner, _ = runner_of(program, section)
    for _ in range(3):
        x = torch.randn(6, 9)
        check(program, runner, (x,), model(x).detach(), 1e-5)


def test_any_stream_and_a_graph():
    model, x = Padded(), torch.randn(6, 9)
    wanted = model(x).detach().numpy()
    program, section = compiled(model, (x,))
    runner, device = runner_of(program, section)
    resident = runner.upload([x.numpy()])
    before = device.launches
    for stream in (3, 0, 4):
        torch.testing.assert_close(runner.launch(resident, stream)[0].numpy(), wanted, rtol=1e-5, atol=1e-5)
    runner.reserve(resident, 5)
    device.captured = True
    captured = runner.launch(resident, 5)[0]
    assert device.launches == before + 5
    torch.testing.assert_close(captured.numpy(), wanted, rtol=1e-5, atol=1e-5)


class Chain(torch.nn.Module):
    """Two products; the second weight is padded and sorted first."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.randn(shape) / 5) for shape in ((24, 20), (20, 10)))

    def forward(self, x):
        return torch.relu(x @ self.first).tanh() @ torch.nn.functional.pad(self.second, (0, 6)).sort(1)[0]


def test_a_pipeline_of_a_padded_weight():
    model, x = Chain(), torch.randn(40, 24)
    program, runner, device = pipelined(model, (x,), "sm_90a")
    before, ranked = device.launches, device.pipeline_launches  # what sorts the weight
    assert before
    for count in (1, 2):
        check(program, runner, (x,), model(x).detach(), 1e-5)
        assert (device.launches, device.pipeline_launches) == (before, ranked + count)


def test_weights_that_nothing_reads_again_are_freed():
    program, section = compiled(Padded(), (torch.randn(6, 9),))
    constants = interface_of(program).constants()
    runner = GpuRunner(section.manifest, section.files, constants, SimulatedDevice(program.module))
    (weight,) = [i for i, constant in enumerate(constants) if constant is not None]
    assert runner._constants[weight].owner is None and runner._constants[-1].owner is not None
