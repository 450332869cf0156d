"""Random networks of images, volumes and signals, as `kitsune bench image-SEED` draws them, small ones: beside float64
on a CPU."""

import copy

import pytest
import torch
from torch import nn

import kitsune_mlir
from kitsune_mlir.bench import cases
from kitsune_mlir.bench.draw_images import draw
from kitsune_mlir.bench.random_images import arguments, build, open_sizes
from kitsune_mlir.tools.gpusim import Simulation

FLOORS = {torch.bfloat16: 4e-3, torch.float16: 5e-4, torch.float32: 1e-5}


def compare(net, compiled, module, args):
    def leaves(found):
        return found if isinstance(found, tuple) else (found,)

    exact = copy.deepcopy(module).double()(*(x.double() for x in args))
    for found, own, wanted in zip(*map(leaves, (compiled(*args), module(*args), exact)), strict=True):
        assert found.dtype == net.dtype and found.shape == wanted.shape
        error, bound = ((x.double() - wanted).norm() / wanted.norm() for x in (found, own))
        assert error <= 2 * bound + FLOORS[net.dtype], net


@pytest.mark.parametrize("seed", [1, 8])
def test_one(seed):
    net = draw(seed, small=True)
    module, args = build(net, seed)
    compare(net, kitsune_mlir.compile(module, args, target="cpu"), module, args)


def test_a_batch_that_is_open():
    net = draw(3, small=True, open=True)
    module, args = build(net, 3)
    compiled = kitsune_mlir.compile(module, args, target="cpu", dynamic_shapes=open_sizes(net))
    for batch in (net.inputs[0][0] + 1, 1):
        compare(net, compiled, module, arguments(net, 3, batch))


def test_the_case():
    module, args, shapes = cases.find("image-batch-5", None).make()
    assert module.net == draw(5, open=True) and tuple(arg.shape for arg in args) == module.net.inputs
    assert len(shapes[0]) == len(args)


@pytest.mark.usefixtures("unassembled")
def test_numbers_of_channels_at_one_place():
    """A convolution whose images end with one place each: a batch norm's numbers are of channels, not of places."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(120, 120, 3, stride=2, padding=1), nn.BatchNorm2d(120)).eval()
    for numbers in (model[1].running_mean, model[1].weight.data, model[1].bias.data):
        numbers.normal_()
    x = torch.randn(1, 120, 2, 1)
    compiled = kitsune_mlir.compile(model, (x,), target="sm_90a")
    assert "product0" in [launch["kernel"] for launch in compiled.plan["launches"]]
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(Simulation(compiled, seed=1)(x)), model(x))
