"""Reshapes that torch-mlir writes for sizes that are open until the call, as what pipelines and GPUs take.

%s = tensor.from_elements %b, %t, %c16                         %0 = arith.index_cast %b, %1 = arith.index_cast %t
%y = tensor.reshape %x(%s)                               =>    %y = tensor.expand_shape %x [[0, 1], [2]]
     : (tensor<?x16xf32>, ...) -> tensor<?x?x16xf32>                output_shape [%0, %1, 16]

%y = tensor.reshape %x(%s)                               =>    %y = tensor.collapse_shape %x [[0], [1, 2]]
     : (tensor<?x32x16xf32>, ...) -> tensor<?x512xf32>

%y = tensor.reshape %x(%s)                               =>    %c = tensor.collapse_shape %x [[0], [1, 2]]
     : (tensor<?x32x16xf32>, ...) -> tensor<?x8x64xf32>        %y = tensor.expand_shape %c [[0], [1, 2]]

Dimensions that are put together and split elsewhere are put together only where they must be, as MLIR has it of known
sizes alone:

%c = tensor.collapse_shape %x [[0], [1, 2, 3]]                 %c = tensor.collapse_shape %x [[0], [1], [2, 3]]
     : tensor<?x8x3x3xf32> into tensor<?x72xf32>         =>         : tensor<?x8x3x3xf32> into tensor<?x8x9xf32>
%y = tensor.expand_shape %c [[0], [1, 2, 3]]                   %y = tensor.expand_shape %c [[0], [1, 2], [3]]
     : ... into tensor<?x2x4x9xf32>                                 : ... into tensor<?x2x4x9xf32>
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, ir, replace_op, tensor
from kitsune_mlir.operations import made_by

from .tensor_sizes import TensorSizes


def reassociate(reshape: ir.Operation) -> None:
    """Says which dimensions are split or put together, where one of the tensor's sizes is open, or one is split."""
    source, shape = reshape.operands
    before, kind = rows.shape_of(source), ir.RankedTensorType(reshape.results[0].type)
    after = list(kind.shape)
    with ir.InsertionPoint(reshape), reshape.location:
        if before.count(rows.DYNAMIC) == after.count(rows.DYNAMIC) == 1 and _known(before) == _known(after) != 0:
            made = _of_one_size(source, kind)
        else:
            made = _split_open(source, shape, kind)
    if made is not None:
        replace_op(reshape, made)


def split_in_place(expand: ir.Operation) -> None:
    """Keeps apart what a tensor.collapse_shape puts together and this one splits again at the same place."""
    collapse = made_by(expand.operands[0], "tensor.collapse_shape")
    if collapse is None:
        return
    source, kind = collapse.operands[0], ir.RankedTensorType(expand.results[0].type)
    before, after = rows.shape_of(source), list(kind.shape)
    together: list[list[int]] = []
    split: list[list[int]] = []
    for group, parts in zip(rows.groups_of(collapse), rows.groups_of(expand), strict=True):
        for own, found in _cuts([before[d] for d in group], [after[d] for d in parts]):
            together.append([group[0] + d for d in own])
            split.append([parts[0] + d for d in found])
    if len(together) == len(rows.groups_of(collapse)):
        return
    shape = [rows.DYNAMIC if rows.DYNAMIC in (sizes := [before[d] for d in g]) else prod(sizes) for g in together]
    middle = ir.RankedTensorType.get(shape, kind.element_type)
    with expand.location, ir.InsertionPoint(expand):
        value = source if len(shape) == len(before) else tensor.CollapseShapeOp(middle, source, together).result
        if len(shape) < len(after):
            value = tensor.ExpandShapeOp(kind, value, split, list(expand.operands)[1:], after).result
    if value.type == kind:
        replace_op(expand, value)


