"""Broadcasts that torch-mlir writes for sizes that are open until the call, where nothing is broadcast.

%y = linalg.generic outs(%e : tensor<?x64xf32>) {               // %e has as many rows as %x
  %i = linalg.index 0
  %j = arith.select (tensor.dim %x, 0 == 1), %c0, %i       =>   %x in the place of %y
  linalg.yield (tensor.extract %x[%j, %k])
}
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import attr_int, ir

_BODY = ("linalg.index", "arith.cmpi", "arith.select", "arith.constant", "tensor.extract", "linalg.yield")


def read_plainly(generic: ir.Operation) -> None:
    """Takes the tensor for a generic that gives each of its elements."""
    body = [op.operation for op in generic.regions[0].blocks[0].operations]
    extracts = [op for op in body if op.name == "tensor.extract"]
    if len(generic.operands) != 1 or len(extracts) != 1 or not all(op.name in _BODY for op in body):
        return
    (extract,), s = extracts, rows.Structured(generic)
    source, *index = extract.operands
    kind = ir.RankedTensorType(source.type)
    if body[-1].operands[0] != extract.results[0] or source.type != generic.results[0].type:
        return
    if s.maps != [ir.AffineMap.get_identity(kind.rank)] or "reduction" in s.iterators:
        return
    sizes = _sizes(generic.operands[0])
    if sizes is not None and all(_is_loop(x, d, sizes.get(d), kind.shape[d]) for d, x in enumerate(index)):
        generic.results[0].replace_all_uses_with(source)
        generic.erase()


def _sizes(start: ir.Value) -> dict[int, ir.Value] | None:
    """By dimension the open sizes of a tensor.empty; None of anything else."""
    empty = rows.producer(start)
    if empty is None or empty.name != "tensor.empty":
        return None
    kind = ir.RankedTensorType(start.type)
    return dict(zip([d for d in range(kind.rank) if kind.is_dynamic_dim(d)], empty.operands, strict=True))


def _is_loop(index: ir.Value, loop: int, size: ir.Value | None, known: int) -> bool:
    """Whether an index is a loop's, or 0 where that has one turn."""
    op = rows.producer(index)
    if op is None:
        return False
    if op.name == "linalg.index":
        return attr_int(op, "dim") == loop
    condition = rows.producer(op.operands[0]) if op.name == "arith.select" else None
    if condition is None or condition.name != "arith.cmpi" or attr_int(condition, "predicate") != 0:
        return False
    counted, one = condition.operands
    same = counted == size if size is not None else _constant(counted) == known
    return (
        same and _constant(one) == 1 and _constant(op.operands[1]) == 0 and _is_loop(op.operands[2], loop, size, known)
    )


def _constant(value: ir.Value) -> int | None:
    op = rows.producer(value)
    return attr_int(op, "value") if op is not None and op.name == "arith.constant" else None
