"""The kitsune command from its user's seat: what it prints, what it writes, and what bad input gets."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir import precision
from kitsune_mlir.tools import kitsune
from kitsune_mlir.tools.commands import console, doctor
from kitsune_mlir.tools.commands import run as run_command


class Scale(nn.Module):
    """A product and a ReLU over rows."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))


def make():
    torch.manual_seed(0)
    return Scale().eval(), (torch.randn(6, 8),)


SPEC = f"{__file__}:make"


@pytest.fixture(scope="module")
def pt2(tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "scale.pt2"
    torch.export.save(torch.export.export(*make()), path)
    return str(path)


@pytest.fixture(scope="module")
def artifact(pt2, tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "scale.kitsune"
    assert kitsune.main(["compile", pt2, "-o", str(path)]) == 0
    return path


@pytest.fixture
def run(capsys):
    """Runs the command; gives exit code, stdout and stderr."""

    def call(*arguments):
        code = kitsune.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_compile_prints_the_plan_and_saves(run, pt2, tmp_path):
    code, out, err = run("compile", pt2, "-o", tmp_path / "scale.kitsune", "--save-ir", tmp_path / "ir")
    assert code == 0 and not err
    assert out.startswith("target cpu: ") and "operators pipelined" in out
    assert "saved" in out
    assert (tmp_path / "ir" / "00-linalg.mlir").is_file()
    assert kitsune_mlir.load(tmp_path / "scale.kitsune").targets == ("cpu",)


def test_compile_json_is_the_plan(run, pt2):
    code, out, _ = run("compile", pt2, "--json")
    plan = json.loads(out)
    assert code == 0
    assert {"target", "operators", "pipelines", "dram_bytes", "predicted_us", "kernels", "declined"} <= plan.keys()


def test_report_of_an_artifact_is_that_of_its_model(artifact, run, pt2):
    _, of_artifact, _ = run("report", artifact)
    _, of_model, _ = run("report", pt2)
    assert of_artifact == f"{of_model}\ndigest {kitsune_mlir.load(artifact).digest}\n"


@pytest.mark.parametrize("dtype", [(), ("--dtype", "bf16")], ids=["f32", "bf16"])
def test_run_compares_with_torch(run, dtype):
    code, out, _ = run("run", SPEC, "--compare", "torch", *dtype)
    assert code == 0
    assert "relative error to torch" in out and out.endswith("agrees with torch\n")


def test_run_reports_disagreement(run, pt2, monkeypatch):
    right = kitsune_mlir.loaded.Loaded.__call__
    monkeypatch.setattr(kitsune_mlir.loaded.Loaded, "__call__", lambda self, *args: right(self, *args) * 1.01)
    code, out, _ = run("run", pt2, "--compare", "torch")
    assert code == 1 and out.endswith("DISAGREES with torch\n")


@pytest.mark.parametrize(("plan", "agrees"), [({}, False), ({"matmul_precision": "high"}, True)])
def test_results_of_tf32_may_differ_more(plan, agrees):
    model, (x,) = make()
    interface = kitsune_mlir.compile(model, (x,)).interface
    outputs = [model(x).detach() * (1 + 5e-4)]
    subject = run_command.Subject(SimpleNamespace(plan=plan), reference=model)
    summary = {"outputs": [{}]}
    assert run_command._compare(summary, subject, (x,), {}, interface, outputs) == agrees


def test_the_plan_says_what_was_asked_for(run, pt2):
    asked = ("--target", "sm_90a", "--target", "cpu", "--matmul-precision", "high", "--deterministic")
    code, out, _ = run("report", pt2, *asked)
    assert code == 0 and out.count("f32 products in high precision (tf32)") == 1
    plans = {plan["target"]: plan for plan in json.loads(run("compile", pt2, *asked, "--json")[1])}
    assert plans["sm_90a"]["matmul_precision"] == "high" and "deterministic_us" in plans["sm_90a"]
    assert "matmul_precision" not in plans["cpu"]  # a CPU computes in f32
    assert "precision" not in run("report", pt2, "--target", "sm_90a", "--matmul-precision", "highest")[1]
    assert console.PRECISIONS == precision.CHOICES


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_run_takes_inputs_from_a_file_and_saves_outputs(run, pt2, tmp_path, suffix):
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
    path = tmp_path / f"inputs.{suffix}"
    if suffix == "npz":
        np.savez(path, x=x)
    else:
        from safetensors.numpy import save_file

        save_file({"x": x}, path)
    code, _, _ = run("run", pt2, "--input", path, "--save-output", tmp_path / "outputs.npz")
    assert code == 0
    (found,) = np.load(tmp_path / "outputs.npz").values()
    np.testing.assert_allclose(found, make()[0](torch.from_numpy(x)).detach(), rtol=1e-5, atol=1e-6)


def test_run_json(run, pt2):
    code, out, _ = run("run", pt2, "--json", "--compare", "torch")
    summary = json.loads(out)
    assert code == 0 and summary["agrees_with_torch"] and summary["outputs"][0]["relative_error"] < 1e-5
    assert summary["inputs"] == [{"name": "x", "dtype": "f32", "shape": [6, 8]}]


def test_doctor_and_target(run):
    code, out, _ = run("doctor", "--json")
    found = {finding["piece"]: finding for finding in json.loads(out)}
    assert code == 0 and found["torch"]["found"] == torch.__version__
    assert run("doctor")[0] == 0
    assert "sm_90a" in run("target")[1]
    assert json.loads(run("target", "sm_90a", "--json")[1])["sms"] == 132


def test_doctor_takes_the_pythons_that_the_package_takes(run, monkeypatch):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">={}.{}".format(*doctor.OLDEST)
    for version, code in (((3, 10, 1), 1), ((3, 11, 0), 0), ((3, 14, 2), 0)):
        monkeypatch.setattr(doctor.sys, "version_info", version)
        found, out, _ = run("doctor")
        assert found == code and ("MISSING Python 3.11 or newer" in out) == bool(code)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compile", "nothing.pt2"], "there is no model file 'nothing.pt2'"),
        (["compile", "{pt2}", "--target", "tpu"], "unknown target 'tpu': give one of cpu"),
        (["compile", "{pt2}", "-o", "no/such/folder/x.kitsune"], "its folder does not exist"),
        (["compile", "{truncated}"], "is damaged or not from torch.export.save"),
        (["compile", "{text}"], "bad.mlir is not valid MLIR"),
        (["compile", "no_such_module:make"], "there is no module 'no_such_module'"),
        (["compile", f"{__file__}:nothing"], "has no function 'nothing'"),
        (["run", "nothing.kitsune"], "there is no artifact 'nothing.kitsune'"),
        (["run", "{pt2}", "--input", "nothing.npz"], "there is no input file 'nothing.npz'"),
        (["run", "{pt2}", "--input", "{text}"], "must end in .npz or .safetensors"),
        (["run", "{artifact}", "--input", "{names}"], "holds y, the model's inputs are x"),
        (["run", "{artifact}", "--input", "{shape}"], r"input 'x' must have the shape [6, 8], found [6, 9]"),
        (["run", "{artifact}", "--input", "{double}"], "input 'x' must be f32, found float64"),
        (["target", "tpu"], "unknown target 'tpu'"),
    ],
)
def test_bad_input_gets_one_sentence(artifact, run, pt2, tmp_path, arguments, sentence):
    made = {"artifact": artifact, "pt2": pt2}
    for name, tensors in {
        "names": {"y": np.zeros(1)},
        "shape": {"x": np.zeros((6, 9), np.float32)},
        "double": {"x": np.zeros((6, 8))},
    }.items():
        made[name] = tmp_path / f"{name}.npz"
        np.savez(made[name], **tensors)
    made["text"] = tmp_path / "bad.mlir"
    made["text"].write_text("func.func @main( {\n")
    made["truncated"] = tmp_path / "truncated.pt2"
    with open(pt2, "rb") as file:
        made["truncated"].write_bytes(file.read()[:200])
    code, out, err = run(*(argument.format(**made) for argument in arguments))
    assert code == 1 and not out
    assert err.startswith("kitsune: error: ") and sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compile", "x.pt2", "--fast"], "kitsune: error: unrecognized arguments: --fast"),
        (["compile"], "kitsune compile: error: the following arguments are required: MODEL"),
        (["compile", "x.pt2", "--matmul-precision", "low"], "kitsune compile: error: argument --matmul-precision"),
        (["fly"], "kitsune: error: argument COMMAND: invalid choice: 'fly'"),
        (["run", "x.pt2", "--repeat", "0"], "argument --repeat: must be a whole number of at least 1, found '0'"),
        (["run", "x.pt2", "--seed", "-1"], "argument --seed: must be a whole number of at least 0, found '-1'"),
        (["run", "x.pt2", "--threads", "0"], "argument --threads: must be a whole number of at least 1, found '0'"),
        (["run", "x.pt2", "--input", ""], "argument --input: must name a file, found ''"),
        (["compile", "x.pt2", "-o", ""], "argument -o/--output: must name a file, found ''"),
        (["run", "x.pt2", "--rows", "-1"], "argument --rows: must be a whole number of at least 1, found '-1'"),
    ],
)
def test_a_wrong_command_line_gets_one_sentence(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as stopped:
        kitsune.main(arguments)
    captured = capsys.readouterr()
    assert stopped.value.code == 1 and not captured.out
    assert sentence in captured.err and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["report", "{artifact}", "--target", "cpu"], "is compiled already: --target is for a model"),
        (["run", "{artifact}", "--dtype", "bf16"], "is compiled already: --dtype is for a model"),
        (["run", "{artifact}", "--matmul-precision", "high"], "compiled already: --matmul-precision is for a model"),
        (["report", "{artifact}", "--matmul-precision", "high"], "compiled already: --matmul-precision is for a model"),
        (["run", "{artifact}", "--save-output", "{folder}"], "Is a directory"),
        (["run", "{artifact}", "--save-output", "out.txt"], "output file out.txt must end in .npz"),
        (["compile", ":"], "':' is no model: give module:function"),
    ],
)
def test_bad_requests_about_artifacts_leave_nothing_behind(artifact, run, tmp_path, arguments, sentence):
    made = {"artifact": shutil.copy(artifact, tmp_path), "folder": tmp_path / "out.npz"}
    made["folder"].mkdir()
    code, out, err = run(*(argument.format(**made) for argument in arguments))
    assert code == 1 and not out
    assert sentence in err and err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == [made["folder"], tmp_path / artifact.name]


