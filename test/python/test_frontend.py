"""Front ends: what a Program says of a model, whatever the model came from."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import mlir
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.frontend import import_model
from kitsune_mlir.signature import flatten_inputs, unflatten


class Nested(nn.Module):
    """Takes and gives nested values, changes a buffer, has a tied weight and an unused one."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.linear.weight
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)

    def forward(self, x, flags=True, *, pair):
        y = self.tied(self.linear(x)) * self.scale
        self.count.add_(y.sum(0))
        return {"y": y, "nothing": None, "list": [x, (pair[0] + pair[1]["b"]) if flags else x]}


def nested_args():
    return (torch.randn(8, 4), True), {"pair": (torch.randn(2), {"b": torch.randn(2)})}


@pytest.fixture(scope="module")
def nested():
    model = Nested().eval()
    args, kwargs = nested_args()
    return model, import_model(torch.export.export(model, args, kwargs))


def test_arguments_and_outputs(nested):
    _, program = nested
    kinds = {argument.spec.name: argument.kind for argument in program.arguments}
    assert kinds["linear.weight"] == "parameter" and kinds["count"] == "buffer" and kinds["unused"] == "parameter"
    assert [str(argument.spec) for argument in program.inputs] == ["x: f32[8, 4]", "pair_0: f32[2]", "pair_1_b: f32[2]"]
    mutation, *results = program.outputs
    assert (mutation.kind, program.arguments[mutation.mutates].spec.name) == ("mutation", "count")
    assert [output.kind for output in results] == ["result"] * 3
    main = mlir.walk(program.module, "func.func")[0]
    kind = mlir.ir.FunctionType(mlir.ir.TypeAttr(main.attributes["function_type"]).value)
    assert len(kind.inputs) == len(program.arguments) and len(kind.results) == len(program.outputs)


def test_weights_share_memory_with_the_model(nested):
    model, program = nested
    values = {argument.spec.name: argument.value for argument in program.arguments}
    with torch.no_grad():
        model.linear.weight[0, 0] = 42.0
        model.scale[1] = 7.0
    assert values["linear.weight"][0, 0] == 42.0 and values["scale"][1] == 7.0
    assert values["x"] is None


def test_signature_flattens_a_call_and_nests_its_results(nested):
    _, program = nested
    args, kwargs = nested_args()
    flat = flatten_inputs(program.signature, args, kwargs)
    assert [tuple(tensor.shape) for tensor in flat] == [(8, 4), (2,), (2,)]
    result = unflatten(program.signature["results"], ["y", "x", "sum"])
    assert result == {"y": "y", "nothing": None, "list": ["x", "sum"]}
    with pytest.raises(UserError, match=r"args\[1\] was True when the model was exported, now it is False"):
        flatten_inputs(program.signature, (args[0], False), kwargs)
    with pytest.raises(UserError, match=r"kwargs\['pair'\] must be a tuple of 2, found a tuple of 1"):
        flatten_inputs(program.signature, args, {"pair": (torch.randn(2),)})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool])
def test_element_types(dtype):
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.ones(3, 2).to(dtype))

        def forward(self, i):
            return torch.index_select(self.table, 0, i)

    program = import_model(Constant(), torch.tensor([0, 2]))
    table = program.arguments[0]
    assert table.value.dtype == table.spec.numpy_dtype and table.spec.dtype == program.outputs[0].spec.dtype
    assert program.inputs[0].spec.dtype == "i64"


def test_bf16_is_held_as_bits():
    model = nn.Linear(2, 2, bias=False).bfloat16()
    value = import_model(model, torch.randn(1, 2).bfloat16()).arguments[0].value
    assert value.dtype == np.uint16 and value.ctypes.data == model.weight.data_ptr()


def test_dtype_casts_a_copy():
    model = nn.Linear(4, 4)
    program = import_model(model, torch.randn(2, 4), dtype="bf16")
    assert {argument.spec.dtype for argument in program.arguments} == {"bf16"}
    assert model.weight.dtype == torch.float32


def test_locations_name_the_users_lines():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return torch.tanh(self.linear(x))  # the line

    program = import_model(Model(), torch.randn(2, 4))
    lines = open(__file__).read().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if text.endswith("# the line"))
    places = {mlir.location(op.location) for op in mlir.walk(program.module, "linalg.matmul", "linalg.generic")}
    assert places == {f"{__file__}:{line}"}


def test_dynamic_batch():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU())
    rows = torch.export.Dim("rows", min=2, max=1024)
    program = import_model(model, (torch.randn(8, 4),), dynamic_shapes=({0: rows},))
    assert program.inputs[0].spec.shape == (None, 4) and program.outputs[0].spec.shape == (None, 8)


