"""Sums of exponentials of rows that are summed in parts: each part's own largest number and the sum of exponentials of
what differs from it, at once.

    %m = the largest of %x over the parts of a row, and of those
    %e = exp(%x - %m);  %s = sum of %e
  =>
    %p = the largest of %x over a part                                           // one kernel
    %q = sum of exp(%x - %p)
    %m = the largest of the %p of a row                                          // another one
    %s = sum of %q * exp(%p - %m)

So a GPU reads once what a softmax of few long rows, such as logits over a vocabulary, is of, not twice (Milakov and
Gimelshein, arXiv 1805.02867). What is taken off may be made of the largest number, such as one without infinities. A
part that is masked as a whole takes off the lowest number there is, and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_reduction import Combiner
from kitsune_mlir.generics import elementwise, extended, generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, ir, math, replace_op, tensor
from kitsune_mlir.operations import operations_of

from .row_groups import root, users
from .split_sums import Parts
from .variances import PartsOf, element_of, inputs_of, takes_off

_MOST = 3.4028234663852886e38  # of what f32 holds


def join_softmaxes(block: ir.Block, parts_of: PartsOf) -> None:
    """Rewrites such sums of a block; `parts_of` says in which parts a reduction is done, None where in one."""
    found = list[tuple[ir.Operation, Parts, list[tuple[ir.Operation, ir.Operation]]]]()
    for op in operations_of(block):
        if sorted(inputs_of(op, "arith.maximumf")) != [0, 1] or not isinstance(element_of(op), ir.F32Type):
            continue
        parts = parts_of(op)
        if parts is None or not _is_whole(parts):
            continue
        if sums := list(_sums_of(op, parts, parts_of)):
            found.append((op, parts, sums))
    for op, parts, sums in found:
        _rewrite(op, parts, sums)


def _is_whole(parts: Parts) -> bool:
    """Whether all numbers of a tensor are joined, each once, in several parts of each row."""
    s = parts.s
    is_identity = s.inputs == 1 and s.maps[0] == ir.AffineMap.get_identity(len(s.iterators))
    return is_identity and len(parts.outer) > s.iterators.count("parallel")


def _sums_of(largest: ir.Operation, parts: Parts, parts_of: PartsOf) -> Iterator[tuple[ir.Operation, ir.Operation]]:
    """The sums of exponentials of the same numbers, in such parts, with what takes something off."""
    for less in users(largest.operands[0]):
        if not takes_off(less, largest.operands[0], parts) or not _is_made_of(less.operands[1], largest):
            continue
        for power in users(less.results[0]):
            if inputs_of(power, "math.exp") != [0] or not rows.Structured(power).is_of_elements():
                continue
            for total in users(power.results[0]):
                found = parts_of(total) if sorted(inputs_of(total, "arith.addf")) == [0, 1] else None
                if found is not None and _is_whole(found) and _alike(found) == _alike(parts):
                    yield total, less


def _alike(parts: Parts) -> tuple[object, ...]:
    return tuple(parts.sizes), parts.first, parts.columns, tuple(parts.s.iterators)


def _is_made_of(value: ir.Value, largest: ir.Operation) -> bool:
    """Whether a number for each row is the largest, or made of it alone."""
    op = rows.producer(root(value))
    if op is None or op == largest:
        return op is not None
    if op.name != "linalg.generic" or not (s := rows.Structured(op)).is_of_elements():
        return False
    return s.inputs == 1 and root(op.operands[0]) == largest.results[0]


def _rewrite(op: ir.Operation, parts: Parts, sums: list[tuple[ir.Operation, ir.Operation]]) -> None:
    kind = ir.F32Type.get(op.context)
    largest, plus = Combiner("arith.maximumf", kind), Combiner("arith.addf", kind)
    with op.location, ir.InsertionPoint(op):
        along = parts.along(largest)
        own = elementwise([along], kind, _finite)
        weights = _weights(parts, own, plus)
        across = parts.across(along, largest)
    replace_op(op, across.results[0])
    for total, less in sums:
        with total.location, ir.InsertionPoint(total):
            scaled = _scaled(weights, own, less.operands[1], replace(parts, s=rows.Structured(total)))
            made = replace(parts, s=rows.Structured(total)).across(scaled, plus)
        replace_op(total, made.results[0])


def _finite(number: ir.Value) -> ir.Value:
    low, high = (arith.constant(number.type, sign * _MOST) for sign in (-1, 1))
    return arith.minimumf(arith.maximumf(number, low), high)


def _weights(parts: Parts, own: ir.Value, plus: Combiner) -> ir.Value:
    """The sum over each part of exponentials of its numbers less one of the part's."""
    taken, loops = parts.taken(parts.s.op.operands[0], parts.s.maps[0])
    count = len(parts.outer) + 1

    def body(x: ir.Value, shift: ir.Value, sum_: ir.Value) -> ir.Value:
        wide = extended(x, plus.kind)
        return plus.join(math.exp(arith.subf(wide, shift)), sum_)

    return parts.summed(plus, [taken, own], [map_of(count, loops), map_of(count, range(count - 1))], body)


def _scaled(weights: ir.Value, own: ir.Value, less: ir.Value, parts: Parts) -> ir.Value:
    """The same, less what the row takes off."""
    count = len(parts.outer)
    identity = partial(map_of, count, range(count))
    of_row = [rows.dim_of(expr) for expr in parts.s.maps[1].results]
    start = tensor.empty(sizes_of(own), ir.F32Type.get())

    def body(sum_: ir.Value, shift: ir.Value, other: ir.Value, _: ir.Value) -> ir.Value:
        return arith.mulf(sum_, math.exp(arith.subf(shift, other)))

    maps = [identity(), identity(), map_of(count, of_row), identity()]
    return generic([weights, own, less], [start], maps, ["parallel"] * count, body).results[0]
