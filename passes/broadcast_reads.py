"""Broadcasts that torch-mlir writes for sizes that are open until the call, where along these nothing is broadcast.

%y = linalg.generic outs(%e : tensor<?x64xf32>) {               // %e has as many rows as %x
  %i = linalg.index 0
  %j = arith.select (tensor.dim %x, 0 == 1), %c0, %i       =>   %x in the place of %y
  linalg.yield (tensor.extract %x[%j, %k])
}

Along dimensions of one element it may be: then a generic whose map has not these reads %x.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.generics import constant_index, moved
from kitsune_mlir.mlir import arith, attr_int, ir, replace_op, tensor
from kitsune_mlir.operations import made_by, operations_of
from kitsune_mlir.program import NO_SYMBOL, SYMBOLS

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


def divide_exactly(division: ir.Operation) -> None:
    """Takes the size for a division of its product with a number by that number, or by a divisor: so that equal sizes
    are one value."""
    product, number = rows.producer(division.operands[0]), constant(division.operands[1])
    if product is None or not number:
        return
    with division.location, ir.InsertionPoint(division):
        size = _of_collapsed(product, number) if product.name == "tensor.dim" else _of_product(product, number)
    if size is not None:
        replace_op(division, size)


def _of_product(product: ir.Operation, number: int) -> ir.Value | None:
    found = _factors(product)
    return _times(found[0], found[1] // number) if found is not None and found[1] % number == 0 else None


def _factors(product: ir.Operation) -> tuple[ir.Value, int] | None:
    """The size and the number that an operation multiplies, if it is one that does."""
    factor = None
    if product.name == "arith.muli":
        factor = constant(product.operands[1])
    elif product.name == "affine.apply" and len(product.operands) == 1:
        (expr,) = ir.AffineMapAttr(product.attributes["map"]).value.results
        plain = isinstance(expr, ir.AffineMulExpr) and not hasattr(expr.lhs, "lhs")
        factor = expr.rhs.value if plain and isinstance(expr.rhs, ir.AffineConstantExpr) else None
    return (product.operands[0], factor) if factor else None


def _times(size: ir.Value, number: int) -> ir.Value:
    return size if number == 1 else arith.muli(size, constant_index(number))


def _of_collapsed(dim: ir.Operation, number: int) -> ir.Value | None:
    """The open size that is a dimension of joined ones together with known sizes of that product."""
    collapse, axis = rows.producer(dim.operands[0]), constant(dim.operands[1])
    if collapse is None or collapse.name != "tensor.collapse_shape" or axis is None:
        return None
    shape, group = rows.shape_of(collapse.operands[0]), rows.groups_of(collapse)[axis]
    open_ = [d for d in group if shape[d] == rows.DYNAMIC]
    others = prod(shape[d] for d in group if d not in open_)
    if len(open_) != 1 or others % number:
        return None
    op = rows.producer(collapse.operands[0])
    if op is not None and op.name.startswith("linalg.") and len(op.results) == 1:
        known = (_sizes(op.operands[len(op.operands) - 1]) or {}).get(open_[0])
        if known is not None:
            return _times(known, others // number)
    return _times(tensor.dim(collapse.operands[0], constant_index(open_[0])), others // number)


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
    return size is not None and _origin(size) == _origin_of(x, axis)


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
    counted, one = condition.operands
    same = _origin(counted) == _origin(size) if size is not None else constant(counted) == known
    return same and constant(one) == 1 and constant(op.operands[1]) == 0 and _is_loop(op.operands[2], loop, size, known)


def _origin(size: ir.Value) -> tuple[ir.Value | tuple[ir.Value, int] | int, int]:
    """What a size is known to be, that of a tensor, a number, or the symbol of an argument's size, and how many times
    that."""
    op, times = rows.producer(size), 1
    while op is not None and (op.name == "arith.index_cast" or _factors(op) is not None):
        size, factor = _factors(op) or (op.operands[0], 1)
        op, times = rows.producer(size), times * factor
    axis = constant(op.operands[1]) if op is not None and op.name == "tensor.dim" else None
    if op is None or axis is None:
        return size, times
    found, factor = _origin_of(op.operands[0], axis)
    return found, times * factor


def _origin_of(x: ir.Value, axis: int) -> tuple[ir.Value | tuple[ir.Value, int] | int, int]:
    found = rows.source_of_size(x, axis)
    if isinstance(found, ir.Value):
        return _origin(found)
    symbol = symbol_of(*found)
    return (found if symbol == NO_SYMBOL else symbol), 1


def symbol_of(value: ir.Value, axis: int) -> int:
    """The number of an open size of a program's argument, NO_SYMBOL where none is known, as for other tensors."""
    if not isinstance(value.owner, ir.Block) or SYMBOLS not in (holder := value.owner.owner.operation).attributes:
        return NO_SYMBOL
    symbols = list(ir.DenseI64ArrayAttr(ir.ArrayAttr(holder.attributes[SYMBOLS])[ir.BlockArgument(value).arg_number]))
    return symbols[axis] if axis < len(symbols) else NO_SYMBOL
