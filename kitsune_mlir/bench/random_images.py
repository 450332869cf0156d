"""Random networks of images, volumes and signals, as plain data (drawn by a seed in draw_images.py) and as torch
modules.

A network is a list of steps, each of which reads earlier values; the inputs are the first ones. Values are
[batch, channels, *sides] of one, two or three sides. The second input, where there is one, is [batch, numbers]: what
some steps scale channels by. A step finds the sizes of its weights from what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .image_blocks import (
    ACTIVATIONS,
    CONVOLUTIONS,
    TRANSPOSED,
    Apply,
    ConvNext,
    Excite,
    Film,
    Head,
    Scale,
    SpatialGate,
    Tokens,
    Windows,
    norm_of,
)

Sizes = tuple[int, ...]
POOLS: dict[str, Sequence[Callable[..., Tensor]]] = {
    "max": (F.max_pool1d, F.max_pool2d, F.max_pool3d),
    "avg": (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d),
    "lp": (F.lp_pool1d, F.lp_pool2d, F.lp_pool3d),
    "adaptive_max": (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d),
    "adaptive_avg": (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
}
HALVES = ("glu", "simple_gate")  # whose results have half of the channels


@dataclass(frozen=True)
class Step:
    """One operator or block: its kind, the values it reads and what the kind is told."""

    kind: str
    sources: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [
            *(f"v{source}" for source in self.sources),
            *(f"{name}={value}" for name, value in self.options.items()),
        ]
        return f"{self.kind}({', '.join(said)})"


@dataclass(frozen=True)
class Net:
    """`inputs` are whole sizes; `outputs` are numbers of values."""

    dtype: torch.dtype
    inputs: tuple[Sizes, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    precision: str = "highest"  # of f32 products
    channels_last: bool = False
    open: bool = False  # the batch, until the call

    def __str__(self) -> str:
        said = [f"{self.dtype} {self.precision} {list(self.inputs)}{' channels last' * self.channels_last}"]
        said += [f"v{number} = {step}" for number, step in enumerate(self.steps, len(self.inputs))]
        return "\n".join([*said, f"-> {self.outputs}"])


class Module(nn.Module):
    """Runs a network."""

    def __init__(self, net: Net):
        super().__init__()
        self.net = net
        shapes = list(net.inputs)
        layers = []
        for step in net.steps:
            layer = layer_of(step, [shapes[source] for source in step.sources])
            shapes.append(result_of(step, [shapes[source] for source in step.sources]))
            layers.append(layer)
        self.layers = nn.ModuleList(layers)
        for layer in self.modules():
            if isinstance(layer, (*CONVOLUTIONS, *TRANSPOSED, nn.Linear)):
                nn.init.normal_(layer.weight, std=(layer.weight[0].numel()) ** -0.5)
            for name, value in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)):
                if name == "running_var" or name in ("weight", "scale") and value.dim() == 1:
                    nn.init.uniform_(value, 0.5, 1.5)
                elif value.dim() == 1 and value.is_floating_point():
                    nn.init.uniform_(value, -0.5, 0.5)

    def forward(self, *given: Tensor) -> Any:
        values = list(given)
        for step, layer in zip(self.net.steps, self.layers, strict=True):
            values.append(layer(*(values[source] for source in step.sources)))
        found = tuple(values[output] for output in self.net.outputs)
        return found if len(found) > 1 else found[0]


def result_of(step: Step, shapes: Sequence[Sizes]) -> Sizes:
    """The sizes of what a step gives. Raises RuntimeError or ValueError, torch's, where it cannot read such values."""
    with torch.device("meta"):
        return tuple(layer_of(step, shapes).eval()(*map(torch.empty, shapes)).shape)


