"""Random numbers in graphs that AOTAutograd makes: computed of the place of an element and of a seed that torch draws.

Two words of a seed and an element's number are mixed by multiplications and shifts (the finaliser of C. Wellons' hash
prospector, with a key between its rounds), some twelve instructions a number. What a backward pass needs again it
computes again: a mask is kept as its seed. The numbers are others than torch's own, as those of any of its compilers;
torch.manual_seed makes them the same again. They are not for secrets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from .working import working

aten = torch.ops.aten

LEAST, MOST = -(2**62), 2**62  # of seeds
_SPREAD, _FIRST, _SECOND = (n - 2**32 if n >= 2**31 else n for n in (0x9E3779B1, 0x7FEB352D, 0x846CA68B))


def _uniform(shape: Sequence[Any], like: Any) -> Tensor:
    """Numbers of f32, at least 0 and below 1, in steps of 2^-24."""
    seed = aten.randint.low(LEAST, MOST, [1], device=like)
    high, low = (seed >> 32).to(torch.int32), seed.to(torch.int32)
    x = torch.arange(math.prod(shape), dtype=torch.int32, device=like).view(list(shape))
    x = x * _SPREAD + low
    x = (x ^ _shifted(x, 16)) * _FIRST
    x = x ^ high
    x = (x ^ _shifted(x, 15)) * _SECOND
    x = x ^ _shifted(x, 16)
    return _shifted(x, 8).to(torch.float32) * 2**-24


def _shifted(x: Tensor, bits: int) -> Tensor:
    """The words to the right, zeros behind them."""
    return (x >> bits) & (2 ** (32 - bits) - 1)


def _normal(shape: Sequence[Any], like: Any) -> Tensor:
    """By G. Box and M. Muller's polar form."""
    radius = (-2.0 * (1.0 - _uniform(shape, like)).log()).sqrt()
    return radius * (_uniform(shape, like) * (2 * math.pi)).cos()


def rand(size: Sequence[Any], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _uniform(size, device).to(dtype or torch.get_default_dtype())


def rand_like(x: Tensor, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _uniform(x.shape, device or x.device).to(dtype or x.dtype)


def randn(size: Sequence[Any], *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _normal(size, device).to(dtype or torch.get_default_dtype())


def randn_like(x: Tensor, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return _normal(x.shape, device or x.device).to(dtype or x.dtype)


def uniform(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Any:
    return NotImplemented if generator else (_uniform(x.shape, x.device) * (high - low) + low).to(x.dtype)


def normal(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    return NotImplemented if generator else (_normal(x.shape, x.device) * std + mean).to(x.dtype)


def exponential(x: Tensor, rate: float = 1.0, *, generator: Any = None) -> Any:
    return NotImplemented if generator else ((1.0 - _uniform(x.shape, x.device)).log() * (-1 / rate)).to(x.dtype)


def bernoulli(x: Tensor, *, generator: Any = None) -> Any:
    return NotImplemented if generator else (_uniform(x.shape, x.device) < x).to(x.dtype)


def bernoulli_of(x: Tensor, p: Any = 0.5, *, generator: Any = None) -> Any:
    return NotImplemented if generator else (_uniform(x.shape, x.device) < p).to(x.dtype)


def dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """What is kept, and which elements those are."""
    if train is False or p == 0.0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1.0:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    kept = _uniform(x.shape, x.device) >= p
    return torch.where(kept, working(x) * (1 / (1 - p)), 0.0).to(x.dtype), kept


def lift(graph: Graph, last: Node) -> Callable[[Any], list[Tensor]]:
    """Makes random numbers that are drawn of no tensor, seeds among them, placeholders behind `last`; all seeds are
    one. Gives what draws them: a function of the device, whose results are dense."""
    found = [node for node in graph.nodes if node.op == "call_function" and _is_drawn(node)]
    seeds = [node for node in found if node.target is aten.randint.low and node.args[:2] == (LEAST, MOST)]
    others = [node for node in found if node not in seeds]
    draws: list[Callable[[Any], Tensor]] = []
    for node in others:
        with graph.inserting_after(last):
            last = graph.placeholder(f"drawn_{node.name}")
        last.meta = dict(node.meta)
        node.replace_all_uses_with(last)
        kwargs = {name: value for name, value in node.kwargs.items() if name not in ("device", "pin_memory")}
        draws.append(lambda device, node=node, kwargs=kwargs: node.target(*node.args, **kwargs, device=device))
    if seeds:
        count = len(seeds)
        with graph.inserting_after(last):
            held = graph.placeholder("seeds")
        held.meta["val"] = seeds[0].meta["val"].new_empty((count,))
        for i, node in enumerate(seeds):
            with graph.inserting_before(node):
                own = graph.call_function(aten.slice.Tensor, (held, 0, i, i + 1))
            own.meta = dict(node.meta)
            node.replace_all_uses_with(own)
        draws.append(lambda device: torch.randint(LEAST, MOST, (count,), device=device))
    for node in found:
        graph.erase_node(node)
    return lambda device: [draw(device) for draw in draws]


def _is_drawn(node: Node) -> bool:
    seeded = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
    return seeded and not node.all_input_nodes


RANDOM = {
    aten.rand.default: rand,
    aten.rand_like.default: rand_like,
    aten.randn.default: randn,
    aten.randn_like.default: randn_like,
    aten.uniform.default: uniform,
    aten.normal_functional.default: normal,
    aten.exponential.default: exponential,
    aten.bernoulli.default: bernoulli,
    aten.bernoulli.p: bernoulli_of,
    aten.bernoulli.Tensor: bernoulli_of,
    aten.native_dropout.default: dropout,
}
