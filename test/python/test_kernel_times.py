"""Launches beside recorded profiles: fuzz and bench --kernels, and what calibrate.py makes of them."""

import contextlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from bench_clock import Clocked
from torch import nn
from torch.autograd import DeviceType

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import calibrate
import fuzz

from kitsune_mlir.bench import cases, table
from kitsune_mlir.bench.device import Gpu
from kitsune_mlir.bench.kernels import Event, beside, kind, over_measured
from kitsune_mlir.bench.measure import Settings, measure
from kitsune_mlir.errors import UserError
from kitsune_mlir.loaded import Loaded
from kitsune_mlir.tools import kitsune


def launch(kernel, form="operator", computes="reduce", us=5.0):
    return {
        "kernel": kernel,
        "form": form,
        "computes": computes,
        "tile": None,
        "ctas": 8,
        "slots": None,
        "limit": "DRAM",
        "predicted_us": us,
    }


LAUNCHES = [
    launch("pipeline0", "chained", "matmul 8→8", 10.0),
    launch("reduce_0"),
    launch("copy", "copy", "copy of memory", 4.0),
    launch("reduce_0"),
]
COPY = "Memcpy DtoD (Device -> Device)"


def profile(runs, *times, names=("pipeline0", "reduce_0", COPY, "reduce_0")):
    """Events of a few runs, each a little longer, of kernels that take these times; with a stranger's between."""
    events, now = [], 0.0
    for run in range(runs):
        for name, us in zip((*names, "vectorized_elementwise_kernel"), (*times, 1.0)):
            events.append(Event(name, now, us + run))
            now += us + run + 1
    return events


def test_launches_of_a_name_are_taken_in_order_and_their_medians():
    found = beside(LAUNCHES, profile(3, 10.0, 3.0, 2.0, 7.0)[::-1])  # in whatever order they come
    assert [one["duration_us"] for one in found] == [11.0, 4.0, 3.0, 8.0]
    assert [one["measured_us"] for one in found] == [11.0, 4.0, 3.0, 8.0]
    assert [over_measured(one) for one in found] == pytest.approx([10 / 11, 5 / 4, 4 / 3, 5 / 8])


def test_the_time_between_kernels_is_shared():
    found = beside(LAUNCHES, profile(1, 10.0, 3.0, 2.0, 5.0), whole_us=28.0)
    assert [one["measured_us"] for one in found] == [12.0, 5.0, 4.0, 7.0]
    less = beside(LAUNCHES, profile(1, 10.0, 3.0, 2.0, 5.0), whole_us=12.0)
    assert [one["measured_us"] for one in less] == [10.0, 3.0, 2.0, 5.0]


def test_what_the_profile_does_not_show_is_not_measured():
    events = [event for event in profile(3, 10.0, 3.0, 2.0, 7.0) if event.name != COPY][1:]
    found = beside(LAUNCHES, events, whole_us=100.0)
    assert found[2]["measured_us"] is None and over_measured(found[2]) is None
    assert [one["duration_us"] for one in found] == [11.5, 4.0, None, 8.0]
    assert not beside([], [], 1.0)


def test_kinds_are_forms_and_operators_by_what_they_do():
    assert [kind(one) for one in LAUNCHES] == ["chained", "operator reduce", "copy", "operator reduce"]


@pytest.fixture
def lines(tmp_path):
    """JSON lines as fuzz.py writes them."""
    path = tmp_path / "nets.jsonl"
    task = fuzz.Task(fuzz.draw(3), 3, "", "sm_90a", kernels=True)
    found = fuzz.Found(task, fuzz.RIGHT, kernels=beside(LAUNCHES, profile(3, 10.0, 3.0, 2.0, 7.0)))
    assert fuzz._report(iter([found, fuzz.Found(task, "wrong")]), path) == 1
    return path


