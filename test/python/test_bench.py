"""Measuring cases, on a machine that is this CPU with a clock of the test's."""

import json
import time
from itertools import count

import pytest
import torch
from torch import nn

from kitsune_mlir.bench import cases, check, dram, floor, networks, table
from kitsune_mlir.bench import measure as measuring
from kitsune_mlir.bench.floor import Rates
from kitsune_mlir.bench.limit import TimeLimit, time_limit
from kitsune_mlir.bench.measure import Settings, measure
from kitsune_mlir.errors import InternalError, UserError
from kitsune_mlir.tools import kitsune
from kitsune_mlir.tools.commands import bench


class Clocked:
    """A machine whose runs take as long as the test says: milliseconds by the place of a side among those timed."""

    name = "a clock"

    def __init__(self, *milliseconds):
        self.milliseconds = milliseconds
        self.turns = count()
        self.asked = []

    def move(self, value):
        return value

    def capture(self, prepare, run):
        prepare()
        return run

    def time(self, call, cold):
        call()
        self.asked.append(cold)
        return self.milliseconds[next(self.turns) % len(self.milliseconds)]

    def wait(self):
        pass


def small(scale=1.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (torch.randn(64, 8) * scale,), None


CASE = cases.Case("small", small)
CPU = Settings(target="cpu", modes=("eager", "graph"), repeat=3, rates=Rates(1.0, 1.0))


def run(machine, settings=CPU, case=CASE):
    return measure(case, machine, settings, lambda said: None)


def test_a_record_has_every_side_and_compares_the_best():
    machine = Clocked(3.0, 2.0, 0.5)  # eager, graph, kitsune; kitsune-graph has no GPU runner and fails
    record = run(machine)
    sides = record["sides"]
    assert {name: side["status"] for name, side in sides.items()} == {
        "eager": "ok",
        "graph": "ok",
        "kitsune": "ok",
        "kitsune-graph": "failed",
    }
    assert sides["graph"]["warm"] == {"ms": 2.0, "min": 2.0, "max": 2.0, "runs": 3}
    assert sides["kitsune"]["error"] < 1e-6 and record["reference"] == "float64"
    assert sides["kitsune"]["compile_seconds"] > 0 and sides["kitsune-graph"]["said"]
    assert record["best_torch"] == {"warm": "graph", "cold": "graph"}
    assert record["ratios"]["cold"]["torch/ours"] == 4.0
    assert record["ratios"]["warm"]["ours/floor"] == pytest.approx(0.5 / record["floor"]["ms"])
    assert record["plan"]["operators"]["total"] > 0
    assert machine.asked == ([False] * 3 + [True] * 3) * 3  # in turns, every side once a round
    json.dumps(record, allow_nan=False)


def test_tables_show_losers_and_failures():
    records = [run(Clocked(3.0, 2.0, 8.0)), {"case": "dead", "said": "no memory"}]
    text = table.case_text(records[0] | {"dram": {"eager": {"said": "ncu is not on this machine"}}})
    assert "8.000 (8.000 to 8.000)" in text and "kitsune-graph" in text and "AttributeError" in text
    assert "ncu is not on this machine" in text
    for order in (records, records[::-1]):
        lines = table.summary(order, "warm").splitlines()
        (row,) = (line.split() for line in lines if line.startswith("  small"))
        assert row[2:5] == ["2.000", "graph", "8.000"] and row[6] == "0.25"
        assert any("dead" in line and "no memory" in line for line in lines)
    assert table.case_text(records[1]) == "dead: no memory"


def test_a_failing_mode_is_a_result(monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("no such GPU\nand much more")

    monkeypatch.setattr(torch, "compile", broken)
    record = run(Clocked(3.0, 0.5), Settings(**vars(CPU) | {"modes": ("eager", "max-autotune")}))
    assert record["sides"]["max-autotune"]["said"] == "RuntimeError: no such GPU"
    assert record["best_torch"]["warm"] == "eager"


def test_torch_compile_sees_fresh_inputs():
    record = run(Clocked(3.0, 2.0, 0.5), Settings(**vars(CPU) | {"modes": ("eager", "reduce-overhead")}))
    side = record["sides"]["reduce-overhead"]
    assert side["status"] == "ok" or "compiler" in side["said"].lower(), side["said"]


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


def test_results_that_are_not_written_are_found():
    stale = torch.ones(4)
    assert check.poisoned_run(lambda: [stale], [])[0].isnan().all()
    held = torch.ones(4)
    assert check.poisoned_run(lambda: [held[1:]], [held])[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.1),
        ([float("nan"), 4.0], [3.0, 4.0], float("inf")),
        ([float("nan"), 4.0], [float("nan"), 4.0], 0.0),
        ([float("inf"), 4.0], [float("inf"), 4.0], 0.0),
        ([3.0], [3.0, 4.0], float("inf")),
        ([0.5, 0.0], [0.0, 0.0], 0.5),
    ],
)
def test_relative_error(monkeypatch, found, wanted, error):
    monkeypatch.setattr(check, "CHUNK", 1)
    assert check.relative_error([torch.tensor(found)], [torch.tensor(wanted).double()]) == pytest.approx(error)


