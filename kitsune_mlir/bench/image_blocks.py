"""The layers of random networks of images (random_images.py) that torch does not have as modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "mish": F.mish,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softsign": F.softsign,
    "glu": lambda x: F.glu(x, 1),
    "simple_gate": lambda x: torch.mul(*x.chunk(2, 1)),
    "channel_softmax": lambda x: x.softmax(1),
    "channel_norm": lambda x: F.normalize(x, dim=1),
    "local_response": lambda x: F.local_response_norm(x, 5),
    "snake": lambda x: x + torch.sin(x).square(),
}


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        self.function = function

    def forward(self, *values: Tensor) -> Tensor:
        return self.function(*values)


class ChannelNorm(nn.Module):
    """A norm of each place's channels, written as models do: of channels moved last, or by hand."""

    def __init__(self, channels: int, way: str):
        super().__init__()
        self.way, self.weight = way, nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels)) if way != "rms" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "moved":
            return F.layer_norm(x.movedim(1, -1), self.weight.shape, self.weight, self.bias, 1e-6).movedim(-1, 1)
        shape = (-1, *(1 for _ in x.shape[2:]))
        if self.way == "rms":
            return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5) * self.weight.view(shape)
        centred = x - x.mean(1, keepdim=True)
        found = centred / torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-6)
        return self.weight.view(shape) * found + self.bias.view(shape)


class ResponseNorm(nn.Module):
    """ConvNeXt V2's global response normalisation."""

    def __init__(self, channels: int, own: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(channels)), nn.Parameter(torch.empty(channels))
        self.shape, self.dims = (-1, *(1 for _ in range(own + 1))), tuple(range(2, own + 3))

    def forward(self, x: Tensor) -> Tensor:
        norm = x.square().sum(self.dims, keepdim=True).sqrt()
        norm = norm / (norm.mean(1, keepdim=True) + 1e-6)
        return self.weight.view(self.shape) * (x * norm) + self.bias.view(self.shape) + x


def norm_of(name: str, channels: int, own: int) -> nn.Module:
    if name.startswith("group"):
        return nn.GroupNorm(int(name.removeprefix("group")), channels)
    match name:
        case "batch":
            return BATCH_NORMS[own](channels)
        case "instance":
            return INSTANCE_NORMS[own](channels, affine=True)
        case "plain_instance":
            return INSTANCE_NORMS[own](channels)
        case "response":
            return ResponseNorm(channels, own)
    return ChannelNorm(channels, name)


class Excite(nn.Module):
    """Channels scaled by what a small network makes of their means: as layers, or as convolutions of one place."""

    def __init__(self, channels: int, own: int, hidden: int, layers: bool, act: str, gate: str):
        super().__init__()
        make = nn.Linear if layers else lambda inputs, outputs: CONVOLUTIONS[own](inputs, outputs, 1)
        self.down, self.up = make(channels, hidden), make(hidden, channels)
        self.layers, self.act, self.gate = layers, ACTIVATIONS[act], ACTIVATIONS[gate]

    def forward(self, x: Tensor) -> Tensor:
        means = x.mean(tuple(range(2, x.dim())), keepdim=not self.layers)
        scales = self.gate(self.up(self.act(self.down(means))))
        return x * scales.view(*scales.shape[:2], *(1 for _ in x.shape[2:]))


