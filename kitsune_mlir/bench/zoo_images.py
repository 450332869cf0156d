"""The zoo's models of images."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .zoo_models import Residual, mlp


def conv(
    inputs: int,
    outputs: int,
    size: int,
    stride: int = 1,
    groups: int = 1,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Module:
    """Convolution, batch norm, activation; the image keeps its size but for the stride."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), activation())


def convolution_block(channels: int) -> nn.Module:
    """x + two convolutions of 3x3"""
    return Residual(conv(channels, channels, 3), conv(channels, channels, 3))


def bottleneck() -> nn.Module:
    """Convolutions of 1x1: products over channels."""
    return nn.Sequential(conv(256, 64, 1), conv(64, 256, 1))


def depthwise(channels: int) -> nn.Module:
    """3x3 a channel at a time, then 1x1 (MobileNet)."""
    return nn.Sequential(conv(channels, channels, 3, groups=channels), conv(channels, channels, 1))


def stem() -> nn.Module:
    """The first layers of a ResNet."""
    return nn.Sequential(conv(3, 64, 7, stride=2), nn.MaxPool2d(3, 2, 1))


class Patches(nn.Module):
    """A vision transformer's first layer: [n, 3, h, w] -> [n, tokens, width]."""

    def __init__(self, size: int, width: int):
        super().__init__()
        self.layer, self.norm = nn.Conv2d(3, width, size, size), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(x).flatten(2).transpose(1, 2))


class SqueezeExcite(nn.Module):
    """Channels scaled by what a small network makes of their means."""

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.network = nn.Sequential(mlp(channels, hidden, channels), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.network(x.mean((2, 3)))[:, :, None, None]
