"""Random networks (bench/fuzz.py) in the simulator: right, without races, deadlocks and refusals."""

import dataclasses
import os
import sys
import time
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import fuzz
import fuzz_verdicts

from kitsune_mlir.bench import draw_nets, random_nets, smaller_nets
from kitsune_mlir.bench.random_nets import Net, Step
from kitsune_mlir.errors import InternalError, UserError

FIXED, FRESH = 10, 3
ROLE_SEEDS = (2, 3, 9)  # one row, and tiles side by side; two inputs and two results; a norm between
# Small nets of causes that are mended, by what went wrong.
ONCE_FAILED = {
    "what a tile is computed from again was overwritten": Net(
        270,
        "bf16",
        (16,),
        (
            Step("linear", (0,), 2, 1),
            Step("linear", (0,), 256),
            Step("linear", (0,), 19, 1),
            Step("silu", (3,)),
            Step("concat", (1, 2, 4)),
            Step("rmsnorm", (5,)),
            Step("linear", (6,), 554, 1),
            Step("softplus", (7,)),
            Step("linear", (8,), 277),
            Step("add", (5, 9)),
        ),
        (10,),
    ),
    "columns of a tile before the first, -1 and -2, were taken for one": Net(
        60, "bf16", (1024,), (Step("linear", (0,), 1536), Step("linear", (0,), 10, 1), Step("concat", (1, 2, 1))), (3,)
    ),
    "CTAs that share a product's columns all stored the tile that it multiplies": Net(
        16, "f16", (128,), (Step("concat", (0, 0)), Step("linear", (1,), 384, 1)), (1, 2)
    ),
    "a mean was of numbers that were not rounded yet": Net(
        1,
        "bf16",
        (160,),
        (
            Step("linear", (0,), 416),
            Step("slice", (0,), 147, 1),
            Step("mask", (0, 2)),
            Step("slice", (1,), 236, 1),
            Step("sub", (3, 4)),
            Step("layernorm", (5,)),
            Step("linear", (6,), 1, 1),
            Step("add", (5, 7)),
        ),
        (8,),
    ),
    "a slice from a column that begins no block was loaded from the block's first": Net(
        70, "bf16", (128,), (Step("slice", (0,), 102, 22), Step("linear", (1,), 40)), (2,)
    ),
    "a tile behind one column was loaded from another block": Net(
        70, "f16", (64,), (Step("slice", (0,), 43, 1), Step("concat", (1, 0)), Step("linear", (2,), 40)), (3,)
    ),
    "equal layers took a tile from shared memory and left theirs in registers": Net(
        1,
        "f32",
        (52,),
        (
            Step("linear", (0,), 128, 1),
            Step("silu", (1,)),
            Step("linear", (2,), 128, 1),
            Step("mish", (3,)),
            Step("linear", (4,), 128, 1),
            Step("mish", (5,)),
            Step("linear", (6,), 4),
            Step("concat", (7, 6, 6)),
            Step("linear", (8,), 38, 1),
        ),
        (9,),
    ),
    "k was split over more CTAs than the GPU has SMs": Net(
        7, "bf16", (2048,), (Step("linear", (0,), 52, 1), Step("square", (1,))), (2,)
    ),
    "flags that a product's epilogue makes had zeros of floats": Net(
        130, "bf16", (64,), (Step("linear", (0,), 64, 1), Step("linear", (1,), 1, 1), Step("mask", (1, 2))), (3,)
    ),
    "a column of a tile was read before the product that makes it": Net(
        70,
        "bf16",
        (348,),
        (
            Step("linear", (0,), 32, 1),
            Step("sigmoid", (1,)),
            Step("linear", (2,), 1, 1),
            Step("mul", (2, 3)),
            Step("slice", (4,), 11, 1),
            Step("layernorm", (5,)),
            Step("linear", (6,), 184),
            Step("linear", (7,), 64),
        ),
        (8,),
    ),
    "what is loaded stood in registers as an operand, and was read at columns of other threads": Net(
        70, "bf16", (15, 15), (Step("concat", (0, 1)), Step("concat", (1, 2)), Step("linear", (3,), 64, 1)), (2, 4)
    ),
    "rows that are loaded a tile ahead were sliced further on": Net(
        700,
        "bf16",
        (256,),
        (Step("relu", (0,)), Step("slice", (1,), 131, 115), Step("linear", (2,), 16), Step("linear", (2,), 24)),
        (2, 3, 4),
    ),
    "a mean's rounding was magnified in rows of one number": Net(
        20,
        "f32",
        (90,),
        (
            Step("slice", (0,), 8, 1),
            Step("mask", (0, 1)),
            Step("root", (2,)),
            Step("layernorm", (3,)),
            Step("linear", (4,), 20),
        ),
        (4, 5),
    ),
    "a slice of an operand was read at columns of other threads": Net(
        70,
        "bf16",
        (64,),
        (
            Step("slice", (0,), 3, 21),
            Step("concat", (1, 0)),
            Step("linear", (2,), 64, 1),
            Step("concat", (1, 3, 1)),
            Step("concat", (4, 0)),
            Step("linear", (5,), 48),
        ),
        (6, 4),
    ),
}


