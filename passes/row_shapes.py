"""Elementwise operators behind what has rows, or in front of it, in the rows' dimensions.

    %y = linalg.generic {...} -> tensor<8x32x8192xf32>                   // of a reduction over 8192 columns
    %v = tensor.collapse_shape %y [[0], [1, 2]] : ... into tensor<8x262144xf32>
    %g = linalg.generic {...} ins(%v, %w : tensor<8x262144xf32>, tensor<262144xf32>) ...
  =>
    %r = tensor.expand_shape %w ... into tensor<32x8192xf32>
    %f = linalg.generic {...} ins(%y, %r : tensor<8x32x8192xf32>, tensor<32x8192xf32>) ...
    %g = tensor.collapse_shape %f ... into tensor<8x262144xf32>

A group of channels is a row of a group norm, an image of an activation behind it; a mean has channels as rows, an
activation in front of it images, where a pipeline that was cut had these as its rows. As they lie in memory alike, one
kernel can compute both. So can one of what is elementwise behind a norm whose groups are too large for rows. The first
size may be open until the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.generics import generic, map_of
from kitsune_mlir.mlir import ir, replace_op, tensor
from kitsune_mlir.operations import element_type, made_by, operations_of, users_of
from kitsune_mlir.planning.open_sizes import LARGE

from .product_follows import is_elementwise
from .reshapes import reshaped
from .row_groups import Member, Role, Space, fit, root, space_of
from .tensor_sizes import or_none


def take_row_shapes(block: ir.Block) -> None:
    """Rewrites such operators of a block: as they are they would be no members of the rows' groups, or not one kernel
    with what stands behind these."""
    operators = operations_of(block, "linalg.generic")
    spaces = list(dict.fromkeys(space for op in operators if (space := space_of(op)) is not None))
    for op in operators:
        if not is_elementwise(op, []):
            continue
        own = _sizes(op.results[0])
        for value in [root(value) for value in op.operands if rows.is_tensor(value)]:
            shape = _sizes(value)
            alike = shape != own and min(own + shape, default=0) > 0 and prod(shape) == prod(own)
            if alike and (_has_rows(value, spaces) or _spreads(value)):
                _take(op, shape)
                break
    operators = operations_of(block, "linalg.generic")
    for op in reversed(operators):
        if is_elementwise(op, []) and (shape := next(_shapes_read(op, spaces), None)) is not None:
            own = _sizes(op.results[0])
            known = min(own + shape, default=0) > 0 and prod(own) > 1 and not _has_rows(op.results[0], spaces)
            if known and not (LARGE in own and _only_rounds(op)):
                _take(op, shape)


def _only_rounds(op: ir.Operation) -> bool:
    """Whether an operator does nothing but round what another one makes, whose kernel stores it so."""
    return [inner.operation.name for inner in op.regions[0].blocks[0].operations] == ["arith.truncf", "linalg.yield"]


def _shapes_read(op: ir.Operation, spaces: Sequence[Space]) -> Iterator[list[int]]:
    """The shapes in which members of groups over these spaces read a reshape of what an operator gives."""
    for reshape in users_of(op.results[0]):
        if reshape.name not in rows.RESHAPES:
            continue
        yield from _shapes_read(reshape, spaces)
        for use in reshape.results[0].uses:
            reader = use.owner.operation
            found = [member for space in spaces if (member := fit(reader, space)) is not None]
            if any(member.is_whole(role) for member in found for role in _role(member, use)):
                yield _sizes(reshape.results[0])


def _sizes(value: ir.Value) -> list[int]:
    """A tensor's sizes, `LARGE` for the first where it is open; negative where another one is."""
    first, *rest = rows.shape_of(value) or [1]
    return [LARGE if first == rows.DYNAMIC else first, *rest]


def _role(member: Member, use: ir.OpOperand) -> tuple[Role | None, ...]:
    """That of the operand that a use is; none where it is the result's start."""
    return member.roles[use.operand_number : use.operand_number + 1]


def _has_rows(value: ir.Value, spaces: Sequence[Space]) -> bool:
    """Whether a tensor is made of rows and columns of a space."""
    maker = made_by(value, "linalg.generic")
    if maker is None:
        return False
    return any((member := fit(maker, space)) is not None and member.kind == "tile" for space in spaces)


def _spreads(value: ir.Value) -> bool:
    """Whether an elementwise operator makes a tensor of what has not all of its dimensions, such as the weights of the
    channels of a norm whose groups are no rows: its loops stay these."""
    maker = rows.producer(value)
    if maker is None or not is_elementwise(maker, []):
        return False
    s = rows.Structured(maker)
    loops = len(s.iterators)
    return any(0 < len(rows_of) < loops for rows_of in map(_long, s.maps[: s.inputs]))


def _long(map_: ir.AffineMap) -> list[int]:
    """The loops that an operand has."""
    return [loop for loop in map(rows.dim_of, map_.results) if loop is not None]


def _take(op: ir.Operation, shape: list[int]) -> None:
    """Puts the operator in loops of these sizes in the place of `op`, unless an operand has no such form."""
    s, own = rows.Structured(op), _sizes(op.results[0])
    forms = [_form(map_, own, shape) for map_ in s.maps[: s.inputs]]
    if any(form is None for form in forms) or LARGE in shape and list(range(len(shape))) not in forms:
        return
    with op.location, ir.InsertionPoint(op):
        inputs, maps, sizes = [], [], list[int | ir.Value](shape)
        for value, form in zip(op.operands, forms):
            if rows.is_tensor(value):
                value = reshaped(value, [or_none(shape[d]) for d in form])
                if len(form) == len(shape) and LARGE in shape:
                    sizes = [rows.size_of(value, 0), *shape[1:]]
                form = form or [None] * len(rows.shape_of(value))  # of a single element, which stays as it is
            inputs.append(value)
            maps.append(map_of(len(shape), form))
        start = tensor.empty(sizes, element_type(op.results[0]))
        maps.append(map_of(len(shape), range(len(shape))))
        made = generic(inputs, [start], maps, ["parallel"] * len(shape), s.body)
        result = reshaped(made.results[0], [or_none(size) for size in own])
    replace_op(op, result)


def _form(map_: ir.AffineMap, own: list[int], shape: list[int]) -> list[int] | None:
    """The loops that an operand has where these have other sizes: all, the first or the last; None for others."""
    found, loops = [rows.dim_of(result) for result in map_.results], list(range(len(shape)))
    if found == list(range(len(own))):
        return loops
    size = prod(own[: len(found)])
    if found == list(range(len(found))):
        return next((loops[:n] for n in range(len(loops) + 1) if prod(shape[:n]) == size), None)
    size = prod(own[len(own) - len(found) :])
    if found == list(range(len(own) - len(found), len(own))):
        return next((loops[n:] for n in reversed(range(len(loops) + 1)) if prod(shape[n:]) == size), None)
    return None
