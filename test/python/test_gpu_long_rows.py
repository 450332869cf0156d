"""Rows whose length is open until the call, or that no registers hold: one kernel that goes through them part by part,
right in numpy and on the stand-in GPU, whatever divides their length."""

import itertools
from dataclasses import replace

import pytest
import torch
from functions import Function
from test_gpu_models import interface_of
from test_gpu_rows import drawn, norm, prepared, run
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.frontend import decompositions
from kitsune_mlir.passes import row_passes, schedule_rows, split_sums
from kitsune_mlir.planning import row_tiles
from kitsune_mlir.tools.gpusim import Simulation

TOKENS = Dim("tokens")
TYPES = torch.bfloat16, torch.float32


@pytest.fixture(autouse=True)
def always_taken(monkeypatch):
    """Models of a test are small, and other kernels faster there."""
    monkeypatch.setattr(row_passes, "apart_us", lambda *args: float("inf"))


def two_results(x):
    """A number for each row beside one for each column, and a minimum of what another reduction gives."""
    mean = x.mean(-1, keepdim=True)
    return (x - mean).amin(-1), x * mean


def moved(x, bias, scale):
    """What rows share, and what each row has once."""
    return ((x + bias) * scale).softmax(-1)


OPEN = {
    "softmax": (lambda x: x.softmax(-1), []),
    "log-softmax": (lambda x: x.log_softmax(-1), []),
    "norm": (lambda x: F.layer_norm(x, x.shape[-1:]), []),
    "norm with weights": (norm, [{0: TOKENS}] * 2),
    "two results": (two_results, []),
    "of rows and of columns": (moved, [{1: TOKENS}, None]),
}


@pytest.mark.parametrize("name, dtype", list(zip(OPEN, itertools.cycle(TYPES))), ids=str)
def test_open_columns(name, dtype, small_gpu):
    """Of the example's length, of one that no vector divides, of more than a part and of one element."""
    function, others = OPEN[name]

    def inputs(tokens):
        found = drawn((5, tokens), *([(tokens,)] * 2 if name == "norm with weights" else []), dtype=dtype)
        return found + (drawn((1, tokens), (5, 1), dtype=dtype) if name == "of rows and of columns" else ())

    device = run(function, inputs(64), small_gpu, (({1: TOKENS}, *others),), [inputs(n) for n in (61, 1100, 2)])
    assert (device.pipeline_launches, device.launches) == (4, 0)


@pytest.mark.parametrize("name, tokens", [("softmax", 700), ("norm", 200), ("two results", 3000)])
def test_short_rows_are_held_whole(name, tokens, small_gpu, monkeypatch):
    """Of the example's length and a little longer ones; others go by parts, in the same kernel."""
    choose = row_passes.choose_open
    as_example = {"columns": tokens, "row_bytes": 4 * tokens}
    monkeypatch.setattr(row_passes, "choose_open", lambda group, *args: choose(replace(group, **as_example), *args))
    calls = [drawn((5, n), dtype=torch.bfloat16) for n in (tokens, tokens + 1, 2, 2 * tokens + 3)]
    device = run(OPEN[name][0], calls[0], small_gpu, (({1: TOKENS},),), calls[1:])
    assert (device.pipeline_launches, device.launches) == (4, 0)


def test_registers_hold_the_longest_rows():
    """That are held whole, and are longer than the example's."""
    args = (*drawn((4096, 2048), dtype=torch.bfloat16), *drawn((2048,)))
    shapes = (({1: TOKENS}, {0: TOKENS}),)
    model = Function(lambda x, bias: (x + bias).softmax(-1))
    (kernel,) = kitsune_mlir.compile(model, args, target="sm_90a", dynamic_shapes=shapes).plan["kernels"]
    assert not kernel["spill_stores"]