def failing(error):
    def run():
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError("Unable to allocate 3 PiB"), "error: there is not enough memory: Unable to allocate 3 PiB"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "pip install 'kitsune-mlir[torch]'"),
        (PermissionError(13, "Permission denied", "x.npz"), "error: cannot use 'x.npz': Permission denied"),
        (KeyError("x"), "internal error: KeyError: 'x' (--debug shows where)"),
    ],
)
def test_what_ends_a_command_is_a_sentence(error, sentence, capsys):
    assert console.guarded("kitsune", [], failing(error)) == 1
    assert sentence in capsys.readouterr().err


def test_an_interrupt_is_no_error(capsys):
    assert console.guarded("kitsune", [], failing(KeyboardInterrupt())) == 130
    assert not capsys.readouterr().err


def test_output_that_the_system_does_not_take(tmp_path):
    """A limit on the size of files stands for a full disk."""
    script = """if True:
        import resource, sys
        from kitsune_mlir.tools import kitsune

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        sys.exit(kitsune.main(["target"]))
    """
    with open(tmp_path / "output", "wb") as output:
        done = subprocess.run([sys.executable, "-c", script], stdout=output, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "kitsune: error: cannot write the output: File too large\n"


def test_kitsune_opt_is_quick_to_start():
    """What takes time is imported where an interrupt is answered."""
    script = "import sys; from kitsune_mlir.tools import kitsune_opt; assert 'torch_mlir' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_installed_kitsune_opt_runs():
    """lit runs it in forks of one process."""
    command = str(Path(sys.executable).with_name("kitsune-opt"))
    done = subprocess.run([command, "examples/mlp.mlir", "--partition-dataflow"], capture_output=True, text=True)
    assert done.returncode == 0 and '"kitsune.pipeline"' in done.stdout and not done.stderr
    done = subprocess.run([command, "nothing.mlir"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("kitsune-opt: error: cannot open input file 'nothing.mlir'")


def test_debug_shows_the_traceback(run):
    _, _, err = run("compile", "nothing.pt2", "--debug")
    assert "Traceback" in err


def test_help_is_quick_and_imports_nothing_heavy():
    script = (
        "import sys; from kitsune_mlir.tools import kitsune\n"
        "try: kitsune.main(['--help'])\n"
        "except SystemExit: assert not {'torch', 'torch_mlir', 'llvmlite'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
