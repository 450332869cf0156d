"""Convolutions a channel at a time, pooling, and tensors with zeros around them, on the stand-in GPU: a kernel each."""

import pytest
import torch
from functions import Function
from test_gpu_models import check, compiled, runner_of
from torch import nn
from torch.nn import functional as F

import kitsune_mlir
from kitsune_mlir.codegen import gpu_words

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def depthwise(channels, size, rank=2, **options):
    kind = (nn.Conv1d, nn.Conv2d)[rank - 1]
    return kind(channels, channels, size, groups=channels, **options)


def block(channels, size, **options):
    """A convolution a channel at a time, a norm whose numbers are given, and an activation that takes it twice."""
    norm = nn.BatchNorm2d(channels)
    for numbers in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(numbers.data)
    return nn.Sequential(depthwise(channels, size, bias=False, **options), norm, nn.Hardswish())


def ran(module, args, dynamic_shapes=None, further=()):
    """The kernels of a model that is right on the stand-in GPU."""
    program, section = compiled(module, args, dynamic_shapes)
    assert all(kernel["spill_stores"] == 0 for kernel in section.manifest["kernels"])
    runner, _ = runner_of(program, section)
    for each in (args, *further):
        check(program, runner, each, module(*each), BOUNDS.get(each[0].dtype, 0))
    return sorted(kernel["name"] for kernel in section.manifest["kernels"])


@pytest.fixture(params=["words", "elements"])
def neighbours(request, monkeypatch):
    """Whether threads compute neighbours, as they do of large tensors."""
    monkeypatch.setattr(gpu_words, "ENOUGH", 1 if request.param == "words" else 1 << 30)


FORMS = {
    "padded": (lambda: depthwise(3, 3, padding=1), (2, 3, 6, 16)),
    "followed": (lambda: block(3, 3, padding=1), (2, 3, 6, 16)),
    "strides of 2": (lambda: block(3, 5, padding=2, stride=2), (2, 3, 8, 16)),
    "strides of 3": (lambda: depthwise(2, 3, stride=3), (1, 2, 15, 48)),
    "no padding": (lambda: depthwise(3, 3), (2, 3, 6, 18)),
    "far padding": (lambda: depthwise(2, 3, padding=9), (1, 2, 6, 6)),
    "dilated": (lambda: depthwise(2, 3, padding=(2, 4), dilation=(2, 4)), (1, 2, 7, 24)),
    "7 x 7": (lambda: block(2, 7, padding=3), (1, 2, 14, 16)),
    "odd": (lambda: block(3, 3, padding=1), (2, 3, 7, 7)),
    "odd, 7 x 7 in steps of 2": (lambda: block(2, 7, padding=3, stride=2), (1, 2, 13, 21)),
    "odd, two lines of a thread": (lambda: depthwise(2, 5, padding=2), (1, 2, 6, 13)),
    "one row": (lambda: depthwise(3, 3, padding=1), (1, 3, 1, 8)),
    "one channel": (lambda: nn.Conv2d(1, 1, 3, padding=1), (2, 1, 6, 16)),
    "filters of a channel": (lambda: nn.Conv2d(3, 6, 3, 2, 1, groups=3, bias=False), (2, 3, 6, 32)),
    "parts of a filter": (lambda: block(2, (11, 11), padding=(5, 5)), (1, 2, 9, 16)),
    "few channels": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU()), (2, 2, 6, 16)),
    "lines": (lambda: depthwise(3, 4, rank=1, padding=3), (2, 3, 21)),
    "largest": (lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 8, 16)),
    "largest of volumes": (lambda: nn.MaxPool3d(2), (1, 2, 4, 4, 16)),
    "means": (lambda: nn.AvgPool2d(3, 2, 1), (2, 3, 8, 16)),
    "means of a fixed number": (lambda: nn.AvgPool2d(4, 4, divisor_override=3), (2, 3, 8, 32)),
    "constants around": (lambda: Function(lambda x: F.pad(x, (1, 2, 0, 3), value=2.5) * x[..., :1, :1]), (2, 3, 6, 5)),
    "shifted": (lambda: Function(lambda x: F.pad(x, (2, 0), value=-1e30)[..., :-2] * x), (2, 3, 6)),
    "shifted back": (lambda: Function(lambda x: F.pad(x, (0, 1, 1, 0))[..., :-1, 1:] + x), (2, 3, 6)),
    "moved": (lambda: Function(lambda x: F.pad(x, (1, 1)).mT * 2), (2, 3, 6)),
}


@pytest.mark.parametrize("name", FORMS)
def test_one_kernel(name, neighbours):
    """Words of bf16, and single elements of f32; the tests below have the other two."""
    make, shape = FORMS[name]
    dtype = torch.bfloat16 if gpu_words.ENOUGH == 1 else torch.float32
    torch.manual_seed(7)
    kernels = ran(make().to(dtype).eval(), (torch.randn(shape).to(dtype),))
    assert [each for each in kernels if "windows" in each] == ["windows_0"]
    assert set(kernels) <= {"windows_0", "elementwise_0"}  # what a norm or a bias is, once


TYPES = {
    "f64": (lambda: depthwise(3, 3, padding=1, dtype=torch.float64), torch.randn(2, 3, 6, 16).double()),
    "f16": (lambda: depthwise(3, 3, padding=1, dtype=torch.float16), torch.randn(2, 3, 6, 16).half()),
    "integers": (lambda: Function(lambda x: F.pad(x, (2, 2), value=-3) + 1), torch.arange(48).reshape(2, 3, 8)),
    "truths": (lambda: Function(lambda x: ~F.pad(x, (2, 2))), torch.arange(48).reshape(2, 3, 8) % 3 == 0),
}


