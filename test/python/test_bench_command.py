"""The command kitsune bench: what it prints and writes, and what bad requests get."""

import json

import pytest
import torch
from bench_clock import Clocked

from kitsune_mlir.bench import children, device
from kitsune_mlir.tools import kitsune
from kitsune_mlir.tools.commands import bench


def test_options_of_passes():
    given = ["place-stages=shape=spatial", "place-stages=tile-rows=64", "partition-dataflow=x=1"]
    assert bench.pass_options(given) == {"place-stages": "shape=spatial tile-rows=64", "partition-dataflow": "x=1"}


@pytest.fixture
def clocked(monkeypatch):
    """The command on a clock, cases in this process."""
    monkeypatch.setattr(device, "Gpu", lambda: Clocked(3.0, 0.5))

    def child(arguments, case, timeout):
        path = f"{case}.child.json"
        assert kitsune.main(["bench", *arguments, "--child", "measure", "--json", path]) == 0
        with open(path) as file:
            return json.load(file)

    monkeypatch.setattr(children, "measure", child)


def test_the_command_measures_and_writes(clocked, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with open("models.py", "w") as file:
        file.write("import torch\ndef good():\n    return torch.nn.Linear(8, 4).eval(), (torch.randn(16, 8),)\n")
        file.write("def bad():\n    raise ValueError('no data')\n")
    arguments = ["--target", "cpu", "--modes", "eager", "--repeat", "2", "--warm", "--peak", "989,3350"]
    assert kitsune.main(["bench", "models.py:good", *arguments, "--json", "out.json"]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    (record,) = found["cases"]
    assert record["ratios"] == {"warm": {"torch/ours": 6.0, "ours/floor": pytest.approx(0.5 / record["floor"]["ms"])}}
    assert record["floor"]["tflops"] == 989 and found["machine"] == "a clock"
    out = capsys.readouterr().out
    assert "L2 warm, ms" in out and "L2 cold" not in out and "models.py:good" in out

    assert kitsune.main(["bench", "models.py:bad", "models.py:good", *arguments]) == 1
    out = capsys.readouterr().out
    assert "the function failed at" in out and "6.00" in out  # the other case was measured


def test_without_a_gpu_there_is_one_sentence(capsys):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert kitsune.main(["bench", "chain-256"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("kitsune: error: ") and "GPU" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name at least one model"),
        (["no-such-case"], "there is no case 'no-such-case'"),
        (["chain-256", "--modes", "fastest"], "there is no mode 'fastest'"),
        (["chain-256", "--peak", "989"], "--peak wants"),
        (["chain-256", "--option", "spatial"], "--option wants"),
        (["chain-256", "--target", "tpu"], "unknown target 'tpu'"),
        (["chain-256", "--json", "no/such/folder/x.json"], "its folder does not exist"),
    ],
)
def test_bad_requests_get_one_sentence(capsys, arguments, sentence):
    assert kitsune.main(["bench", *arguments]) == 1
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


def test_a_child_that_dies_is_a_record(monkeypatch):
    monkeypatch.setattr(children, "command", lambda arguments, what: ["sh", "-c", "kill -9 $$"])
    assert children.measure([], "x", 10) == {"case": "x", "said": "its process ended with status -9"}
    monkeypatch.setattr(children, "command", lambda arguments, what: ["sh", "-c", "exec sleep 10"])
    assert "took more than 0.1 s" in children.measure([], "x", 0.1)["said"]
