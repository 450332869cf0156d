"""Tensors in other shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import constant_index, sizes_of
from kitsune_mlir.mlir import arith, ir, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.open_sizes import is_open


def slice_at(value: ir.Value, at: Mapping[int, int]) -> ir.Value:
    """The elements at these places of some dimensions, without these dimensions."""
    kind = ir.RankedTensorType(value.type)
    kept = [d for d in range(kind.rank) if d not in at]
    type_ = ir.RankedTensorType.get([kind.shape[d] for d in kept], kind.element_type)
    sizes = [1 if d in at else kind.shape[d] for d in range(kind.rank)]
    open_ = [size for size in sizes_of(value, kept) if isinstance(size, ir.Value)]
    firsts = [at.get(d, 0) for d in range(kind.rank)]
    return tensor.ExtractSliceOp(type_, value, [], open_, [], firsts, sizes, [1] * kind.rank).result


def slice_along(value: ir.Value, dim: int, first: int, count: int) -> ir.Value:
    """So many elements from `first` on along one dimension, all along the others."""
    kind = ir.RankedTensorType(value.type)
    sizes = [count if d == dim else kind.shape[d] for d in range(kind.rank)]
    offsets = [first if d == dim else 0 for d in range(kind.rank)]
    open_ = [tensor.dim(value, constant_index(d)) for d in range(kind.rank) if d != dim and kind.is_dynamic_dim(d)]
    type_ = ir.RankedTensorType.get(sizes, kind.element_type)
    return tensor.ExtractSliceOp(type_, value, [], open_, [], offsets, sizes, [1] * kind.rank).result


def reshaped(value: ir.Value, shape: Sequence[int | None]) -> ir.Value:
    """A tensor with its elements in the same order and other sizes; None for one that is open until the call, as one of
    the tensor's then is; of several each stays a dimension, and known ones are cut. One of a single element stays as it
    is where no size is asked for."""
    kind = ir.RankedTensorType(value.type)
    sizes = [rows.DYNAMIC if size is None else size for size in shape]
    if list(kind.shape) == sizes or not shape:
        return value
    if not kind.rank:
        return tensor.ExpandShapeOp(ir.RankedTensorType.get(sizes, kind.element_type), value, [], [], sizes).result
    if sizes.count(rows.DYNAMIC) > 1:
        return _beside_open(value, sizes)
    if (made := _behind_open(value, sizes)) is not None:
        return made
    if (groups := _joined(list(kind.shape), sizes)) is not None:
        return tensor.CollapseShapeOp(ir.RankedTensorType.get(sizes, kind.element_type), value, groups).result
    before, after = list(kind.shape), list(sizes)
    behind: list[int] = []  # known sizes that stay
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1] != rows.DYNAMIC:
        behind.insert(0, before.pop())
        after.pop()
    flat, kept = value, range(len(behind))
    if len(before) > 1:
        count = rows.DYNAMIC if rows.DYNAMIC in before else prod(before)
        type_ = ir.RankedTensorType.get([count, *behind], kind.element_type)
        groups = [[*range(len(before))], *([len(before) + d] for d in kept)]
        flat = tensor.CollapseShapeOp(type_, value, groups).result
    if len(after) == 1:
        return flat
    open_ = [_open_size(value, flat, before, after)] if rows.DYNAMIC in after else []
    type_ = ir.RankedTensorType.get(sizes, kind.element_type)
    groups = [[*range(len(after))], *([len(after) + d] for d in kept)]
    return tensor.ExpandShapeOp(type_, flat, groups, open_, sizes).result


def _open_size(value: ir.Value, flat: ir.Value, before: Sequence[int], after: Sequence[int]) -> ir.Value:
    """The open one of the first sizes that a tensor is to have, which has others first, and is also there with these as
    one: the tensor's own open size where that has as many elements for each."""
    own, wanted = (prod(size for size in some if size != rows.DYNAMIC) for some in (before, after))
    if own == wanted and before.count(rows.DYNAMIC) == 1:
        return rows.size_of(value, before.index(rows.DYNAMIC))
    return arith.divui(tensor.dim(flat, constant_index(0)), constant_index(wanted))


def _behind_open(value: ir.Value, sizes: Sequence[int]) -> ir.Value | None:
    """A tensor whose first size is open and stays, with the known ones behind it cut or joined; None for others."""
    kind = ir.RankedTensorType(value.type)
    first, *shape = kind.shape
    if first != rows.DYNAMIC or sizes[0] != rows.DYNAMIC or rows.DYNAMIC in shape or not shape or not sizes[1:]:
        return None
    type_ = ir.RankedTensorType.get(sizes, kind.element_type)
    if (groups := _joined(shape, sizes[1:])) is not None:
        return tensor.CollapseShapeOp(type_, value, _after_first(groups)).result
    if (groups := _joined(list(sizes[1:]), shape)) is not None:
        return tensor.ExpandShapeOp(type_, value, _after_first(groups), [rows.size_of(value, 0)], sizes).result
    return None