@pytest.mark.parametrize("name", TYPES)
def test_types(name, neighbours):
    make, x = TYPES[name]
    assert {"windows_0"} <= set(ran(make().eval(), (x,))) <= {"windows_0", "elementwise_0"}


def test_filters_of_many_parts():
    """Each is a kernel, for one of all would spill registers."""
    model = nn.Conv3d(1, 2, 7, padding=3, bias=False).eval()
    assert sum("windows" in kernel for kernel in ran(model, (torch.randn(1, 1, 3, 4, 9),))) > 1


def test_any_number_of_images(neighbours):
    dynamic = {"dynamic_shapes": ({0: torch.export.Dim("n", min=0, max=64)},)}
    further = [(torch.randn(count, 3, 6, 16),) for count in (0, 1, 5)]
    assert "windows_0" in ran(block(3, 3, padding=1).eval(), (torch.randn(2, 3, 6, 16),), **dynamic, further=further)
    odd = [(torch.randn(count, 3, 6, 7),) for count in (0, 1, 5)]
    assert "windows_0" in ran(block(3, 3, padding=1).eval(), (torch.randn(2, 3, 6, 7),), **dynamic, further=odd)


def test_infinities_outside_of_a_window_are_not_seen(neighbours):
    """Zeros around an image are no numbers that a filter is multiplied with."""
    model = depthwise(1, 3, padding=1, bias=False).eval()
    nn.init.constant_(model.weight, torch.inf)
    ran(Function(lambda x: model(x).isnan().int()), (torch.ones(1, 1, 8, 8),))


ONCE = {
    "norms": (lambda x: F.lp_pool2d(x, 2, 3), ["windows_0"]),
    "largest": (lambda x: F.max_pool2d(F.silu(x), (2, 4)), ["windows_0"]),
    "overlapping": (lambda x: F.max_pool2d(F.silu(x), 3, 2, 1), ["elementwise_0", "windows_0"]),
    "read by others": (lambda x: (y := F.silu(x), F.max_pool2d(y, 2)), ["elementwise_0", "windows_0"]),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_windows_read_once_is_computed_there(name, neighbours):
    make, kernels = ONCE[name]
    dtype = torch.bfloat16 if gpu_words.ENOUGH == 1 else torch.float32
    torch.manual_seed(7)
    assert ran(Function(make), (torch.randn(2, 3, 8, 16).to(dtype),)) == kernels


def test_what_others_read_is_computed_once():
    model = depthwise(3, 3, padding=1, bias=False, dtype=torch.bfloat16).eval()
    kernels = ran(Function(lambda x: (y := model(x), y.sum(1))), (torch.randn(2, 3, 6, 16).bfloat16(),))
    assert kernels == ["reduce_0", "windows_0"]


def test_zeros_around_joined_batches(neighbours):
    """MLIR's fusion puts the zeros in front of the reshape that joins dimensions behind the transpose."""
    convolution = depthwise(3, 3, padding=1)
    module = Function(lambda x: convolution(x.mT.reshape(-1, 3, 6, 16)))
    assert len(ran(module, (torch.randn(2, 2, 96, 3),))) == 2  # the transpose and the convolution


def test_windows_of_many_elements_stay_loops():
    kernels = ran(depthwise(2, 23, padding=11, bias=False).eval(), (torch.randn(1, 2, 12, 12),))
    assert "windows_0" not in kernels


def test_a_follower_whose_other_operand_has_moved(neighbours):
    """What follows the second convolution reads what follows the first, and is another operation once that has gone."""
    first, second = (depthwise(3, 3, padding=1, bias=False, dtype=torch.bfloat16) for _ in range(2))

    def model(x):
        for _ in range(3):
            x = torch.relu(first(x))
            x = torch.relu(second(x) + x)
        return x

    kernels = ran(Function(model), (torch.randn(2, 3, 6, 16).bfloat16(),))
    assert kernels == ["windows_0", "windows_1"]


def test_neighbours_of_lines_that_are_no_words_share_elements(neighbours):
    """Of 11 results a line three threads have four each, the last one of them not; what is added lies beside them."""
    model = depthwise(3, 5, padding=2, bias=False, dtype=torch.bfloat16)
    x = torch.randn(2, 3, 9, 11).bfloat16()
    program, section = compiled(Function(lambda x: torch.relu(model(x) + x)), (x,))
    check(program, runner_of(program, section)[0], (x,), torch.relu(model(x) + x), BOUNDS[x.dtype])
    assert str(program.module).count("vector.load") == (5 * 8 if gpu_words.ENOUGH == 1 else 0)


def test_lines_that_end_within_a_word_spill_nothing():
    """Of 25 places the last thread has one, the others four: what they read is not held until stores."""
    module = nn.Sequential(nn.Conv2d(8, 10, 5), nn.ReLU()).eval()
    compiled = kitsune_mlir.compile(module, (torch.randn(64, 8, 29, 29),), target="sm_90a")
    assert [launch["computes"] for launch in compiled.plan["launches"]] == ["windows"]
    assert not any(kernel["spill_stores"] for kernel in compiled.plan["kernels"])
