"""Images with more of themselves around them: reflected, circular, or their last elements repeated. Each dimension is a
concatenation, whose parts are copied as they lie to where they belong, where torch's decompositions read each element
by number, or write the parts over zeros one after another. Where sizes are open elements are read where they lie, along
all dimensions at once: copies would be as many kernels as there are parts.

Tensors of open sizes that are repeated have a dimension of their copies beside each that is, which both then are one;
torch-mlir divides by the sizes, which may be none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .own_operators import AROUND
from .sampled_elements import CIRCULAR, REFLECTED, REPEATED
from .shapes import are_known

aten = torch.ops.aten

FEW = 8  # elements at an end that are parts of their own: any number of parts is copied by one kernel

# Gives the parts that come before and behind a dimension of an image.
Around = Callable[[Tensor, int, int, int], list[Sequence[Tensor]]]


def _reflected(x: Tensor, dim: int, before: int, behind: int) -> list[Sequence[Tensor]]:
    last = x.shape[dim] - 1
    if max(before, behind) > FEW:
        ends = x.narrow(dim, 1, before), x.narrow(dim, last - behind, behind)
        return [[end.flip(dim)] for end in ends]
    first = [x.narrow(dim, place, 1) for place in range(before, 0, -1)]
    return [first, [x.narrow(dim, last - place, 1) for place in range(1, behind + 1)]]


def _repeated(x: Tensor, dim: int, before: int, behind: int) -> list[Sequence[Tensor]]:
    ends = (x.narrow(dim, 0, 1), before), (x.narrow(dim, x.shape[dim] - 1, 1), behind)
    if max(before, behind) > FEW:
        return [[end.expand([count if d == dim else -1 for d in range(x.dim())])] for end, count in ends]
    return [[end] * count for end, count in ends]


def _circular(x: Tensor, dim: int, before: int, behind: int) -> list[Sequence[Tensor]]:
    return [[x.narrow(dim, x.shape[dim] - before, before)], [x.narrow(dim, 0, behind)]]


def _rule(around: Around, way: int) -> Callable[..., Any]:
    def rule(x: Tensor, padding: Sequence[Any]) -> Any:
        if not are_known(padding) or min(padding) < 0:
            return NotImplemented
        if not are_known(x.shape[-len(padding) // 2 :]):
            return AROUND(x, padding, way)
        for dim in range(x.dim() - len(padding) // 2, x.dim()):
            before, behind = padding[2 * (x.dim() - 1 - dim) :][:2]
            first, last = around(x, dim, before, behind)
            x = torch.cat([*(first if before else []), x, *(last if behind else [])], dim)
        return x

    return rule


def _copies(x: Tensor, repeats: Sequence[Any]) -> Any:
    if are_known((*x.shape, *repeats)):
        return NotImplemented
    x = x[(None,) * (len(repeats) - x.dim())]
    for dim, count in reversed(list(enumerate(repeats))):
        if not isinstance(count, int) or count != 1:
            sizes = [count if d == dim else -1 for d in range(x.dim() + 1)]
            x = x.unsqueeze(dim).expand(sizes).flatten(dim, dim + 1)
    return x.clone()  # for models write to it


def _operators(name: str) -> list[Any]:
    return [getattr(aten, f"{name}_pad{rank}d").default for rank in (1, 2, 3)]


PADDING = {
    aten.repeat.default: _copies,
    **dict.fromkeys(_operators("reflection"), _rule(_reflected, REFLECTED)),
    **dict.fromkeys(_operators("replication"), _rule(_repeated, REPEATED)),
    aten._pad_circular.default: _rule(_circular, CIRCULAR),
}
