"""The command kitsune bench: what it prints and writes, and what bad requests get."""

import json
import sys
import tempfile

import pytest
import torch
from bench_clock import Clocked

from kitsune_mlir.bench import cases, children, device
from kitsune_mlir.tools import kitsune
from kitsune_mlir.tools.commands import bench


def test_options_of_passes():
    given = ["place-stages=shape=spatial", "place-stages=tile-rows=64", "partition-dataflow=x=1"]
    assert bench.pass_options(given) == {"place-stages": "shape=spatial tile-rows=64", "partition-dataflow": "x=1"}


@pytest.fixture
def clocked(monkeypatch):
    """The command on a clock, cases in this process."""
    monkeypatch.setattr(device, "Gpu", lambda: Clocked(3.0, 0.5, 0.5))

    def child(arguments, names, timeout):
        with tempfile.TemporaryDirectory() as folder:
            kitsune.main(["bench", *names, *arguments, "--child", "measure", "--records", folder])
            for number in range(len(names)):
                with open(f"{folder}/{number}.json") as file:
                    yield json.load(file)

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
    floor = pytest.approx(0.5 / record["floor"]["ms"])
    predicted = pytest.approx(record["plan"]["predicted_us"] / 500)
    ratios = {"torch/ours": 6.0, "plain/ours": 6.0, "ours/floor": floor, "predicted/ours": predicted}
    assert record["ratios"] == {"warm": ratios}
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


def test_fast_is_a_line_a_case(clocked, monkeypatch, tmp_path, capsys):
    names = ["linear-8-4-4", "linear-8-4-8-silu", "chain-8x2-5-gelu"]
    files = ["--json", str(tmp_path / "out.json"), "--markdown", str(tmp_path / "out.md")]
    arguments = ["--dtype", "f32", "--matmul-precision", "high", "--target", "cpu", "--fast", "--warm"]
    assert kitsune.main(["bench", *names, *arguments, *files]) == 0
    out, said = capsys.readouterr()
    assert not said and "linear-8-4-4: floor 0.0000, best torch " in out
    lines = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert lines == ["case", *names, "Against", "Against", "Predicted"]
    found = json.loads((tmp_path / "out.json").read_text())
    records = found["cases"]
    assert found["matmul_precision"] == records[0]["matmul_precision"] == "high"
    assert set(records[0]["sides"]) == {"eager", "graph", "kitsune", "kitsune-graph"}
    assert records[0]["sides"]["kitsune"]["warm"]["runs"] == 10
    text = (tmp_path / "out.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 4 and len({row.count("|") for row in rows}) == 1 and "| linear-8-4-4 |" in text
    assert text.startswith("a clock, torch ") and "cpu, f32 products in high precision, 20" in text
    assert "geometric mean of 3 cases" in text


def test_the_command_tells_of_kernels_where_a_plan_has_launches(clocked, tmp_path, capsys):
    arguments = ["--target", "cpu", "--fast", "--warm", "--kernels", "--json", str(tmp_path / "out.json")]
    assert kitsune.main(["bench", "linear-8-4-4", *arguments]) == 0
    (record,) = json.loads((tmp_path / "out.json").read_text())["cases"]
    assert record["kernels"] == [] and "kitsune-graph" in capsys.readouterr().out  # all sides, though it is fast


def test_models_of_the_zoo_and_random_nets_are_cases(clocked, tmp_path, capsys):
    names = ["zoo/odd-tf32-small", "zoo/outer-small", "net-5"]
    file = str(tmp_path / "out.json")
    assert kitsune.main(["bench", *names, "--target", "cpu", "--fast", "--warm", "--json", file]) == 0
    odd, outer, net = json.loads((tmp_path / "out.json").read_text())["cases"]
    assert odd["dtype"] == "float32" and odd["matmul_precision"] == "high"
    assert outer["dtype"] == "bfloat16" and outer["matmul_precision"] == net["matmul_precision"] == "highest"
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_list_names_every_suite_and_what_models_of_the_zoo_stress(capsys):
    assert kitsune.main(["bench", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n{suite}: " in f"\n{out}" for suite in cases.SUITES)
    assert "\n  zoo/tall: 2 M rows of 16 columns\n" in out and " zoo/geglu-tf32-large " in out
    assert "\n  everyday/vgg: six convolutions, 64x64\n" in out


def test_a_gpu_that_died_unseen_ends_the_process(monkeypatch, tmp_path):
    class Dying(Clocked):
        def clear(self):
            raise RuntimeError("illegal memory access")

    monkeypatch.setattr(device, "Gpu", lambda: Dying(3.0, 0.5))
    names = ["linear-8-4-4", "linear-8-4-8"]
    arguments = ["--dtype", "f32", "--target", "cpu", "--modes", "eager", "--repeat", "1", "--records", str(tmp_path)]
    assert kitsune.main(["bench", *names, *arguments, "--child", "measure"]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["0.json"]
    assert json.loads((tmp_path / "0.json").read_text())[children.LOST]


def test_what_makes_the_command_fail():
    ok, failed, wrong = ({"status": status} for status in ("ok", "failed", "wrong"))
    assert not bench._is_bad({"kitsune": ok, "kitsune-graph": ok, "graph": failed})
    for sides in ({}, {"kitsune": failed}, {"kitsune": wrong}, {"kitsune": ok, "kitsune-graph": wrong}):
        assert bench._is_bad(sides)


CHILD = """
import os, sys, time
from kitsune_mlir.bench import children
names, folder = sys.argv[1:-1], sys.argv[-1]
for number, name in enumerate(names):
    children.doing(folder, f"running {name}")
    if name == "dies":
        os.kill(os.getpid(), 9)
    time.sleep(60 if name == "hangs" else 0)
    lost = {children.LOST: True} if name == "lost" else {}
    children.report(folder, number, {"case": name, "pid": os.getpid()} | lost)
time.sleep(60)
"""


def test_the_cases_after_one_that_dies_are_measured(monkeypatch):
    def command(arguments, what):
        return [sys.executable, "-c", CHILD, *arguments]

    monkeypatch.setattr(children, "command", command)
    monkeypatch.setattr(children, "LAST_WORDS_SECONDS", 0.1)
    monkeypatch.setattr(children.subprocess, "Popen", _without_the_flag(children.subprocess.Popen))
    names = ["a", "b", "dies", "c", "hangs", "d", "lost", "e"]
    records = list(children.measure([], names, 4))
    assert [record["case"] for record in records] == names
    pids = [record.get("pid") for record in records]
    assert pids[0] == pids[1] and pids[5] == pids[6] != pids[7] and len(set(pids)) == 5
    assert records[2]["said"] == "its process ended with status -9, running dies"
    assert records[4]["said"].startswith("took more than 4 s, running hangs:")


def _without_the_flag(popen):
    return lambda arguments: popen([argument for argument in arguments if argument != "--records"])
