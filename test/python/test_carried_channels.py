"""Images with their channels last stay so through what is done to images, on the stand-in GPU."""

import pytest
import torch
from functions import Function
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.codegen import gpu_words
from kitsune_mlir.tools.gpusim import Simulation

BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
DIM = torch.export.Dim("images", min=1, max=64)


def images(*shape, dtype=torch.float32, last=True):
    torch.manual_seed(0)
    x = torch.randn(*shape).to(dtype)
    return x.to(memory_format=torch.channels_last) if last and len(shape) == 4 else x


def excited(channels):
    """Scales of channels that means over places give."""

    class Excite(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)

        def forward(self, x):
            return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))

    return Excite()


class ChannelNorm(nn.Module):
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)


class Residual(nn.Module):
    def __init__(self, *inner):
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x):
        return x + self.inner(x)


def depthwise(channels, size, **options):
    return nn.Conv2d(channels, channels, size, groups=channels, **options)


def mobile(channels, size, **options):
    """A block of a mobile network: a convolution of single elements, one a channel at a time, scales, one back."""
    middle = depthwise(2 * channels, size, padding=size // 2, **options)
    inner = nn.Conv2d(channels, 2 * channels, 1), nn.ReLU(), middle, nn.BatchNorm2d(2 * channels), nn.Hardswish()
    return nn.Sequential(*inner, excited(2 * channels), nn.Conv2d(2 * channels, channels, 1))


MODELS = {
    "pooled, and the largest": (lambda: Function(lambda x: F.avg_pool2d(x, 2).amax((2, 3))), (2, 24, 8, 12)),
    "pooled with something around": (lambda: nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.ReLU()), (2, 8, 9, 11)),
    "a mobile block": (lambda: mobile(8, 3), (2, 8, 6, 5)),
    "a mobile block and what it began with": (lambda: Residual(*mobile(8, 5)), (3, 8, 6, 9)),
    "strides of 2": (lambda: mobile(8, 3, stride=2), (2, 8, 7, 5)),
    "a norm between convolutions": (
        lambda: nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), ChannelNorm(), nn.ELU(), nn.Conv2d(24, 8, 3, padding=1)),
        (2, 16, 6, 7),
    ),
    "a norm with a residual": (
        lambda: nn.Sequential(Residual(nn.Conv2d(16, 16, 3, padding=1), ChannelNorm()), nn.Conv2d(16, 8, 3)),
        (2, 16, 7, 6),
    ),
    "few channels": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(3, 16, 3, padding=1)), (2, 3, 12, 10)),
    "read in both orders": (lambda: Function(lambda x: (F.max_pool2d(x, 3, 1, 1), x.flatten(1))), (2, 8, 5, 6)),
    "dilated, and zeros around": (
        lambda: nn.Sequential(nn.ZeroPad2d((1, 2, 0, 3)), depthwise(8, 3, dilation=2), nn.Conv2d(8, 8, 1)),
        (2, 8, 9, 8),
    ),
    "a norm of each channel": (
        lambda: nn.Sequential(nn.Conv2d(8, 16, 3), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 8, 3)),
        (2, 8, 8, 9),
    ),
}


def ran(model, args, dynamic_shapes=None, further=()):
    """A compiled model that is right on the stand-in GPU."""
    compiled = kitsune_mlir.compile(model.eval(), args, target="sm_90a", dynamic_shapes=dynamic_shapes)
    simulation = Simulation(compiled, seed=1)
    for each in (args, *further):
        wanted = model.double()(*(x.double() for x in each))
        model.to(args[0].dtype)
        found = simulation(*each)
        several = isinstance(wanted, tuple)
        for a, b in zip(found if several else [found], wanted if several else [wanted], strict=True):
            error = (torch.as_tensor(a).double() - b).norm() / b.norm()
            assert error <= BOUNDS[args[0].dtype]
    return compiled