def layer_of(step: Step, shapes: Sequence[Sizes]) -> nn.Module:
    """The layer of a step that reads values of these sizes."""
    (_, channels, *sides), o = shapes[0], step.options
    own = len(sides) - 1  # the place in the tables of what torch has for so many sides
    match step.kind:
        case "conv":
            return CONVOLUTIONS[own](channels, **o)
        case "transposed":
            return TRANSPOSED[own](channels, **o)
        case "norm":
            return norm_of(o["name"], channels, own)
        case "act":
            return nn.PReLU(channels) if o["name"] == "prelu" else Apply(ACTIVATIONS[o["name"]])
        case "pad":
            return Apply(lambda x: F.pad(x, o["sizes"], o["mode"]))
        case "pool":
            how = {name: value for name, value in o.items() if name != "name"}
            return Apply(lambda x: POOLS[o["name"]][own](x, **how))
        case "resize":
            return Apply(lambda x, *like: F.interpolate(x, **o, **({"size": like[0].shape[2:]} if like else {})))
        case "excite":
            return Excite(channels, own, **o)
        case "spatial_gate":
            return SpatialGate(own, **o)
        case "film":
            return Film(shapes[1][1], channels)
        case "convnext":
            return ConvNext(channels, own, **o)
        case "tokens":
            return Tokens(channels, sides, **o)
        case "windows":
            return Windows(channels, sides, **o)
        case "head":
            return Head(channels, sides, **o)
        case "scale":
            return Scale(channels, own)
    return Apply(FUNCTIONS[step.kind](**o))


def _shifted(x: Tensor) -> Tensor:
    """Some channels moved by one place (TSM)."""
    first, second, rest = x.tensor_split((x.shape[1] // 8, x.shape[1] // 4), 1)
    ahead, behind = F.pad(first[..., 1:], (0, 1)), F.pad(second[..., :-1], (1, 0))
    return torch.cat([ahead, behind, rest], 1)


def _with_places(x: Tensor) -> Tensor:
    """Images get a channel of the places along each side (CoordConv)."""
    sides = [torch.linspace(-1, 1, size, dtype=x.dtype, device=x.device) for size in x.shape[2:]]
    places = torch.stack(torch.meshgrid(*sides, indexing="ij"))
    return torch.cat([x, places.expand(x.shape[0], *places.shape)], 1)


# Steps without weights: what makes their function of what they are told.
FUNCTIONS: dict[str, Callable[..., Callable[..., Tensor]]] = {
    "add": lambda: torch.add,
    "mul": lambda: torch.mul,
    "mul_sigmoid": lambda: lambda x, y: x * torch.sigmoid(y),
    "maximum": lambda: torch.maximum,
    "concat": lambda: lambda *parts: torch.cat(parts, 1),
    "pixel_shuffle": lambda by: lambda x: F.pixel_shuffle(x, by),
    "pixel_unshuffle": lambda by: lambda x: F.pixel_unshuffle(x, by),
    "channel_shuffle": lambda groups: lambda x: F.channel_shuffle(x, groups),
    "channels": lambda first, last: lambda x: x[:, first:last],
    "crop": lambda margins: lambda x: x[(..., *(slice(a, size - b) for (a, b), size in zip(margins, x.shape[2:])))],
    "flip": lambda dims: lambda x: x.flip(dims),
    "roll": lambda shifts, dims: lambda x: x.roll(shifts, dims),
    "swap": lambda: lambda x: x.transpose(-1, -2),
    "shifted": lambda: _shifted,
    "places": lambda: _with_places,
}


def build(net: Net, seed: int) -> tuple[Module, tuple[Tensor, ...]]:
    """The module in eval mode and arguments for it, on the CPU; the same for the same seed."""
    torch.manual_seed(seed)
    module = Module(net).eval().to(net.dtype).requires_grad_(False)
    return module, arguments(net, seed + 1)


def arguments(net: Net, seed: int, batch: int | None = None) -> tuple[Tensor, ...]:
    """Random arguments, on the CPU; of another batch where one is given."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(batch or size, *rest) for size, *rest in net.inputs]
    found = [torch.randn(size, generator=generator).to(net.dtype) for size in sizes]
    if net.channels_last and found[0].dim() > 3:
        order = torch.channels_last if found[0].dim() == 4 else torch.channels_last_3d
        found[0] = found[0].contiguous(memory_format=order)
    return tuple(found)


def open_sizes(net: Net) -> tuple[tuple[dict[int, Any], ...]] | None:
    """torch.export's `dynamic_shapes` of a network."""
    batch = torch.export.Dim("batch")
    return (tuple({0: batch} for _ in net.inputs),) if net.open else None  # of forward's *args