def test_calibrate_counts_by_kind(lines, tmp_path, capsys):
    bench = tmp_path / "bench.json"
    record = {"case": "zoo/glu", "kernels": beside(LAUNCHES, profile(1, 10.0, 50.0, 2.0, 5.0))}
    bench.write_text(json.dumps({"machine": "a clock", "cases": [record, {"case": "dead", "said": "no"}]}, indent=2))
    capsys.readouterr()
    assert calibrate.main([str(lines), str(bench)]) == 0
    out = capsys.readouterr().out.splitlines()
    rows = {line[:24].strip(): line[24:].split() for line in out[1:4]}
    assert rows["operator reduce"] == ["4", "67.0", "0.10", "0.81", "1.25"]
    assert rows["chained"][0] == rows["copy"][0] == "2"
    worst = out.index("operator reduce: the worst, by microseconds that they are off") + 1
    assert "zoo/glu reduce_0" in out[worst] and "50.0 us" in out[worst] and "ctas=8" in out[worst]


def test_calibrate_wants_measured_kernels(tmp_path, capsys):
    (tmp_path / "x.jsonl").write_text('{"seed": 1, "kernels": []}\n')
    assert calibrate.main([str(tmp_path / "x.jsonl")]) == 1
    assert "make them with --kernels on a GPU" in capsys.readouterr().err


class Profiled(Clocked):
    """A machine whose profiler saw the runs of LAUNCHES."""

    def trace(self, call, runs):
        return profile(runs, 10.0, 3.0, 2.0, 2.0)


def test_bench_tells_of_each_kernel(monkeypatch):
    plan = Loaded.plan.fget
    monkeypatch.setattr(Loaded, "plan", property(lambda self: plan(self) | {"launches": LAUNCHES}))
    case = cases.Case("small", lambda: (nn.Linear(8, 4).eval(), (torch.randn(16, 8),), None))
    settings = Settings(target="cpu", modes=("eager",), repeat=1, temperatures=("warm",), kernels=True)
    record = measure(case, Profiled(3.0, 0.5, 0.05), settings, lambda said: None)
    assert sum(one["measured_us"] for one in record["kernels"]) == pytest.approx(50.0)  # the fastest side's
    text = table.case_text(record)
    assert "kernels, us" in text and "pipeline0" in text and "operator reduce" in text and " off" in text
    json.dumps(record)


def test_kernels_want_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert kitsune.main(["bench", "chain-256", "--kernels"]) == 1
    assert "GPU" in capsys.readouterr().err
    for flags in ([], ["--simulate"]):
        monkeypatch.setattr(sys, "argv", ["fuzz.py", "--kernels", *flags])
        with pytest.raises(SystemExit):
            fuzz.main()
        assert "--kernels times kernels on an NVIDIA GPU" in capsys.readouterr().err


@pytest.fixture
def profiler(monkeypatch):
    """Puts events in the place of what torch's profiler sees; (device, name, start, microseconds)."""

    def sees(*events):
        found = [
            SimpleNamespace(
                device_type=kind, name=name, time_range=SimpleNamespace(start=start, elapsed_us=lambda us=us: us)
            )
            for kind, name, start, us in events
        ]
        seen = contextlib.nullcontext(SimpleNamespace(events=lambda: found))
        monkeypatch.setattr(torch.profiler, "profile", lambda activities: seen)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        gpu = Gpu.__new__(Gpu)
        gpu._torch = torch
        return gpu

    return sees


def test_of_a_profile_what_ran_on_the_gpu_counts(profiler):
    runs = []
    gpu = profiler((DeviceType.CPU, "cudaGraphLaunch", 0.0, 9.0), (DeviceType.CUDA, "reduce_0", 3.0, 2.5))
    assert gpu.trace(lambda: runs.append(1) or [], 4) == [Event("reduce_0", 3.0, 2.5)]
    assert len(runs) == 5  # one before


def test_a_profile_without_kernels_is_an_error(profiler):
    with pytest.raises(UserError, match="profiler saw no kernels"):
        profiler((DeviceType.CPU, "cudaGraphLaunch", 0.0, 9.0)).trace(list, 2)
