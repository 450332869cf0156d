"""`kitsune run --simulate`: GPU kernels without a GPU, and what is said of those that hang, race or cannot be run."""

import json
import re

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen.hopper import mbarrier
from kitsune_mlir.codegen.hopper.tile_ring import TileRing
from kitsune_mlir.codegen.pipeline import counters
from kitsune_mlir.errors import UnsupportedError, UserError
from kitsune_mlir.planning import row_tiles
from kitsune_mlir.tools import kitsune
from kitsune_mlir.tools.gpusim import Deadlock, KernelFault, MemoryFault, Simulation, clocks, lockstep


def chain():
    """Ten layers over two tiles, which warpgroups chain: more boxes of weights than a ring has slots."""
    torch.manual_seed(0)
    layers = [layer for _ in range(10) for layer in (nn.Linear(128, 128), nn.ReLU())]
    return nn.Sequential(*layers).bfloat16().eval(), (torch.randn(130, 128, dtype=torch.bfloat16),)


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval(), (torch.randn(6, 8),)


def tall():
    return nn.Linear(8, 4).bfloat16().eval(), (torch.randn(1025, 8, dtype=torch.bfloat16),)


SMALL, CHAIN, TALL = (f"{__file__}:{name}" for name in ("small", "chain", "tall"))


@pytest.fixture
def run(capsys):
    """Runs `kitsune run --simulate`; gives exit code, stdout and stderr."""

    def call(*arguments):
        code = kitsune.main(["run", "--simulate", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize("target", [(), ("--target", "sm_80")], ids=["default", "sm_80"])
def test_agrees_with_torch(run, target):
    code, out, err = run(SMALL, "--compare", "torch", "--repeat", 2, "--seed", 3, *target)
    assert code == 0 and not err
    assert f"on {target[1] if target else 'sm_90a'}: no fault found; simulated in" in out
    assert "agrees with torch" in out and " ms a call" not in out


def test_json_has_no_time_of_a_gpu(run, tmp_path):
    code, out, err = run(SMALL, "--json", "--save-output", tmp_path / "y.npz")
    summary = json.loads(out)
    assert code == 0 and not err and (tmp_path / "y.npz").is_file()
    assert summary["simulated"] is True and summary["seconds_simulating"] > 0 and "milliseconds" not in summary
    assert summary["outputs"][0]["shape"] == [6, 4]


def test_many_rows_get_a_note(run):
    code, _, err = run(TALL)
    assert code == 0 and err.count("\n") == 1
    assert err.startswith("kitsune: note: the simulator takes seconds for") and "here are 1025" in err


def nothing(*_, **__) -> None:
    """In place of a signal or a wait."""


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("release", r"deadlocks: CTA \d+ warps \d+ to \d+: the mbarrier at \w+ of CTA \d+, phase \d+: \d+ arrivals"),
        ("wait_empty", r"is faulty: a copy that lands on the mbarrier .* writes what is (read|written) at the same"),
    ],
)
def test_a_kernel_that_hangs_or_races_is_a_sentence(run, monkeypatch, method, sentence):
    monkeypatch.setattr(mbarrier.Ring, method, nothing)
    code, out, err = run(CHAIN)
    assert code == 1 and not out and err.count("\n") == 1
    assert re.match(rf"kitsune: error: kernel \w+ {sentence}", err), err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["x.kitsune"], "executes the kernels' IR, which an artifact does not hold: give it the model that x.kitsune"),
        (["nothing.pt2"], "there is no model file 'nothing.pt2'"),
        ([SMALL, "--target", "cpu"], "--simulate is for a GPU's kernels, and the target cpu is no GPU"),
        ([SMALL, "--target", "tpu"], "unknown target 'tpu'"),
        ([SMALL, "--threads", "2"], "--threads is for the CPU target"),
        ([SMALL, "--digest", "00"], "--digest is for an artifact"),
        ([SMALL, "--input", "nothing.npz"], "there is no input file 'nothing.npz'"),
    ],
)
def test_a_wrong_request_is_a_sentence(run, arguments, sentence):
    code, out, err = run(*arguments)
    assert code == 1 and not out and err.count("\n") == 1
    assert err.startswith("kitsune: error: ") and sentence in err