def test_open_rows_and_columns(small_gpu):
    """Scores of all pairs of tokens, with what is known of each pair."""
    shapes = (({2: TOKENS, 3: TOKENS}, {0: TOKENS, 1: TOKENS}),)
    calls = [drawn((2, 3, n, n), (n, n), dtype=torch.bfloat16) for n in (40, 1, 37)]
    device = run(lambda x, y: (x + y).softmax(-1), calls[0], small_gpu, shapes, calls[1:])
    assert (device.pipeline_launches, device.launches) == (3, 0)


@pytest.mark.parametrize(
    "columns, dtype", [(600, torch.bfloat16), (601, torch.bfloat16), (2048, torch.float32)], ids=str
)
def test_rows_that_no_registers_hold(columns, dtype, small_gpu, monkeypatch):
    monkeypatch.setattr(row_tiles, "MOST_COLUMNS", 0)
    device = run(lambda x: x.log_softmax(-1), drawn((3, columns), dtype=dtype), small_gpu)
    assert (device.pipeline_launches, device.launches) == (1, 0)


def language(x, shift, mask):
    """What a loss makes of logits: they are of several open sizes, which are one number of rows."""
    y = x + shift
    largest = torch.logsumexp(y, -1)
    probabilities = y.softmax(-1)
    return (largest * mask).sum(), (probabilities * y).sum(-1) - largest


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rows_of_two_open_sizes(dtype, small_gpu, monkeypatch):
    monkeypatch.setattr(row_tiles, "MOST_COLUMNS", 2)

    def inputs(batch, tokens):
        return drawn((batch, tokens, 900), (900,), (batch, tokens), dtype=dtype)

    sizes = {0: Dim("batch"), 1: TOKENS}
    device = run(language, inputs(3, 5), small_gpu, ((sizes, None, sizes),), [inputs(1, 7), inputs(2, 2)])
    assert device.pipeline_launches >= 3


def divergence(x, y):
    return (x.softmax(-1) * (x - y)).sum()


