"""Products of which two different sizes are open until the call, by mma.sync in kernels of single operators, on the
stand-in GPU; and random ones, of any open sizes."""

import random

import pytest
import torch
from functions import Function

import kitsune_mlir
from kitsune_mlir.tools.gpusim import Simulation

pytestmark = pytest.mark.usefixtures("unassembled")

A, B, C = (torch.export.Dim(name, min=2, max=5000) for name in "abc")
TWO = {  # a function, its arguments' sizes by two that are open, and these
    "pairs": (lambda x, y: torch.relu(x @ y.mT), lambda a, b: ((a, 136), (b, 136)), ({0: A}, {0: B})),
    "batch": (lambda x, y: x @ y, lambda a, b: ((a, b, 40), (a, 40, b)), ({0: A, 1: B}, {0: A, 2: B})),
    "weights": (lambda x, y: x @ y + 1, lambda a, b: ((a, b), (b, 136)), ({0: A, 1: B}, {0: B})),
    "lines": (lambda x, y: x @ y.mT, lambda a, b: ((a, b), (136, b)), ({0: A, 1: B}, {1: B})),
    "turned": (lambda x, y: x.mT @ y.mT, lambda a, b: ((136, a), (b, 136)), ({1: A}, {0: B})),
    # All sizes are open, and lines of both operands are of the same length, which no other operand has.
    "lines of both": (lambda x, y: x @ y.mT, lambda a, b: ((a, b), (a + 3, b)), ({0: A, 1: B}, {0: C, 1: B})),
    "sums of lines": (
        lambda x, y: torch.relu(x @ y.mT),
        lambda a, b: ((2, a, b), (2, a + 3, b)),
        ({1: A, 2: B}, {1: C, 2: B}),
    ),
}


def check(compiled, function, args, precision="highest"):
    """Against f64, and torch's own error in the type."""
    found, exact = (torch.as_tensor(Simulation(compiled, seed=1)(*args)), function(*(x.double() for x in args)))
    own, largest = (function(*args).double() - exact).abs().max(), exact.abs().max()
    rounded = 2e-3 if args[0].dtype == torch.float32 and precision == "high" else 1e-6
    assert (found.double() - exact).abs().max() <= 2 * own + rounded * largest


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_two_open_sizes(name, dtype, small_gpu):
    function, sizes, shapes = TWO[name]
    draw = [[torch.randn(size, dtype=dtype) for size in sizes(*two)] for two in ((130, 97), (3, 70), (65, 5))]
    if name == "batch":
        draw[0] = [torch.randn(size, dtype=dtype) for size in sizes(30, 97)]
    compiled = kitsune_mlir.compile(Function(function), tuple(draw[0]), target=small_gpu, dynamic_shapes=(shapes,))
    (product,) = (launch for launch in compiled.plan["launches"] if launch["kernel"].startswith("product"))
    assert product["form"] == "scheduled product"
    for args in draw[: 2 if name == "batch" else 3][1 if name == "batch" else 0 :]:
        check(compiled, function, args)


def drawn(seed):
    """A product of random sizes, some of which are open as one, or as two; its arguments' sizes for a call."""
    rng = random.Random(seed)
    open_ = rng.choice(["mn", "mk", "nk", "mnk", "n", "k", "m", "bm", "bn"])
    of = {role: rng.choice([8, 24, 40, 64, 72, 100, 130]) for role in "mnk"} | {"b": rng.choice([1, 2, 3])}
    left, right = rng.choice(["bmk", "bkm", "mk"]), rng.choice(["bkn", "bnk"])
    dtype = rng.choice([torch.bfloat16, torch.float16, torch.float32])
    follows = rng.choice([None, None, "relu", "times"])
    precision = rng.choice(["highest", "high"])

    def function(x, y):
        found = (x if left[-1] == "k" else x.mT) @ (y if right[-1] == "n" else y.mT)
        found = torch.relu(found) if follows == "relu" else found
        return found * 0.5 + 1 if follows == "times" else found

    return function, open_, of, left, right, dtype, precision


@pytest.mark.parametrize("seed", range(10))
def test_random_products_of_open_sizes(seed, small_gpu):
    function, open_, of, left, right, dtype, precision = drawn(seed)
    one, two = (torch.export.Dim(name, min=2, max=5000) for name in ("one", "two"))
    dims = {role: one if role != "b" else two for role in open_}
    shapes = tuple({d: dims[role] for d, role in enumerate(order) if role in dims} for order in (left, right))
    example, *calls = ((70, 3), (133, 2), (9, 5))

    def args(size, batch):
        taken = of | {role: batch if role == "b" else size for role in open_}
        return tuple(torch.randn([taken[role] for role in order], dtype=dtype) for order in (left, right))

    torch.manual_seed(seed)
    compiled = kitsune_mlir.compile(
        Function(function), args(*example), target=small_gpu, dynamic_shapes=(shapes,), matmul_precision=precision
    )
    for call in calls:
        check(compiled, function, args(*call), precision)


def test_sizes_of_one_symbol_are_not_broadcast(small_gpu):
    """Torch-mlir reads weights element by element, should one of the sizes be 1 where the other is not."""
    shapes = (({1: A, 2: A}, {1: A}),)
    args = torch.randn(3, 70, 70).bfloat16(), torch.randn(3, 70, 64).bfloat16()
    compiled = kitsune_mlir.compile(Function(torch.matmul), args, target=small_gpu, dynamic_shapes=shapes)
    assert not any(launch["computes"] == "gather" for launch in compiled.plan["launches"])


WIDE = {
    "plain": (lambda x, y: x @ y, lambda a: ((a, 70), (70, 100)), ({0: A}, {})),
    "linear": (lambda x, y: torch.relu(x @ y.mT), lambda a: ((3, a, 40), (72, 40)), ({1: A}, {})),
    "batch": (lambda x, y: x @ y, lambda a: ((2, a, 65), (2, 65, 64)), ({1: A}, {})),
    "turned": (lambda x, y: x.mT @ y + 1, lambda a: ((90, a), (90, 64)), ({1: A}, {})),
}


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_f64(name, is_open, small_gpu):
    """By tensor cores, too, and as exact as threads are."""
    function, sizes, shapes = WIDE[name]
    example, *calls = [
        [torch.randn(size).double() for size in sizes(a)] for a in ((300, 131, 5) if is_open else (300,))
    ]
    compiled = kitsune_mlir.compile(
        Function(function), tuple(example), target=small_gpu, dynamic_shapes=(shapes,) if is_open else None
    )
    assert "mma.sync.aligned.m8n8k4" in compiled.mlir(compiled.stages[-1])
    for args in (example, *calls):
        found = torch.as_tensor(Simulation(compiled, seed=1)(*args))
        torch.testing.assert_close(found, function(*args), rtol=1e-13, atol=1e-13)
