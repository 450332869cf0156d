"""Random transformer blocks (kitsune_mlir/bench/draw_blocks.py) are right on a CPU, also of other sizes than the
example's where these are open."""

import copy
from dataclasses import replace

import pytest
import torch

import kitsune_mlir
from kitsune_mlir.bench import cases, check, draw_blocks, random_blocks


def widened(args):
    return [x.double() if x.is_floating_point() else x.clone() for x in args]


def compare(of, module, compiled, seed):
    """Fresh arguments: caches among them are changed in place, so that each side has its own."""
    args = draw_blocks.arguments(of, seed)
    exact, own, found = (
        check.tensors(run(*given))
        for run, given in (
            (copy.deepcopy(module).double(), widened(args)),
            (module, [x.clone() for x in args]),
            (compiled, [x.clone() for x in args]),
        )
    )
    assert check.relative_error(found, exact) <= 2 * check.relative_error(own, exact) + check.BOUNDS[of.dtype] / 2, of


# Sinks and talking heads behind a convolution of lines; differential attention of words, with a padding mask.
@pytest.mark.parametrize("seed", [2, 4])
def test_drawn(seed):
    module, args = random_blocks.make(seed, small=True)
    compiled = kitsune_mlir.compile(module, tuple(x.clone() for x in args), target="cpu")
    compare(draw_blocks.draw(seed, small=True), module, compiled, seed + 1)


# A cache that is written to, rotations, a loop over experts; differential attention, gates.
@pytest.mark.parametrize("seed, what", [(5, "batch"), (6, "tokens")])
def test_sizes_that_are_open(seed, what):
    of = draw_blocks.draw(seed, small=True, open=what)
    module, args = random_blocks.make(seed, small=True, open=what)
    compiled = kitsune_mlir.compile(module, args, target="cpu", dynamic_shapes=draw_blocks.open_sizes(of))
    for size in (getattr(of, what) + 1, 2):
        compare(replace(of, **{what: size}), module, compiled, seed + 1)


@pytest.mark.parametrize("name", ["block-8", "block-tokens-2"])
def test_cases_are_exported(name):
    module, args, shapes = cases.find(name, None).make()
    assert torch.export.export(module, args, dynamic_shapes=shapes)


@pytest.mark.usefixtures("unassembled")
def test_sums_that_begin_with_a_fill():
    """Experts one after another, whose first adds to zeros: what follows a product in a chain is filled anew there."""
    of = replace(draw_blocks.draw(6, open="batch"), mixers=("fourier",))  # one block
    module, args = random_blocks.Model(of).to(of.dtype).eval(), draw_blocks.arguments(of, 6)
    shapes = draw_blocks.open_sizes(of)
    compiled = kitsune_mlir.compile(module, args, target="sm_90a", dynamic_shapes=shapes)
    assert any(launch["kernel"].startswith("pipeline") for launch in compiled.plan["launches"])
