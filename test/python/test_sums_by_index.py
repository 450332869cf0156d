"""Sums, means, largest and least by index: on graphs of every kind, on a CPU and in the GPU simulator."""

import pytest
import torch
from functions import Function
from torch import nn

import kitsune_mlir
from kitsune_mlir.codegen import gpu_scatter
from kitsune_mlir.frontend import import_model
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.passes import pipeline
from kitsune_mlir.passes.scatter_outputs import adds_rows, rows_alone
from kitsune_mlir.tools.gpusim.simulation import Simulation


class Reductions(nn.Module):
    """A sum of rows `e` [edges, 4] by index, to rows of `x` [nodes, 4]."""

    def forward(self, x, e, to):
        rows = to.view(-1, 1).expand_as(e)
        apart = (rows * 7 + torch.arange(4)) % x.shape[0]  # another row for each column
        found = [
            x.index_add(0, to, e, alpha=2),
            x.t().contiguous().index_add(1, to, e.t()),
            torch.zeros_like(x).scatter_add(0, rows, e),
            x.scatter_add(0, apart, e),
            x.index_put((to - x.shape[0],), e, accumulate=True),
            x.index_put((to, torch.tensor(1)), e[:, 0], accumulate=True),
            x.index_reduce(0, to, e, "amax", include_self=False),
            x.index_reduce(0, to, e, "mean"),
        ]
        for reduce in ("sum", "mean", "amax", "amin"):
            found += [x.scatter_reduce(0, rows, e, reduce, include_self=own) for own in (True, False)]
        return tuple(found)


def graph(kind, nodes, edges, dtype):
    to = torch.randint(0, nodes, (edges,))
    if kind == "hub":
        to = torch.full((edges,), nodes - 1)
    if kind == "few":  # most nodes are isolated, edges are there twice
        to = torch.randint(0, 3, (edges,))
    if dtype == torch.int64:
        return torch.randint(-9, 9, (nodes, 4)), torch.randint(-9, 9, (edges, 4)), to
    return torch.randn(nodes, 4).to(dtype), torch.randn(edges, 4).to(dtype), to


GRAPHS = [("any", 9, 40), ("hub", 9, 40), ("few", 30, 50), ("any", 5, 1), ("any", 5, 0)]


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_reductions(dtype, small_gpu, request):
    """Compiled once. Sums of bf16 are added up in f32, so they are closer to the exact ones than torch's are."""
    if dtype != torch.bfloat16:
        request.getfixturevalue("unassembled")
    torch.manual_seed(1)
    model, nodes, edges = Reductions(), torch.export.Dim("nodes"), torch.export.Dim("edges")
    compiled = kitsune_mlir.compile(
        model, graph(*GRAPHS[0], dtype), target=["cpu", small_gpu], dynamic_shapes=({0: nodes}, {0: edges}, {0: edges})
    )
    simulation = Simulation(compiled)
    bound = 1e-2 if dtype == torch.bfloat16 else 1e-5
    for kind in GRAPHS:
        args = graph(*kind, dtype)
        exact = model(*(x.double() if x.is_floating_point() else x for x in args))
        for run in (compiled, simulation):
            for number, (found, right) in enumerate(zip(run(*args), exact, strict=True)):
                assert found.dtype == dtype
                same = torch.isclose(found.to(right.dtype), right, rtol=bound, atol=bound, equal_nan=True)
                assert same.all(), (kind, number)


class Segments(nn.Module):
    """Rows that follow one another, some segments without any."""

    def forward(self, e, lengths):
        ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        found = [torch.segment_reduce(e, reduce, lengths=lengths) for reduce in ("sum", "mean", "max", "min")]
        return *found, torch.segment_reduce(e, "sum", offsets=ends)


def test_segments(small_gpu):
    torch.manual_seed(2)
    model, args = Segments(), (torch.randn(17, 4), torch.tensor([3, 0, 1, 0, 9, 4, 0]))
    compiled = kitsune_mlir.compile(model, args, target=["cpu", small_gpu])
    for run in (compiled, Simulation(compiled)):
        for found, right in zip(run(*args), model(*args), strict=True):
            torch.testing.assert_close(found, right, equal_nan=True)