def _cuts(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Numbers of the dimensions of two shapes with as many elements, in the shortest groups of as many each, behind an
    open size if there is one; all of them where some have one element."""
    whole = [([*range(len(before))], [*range(len(after))])]
    if 1 in (*before, *after) or before.count(rows.DYNAMIC) != after.count(rows.DYNAMIC):
        return whole
    found, i, j = list[tuple[list[int], list[int]]](), len(before), len(after)
    while i and j:
        last = (i, j)
        i, j = i - 1, j - 1
        while rows.DYNAMIC not in (own := [*before[i : last[0]], *after[j : last[1]]]):
            sizes = prod(before[i : last[0]]), prod(after[j : last[1]])
            if sizes[0] == sizes[1]:
                break
            i, j = i - (sizes[0] < sizes[1]), j - (sizes[0] > sizes[1])
            if i < 0 or j < 0:
                return whole
        if rows.DYNAMIC in own:
            i, j = 0, 0
        found.insert(0, ([*range(i, last[0])], [*range(j, last[1])]))
    return found if (i, j) == (0, 0) else whole


def _known(shape: Iterable[int]) -> int:
    return prod(size for size in shape if size != rows.DYNAMIC)


def _of_one_size(source: ir.Value, kind: ir.RankedTensorType) -> ir.Value | None:
    """The reshape to a tensor with one open size too, which is the same: so many elements have both."""
    before, after = rows.shape_of(source), list(kind.shape)
    if before == after:
        return source
    together = _groups(before, after) if len(after) < len(before) else None
    if together is not None:
        return tensor.CollapseShapeOp(kind, source, together).result
    split = _groups(after, before) if len(after) > len(before) else None
    size = rows.size_of(source, before.index(rows.DYNAMIC))
    if split is not None:
        return tensor.ExpandShapeOp(kind, source, split, [size], after).result
    together, split = _around_open(before), _around_open(after)
    if [_known(before[d] for d in group) for group in together] != [_known(after[d] for d in group) for group in split]:
        together, split = [[*range(len(before))]], [[*range(len(after))]]
    middle = [rows.DYNAMIC if rows.DYNAMIC in (own := [before[d] for d in g]) else prod(own) for g in together]
    if len(middle) < len(before):
        source = tensor.CollapseShapeOp(ir.RankedTensorType.get(middle, kind.element_type), source, together).result
    return source if middle == after else tensor.ExpandShapeOp(kind, source, split, [size], after).result


def _around_open(shape: Sequence[int]) -> list[list[int]]:
    """The dimensions before the open one, that one, and those behind it, where there are any."""
    place, count = shape.index(rows.DYNAMIC), len(shape)
    return [group for group in ([*range(place)], [place], [*range(place + 1, count)]) if group]


def _groups(longer: Sequence[int], shorter: Sequence[int]) -> list[list[int]] | None:
    """Which dimensions of the longer shape each of the shorter one is made of; None where they are not so."""
    groups: list[list[int]] = []
    at, end = 0, len(longer)
    for size in shorter:
        first = at
        if size == rows.DYNAMIC:
            while at < end and longer[at] == 1:
                at += 1
            if at == end or longer[at] != rows.DYNAMIC:
                return None
            at += 1
        else:
            while at < end and longer[at] != rows.DYNAMIC and (at == first or prod(longer[first:at]) < size):
                at += 1
            if at == first or prod(longer[first:at]) != size:
                return None
        groups.append(list(range(first, at)))
    while at < end and longer[at] == 1 and groups:
        groups[-1].append(at)
        at += 1
    return groups if at == end else None


def _split_open(source: ir.Value, shape: ir.Value, kind: ir.RankedTensorType) -> ir.Value | None:
    """The reshape that splits a dimension of an open size, into sizes of which several may be open."""
    elements = rows.producer(shape)
    before, after = rows.shape_of(source), list(kind.shape)
    more = len(after) - len(before)
    if elements is None or elements.name != "tensor.from_elements" or more < 1:
        return None
    places = [d for d, size in enumerate(before) if size == rows.DYNAMIC and _is_split(before, after, d)]
    if len(places) > 1:
        known = TensorSizes(elements.block)
        own, wanted = known.shape(source), [known.number(size) for size in elements.operands]
        places = [d for d in places if _is_split(own, wanted, d)]
    if not places:
        return None
    split = places[0]
    ends = range(split, split + more + 1)
    groups = [*([d] for d in range(split)), list(ends), *([d + more] for d in range(split + 1, len(before)))]
    sizes = [_as_index(elements.operands[d]) for d, size in enumerate(after) if size == rows.DYNAMIC]
    return tensor.ExpandShapeOp(kind, source, groups, sizes, after).result


def _is_split(before: Sequence[int], after: Sequence[int], place: int) -> bool:
    """Whether the sizes before and behind a dimension stay."""
    behind = len(before) - place - 1
    return after[:place] == before[:place] and after[len(after) - behind :] == before[place + 1 :]


def _as_index(size: ir.Value) -> ir.Value:
    index = ir.IndexType.get()
    return size if size.type == index else arith.index_cast(index, size)
