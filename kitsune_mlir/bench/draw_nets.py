"""Random networks (random_nets.py) drawn by a seed: a few blocks one after another, each a pattern of models; or a
graph of linear layers, whose stages can have CTAs of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .random_nets import (
    ACTIVATIONS,
    LAST,
    MOST_ELEMENTS,
    MOST_WORK,
    NORMS,
    PAIRS,
    ROW_SUMS,
    ROWS,
    Net,
    NotANet,
    Step,
    width_of,
)


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
        self.widths.append(width_of(step, [self.widths[source] for source in sources]))
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

    def inputs_of(self, width: int) -> list[int]:
        """The inputs that have so many columns."""
        return [number for number, columns in enumerate(self.inputs) if columns == width]

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


ROLE_WIDTHS = (8, 16, 24, 64, 64, 72, 128, 128, 136, 200, 256, 320, 512, 600)  # rows of 16-bit elements by 16 bytes


def draw_roles(seed: int, most_rows: int | None = None) -> Net:
    """A net of a seed whose stages are most often roles where they are asked to be (place-stages=shape=spatial):
    products of 16-bit elements, of whose tiles nothing but products reads what comes from other stages. With at most so
    many rows."""
    r = random.Random(seed)
    rows = r.choice((1, 63, 128, 300, 700) if most_rows is not None else ROWS[1:])
    rows = rows if most_rows is None else min(rows, most_rows)
    d = _Draft(r, [r.choice((16, 64, 104, 128, 256)) for _ in range(r.choice((1, 1, 2)))])
    d.widths, made, read = list(d.inputs), list(range(len(d.inputs))), set[int]()
    for _ in range(r.randint(2, 4)):
        sources = [made[-1]] if r.random() < 0.7 else r.sample(made, min(2, len(made)))
        read.update(sources)
        x = d.add("concat", *sources) if len(sources) > 1 else sources[0]
        x = d.add("linear", x, size=r.choice(ROLE_WIDTHS), extra=int(r.random() < 0.7))
        if r.random() < 0.8:
            x = d.act(x)
        if (kind := r.random()) < 0.15:
            x = d.norm(x)
        elif kind < 0.25:
            x = d.add("mul", x, d.add("sigmoid", x))
        elif kind < 0.35 and (same := d.inputs_of(d.widths[x])):
            x = d.add("add", x, r.choice(same))
        made.append(x)
    ends = made[len(d.inputs) :]
    outputs = tuple(value for value in ends if value not in read or r.random() < 0.15)
    return Net(rows, r.choice(("bf16", "f16")), tuple(d.inputs), tuple(d.steps), outputs)


def _with_gather(d: _Draft) -> tuple[Step, ...]:
    """The steps, with rows of the first input gathered before all of them."""
    first = len(d.inputs)

    def moved(source: int) -> int:
        return first if source == 0 else source + (source >= first)

    steps = (replace(step, sources=tuple(map(moved, step.sources))) for step in d.steps)
    return (Step("gather", (0,)), *steps)
