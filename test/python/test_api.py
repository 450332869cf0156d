"""kitsune_mlir.compile and what it returns: calls, plans, IR, and what a wrong call gets."""

import numpy as np
import pytest
import torch

import kitsune_mlir
from kitsune_mlir import UserError
from kitsune_mlir.runtime import arrays


def call(compiled, x, scale):
    return compiled(x=x, scale=scale)


@pytest.mark.parametrize("rows", [1, 64, 100])
def test_agrees_with_torch_for_any_number_of_rows(compiled, perceptron, rows):
    x, scale = torch.randn(rows, 16), torch.rand(4)
    with torch.no_grad():
        wanted = perceptron(x, scale=scale)
    found = call(compiled, x, scale)
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-5, atol=1e-5)


def test_gives_numpy_for_numpy_and_torch_for_torch(compiled):
    x, scale = np.zeros((3, 16), np.float32), np.ones(4, np.float32)
    assert isinstance(call(compiled, x, scale)["y"], np.ndarray)
    assert isinstance(call(compiled, torch.from_numpy(x), scale)["y"], torch.Tensor)


def test_takes_strided_inputs_and_leaves_them_alone(compiled, perceptron):
    x = torch.randn(16, 8).t()
    before = x.clone()
    found = call(compiled, x, torch.ones(4))
    torch.testing.assert_close(found["y"], perceptron(before, scale=torch.ones(4))["y"].detach())
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("x", "scale", "sentence"),
    [
        (torch.zeros(3, 15), torch.ones(4), r"input 'x' must have the shape \[any, 16\], found \[3, 15\]"),
        (torch.zeros(3, 16).double(), torch.ones(4), "input 'x' must be f32, found float64"),
        (torch.zeros(3, 16).bfloat16(), torch.ones(4), "input 'x' must be f32, found bfloat16"),
        (
            torch.zeros(3, 16).to_sparse(),
            torch.ones(4),
            "input 'x' must be a dense tensor .*, found one that is sparse",
        ),
        (torch.zeros(3, 16).to("meta"), torch.ones(4), "input 'x' must be .*, found one that is on the meta device"),
        (torch.zeros(3, 16), 1.0, "input 'scale' must be a numpy array or torch tensor, found float"),
    ],
)
def test_refuses_inputs_that_do_not_fit(compiled, x, scale, sentence):
    with pytest.raises(UserError, match=sentence):
        call(compiled, x, scale)


def test_dynamic_sizes_of_one_name_must_agree(tmp_path):
    class Sum(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    rows = torch.export.Dim("rows")
    example = (torch.zeros(4, 3), torch.zeros(4, 3))
    compiled = kitsune_mlir.compile(Sum(), example, dynamic_shapes=({0: rows}, {0: rows}))
    for found in compiled, kitsune_mlir.load(compiled.save(tmp_path / "sum.kitsune")):
        assert torch.equal(found(torch.ones(7, 3), torch.ones(7, 3)), torch.full((7, 3), 2.0))
        with pytest.raises(UserError, match=r"inputs must agree in size: x\.shape\[0\] is 3 but y\.shape\[0\] is 5"):
            found(torch.ones(3, 3), torch.ones(5, 3))


def test_sizes_out_of_their_range_are_refused(tmp_path):
    """What is sliced off a table of as many rows as there may be would be read beyond its end."""

    class Places(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.ones(64, 3))

        def forward(self, x):
            return x[:, -5:], x + self.table[: x.shape[1]]

    length = torch.export.Dim("length", min=5, max=64)
    compiled = kitsune_mlir.compile(Places(), (torch.zeros(2, 10, 3),), dynamic_shapes=({1: length},))
    for run in compiled, kitsune_mlir.load(compiled.save(tmp_path / "places.kitsune")):
        assert run(torch.zeros(2, 64, 3))[1].sum() == 2 * 64 * 3
        with pytest.raises(UserError, match=r"x\.shape\[1\] must be at most 64, as the model was exported, found 65"):
            run(torch.zeros(2, 65, 3))
        with pytest.raises(UserError, match=r"x\.shape\[1\] must be at least 5, as the model was exported, found 4"):
            run(torch.zeros(2, 4, 3))


def test_options_of_passes_that_do_not_run_are_refused():
    with pytest.raises(UserError, match="there is no pass 'place' to give options to; the passes are prepare-linalg"):
        kitsune_mlir.compile("nothing.pt2", options={"place": "tile-rows=64"})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("order-rows", "options are a dict of texts by pass, found one of type str"),
        ({"place-stages": 3}, "the options of pass 'place-stages' are a text, found one of type int"),
        ({"order-rows": "where=always"}, "pass 'order-rows' has no option 'where'; its options: when, target"),
        ({"order-rows": "when=sometimes"}, "order-rows: when is auto, always or never, not 'sometimes'"),
        ({"gated-products": "steps=3"}, "gated-products: steps is auto, always or never, not '3'"),
        ({"place-stages": "shape=round"}, "place-stages: shape must be one of"),
        ({"schedule-products": "split-k=3"}, "schedule-products: split-k must be one of"),
    ],
)
def test_options_are_looked_at_before_anything_runs(options, problem):
    """Those of passes for a GPU, too, where none is asked for."""
    with pytest.raises(UserError, match=problem):
        kitsune_mlir.compile("nothing.pt2", options=options)