REDUCES = (("mean", True), ("mean", False), ("sum", False))


def test_rows_along_any_dimension(small_gpu):
    """As ARMAConv and towers of PyG have them: of two stacks, messages are along the second dimension. Where the number
    of stacks is open, which lie behind the rows, a row begins where the call says."""

    def joined(x, e, to):
        index = to.view(1, -1, 1).expand_as(e)
        return x.index_add(1, to, e), x.scatter_add(1, index, e), x.scatter_reduce(-2, index, e, "amax")

    torch.manual_seed(4)
    args = torch.randn(2, 9, 4), torch.randn(2, 40, 4), torch.randint(0, 9, (40,))
    program = import_model(Function(joined), args)
    pipeline.run(program.module, [pipeline.make("prepare-linalg", "", "sm_90a")])
    for scatter in walk(program.module, "tm_tensor.scatter"):
        assert list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"])) == [0]
    compiled = kitsune_mlir.compile(Function(joined), args, target=["cpu", small_gpu])
    for run in (compiled, Simulation(compiled)):
        for found, right in zip(run(*args), joined(*args), strict=True):
            torch.testing.assert_close(found, right)
    stacks = torch.export.Dim("stacks")
    compiled = kitsune_mlir.compile(
        Function(joined), args, target=small_gpu, dynamic_shapes=(({0: stacks}, {0: stacks}, None),)
    )
    for count in (1, 5):
        args = torch.randn(count, 9, 4), torch.randn(count, 40, 4), args[2]
        for found, right in zip(Simulation(compiled)(*args), joined(*args), strict=True):
            torch.testing.assert_close(found, right)


def test_numbers_of_32_bits_are_those_of_rows():
    """Made longer for `scatter_reduce`, which takes no others, and as they are for `index_reduce`."""

    def joined(x, e, to):
        index = to.long().view(-1, 1).expand_as(e)
        mean = x.scatter_reduce(0, index, e, "mean", include_self=False)
        return mean, x.scatter_reduce(0, index, e, "amax"), x.index_reduce(0, to, e, "amin")

    torch.manual_seed(6)
    args = torch.randn(9, 4), torch.randn(40, 4), torch.randint(0, 8, (40,), dtype=torch.int32)
    program = import_model(Function(joined), args)
    pipeline.run(program.module, [pipeline.make("prepare-linalg", "", "sm_90a")])
    for scatter in walk(program.module, "tm_tensor.scatter"):
        assert list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"])) == [0]
    for found, right in zip(kitsune_mlir.compile(Function(joined), args)(*args), joined(*args), strict=True):
        torch.testing.assert_close(found, right)


def test_repeated_numbers_are_those_of_rows():
    """Of any dimensions; what is returned of them has a memory of its own."""

    def joined(x, e, to):
        index = to.view(-1, 1, 1).repeat(1, 2, 4)
        return x.scatter_add(0, index, e), x.gather(0, index), to.view(-1, 1).repeat(1, 3)

    torch.manual_seed(9)
    args = torch.randn(9, 2, 4), torch.randn(40, 2, 4), torch.randint(0, 8, (40,))
    program = import_model(Function(joined), args)
    pipeline.run(program.module, [pipeline.make("prepare-linalg", "", "sm_90a")])
    (scatter,) = walk(program.module, "tm_tensor.scatter")
    assert list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"])) == [0]
    found = kitsune_mlir.compile(Function(joined), args)(*args)
    for result, right in zip(found, joined(*args), strict=True):
        torch.testing.assert_close(result, right)
    found[2][0] = -1
    assert args[2][0] >= 0


