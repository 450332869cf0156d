"""Elements that are taken by number of a view of what is computed, or of it with something around it, as elements of
what is computed (elements_taken.py).

    %s = tensor.extract_slice %p[0, 2, 0] [16, 5, 32000] [1, 1, 1] : tensor<16x7x32000xf32> to tensor<16x5x32000xf32>
    %l = tensor.extract %s[%i, %j, %k]                  =>  %l = tensor.extract %p[%i, %j + 2, %k]

    %z = tensor.pad %p low[0, 0, 0] high[0, 1, 0] { 0.0 } : tensor<16x7x32000xf32> to tensor<16x8x32000xf32>
    %l = tensor.extract %z[%i, %j, %k]                  =>  %in = %j < 7
                                                            %e = tensor.extract %p[%i, select(%in, %j, 0), %k]
                                                            %l = select(%in, %e, 0.0)

What is around a tensor has one value, and is along dimensions that have a known size; what a reshape makes of a
dimension is that dimension, with others of one element beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.codegen.index_checks import DATA, origin
from kitsune_mlir.generics import all_hold, constant_index
from kitsune_mlir.mlir import arith, ir, tensor
from kitsune_mlir.operations import slice_of

from .padded_reads import around_of

VIEWS = ("tensor.extract_slice", "tensor.pad", *rows.RESHAPES)
_PRED = arith.CmpIPredicate


def taken_of(value: ir.Value | None) -> ir.Operation | None:
    """The operator whose result a value is, or is a view of through which elements are read; None where there is no
    operator, or its elements are elsewhere than is known."""
    op = None if value is None else rows.producer(value)
    while op is not None and op.name != "linalg.generic":
        if not _is_read_through(op):
            return None
        op = rows.producer(op.operands[0])
    return op


def read_through(extract: ir.Operation, made: ir.Operation) -> ir.Operation:
    """The same element, taken of what an operator makes and not of a view of it."""
    while (view := extract.operands[0].owner.operation) != made:
        with extract.location, ir.InsertionPoint(extract):
            before, found = extract, list(extract.operands)[1:]
            if view.name == "tensor.pad":
                places, inside, around = _inside(view, found)
                element = tensor.extract(view.operands[0], places)
                extract = element.owner.operation
                if inside is not None:
                    element = arith.select(inside, element, arith.constant(element.type, around))
            else:
                element = tensor.extract(view.operands[0], _places(view, found))
                extract = element.owner.operation
            before.results[0].replace_all_uses_with(element)
            before.erase()
    return extract


def _is_read_through(op: ir.Operation) -> bool:
    if op.name == "tensor.extract_slice":
        return ir.RankedTensorType(op.operands[0].type).rank == ir.RankedTensorType(op.results[0].type).rank
    if op.name in rows.RESHAPES:
        longer = op.operands[0] if op.name == "tensor.collapse_shape" else op.results[0]
        sizes = rows.shape_of(longer)
        return all(sum(sizes[d] != 1 for d in group) <= 1 for group in rows.groups_of(op))
    if op.name != "tensor.pad" or (around := around_of(op)) is None:
        return False
    kind = ir.RankedTensorType(op.operands[0].type)
    return not any(kind.is_dynamic_dim(d) and (around[0][d] or around[1][d]) for d in range(kind.rank))


def _places(view: ir.Operation, at: Sequence[ir.Value]) -> list[ir.Value]:
    """Where an element of a slice or of a reshaped tensor is in the tensor itself."""
    if view.name == "tensor.extract_slice":
        taken, given = slice_of(view), iter(list(view.operands)[1:])
        firsts = [next(given) if offset == rows.DYNAMIC else offset for offset in taken.offsets]
        sizes = sum(size == rows.DYNAMIC for size in taken.sizes)
        given = iter(list(given)[sizes:])
        steps = [next(given) if step == rows.DYNAMIC else step for step in taken.strides]
        return [_moved(place, first, step) for place, first, step in zip(at, firsts, steps, strict=True)]
    groups, long = rows.groups_of(view), rows.shape_of(view.operands[0])
    if view.name == "tensor.collapse_shape":
        places = dict[int, ir.Value]()
        for group, place in zip(groups, at, strict=True):
            kept = next((d for d in group if long[d] != 1), group[0])
            places |= {d: place if d == kept else constant_index(0) for d in group}
        return [places[d] for d in range(len(long))]
    sizes = rows.shape_of(view.results[0])
    return [at[next((d for d in group if sizes[d] != 1), group[0])] for group in groups]


def _moved(place: ir.Value, first: int | ir.Value, step: int | ir.Value) -> ir.Value:
    if step != 1:
        place = arith.muli(place, constant_index(step) if isinstance(step, int) else step)
    if isinstance(first, int):
        return arith.addi(place, constant_index(first)) if first else place
    return arith.addi(place, first)


def _inside(pad: ir.Operation, at: Sequence[ir.Value]) -> tuple[list[ir.Value], ir.Value | None, ir.Attribute]:
    """Where an element is in a tensor that has something around it, whether it is there, and what it else is; the
    place is one of the tensor's in any case, unless it is one of data that is neither there nor around it."""
    around = around_of(pad)
    assert around is not None
    low, high, outside = around
    shape, inside, places = rows.shape_of(pad.operands[0]), None, []
    for d, place in enumerate(at):
        if low[d] or high[d]:
            size = low[d] + shape[d] + high[d]
            is_any = arith.cmpi(_PRED.ult, place, constant_index(size)) if origin(place, size) == DATA else None
            place = arith.subi(place, constant_index(low[d])) if low[d] else place
            here = arith.cmpi(_PRED.ult, place, constant_index(shape[d]))
            inside, first = all_hold(inside, here), constant_index(0)
            place = arith.select(here, place, first if is_any is None else arith.select(is_any, first, place))
        places.append(place)
    return places, inside, outside
