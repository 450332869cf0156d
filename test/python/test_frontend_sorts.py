"""Sorts and the largest or smallest elements of rows: the same as torch's. Neither they nor running sums are
work of a single thread."""

import math

import pytest
import torch
from decomposed_functions import TARGETS, results
from functions import Function

import kitsune_mlir
from kitsune_mlir.frontend import graph_rewrites, sorts

DTYPES = [
    torch.float32, torch.bfloat16, torch.float16, torch.float64,
    torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip
SHAPES = [(5, 4), (3, 7, 2), (2, 700), (1,), (3, 1)]


def drawn(shape, dtype=torch.float32):
    """Few numbers, so that many are equal; of floats some NaN and infinities too."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0 if dtype in (torch.uint8, torch.bool) else -3, 4, shape, generator=draw).to(dtype)
    if dtype.is_floating_point:
        for value in (math.nan, -math.inf, math.inf):
            x[torch.rand(shape, generator=draw) < 0.1] = value
    return x


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rules_are_stable_sorts(dtype, shape, largest):
    x = drawn(shape, dtype)
    for dim in range(-1, len(shape) - 1):
        wanted = torch.sort(x, dim=dim, descending=largest, stable=True)
        found = sorts.sort(x, dim, largest)
        if found is not NotImplemented:  # torch-mlir's own operator then
            same(found, wanted)
        for count in {1, min(2, x.shape[dim]), x.shape[dim]}:
            same(sorts.topk(x, count, dim, largest), [part.narrow(dim, 0, count) for part in wanted])
            if not largest:
                same(sorts.kth_value(x, count, dim), [part.select(dim, count - 1) for part in wanted])


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int16], ids=str)
def test_few_are_taken_one_after_another(dtype, largest):
    for size in (20, 64, 150):
        x = drawn((2, 3, size), dtype)
        if dtype == torch.int32:
            x[0, 0, :3] = torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max, torch.iinfo(dtype).min])
        wanted = torch.sort(x, descending=largest, stable=True)
        same(sorts.topk(x, 8, -1, largest), [part[..., :8] for part in wanted])


@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int64], ids=str)
def test_some_lie_in_the_best_pieces(dtype, largest, monkeypatch):
    monkeypatch.setattr(sorts, "_QUICK", 0)
    monkeypatch.setattr(sorts, "_FEW", 0)
    monkeypatch.setattr(sorts, "_FOUND", ())  # which are kitsune.firsts (test_firsts.py)
    for size, count in ((90, 3), (133, 11), (700, 40)):
        x = drawn((2, 3, size), dtype)
        if dtype.is_floating_point:
            x[0, 0], x[0, 1, 5:], x[1, 0] = math.nan, math.nan, torch.randn(size).to(dtype)
        wanted = torch.sort(x, descending=largest, stable=True)
        same(sorts.topk(x, count, -1, largest), [part[..., :count] for part in wanted])


@pytest.mark.usefixtures("unassembled")
def test_some_of_long_rows_are_looked_for_in_few_pieces():
    compiled = kitsune_mlir.compile(Function(lambda x: x.topk(50)), (torch.randn(64, 16000),), target="sm_90a")
    assert compiled.plan["predicted_us"] < 80  # 450 where all pieces give their first elements


def test_few_of_many_rows_are_one_kernel():
    compiled = kitsune_mlir.compile(Function(lambda x: x.topk(4)), (torch.randn(4096, 64),), target="sm_90a")
    assert [one["form"] for one in compiled.plan["launches"]].count("scheduled rows") == 1
    assert compiled.plan["predicted_us"] < 10


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64, torch.float64, torch.bfloat16], ids=str)
def test_rows_are_sorted_at_once(dtype, target, request):
    """Equal numbers stay in their order, zeros of both signs are equal, NaN is greater than all."""
    if dtype not in (torch.int64, torch.bfloat16):  # ptxas is asked of words of 64 bits, and of 16
        request.getfixturevalue("unassembled")
    for shape in ((5, 54), (2, 3, 1), (1, 600), (3, 64)):
        x = drawn(shape, dtype)
        if dtype.is_floating_point:
            x[..., ::3] *= -1

        def both_ways(x, stable=False):
            ways = [torch.sort(x, dim=-1, descending=descending, stable=stable) for descending in (False, True)]
            return tuple(part for way in ways for part in way)

        same(results(both_ways, x, target=target), both_ways(x, stable=True))


def test_a_sort_is_one_kernel():
    compiled = kitsune_mlir.compile(Function(torch.sort), (torch.randn(4096, 54),), target="sm_90a")
    assert sum("sort" in launch["computes"] for launch in compiled.plan["launches"]) == 1
    assert compiled.plan["predicted_us"] < 20


@pytest.mark.parametrize(
    "function, is_whole",
    [
        (lambda x: x.sort(-1)[0][..., :5], False),
        (lambda x: torch.sort(x, dim=1, descending=True, stable=True)[1][:, :3], False),
        (lambda x: tuple(part[:, :2] for part in torch.sort(x, dim=1, stable=True)), False),
        (lambda x: x.sort(-1)[0][..., 1:], True),
        (lambda x: tuple(part + 1 for part in x.sort(dim=-1, stable=True)), True),
    ],
    ids=["least", "places", "both", "not the first", "all"],
)
def test_sorts_of_which_the_first_are_read(function, is_whole):
    x = drawn((4, 9, 40))
    exported = torch.export.export(Function(function), (x,))
    names = {str(node.target) for node in graph_rewrites.rewritten(exported).graph.nodes}
    assert any("sort" in name for name in names) == is_whole and any("topk" in name for name in names) != is_whole
    found, wanted = kitsune_mlir.compile(exported, target="cpu")(x), function(x)
    same(*((one,) if isinstance(one, torch.Tensor) else one for one in (found, wanted)))


FUNCTIONS = {
    "two of four": lambda x: torch.topk(x[:, :4], 2),
    "smallest of columns": lambda x: torch.topk(x, 2, dim=0, largest=False),
    "three of a long row": lambda x: torch.topk(x, 3),
    "in any order": lambda x: torch.topk(x, 70, sorted=False)[0].sort()[0],
    "sort": lambda x: torch.sort(x, descending=True, stable=True),
    "places": lambda x: (torch.argsort(x, dim=0, stable=True),),
    "a value": lambda x: (torch.kthvalue(x, 5)[0],),
    "a number": lambda x: torch.sort(x[0, 0]),
    "no rows": lambda x: torch.topk(x[:0], 2),
    "none of each": lambda x: torch.topk(x, 0),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled(name, target):
    function, x = FUNCTIONS[name], torch.randn((6, 141), generator=torch.Generator().manual_seed(0))
    x[range(6), range(6)], x[range(6), range(9, 15)] = math.nan, -math.inf
    wanted = function(x)
    same(results(function, x, target=target), [wanted] if isinstance(wanted, torch.Tensor) else wanted)


LAUNCHES = {
    "few columns": (lambda x: torch.topk(x, 2), (2048, 4), 3),
    "many columns": (lambda x: torch.topk(x, 2), (64, 1000), 3),
    "sort": (torch.sort, (64, 100), 4),
    "one row": (torch.sort, (1000,), 5),
    "a long row": (torch.sort, (20_000,), 80),
    "running sums": (lambda x: x.cumsum(-1), (64, 100), 24),
    "running products of columns": (lambda x: x.cumprod(0), (64, 100), 24),
}


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("name", LAUNCHES)
def test_no_thread_does_it_alone(name):
    function, shape, most = LAUNCHES[name]

    class Model(torch.nn.Module):
        def forward(self, x):
            return function(x)

    launches = kitsune_mlir.compile(Model(), (torch.randn(shape),), target="sm_90a").plan["launches"]
    assert all(launch["computes"] != "serial" for launch in launches)
    assert len(launches) <= most


class Few(torch.nn.Module):
    def forward(self, x):
        return x.topk(5, largest=False)


@pytest.mark.usefixtures("unassembled")
def test_a_few_elements_are_found_by_a_kernel_that_keeps_the_row():
    """Those of a row that is too long for it by one that goes through it once."""
    for size, kernels in ((1000, 1), (9001, 0)):
        compiled = kitsune_mlir.compile(Few(), (drawn((3, size)),), target=["sm_90a", "cpu"])
        forms = [launch["form"] for launch in compiled.plan["launches"]]
        assert forms.count("scheduled rows") == kernels
        x = drawn((3, size)) + torch.arange(size) % 7
        compiled.target = "cpu"
        found, wanted = compiled(x), x.sort(stable=True)
        same(found, [part[:, :5] for part in wanted])


@pytest.mark.parametrize("is_open", [False, True])
def test_ranks_are_no_second_sort(is_open):
    """Orders of orders, in any words; what goes down is a sort again."""

    def ranks(x):
        down, order = torch.sort(x, dim=1, descending=True, stable=True)
        again = torch.argsort(x, dim=-1, stable=True).argsort(-1, descending=True)
        return torch.argsort(x, dim=0, stable=True).argsort(0), *order.sort(1), down, again

    shapes = (({0: torch.export.Dim("n", min=2)},),) if is_open else None
    compiled = kitsune_mlir.compile(Function(ranks), (torch.randn(20, 7),), dynamic_shapes=shapes)
    x = torch.randint(-3, 4, (33 if is_open else 20, 7)).float()
    for found, wanted in zip(compiled(x), ranks(x), strict=True):
        assert torch.equal(found, wanted)
    assert compiled.mlir("linalg").count("tm_tensor.sort") + is_open == 4