def test_means_count_rows_once():
    """Not each of their elements, one after another; rows without any stay as they are."""

    def means(x, e, to):
        index = to.view(-1, 1).expand_as(e)
        return [x.scatter_reduce(0, index, e, how, include_self=own) for how, own in REDUCES]

    torch.manual_seed(8)
    args = torch.randn(9, 4), torch.randn(40, 4), torch.randint(0, 8, (40,))
    program = import_model(Function(means), args)
    pipeline.run(program.module, [pipeline.make("prepare-linalg", "", "sm_90a")])
    tables = [ir.RankedTensorType(op.results[0].type).rank for op in walk(program.module, "tm_tensor.scatter")]
    assert sorted(tables) == [1, 2, 2]
    for found, right in zip(kitsune_mlir.compile(Function(means), args)(*args), means(*args), strict=True):
        torch.testing.assert_close(found, right)


def test_equal_sums_are_one():
    """And so are those of what is computed of them; the largest of the same is another."""

    def layers(x, e, to):
        rows, found = to.view(-1, 1).expand_as(e), []
        for _ in range(2):
            total = torch.zeros(9, 4).index_add(0, to, e)
            found.append(torch.zeros(9, 4).index_add(0, to, torch.rsqrt(total[to].abs() + 1)))
        return (*found, torch.zeros(9, 4).scatter_reduce(0, rows, e, "amax"))

    torch.manual_seed(5)
    args = torch.randn(9, 4), torch.randn(40, 4), torch.randint(0, 9, (40,))
    program = import_model(Function(layers), args)
    pipeline.run(program.module, [pipeline.make("prepare-linalg", "", "sm_90a")])
    assert len(walk(program.module, "tm_tensor.scatter")) == 3
    for found, right in zip(kitsune_mlir.compile(Function(layers), args)(*args), layers(*args), strict=True):
        torch.testing.assert_close(found, right)


def test_counts_of_which_the_program_says_how_many_there_are(small_gpu):
    """Each group's rows, by which its sum is divided: the groups are as many as the sums."""

    def mean(x, groups):
        total = torch.zeros(7, 4).index_add(0, groups, x)
        return total / torch.bincount(groups, minlength=7).clamp(min=1).view(-1, 1)

    torch.manual_seed(3)
    args = torch.randn(40, 4), torch.randint(0, 6, (40,))
    compiled = kitsune_mlir.compile(Function(mean), args, target=["cpu", small_gpu])
    for run in (compiled, Simulation(compiled)):
        torch.testing.assert_close(run(*args), mean(*args))


def test_of_any_number_of_rows_copy_nothing():
    """Rows that a layer makes are added as they are, one kernel behind the layer's, at open sizes too."""

    def sums(x, e, to):
        rows = to.view(-1, 1).expand_as(e)
        return torch.zeros_like(x).index_add(0, to, e), x.new_zeros(x.shape).scatter_add(0, rows, e)

    args = torch.randn(50, 16), torch.randn(300, 16), torch.randint(0, 50, (300,))
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    shapes = (({0: nodes}, {0: edges}, {0: edges}),)
    program = import_model(Function(sums), args, dynamic_shapes=shapes)
    pipeline.run(program.module, [pipeline.make("prepare-linalg", "", "sm_90a")])
    for scatter in walk(program.module, "tm_tensor.scatter"):
        added = [rows_alone(operand) for operand in list(scatter.operands)[:2]]
        assert adds_rows(scatter) and all(isinstance(value.owner, ir.Block) for value in added)


def test_blocks_of_columns_take_their_turns(monkeypatch):
    """A table that L2 does not hold is added to in blocks of its columns, one after another."""
    torch.manual_seed(7)
    args = torch.randn(40, 128), torch.randint(0, 30, (40,))
    sums = Function(lambda e, to: torch.zeros(30, 128).index_add(0, to, e))
    whole = kitsune_mlir.compile(sums, args, target="sm_90a")
    monkeypatch.setattr(gpu_scatter, "MOST_TABLE", 4 * 30 * 32)
    parts = kitsune_mlir.compile(sums, args, target="sm_90a")
    assert parts.ptx != whole.ptx
    torch.testing.assert_close(Simulation(parts)(*args), sums(*args))
