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

A sum of what is computed along rows is made of what another such sum reads anyway, and of numbers of rows:

    %d = linalg.generic ... ins(%x, %g, %mean, %by, %c) -> bf16    // a norm's gradient; %c is summed along rows
    %s = linalg.generic {iterator_types = ["reduction", "parallel"]} ins(%d)
    %t = linalg.generic {iterator_types = ["reduction", "parallel"]} ins(%p)     // of %x and %g
  =>
    %s = linalg.generic {iterator_types = ["reduction", "parallel"]} ins(%x, %g, %mean, %by, %c)

Both are one kernel then (shared_sums.py), which reads no %d: such are the gradients of a norm, and of the bias of the
layer before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.generics import cloned, generic, sizes_of
from kitsune_mlir.mlir import in_block_order, ir, linalg, replace_op, tensor
from kitsune_mlir.operations import element_type, erase_unused, is_generic
from kitsune_mlir.traffic import element_bytes

from .recomputed_elements import is_arithmetic
from .reshapes import reshaped

_MOST = 16  # operators that are computed again
_LEAST = 1 << 16  # elements, below which a kernel takes no longer for what it moves


def keep_sums_apart(block: ir.Block) -> None:
    """Rewrites a block in place."""
    _sum_what_is_read(block)
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
            erase_unused(op)


def _sum_what_is_read(block: ir.Block) -> None:
    """Rewrites sums that others, of the same loops, read all for that is large."""
    sums = [op.operation for op in block.operations if _sums_rows(op.operation)]
    found = [(sum_, *_chain(sum_, _alike(sum_))) for sum_ in sums]
    merged: dict[ir.Operation, list[ir.Operation]] = {}
    for sum_, chain, leaves in found:
        others = [op for op, _, own in found if op != sum_ and leaves <= own and _has_loops_of(op, sum_)]
        if leaves and others and len(chain) <= _MOST and _waits(chain, leaves):
            merged = dict.fromkeys(others, list[ir.Operation]()) | merged | {sum_: chain}
    for sum_, chain in merged.items():
        replace_op(sum_, _with_chain(sum_, chain))
        for op in reversed(chain):
            erase_unused(op)


def _waits(chain: list[ir.Operation], leaves: set[ir.Value]) -> bool:
    """Whether arithmetic takes numbers of rows that are computed."""
    made = leaves | {op.results[0] for op in chain}
    values = (value for op in chain for value in rows.Structured(op).given if value not in made)
    return any(rows.is_tensor(value) and rows.producer(value) is not None for value in values)


def _has_loops_of(op: ir.Operation, other: ir.Operation) -> bool:
    a, b = rows.Structured(op), rows.Structured(other)
    return a.iterators == b.iterators and [*map(_sizes, _alike(op)[:1])] == [*map(_sizes, _alike(other)[:1])]


def _with_chain(sum_: ir.Operation, chain: list[ir.Operation]) -> ir.Value:
    """A sum that computes the arithmetic which makes its operands itself; dimensions of one element come behind it."""
    made = {op.results[0] for op in chain}
    read: dict[tuple[ir.Value, ir.AffineMap], int] = {}
    for op in (*chain, sum_):
        s = rows.Structured(op)
        for value, map_ in zip(s.given, s.maps):
            if value not in made:
                read.setdefault((value, map_), len(read))

    def body(*arguments: ir.Value) -> list[ir.Value]:
        computed: dict[ir.Value, ir.Value] = {}

        def given(op: ir.Operation) -> list[ir.Value]:
            s = rows.Structured(op)
            pairs = zip(s.given, s.maps)
            return [computed[value] if value in made else arguments[read[value, map_]] for value, map_ in pairs]

        for op in chain:
            (computed[op.results[0]],) = cloned(rows.Structured(op).body, [*given(op), None])
        return cloned(rows.Structured(sum_).body, [*given(sum_), arguments[-1]])

    s, start = rows.Structured(sum_), sum_.operands[-1]
    kind, kept = ir.RankedTensorType(start.type), s.maps[s.inputs]
    with sum_.location, ir.InsertionPoint(sum_):
        if (filled := rows.producer(start)) is not None and filled.name == "linalg.fill":
            dims = [d for d, expr in enumerate(kept.results) if isinstance(expr, ir.AffineDimExpr)]
            kept = ir.AffineMap.get(kept.n_dims, 0, [kept.results[d] for d in dims])
            start = linalg.fill(filled.operands[0], outs=[tensor.empty(sizes_of(start, dims), kind.element_type)])
        maps = [*(map_ for _, map_ in read), kept]
        made = generic([value for value, _ in read], [start], maps, s.iterators, body)
        return reshaped(made.results[0], list(kind.shape))


def _sums_rows(op: ir.Operation) -> bool:
    """Whether an operation sums over dimensions of its operands in front of the last, and over that one not."""
    if not is_generic(op):
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
    if not is_generic(op):
        return False
    s = rows.Structured(op)
    return s.is_elementwise() and is_arithmetic(s)


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
    return sum(element_bytes(element_type(v)) * prod(_sizes(v)) for v in values)
