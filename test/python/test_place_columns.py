"""Tensors that kernels write and read among the columns of longer rows (passes/place_columns.py): launches that are
gone, and numbers in the simulator, on chips with and without a copy engine, at places of every alignment."""

import copy

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.dialects import columns, kitsune
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning import target as targets
from kitsune_mlir.runtime import host_program, weight_steps
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")

ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 6e-3, torch.float16: 2e-3}


class Model(nn.Module):
    def __init__(self, function, sizes):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(nn.Linear(*size) for size in sizes)

    def forward(self, *args):
        return self.function(self.layers, *args)


def beside(layers, x):
    return torch.cat([layer(x).relu() for layer in layers], -1)


def in_a_row(layers, x):
    """Each reads what the one before wrote."""
    for layer in layers:
        x = layer(x).tanh()
    return x


def of_both(layers, x):
    """A product over what two others wrote, whose rows are no multiples of 16 bytes; a part of these is read again."""
    a, b, last = layers
    h = torch.cat([a(x).relu(), b(x).tanh()], -1)
    return last(h).sigmoid() + h[:, : last.out_features]


def of_columns(layers, x, z):
    """Products of columns of what a kernel wrote, and of an argument's."""
    a, b, c = layers
    h = a(x).relu()
    return b(h[:, : b.in_features]), c(h[:, b.in_features :]), c(z[:, 16 : 16 + c.in_features])


def twice(layers, x):
    """The first is there twice, the second is returned too."""
    a, b = (layer(x) for layer in layers)
    return torch.cat([a, b, a], -1), b


def sliced(layers, x):
    """Columns of a part are put beside something else, by a copy."""
    a, b = layers
    h = a(x).relu()
    return torch.cat([h, b(x)], -1), torch.cat([h[:, 5:21], x], -1)


def column_of(layers, x):
    """A column of a part is a vector for a row group; rows that are gathered are an operand of two products."""
    a, b = layers
    v = x[:, torch.arange(x.shape[1] - 1, -1, -1)]
    h = torch.cat([a(v).sigmoid(), b(v)], -1)
    return nn.functional.layer_norm(h, [h.shape[1]]) - b(v)[:, 239:240]


def behind(layers, x):
    """The first part, which ends within 16 bytes, is written behind the second."""
    a, b = layers
    h = a(x).relu()
    return torch.cat([b(h), h], -1)


def in_place(layers, x):
    """A concatenation that kernels write, an operator changes where it lies, and a product reads in longer rows."""
    a, b, c = layers
    return c(torch.cat([a(x), b(x)], -1).sigmoid())


def within(layers, x):
    """Columns of a part are another part of the same concatenation."""
    (a,) = layers
    h = a(x).relu()
    return torch.cat([h, h[:, 47:56], x], -1)


def normed(layers, x):
    """A row group reads one part and writes another."""
    a, b = layers
    h = a(x)
    return torch.cat([h, nn.functional.layer_norm(b(h) * 2, [b.out_features])], -1)


def onto(layers, x):
    """A product of one part is written beside it, by the same kernel that reads it."""
    first, a, b, c = layers
    h = nn.functional.mish(a(nn.functional.layer_norm(first(x).tanh() + x, [x.shape[1]])))
    y = c(torch.cat([h, b(h)], -1))
    return y - y.amax(-1, keepdim=True)


FORMS = {  # function, layers, arguments' columns; whether nothing is moved
    "beside": (beside, [(256, 512), (256, 360)], [256], True),
    "beside, at odd columns": (beside, [(256, 301), (256, 360), (256, 75)], [256], True),
    "beside, narrow": (beside, [(256, 5), (256, 130), (256, 1)], [256], False),
    "beside what ends within 16 bytes": (behind, [(256, 128), (128, 347)], [256], False),
    "in a row": (in_a_row, [(256, 401), (401, 397), (397, 410)], [256], True),
    "of both": (of_both, [(256, 300), (256, 254), (554, 320)], [256], False),
    "of columns": (of_columns, [(256, 512), (248, 640), (264, 128)], [256, 300], True),
    "twice": (twice, [(256, 320), (256, 321)], [256], False),
    "sliced": (sliced, [(256, 384), (256, 501)], [256], False),
    "a column of": (column_of, [(369, 512), (369, 368)], [369], False),
    "in place": (in_place, [(256, 300), (256, 81), (381, 320)], [256], False),
    "within": (within, [(256, 264)], [256], False),
    "onto": (onto, [(128, 128), (128, 512), (512, 48), (560, 77)], [128], False),
    "normed": (normed, [(256, 384), (384, 500)], [256], False),
}