def test_eagers_error_widens_the_bound_but_not_without_end():
    results = [torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.int64)]
    assert check.bound(results, None) == 1e-2
    assert check.bound(results, 1e-3) == 1e-2
    assert check.bound(results, 2e-2) == 4e-2
    assert check.bound(results, float("inf")) == pytest.approx(0.1)


def test_fresh_inputs_stay_in_range():
    args = (torch.linspace(1, 2, 1000), [torch.arange(5)], torch.empty(0))
    before = args[0].clone()
    check.refresh(args, seed=3)
    assert not torch.equal(args[0], before) and 1 <= args[0].min() and args[0].max() <= 2
    assert args[1][0].tolist() == [0, 1, 2, 3, 4]


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1000, 8)
        self.unused = nn.Linear(100, 100)
        self.linear = nn.Linear(8, 2)

    def forward(self, rows):
        return self.linear(self.table(rows))


def test_work_is_what_must_be_done():
    work = floor.count(Lookup(), (torch.arange(10),))
    assert work.operations == 2 * 10 * 8 * 2
    assert work.bytes == 10 * 8 + 10 * 8 * 4 + (8 * 2 + 2) * 4 + 10 * 2 * 4
    assert floor.floor(work, Rates(1e-6, 1e-3))["ms"] == pytest.approx(work.bytes / 1e3)
    assert floor.floor(work, Rates(1e-9, 1e3))["bound"] == "compute"


def test_the_chain_does_the_operations_it_is_known_for():
    with torch.device("meta"):
        module, args, _ = networks.make("chain-256", "bf16")
    with torch.no_grad():
        operations = sum(2 * args[0].shape[0] * m.weight.numel() for m in module if isinstance(m, nn.Linear))
    assert operations == pytest.approx(1.27e12, rel=2e-3) and args[0].dtype == torch.bfloat16


@pytest.mark.parametrize("name", cases.suites()["chains"] + cases.suites()["patterns"])
def test_every_network_can_be_made_and_run(name):
    with torch.device("meta"), torch.no_grad():
        module, args, _ = networks.make(name, "bf16")
        results = module(*args)
    assert all(result.dtype == torch.bfloat16 for result in (results if isinstance(results, tuple) else [results]))


def test_applications_are_those_of_the_examples():
    from examples.models import FULL

    assert set(cases.APPLICATIONS) == set(FULL)


def test_a_model_of_the_users_is_a_case(tmp_path):
    module, args, _ = cases.find(f"{__file__}:small", "bf16").make()
    assert module[0].weight.dtype == args[0].dtype == torch.bfloat16
    path = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(*small()[:2]), path)
    module, args, _ = cases.find(str(path), None).make()
    assert module(*args).shape == (64, 4)


def test_sums_of_ncus_csv():
    text = (
        "==PROF== Connected\nsome output\n"
        '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","7","gemm","dram__bytes_read.sum","byte","1,024"\n"0","7","gemm","dram__bytes_write.sum","byte","512"\n'
        '"1","7","relu","dram__bytes_read.sum","byte","1"\n"1","7","relu","other","byte","99"\n'
    )
    assert dram.parse(text) == {"read": 1025, "written": 512, "kernels": 2}
    assert dram.parse("==ERROR== no permission")["kernels"] == 0


def test_options_of_passes():
    given = ["place-stages=shape=spatial", "place-stages=tile-rows=64", "partition-dataflow=x=1"]
    assert bench.pass_options(given) == {"place-stages": "shape=spatial tile-rows=64", "partition-dataflow": "x=1"}


@pytest.fixture
def clocked(monkeypatch):
    """The command on a clock, cases in this process."""
    from kitsune_mlir.bench import children, device

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

    monkeypatch.setattr(cases, "APPLICATIONS", ())
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
    from kitsune_mlir.bench import children

    monkeypatch.setattr(children, "command", lambda arguments, what: ["sh", "-c", "kill -9 $$"])
    assert children.measure([], "x", 10) == {"case": "x", "said": "its process ended with status -9"}
    monkeypatch.setattr(children, "command", lambda arguments, what: ["sh", "-c", "exec sleep 10"])
    assert "took more than 0.1 s" in children.measure([], "x", 0.1)["said"]


def test_unknown_models_of_a_checkout(monkeypatch):
    with pytest.raises(UserError, match="one of chain-64"):
        cases.find("chain-x", None)
    assert cases.find("chain-96-gelu", None).name == "chain-96-gelu"
