"""Bad input gets one sentence that says which, where and what to do; never a crash, never a traceback."""

import pytest
import torch
from torch import nn

from kitsune_mlir.errors import KitsuneError, UnsupportedError, UserError
from kitsune_mlir.frontend import import_model


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.mlir", b"func.func @f( {", r"m\.mlir is not valid MLIR: .*m\.mlir:1: expected"),
        ("m.mlir", b"\xff\xfe\x00garbage", r"m\.mlir is not valid MLIR"),
        ("m.mlir", b"", r"m\.mlir needs a function @main"),
        ("m.mlirbc", b"ML\xefR\x06abcdefgh", r"m\.mlirbc is (not valid|damaged) MLIR"),
        ("m.pt2", b"PK\x03\x04 cut off", r"m\.pt2 is damaged or not from torch.export.save .*save it again"),
        ("m.onnx", b"\x08\x08\x12\x40", r"m\.onnx is not a valid ONNX model"),
        ("m.txt", b"", r"m\.txt' is no model file: its name must end in"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        import_model(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_truncated_pt2(tmp_path):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),)), path)
    data = path.read_bytes()
    for share in (0.3, 0.6, 0.95):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(UserError, match="is damaged or not from torch.export.save"):
            import_model(path)


CONSTANT_FAILS = """func.func @main(%x: !torch.vtensor<[4],si64>) -> !torch.vtensor<[4],si64> {
  %three = torch.constant.int 3
  %0 = torch.aten.fmod.Scalar %x, %three : !torch.vtensor<[4],si64>, !torch.int -> !torch.vtensor<[4],si64>
  %1 = torch.aten.abs %0 : !torch.vtensor<[4],si64> -> !torch.vtensor<[4],si64>
  return %1 : !torch.vtensor<[4],si64>
}
"""


def test_an_operator_whose_constants_alone_are_complained_of(tmp_path):
    """torch-mlir's diagnostic says "failed to legalize operation 'torch.constant.int'", and is no help."""
    path = tmp_path / "m.mlir"
    path.write_text(CONSTANT_FAILS)
    with pytest.raises(UnsupportedError, match=r"the operator aten.fmod.Scalar at .*m\.mlir:3; compute it outside"):
        import_model(path)


@pytest.mark.parametrize("name", ["gone.pt2", "gone.onnx", "gone.mlir"])
def test_missing_file(name):
    with pytest.raises(UserError, match=f"there is no model file '{name}'"):
        import_model(name)


MODELS = """
import torch
from torch import nn

class Unknown(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)  # line 7

class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x  # line 11

class Complex(nn.Module):
    def forward(self, x):
        return torch.complex(x, x)

class Rotation(nn.Module):
    def forward(self, x):
        return torch.view_as_real(torch.view_as_complex(x).asin())  # line 19

class Selection(nn.Module):
    def forward(self, x):
        return x[x > 0]  # line 23

class Vectors(nn.Module):
    def forward(self, x):
        return torch.linalg.eig(x)[1].real  # line 27

def selection(): return Selection(), (torch.ones(3),)
def rotation(): return Rotation(), (torch.ones(3, 2),)
def unknown(): return Unknown(), (torch.ones(3),)
def branch(): return Branch(), (torch.ones(3),)
def complex(): return Complex(), (torch.ones(3),)
def meta(): return nn.Linear(3, 3, device="meta"), (torch.ones(3),)
def mixed(): return nn.Linear(3, 3), (torch.ones(3, device="meta"),)
def fails(): return {}["key"]  # line 36
def vectors(): return Vectors(), (torch.ones(3, 3),)
def wrong(): return 3
"""


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("unknown", UnsupportedError, r"cannot lower the operator aten\.special_bessel_j0 at .*models\.py:7; "),
        ("branch", UnsupportedError, r"torch\.export cannot trace the model at .*models\.py:11: "),
        ("selection", UnsupportedError, r"aten\.index\.Tensor at .*models\.py:23 depends on the data"),
        ("complex", UnsupportedError, r"has elements of type torch\.complex64; use one of f64, f32"),
        (
            "rotation",
            UnsupportedError,
            r"aten\.asin\.default at .*models\.py:19 computes with complex numbers; write it with real",
        ),
        ("vectors", UnsupportedError, r"aten\.linalg_eig\.default at .*models\.py:27 computes with complex numbers"),
        ("meta", UserError, r"weight is on the meta device and has no data"),
        ("mixed", UserError, r"argument 0 is on the meta device"),
        ("fails", UserError, r"the function failed at .*models\.py:36: KeyError: 'key'"),
        ("wrong", UserError, r"the function must return \(nn\.Module, args\) or .*, found a int"),
        ("nothing", UserError, r"has no function 'nothing'"),
    ],
)
def test_bad_models(tmp_path, function, kind, message):
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    with pytest.raises(kind, match=message) as caught:
        import_model(f"{path}:{function}")
    assert "\n" not in str(caught.value)


