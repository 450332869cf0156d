"""Images with more of themselves around them: reflected, circular, or their last elements repeated. Each dimension is a
concatenation, whose parts are copied as they lie to where they belong, where torch's decompositions read each element
by number, or write the parts over zeros one after another. Where sizes are open elements are read by number, along all
dimensions at once: copies would be as many kernels as there are parts.

Tensors of open sizes that are repeated have a dimension of their copies beside each that is, which both then are one;
torch-mlir divides by the sizes, which may be none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

FEW = 8  # elements at an end that are parts of their own: any number of parts is copied by one kernel

# Gives the parts that come before and behind a dimension of an image.
Around = Callable[[Tensor, int, int, int], list[Sequence[Tensor]]]

Place = Callable[[Tensor, Any], Tensor]  # of numbers around a dimension of that size, the elements that stand there


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


def _reflected_place(n: Tensor, size: Any) -> Tensor:
    n = n.abs()
    return torch.minimum(n, 2 * (size - 1) - n)


def _repeated_place(n: Tensor, size: Any) -> Tensor:
    return n.clamp(min=0, max=size - 1)


def _circular_place(n: Tensor, size: Any) -> Tensor:
    return torch.where(n < 0, n + size, torch.where(n >= size, n - size, n))


def _by_number(x: Tensor, padding: Sequence[int], place: Place) -> Tensor:
    """All dimensions at once, each element by its number: of sizes that are open until the call."""
    count = len(padding) // 2
    places = []
    for number in range(count):
        size, (before, behind) = x.shape[number - count], padding[2 * (count - 1 - number) :][:2]
        own = torch.arange(-before, size + behind, device=x.device)
        places.append(place(own, size).view(-1, *[1] * (count - 1 - number)))
    return aten._unsafe_index(x, [*[None] * (x.dim() - count), *places])


def _rule(around: Around, place: Place) -> Callable[..., Any]:
    def rule(x: Tensor, padding: Sequence[Any]) -> Any:
        if not all(isinstance(size, int) for size in padding) or min(padding) < 0:
            return NotImplemented
        if not all(isinstance(size, int) for size in x.shape[-len(padding) // 2 :]):
            return _by_number(x, padding, place)
        for dim in range(x.dim() - len(padding) // 2, x.dim()):
            before, behind = padding[2 * (x.dim() - 1 - dim) :][:2]
            first, last = around(x, dim, before, behind)
            x = torch.cat([*(first if before else []), x, *(last if behind else [])], dim)
        return x

    return rule


def _copies(x: Tensor, repeats: Sequence[Any]) -> Any:
    if all(isinstance(size, int) for size in (*x.shape, *repeats)):
        return NotImplemented
    x = x[(None,) * (len(repeats) - x.dim())].clone()
    for dim, count in reversed(list(enumerate(repeats))):
        if not isinstance(count, int) or count != 1:
            sizes = [count if d == dim else -1 for d in range(x.dim() + 1)]
            x = x.unsqueeze(dim).expand(sizes).flatten(dim, dim + 1)
    return x


def _operators(name: str) -> list[Any]:
    return [getattr(aten, f"{name}_pad{rank}d").default for rank in (1, 2, 3)]


PADDING = {
    aten.repeat.default: _copies,
    **dict.fromkeys(_operators("reflection"), _rule(_reflected, _reflected_place)),
    **dict.fromkeys(_operators("replication"), _rule(_repeated, _repeated_place)),
    aten._pad_circular.default: _rule(_circular, _circular_place),
}
