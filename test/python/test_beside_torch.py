"""bench/beside_torch.py without a GPU: what it says of cases, and that it says that there is none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import beside_torch

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


def test_without_a_gpu():
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    found = subprocess.run([sys.executable, SCRIPT, "zoo/glu-small"], capture_output=True, text=True, env=hidden)
    assert found.returncode == 2 and "torch finds none here" in found.stderr
