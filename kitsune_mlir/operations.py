"""What is asked of operations and values again and again: who makes a value, who uses it, what a block holds, what
slices, transposes and pads take."""

from __future__ import annotations

from typing import NamedTuple

from .mlir import ir


def element_type(value: ir.Value) -> ir.Type:
    """The type of a tensor's elements."""
    return ir.RankedTensorType(value.type).element_type


def producer(value: ir.Value) -> ir.Operation | None:
    """The operation that defines a value; None for block arguments."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def made_by(value: ir.Value, *names: str) -> ir.Operation | None:
    """The operation that defines a value, if it is one of these; None where it is another."""
    op = producer(value)
    return op if op is not None and op.name in names else None


def is_generic(op: ir.Operation | None) -> bool:
    """Whether there is an operation, and it is a linalg.generic of one result."""
    return op is not None and op.name == "linalg.generic" and len(op.results) == 1


def users_of(value: ir.Value, *names: str) -> list[ir.Operation]:
    """The operations that use a value, those of the given names or all; one that does so twice stands there twice."""
    return [use.owner.operation for use in value.uses if not names or use.owner.name in names]


def operations_of(block: ir.Block, *names: str) -> list[ir.Operation]:
    """The operations of a block, of the given names or all; safe to erase while iterating."""
    found = [op.operation for op in block.operations]
    return [op for op in found if op.name in names] if names else found


def only_user(value: ir.Value) -> ir.Operation | None:
    """The operation that alone uses a value, and once; None where there is no such one."""
    users = users_of(value)
    return users[0] if len(users) == 1 else None


def end_of(block: ir.Block) -> ir.Operation:
    """The operation that a block ends with."""
    return block.operations[len(block.operations) - 1].operation


def erase_unused(op: ir.Operation) -> None:
    """Erases an operation whose results nobody uses."""
    if not any(True for result in op.results for _ in result.uses):
        op.erase()


class Slice(NamedTuple):
    """What a slice or a view takes along each dimension; `ir.ShapedType.get_dynamic_size()` where a call decides."""

    offsets: list[int]
    sizes: list[int]
    strides: list[int]


def slice_of(op: ir.Operation) -> Slice:
    """What a tensor.extract_slice, a tensor.insert_slice, a memref.subview or their like takes."""
    names = ("static_offsets", "static_sizes", "static_strides")
    return Slice(*(list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in names))


def permutation_of(transpose: ir.Operation) -> list[int]:
    """The dimension of a linalg.transpose's operand that each of its result is."""
    return list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))


def padding_of(pad: ir.Operation) -> tuple[list[int], list[int]]:
    """How many elements a tensor.pad puts in front of each dimension, and behind it; DYNAMIC where a call decides."""
    low, high = (list(ir.DenseI64ArrayAttr(pad.attributes[name])) for name in ("static_low", "static_high"))
    return low, high


def filler_of(pad: ir.Operation) -> ir.Value:
    """What a tensor.pad puts there."""
    return end_of(pad.regions[0].blocks[0]).operands[0]
