"""Convolutions of many forms, and how they are run on the stand-in GPU."""

import torch
from test_gpu_scheduled import run
from torch import nn

BATCH = torch.export.Dim("n", min=1, max=64)


class Residual(nn.Sequential):
    def forward(self, x):
        return torch.relu(x + super().forward(x))


def block(inputs, outputs, size, **options):
    """A convolution without a bias, a norm whose numbers are given, and a ReLU."""
    norm = nn.BatchNorm2d(outputs)
    for numbers in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(numbers.data)
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, bias=False, **options), norm, nn.ReLU())


def ran(module, shape, target, dtype=torch.bfloat16, calls=(), **options):
    """How often scheduled kernels ran: in a call, and one for each further number of images in `calls`."""
    torch.manual_seed(sum(shape))
    module = module.to(dtype).eval()
    further = [(torch.randn(size, *shape[1:]).to(dtype),) for size in calls]
    return run(module, (torch.randn(shape).to(dtype),), target, calls=further, **options).pipeline_launches


FORMS = {
    "padded": (lambda: nn.Conv2d(64, 64, 3, padding=1), (2, 64, 9, 10)),
    "72 channels": (lambda: nn.Conv2d(72, 40, 3, padding=1), (1, 72, 9, 10)),
    "70 channels": (lambda: nn.Conv2d(70, 40, 3), (3, 70, 9, 10)),
    "strides of 2": (lambda: nn.Conv2d(64, 32, 3, stride=2, padding=1), (3, 64, 11, 13)),
    "strides of 3": (lambda: nn.Conv2d(64, 32, 5, stride=3, padding=2), (1, 64, 17, 13)),
    "dilated": (lambda: nn.Conv2d(64, 32, 3, dilation=2, padding=2), (1, 64, 11, 13)),
    "all different": (lambda: nn.Conv2d(64, 32, (3, 5), (1, 2), (0, 3), (2, 1)), (2, 64, 11, 13)),
    "single elements, strides of 2": (lambda: nn.Conv2d(64, 32, 1, stride=2), (2, 64, 12, 11)),
    "single elements": (lambda: nn.Conv2d(64, 33, 1), (2, 64, 7, 7)),
    "one place": (lambda: nn.Conv2d(64, 48, 5, stride=3), (3, 64, 6, 6)),
    "one channel out": (lambda: nn.Conv2d(64, 1, 3), (3, 64, 12, 12)),
    "96 channels": (lambda: nn.Conv2d(96, 40, 3, padding=1), (2, 96, 9, 10)),
    "40 channels": (lambda: block(40, 128, 3, padding=1), (2, 40, 17, 33)),
    "16 channels": (lambda: nn.Conv2d(16, 24, 3, padding=1), (2, 16, 9, 7)),
    "3 channels, strides of 2": (lambda: block(3, 64, 7, stride=2, padding=3), (2, 3, 32, 30)),
    "3 channels, strides of 3": (lambda: block(3, 16, 7, stride=3, padding=3), (1, 3, 31, 29)),
    "3 channels, dilated rows": (lambda: nn.Conv2d(3, 32, 5, padding=4, dilation=(2, 1)), (1, 3, 20, 20)),
    "patches": (lambda: nn.Conv2d(3, 48, 16, 16), (2, 3, 64, 48)),
    "lines": (lambda: nn.Conv1d(64, 48, 5, padding=2), (2, 64, 50)),
    "lines of 4 channels": (lambda: nn.Conv1d(4, 48, 9, padding=4, stride=2), (2, 4, 300)),
    "volumes": (lambda: nn.Conv3d(64, 32, 3, padding=1), (1, 64, 4, 5, 6)),
    "volumes of 8 channels": (lambda: nn.Conv3d(8, 16, 5, padding=2), (2, 8, 5, 6, 9)),
    "volumes of 3 channels, all different": (
        lambda: nn.Conv3d(3, 24, (3, 2, 4), (1, 3, 2), (0, 1, 2), (2, 1, 1)),
        (2, 3, 9, 12, 14),
    ),
}
