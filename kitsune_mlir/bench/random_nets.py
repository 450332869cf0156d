"""Random networks over the rows of their inputs, as plain data: drawn by a seed, built as torch modules, made smaller.

A net is a list of steps, each of which reads earlier values; the inputs are the first values. Steps that have weights
find their sizes from what they read, so a net stays one when a step between others is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "elu": nn.functional.elu,
    "leaky_relu": nn.functional.leaky_relu,
    "softplus": nn.functional.softplus,
    "hardswish": nn.functional.hardswish,
    "square": lambda x: x * x / 4,
    "mish": nn.functional.mish,
    "bounded_exp": lambda x: torch.exp(x.clamp(max=3.0) - 3.0),
    "root": lambda x: torch.sqrt(x.abs() + 1e-3),
}
ROW_SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1, keepdim=True) / x.shape[-1] ** 0.5,
    "mean": lambda x: x.mean(-1, keepdim=True),
    "amax": lambda x: x.amax(-1, keepdim=True),
}
NORMS = ("layernorm", "rmsnorm", "batchnorm")
SAME_WIDTH = (*ACTIVATIONS, *NORMS, "softmax", "log_softmax", "scale", "clamp", "gather", "tied", "f32_norm")
PAIRS = ("add", "mul", "sub")
LAST = ("total", "gram")  # sums over the rows: nothing but an output reads them
ROWS = (0, 1, 2, 7, 16, 63, 64, 65, 100, 127, 128, 129, 200, 1000, 1876, 4096, 12544, 16384, 40000, 100003)
MOST_WORK = 3e11  # multiply-adds of a net
MOST_ELEMENTS = 1 << 27  # of one value


class NotANet(ValueError):
    """Steps that do not fit each other."""


@dataclass(frozen=True)
class Step:
    """One operator: its kind, the values it reads, and numbers that the kind gives a meaning: a linear layer's columns
    and whether it has a bias, a slice's first column and its columns."""

    kind: str
    sources: tuple[int, ...]
    size: int = 0
    extra: int = 0


@dataclass(frozen=True)
class Net:
    """`inputs` are widths; `outputs` are numbers of values, joined side by side where `joined`."""

    rows: int
    dtype: str
    inputs: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    precision: str = "highest"
    joined: bool = False
    tokens: int = 0  # rows are a batch of sequences of so many, where it is not 0

    def widths(self) -> list[int]:
        """The widths of all values. Raises NotANet where steps do not fit."""
        found = list(self.inputs)
        last = {number for number, step in enumerate(self.steps, len(found)) if step.kind in LAST}
        if self.joined and last & set(self.outputs):
            raise NotANet("sums over the rows beside rows")
        for step in self.steps:
            if any(source >= len(found) or source in last for source in step.sources):
                raise NotANet(f"{step} reads what comes later, or a sum over the rows")
            found.append(_width(step, [found[source] for source in step.sources]))
        return found

    def __str__(self) -> str:
        said = [f"{self.dtype} {self.precision}, {self.rows} rows of {', '.join(map(str, self.inputs))}"]
        if self.tokens:
            said.append(f"sequences of {self.tokens}")
        for number, step in enumerate(self.steps, len(self.inputs)):
            size = {"linear": f" {step.size}" + (" bias" if step.extra else ""), "slice": f" {step.size}+{step.extra}"}
            said.append(f"v{number} = {step.kind}{size.get(step.kind, '')}({', '.join(f'v{s}' for s in step.sources)})")
        return "; ".join([*said, f"-> {'cat ' if self.joined else ''}{', '.join(f'v{o}' for o in self.outputs)}"])


def _width(step: Step, widths: list[int]) -> int:
    match step.kind:
        case "linear":
            return step.size
        case "concat":
            return sum(widths)
        case "total" | "gram":
            return widths[0]
        case "slice":
            if step.size + step.extra > widths[0] or step.extra < 1:
                raise NotANet(f"{step} of {widths[0]} columns")
            return step.extra
        case kind if kind in ROW_SUMS:
            return 1
        case kind if kind in (*PAIRS, "mask"):
            if 1 not in widths and widths[0] != widths[1]:
                raise NotANet(f"{step} of {widths} columns")
            return max(widths)
        case kind if kind in SAME_WIDTH:
            return widths[0]
    raise NotANet(f"unknown {step}")


