"""bench/beside_torch.py without a GPU: what it says of cases, and that it says that there is none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bench_clock import Clocked
from torch import nn

import kitsune_mlir
from bench import beside_torch
from kitsune_mlir.bench import cases, device

SCRIPT = Path(beside_torch.__file__)
TIMED = {"ours": 0.010, "eager": 0.030, "compiled": 0.020, "predicted": 0.009, "error": 1e-3, "bound": 1e-2}


def test_the_faster_of_torchs_two_counts(tmp_path, capsys):
    """Of cases whose code torch.compile can't make eager mode alone."""
    results = [
        {"case": "zoo/glu", **TIMED},
        {"case": "net-1", **TIMED, "eager": 0.005},
        {"case": "net-2", **{name: time for name, time in TIMED.items() if name != "compiled"}},
    ]
    assert beside_torch._report(iter(results), tmp_path / "cases.jsonl") == 0
    said = capsys.readouterr().out
    assert "3 cases, 0 failed" in said and "1 cases: torch over ours" in said and "best 2.00" in said
    assert "2 random nets" in said and "1 under 0.7, 1 under 0.9, 1 under 1.0" in said
    assert "0.50 (0.0100 ms), net-1" in said
    lines = (tmp_path / "cases.jsonl").read_text().splitlines()
    assert [json.loads(line)["case"] for line in lines] == ["zoo/glu", "net-1", "net-2"]


@pytest.mark.parametrize("said", ["wrong: relative error 1.0e+00, allowed 1.0e-02", "took more than 240 s"])
def test_a_case_that_fails_is_named(said, capsys):
    timed = TIMED if said.startswith("wrong") else {}
    assert beside_torch._report(iter([{"case": "net-3", **timed, "said": said}]), None) == 1
    assert f"net-3: {said}" in capsys.readouterr().out


def test_a_case_that_is_named_twice_runs_once():
    """By its name and its suite's, or by two ranges of nets: two processes would write one artifact."""
    names = beside_torch.chosen(["zoo/geglu", "net-3"], ["zoo", "zoo"], "2:5")
    assert names[:2] == ["zoo/geglu", "net-3"] and names[-2:] == ["net-2", "net-4"]
    assert len(names) == len(set(names)) == len(beside_torch.cases.suite("zoo")) + 3


@pytest.mark.parametrize("wrong", [(), ("compiled",), ("eager",), ("ours",)])
def test_a_side_that_is_wrong_is_not_timed(wrong, tmp_path, monkeypatch):
    """A wrong side of torch's leaves the other; without ours there is nothing to time."""

    def make():
        return nn.Linear(8, 4).eval(), (torch.randn(6, 8),), None

    def side(name, module):
        return (lambda *args: module(*args) + 1) if name in wrong else module

    torch.manual_seed(0)
    artifact = side("ours", plain := make()[0])  # the weights that the seed of `kitsune bench` gives
    monkeypatch.setattr(cases, "find", lambda name, dtype: cases.Case(name, make))
    monkeypatch.setattr(device, "Gpu", lambda: Clocked(3.0, 0.5) if wrong else Clocked(3.0, 2.0, 0.5))

    class Off(nn.Linear):
        """Right in float64 alone."""

        def forward(self, x):
            return super().forward(x) + (x.dtype == torch.float32)

    def moved(module, args):
        if "eager" in wrong:
            module.__class__ = Off
        return module, args

    monkeypatch.setattr(beside_torch, "_moved", moved)
    monkeypatch.setattr(beside_torch, "_fused", lambda module, args, called: lambda: [side("compiled", plain)(*args)])
    monkeypatch.setattr(kitsune_mlir, "load", lambda path: artifact)
    found = beside_torch.time_case((beside_torch.Task("small", "sm_90a", str(tmp_path)), {}))
    times = {name: found[name] for name in ("eager", "compiled", "ours") if name in found}
    if wrong == ("ours",):
        assert not times and "wrong: relative error" in found["said"] and found["error"] > found["bound"]
    else:
        right = {"eager": 3.0, "compiled": 2.0, "ours": 0.5}
        left = [name for name in right if name not in wrong]
        assert list(times) == left and times["ours"] == 0.5 and (wrong or times == right)
        assert "said" not in found and found["error"] <= found["bound"]
        assert ("torch" in found) == ("eager" in wrong)


def test_what_cannot_be_captured_is_timed_as_it_is_called():
    """But ours: it promises that it can be."""

    class Refuses(Clocked):
        def capture(self, prepare, run):
            raise RuntimeError("operation not permitted when stream is capturing")

    call = list
    assert beside_torch._captured(Refuses(), call, as_called=True) is call
    with pytest.raises(RuntimeError, match="not permitted"):
        beside_torch._captured(Refuses(), call, as_called=False)


def test_no_two_cases_share_an_artifact():
    tasks = [beside_torch.Task(case, "sm_90a", "folder") for case in ("models/a:b", "models-a:b", "models%2Fa:b")]
    assert len({task.artifact for task in tasks}) == 3
    assert all(task.artifact.parent == Path("folder") for task in tasks)


def test_without_a_gpu():
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    found = subprocess.run([sys.executable, SCRIPT, "zoo/glu-small"], capture_output=True, text=True, env=hidden)
    assert found.returncode == 2 and "torch finds none here" in found.stderr
