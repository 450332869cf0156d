"""Elementwise operators of lines that are no whole words, on the stand-in GPU: words go across lines."""

import pytest
import torch
from functions import Function
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.codegen import gpu_flat, gpu_words
from kitsune_mlir.tools.gpusim import Simulation

BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 5e-2}


@pytest.fixture
def taken(monkeypatch):
    """Words of few results, too; the operators that have such, as how many neighbours and loops."""
    found, of = [], gpu_flat.Flat.of

    def recorded(generic):
        made = of(generic)
        found.append(made and (made.count, made.run))
        return made

    monkeypatch.setattr(gpu_words, "ENOUGH", 1)
    monkeypatch.setattr(gpu_flat.Flat, "of", recorded)
    return found


def check(function, *args, calls=(), **options):
    compiled = kitsune_mlir.compile(Function(function), args, target="sm_90a", **options)
    simulated = Simulation(compiled, seed=1)
    for call in (args, *calls):
        wanted, bound = function(*(x.double() for x in call)), BOUNDS[call[0].dtype]
        torch.testing.assert_close(torch.as_tensor(simulated(*call)).double(), wanted, rtol=bound, atol=bound)
    return [launch["computes"] for launch in compiled.plan["launches"]]


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("shape", [(3, 8, 5, 9), (2, 16, 1, 11), (1, 8, 13, 13)])
def test_operands_of_all_kinds(shape, dtype, taken):
    """What has the run's elements, a number by channel, by line, by place, by column, and one by image; words are short
    where elements are read one by one."""
    kinds = (shape, (shape[1], 1, 1), (shape[2], 1), shape[2:], shape[3:], (shape[0], 1, 1, 1))
    x, *others = (torch.randn(kind).to(dtype) for kind in kinds)

    def function(x, channel, line, place, column, image):
        return (x - image) * channel + line * place + column

    assert check(function, x, *others) == ["elementwise"]
    assert taken[-1] == (4, 3)
    assert check(lambda x, y: x + y, x, others[0]) == ["elementwise"]
    assert taken[-1] == (16 // x.element_size(), 3)


@pytest.mark.usefixtures("unassembled")
def test_long_lines(taken, monkeypatch):
    """Words of one line, of which most are, have code of their own. Its loops are one."""
    monkeypatch.setattr(gpu_flat, "WORDS_OF_LINES", 2)
    x, channel, place = torch.randn(2, 8, 3, 7), torch.randn(8, 1, 1), torch.randn(3, 7)
    assert check(lambda x, channel, place: x * channel + place, x, channel, place) == ["elementwise"]
    assert taken[-1] == (4, 3)


@pytest.mark.usefixtures("unassembled")
def test_any_number_of_images(taken):
    images = {"args": ({0: torch.export.Dim("images", max=64)}, None)}
    x, scales = torch.randn(3, 4, 2, 9), torch.randn(4, 1, 1)
    calls = [(torch.randn(count, 4, 2, 9), scales) for count in (1, 5)]
    check(lambda x, y: x * y, x, scales, calls=calls, dynamic_shapes=images)
    assert taken[-1] == (4, 3)


@pytest.mark.usefixtures("unassembled")
def test_elements_that_are_read_by_number(taken):
    x = torch.randn(2, 8, 5, 6)
    assert check(lambda x: F.interpolate(x, (7, 9)), x) == ["gather"]
    assert taken[-1] == (4, 3)


@pytest.mark.usefixtures("unassembled")
@pytest.mark.parametrize("shape", [(2, 8, 4, 8), (3, 5, 7, 3), (1, 3, 3, 5)])
def test_lines_of_words_or_of_too_few_elements(shape, taken):
    """Their own words are as long, lines are shorter than a word, or all together are no whole words."""
    x = torch.randn(shape)
    check(lambda x: x.exp() + x, x)
    assert taken[-1] is None or shape[-1] == 8
