"""Decompositions of operators that move elements, or find their places: bags of embeddings, assignments under a mask,
searches among boundaries, rolls, paddings that cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from .own_operators import ROLLED
from .shapes import are_known
from .working import working

aten = torch.ops.aten

_FEW_BOUNDARIES = 16  # which take less time to compare with all than to look up one after the other

SUM, MEAN, MAX = range(3)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The reduced bags; the bag of each index, the sizes of the bags, and which index had the maximum.

    Bags of one size, which is what F.embedding_bag makes of a 2-D index, are a gather and a sum of rows that can
    stream; any others are a sum of rows by the number of their bag.
    """
    size = common_size(offsets)
    if size is None or (padding_idx >= 0 and mode == MAX) or include_last_offset:
        out, bag, *rest = _bags(weight, indices, offsets, mode, per_sample_weights, padding_idx)
        if include_last_offset:  # where the last bag ends, and what belongs to none begins
            return out[:-1], bag, *(part[:-1] for part in rest)
        return out, bag, *rest
    rows = aten.embedding(weight, indices).view(-1, size, weight.shape[1])
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.view(-1, size, 1)
    counted = None
    if padding_idx >= 0:
        counted = indices.view(-1, size) != padding_idx
        rows = torch.where(counted[..., None], rows, 0)
    if mode == SUM:
        return rows.sum(1), *_of_sum(offsets)
    bag = torch.div(torch.arange(indices.shape[0], device=indices.device), size, rounding_mode="trunc")
    sizes = torch.full_like(offsets, size)
    if counted is not None:
        sizes = counted.sum(1).to(offsets.dtype)
        return rows.sum(1) / sizes.clamp(min=1)[:, None].to(rows.dtype), bag, sizes, sizes
    if mode == MEAN:
        return rows.mean(1), bag, sizes, sizes
    return rows.amax(1), bag, sizes, indices.view(-1, size).gather(1, rows.argmax(1))


def common_size(offsets: Tensor) -> int | None:
    """The size of bags that start at 0, n, 2 n, ...; None where the data says where they start."""
    mode = get_proxy_mode()
    slot = None if mode is None else get_proxy_slot(offsets, mode.tracer, None)
    node = None if slot is None else slot.proxy.node
    if node is None or node.target is not aten.arange.start_step or node.args[0] != 0 or len(node.args) < 3:
        return None
    return node.args[2] if isinstance(node.args[2], int) else None


