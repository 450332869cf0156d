"""Broadcasts that torch-mlir writes for sizes that are open until the call, where along these nothing is broadcast.

%y = linalg.generic outs(%e : tensor<?x64xf32>) {               // %e has as many rows as %x
  %i = linalg.index 0
  %j = arith.select (tensor.dim %x, 0 == 1), %c0, %i       =>   %x in the place of %y
  linalg.yield (tensor.extract %x[%j, %k])
}

Along dimensions of one element it may be: then a generic whose map has not these reads %x.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.generics import moved
from kitsune_mlir.mlir import attr_int, ir, tensor
from kitsune_mlir.operations import made_by, operations_of

from .folded_sizes import Numbers
from .reshapes import without_units

_BODY = ("linalg.index", "tensor.dim", "arith.cmpi", "arith.select", "arith.constant", "tensor.extract", "linalg.yield")


def read_plainly(generic: ir.Operation) -> None:
    """Takes the tensor for a generic that gives each of its elements; one that repeats them reads them by its map."""
    body = operations_of(generic.regions[0].blocks[0])
    extracts = [op for op in body if op.name == "tensor.extract"]
    if len(generic.operands) != 1 or len(extracts) != 1 or not all(op.name in _BODY for op in body):
        return
    (extract,), s = extracts, rows.Structured(generic)
    source, *index = extract.operands
    kind = ir.RankedTensorType(source.type)
    same = source.type == generic.results[0].type
    if body[-1].operands[0] != extract.results[0] or len(s.iterators) != kind.rank:
        return
    if s.maps != [ir.AffineMap.get_identity(kind.rank)] or "reduction" in s.iterators:
        return
    sizes = _sizes(generic.operands[0])
    if sizes is None or not all(_is_loop(x, d, sizes.get(d), kind.shape[d]) for d, x in enumerate(index)):
        return
    if not same and all(size == 1 for size in kind.shape):
        return
    with generic.location, ir.InsertionPoint(generic):
        generic.results[0].replace_all_uses_with(source if same else _repeated(source, generic.operands[0]))
    generic.erase()


def _repeated(source: ir.Value, start: ir.Value) -> ir.Value:
    """A tensor's elements, repeated along its dimensions of one."""
    kind = ir.RankedTensorType(source.type)
    kept = [d for d, size in enumerate(kind.shape) if size != 1]
    if len(kept) < kind.rank:
        groups = without_units(kind.shape)
        type_ = ir.RankedTensorType.get([kind.shape[d] for d in kept], kind.element_type)
        source = tensor.CollapseShapeOp(type_, source, groups).result
    return moved(source, start, kept)


def _sizes(start: ir.Value) -> dict[int, ir.Value] | None:
    """By dimension the open sizes of a tensor.empty; None of anything else."""
    empty = made_by(start, "tensor.empty")
    if empty is None:
        return None
    kind = ir.RankedTensorType(start.type)
    return dict(zip([d for d in range(kind.rank) if kind.is_dynamic_dim(d)], empty.operands, strict=True))


def same_size(x: ir.Value, axis: int, start: ir.Value, loop: int) -> bool:
    """Whether an open size of a tensor is known to be that of a tensor.empty along one of its dimensions."""
    size = (_sizes(start) or {}).get(loop)
    numbers = Numbers()
    return size is not None and numbers.of(size) == numbers.size(x, axis)


def _is_loop(index: ir.Value, loop: int, size: ir.Value | None, known: int) -> bool:
    """Whether an index is a loop's, or 0 where that has one turn."""
    op = rows.producer(index)
    if op is None:
        return False
    if known == 1 and constant(index) == 0:
        return True
    if op.name == "linalg.index":
        return attr_int(op, "dim") == loop
    condition = rows.producer(op.operands[0]) if op.name == "arith.select" else None
    if condition is None or condition.name != "arith.cmpi" or attr_int(condition, "predicate") != 0:
        return False
    (counted, one), numbers = condition.operands, Numbers()
    same = numbers.of(counted) == numbers.of(size) if size is not None else constant(counted) == known
    return same and constant(one) == 1 and constant(op.operands[1]) == 0 and _is_loop(op.operands[2], loop, size, known)
