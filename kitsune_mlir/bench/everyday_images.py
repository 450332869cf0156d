"""Everyday models of images: classifiers, an encoder and decoder, networks that make images."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .zoo_images import conv, stem
from .zoo_models import Residual

linear_conv = partial(conv, activation=nn.Identity)  # a convolution and its batch norm alone


class Shortcut(nn.Module):
    """relu(body(x) + skip(x))"""

    def __init__(self, body: nn.Module, skip: nn.Module | None = None):
        super().__init__()
        self.body, self.skip = body, skip or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.skip(x))


def basic_block(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    """Two convolutions of 3x3 beside a shortcut, which is a convolution where the shape changes."""
    body = nn.Sequential(conv(inputs, outputs, 3, stride), linear_conv(outputs, outputs, 3))
    return Shortcut(body, linear_conv(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None)


class ResNet18(nn.Module):
    """[n, 3, h, w] -> [n, 1000]"""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [basic_block(inputs, outputs, stride), basic_block(outputs, outputs)]
            inputs = outputs
        self.stem, self.body, self.head = stem(), nn.Sequential(*blocks), nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def resnext() -> nn.Module:
    """A bottleneck block whose 3x3 convolution has 32 groups."""
    return Shortcut(nn.Sequential(conv(256, 128, 1), conv(128, 128, 3, groups=32), linear_conv(128, 256, 1)))


def inverted_residual(inputs: int, outputs: int, stride: int, factor: int) -> nn.Module:
    """MobileNetV2's block: wider channels, a depthwise convolution, narrow channels."""
    hidden, activated = inputs * factor, partial(conv, activation=nn.ReLU6)
    layers = (
        activated(inputs, hidden, 1),
        activated(hidden, hidden, 3, stride, hidden),
        linear_conv(hidden, outputs, 1),
    )
    return Residual(*layers) if stride == 1 and inputs == outputs else nn.Sequential(*layers)


def mobilenet() -> nn.Module:
    """MobileNetV2 with seven blocks."""
    blocks = ((32, 16, 1, 1), (16, 24, 2, 6), (24, 24, 1, 6), (24, 32, 2, 6), (32, 32, 1, 6), (32, 64, 2, 6))
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU6()),
        *(inverted_residual(*block) for block in (*blocks, (64, 64, 1, 6))),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1000)),
    )


class Squeeze(nn.Module):
    """Channels scaled by what two convolutions of 1x1 make of their means."""

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, hidden, 1), nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


def mbconv() -> nn.Module:
    """EfficientNet's block."""
    activated = partial(conv, activation=nn.SiLU)
    wide = activated(240, 240, 5, groups=240)
    return nn.Sequential(activated(40, 240, 1), wide, Squeeze(240, 60), linear_conv(240, 40, 1))


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution of 7x7, then a network of each pixel, scaled by channel, beside a residual."""

    def __init__(self, channels: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.scale = nn.LayerNorm(channels), nn.Parameter(torch.ones(channels))
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class Inception(nn.Module):
    """Four branches, concatenated: [n, inputs, h, w] -> [n, 224, h, w]."""

    def __init__(self, inputs: int):
        super().__init__()
        tall_and_wide = (
            nn.Conv2d(96, 96, (1, 3), padding=(0, 1)),
            nn.ReLU(),
            nn.Conv2d(96, 96, (3, 1), padding=(1, 0)),
        )
        self.branches = nn.ModuleList(
            (
                nn.Conv2d(inputs, 64, 1),
                nn.Sequential(nn.Conv2d(inputs, 96, 1), nn.ReLU(), *tall_and_wide),
                nn.Sequential(nn.Conv2d(inputs, 32, 1), nn.ReLU(), nn.Conv2d(32, 32, 5, padding=2)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(inputs, 32, 1)),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(torch.cat([branch(x) for branch in self.branches], 1))


def _dense_layer(inputs: int, growth: int) -> nn.Module:
    return nn.Sequential(
        *(nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, 4 * growth, 1, bias=False)),
        *(nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)),
    )


class DenseBlock(nn.Module):
    """DenseNet's: each of four layers reads all before it; then the mean of each 2x2."""

    def __init__(self, inputs: int, growth: int = 32):
        super().__init__()
        self.layers = nn.ModuleList(_dense_layer(inputs + i * growth, growth) for i in range(4))

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return F.avg_pool2d(torch.cat(found, 1), 2)