class Module(nn.Module):
    """Runs a net. Gathers take their rows from further inputs, of row numbers."""

    def __init__(self, net: Net):
        super().__init__()
        self.net, self.layers = net, nn.ModuleDict()
        widths = net.widths()
        for number, step in enumerate(net.steps, len(net.inputs)):
            source = widths[step.sources[0]]
            if step.kind == "linear":
                self.layers[str(number)] = nn.Linear(source, step.size, bias=bool(step.extra))
            elif step.kind == "tied":
                self.layers[str(number)] = nn.Linear(source, source)
            elif step.kind in NORMS:
                # An RMSNorm takes the epsilon of what it is given, so that it would be another one in float64.
                root = partial(nn.RMSNorm, eps=torch.finfo(DTYPES[net.dtype]).eps)
                kinds = {"layernorm": nn.LayerNorm, "rmsnorm": root, "batchnorm": nn.BatchNorm1d}
                self.layers[str(number)] = kinds[step.kind](source)
        for layer in self.layers.values():
            for name, value in (*layer.named_parameters(), *layer.named_buffers()):
                if name in ("running_var",) or name == "weight" and value.dim() == 1:
                    nn.init.uniform_(value, 0.5, 1.5)
                elif value.dim() == 1 and value.is_floating_point():
                    nn.init.uniform_(value, -0.5, 0.5)

    def forward(self, *given: Tensor) -> Any:
        count = len(self.net.inputs)
        values, numbers = list(given[:count]), iter(given[count:])
        for number, step in enumerate(self.net.steps, count):
            values.append(self._value(number, step, [values[source] for source in step.sources], numbers))
        outputs = [values[output] for output in self.net.outputs]
        if self.net.joined:
            return torch.cat(outputs, -1)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _value(self, number: int, step: Step, sources: list[Tensor], numbers: Iterator[Tensor]) -> Tensor:
        first = sources[0]
        match step.kind:
            case "batchnorm":
                return self.layers[str(number)](first.flatten(0, -2)).view_as(first)
            case "linear" | "layernorm" | "rmsnorm":
                return self.layers[str(number)](first)
            case "concat":
                return torch.cat(sources, -1)
            case "slice":
                return first[..., step.size : step.size + step.extra]
            case "softmax":
                return torch.softmax(first, -1)
            case "log_softmax":
                return torch.log_softmax(first, -1)
            case "tied":
                layer = self.layers[str(number)]
                return layer(torch.tanh(layer(torch.tanh(layer(first)))))
            case "f32_norm":
                wide = first.float() if first.dtype != torch.float64 else first
                return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(first.dtype)
            case "total":
                return first.flatten(0, -2).sum(0)
            case "gram":
                return first.flatten(0, -2).t() @ sources[1].flatten(0, -2)
            case "scale":
                return first * 0.75 + 0.25
            case "clamp":
                return first.clamp(-0.5, 1.0)
            case "gather":
                return first[next(numbers)]
            case "add":
                return first + sources[1]
            case "sub":
                return first - sources[1]
            case "mul":
                return first * sources[1]
            case "mask":
                return torch.where(sources[1] > 0.25, first, 0.5)
        return (ACTIVATIONS | ROW_SUMS)[step.kind](first)


def build(net: Net, seed: int) -> tuple[Module, tuple[Tensor, ...]]:
    """The module in eval mode and arguments for it, on the CPU; the same for the same seed."""
    torch.manual_seed(seed)
    dtype = DTYPES[net.dtype]
    module = Module(net).eval().to(dtype).requires_grad_(False)
    return module, arguments(net, seed + 1)