def _of_sum(offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What torch returns beside a sum, for which no gradient needs more."""
    return offsets.new_empty((0,)), torch.zeros_like(offsets), torch.zeros_like(offsets)


def _bags(
    weight: Tensor, indices: Tensor, offsets: Tensor, mode: int, factors: Tensor | None, padding: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    count, bags, width = indices.shape[0], offsets.shape[0], weight.shape[1]
    bag = bags_of(offsets, count)
    rows = aten.embedding(weight, indices)
    rows = rows if factors is None else rows * factors.view(-1, 1)
    counted = (indices != padding).to(indices.dtype)
    sizes = torch.zeros_like(offsets).index_add(0, bag, counted)
    if mode != MAX:
        rows = rows if padding < 0 else torch.where(counted[:, None] > 0, rows, 0)
        total = weight.new_zeros((bags, width)).index_add(0, bag, rows)
        if mode == SUM:
            return total, *_of_sum(offsets)
        return total / sizes.clamp(min=1)[:, None].to(total.dtype), bag, sizes, sizes
    rows = torch.where(counted[:, None] > 0, rows, -math.inf)
    into = bag[:, None].expand(count, width)
    largest = weight.new_full((bags, width), -math.inf).scatter_reduce(0, into, rows, "amax")
    place = torch.arange(count, device=indices.device)[:, None]
    place = torch.where(rows == largest.index_select(0, bag), place, count)
    first = torch.full((bags, width), count, device=indices.device).scatter_reduce(0, into, place, "amin")
    found = torch.where(
        first < count, indices.index_select(0, first.clamp(max=count - 1).view(-1)).view(bags, width), 0
    )
    return torch.where(sizes[:, None] > 0, largest, 0), bag, sizes, found


def bags_of(offsets: Tensor, count: Any) -> Tensor:
    """The bag of each of `count` indices, by binary search among the offsets, each index on its own. An offset that is
    behind all indices is a number out of range; so is the bag of what stands before the first offset."""
    places = torch.arange(count + 1, dtype=offsets.dtype, device=offsets.device)
    offsets = places.index_select(0, offsets)
    bags, number = offsets.shape[0], torch.arange(count, dtype=offsets.dtype, device=offsets.device)
    found = torch.zeros_like(number)  # how many offsets are not behind the index
    for bit in reversed(range(bags.bit_length() if isinstance(bags, int) else 31)):
        further = found + (1 << bit)
        start = offsets.index_select(0, further.clamp(max=bags) - 1)
        found = torch.where((further <= bags) & (start <= number), further, found)
    return found - 1


def index_put_of_several(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """By numbers of several open dimensions, as tokens of an open batch have: by as many in one, for torch-mlir takes
    one such size for the other. Where `indices` are of dimensions that are no neighbours these come first, as torch has
    it with what is taken there. Numbers of 32 bits torch-mlir takes along the first dimension alone."""
    if indices[0] is None and any(index is not None and index.dtype == torch.int32 for index in indices):
        wide = [None if index is None else index.long() for index in indices]
        return aten._unsafe_index_put(x, wide, values, accumulate)
    given = [axis for axis, index in enumerate(indices) if index is not None]
    shape = torch.broadcast_shapes(*(indices[axis].shape for axis in given))
    open_ = sum(isinstance(size, torch.SymInt) for size in shape)
    is_apart = given != list(range(given[0], given[-1] + 1))
    if open_ < (1 if is_apart else 2):
        return NotImplemented
    if is_apart:
        order = [*given, *(axis for axis in range(x.dim()) if axis not in given)]
        found = aten.index_put(x.permute(order), [indices[axis] for axis in given], values, accumulate)
        return found.permute([order.index(axis) for axis in range(x.dim())])
    values = values.expand([*x.shape[: given[0]], *shape, *x.shape[given[-1] + 1 :]])
    flat = [None if index is None else index.expand(shape).reshape(-1) for index in indices]
    return aten._unsafe_index_put(x, flat, values.flatten(given[0], given[0] + len(shape) - 1), accumulate)


def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """Under one mask: each of its elements takes the value with the number of those that were set before it. Negative
    numbers of rows count from the end, which `_unsafe_index_put` knows nothing of."""
    given = [axis for axis, index in enumerate(indices) if index is not None]
    if not any(indices[axis].dim() for axis in given) and given == list(range(given[0], given[-1] + 1)):
        behind = x.dim() - given[-1] - 1  # one element along each of their dimensions, which is one of the values, too
        values = values.unsqueeze(-1 - behind) if values.dim() >= behind else values
        indices = [i if i is None else i.view(1) for i in indices]
    masks = [axis for axis, index in enumerate(indices) if index is not None]
    if all(indices[axis].dtype in (torch.int64, torch.int32) for axis in masks):
        counted = [i if i is None else torch.where(i < 0, i + x.shape[axis], i) for axis, i in enumerate(indices)]
        if not accumulate:
            return aten._unsafe_index_put(x, counted, values)
        return aten._unsafe_index_put(working(x), counted, working(values), True).to(x.dtype)
    if len(masks) != 1 or indices[masks[0]].dtype != torch.bool:
        return NotImplemented
    axis, mask = masks[0], indices[masks[0]]
    trailing = x.dim() - axis - mask.dim()
    own = values.dim() - trailing - 1  # the dimension of `values` that counts what is set
    shape = [*mask.shape, *[1] * trailing]
    if own >= 0 and isinstance(values.shape[own], int) and values.shape[own] == 1:
        values = values.view(*values.shape[:own], *[1] * mask.dim(), *values.shape[own + 1 :])
    elif own >= 0:
        number = (mask.reshape(-1).cumsum(0) - 1).clamp(0, values.shape[own] - 1)
        spread = values.index_select(own, number)
        values = spread.view(*values.shape[:own], *mask.shape, *values.shape[own + 1 :])
    values = values.to(x.dtype)
    return torch.where(mask.view(shape), x + values if accumulate else values, x)


def index(x: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """By numbers of 64 bits; by one for all of several dimensions, where it is open how many places there are:
    torch-mlir cannot tell then that all dimensions have as many. Places of dimensions that do not lie side by side come
    before all others. Behind others elements of one dimension are selected, or of all that are one: torch-mlir has a
    table of numbers for each of these too, and looks up what a thread's place says."""
    given = [i.to(x.device) for i in indices if i is not None]  # torch takes places that are not on a GPU, too
    axes = [axis for axis, i in enumerate(indices) if i is not None]
    is_open = any(not isinstance(size, int) for i in given for size in i.shape)
    several = len(given) > 1 and all(i.dtype != torch.bool for i in given)
    is_behind = axes[0] > 0 and axes == list(range(axes[0], axes[-1] + 1)) and x.is_contiguous()
    if several and (is_open or is_behind):
        if axes != list(range(axes[0], axes[-1] + 1)):
            x, axes = x.movedim(axes, list(range(len(axes)))), list(range(len(axes)))
        flat = x.flatten(axes[0], axes[-1])
        return aten.index.Tensor(flat, [*[None] * axes[0], _of_all(given, [x.shape[axis] for axis in axes])])
    if len(given) == 1 and axes[0] > 0 and given[0].dtype in (torch.int32, torch.int64):
        (places,), (axis,) = given, axes
        places = torch.where(places < 0, places + x.shape[axis], places).to(torch.int64)
        found = x.index_select(axis, places.reshape(-1))
        return found.view([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])
    if not any(i.dtype == torch.int32 for i in given):
        return NotImplemented
    return aten.index.Tensor(x, [i if i is None or i.dtype == torch.bool else i.to(torch.int64) for i in indices])


def _of_all(indices: Sequence[Tensor], sizes: Sequence[Any]) -> Tensor:
    """The place among all elements of dimensions of these sizes; behind the last where a number is out of range."""
    place, inside = torch.zeros((), dtype=torch.int64, device=indices[0].device), None
    for i, size in zip(indices, sizes, strict=True):
        i = i.to(torch.int64)
        i = torch.where(i < 0, i + size, i)
        place, fits = place * size + i, (i >= 0) & (i < size)
        inside = fits if inside is None else inside & fits
    return torch.where(inside, place, math.prod(sizes))


def searchsorted(
    boundaries: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many boundaries are less than each element or, from the right, no greater. It is compared with all, or, where
    they are many, with those that halve what is left. NaN is greater than all."""
    if sorter is not None:
        boundaries = boundaries.gather(-1, sorter)
    kind = torch.promote_types(boundaries.dtype, x.dtype)
    bound, element = boundaries.to(kind), x.to(kind)
    counts = torch.int32 if out_int32 else torch.int64

    def passes(bound: Tensor, element: Tensor) -> Tensor:
        if right or side == "right":
            return ~(bound > element)
        return (bound < element) | ((element != element) & (bound == bound))

    count = bound.shape[-1]
    if not isinstance(count, int) or count <= _FEW_BOUNDARIES:
        bound = bound if bound.dim() == 1 else bound.unsqueeze(-2)  # one row for all elements, or each row's own
        return passes(bound, element.unsqueeze(-1)).sum(-1, dtype=counts)
    found = torch.zeros_like(element, dtype=torch.int32)  # boundaries that are known to be passed
    for step in (1 << bit for bit in reversed(range(count.bit_length()))):
        place = found + (step - 1)
        inside = place.clamp(max=count - 1).long()
        probed = aten.index.Tensor(bound, [inside]) if bound.dim() == 1 else bound.gather(-1, inside)
        found = torch.where(passes(probed, element) & (place < count), found + step, found)
    return found.to(counts)


def bucketize(x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


def constant_pad(x: Tensor, padding: Sequence[Any], value: Any = 0) -> Any:
    """Paddings below zero cut, before the others are added; so do open ones, of which it is known at the call."""
    adds = [statically_known_true(size >= 0) for size in padding]
    if all(adds):
        return NotImplemented
    cuts = [0 if known else -torch.sym_min(size, 0) for size, known in zip(padding, adds)]
    for number, (before, after) in enumerate(zip(cuts[::2], cuts[1::2], strict=True)):
        axis = x.dim() - 1 - number
        if not adds[2 * number] or not adds[2 * number + 1]:
            x = x.narrow(axis, before, x.shape[axis] - before - after)
    wider = [size if known else torch.sym_max(size, 0) for size, known in zip(padding, adds)]
    return aten.constant_pad_nd(x, wider, value)


def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Any:
    """A slice of one element that is written. torch's own asks each element for its number, those of a loop over rows
    once for every row; torch-mlir's ends before it begins where the last one of an open size is written."""
    if not isinstance(index, int):
        return NotImplemented
    first = index if index >= 0 else x.shape[dim] + index
    return aten.slice_scatter(x, source.unsqueeze(dim), dim, first, first + 1)


def split_with_sizes(x: Tensor, sizes: Sequence[Any], dim: int = 0) -> Any:
    """Slices, where a part has an open size: torch-mlir unpacks lists of known sizes only."""
    if are_known(sizes):
        return NotImplemented
    return parts_of(x, sizes, dim)


def parts_of(x: Tensor, sizes: Sequence[Any], dim: int = 0) -> list[Tensor]:
    """Slices of these sizes, one behind the other, which are views of the tensor."""
    starts = itertools.accumulate(sizes, initial=0)
    return [x.narrow(dim, start, size) for start, size in zip(starts, sizes)]


def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    """What is written over all of a tensor is not computed of that."""
    if x.dim() == source.dim() and all(statically_known_true(a == b) for a, b in zip(x.shape, source.shape)):
        return source.to(x.dtype).clone()
    if not are_known((*x.shape, *source.shape)):
        return NotImplemented
    return source.to(x.dtype).expand(x.shape).clone()


def roll(x: Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    """Two slices one behind the other; elements where they lie, along open sizes. torch-mlir has slices of none."""
    if not dims:
        return roll(x.reshape(-1), shifts, [0]).reshape(x.shape)
    if any(isinstance(shift, torch.SymInt) and free_unbacked_symbols(shift) for shift in shifts):  # of data
        return NotImplemented
    moves = dict[int, Any]()
    for shift, d in zip(shifts, dims):
        moves[d % x.dim()] = moves.get(d % x.dim(), 0) + shift
    if not all(isinstance(number, int) for d, shift in moves.items() for number in (x.shape[d], shift)):
        return ROLLED(x, [*moves.values()], [*moves])
    for d, shift in moves.items():
        size = x.shape[d]
        if size and (first := -shift % size):
            x = torch.cat([x.narrow(d, first, size - first), x.narrow(d, 0, first)], d)
    return x.clone()


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """Where torch joins tensors along an open size, to take its result apart after that, no part's place would be a
    known number: they are joined along a dimension of their own."""
    rank = tensors[0].dim()
    dim %= rank + 1
    if dim == rank or isinstance(tensors[0].shape[dim], int):
        return torch._refs.stack(tensors, dim)
    return torch.cat([one.unsqueeze(dim) for one in tensors], dim)


def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """A table whose rows that are read are no longer than so much. One that is read twice is written twice alike."""
    numbers = indices.reshape(-1).long()
    rows = weight.index_select(0, numbers)
    norm = torch.linalg.vector_norm(rows, norm_type, -1, keepdim=True)
    shorter = torch.where(norm > max_norm, rows * (max_norm / (norm + 1e-7)), rows)
    return weight.index_put((numbers,), shorter)


INDEXING = {
    aten.embedding_renorm.default: embedding_renorm,
    aten.stack.default: stack,
    aten.roll.default: roll,
    aten.split_with_sizes.default: split_with_sizes,
    aten.copy.default: copy,
    aten.select_scatter.default: select_scatter,
    aten.index.Tensor: index,
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put_of_several,
    aten.constant_pad_nd.default: constant_pad,
    aten.searchsorted.Tensor: searchsorted,
    aten.bucketize.Tensor: bucketize,
}
