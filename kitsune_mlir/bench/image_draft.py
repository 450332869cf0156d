"""A network of images while it is drawn: its values so far, and the steps that most blocks of draw_images.py take."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch

from .random_images import ACTIVATIONS, HALVES, Sizes, Step, result_of

MOST_ELEMENTS = {False: 1 << 25, True: 1 << 15}  # of one value; of a small network, for the simulator
FEWEST = 8  # numbers that a norm is over
POINTWISE = [name for name in ACTIVATIONS if name not in (*HALVES, "channel_softmax", "channel_norm", "local_response")]
USUAL = ("relu", "relu", "silu", "silu", "gelu", "gelu", "leaky_relu", "hardswish")


class NotANet(ValueError):
    """A step that cannot be, or would be too large."""


@dataclass
class Draft:
    """A network while it is drawn."""

    random: random.Random
    inputs: list[Sizes]
    small: bool
    steps: list[Step] = field(default_factory=list)
    shapes: list[Sizes] = field(default_factory=list)

    def add(self, kind: str, *sources: int, **options: Any) -> int:
        """Appends a step; the number of its value."""
        step = Step(kind, sources, options)
        try:
            shape = result_of(step, [self.shapes[source] for source in sources])
        except (RuntimeError, ValueError, IndexError, AssertionError) as error:
            raise NotANet(f"{step}: {error}") from error
        if min(shape) < 1 or torch.Size(shape).numel() > MOST_ELEMENTS[self.small] or shape[0] != self.inputs[0][0]:
            raise NotANet(f"{step}: {shape}")
        self.shapes.append(shape)
        self.steps.append(step)
        return len(self.shapes) - 1

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def pick(self, *of: Any) -> Any:
        return self.random.choice(of)

    def channels_of(self, x: int) -> int:
        return self.shapes[x][1]

    def sides_of(self, x: int) -> Sizes:
        return self.shapes[x][2:]

    def images(self) -> list[int]:
        """The values that are images."""
        return [number for number, shape in enumerate(self.shapes) if len(shape) > 2]

    def channels(self) -> int:
        """A number of channels: round ones most often, any now and then."""
        if self.small:
            return self.pick(3, 4, 7, 8, 12, 16, 16, 24, 32, 32, 40)
        pick = self.random.random()
        if pick < 0.5:
            return self.pick(16, 32, 32, 64, 64, 64, 96, 128, 128, 256, 256, 512)
        return 8 * self.random.randint(1, 40) if pick < 0.75 else self.random.randint(3, 200)

    def divisor(self, of: int) -> int:
        return self.random.choice([d for d in range(1, of + 1) if of % d == 0])

    def each_side(self, x: int, usual: int, *others: int, odd: float = 0.12) -> Sizes:
        """The same for each side, or now and then another one for each."""
        sides = len(self.sides_of(x))
        return tuple(self.pick(usual, *others) for _ in range(sides)) if self.chance(odd) else (usual,) * sides

    def act(self, x: int) -> int:
        if self.chance(0.6):
            return self.add("act", x, name=self.pick(*USUAL))
        return self.add("act", x, name=self.pick(*POINTWISE, "prelu"))

    def norm(self, x: int) -> int:
        """Not over fewer numbers than make a variance that is more than rounding."""
        groups = self.random.choice([d for d in range(1, 33) if self.channels_of(x) % d == 0])
        names = ("batch",) * 6 + (f"group{groups}",) * 3 + ("instance", "plain_instance", "moved", "written", "rms")
        name, places = self.pick(*names), torch.Size(self.sides_of(x)).numel()
        own = {"moved": self.channels_of(x), "written": self.channels_of(x), "rms": self.channels_of(x)}
        own |= {"instance": places, "plain_instance": places, f"group{groups}": places * self.channels_of(x) // groups}
        return self.add("norm", x, name=name if own.get(name, FEWEST) >= FEWEST else "batch")

    def conv(self, x: int, channels: int, size: int | None = None, stride: int = 1, groups: int = 1) -> int:
        """A convolution of that size, of any at None."""
        usual = size if size is not None else self.pick(3, 3, 3, 3, 1, 1, 2, 4, 5, 7)
        kernel = self.each_side(x, usual, 1, 2, 3, 5, 7, odd=0.15 if size is None else 0)
        strides = self.each_side(x, stride, 1, 2, 3, odd=0.05 if size is None else 0)
        dilation = self.each_side(x, 1 if self.chance(0.85) or size is not None else self.pick(2, 3, 4), 1, 2)
        mode = "zeros" if self.chance(0.8) else self.pick("reflect", "replicate", "circular")
        padding: Sizes = tuple((k - 1) * d // 2 for k, d in zip(kernel, dilation))
        if size is None and self.chance(0.15):
            padding = (0,) * len(kernel)
        elif size is None and self.chance(
            0.12
        ):  # of one side more than of the other, as TensorFlow's and causal ones are
            reach = [(k - 1) * d for k, d in zip(kernel, dilation)]
            before = [r if self.chance(0.3) else r // 2 for r in reach]
            sizes = [size for b, r in zip(before[::-1], reach[::-1]) for size in (b, r - b)]
            x, padding = self.add("pad", x, sizes=tuple(sizes), mode="constant"), (0,) * len(kernel)
        return self.add(
            "conv",
            x,
            out_channels=channels,
            kernel_size=kernel,
            stride=strides,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=self.chance(0.6),
            padding_mode=mode if any(padding) else "zeros",
        )

    def followed(self, x: int) -> int:
        """By a norm and an activation, most often."""
        x = self.norm(x) if self.chance(0.75) else x
        return self.act(x) if self.chance(0.85) else x

    def matched(self, x: int, like: int) -> int:
        """The value with as many channels, and as large, as another one."""
        if self.sides_of(x) != self.sides_of(like):
            modes = {1: ("nearest", "linear"), 2: ("nearest", "bilinear"), 3: ("nearest", "trilinear")}
            x = self.add("resize", x, like, mode=self.pick(*modes[len(self.sides_of(x))]))
        return x if self.channels_of(x) == self.channels_of(like) else self.conv(x, self.channels_of(like), 1)
