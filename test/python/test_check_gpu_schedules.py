"""Random kernels at the schedule level in the simulator, as bench/check_gpu_schedules.py draws and checks them."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))
import check_gpu_schedules as checks

from kitsune_mlir.bench.random_kernels import draw
from kitsune_mlir.codegen.hopper.mbarrier import Ring
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import walk
from kitsune_mlir.passes import pipeline


@pytest.mark.parametrize("seed", [*range(300, 308), 164, 265])
def test_runs_as_in_the_interpreter(seed):
    verdict, said = checks.check(checks.Task(seed, simulated=True))
    assert verdict in (checks.RIGHT, checks.REFUSED), said


@pytest.mark.parametrize("seed", [11, 16])
def test_runs_where_warps_multiply(seed):
    verdict, said = checks.check(checks.Task(seed, simulated=True, target="sm_80"))
    assert verdict in (checks.RIGHT, checks.REFUSED), said


def test_what_is_drawn():
    """All forms that kernels may have are among a few hundred."""
    texts = [draw(seed).text for seed in range(400)]
    for form in (
        "lanes = 256",
        'box = "columns"',
        "ctas = 2",
        "copies = 3",
        '"feed1"',
        "tensor.dim",
        "arith.minui",
        '"reduction"',
        '"right1"',
        "index = 1",
        '"make"',
        "turned",
    ):
        assert any(form in text for text in texts), form


def test_a_mutant_is_refused_and_not_lowered():
    found = [checks.check(checks.Task(seed, simulated=True))[0] for seed in range(0, 18, 3)]
    assert checks.REFUSED in found and set(found) <= {checks.REFUSED, checks.RIGHT}


def test_broken_code_is_found(monkeypatch):
    monkeypatch.setattr(Ring, "release", lambda *_: None)
    assert checks.check(checks.Task(301, simulated=True))[0] == "Deadlock"


def test_warps_that_multiply_have_the_registers_of_a_launch():
    text = draw(6, 3, "sm_80").text
    assert "registers = 168" in text
    with pytest.raises(UnsupportedError, match="has 160 registers of a thread, wants 168"):
        module = checks.parsed(text.replace("registers = 168", "registers = 160"))
        pipeline.run(module, [pipeline.make("convert-kitsune-to-gpu", "", "sm_80")])


OPEN = """func.func @main(%x: tensor<2x?xf32>) -> tensor<2x?xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %p = "kitsune.kernel"() ({
    %lo, %hi, %st = "kitsune.tiles"(%c2) {tile = array<i64: 1>} : (index) -> (index, index, index)
    "kitsune.agent"() ({
    ^bb0(%copy: index):
      scf.for %t = %lo to %hi step %st {
        %r = "kitsune.read"(%x, %t, %c0) {dims = array<i64: 0, 1>} : (tensor<2x?xf32>, index, index) -> tensor<1x32xf32>
        "kitsune.write"(%r, %t, %c0) {dims = array<i64: 0, 1>, index = 0} : (tensor<1x32xf32>, index, index) -> ()
      }
    }) {copies = 1, lanes = 32, registers = 248, sym_name = "rows", vector = 1, warps = 1} : () -> ()
  }) {sym_name = "k", target = "sm_90a"} : () -> !kitsune.outputs
  %y = "kitsune.result"(%p) {index = 0} : (!kitsune.outputs) -> tensor<2x?xf32>
  return %y : tensor<2x?xf32>
}"""


def test_a_size_that_is_open_and_not_the_first():
    """Threads that read element by element are told which size that is."""
    module = checks.parsed(OPEN)
    pipeline.run(module, [pipeline.make("convert-kitsune-to-gpu", "", "sm_90a")])
    (launch,) = [op.attributes["kitsune.launch"].value for op in walk(module, "gpu.module")]
    assert json.loads(launch)["axes"] == [1]