def _after_first(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Groups of dimensions that stand one further back, behind one that stays."""
    return [[0], *([d + 1 for d in group] for group in groups)]


def _beside_open(value: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """A tensor with several open sizes, of which known dimensions between are cut into these, or joined to these."""
    kind = ir.RankedTensorType(value.type)
    shape = [size for size in kind.shape if size != 1]
    if len(shape) < kind.rank:
        type_ = ir.RankedTensorType.get(shape, kind.element_type)
        value = tensor.CollapseShapeOp(type_, value, without_units(kind.shape)).result
    wanted = [size for size in sizes if size != 1]
    if len(wanted) < len(shape):
        type_ = ir.RankedTensorType.get(wanted, kind.element_type)
        shape, value = wanted, tensor.CollapseShapeOp(type_, value, _parts(wanted, shape)).result
    if shape == list(sizes):
        return value
    groups = _parts(shape, sizes)
    groups[-1] += range(groups[-1][-1] + 1, len(sizes))  # of one element
    open_ = [rows.size_of(value, d) for d, size in enumerate(shape) if size == rows.DYNAMIC]
    return tensor.ExpandShapeOp(ir.RankedTensorType.get(sizes, kind.element_type), value, groups, open_, sizes).result


def reshaped_as(
    value: ir.Value, own: Sequence[int], wanted: Sequence[int], number: Callable[[int], ir.Value]
) -> ir.Value:
    """A tensor whose sizes are `own` as one of those `wanted`, its elements in the same order. Sizes that are open
    until the call are numbers (planning/open_sizes.py), so that it is known which neighbours become one, and what one
    is cut into; `number` gives one that the tensor has not as a value. One of a single element stays as it is where no
    size is asked for. Raises UnsupportedError where `cut_for` does."""
    if not wanted:
        return value
    both = cut_for(own, wanted)
    element = element_type(value)
    if both != list(own):
        type_, at = _type_of(both, element), {size: d for d, size in enumerate(own)}
        open_ = filter(is_open, both)
        sizes = [rows.size_of(value, at[size]) if size in at else number(size) for size in open_]
        value = tensor.ExpandShapeOp(type_, value, _groups(both, own), sizes, type_.shape).result
    if both == list(wanted):
        return value
    return tensor.CollapseShapeOp(_type_of(wanted, element), value, _groups(both, wanted)).result


def cut_for(own: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """The sizes that those a tensor has are cut into, so that neighbours of them are the wanted ones. Raises
    UnsupportedError where there are none such."""
    left, right, found = list(own), list(wanted), list[int]()
    while left and right:
        a, b = left.pop(0), right.pop(0)
        size = 1 if 1 in (a, b) else min(a, b)
        if not size or max(a, b) % size:
            break
        found.append(size)
        left = left if a == size else [a // size, *left]
        right = right if b == size else [b // size, *right]
    else:
        if prod(left + right) == 1:
            return [*found, *left, *right]
    raise UnsupportedError("dimensions with sizes that are open until the call are not parts of one another")


def _type_of(sizes: Sequence[int], element: ir.Type) -> ir.RankedTensorType:
    return ir.RankedTensorType.get([rows.DYNAMIC if is_open(size) else size for size in sizes], element)


def _groups(finer: Sequence[int], coarser: Sequence[int]) -> list[list[int]]:
    """Which neighbours of the finer sizes make each of the coarser ones, of which they are parts."""
    groups, d = list[list[int]](), 0
    for size in coarser:
        first, d = d, d + 1
        while prod(finer[first:d]) < size:
            d += 1
        groups.append(list(range(first, d)))
    groups[-1] += range(d, len(finer))
    return groups


def _parts(shape: Sequence[int], finer: Sequence[int]) -> list[list[int]]:
    """Which of the finer sizes make each of the sizes, open ones being one of them."""
    groups, d = list[list[int]](), 0
    for size in shape:
        first = d
        while d < len(finer) and prod(finer[first:d]) != size:
            d += 1
        groups.append(list(range(first, d)))
    return groups


def without_units(shape: Sequence[int]) -> list[list[int]]:
    """The dimensions of more than one element, each with those of one that stand behind it, the first with those in
    front of it too."""
    kept = [d for d, size in enumerate(shape) if size != 1]
    return [list(range(d if i else 0, end)) for i, (d, end) in enumerate(zip(kept, [*kept[1:], len(shape)]))]


def _joined(shape: Sequence[int], sizes: Sequence[int]) -> list[list[int]] | None:
    """Neighbouring dimensions that are one of so many sizes, all of which are known; None where others are wanted. Such
    a tensor may lie apart in memory, and lies so still."""
    groups, d = list[list[int]](), 0
    for size in sizes:
        groups.append([])
        while d < len(shape) and (not groups[-1] or prod(shape[other] for other in groups[-1]) < size):
            groups[-1].append(d)
            d += 1
        if rows.DYNAMIC in (size, *shape) or not groups[-1] or prod(shape[other] for other in groups[-1]) != size:
            return None
    if prod(shape[d:]) != 1:
        return None
    groups[-1] += range(d, len(shape))
    return groups