def check(form, dtype, target, rows, dynamic=False):
    function, sizes, widths, alone = FORMS[form]
    torch.manual_seed(0)
    model = Model(function, sizes).to(dtype).eval()
    args = tuple(torch.randn(rows, width).to(dtype) for width in widths)
    shapes = ({0: torch.export.Dim("rows")},) if dynamic else None
    compiled = kitsune_mlir.compile(model, args, target=target, dynamic_shapes={"args": shapes} if dynamic else None)
    simulation = Simulation(compiled, seed=1)
    exact = copy.deepcopy(model).double()
    for count in (rows, 33) if dynamic else (rows,):
        args = tuple(torch.randn(count, width).to(dtype) for width in widths)
        with torch.no_grad():
            found, wanted = simulation(*args), exact(*(arg.double() for arg in args))
        found, wanted = (value if isinstance(value, tuple) else (value,) for value in (found, wanted))
        for a, b in zip(found, wanted, strict=True):
            assert (a.double() - b).norm() <= ROUNDING[dtype] * b.norm()
    moved_anyway = dtype == torch.float32  # its numbers are cut into pieces
    assert not alone or moved_anyway or all(launch["form"] != "operator" for launch in compiled.plan["launches"])
    return compiled


def small(tmp_path, name):
    return targets.load(name).override(name="small", sms=4).save(tmp_path / f"{name}.json")


@pytest.mark.parametrize("form", FORMS)
def test_bf16(form, tmp_path):
    check(form, torch.bfloat16, small(tmp_path, "sm_90a"), 70 if form in ("of both", "beside") else 33)


@pytest.mark.parametrize("form", ["beside, at odd columns", "in a row", "of both", "of columns"])
def test_without_a_copy_engine(form, tmp_path):
    check(form, torch.float16, small(tmp_path, "sm_80"), 70 if form == "of both" else 40)


@pytest.mark.parametrize("form", ["beside, at odd columns", "of both"])
def test_f32(form, tmp_path):
    check(form, torch.float32, small(tmp_path, "sm_90a"), 70)


def masked(layers, x, z):
    a, b = layers
    h, v = a(x).relu(), b(x).square()
    return v, torch.where(z[..., 5:6] > 0, torch.cat([h, v, h], -1), 0)


def test_a_part_that_is_a_result(tmp_path):
    """The concatenation that it lies in is changed where it lies, before the part is copied out."""
    torch.manual_seed(0)
    model = Model(masked, [(256, 512), (256, 11)]).bfloat16().eval()
    args = torch.randn(100, 1, 256).bfloat16(), torch.randn(100, 1, 64).bfloat16()
    found = Simulation(kitsune_mlir.compile(model, args, target=small(tmp_path, "sm_90a")), seed=1)(*args)
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(*(arg.double() for arg in args))
    for a, b in zip(found, wanted, strict=True):
        assert (a.double() - b).norm() <= ROUNDING[torch.bfloat16] * b.norm()


def shifted(layers, x, z):
    """A column of a part, which is computed where it lies, is added to all of the concatenation where that lies."""
    part = torch.nn.functional.silu(layers[0](x))
    return torch.cat([part, z], -1) + part[:, 5:6]


def test_no_kernel_writes_over_what_its_threads_read(tmp_path):
    """Each of them would find the column as it was or as it has become."""
    torch.manual_seed(0)
    model = Model(shifted, [(256, 512)]).bfloat16().eval()
    args = torch.randn(100, 256).bfloat16(), torch.randn(100, 3).bfloat16()
    compiled = kitsune_mlir.compile(model, args, target=small(tmp_path, "sm_90a"))
    (section,) = compiled._content.sections.values()
    program = section.manifest["program"]
    roots = {step["to"]: step["of"] for step in program if step["op"] == "view"}
    for step in program:
        if step["op"] == "launch":
            given = [roots.get(arg, arg) for arg in step["args"]]
            written = {given[number] for number in step["writes"]}
            assert written.isdisjoint(arg for n, arg in enumerate(given) if n not in step["writes"]), step
    wanted = copy.deepcopy(model).double()(*(arg.double() for arg in args))
    found = Simulation(compiled, seed=1)(*args)
    assert (found.double() - wanted).norm() <= ROUNDING[torch.bfloat16] * wanted.norm()


