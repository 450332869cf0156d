"""Reshapes that torch-mlir writes for sizes that are open until the call, where one dimension is split.

%s = tensor.from_elements %b, %t, %c16                         %0 = arith.index_cast %b, %1 = arith.index_cast %t
%y = tensor.reshape %x(%s)                               =>    %y = tensor.expand_shape %x [[0, 1], [2]]
     : (tensor<?x16xf32>, ...) -> tensor<?x?x16xf32>                output_shape [%0, %1, 16]
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, ir, tensor


def expand_instead(reshape: ir.Operation) -> None:
    """Says which dimension is split, where it is the only one of the tensor whose size is open."""
    source, shape = reshape.operands
    elements = rows.producer(shape)
    before, after = rows.shape_of(source), rows.shape_of(reshape.results[0])
    more = len(after) - len(before)
    if elements is None or elements.name != "tensor.from_elements" or more < 1 or before.count(rows.DYNAMIC) != 1:
        return
    split = before.index(rows.DYNAMIC)
    if after[:split] != before[:split] or after[split + more + 1 :] != before[split + 1 :]:
        return
    ends = range(split, split + more + 1)
    groups = [*([d] for d in range(split)), list(ends), *([d + more] for d in range(split + 1, len(before)))]
    with ir.InsertionPoint(reshape), reshape.location:
        sizes = [_as_index(elements.operands[d]) for d in ends if after[d] == rows.DYNAMIC]
        expanded = tensor.ExpandShapeOp(reshape.results[0].type, source, groups, sizes, after).result
        reshape.results[0].replace_all_uses_with(expanded)
    reshape.erase()


def _as_index(size: ir.Value) -> ir.Value:
    index = ir.IndexType.get()
    return size if size.type == index else arith.index_cast(index, size)
