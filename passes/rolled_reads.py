"""What an operator reads of a tensor that is rolled along a dimension, as torch.roll does, it reads where it lies.

    %a = tensor.extract_slice %x[0, 1] [8, 63] ...,  %b = tensor.extract_slice %x[0, 0] [8, 1] ...
    %c = tensor.concat dim(1) %a, %b : (tensor<8x63xf32>, tensor<8x1xf32>) -> tensor<8x64xf32>
    %y = linalg.generic ins(%x, %c) { %x - %c } ...                               // a difference on a periodic grid
  =>
    %c = linalg.generic { %d = linalg.index 1;  tensor.extract %x[.., %d < 63 ? %d + 1 : %d - 63] } ...

which is fused with what reads it. A copy of the tensor for each neighbour would be written, and read again. A roll of
a roll, as of images whose windows are shifted, is one of both dimensions, whoever reads it but sums. What whole vectors
of a line change places with is left to concatenation_readers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.generics import constant_index, generic
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import slice_of, users_of
from kitsune_mlir.traffic import element_bytes

from .operand_layout import GRANULE
from .product_follows import is_reduced


def read_rolled(main: ir.Operation) -> None:
    """Rewrites such concatenations of @main that elementwise operators alone read, and those of rolls."""
    for concat in reversed(walk(main, "tensor.concat")):
        rolls = _rolls_of(concat)
        uses = [use for use in concat.results[0].uses if use.owner.name != "tensor.dim"] if rolls else []
        if not uses or len(rolls) == 1 and (not all(map(is_read_elementwise, uses)) or _swaps_vectors(concat)):
            continue
        if len(rolls) > 1 and is_reduced(concat.results[0]):  # a sum whose elements lie apart is shared by few threads
            continue
        for use in uses:
            if is_read_elementwise(use):
                with concat.location, ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = _rolled(rolls)
        if len(rolls) > 1 and list(concat.results[0].uses):
            with concat.location, ir.InsertionPoint(concat):
                replace_op(concat, _rolled(rolls))
        elif not list(concat.results[0].uses):
            concat.erase()


@dataclass(frozen=True)
class _Roll:
    """A tensor from element `first` of a dimension on, and then those before, as a concatenation of slices."""

    concat: ir.Operation
    source: ir.Value
    dim: int
    first: int


def _rolls_of(concat: ir.Operation) -> list[_Roll]:
    """The roll that a concatenation is, and those of what it rolls that nothing else reads, the last one first."""
    found = list[_Roll]()
    while (first := _first_of(concat)) is not None and attr_int(concat, "dim") not in {roll.dim for roll in found}:
        parts = [rows.producer(part) for part in concat.operands]
        source = parts[0].operands[0]
        found.append(_Roll(concat, source, attr_int(concat, "dim"), first))
        concat = rows.producer(source)
        others = [user for user in users_of(source) if user.name != "tensor.dim"]
        if concat is None or concat.name != "tensor.concat" or {*others} != {*parts}:
            break
    return found


def _first_of(concat: ir.Operation) -> int | None:
    """Where in the tensor the first element of two slices of it lies that are all of it; None for others."""
    slices = [rows.producer(part) for part in concat.operands]
    if len(slices) != 2 or any(op is None or op.name != "tensor.extract_slice" for op in slices):
        return None
    (one, other), dim = slices, attr_int(concat, "dim")
    kind = ir.RankedTensorType(concat.results[0].type)
    if one.operands[0] != other.operands[0] or one.operands[0].type != kind or kind.is_dynamic_dim(dim):
        return None
    offsets = [slice_of(op).offsets for op in slices]
    whole = all(set(slice_of(op).strides) == {1} for op in slices)
    whole = whole and not any(at for own in offsets for d, at in enumerate(own) if d != dim)
    sizes = [rows.shape_of(op.results[0])[dim] for op in slices]
    return offsets[0][dim] if whole and [own[dim] for own in offsets] == [sizes[1], 0] else None


def is_read_elementwise(use: ir.OpOperand) -> bool:
    """Whether an operator computes each of its results of the tensor's element in the same place."""
    op = use.owner.operation
    if op.name != "linalg.generic":
        return False
    s = rows.Structured(op)
    return use.operand_number < s.inputs and s.is_elementwise()


def _swaps_vectors(concat: ir.Operation) -> bool:
    """Whether it is along lines, of which whole vectors of threads change places."""
    dim, kind = attr_int(concat, "dim"), ir.RankedTensorType(concat.results[0].type)
    nbytes = element_bytes(kind.element_type)
    return dim == kind.rank - 1 and all(rows.shape_of(part)[dim] * nbytes % GRANULE == 0 for part in concat.operands)


def _rolled(rolls: Sequence[_Roll]) -> ir.Value:
    """What is rolled, at the insertion point."""
    source = rolls[-1].source
    kind = ir.RankedTensorType(source.type)

    def element(_: ir.Value) -> ir.Value:
        places = [linalg.IndexOp(d).result for d in range(kind.rank)]
        for roll in rolls:
            at, count = places[roll.dim], constant_index(kind.shape[roll.dim] - roll.first)
            is_behind = arith.cmpi(arith.CmpIPredicate.ult, at, count)
            moved = arith.addi(at, constant_index(roll.first)), arith.subi(at, count)
            places[roll.dim] = arith.select(is_behind, *moved)
        return tensor.extract(source, places)

    start = tensor.empty(_sizes(rolls[0]), kind.element_type)
    return generic([], [start], [ir.AffineMap.get_identity(kind.rank)], ["parallel"] * kind.rank, element).results[0]


def _sizes(roll: _Roll) -> list[int | ir.Value]:
    """Those of the result: along the other dimensions the slices', which begin where the tensor does."""
    cut = rows.producer(roll.concat.operands[0])
    given = iter(list(cut.operands)[1:])
    sizes = [next(given) if size == rows.DYNAMIC else size for size in slice_of(cut).sizes]
    return [size if d != roll.dim else ir.RankedTensorType(roll.source.type).shape[d] for d, size in enumerate(sizes)]
