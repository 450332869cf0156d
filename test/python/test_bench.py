"""Measuring cases, on a clock: sides, failures, tables."""

import gc
import json
import time
import weakref

import pytest
import torch
from bench_clock import Clocked
from torch import nn

from kitsune_mlir import precision
from kitsune_mlir.bench import cases, shapes, table
from kitsune_mlir.bench import measure as measuring
from kitsune_mlir.bench.floor import Rates
from kitsune_mlir.bench.limit import TimeLimit, time_limit
from kitsune_mlir.bench.measure import Settings, measure
from kitsune_mlir.errors import InternalError


def small(scale=1.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (torch.randn(64, 8) * scale,), None


CASE = cases.Case("small", small)
CPU = Settings(target="cpu", modes=("eager", "graph"), repeat=3, rates=Rates(1.0, 1.0))


def run(machine, settings=CPU, case=CASE):
    return measure(case, machine, settings, lambda said: None)


def test_a_record_has_every_side_and_compares_the_best():
    machine = Clocked(3.0, 2.0, 0.5, 0.75)  # eager, graph, kitsune, kitsune-graph
    record = run(machine)
    sides = record["sides"]
    assert {name: side["status"] for name, side in sides.items()} == {
        "eager": "ok",
        "graph": "ok",
        "kitsune": "ok",
        "kitsune-graph": "ok",
    }
    assert sides["graph"]["warm"] == {"ms": 2.0, "min": 2.0, "max": 2.0, "runs": 3}
    assert sides["kitsune"]["error"] < 1e-6 and record["reference"] == "float64"
    assert sides["kitsune"]["ready_seconds"] >= record["compiled"]["seconds"] > 0
    assert sides["kitsune-graph"]["error"] < 1e-6 and sides["kitsune-graph"]["warm"]["ms"] == 0.75
    assert sum(record["compiled"]["steps"].values()) <= record["compiled"]["seconds"]
    assert set(record["setup"]) == {"gpu", "imports"} and record["checked_rows"] == 64
    assert record["best_torch"] == record["best_plain"] == {"warm": "graph", "cold": "graph"}
    assert record["ratios"]["cold"]["torch/ours"] == 4.0
    assert record["ratios"]["warm"]["ours/floor"] == pytest.approx(0.5 / record["floor"]["ms"])
    assert record["plan"]["operators"]["total"] > 0
    predicted = record["plan"]["predicted_us"] / 1e3 / 0.5
    assert record["ratios"]["warm"]["predicted/ours"] == pytest.approx(predicted)
    assert f"{predicted:.2f} off" in table.line(record, "warm") and "of measured cold)" in table.case_text(record)
    assert machine.asked == ([False] * 4 + [True] * 4) * 3  # in turns, every side once a round
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize("of_the_file", ["highest", "high"])
@pytest.mark.parametrize("asked", [None, "highest", "medium"])
def test_all_sides_compute_f32_alike(asked, of_the_file, monkeypatch):
    """As was asked for, else as the model's file has set torch; afterwards torch is as it was."""
    ours, theirs, convolved = [], set(), torch.backends.cudnn.allow_tf32

    class Watched(nn.Linear):
        def forward(self, x):
            if not torch.compiler.is_exporting():
                theirs.add((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
            return super().forward(x)

    def make():
        torch.set_float32_matmul_precision(of_the_file)
        return Watched(4, 4).eval(), (torch.randn(8, 4),), None

    monkeypatch.setattr(precision, "give", lambda module, chosen: ours.append(chosen))
    settings = Settings(**vars(CPU) | {"modes": ("eager",), "repeat": 1, "matmul_precision": asked})
    record = run(Clocked(3.0, 0.5), settings, cases.Case("watched", make))
    used = asked or of_the_file
    assert record["matmul_precision"] == used and ours[-1] == used
    assert theirs == {(used, used != "highest")}, "cuDNN's convolutions too"
    assert record["bound"] == (1e-5 if used == "highest" else 5e-4)
    assert ("float32 in" in table.case_text(record)) == (used != "highest")
    assert torch.get_float32_matmul_precision() == "highest" and torch.backends.cudnn.allow_tf32 == convolved


def test_a_case_leaves_no_memory_behind():
    held = []

    def make():
        module, args, shapes = small()
        held.extend(map(weakref.ref, (args[0], module[0].weight)))
        return module, args, shapes

    run(Clocked(1.0), case=cases.Case("small", make))
    gc.collect()
    assert len(held) == 2 and not any(reference() is not None for reference in held)


class OnlyTorchs(Clocked):
    """Captures no graph of ours."""

    captured = 0

    def capture(self, prepare, run):
        self.captured += 1
        if self.captured > 1:
            raise RuntimeError("no graph")
        return super().capture(prepare, run)


def test_tables_show_losers_and_failures():
    records = [run(OnlyTorchs(3.0, 2.0, 8.0)), {"case": "dead", "said": "no memory"}]
    text = table.case_text(records[0] | {"dram": {"eager": {"said": "ncu is not on this machine"}}})
    assert "8.000 (8.000 to 8.000)" in text and "kitsune-graph" in text and "RuntimeError: no graph" in text
    assert "ncu is not on this machine" in text
    for order in (records, records[::-1]):
        lines = table.summary(order, "warm").splitlines()
        (row,) = (line.split() for line in lines if line.startswith("  small"))
        assert row[2:6] == ["2.000", "graph", "2.000", "8.000"] and row[9:11] == ["0.25", "0.25"]
        assert any("dead" in line and "no memory" in line for line in lines)
    assert table.case_text(records[1]) == "dead: no memory"


def test_the_means_are_geometric_and_leave_out_the_square():
    def record(case, ratio):
        return {"case": case, "ratios": {"cold": {"torch/ours": ratio}}}

    records = [record("a", 4.0), record("b", 1.0), record(shapes.SQUARE, 100.0), {"case": "dead", "said": "no"}]
    said, missing = table._overall(records, "cold")
    assert said == (
        "Against the best torch (torch/ours): geometric mean of 2 cases 2.00, 0 under 0.9; worst 1.00 (b), 4.00 (a)."
    )
    assert missing == "Not compared with torch: dead."
    assert not table._overall(records[:1], "cold")


def test_a_summary_names_the_worst_and_judges_the_predictions():
    told = [0.5, 0.7, 1.0, 1.4, 1.6, None, *[1.0] * 6]

    def record(number, ratio):
        ratios = {"torch/ours": ratio, "predicted/ours": told[number]}
        return {"case": f"c{number}", "ratios": {"warm": ratios}}

    records = [record(number, 0.5 * 2 ** (number / 2)) for number in range(12)]
    said, predicted = table._overall(records, "warm")
    assert "geometric mean of 12 cases 3.36, 2 under 0.9; worst 0.50 (c0), 0.71 (c1), " in said
    assert said.endswith("11.31 (c9).") and "c10" not in said
    assert predicted == ("Predicted over measured: median of 11 cases 1.00, 2 off by more than 1.5.")
    assert [table._told(one, "warm") for one in (*records[:4], records[4], records[5])] == [
        "0.50 off",
        "0.70",
        "1.00",
        "1.40",
        "1.60 off",
        "",
    ]


def test_a_failing_mode_is_a_result(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no such GPU\nand much more")

    monkeypatch.setattr(torch, "compile", broken)
    record = run(Clocked(3.0, 0.5), Settings(**vars(CPU) | {"modes": ("eager", "max-autotune")}))
    assert record["sides"]["max-autotune"]["said"] == "RuntimeError: no such GPU"
    assert record["best_torch"]["warm"] == "eager"


def test_torch_compile_sees_fresh_inputs(monkeypatch):
    """By torch's own tracing and a backend that runs what was traced: Inductor takes 20 s to start a C++ compiler."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda module, mode, dynamic: real(module, backend="aot_eager"))
    record = run(Clocked(3.0, 2.0, 0.5), Settings(**vars(CPU) | {"modes": ("eager", "reduce-overhead")}))
    side = record["sides"]["reduce-overhead"]
    assert side["status"] == "ok", side["said"]


def test_our_failure_leaves_the_others():
    record = run(Clocked(3.0, 2.0), Settings(**vars(CPU) | {"options": {"place-stages": "no-such-option=1"}}))
    assert record["sides"]["kitsune"]["status"] == "failed" and "no-such-option" in record["sides"]["kitsune"]["said"]
    assert record["sides"]["eager"]["status"] == "ok" and "plan" not in record
    assert "torch/ours" not in record["ratios"]["warm"]
    assert "no-such-option" in table.summary([record], "warm")


def test_wrong_numbers_are_not_timed(monkeypatch):
    class Off(nn.Module):
        def forward(self, x):
            return x * 2 if torch.compiler.is_exporting() else x * 2.0001

    record = run(Clocked(1.0), case=cases.Case("off", lambda: (Off(), (torch.randn(8, 4),), None)))
    assert record["sides"]["kitsune"]["status"] == "wrong"
    assert record["sides"]["kitsune"]["error"] == pytest.approx(5e-5, rel=0.01)
    assert "warm" not in record["sides"]["kitsune"]


def test_a_dead_gpu_ends_the_case():
    class Dead(Clocked):
        def capture(self, prepare, run):
            self.wait = lambda: (_ for _ in ()).throw(RuntimeError("illegal memory access"))
            raise RuntimeError("capture failed")

    with pytest.raises(InternalError, match="after side 'graph': RuntimeError: capture failed"):
        run(Dead(1.0))


def test_a_side_that_fails_late_has_no_times():
    class Breaking(Clocked):
        def time(self, call, cold):
            if next(self.turns) == 5:  # graph, the second time
                raise RuntimeError("launch failed")
            return 1.0

    record = run(Breaking())
    assert record["sides"]["graph"]["said"] == "RuntimeError: launch failed" and "warm" not in record["sides"]["graph"]
    assert record["sides"]["eager"]["warm"]["runs"] == 3


def test_a_limit_stops_even_what_swallows_exceptions():
    def swallowing():
        while True:
            try:
                time.sleep(5)
            except Exception:
                pass

    start = time.perf_counter()
    with pytest.raises(TimeLimit, match="0.1 s"), time_limit(0.1):
        swallowing()
    assert time.perf_counter() - start < 2
    side = measuring._ready("slow", swallowing, Clocked(), Settings(limit_seconds=0.1))
    assert side.said == "TimeLimit: took more than 0.1 s"
