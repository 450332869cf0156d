"""Tensors with more of themselves around them, as reflected, circular or replicated padding makes them: concatenations
of a tensor and of parts of it.

    %a = tensor.extract_slice %x[0, 0, 1] [2, 3, 1] ...
    %z = tensor.extract_slice %x[0, 0, 7] [2, 3, 1] ...
    %y = tensor.concat dim(2) %a, %x, %z : ... -> tensor<2x3x11xbf16>

A convolution whose channels are made the last dimension has them so before (`padded_last`): the parts are whole lines
then, and moved by words. Where lines themselves are longer, none of their words lies as it did: each element is read
by number, along all dimensions at once (`read_padded`), by threads that store words:

    %y = linalg.generic outs(%empty) { linalg.yield (tensor.extract %x[%0, %1, min(|%2 - 1|, 16 - |%2 - 1|)]) }
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_word_access import WORD
from kitsune_mlir.generics import constant_index, generic
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, tensor, walk
from kitsune_mlir.operations import erase_unused, made_by, slice_of
from kitsune_mlir.traffic import line_bytes

Place = Callable[[ir.Value], ir.Value]  # of an index (i32) of the padded tensor, the one of the tensor itself


@dataclass(frozen=True)
class Padding:
    """What a concatenation along `dim` puts around `inner`: for each of its operands where it begins there and how many
    elements it has."""

    op: ir.Operation
    dim: int
    inner: ir.Value
    parts: tuple[tuple[int, int], ...]

    @property
    def places(self) -> list[int]:
        """Of each element along the dimension, where it is in the tensor itself."""
        return [first + n for first, count in self.parts for n in range(count)]


def padded_by_itself(value: ir.Value) -> Padding | None:
    """How a tensor is padded; None where it is made by anything else."""
    op = made_by(value, "tensor.concat")
    if op is None:
        return None
    dim = attr_int(op, "dim")
    sizes = [ir.RankedTensorType(one.type).shape[dim] for one in op.operands]
    inner = op.operands[sizes.index(max(sizes))]
    parts = [(0, size) if one == inner else _part(one, inner, dim) for one, size in zip(op.operands, sizes)]
    if len(parts) < 2 or None in parts or min(sizes) < 1 or list(op.operands).count(inner) > 1:
        return None
    return Padding(op, dim, inner, tuple(part for part in parts if part is not None))


def _part(value: ir.Value, of: ir.Value, dim: int) -> tuple[int, int] | None:
    """Where a part of a tensor that is whole in all other dimensions begins, and its size."""
    op = made_by(value, "tensor.extract_slice")
    if op is None or op.operands[0] != of:
        return None
    part, shapes = slice_of(op), [rows.shape_of(one) for one in (value, of)]
    whole = all(a == b for d, (a, b) in enumerate(zip(*shapes, strict=True)) if d != dim)
    first = [offset for d, offset in enumerate(part.offsets) if d != dim]
    return (part.offsets[dim], shapes[0][dim]) if whole and not any(first) and {*part.strides} == {1} else None


def padded_last(padding: Padding, inner: ir.Value) -> ir.Value:
    """The padded tensor with its second dimension as the last one, as `inner` is, which is the tensor itself."""
    dim, kind = padding.dim - 1, ir.RankedTensorType(inner.type)

    def sized(size: int) -> ir.RankedTensorType:
        return ir.RankedTensorType.get([size if d == dim else n for d, n in enumerate(kind.shape)], kind.element_type)

    open_ = [tensor.dim(inner, constant_index(0))] if kind.is_dynamic_dim(0) else []
    made = []
    for value, (first, count) in zip(padding.op.operands, padding.parts, strict=True):
        offsets = [first if d == dim else 0 for d in range(kind.rank)]
        part = inner
        if value != padding.inner:
            type_ = sized(count)
            strides = [1] * kind.rank
            part = tensor.ExtractSliceOp(type_, inner, [], open_, [], offsets, list(type_.shape), strides).result
        made.append(part)
    return tensor.ConcatOp(sized(len(padding.places)), dim, made).result


def read_padded(main: ir.Operation) -> None:
    """Reads by number the tensors of @main whose lines are padded, or are no whole words, and those that are padded
    along several dimensions, which would be copied as often."""
    for op in reversed(walk(main, "tensor.concat")):
        if not list(op.results[0].uses) or (padding := padded_by_itself(op.results[0])) is None:
            continue
        source, found = op.results[0], dict[int, Place]()
        while padding is not None and padding.dim not in found and (place := _place(padding)) is not None:
            found[padding.dim], source = place, padding.inner
            padding = padded_by_itself(source)
        if found and (len(found) > 1 or list(found) == [len(rows.shape_of(source)) - 1] or line_bytes(source) % WORD):
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_by_number(op.results[0], source, found))
    for op in reversed(walk(main, "tensor.concat", "tensor.extract_slice")):
        erase_unused(op)


def _place(padding: Padding) -> Place | None:
    """What says where elements are along the dimension, for each of the ways of padding that there are."""
    before = next(n for n, one in enumerate(padding.op.operands) if one == padding.inner)
    before = sum(count for _, count in padding.parts[:before])
    size = rows.shape_of(padding.inner)[padding.dim]
    own = [n - before for n in range(len(padding.places))]
    if padding.places == [min(max(n, 0), size - 1) for n in own]:
        return lambda n: arith.minsi(arith.maxsi(_less(n, before), _number(0)), _number(size - 1))
    if padding.places == [n % size for n in own] and -size <= own[0] and own[-1] < 2 * size:
        return lambda n: arith.remui(arith.addi(n, _number(size - before)), _number(size))
    if padding.places == [min(abs(n), 2 * (size - 1) - abs(n)) for n in own]:
        return lambda n: _reflected(_less(n, before), size)
    return None


def _reflected(n: ir.Value, size: int) -> ir.Value:
    n = arith.maxsi(n, arith.subi(_number(0), n))
    return arith.minsi(n, arith.subi(_number(2 * (size - 1)), n))


def _less(n: ir.Value, by: int) -> ir.Value:
    return arith.subi(n, _number(by))


def _number(value: int) -> ir.Value:
    return arith.constant(ir.IntegerType.get_signless(32), value)


def _by_number(like: ir.Value, source: ir.Value, places: dict[int, Place]) -> ir.Value:
    """A tensor of the type of `like` whose elements are found in `source` so, along dimensions that are not named where
    they are."""
    kind = ir.RankedTensorType(like.type)
    sizes = [tensor.dim(source, constant_index(d)) if kind.is_dynamic_dim(d) else n for d, n in enumerate(kind.shape)]
    identity = [ir.AffineMap.get_identity(kind.rank)]

    def element(_: ir.Value) -> ir.Value:
        return tensor.extract(source, [_moved(linalg.IndexOp(d).result, places.get(d)) for d in range(kind.rank)])

    starts = [tensor.empty(sizes, kind.element_type)]
    return generic([], starts, identity, ["parallel"] * kind.rank, element).results[0]


def _moved(index: ir.Value, place: Place | None) -> ir.Value:
    if place is None:
        return index
    own = arith.index_cast(ir.IntegerType.get_signless(32), index)
    return arith.index_castui(ir.IndexType.get(), place(own))
