"""Random networks over the rows of their inputs, as plain data (drawn by a seed in draw_nets.py, made smaller in
smaller_nets.py), and as torch modules.

A net is a list of steps, each of which reads earlier values; the inputs are the first values. Steps that have weights
find their sizes from what they read, so a net stays one when a step between others is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
            found.append(width_of(step, [found[source] for source in step.sources]))
        return found

    def __str__(self) -> str:
        said = [f"{self.dtype} {self.precision}, {self.rows} rows of {', '.join(map(str, self.inputs))}"]
        if self.tokens:
            said.append(f"sequences of {self.tokens}")
        for number, step in enumerate(self.steps, len(self.inputs)):
            size = {"linear": f" {step.size}" + (" bias" if step.extra else ""), "slice": f" {step.size}+{step.extra}"}
            said.append(f"v{number} = {step.kind}{size.get(step.kind, '')}({', '.join(f'v{s}' for s in step.sources)})")
        return "; ".join([*said, f"-> {'cat ' if self.joined else ''}{', '.join(f'v{o}' for o in self.outputs)}"])


def width_of(step: Step, widths: list[int]) -> int:
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


def is_net(net: Net) -> bool:
    """Whether its steps fit each other and its outputs are computed."""
    try:
        net.widths()
    except NotANet:
        return False
    return bool(net.inputs) and bool(net.steps)
