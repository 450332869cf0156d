"""Random networks of images (random_images.py) drawn by a seed: a few blocks one after another, each a pattern of
models."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from .eager_time import Eager
from .image_draft import POINTWISE, Draft, NotANet
from .random_images import HALVES, Module, Net

LEAST_US, MOST_US = 20.0, 5000.0
MOST_SMALL_OPERATIONS = 4e7
_SIDES = {
    False: {
        1: (64, 100, 257, 500, 1024, 4000, 16000),
        2: (7, 14, 28, 31, 56, 64, 96, 112, 128, 224, 256),
        3: (7, 16, 24, 32, 64),
    },
    True: {1: (16, 33, 64, 100), 2: (7, 8, 14, 16, 19), 3: (4, 5, 8)},
}


def eager(net: Net) -> Eager:
    """What the network would take, and its operations."""
    with torch.device("meta"):
        module, inputs = Module(net).eval(), [torch.empty(size) for size in net.inputs]
    with torch.no_grad(), Eager(net.dtype) as found:
        module(*inputs)
    return found


def _convolutions(d: Draft, x: int) -> int:
    for _ in range(d.random.randint(1, 3)):
        pick, channels, stride = d.random.random(), d.channels(), d.pick(1, 1, 1, 2)
        if pick < 0.12:
            x = d.conv(x, d.channels_of(x) * d.pick(1, 1, 2), stride=stride, groups=d.channels_of(x))
        elif pick < 0.25:
            groups = d.divisor(d.channels_of(x))
            x = d.conv(x, groups * max(1, channels // groups), stride=stride, groups=groups)
        else:
            x = d.conv(x, channels, stride=stride)
        x = d.followed(x)
    return x


def _residual(d: Draft, x: int) -> int:
    channels = d.channels_of(x)
    h = d.followed(d.conv(x, channels, 3))
    h = d.conv(h, channels, 3)
    h = d.norm(h) if d.chance(0.8) else h
    h = d.add("scale", h) if d.chance(0.15) else h
    h = d.add("add", h, x)
    return d.act(h) if d.chance(0.7) else h


def _bottleneck(d: Draft, x: int) -> int:
    channels, hidden, stride = d.channels(), max(1, d.channels_of(x) // d.pick(1, 2, 4)), d.pick(1, 1, 2)
    h = d.followed(d.conv(x, hidden, 1))
    h = d.followed(d.conv(h, hidden, 3, stride, d.divisor(hidden) if d.chance(0.4) else 1))
    h = _excite(d, h) if d.chance(0.3) else h
    h = d.norm(d.conv(h, channels, 1))
    short = x if stride == 1 and d.channels_of(x) == channels else d.norm(d.conv(x, channels, 1, stride))
    return d.act(d.add("add", h, short))


def _inverted(d: Draft, x: int) -> int:
    hidden = d.pick(1, 2, 3, 4, 6) * d.channels_of(x)
    act = d.pick("relu6", "hardswish", "silu", "relu")
    h = d.add("act", d.add("norm", d.conv(x, hidden, 1), name="batch"), name=act)
    stride = d.pick(1, 1, 2)
    h = d.add("norm", d.conv(h, hidden, d.pick(3, 5, 7), stride, hidden), name="batch")
    h = _excite(d, h) if d.chance(0.5) else h
    h = d.add("norm", d.conv(d.add("act", h, name=act), d.channels_of(x), 1), name="batch")
    return d.add("add", h, x) if stride == 1 else h


def _excite(d: Draft, x: int) -> int:
    hidden = max(1, d.channels_of(x) // d.pick(2, 4, 16))
    act, gate = d.pick("relu", "silu"), d.pick("sigmoid", "hardsigmoid")
    return d.add("excite", x, hidden=hidden, layers=d.chance(0.4), act=act, gate=gate)


def _separable(d: Draft, x: int) -> int:
    x = d.conv(x, d.channels_of(x), d.pick(3, 5, 7), d.pick(1, 1, 2), d.channels_of(x))
    return d.followed(d.conv(d.followed(x), d.channels(), 1))


def _dense(d: Draft, x: int) -> int:
    growth = d.pick(8, 12, 16, 32) if not d.small else d.pick(3, 4, 8)
    for _ in range(d.random.randint(2, 4)):
        h = d.conv(d.followed(x), growth, 3)
        x = d.add("concat", x, h)
    return x


def _inception(d: Draft, x: int) -> int:
    width = max(1, d.channels() // 2)
    parts = [d.followed(d.conv(x, width, size)) for size in d.random.sample((1, 3, 5, 7), d.pick(2, 3))]
    if d.chance(0.5):
        pooled = d.add("pool", x, name=d.pick("max", "avg"), kernel_size=3, stride=1, padding=1)
        parts.append(d.followed(d.conv(pooled, width, 1)))
    return d.add("concat", *parts)


def _pool(d: Draft, x: int) -> int:
    name, sides = d.pick("max", "max", "avg", "avg", "lp", "adaptive_avg", "adaptive_max"), len(d.sides_of(x))
    if name.startswith("adaptive"):
        return d.add("pool", x, name=name, output_size=tuple(d.pick(1, 2, 3, 6, 7) for _ in range(sides)))
    kernel = d.each_side(x, d.pick(2, 2, 3, 3, 5), 1, 2, 3)
    if name == "lp":
        return d.add("pool", x, name=name, norm_type=2.0, kernel_size=kernel if sides > 1 else kernel[0])
    own: dict[str, Any] = {"count_include_pad": d.chance(0.6)} if name == "avg" else {}
    padding = tuple(k // 2 if d.chance(0.6) else 0 for k in kernel)
    stride = d.each_side(x, d.pick(1, 2, 2, 3), 1, 2)
    return d.add(
        "pool", x, name=name, kernel_size=kernel, stride=stride, padding=padding, ceil_mode=d.chance(0.2), **own
    )


def _up(d: Draft, x: int) -> int:
    sides = len(d.sides_of(x))
    pick = d.random.random()
    if pick < 0.3:
        size = d.pick(2, 2, 3, 4)
        stride = 2 if size > 2 or d.chance(0.8) else 1
        return d.followed(
            d.add(
                "transposed",
                x,
                out_channels=max(1, d.channels_of(x) // 2),
                kernel_size=size,
                stride=stride,
                padding=(size - 1) // 2,
                output_padding=int(size == 3 and stride == 2),
                groups=2 if d.channels_of(x) % 4 == 0 and d.chance(0.15) else 1,
                bias=d.chance(0.7),
            )
        )
    if pick < 0.45 and sides == 2:
        by = d.pick(2, 2, 3)
        return d.add("pixel_shuffle", d.conv(x, max(1, d.channels_of(x) // by) * by * by, 3), by=by)
    modes = {
        1: ("nearest", "linear"),
        2: ("nearest", "nearest-exact", "bilinear", "bicubic"),
        3: ("nearest", "trilinear"),
    }
    mode = d.pick(*modes[sides])
    corners = {} if mode.startswith("nearest") else {"align_corners": d.chance(0.4)}
    if d.chance(0.3):
        size = tuple(max(1, int(side * d.random.uniform(0.6, 2.2))) for side in d.sides_of(x))
        return d.add("resize", x, mode=mode, size=size, **corners)
    return d.add("resize", x, mode=mode, scale_factor=d.pick(2.0, 2.0, 0.5, 4.0), **corners)


def _u_shape(d: Draft, x: int) -> int:
    """Down, and up again with what was there on the way down."""
    skips, channels = [], d.channels()
    for level in range(d.pick(1, 2, 2, 3)):
        x = d.followed(d.conv(x, channels << level, 3))
        skips.append(x)
        down = d.chance(0.5)
        x = d.add("pool", x, name="max", kernel_size=2) if down else d.followed(d.conv(x, channels << level, 3, 2))
    x = _residual(d, x) if d.chance(0.5) else d.followed(d.conv(x, d.channels_of(x), 3))
    for skip in reversed(skips):
        if d.chance(0.5):
            x = d.add("transposed", x, out_channels=d.channels_of(skip), kernel_size=2, stride=2)
        x = d.matched(x, skip)
        x = d.add("concat", x, skip) if d.chance(0.7) else d.add("add", x, skip)
        x = d.followed(d.conv(x, d.channels_of(skip), 3))
    return x


def _pyramid(d: Draft, x: int) -> int:
    """Values of two resolutions whose layers are added (FPN)."""
    low = d.followed(d.conv(x, d.channels(), 3, 2))
    fine = d.conv(x, d.channels_of(low), 1)
    return d.conv(d.add("add", fine, d.matched(low, fine)), d.channels_of(low), 3)


def _rates(d: Draft, x: int) -> int:
    """Dilated convolutions side by side, and the mean of all places (ASPP)."""
    width = max(1, d.channels() // 2)
    parts = [d.followed(d.conv(x, width, 1))]
    for rate in d.random.sample((2, 3, 4, 6), 2):
        size = (3,) * len(d.sides_of(x))
        more = {"padding": rate, "dilation": rate, "bias": False}
        parts.append(d.followed(d.add("conv", x, out_channels=width, kernel_size=size, **more)))
    if d.chance(0.5):
        pooled = d.add("pool", x, name="adaptive_avg", output_size=(1,) * len(d.sides_of(x)))
        parts.append(d.matched(d.act(d.conv(pooled, width, 1)), parts[0]))
    return d.followed(d.conv(d.add("concat", *parts), d.channels(), 1))


def _convnext(d: Draft, x: int) -> int:
    for _ in range(d.pick(1, 1, 2)):
        x = d.add("convnext", x, size=d.pick(3, 5, 7, 7), times=d.pick(2, 4, 4), act=d.pick("gelu", "silu", "relu"))
    return d.add("norm", x, name="response") if d.chance(0.2) else x


def _patches(d: Draft, x: int) -> int:
    """A stem of patches, and blocks of tokens."""
    if max(d.sides_of(x)) > 16:
        by = d.pick(4, 7, 8, 16)
        x = d.conv(x, _of_heads(d), by, by) if d.chance(0.6) else d.conv(x, _of_heads(d), by + 1, by)
    else:
        x = d.conv(x, _of_heads(d), 1)
    if torch.Size(d.sides_of(x)).numel() > 1100:
        raise NotANet("too many tokens")
    blocks = tuple(d.pick("attention", "mixer", "channels") for _ in range(d.pick(1, 2, 3)))
    return d.add("tokens", x, blocks=blocks, heads=_heads(d, x))


def _of_heads(d: Draft) -> int:
    return d.pick(16, 24, 32, 48) if d.small else d.pick(48, 64, 96, 192, 256, 384)


def _heads(d: Draft, x: int) -> int:
    """Of 8 to 128 channels each."""
    fits = [h for h in range(1, 17) if d.channels_of(x) % h == 0 and 8 <= d.channels_of(x) // h <= 128]
    if not fits:
        raise NotANet("no number of heads fits")
    return d.random.choice(fits)


def _windows(d: Draft, x: int) -> int:
    if len(d.sides_of(x)) != 2:
        raise NotANet("windows of images alone")
    if d.channels_of(x) % 8 or d.channels_of(x) > 512:
        x = d.conv(x, _of_heads(d), 1)
    size = d.pick(4, 7, 8) if not d.small else d.pick(2, 4, 7)
    for shift in d.pick((0,), (0, size // 2), (size // 2,)):
        blocks = d.pick(("attention", "channels"), ("mixer",), ("attention",))
        x = d.add("windows", x, size=size, shift=shift, blocks=blocks, heads=_heads(d, x))
    return x


def _gated(d: Draft, x: int) -> int:
    pick = d.random.random()
    if pick < 0.35:
        return _excite(d, x)
    if pick < 0.55:
        return d.add("spatial_gate", x, size=d.pick(3, 7))
    if pick < 0.8:
        return d.add("act", d.conv(x, 2 * d.channels()), name=d.pick(*HALVES))
    gate = d.conv(x, d.channels_of(x), d.pick(1, 3))
    return d.add("mul_sigmoid", x, gate)


def _film(d: Draft, x: int) -> int:
    """Scaled by the second input; the first block that asks for it makes it."""
    if len(d.inputs) < 2:
        raise NotANet("no numbers")
    return d.act(d.add("film", d.norm(x), 1))


def _moved(d: Draft, x: int) -> int:
    sides = len(d.sides_of(x))
    dim = d.random.randrange(2, 2 + sides)
    kinds: dict[str, dict[str, Any]] = {
        "roll": {"shifts": (d.pick(1, 2, -3),), "dims": (dim,)},
        "flip": {"dims": (dim,)},
        "shifted": {},
        "places": {},
        "crop": {"margins": tuple((d.pick(0, 1), d.pick(0, 1, 2)) for _ in range(sides))},
        "pad": {
            "sizes": tuple(d.pick(0, 1, 2) for _ in range(2 * sides)),
            "mode": d.pick("reflect", "replicate", "circular", "constant"),
        },
        "channels": {"first": 0, "last": max(1, d.channels_of(x) // 2)},
    }
    if sides == 2:
        kinds |= {"swap": {}, "pixel_unshuffle": {"by": 2}}
    if sides > 1:
        kinds |= {"channel_shuffle": {"groups": d.divisor(d.channels_of(x))}}
    kind = d.pick(*kinds)
    return d.add(kind, x, **kinds[kind])


def _simple(d: Draft, x: int) -> int:
    return d.add("act", x, name=d.pick("channel_softmax", "channel_norm", "local_response", *POINTWISE))


def _joined(d: Draft, x: int) -> int:
    """A value is joined with an earlier one."""
    other = d.random.choice(d.images())
    kind = d.pick("add", "concat", "maximum", "mul_sigmoid")
    return d.add(kind, x, d.matched(other, x))


BLOCKS: tuple[tuple[Callable[[Draft, int], int], float], ...] = (
    (_convolutions, 4),
    (_residual, 2.5),
    (_bottleneck, 1.5),
    (_inverted, 1.5),
    (_separable, 1.5),
    (_dense, 1),
    (_inception, 1),
    (_pool, 1.5),
    (_up, 1.5),
    (_u_shape, 1.2),
    (_pyramid, 1),
    (_rates, 0.7),
    (_convnext, 1.2),
    (_patches, 1),
    (_windows, 0.8),
    (_gated, 1.2),
    (_film, 0.7),
    (_moved, 1.2),
    (_simple, 0.6),
    (_joined, 1),
)


def draw(seed: int, small: bool = False, open: bool = False) -> Net:
    """The network of a seed; a `small` one for the simulator; one whose batch is `open` until the call."""
    while True:
        net = _draw(random.Random(seed), small, open)
        if net is not None:
            cost = eager(net)
            if cost.operations <= MOST_SMALL_OPERATIONS if small else LEAST_US <= cost.us <= MOST_US:
                return net
        seed += 1_000_003


def _draw(r: random.Random, small: bool, open: bool) -> Net | None:
    sides = r.choice((1, 2, 2, 2, 2, 2, 3))
    batch = r.choice((2, 3) if small else (2, 3, 4, 8, 16, 32)) if open or r.random() < 0.7 else 1
    sizes = [r.choice(_SIDES[small][sides])] * sides
    if r.random() < 0.25:
        sizes = [r.choice(_SIDES[small][sides]) + r.choice((-1, 0, 1)) for _ in sizes]
    d = Draft(r, [], small)
    channels = r.choice((1, 2, 3, 3, 3, 4)) if r.random() < 0.5 else d.channels()
    d.inputs = [(batch, channels, *sizes)]
    if r.random() < 0.12:
        d.inputs.append((batch, r.choice((16, 100, 256))))
    d.shapes, x = list(d.inputs), 0
    for block in r.choices(*zip(*BLOCKS), k=r.randint(1, 3 if small else 6)):
        before = len(d.steps)
        try:
            x = block(d, x)
        except NotANet:
            del d.steps[before:], d.shapes[len(d.inputs) + before :]
    if not d.steps:
        return None
    outputs = [x]
    if r.random() < 0.2:
        outputs.append(r.choice(d.images()[1:]))
    if r.random() < 0.3:
        of = r.choice(("mean", "mean", "largest", "both", "all"))
        count = torch.Size(d.shapes[x][1:]).numel()
        if of != "all" or count <= (2000 if small else 30_000):
            classes, norm = r.choice((1, 10, 37) if small else (1, 10, 100, 1000)), r.random() < 0.3
            outputs[0] = d.add("head", x, of=of, classes=classes, norm=norm, softmax=classes > 1 and r.random() < 0.3)
    dtype = r.choice((torch.bfloat16, torch.bfloat16, torch.float16, torch.float32))
    return Net(
        dtype,
        tuple(d.inputs),
        tuple(d.steps),
        tuple(dict.fromkeys(outputs)),
        r.choice(("highest", "high", "high")) if dtype == torch.float32 else "highest",
        sides > 1 and r.random() < 0.3,
        open,
    )