def quarters(_, x):
    """A matrix of distances has them, of which each is summed."""
    half = x.shape[0] // 2
    return x[:half, :256].softmax(1), x[:half, 256:].softmax(1), x[half:, :256].softmax(1)


def test_some_of_the_rows(tmp_path):
    """A kernel of the first rows of a tensor was given all of it, which is another type."""
    x = torch.randn(20, 512)
    found = Simulation(kitsune_mlir.compile(Model(quarters, []), (x,), target=small(tmp_path, "sm_90a")))(x)
    for a, b in zip(found, quarters(None, x), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("form", ["beside", "of both"])
def test_an_open_number_of_rows(form, tmp_path):
    compiled = check(form, torch.bfloat16, small(tmp_path, "sm_90a"), 150, dynamic=True)
    assert all("into" in result for result in pipelines(compiled)[0]["results"])


def test_an_open_number_of_computed_rows(tmp_path):
    """They are computed in the longer rows that products read."""
    check("a column of", torch.bfloat16, small(tmp_path, "sm_90a"), 100, dynamic=True)


class Variables(nn.Module):
    """A network for each of several variables, [batch, time, variables, width], of an open batch."""

    def __init__(self, count, width):
        super().__init__()
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)) for _ in range(count)
        )

    def forward(self, x):
        return torch.stack([part(x[..., number, :]) for number, part in enumerate(self.parts)], -2)


def test_variables_of_an_open_batch_are_read_where_they_lie(tmp_path):
    torch.manual_seed(0)
    model, batch = Variables(3, 64).bfloat16().eval(), torch.export.Dim("batch")
    example = torch.randn(4, 20, 3, 64).bfloat16()
    target = small(tmp_path, "sm_90a")
    made = kitsune_mlir.compile(model, (example,), target=target, dynamic_shapes=({0: batch},))
    assert not any("copy" in launch["computes"] for launch in made.plan["launches"])
    x = torch.randn(7, 20, 3, 64).bfloat16()
    found, wanted = torch.as_tensor(Simulation(made, seed=1)(x)), model.double()(x.double()).detach()
    assert (found.double() - wanted).norm() <= ROUNDING[torch.bfloat16] * wanted.norm()


def pipelines(compiled):
    (section,) = compiled._content.sections.values()
    return [step for step in section.manifest["program"] if step["op"] == "pipeline"]


def test_types():
    with mlir.context() as context, ir.Location.unknown():
        kitsune.load(context)
        plain = ir.RankedTensorType.get([16, 512], ir.BF16Type.get())
        place = columns.Place(12, 1030, shared=True)
        among = columns.columns_of(plain, place)
        assert columns.place_of(among) == place and place.step == 2
        assert columns.strides_of(among) == [1030, 1] and columns.dense(among) == plain
        assert columns.place_of(plain) == columns.Place(0, 512) and not columns.is_among_columns(plain)
        three = ir.RankedTensorType.get([4, 16, 512], ir.BF16Type.get())
        assert columns.strides_of(three) == [16 * 512, 512, 1]


def manifest(*steps, arguments):
    """A host program in which a pipeline writes one result into a buffer and another into one of its own."""
    into, own = {"into": "all"}, {"to": "own", "dtype": "f32", "shape": [4, 8]}
    first = [
        {"op": "alloc", "to": "all", "dtype": "f32", "shape": [4, 24]},
        {"op": "pipeline", "name": "p", "args": ["a0"], "results": [into, own]},
    ]
    described = [{"dtype": "f32", "shape": list(shape)} for shape in arguments]
    return {"program": [*first, *steps], "arguments": described, "globals": {}, "pipelines": {"p": {"launch": {}}}}


def test_plans_write_where_they_are_told():
    plan = host_program.make_plan(manifest({"op": "return", "values": ["all"]}, arguments=[(4, 8)]), [(4, 8)])
    (call,) = plan.calls
    assert call.results[0] == plan.results[0] and call.results[0].shape == (4, 24)
    assert [plan.buffers[result.buffer].kind for result in call.results] == ["result", "arena"]


def test_a_kernel_of_weights_alone_runs_once_wherever_it_writes():
    steps = {"op": "copy", "from": "all", "into": "a1"}, {"op": "return", "values": []}
    found = weight_steps.split(manifest(*steps, arguments=[(4, 8), (4, 24)]), [True, False])
    assert [step["op"] for step in found.once] == ["alloc", "pipeline", "return"]
    assert [step["op"] for step in found.rest] == ["kept", "alloc", "copy", "return"]
