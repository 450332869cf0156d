"""Sums over rows, as gradients of biases and of norms' weights are, have their own of what else is computed of rows:

    %n = linalg.generic ... ins(%x : bf16, %mean, %by) -> f32      // read along the rows, too
    %p = linalg.generic ... ins(%g : bf16, %n)
    %s = linalg.generic {iterator_types = ["reduction", "parallel"]} ins(%p)
  =>
    %m = linalg.generic ... ins(%x, %mean, %by)                    // as %n; with %p part of what sums
    %p = linalg.generic ... ins(%g, %m)
    %s = linalg.generic {iterator_types = ["reduction", "parallel"]} ins(%p)

A group of rows keeps %n to itself then (schedule_rows.py); else it is written in f32, and read again. Arithmetic is
computed twice where what it is of has no more bytes than what would be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import in_block_order, ir
from kitsune_mlir.traffic import element_bytes

from .recomputed_elements import is_arithmetic

_MOST = 16  # operators that are computed again
_LEAST = 1 << 16  # elements, below which a kernel takes no longer for what it moves


def keep_sums_apart(block: ir.Block) -> None:
    """Rewrites a block in place."""
    for sum_ in [op.operation for op in block.operations if _sums_rows(op.operation)]:
        values = [value for value in _alike(sum_) if rows.producer(value) is not None]
        chain, leaves = _chain(sum_, values)
        shared = [op for op in chain if any(use.owner.operation not in (*chain, sum_) for use in op.results[0].uses)]
        if not shared or len(chain) > _MOST or _bytes(leaves) > _bytes(_chain(sum_, values, shared)[1]):
            continue
        own: dict[ir.Value, ir.Value] = {}
        with ir.InsertionPoint(sum_):
            for op in chain:
                made = op.clone()
                for i, operand in enumerate(made.operands):
                    made.operands[i] = own.get(operand, operand)
                own[op.results[0]] = made.results[0]
        for i, operand in enumerate(sum_.operands):
            sum_.operands[i] = own.get(operand, operand)
        for op in reversed(chain):
            if not list(op.results[0].uses):
                op.erase()


def _sums_rows(op: ir.Operation) -> bool:
    """Whether an operation sums over dimensions of its operands in front of the last, and over that one not."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    iterators = rows.Structured(op).iterators
    return "reduction" in iterators and iterators[-1] == "parallel"


def _alike(op: ir.Operation) -> list[ir.Value]:
    """The inputs that have all of an operation's loops, in order."""
    s = rows.Structured(op)
    whole = ir.AffineMap.get_identity(len(s.iterators))
    return [op.operands[i] for i in range(s.inputs) if s.maps[i] == whole]


def _is_arithmetic(op: ir.Operation) -> bool:
    """Whether it computes each element of one of each of its operands, by arithmetic alone."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return False
    s = rows.Structured(op)
    if not s.is_elementwise() or s.maps[-1] != ir.AffineMap.get_identity(len(s.iterators)):
        return False
    return is_arithmetic(s)


def _chain(
    sum_: ir.Operation, values: list[ir.Value], until: Sequence[ir.Operation] = ()
) -> tuple[list[ir.Operation], set[ir.Value]]:
    """The arithmetic that a sum's operands are made by, in the block's order, and the tensors of as many elements that
    this is made of; what is made by the operators of `until` is such a tensor."""
    chain, leaves, waiting = list[ir.Operation](), set[ir.Value](), list(values)
    while waiting and len(chain) <= _MOST:
        value = waiting.pop()
        op = rows.producer(value)
        if (
            op is None
            or op in until
            or op.block != sum_.block
            or not _is_arithmetic(op)
            or prod(_sizes(value)) < _LEAST
        ):
            leaves.add(value)
        elif op not in chain:
            chain.append(op)
            waiting += _alike(op)
    return in_block_order(chain), leaves


def _sizes(value: ir.Value) -> list[int]:
    return [size or 1 for size in rows.known_sizes(value)]


def _bytes(values: set[ir.Value]) -> int:
    return sum(element_bytes(ir.RankedTensorType(v.type).element_type) * prod(_sizes(v)) for v in values)