def arguments(net: Net, seed: int) -> tuple[Tensor, ...]:
    """Random arguments, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    leading = (net.rows // net.tokens, net.tokens) if net.tokens else (net.rows,)
    values = [torch.randn(*leading, width, generator=generator).to(DTYPES[net.dtype]) for width in net.inputs]
    gathers = sum(step.kind == "gather" for step in net.steps)
    return (*values, *(torch.randint(0, max(net.rows, 1), (net.rows,), generator=generator) for _ in range(gathers)))


@dataclass
class _Draft:
    """A net while it is drawn."""

    random: random.Random
    inputs: list[int]
    steps: list[Step] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    left: float = MOST_WORK  # multiply-adds of a row that may still come

    def add(self, kind: str, *sources: int, size: int = 0, extra: int = 0) -> int:
        """Appends a step; the number of its value."""
        step = Step(kind, sources, size, extra)
        self.widths.append(_width(step, [self.widths[source] for source in sources]))
        self.steps.append(step)
        return len(self.widths) - 1

    def linear(self, source: int, columns: int) -> int:
        """Fewer columns where the work of a row would be too much."""
        columns = max(1, min(columns, int(self.left / max(1, self.widths[source]))))
        self.left -= columns * self.widths[source]
        return self.add("linear", source, size=columns, extra=int(self.random.random() < 0.7))

    def act(self, source: int) -> int:
        return self.add(self.random.choice([*ACTIVATIONS]), source)

    def norm(self, source: int) -> int:
        return self.add(self.random.choice(NORMS), source)

    def matched(self, source: int, width: int) -> int:
        """The value, or a linear layer of it, of this width."""
        return source if self.widths[source] == width else self.linear(source, width)

    def width(self) -> int:
        """A number of columns: round ones most often, any now and then."""
        pick = self.random.random()
        if pick < 0.45:
            return self.random.choice((16, 32, 64, 64, 128, 128, 256, 256, 512, 1024))
        if pick < 0.75:
            return 8 * self.random.randint(1, 64)
        if pick < 0.95:
            return self.random.randint(1, 400)
        return self.random.choice((1536, 2048, 2816, 4096))

    def any(self) -> int:
        return self.random.randrange(len(self.widths))


def _layers(d: _Draft, x: int) -> int:
    width = d.width()
    for _ in range(d.random.randint(1, 4)):
        x = d.linear(x, width if d.random.random() < 0.6 else d.width())
        if d.random.random() < 0.85:
            x = d.act(x)
    return x


def _prenorm(d: _Draft, x: int) -> int:
    h = d.linear(d.norm(x), d.random.choice((1, 2, 4)) * d.widths[x])
    return d.add("add", x, d.matched(d.linear(d.act(h), d.widths[x]), d.widths[x]))


def _postnorm(d: _Draft, x: int) -> int:
    h = d.matched(d.act(d.linear(x, d.widths[x])), d.widths[x])
    return d.norm(d.add("add", h, x))


def _glu(d: _Draft, x: int) -> int:
    """Two products, or the halves of one."""
    width = d.width()
    if d.random.random() < 0.5:
        gate = d.act(d.linear(x, width))
        value = d.linear(x, d.widths[gate])
        if d.widths[value] != d.widths[gate]:
            value = d.add("slice", gate, size=0, extra=d.widths[gate])
    else:
        both = d.linear(x, 2 * width)
        if (half := d.widths[both] // 2) == 0:
            return both
        value, gate = (d.add("slice", both, size=at, extra=half) for at in (0, half))
        gate = d.act(gate)
    return d.linear(d.add("mul", value, gate), d.width())


def _heads(d: _Draft, x: int) -> int:
    parts = [d.linear(x, d.width() if d.random.random() < 0.5 else d.random.randint(1, 16)) for _ in range(2)]
    parts += [d.linear(x, d.random.randint(1, 64))] if d.random.random() < 0.4 else []
    parts = [d.act(part) if d.random.random() < 0.4 else part for part in parts]
    if d.random.random() < 0.4:
        parts.append(d.any())
    return d.add("concat", *parts)


def _joined(d: _Draft, x: int) -> int:
    others = [d.any() for _ in range(d.random.randint(1, 2))]
    return d.linear(d.add("concat", *d.random.sample([x, *others], 1 + len(others))), d.width())


def _gate(d: _Draft, x: int) -> int:
    gate = d.add("sigmoid", d.linear(x, d.widths[x]))
    return d.add("mul", x, gate) if d.widths[gate] == d.widths[x] else gate


def _scaled_rows(d: _Draft, x: int) -> int:
    """By a column: one of another value, one computed, or a sum over the row."""
    pick = d.random.random()
    if pick < 0.35:
        by = d.add(d.random.choice([*ROW_SUMS]), x)
    elif pick < 0.7:
        other = d.any()
        by = d.add("slice", other, size=d.random.randrange(d.widths[other]), extra=1)
    else:
        by = d.linear(x, 1)
    return d.add(d.random.choice(PAIRS), x, by)


def _normed(d: _Draft, x: int) -> int:
    return d.norm(x)


def _softmax(d: _Draft, x: int) -> int:
    return d.add(d.random.choice(("softmax", "softmax", "log_softmax", "f32_norm")), x)


def _tied(d: _Draft, x: int) -> int:
    """One layer three times."""
    x = d.linear(x, d.width())
    if d.widths[x] > 512:
        return x
    d.left -= 3 * d.widths[x] ** 2
    return d.add("tied", x)


def _masked(d: _Draft, x: int) -> int:
    """By an input, which all sides have alike: a computed number near the limit falls on either side of it."""
    by = d.random.randrange(len(d.inputs))
    if d.widths[by] != d.widths[x]:
        by = d.add("slice", by, size=d.random.randrange(d.widths[by]), extra=1)
    return d.add("mask", x, by)


def _simple(d: _Draft, x: int) -> int:
    return d.add(d.random.choice(("scale", "clamp", *ACTIVATIONS)), x)


def _residual(d: _Draft, x: int) -> int:
    other = d.any()
    return d.add("add", d.matched(x, d.widths[other]), other) if d.widths[other] > 1 else x


def _sliced(d: _Draft, x: int) -> int:
    first = d.random.randrange(d.widths[x])
    return d.add("slice", x, size=first, extra=d.random.randint(1, d.widths[x] - first))


BLOCKS: tuple[tuple[Callable[[_Draft, int], int], float], ...] = (
    (_layers, 4),
    (_prenorm, 2),
    (_postnorm, 1),
    (_glu, 1.5),
    (_heads, 1.5),
    (_joined, 1.5),
    (_gate, 1),
    (_scaled_rows, 1),
    (_normed, 1),
    (_softmax, 0.7),
    (_tied, 0.5),
    (_masked, 0.5),
    (_simple, 0.7),
    (_residual, 1),
    (_sliced, 0.5),
)


def draw(seed: int, most_rows: int | None = None) -> Net:
    """The net of a seed; with at most so many rows."""
    r = random.Random(seed)
    rows = r.choice(ROWS) if r.random() < 0.6 else int(2 ** r.uniform(0, 16.6))
    if most_rows is not None:
        rows = min(rows, r.randint(1, most_rows))
    d = _Draft(r, [])
    d.inputs = [d.width() for _ in range(r.choice((1, 1, 1, 2, 2, 3)))]
    d.widths, d.left = list(d.inputs), MOST_WORK / max(rows, 1000)
    if most_rows is not None:
        d.left = min(d.left, 1.5e5)  # simulated multiply-adds take time
    x = 0
    for block in r.choices(*zip(*BLOCKS), k=r.randint(1, 5)):
        if max(d.widths) * max(rows, 1) > MOST_ELEMENTS:
            break
        before = len(d.steps)
        try:
            x = block(d, x)
        except NotANet:  # a linear layer became narrower than the block wants it, for the sake of its work
            del d.steps[before:], d.widths[len(d.inputs) + before :]
            break
    dtype = r.choice(("bf16", "bf16", "bf16", "f16", "f32"))
    tokens = r.choice((1, 4, 10)) if rows and r.random() < 0.1 else 0
    if tokens:
        rows = max(tokens, rows // tokens * tokens)
    if r.random() < 0.12 and d.widths[x] <= 512:
        others = [value for value, width in enumerate(d.widths) if width <= 512]
        kind = r.choice(LAST)
        d.add(kind, x, *([r.choice(others)] if kind == "gram" else []))
    steps = _with_gather(d) if not tokens and r.random() < 0.08 else tuple(d.steps)
    if not steps:
        return draw(seed + 1_000_003, most_rows)
    last = len(d.inputs) + len(steps) - 1
    outputs = sorted({last, *(r.randrange(len(d.inputs), last + 1) for _ in range(r.choice((0, 0, 0, 1, 2))))})
    may_join = len(outputs) > 1 and steps[-1].kind not in LAST
    precision = r.choice(("highest", "highest", "high")) if dtype == "f32" else "highest"
    joined = may_join and r.random() < 0.3
    return Net(rows, dtype, tuple(d.inputs), steps, tuple(outputs), precision, joined, tokens)


def _with_gather(d: _Draft) -> tuple[Step, ...]:
    """The steps, with rows of the first input gathered before all of them."""
    first = len(d.inputs)

    def moved(source: int) -> int:
        return first if source == 0 else source + (source >= first)

    steps = (replace(step, sources=tuple(map(moved, step.sources))) for step in d.steps)
    return (Step("gather", (0,)), *steps)


def smaller(net: Net) -> Iterator[Net]:
    """Nets that are one move smaller than this one, the most promising first."""
    first = len(net.inputs)
    if len(net.outputs) > 1:
        for output in net.outputs:
            yield pruned(replace(net, outputs=(output,), joined=False))
    for rows in (1, 129, net.rows // 2):
        if 0 <= rows < net.rows:
            yield replace(net, rows=rows, tokens=0)
    if net.tokens:
        yield replace(net, tokens=0)
    for number in reversed(range(len(net.steps))):
        value = first + number
        for stand_in in dict.fromkeys(net.steps[number].sources):
            yield _without(net, value, stand_in)
    for number, step in enumerate(net.steps):
        if step.kind == "linear":
            for size in (1, 8, 16, 64, step.size // 2):
                if 0 < size < step.size:
                    yield _changed(net, number, size=size)
            if step.extra:
                yield _changed(net, number, extra=0)
        elif len(step.sources) > 2:
            for left in range(len(step.sources)):
                yield _changed(net, number, sources=step.sources[:left] + step.sources[left + 1 :])
    for number, width in enumerate(net.inputs):
        for size in (1, 8, 16, 64, width // 2):
            if 0 < size < width:
                yield replace(net, inputs=(*net.inputs[:number], size, *net.inputs[number + 1 :]))


def _changed(net: Net, number: int, **fields: Any) -> Net:
    steps = list(net.steps)
    steps[number] = replace(steps[number], **fields)
    return replace(net, steps=tuple(steps))


def _without(net: Net, value: int, stand_in: int) -> Net:
    """Leaves a step out; another value stands where its own was read, and what nothing reads goes too."""

    def moved(read: int) -> int:
        read = stand_in if read == value else read
        return read - (read > value)

    number = value - len(net.inputs)
    steps = tuple(
        replace(step, sources=tuple(map(moved, step.sources)))
        for step in (*net.steps[:number], *net.steps[number + 1 :])
    )
    outputs = tuple(dict.fromkeys(map(moved, net.outputs)))
    return pruned(replace(net, steps=steps, outputs=outputs))


def pruned(net: Net) -> Net:
    """Without steps and inputs that no output needs."""
    first, needed = len(net.inputs), set(net.outputs)
    for number in reversed(range(len(net.steps))):
        if first + number in needed:
            needed |= set(net.steps[number].sources)
    kept = [value for value in range(first + len(net.steps)) if value in needed]
    inputs = tuple(net.inputs[value] for value in kept if value < first)
    place = {value: at for at, value in enumerate(kept)}
    steps = tuple(
        replace(net.steps[value - first], sources=tuple(place[s] for s in net.steps[value - first].sources))
        for value in kept
        if value >= first
    )
    return replace(net, inputs=inputs, steps=steps, outputs=tuple(place[o] for o in net.outputs))


def is_net(net: Net) -> bool:
    """Whether its steps fit each other and its outputs are computed."""
    try:
        net.widths()
    except NotANet:
        return False
    return bool(net.inputs) and bool(net.steps)
