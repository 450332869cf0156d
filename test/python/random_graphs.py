"""Random operator graphs over the rows of one tensor, as torch modules: what the property tests compile."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

UNARY = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "square": lambda x: x * x / 4,
    "softmax": lambda x: torch.softmax(x, -1),
    "mean": lambda x: x - x.mean(-1, keepdim=True),
    "most": lambda x: x - x.amax(-1, keepdim=True),
}
KINDS = ("linear", "linear", "layernorm", "add", "add", "scale", "concat", "slice", *UNARY)
WIDTHS = (1, 3, 8, 16, 21, 32)


@dataclass(frozen=True)
class Step:
    """One operator: its kind, the earlier values it reads, and a number that the kind gives a meaning."""

    kind: str
    sources: tuple[int, ...]
    size: int = 0


class Graph(nn.Module):
    """Runs the steps in order; gives the last value and every value in `outputs`, `total` summed over rows."""

    def __init__(self, width: int, steps: tuple[Step, ...], outputs: tuple[int, ...], total: int | None):
        super().__init__()
        self.steps, self.outputs, self.total = steps, outputs, total
        self.layers = nn.ModuleDict()
        widths = [width]
        for i, step in enumerate(steps):
            widths.append(step_width(step, widths))
            source = widths[step.sources[0]]
            if step.kind == "linear":
                self.layers[str(i)] = nn.Linear(source, step.size, bias=step.size % 2 == 0)
            elif step.kind == "layernorm":
                self.layers[str(i)] = nn.LayerNorm(source)

    def extra_repr(self) -> str:
        return f"{[(step.kind, step.sources, step.size) for step in self.steps]}, {self.outputs}, {self.total}"

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        values = [x]
        for i, step in enumerate(self.steps):
            values.append(self.apply_step(i, step, [values[source] for source in step.sources]))
        results = [values[-1], *(values[output] for output in self.outputs)]
        return (*results, values[self.total].flatten(0, -2).sum(0)) if self.total is not None else tuple(results)

    def apply_step(self, i: int, step: Step, sources: list[Tensor]) -> Tensor:
        first = sources[0]
        if step.kind in ("linear", "layernorm"):
            return self.layers[str(i)](first)
        if step.kind == "add":
            return first + sources[1]
        if step.kind == "scale":  # a column for all columns
            return first * sources[1][..., :1]
        if step.kind == "concat":
            return torch.cat(sources, -1)
        if step.kind == "slice":
            return first[..., step.size :]
        return UNARY[step.kind](first)


def step_width(step: Step, widths: list[int]) -> int:
    if step.kind == "linear":
        return step.size
    if step.kind == "concat":
        return sum(widths[source] for source in step.sources)
    return widths[step.sources[0]] - (step.size if step.kind == "slice" else 0)


@st.composite
def graphs(draw, most_steps: int = 9, most_outputs: int = 2) -> tuple[Graph, int]:
    """A graph whose values all hang on its first step, a product, and the width of its input."""
    width = draw(st.sampled_from(WIDTHS))
    widths, steps = [width], []
    count = draw(st.integers(2, most_steps))
    for i in range(count):
        # Mostly what was made last, so that graphs are deep; at times something earlier, so that they branch.
        source = draw(st.sampled_from([i, i, i, *range(min(1, i), i + 1)]))
        kind = draw(st.sampled_from(KINDS))
        step = Step(kind, (source,))
        if kind == "linear" or i == 0:
            step = Step("linear", (source,), draw(st.sampled_from(WIDTHS)))
        elif kind == "add":
            same = [j for j in range(i + 1) if widths[j] == widths[source]]
            step = Step("add", (source, draw(st.sampled_from(same))))
        elif kind == "scale":
            step = Step("scale", (source, draw(st.integers(0, i))))
        elif kind == "concat":
            step = Step("concat", (source, draw(st.integers(0, i))))
        elif kind == "slice":
            step = Step("slice", (source,), draw(st.integers(0, widths[source] - 1)))
        steps.append(step)
        widths.append(step_width(step, widths))
    outputs = draw(st.lists(st.integers(1, count), max_size=most_outputs, unique=True))
    total = draw(st.none() | st.integers(1, count))
    return Graph(width, tuple(steps), tuple(outputs), total), width