@pytest.fixture(scope="module")
def target(gpu_of):
    return gpu_of(fuzz.SIMULATED_SMS)


def check(net, seed, target):
    # Few rows that are nearly alike are one sample, and noisy: a last step had 4.1 times torch's error, where each step
    # before it was nearer than torch's.
    found = fuzz.simulate(fuzz.Task(net, seed, "", target, launches=1, times=5.0))
    assert found.verdict == fuzz.RIGHT, f"python bench/fuzz.py --simulate --shrink {seed}\n{fuzz._line(found)}"


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("seed", range(FIXED))
def test_fixed_nets(seed, target):
    check(draw_nets.draw(seed, fuzz.SIMULATED_ROWS), seed, target)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("seed", ROLE_SEEDS)
def test_nets_whose_stages_have_ctas_of_their_own(seed, tmp_path):
    found = fuzz.simulate(dataclasses.replace(fuzz.drawn(seed, str(tmp_path), True, None), launches=1))
    assert found.verdict == fuzz.RIGHT, f"python bench/fuzz.py --roles --simulate --shrink {seed}\n{fuzz._line(found)}"
    assert found.forms["roles"] == 1


def test_what_may_be_declined(tmp_path):
    """A reason why stages cannot have CTAs of their own is counted; anything else, and nets without --roles, fails."""
    plain, roles = (fuzz.drawn(0, str(tmp_path), roles, None) for roles in (False, True))
    for task, error, verdict in (
        (roles, UserError("132 SMs are too few"), fuzz.DECLINED),
        (roles, InternalError("a bug"), "refused"),
        (plain, UserError("132 SMs are too few"), "refused"),
    ):
        found = fuzz._refused(task, error)
        assert found.verdict == verdict and fuzz._report(iter([found]), None) == (verdict != fuzz.DECLINED)


@pytest.mark.parametrize("number", range(FRESH))
def test_fresh_nets(number, target):
    """Others in each run: a failure names the seed."""
    seed = int(os.environ.get("KITSUNE_FUZZ_SEED", time.time())) * FRESH + number
    check(draw_nets.draw(seed, fuzz.SIMULATED_ROWS), seed, target)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", ONCE_FAILED)
def test_nets_that_once_failed(name, target):
    check(ONCE_FAILED[name], 256, target)


@pytest.mark.parametrize(
    "rows, always, verdict", [(2, False, fuzz.RIGHT), (2, True, fuzz.WRONG), (40, False, fuzz.WRONG)]
)
def test_few_rows_are_judged_by_several_arguments(rows, always, verdict):
    """A single number that is off says little, unless it is off for other arguments too."""
    task = fuzz.Task(Net(rows, "f32", (8,), (Step("linear", (0,), 4),), (1,)), 0, "", "")
    module, args = random_nets.build(task.net, task.seed)
    found = fuzz.Found(task, fuzz.RIGHT)
    with torch.no_grad():
        fuzz_verdicts.judge(
            found, module, args, module(*args) * 1.01, lambda *others: module(*others) * (1.01 if always else 1)
        )
    assert found.verdict == verdict


def test_a_seed_is_one_net():
    for draw in (draw_nets.draw, draw_nets.draw_roles):
        for seed in range(200):
            net = draw(seed)
            assert net == draw(seed) and random_nets.is_net(net) and str(net)


def test_smaller_nets_end_at_the_cause():
    """What fails because of one step alone is shrunk to that step."""
    nets = (smaller_nets.pruned(draw_nets.draw(seed)) for seed in range(1000))
    net = next(net for net in nets if _fails(net) and len(net.steps) > 12)
    found = fuzz.Found(fuzz.Task(net, 0, "", ""), "wrong")
    least = fuzz.shrink(found, lambda one: fuzz.Found(fuzz.Task(one, 0, "", ""), "wrong" if _fails(one) else "right"))
    assert _fails(least.task.net) and len(least.task.net.steps) == 1 and least.task.net.rows <= 1


def _fails(net):
    return any(step.kind == "softmax" for step in net.steps)
