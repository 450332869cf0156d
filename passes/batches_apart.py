"""What the tensors that operands of products lie in are (split_batches.py): their sizes, how they have the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import Roles
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning import open_sizes

from .reshapes import cut_for
from .split_batches import lies
from .tensor_sizes import Shape, TensorSizes

Operand = tuple[ir.Value, Roles, int]  # with its roles, and into how many rows its rows are cut; 0: they are not


def check_open(operands: Sequence[Operand], sizes: Iterable[int], known: TensorSizes) -> None:
    """Raises UnsupportedError where operands do not have what is open of these sizes as dimensions of their own."""
    opened = set(map(open_sizes.open_part, sizes)) - {1}
    found = {dim.size for operand in operands for dim in lies(*operand, known.shape)[1] if open_sizes.is_open(dim.size)}
    if found != opened:
        raise UnsupportedError("a size that is open until the call is a part of one of an operand")
    if len(opened) > 1:
        for operand in operands:
            check_apart(*operand, known.shape, known.is_computed)


def check_apart(
    value: ir.Value, roles: Roles, rows_together: int, shape: Shape, is_given: Callable[[int], bool]
) -> None:
    """Raises UnsupportedError where what an operand's elements lie in is not cut into these sizes, of which open ones
    that it has not have to be given."""
    found, dims = lies(value, roles, rows_together, shape)
    own, wanted, op = shape(found), [dim.size for dim in dims], rows.producer(found)
    if op is not None and op.name in rows.RESHAPES and shape(op.operands[0]) == wanted:
        return
    if not dims or own == wanted:
        return
    if not all(size in own or is_given(size) for size in cut_for(own, wanted) if open_sizes.is_open(size)):
        raise UnsupportedError("a size that no argument has is a part of another one")


def batch_parts(value: ir.Value, roles: Roles, shape: Shape) -> dict[str, int] | None:
    """The dimensions that the batch is cut into in the tensor that an operand lies in, the outermost first, with their
    sizes, by roles; None where it is one dimension, or they are not all of it."""
    parts = [dim for dim in lies(value, roles, 0, shape)[1] if dim.role == "b"]
    parts.sort(key=lambda dim: -dim.step)
    whole = prod(size for role, size in zip(roles, shape(value), strict=True) if role == "b")
    alone = not any(dim.number or dim.taken for dim in parts)
    return (
        {dim.name: dim.size for dim in parts} if alone and parts[1:] and prod(d.size for d in parts) == whole else None
    )