def test_refuses_another_nesting(compiled):
    with pytest.raises(UserError, match="args must be a tuple of 0, found a tuple of 2"):
        compiled(torch.zeros(3, 16), torch.ones(4))
    with pytest.raises(UserError, match="kwargs must be a dict with the keys"):
        compiled(x=torch.zeros(3, 16))


class Scaled(torch.nn.Module):
    def forward(self, x, y, *, scale=1.0, bias=None):
        return x * scale - y if bias is None else x * scale - y + bias


def test_arguments_that_have_names():
    """Of a compilation, and of a call, where those of the example that had places may have names."""
    model, x, size = Scaled(), torch.randn(3, 4), {0: torch.export.Dim("n")}
    shapes = {"x": size, "y": size, "scale": None, "bias": size}
    compiled = kitsune_mlir.compile(model, (x, x), kwargs={"scale": 2.0, "bias": x}, dynamic_shapes=shapes)
    y = torch.randn(5, 4)
    for args, names in (((y, y.exp()), {}), ((y,), {"y": y.exp()}), ((), {"y": y.exp(), "x": y})):
        torch.testing.assert_close(compiled(*args, **names, bias=y, scale=2.0), 3 * y - y.exp())
    with pytest.raises(UserError, match="args must be a tuple of 2"):
        compiled(y, z=y, scale=2.0, bias=y)
    named = kitsune_mlir.compile(model, kwargs={"y": x, "x": x.exp()}, dtype="f64")
    torch.testing.assert_close(named(x=x.double().exp(), y=x.double()), x.double().exp() - x.double())


def test_unknown_targets_are_refused_before_anything_runs():
    with pytest.raises(UserError, match="unknown target 'tpu': give one of cpu"):
        kitsune_mlir.compile("nothing.pt2", target="tpu")
    with pytest.raises(UserError, match="give at least one target"):
        kitsune_mlir.compile("nothing.pt2", target=[])
    with pytest.raises(UserError, match="a target is a name or a path, found one of type int"):
        kitsune_mlir.compile("nothing.pt2", target=["cpu", 3])


def test_the_plan_has_what_the_documentation_promises(compiled):
    plan = compiled.plan
    assert plan["target"] == "cpu"
    assert plan["operators"]["pipelined"] <= plan["operators"]["total"]
    assert plan["dram_bytes"]["planned"] < plan["dram_bytes"]["bulk_sync"]
    (pipeline,) = plan["pipelines"]
    assert {"name", "kind", "ctas", "location"} <= pipeline["stages"][0].keys()
    assert [
        queue.keys() >= {"name", "producer", "consumers", "transport", "depth", "tile_bytes"}
        for queue in pipeline["queues"]
    ].count(False) == 0
    assert pipeline["stages"][0]["location"].rpartition("/")[2].startswith("conftest.py:")
    assert "of" in compiled.report() and pipeline["name"] in compiled.report()


def test_the_plan_says_which_ctas_work_together():
    model, x = torch.nn.Linear(4096, 4096).bfloat16(), torch.zeros(16, 4096, dtype=torch.bfloat16)
    split = kitsune_mlir.compile(model, (x,), target="sm_90a", options={"schedule-products": "split-k=2"})
    (launch,) = split.plan["launches"]
    assert launch["form"] == "scheduled product" and "k split over 2 CTAs" in launch["computes"]


