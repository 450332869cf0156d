"""Places that a gather reads from a count, as in x[torch.arange(n)[:, None], index], are its own loops (by
prepare-linalg).

    %n = linalg.generic { arith.index_cast (linalg.index 0) } -> tensor<96xi64>
    %y = linalg.generic ins(%n, %i) { ... tensor.extract %x[%n, %i] ... }
  =>
    %y = linalg.generic ins(%i) { ... tensor.extract %x[linalg.index 0, %i] ... }

So nothing checks them, and what a tensor has alike along their dimension is not written for each of them. Rows that
are the first of a longer table, as those of places in a text, are gathered as they are.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.mlir import arith, attr_int, ir, linalg
from kitsune_mlir.operations import is_generic, operations_of

from .broadcast_reads import same_size

_LESS = 2  # arith.cmpi's slt


def count_places(op: ir.Operation) -> None:
    """Rewrites the body of a linalg.generic that takes elements by number."""
    s = rows.Structured(op)
    if not s.tables() or not s.is_elementwise():
        return
    for number in range(s.inputs):
        argument = s.body.arguments[number]
        if list(argument.uses) and (axis := _counted(op.operands[number])) is not None:
            loop = rows.dim_of(s.maps[number].results[axis])
            if loop is not None and _is_all_of(op, argument, loop):
                with op.location, ir.InsertionPoint.at_block_begin(s.body):
                    place = arith.index_cast(argument.type, linalg.IndexOp(loop).result)
                argument.replace_all_uses_with(place)
                _never_negative(place)


def _is_all_of(op: ir.Operation, argument: ir.Value, loop: int) -> bool:
    """Whether the tensors of which a body takes elements at such places are as long as the loop along them."""
    start = op.operands[rows.Structured(op).inputs]
    size, seen, last = rows.shape_of(start)[loop], set[ir.Value](), [argument]
    while last:
        value = last.pop()
        for use in value.uses:
            user = use.owner.operation
            if user.name == "tensor.extract":
                table, axis = user.operands[0], use.operand_number - 1
                length = rows.shape_of(table)[axis]
                if length != size or length == rows.DYNAMIC and not same_size(table, axis, start, loop):
                    return False
            elif user.name.startswith("arith.") and user.results[0] not in seen:
                seen.add(user.results[0])
                last.append(user.results[0])
    return True


def _counted(value: ir.Value) -> int | None:
    """The dimension along which a tensor counts from 0, all others being of one element."""
    if not rows.is_tensor(value) or not isinstance(value.type.element_type, ir.IntegerType):
        return None
    shape = rows.shape_of(value)
    long = [d for d, size in enumerate(shape) if size != 1]
    op = rows.producer(value)
    while op is not None and op.name in rows.RESHAPES:
        op = rows.producer(op.operands[0])
    if len(long) != 1 or not is_generic(op):
        return None
    made = [d for d, size in enumerate(rows.shape_of(op.results[0])) if size != 1]
    body = operations_of(op.regions[0].blocks[0])
    if len(made) != 1 or [one.name for one in body] != ["linalg.index", "arith.index_cast", "linalg.yield"]:
        return None
    plain = rows.Structured(op).is_elementwise() and body[1].operands[0] == body[0].results[0]
    yields = body[2].operands[0] == body[1].results[0]
    return long[0] if plain and yields and attr_int(body[0], "dim") == made[0] else None


def _never_negative(place: ir.Value) -> None:
    """A count is not below 0, which torch-mlir asks of each number."""
    for use in list(place.uses):
        op = use.owner.operation
        below = op.name == "arith.cmpi" and attr_int(op, "predicate") == _LESS and use.operand_number == 0
        if below and constant(op.operands[1]) == 0:
            for further in list(op.results[0].uses):
                if further.owner.name == "arith.select" and further.operand_number == 0:
                    further.owner.operation.results[0].replace_all_uses_with(further.owner.operands[2])
