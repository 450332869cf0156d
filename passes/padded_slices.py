"""What an operator reads of a tensor of open sizes that has something around it, it reads where it lies.

    %p = tensor.pad %x low[1, 1] high[1, 1] { yield %zero } : tensor<?x?xf32> to tensor<?x?xf32>
    %a = tensor.extract_slice %p[0, 1] [%h, %w] [1, 1]                   // the neighbours above, as a stencil has them
    %y = linalg.generic ins(%x, %a) { %x - %a } ...
  =>
    %a = linalg.generic { %i = linalg.index 0;  %i - 1 < %h ? tensor.extract %x[%i - 1, %j] : %zero } ...

which is fused with what reads it. Of known sizes maps read such slices (window_reads.py). A slice is as large as what
lies in memory: so there are elements wherever there are results.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.generics import all_hold, constant_index, generic, sizes_of
from kitsune_mlir.mlir import arith, ir, linalg, tensor, walk
from kitsune_mlir.operations import slice_of

from .padded_reads import Border, around_of
from .rolled_reads import is_read_elementwise
from .tensor_sizes import TensorSizes

Offsets = list[list[int | ir.Value]]  # those of slices of slices, by dimension


def read_padded_slices(main: ir.Operation) -> None:
    """Rewrites what is read of such tensors of @main, where elementwise operators alone read slices of them."""
    sizes = None
    for pad in walk(main, "tensor.pad"):
        if len(pad.operands) > 1 or rows.DYNAMIC not in rows.shape_of(pad.results[0]):
            continue
        found = _slices(pad.results[0], [[] for _ in rows.shape_of(pad.results[0])])
        if found is None or (around := around_of(pad)) is None:
            continue
        sizes = sizes or TensorSizes(main.regions[0].blocks[0])
        source = pad.operands[0]
        if any(sizes.shape(value) != sizes.shape(source) for value, _ in found):
            continue
        for value, offsets in found:
            for use in list(value.uses):
                with pad.location, ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = _read(source, offsets, around)


def _slices(value: ir.Value, offsets: Offsets) -> list[tuple[ir.Value, Offsets]] | None:
    """The slices of a tensor that elementwise operators read, with where they begin in it; None where anything else
    reads it."""
    found, is_read = [], False
    for use in value.uses:
        op = use.owner.operation
        if op.name == "tensor.dim":
            continue
        if op.name != "tensor.extract_slice":
            if not is_read_elementwise(use):
                return None
            is_read = True
            continue
        if (begins := offsets_of(op)) is None:
            return None
        further = _slices(op.results[0], [[*own, begin] for own, begin in zip(offsets, begins, strict=True)])
        if further is None:
            return None
        found += further
    return [*found, (value, offsets)] if is_read else found


def offsets_of(op: ir.Operation) -> list[int | ir.Value] | None:
    """Where a slice of all between its ends begins in a tensor of as many dimensions; None for any other slice."""
    taken, counts = slice_of(op), list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    if {*taken.strides, 1} != {1} or len(taken.offsets) != len(rows.shape_of(op.results[0])):
        return None
    given = iter(list(op.operands)[1 : 1 + counts[1]])
    return [next(given) if offset == rows.DYNAMIC else offset for offset in taken.offsets]


def _read(source: ir.Value, offsets: Offsets, around: Border) -> ir.Value:
    """The elements of a slice of a tensor with something around it, at the insertion point."""
    kind, (low, _, outside) = ir.RankedTensorType(source.type), around
    lengths = [tensor.dim(source, constant_index(d)) for d in range(kind.rank)]
    before = [_sum([*own, -first]) for own, first in zip(offsets, low, strict=True)]
    start = tensor.empty(sizes_of(source, range(kind.rank)), kind.element_type)

    def body(*_: ir.Value) -> ir.Value:
        places, inside = list[ir.Value](), None
        for d, (more, length) in enumerate(zip(before, lengths, strict=True)):
            place = linalg.IndexOp(d).result
            if more is not None:
                place = arith.addi(place, more)
                own = arith.cmpi(arith.CmpIPredicate.ult, place, length)
                inside = all_hold(inside, own)
                last = arith.subi(length, constant_index(1))
                place = arith.minsi(arith.maxsi(place, constant_index(0)), last)
            places.append(place)
        element = tensor.extract(source, places)
        if inside is None:
            return element
        return arith.select(inside, element, arith.ConstantOp(kind.element_type, outside).result)

    maps, kinds = [ir.AffineMap.get_identity(kind.rank)], ["parallel"] * kind.rank
    return generic([], [start], maps, kinds, body).results[0]


def _sum(numbers: Sequence[int | ir.Value]) -> ir.Value | None:
    """A sum of numbers and indices; None where it is 0 for certain."""
    known = sum(number for number in numbers if isinstance(number, int))
    total = constant_index(known) if known else None
    for number in numbers:
        if isinstance(number, ir.Value):
            total = number if total is None else arith.addi(total, number)
    return total