@pytest.mark.parametrize("last, dtype", [(True, torch.bfloat16), (False, torch.float32)], ids=["last", "second"])
@pytest.mark.parametrize("name", MODELS)
def test_as_torch(name, last, dtype, request):
    if not last:  # ptxas is asked of one order
        request.getfixturevalue("unassembled")
    make, shape = MODELS[name]
    torch.manual_seed(1)
    ran(make().to(dtype), (images(*shape, dtype=dtype, last=last),))


@pytest.mark.parametrize("name", ["a mobile block and what it began with", "a norm with a residual"])
def test_any_number_of_images(name):
    make, shape = MODELS[name]
    further = [(images(count, *shape[1:]),) for count in (1, 5)]
    ran(make(), (images(*shape),), ({0: DIM},), further)


def test_what_is_given_is_not_turned():
    """Pooling and the sum over places read the images where they lie."""
    compiled = ran(*[MODELS["pooled, and the largest"][0](), (images(2, 24, 8, 12),)])
    assert "linalg.transpose" not in compiled.mlir("carry-channels")


@pytest.mark.usefixtures("unassembled")
def test_a_norm_keeps_the_order_between_convolutions():
    make, shape = MODELS["a norm between convolutions"]
    args = (images(*shape, dtype=torch.bfloat16),)
    compiled = kitsune_mlir.compile(make().bfloat16().eval(), args, target="sm_90a")
    scheduled = compiled.mlir("sm_90a:schedule-rows")
    assert "lanes = " in scheduled and "turned, vector" not in scheduled  # a row's channels are neighbours


@pytest.mark.parametrize("lines, width", [(2, 5), (4, 8), (4, 7), (4, 3)])
@pytest.mark.parametrize("size, options", [(3, {}), (5, {"stride": 2}), (3, {"dilation": 3})], ids=str)
def test_lines_of_channels(lines, size, options, width, request, monkeypatch):
    """Threads compute several places of a line, the last ones twice where these are no multiple."""
    if (lines, width) != (4, 7):  # ptxas is asked of one size of each form
        request.getfixturevalue("unassembled")
    monkeypatch.setattr(gpu_words, "ENOUGH", 1)
    monkeypatch.setattr(gpu_words, "MOST_LINES", {1: lines})
    model = nn.Sequential(depthwise(8, size, padding=3, **options), nn.SiLU(), nn.Conv2d(8, 8, 1))
    ran(model.to(torch.float16), (images(2, 8, 5, width, dtype=torch.float16),))


@pytest.mark.parametrize("besides", [True, False])
def test_no_two_threads_compute_what_reads_its_own_place(besides, monkeypatch):
    """The second one might read what the first has written, where that is what a convolution is added to."""
    monkeypatch.setattr(gpu_words, "ENOUGH", 1)
    first = depthwise(8, 3, padding=1)
    model = nn.Sequential(Residual(first) if besides else first, nn.Conv2d(8, 8, 1)).to(torch.float16)
    compiled = ran(model, (images(2, 8, 40, 7, dtype=torch.float16),))
    kernel, *_ = (text for text in compiled.ptx.split(".entry ") if text.startswith("windows"))
    assert kernel.count("st.global") == (1 if besides else 4)  # of 7 places in a line


CHAINS = {
    "pooled images beside others": (
        lambda y, x: (F.max_pool2d(y, 3, 1, 1) * F.max_pool2d(x, 2).permute(0, 3, 1, 2)).amax((2, 3)),
        [(2, 8, 8, 8), (2, 8, 16, 16)],
    ),
    "lines that are turned and turned back": (
        lambda x: F.max_pool1d(x.transpose(1, 2), 2).transpose(1, 2),
        [(2, 16, 8)],
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_turned_images(name):
    """What one chain of operators has put in the place of another's beginning is what that begins with."""
    function, shapes = CHAINS[name]
    ran(Function(function), tuple(images(*shape) for shape in shapes))


@pytest.mark.parametrize("size", [1, 3])
def test_a_convolution_of_what_another_one_gives_turned(size):
    """Its images are those that stand there once the first one is rewritten."""
    first, second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, size)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x):
            return self.second(F.relu(self.first(x)).permute(0, 3, 1, 2))

    ran(Model(), (images(2, 16, 8, 16, last=False),))
