"""What an operator reads of a tensor that is rolled along a dimension, as torch.roll does, it reads where it lies.

    %a = tensor.extract_slice %x[0, 1] [8, 63] ...,  %b = tensor.extract_slice %x[0, 0] [8, 1] ...
    %c = tensor.concat dim(1) %a, %b : (tensor<8x63xf32>, tensor<8x1xf32>) -> tensor<8x64xf32>
    %y = linalg.generic ins(%x, %c) { %x - %c } ...                               // a difference on a periodic grid
  =>
    %c = linalg.generic { %d = linalg.index 1;  tensor.extract %x[.., %d < 63 ? %d + 1 : %d - 63] } ...

which is fused with what reads it. A copy of the tensor for each neighbour would be written, and read again. What whole
vectors of a line change places with is left to concatenation_readers.py.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, slice_of, tensor, walk
from kitsune_mlir.traffic import element_bytes

from .operand_layout import GRANULE
from .schedule_build import constant_index, generic, sizes_of
from .tensor_sizes import TensorSizes


def read_rolled(main: ir.Operation) -> None:
    """Rewrites such concatenations of @main that elementwise operators alone read."""
    sizes = None
    for concat in walk(main, "tensor.concat"):
        dim, first, uses = attr_int(concat, "dim"), _first_of(concat), list(concat.results[0].uses)
        if first is None or not uses or not all(map(is_read_elementwise, uses)) or _swaps_vectors(concat, dim):
            continue
        source = rows.producer(concat.operands[0]).operands[0]
        if rows.DYNAMIC in rows.shape_of(source):
            sizes = sizes or TensorSizes(main.regions[0].blocks[0])
            if any(_others(sizes, part, dim) != _others(sizes, source, dim) for part in concat.operands):
                continue
        for use in uses:
            with concat.location, ir.InsertionPoint(use.owner):
                use.owner.operands[use.operand_number] = _rolled(source, dim, first)


def _others(sizes: TensorSizes, value: ir.Value, dim: int) -> list[int]:
    """A tensor's sizes but that of one dimension."""
    return [size for d, size in enumerate(sizes.shape(value)) if d != dim]


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


def _swaps_vectors(concat: ir.Operation, dim: int) -> bool:
    """Whether it is along lines, of which whole vectors of threads change places."""
    kind = ir.RankedTensorType(concat.results[0].type)
    nbytes = element_bytes(kind.element_type)
    return dim == kind.rank - 1 and all(rows.shape_of(part)[dim] * nbytes % GRANULE == 0 for part in concat.operands)


def _rolled(source: ir.Value, dim: int, first: int) -> ir.Value:
    """A tensor from so many elements along a dimension on, and then those before, at the insertion point."""
    kind = ir.RankedTensorType(source.type)
    behind = kind.shape[dim] - first

    def element(_: ir.Value) -> ir.Value:
        places = [linalg.IndexOp(d).result for d in range(kind.rank)]
        at, count = places[dim], constant_index(behind)
        is_behind = arith.cmpi(arith.CmpIPredicate.ult, at, count)
        places[dim] = arith.select(is_behind, arith.addi(at, constant_index(first)), arith.subi(at, count))
        return tensor.extract(source, places)

    start = tensor.empty(sizes_of(source), kind.element_type)
    return generic([], [start], [ir.AffineMap.get_identity(kind.rank)], ["parallel"] * kind.rank, element).results[0]