def test_the_ir_of_every_step_can_be_read(compiled):
    assert "kitsune.pipeline" not in compiled.mlir("linalg")
    assert "kitsune.pipeline" in compiled.mlir("partition-dataflow")
    assert "tile_rows" in compiled.mlir("cpu:place-stages")
    with pytest.raises(UserError, match="there is no stage 'ptx'"):
        compiled.mlir("ptx")


def test_ptx_and_targets_that_were_not_compiled_are_refused(compiled):
    with pytest.raises(UserError, match="exactly one GPU target"):
        compiled.ptx  # noqa: B018
    with pytest.raises(UserError, match="not compiled for target 'sm_90a'"):
        compiled.target = "sm_90a"


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls


def test_a_model_that_counts_its_calls_keeps_its_buffer():
    compiled = kitsune_mlir.compile(Counter(), (torch.ones(2),))
    assert [compiled(torch.ones(2))[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]


class Gpu:
    """What stands for a GPU of torch's: tensors that are not the host's, and calls that may go into a graph."""

    def __init__(self, monkeypatch):
        self.captures, self.given = False, []
        monkeypatch.setattr(arrays, "is_cuda", arrays.is_torch)
        monkeypatch.setattr(arrays, "is_captured", lambda: self.captures)
        monkeypatch.setattr(
            arrays, "from_array", lambda array, spec, like_torch, device=None: torch.from_numpy(array.copy())
        )

    def for_torch(self, values, dtypes):
        def run(values):
            self.given.append(values)
            count, x = values
            return [count + 1, x * (count + 1)]

        return run


def test_buffers_that_a_model_changes_stay_on_the_gpu(monkeypatch, tmp_path):
    compiled = kitsune_mlir.compile(Counter(), (torch.ones(2),))
    gpu, interface, x = Gpu(monkeypatch), compiled.interface, torch.ones(2)

    def called():
        return interface.call(gpu, (x,), {})[0].item()

    assert [called() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert interface.arguments[0].value == 0 and gpu.given[2][0] == 2
    gpu.captures = True
    assert called() == 4.0
    place = gpu.given[3][0].data_ptr()
    gpu.captures = False
    assert [called() for _ in range(2)] == [5.0, 6.0]
    assert [values[0].data_ptr() for values in gpu.given[4:]] == [place, place]  # where the graph has it
    compiled.save(tmp_path / "counter.kitsune")
    assert called() == 7.0 and gpu.given[-1][0].data_ptr() == place  # the graph has it there still
    with monkeypatch.context() as host:
        host.setattr(arrays, "is_cuda", lambda value: False)
        assert compiled(x)[0].item() == 8.0
    assert called() == 9.0 and gpu.given[-1][0].data_ptr() == place
    monkeypatch.undo()
    assert kitsune_mlir.load(tmp_path / "counter.kitsune")(x)[0].item() == 7.0
    assert compiled(x)[0].item() == 10.0


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.bool, torch.float64, torch.bfloat16])
def test_every_element_type_passes_through(dtype):
    class Pick(torch.nn.Module):
        def forward(self, a, b):
            return torch.where(a == b, a, b)

    values = (torch.tensor([0, 1, 1]).to(dtype), torch.tensor([1, 1, 0]).to(dtype))
    found = kitsune_mlir.compile(Pick(), values)(*values)
    assert found.dtype == dtype
    assert torch.equal(found, values[1])


@pytest.mark.parametrize("schedule", [{"threads": 1}, {"threads": 3}, {"deterministic": True}], ids=str)
def test_schedules_give_the_same_results(compiled, perceptron, schedule):
    x, scale = torch.randn(500, 16), torch.rand(4)
    compiled.schedule(**schedule)
    found = call(compiled, x, scale)
    compiled.schedule()
    torch.testing.assert_close(found["y"], perceptron(x, scale=scale)["y"].detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [0, "x", 1.5])
def test_a_schedule_without_threads_is_refused(compiled, threads):
    with pytest.raises(UserError, match=f"threads must be at least 1, found {threads!r}"):
        compiled.schedule(threads=threads)


def test_a_negated_view_is_an_input(compiled, perceptron):
    x, scale = torch.randn(8, 16), torch.rand(4)
    negated = torch.complex(torch.zeros_like(x), x).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(call(compiled, negated, scale)["y"], perceptron(-x, scale=scale)["y"].detach())