def test_mixed_devices_are_named(monkeypatch):
    class Elsewhere(nn.Linear):
        def named_buffers(self, *args, **kwargs):  # a machine without a GPU has no second device with data
            class Tensor:
                device = torch.device("cuda:0")

            yield "far", Tensor()

    with pytest.raises(UserError, match="weight is on cpu but far is on cuda:0: move the model"):
        import_model(Elsewhere(3, 3), torch.ones(3))


def test_bad_modules_and_functions(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(UserError, match=r"importing .* failed at .*broken\.py:1: SyntaxError"):
        import_model(f"{tmp_path}/broken.py:f")
    with pytest.raises(UserError, match="there is no module 'no_such_module' to import"):
        import_model("no_such_module:f")
    with pytest.raises(UserError, match="there is no file"):
        import_model(f"{tmp_path}/gone.py:f")


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_bad_requests():
    with pytest.raises(UserError, match="needs example arguments"):
        import_model(nn.Linear(3, 3))
    with pytest.raises(UserError, match="found one of type int"):
        import_model(3)
    with pytest.raises(UserError, match="no floating-point type 'f31'"):
        import_model(nn.Linear(3, 3), torch.ones(3), dtype="f31")
    with pytest.raises(UserError, match=r"argument 0 is a sparse tensor: make it a dense one, with to_dense\(\)"):
        import_model(nn.Linear(3, 3), torch.eye(3).to_sparse())
    with pytest.raises(UserError, match="RecursiveScriptModule is TorchScript, which torch.export does not trace"):
        import_model(torch.jit.script(nn.Linear(3, 3)), torch.ones(3))
    exported = torch.export.export(nn.Linear(3, 3), (torch.ones(3),))
    with pytest.raises(UserError, match="has its shapes and types already"):
        import_model(exported, dtype="bf16")


def test_all_errors_are_of_the_three_kinds():
    assert issubclass(UserError, KitsuneError) and issubclass(UnsupportedError, KitsuneError)


def test_a_refusal_prints_nothing(tmp_path, capfd):
    """Neither in Python nor behind it."""
    (tmp_path / "models.py").write_text(MODELS)
    for function in ("branch", "unknown"):
        with pytest.raises(KitsuneError):
            import_model(f"{tmp_path}/models.py:{function}")
    assert capfd.readouterr() == ("", "")


class Mixed(nn.Linear):
    def forward(self, x):
        return super().forward(x.float())


def test_tensors_that_are_written_and_no_buffers():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = [torch.zeros(4)]

        def forward(self, x):
            self.seen[0].view(2, 2).add_(1)
            return x + self.seen[0]

    with pytest.raises(UserError, match=r"Counter: aten.add_.Tensor at .*errors.py:\d+ writes to .* register_buffer"):
        import_model(Counter(), (torch.randn(2, 4),))


def test_products_of_two_types():
    message = r"multiplies float32 with bfloat16, which torch does not; convert"
    with pytest.raises(UserError, match=rf"Mixed: aten\.addmm\.default at .*test_frontend_errors\.py:\d+ {message}"):
        import_model(Mixed(4, 2).bfloat16(), (torch.randn(3, 4).bfloat16(),))


def test_mlir_without_a_lowering_is_named(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text(
        "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %y = tosa.tanh %x : (tensor<4xf32>) -> tensor<4xf32>\n  return %y : tensor<4xf32>\n}\n"
    )
    with pytest.raises(UnsupportedError, match=r"m\.mlir: tosa\.tanh at .*m\.mlir:2 has no lowering"):
        import_model(str(path))


def test_mlir_functions_are_inlined(tmp_path):
    path = tmp_path / "m.mlir"
    path.write_text("""
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.addf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = func.call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
""")
    text = str(import_model(str(path)).module)
    assert "call" not in text and "arith.addf" in text


class Steps(nn.Module):
    """Goes on by a size, or by what a tensor holds."""

    def __init__(self, by_data):
        super().__init__()
        self.by_data = by_data

    def forward(self, x):
        return x * 2 if (x.sum() if self.by_data else x.shape[0] - 3) > 0 else x


def test_why_torch_cannot_trace_a_model():
    rows = ({0: torch.export.Dim("rows", min=2, max=8)},)
    with pytest.raises(UnsupportedError, match=r"Not all values of rows = .* guard .*torch suggests rows = Dim"):
        import_model(Steps(False), (torch.randn(5, 2),), dynamic_shapes=rows)
    with pytest.raises(UnsupportedError, match=r"test_frontend_errors.py:\d+: it goes on by a number that depends on"):
        import_model(Steps(True), (torch.randn(5, 2),))
