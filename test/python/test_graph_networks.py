"""Graph networks that are drawn at random, on a CPU, beside float64."""

from dataclasses import replace

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.bench import cases, check, random_graphs
from kitsune_mlir.bench.sides import tensors


def right(compiled, of, seed):
    """Indices and numbers are others than those that it was compiled with."""
    module, args = random_graphs.build(of, seed), random_graphs.arguments(of, seed + 1)
    with torch.no_grad():
        own = tensors(module(*args))
        wanted, _ = check.reference(module, args)
    error = check.relative_error(tensors(compiled(*args)), wanted)
    assert error <= check.bound(own, check.relative_error(own, wanted)), of


@pytest.mark.parametrize("seed", [10, 20, 24, 35])
def test_drawn(seed):
    module, args = random_graphs.make(seed, small=True)
    with torch.no_grad():
        compiled = kitsune_mlir.compile(module, args, target="cpu")
    right(compiled, random_graphs.draw(seed, small=True), seed)


@pytest.mark.parametrize("seed", [6, 13, 41])
def test_sizes_that_are_open(seed):
    of = random_graphs.draw(seed, small=True, open=True)
    module, args = random_graphs.make(seed, small=True, open=True)
    with torch.no_grad():
        compiled = kitsune_mlir.compile(module, args, target="cpu", dynamic_shapes=random_graphs.open_sizes(of))
    for nodes, edges, graphs in ((41, 170, 7), (3, 2, 2)):
        sizes = (
            {"nodes": nodes, "edges": edges if of.family == "edges" else of.edges} if of.flat else {"graphs": graphs}
        )
        right(compiled, replace(of, **sizes), seed)


def test_cases_are_named_by_seed():
    for seed in range(2):
        module, args, shapes = cases.find(f"graph-open-{seed}", None).make()
        assert torch.export.export(module, args, dynamic_shapes=shapes)
        assert cases.find(f"graph-{seed}", None).make()[2] is None