class SpatialGate(nn.Module):
    """Places scaled by a convolution of the mean and the largest of their channels (CBAM)."""

    def __init__(self, own: int, size: int):
        super().__init__()
        self.layer = CONVOLUTIONS[own](2, 1, size, padding=size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
        return x * torch.sigmoid(self.layer(both))


class Film(nn.Module):
    """Channels scaled and moved by what a layer makes of a row of numbers."""

    def __init__(self, numbers: int, channels: int):
        super().__init__()
        self.layer = nn.Linear(numbers, 2 * channels)

    def forward(self, x: Tensor, numbers: Tensor) -> Tensor:
        both = self.layer(F.silu(numbers))
        scale, shift = both.view(*both.shape, *(1 for _ in x.shape[2:])).chunk(2, 1)
        return x * (1 + scale) + shift


class Scale(nn.Module):
    """A number for each channel (layer scale)."""

    def __init__(self, channels: int, own: int):
        super().__init__()
        self.scale, self.shape = nn.Parameter(torch.empty(channels)), (-1, *(1 for _ in range(own + 1)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.view(self.shape)


class ConvNext(nn.Module):
    """A convolution of each channel, then layers of channels that were moved last."""

    def __init__(self, channels: int, own: int, size: int, times: int, act: str):
        super().__init__()
        self.own = CONVOLUTIONS[own](channels, channels, size, padding=size // 2, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, times * channels), nn.Linear(times * channels, channels)
        self.act, self.scale = ACTIVATIONS[act], nn.Parameter(torch.empty(channels))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(self.own(x).movedim(1, -1))
        return x + (self.scale * self.down(self.act(self.up(rows)))).movedim(-1, 1)


class Rows(nn.Module):
    """What is done to [..., tokens, channels]: attention, a mixer's layer of tokens, or a layer of channels, each with
    a norm before and the rows added behind."""

    def __init__(self, channels: int, tokens: int, what: str, heads: int = 1):
        super().__init__()
        self.what, self.heads, self.norm = what, heads, nn.LayerNorm(channels)
        if what == "attention":
            self.first, self.second = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        else:
            size = tokens if what == "mixer" else channels
            self.first, self.second = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x)
        if self.what == "attention":
            joined = self.first(rows).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
            found = self.second(F.scaled_dot_product_attention(*joined).transpose(-2, -3).flatten(-2))
        elif self.what == "mixer":
            found = self.second(F.gelu(self.first(rows.transpose(-1, -2)))).transpose(-1, -2)
        else:
            found = self.second(F.gelu(self.first(rows)))
        return x + found


class Tokens(nn.Module):
    """All places as rows: rows of all blocks, and an image again."""

    def __init__(self, channels: int, sides: Sequence[int], blocks: Sequence[str], heads: int):
        super().__init__()
        count = torch.Size(sides).numel()
        self.sides = tuple(sides)
        self.blocks = nn.Sequential(*(Rows(channels, count, what, heads) for what in blocks))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, self.sides)


class Windows(nn.Module):
    """Swin's: attention, or a mixer, within windows of an image that is perhaps rolled, and padded to whole windows."""

    def __init__(self, channels: int, sides: Sequence[int], size: int, shift: int, blocks: Sequence[str], heads: int):
        super().__init__()
        self.size, self.shift = size, shift
        self.blocks = nn.Sequential(*(Rows(channels, size * size, what, heads) for what in blocks))

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        rows = x.permute(0, 2, 3, 1).roll((-self.shift, -self.shift), (1, 2))
        rows = F.pad(rows, (0, 0, 0, -width % self.size, 0, -height % self.size))
        n, h, w, channels = rows.shape
        rows = rows.view(n, h // self.size, self.size, w // self.size, self.size, channels).transpose(2, 3)
        found = self.blocks(rows.reshape(-1, self.size * self.size, channels))
        found = found.view(n, h // self.size, w // self.size, self.size, self.size, channels).transpose(2, 3)
        found = found.reshape(n, h, w, channels)[:, :height, :width]
        return found.roll((self.shift, self.shift), (1, 2)).permute(0, 3, 1, 2)


class Head(nn.Module):
    """What classifies: a layer of the means, the largest, or both, of all places, or of all numbers."""

    def __init__(self, channels: int, sides: Sequence[int], of: str, classes: int, norm: bool, softmax: bool):
        super().__init__()
        sizes = {"both": 2 * channels, "all": channels * torch.Size(sides).numel()}
        size = sizes.get(of, channels)
        self.of, self.softmax = of, softmax
        self.norm, self.layer = nn.LayerNorm(size) if norm else nn.Identity(), nn.Linear(size, classes)

    def forward(self, x: Tensor) -> Tensor:
        dims = tuple(range(2, x.dim()))
        match self.of:
            case "mean":
                row = x.mean(dims)
            case "largest":
                row = x.amax(dims)
            case "both":
                row = torch.cat([x.mean(dims), x.amax(dims)], 1)
            case _:
                row = x.flatten(1)
        found = self.layer(self.norm(row))
        return found.softmax(-1) if self.softmax else found