def vgg() -> nn.Module:
    """Pairs of convolutions of 3x3, a pool after each, two linear layers."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    head = nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 100)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), *head)


class Shuffle(nn.Module):
    """ShuffleNetV2's block: half of the channels through convolutions, then both halves in turns."""

    def __init__(self, channels: int):
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(conv(half, half, 1), linear_conv(half, half, 3, groups=half), conv(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, 1)
        y = torch.cat([kept, self.body(changed)], 1)
        batch, channels, height, width = y.shape
        halves = y.view(batch, 2, channels // 2, height, width)
        return halves.transpose(1, 2).reshape(batch, channels, height, width)


class ImageAttention(nn.Module):
    """SAGAN's: one head of attention among all pixels, behind a group norm and scaled by a learnt number."""

    def __init__(self, channels: int):
        super().__init__()
        self.query, self.key = nn.Conv2d(channels, channels // 8, 1), nn.Conv2d(channels, channels // 8, 1)
        self.value, self.norm = nn.Conv2d(channels, channels, 1), nn.GroupNorm(8, channels)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query, key, value = (layer(y).flatten(2) for layer in (self.query, self.key, self.value))
        weights = torch.softmax(query.transpose(1, 2) @ key, -1)
        return x + self.scale * (value @ weights.transpose(1, 2)).view(x.shape)


class TimedBlock(nn.Module):
    """A diffusion model's residual block: group norms in front of convolutions, the time's embedding added between."""

    def __init__(self, inputs: int, outputs: int, embedding: int = 256):
        super().__init__()
        self.first_norm, self.first = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second_norm, self.second = nn.GroupNorm(32, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(embedding, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(F.silu(self.first_norm(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.second(F.silu(self.second_norm(y))) + self.skip(x)


class DiffusionUnet(nn.Module):
    """[n, 4, h, w] and an embedding of the time [n, 64] -> [n, 4, h, w]."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Conv2d(4, 64, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256))
        self.high, self.down, self.low = TimedBlock(64, 64), nn.Conv2d(64, 64, 3, 2, 1), TimedBlock(64, 128)
        self.middle, self.up = TimedBlock(128, 128), nn.Conv2d(128, 64, 3, padding=1)
        self.joined, self.last = TimedBlock(128, 64), TimedBlock(128, 64)
        self.outputs = nn.Sequential(nn.GroupNorm(32, 64), nn.SiLU(), nn.Conv2d(64, 4, 3, padding=1))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        time, x = self.time(time), self.inputs(x)
        high = self.high(x, time)
        low = self.middle(self.low(self.down(high), time), time)
        up = self.up(F.interpolate(low, scale_factor=2.0, mode="nearest"))
        up = self.joined(torch.cat([up, high], 1), time)
        return self.outputs(self.last(torch.cat([up, x], 1), time))


def autoencoder() -> nn.Module:
    """Three convolutions of stride 2, and three transposed ones."""
    channels = (3, 32, 64, 128)
    layers: list[nn.Module] = []
    for inputs, outputs in zip(channels, channels[1:]):
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.ReLU()]
    for inputs, outputs in zip(channels[::-1], channels[-2::-1]):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.Sigmoid())


def dqn() -> nn.Module:
    """The values of six actions, from four frames of a game."""
    return nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)),
    )


class SuperResolution(nn.Module):
    """ESPCN: three convolutions, then nine channels are the 3x3 pixels of one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 64, 5, padding=2), nn.Conv2d(64, 32, 3, padding=1)
        self.last = nn.Conv2d(32, 9, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(self.last(torch.tanh(self.second(torch.tanh(self.first(x))))), 3)


class Siamese(nn.Module):
    """One network of two images of 28x28, the distance and the cosine of its results."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(1600, 64)),
        )

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        distance = F.pairwise_distance(self.network(x), self.network(y))
        return distance, F.cosine_similarity(self.network(x), self.network(y))