def in_parts(monkeypatch):
    """Has few numbers of a row summed in parts."""
    for module, name, value in (
        (row_tiles, "MOST_COLUMNS", 0),
        (decompositions, "WIDEST", 512),
        (split_sums, "WIDEST", 512),
        (split_sums, "COLUMNS", range(64, 513)),
        (split_sums, "LEAST", 64),
        (split_sums, "MOST_ROWS", 1),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(schedule_rows, "long_reductions", lambda block, target: set())


def test_a_sum_of_all_elements_of_such_rows(small_gpu, monkeypatch):
    """It is one of rows first, in the kernel of what is made of each row before."""
    in_parts(monkeypatch)
    batch = {0: Dim("batch", min=1)}
    calls = [drawn((n, 900), (n, 900), dtype=torch.float32) for n in (5, 1, 2)]
    device = run(divergence, calls[0], small_gpu, ((batch, batch),), calls[1:])
    assert device.pipeline_launches == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norms_of_rows_in_parts_read_them_once(dtype, small_gpu, monkeypatch):
    """Also where all numbers but one are nearly alike, or alike, which f32 takes a mean off twice for."""
    in_parts(monkeypatch)
    monkeypatch.setattr(split_sums, "MOST_ROWS", 1 << 40)
    images = {0: Dim("images", min=1)}
    x = drawn((2, 6, 16, 24), dtype=dtype)[0]
    calls = [(x,), (x[:1] * 1e-3 + 3,), (torch.full((3, 6, 16, 24), 7.0, dtype=dtype),)]
    calls[2][0][1, 2, 3, 4] = 9.0
    device = run(lambda x: F.group_norm(x, 2), calls[0], small_gpu, ((images,),), calls[1:])
    assert device.pipeline_launches == 6  # sums of parts, and of these


@pytest.mark.parametrize("warps", [1, 2, 16])
def test_short_parts(warps, small_gpu, monkeypatch):
    """Many turns of each loop. What several warps find of a row meets in shared memory in each."""
    choose = row_passes.choose_long

    def chosen(*args):
        tiles = choose(*args, least=32 * warps)
        return replace(tiles, part=tiles.lanes * tiles.vector)

    monkeypatch.setattr(row_passes, "choose_long", chosen)
    calls = [drawn((3, n), dtype=torch.bfloat16) for n in (64, 5 * 256 * warps + 3)]
    run(lambda x: x - x.logsumexp(-1, keepdim=True), calls[0], small_gpu, (({1: TOKENS},),), calls[1:])


def test_lines_that_end_within_a_vector(small_gpu, monkeypatch):
    """Vectors of eight, of which an access has four of f32: a line may end between two."""
    choose = row_passes.choose_open
    as_example = {"columns": 2048, "row_bytes": 2048 * 10}
    monkeypatch.setattr(row_passes, "choose_open", lambda group, *args: choose(replace(group, **as_example), *args))
    calls = [(*drawn((5, n), dtype=torch.bfloat16), *drawn((n,))) for n in (64, 2044, 1500, 12, 61)]
    run(lambda x, bias: (x + bias).softmax(-1), calls[0], small_gpu, (({1: TOKENS}, {0: TOKENS}),), calls[1:])


def test_no_columns(small_gpu):
    """The sum of none is zero, of any rows."""
    shapes = (({1: Dim("tokens", min=0, max=4096)},),)
    calls = [drawn((5, n), dtype=torch.bfloat16) for n in (64, 0)]
    run(lambda x: (x.sum(-1), x - x.sum(-1, keepdim=True)), calls[0], small_gpu, shapes, calls[1:])


def of_any(x):
    """A softmax that takes zero off rows of nothing but -inf."""
    largest = x.amax(-1, keepdim=True)
    weights = (x - torch.where(largest == -torch.inf, 0, largest)).exp()
    return weights / (weights.sum(-1, keepdim=True) + 1e-20)


def less_later(x):
    """What is taken off is less where the largest number is more."""
    weights = (x - -x.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True)


@pytest.mark.parametrize("function", [of_any, less_later])
def test_what_is_taken_off_may_become_less(function, small_gpu):
    """No sum so far is multiplied by infinity, or lost."""
    x = torch.linspace(-60, 20, 3000).repeat(2, 1)
    if function is of_any:
        x[0] -= 130
        x[0, :2500] = -torch.inf
    run(function, drawn((2, 64)), small_gpu, (({1: TOKENS},),), [(x,)])


def test_weights_of_what_is_not_finite(small_gpu):
    """A row's largest number grows from part to part, or stays -inf, or is inf, as where all of a row is there."""
    (x,) = drawn((6, 3000))
    x[0], x[1, :2999], x[2, 5], x[3, 7] = -torch.inf, -torch.inf, torch.inf, torch.nan
    x[4] = torch.linspace(-300, 300, 3000)
    program, runner, _ = prepared(Function(lambda x: x.softmax(-1)), drawn((6, 64)), small_gpu, (({1: TOKENS},),))
    interface = interface_of(program)
    (found,) = interface.flat_results(interface.call(runner, (x,), {}))
    torch.testing.assert_close(found, x.softmax(-1), rtol=1e-5, atol=1e-7, equal_nan=True)


@pytest.mark.usefixtures("unassembled")
def test_norms_of_groups_of_large_images(small_gpu):
    """Two groups of two channels of 24,576 elements: parts of each, once for the mean and for the variance."""
    norm = nn.GroupNorm(2, 4)
    module = nn.Sequential(norm, nn.SiLU(), nn.Conv2d(4, 8, 1))
    nn.init.normal_(norm.weight)
    x = torch.randn(2, 4, 128, 192) * 3 + 5
    compiled = kitsune_mlir.compile(module, (x,), target=small_gpu)
    names = [launch["computes"] for launch in compiled.plan["launches"]]
    assert not any("reduce" in name or "product" in name for name in names[:2])
    found = torch.as_tensor(Simulation(compiled, seed=1)(x))
    torch.testing.assert_close(found, module(x).detach(), rtol=1e-4, atol=1e-4)