def test_what_is_not_installed_is_a_sentence(run, monkeypatch):
    def missing(*_, **__):
        raise ModuleNotFoundError("No module named 'ml_dtypes'", name="ml_dtypes")

    monkeypatch.setattr("kitsune_mlir.tools.gpusim.Simulation", missing)
    code, _, err = run(SMALL)
    assert code == 1 and "this needs ml_dtypes, which is not installed: pip install 'ml-dtypes'" in err


@pytest.fixture(scope="module")
def compiled():
    return kitsune_mlir.compile(*small(), target=["cpu", "sm_80", "sm_90a"], options={"cut-pipelines": "whole=true"})


def test_a_simulation_is_called_like_the_model(compiled):
    model, (x,) = small()
    for target in (None, "sm_80", "sm_90a"):
        simulation = Simulation(compiled, target, seed=1)
        assert simulation.target == target or "sm_80"
        for _ in range(2):
            torch.testing.assert_close(simulation(x), model(x).detach(), rtol=1e-4, atol=1e-5)
        assert simulation.devices[simulation.target].pipeline_launches == 2
    with pytest.raises(UserError, match="must have the shape"):
        simulation(x[:, :3])


def test_only_a_gpus_kernels_are_simulated(compiled, tmp_path):
    with pytest.raises(UserError, match="kernels of a GPU are simulated, and cpu is none"):
        Simulation(compiled, "cpu")
    with pytest.raises(UserError, match="not compiled for target 'sm_89'"):
        Simulation(compiled, "sm_89")
    with pytest.raises(UserError, match="kernels of a GPU are simulated, compiled for: cpu"):
        Simulation(kitsune_mlir.compile(*small()))
    artifact = kitsune_mlir.load(compiled.save(tmp_path / "small.kitsune"))
    with pytest.raises(UserError, match="an artifact does not hold the IR that is simulated"):
        Simulation(artifact)


@pytest.mark.parametrize(
    ("owner", "method", "error", "sentence"),
    [
        (TileRing, "publish", Deadlock, r"deadlocks: CTA \d+ .*byte \d+ of the workspace is 0, at .*\.py:\d+"),
        (counters, "finish", MemoryFault, r"is faulty: a launch left a counter that is not zero"),
    ],
)
def test_faults_name_the_kernel_and_the_place(owner, method, error, sentence, monkeypatch):
    """A pipeline with a ring in L2 is broken, and the fault is said with its kernel."""
    monkeypatch.setattr(owner, method, nothing)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).bfloat16()
    x = torch.randn(150, 64, dtype=torch.bfloat16)
    options = {"place-stages": "shape=spatial"}
    simulation = Simulation(kitsune_mlir.compile(model, (x,), target="sm_90a", options=options))
    with pytest.raises(error, match=rf"^kernel \w+ {sentence}") as found:
        simulation(x)
    assert isinstance(found.value, KernelFault)


def test_more_ctas_than_there_are_clocks_for(monkeypatch):
    """As many as the simulator's clocks have numbers for take turns at the rows."""
    monkeypatch.setattr(row_tiles, "BEGUN", 0.0)  # else fewer, larger blocks are chosen
    model, x = nn.Linear(100, 400), torch.randn(17, 100)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    launch = max(compiled.plan["launches"], key=lambda launch: launch["ctas"] or 0)
    torch.testing.assert_close(Simulation(compiled)(x), model(x).detach(), rtol=1e-4, atol=1e-5)
    assert launch["ctas"] > clocks.most_ctas(launch["threads"] // 32)


def test_many_that_wait_are_counted():
    fault = Deadlock([f"CTA {number} waits" for number in range(100)])
    assert str(fault).endswith("CTA 5 waits; and 94 more") and len(fault.waiting) == 100


def test_an_unknown_operation_is_not_a_fault(compiled, monkeypatch):
    monkeypatch.delattr(lockstep.Lockstep, "_gpu_thread_id")
    with pytest.raises(UnsupportedError, match="the simulator does not know gpu.thread_id"):
        Simulation(compiled, "sm_80")(*small()[1])


@pytest.mark.usefixtures("unassembled")
def test_parts_of_a_tensor_that_have_elements_in_common():
    """A kernel reads two of them."""
    model = Function(lambda x: (2 * x[:30] + x[1:31]).softmax(-1))
    x = torch.randn(31, 700)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    assert [launch["kernel"] for launch in compiled.plan["launches"]] == ["rows0"]
    torch.testing.assert_close(torch.as_tensor(Simulation(compiled)(x)), model(x), rtol=1e-5, atol=1e-6)