def test_pt2_file(tmp_path):
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.Linear(4, 2).eval(), (torch.randn(3, 4),)), path)
    program = import_model(path)
    assert program.name == "model.pt2"
    assert [argument.kind for argument in program.arguments] == ["parameter", "parameter", "input"]


def test_onnx_of_uint8(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto

    def saved(node, kind):
        tensors = [helper.make_tensor_value_info(n, k, [4]) for n, k in (("x", kinds.UINT8), ("y", kind))]
        model = helper.make_model(
            helper.make_graph([node], "g", tensors[:1], tensors[1:]), opset_imports=[helper.make_opsetid("", 17)]
        )
        onnx.save(model, tmp_path / "m.onnx")
        return str(tmp_path / "m.onnx")

    program = import_model(saved(helper.make_node("Cast", ["x"], ["y"], to=kinds.FLOAT), kinds.FLOAT))
    assert program.arguments[0].spec.dtype == "u8" and "uitofp" in str(program.module)
    with pytest.raises(UnsupportedError, match="'sum' .Add. computes with uint8"):
        import_model(saved(helper.make_node("Add", ["x", "x"], ["y"], name="sum"), kinds.UINT8))


def test_onnx_file(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w")
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1), helper.make_node("Relu", ["y"], ["z"])]
    ends = [helper.make_tensor_value_info(*end) for end in (("x", real, ["n", 4]), ("z", real, ["n", 8]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    program = import_model(str(tmp_path / "m.onnx"))
    assert [str(argument.spec) for argument in program.arguments] == ["x: f32[?, 4]"]
    assert str(program.outputs[0].spec) == "z: f32[?, 8]"


TORCH_TEXT = """
func.func @anything(%a: !torch.vtensor<[2,3],f32>) -> !torch.vtensor<[2,3],f32> {
  %0 = torch.aten.relu %a : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
  return %0 : !torch.vtensor<[2,3],f32>
}
"""


@pytest.mark.parametrize("suffix", ["mlir", "mlirbc"])
def test_mlir_file(tmp_path, suffix):
    linalg = import_model(nn.Linear(4, 2), torch.randn(3, 4)).module
    path = tmp_path / f"m.{suffix}"
    with open(path, "wb") as file:
        if suffix == "mlir":
            file.write(str(linalg).encode())
        else:
            linalg.operation.write_bytecode(file)
    program = import_model(path)
    assert [argument.kind for argument in program.arguments] == ["input"] * 3
    assert str(program.module) == str(linalg)


def test_torch_dialect_file_without_torch(tmp_path):
    """The MLIR front end must work where torch is not installed."""
    path = tmp_path / "m.mlir"
    path.write_text(TORCH_TEXT)
    code = f"""
import sys
sys.modules["torch"] = None
from kitsune_mlir.frontend import import_model
program = import_model({str(path)!r})
assert "linalg.generic" in str(program.module) and "@main" in str(program.module)
print(program.arguments[0].spec, program.signature["results"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "arg0: f32[2, 3] {'leaf': 0}\n", done.stderr


def test_importing_the_package_imports_no_torch():
    code = "import sys, kitsune_mlir, kitsune_mlir.frontend; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_model_named_by_file_and_by_module(tmp_path, monkeypatch):
    source = "from torch import nn, randn\ndef make(): return nn.Linear(4, 2), (randn(3, 4),), ({0: 'rows'},)\n"
    source = source.replace("{0: 'rows'}", "{0: torch.export.Dim('rows', min=2, max=64)}").replace(
        "from torch", "import torch\nfrom torch", 1
    )
    (tmp_path / "some_model.py").write_text(source)
    assert import_model(f"{tmp_path}/some_model.py:make").inputs[0].spec.shape == (None, 4)
    monkeypatch.chdir(tmp_path)
    assert import_model("some_model:make").inputs[0].spec.shape == (None, 4)


class Scattered(nn.Module):
    """Products of columns of rows that lie in two dimensions: as a result, and as a value; by a matrix and by its
    transpose."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(24, 5)

    def forward(self, x):
        return self.layer(x[..., 4:28]), torch.relu(x[:, 1:, :5] @ self.layer.weight)


@pytest.mark.parametrize("dynamic", [False, True])
def test_products_of_scattered_rows_are_no_batch(dynamic):
    model, x = Scattered().eval(), torch.randn(6, 10, 32)
    shapes = ({0: torch.export.Dim("rows")},) if dynamic else None
    compiled = kitsune_mlir.compile(model, (x,), dynamic_shapes=shapes)
    assert "batch_matmul" not in compiled.mlir("linalg") and compiled.mlir("linalg").count("linalg.matmul") == 2
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
