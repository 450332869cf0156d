"""Variances of rows that are summed in parts: each part's own mean and the squares of what differs from it, at once.

    %s = sum of %x over the parts of a row, and of those;  %m = %s * (1 / n)     // of a norm over groups of channels
    %d = %x - %m;  %v = sum of %d * %d
  =>
    %p = sum of %x over a part;  %o = %p * (1 / c)                               // one kernel
    %q = sum of (%x - %o) * (%x - %o)
    %s = sum of the %p of a row;  %m = %s * (1 / n)                              // another one
    %v = sum of %q + c * (%o - %m) * (%o - %m)

So a GPU reads once what a norm is of, not twice, and squares numbers as small as before (Chan, Golub, LeVeque,
Algorithms for Computing the Sample Variance, 1983). Where a mean is taken off twice (centred_rows.py), what rounding
leaves of %x - %o is summed as well, and the second mean is a sum of parts as the first one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_reduction import Combiner
from kitsune_mlir.generics import elementwise, extended, generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, ir, replace_op, tensor
from kitsune_mlir.operations import element_type, is_generic, operations_of

from .row_groups import root, users
from .split_sums import Parts

PartsOf = Callable[[ir.Operation], Parts | None]


@dataclass(frozen=True)
class _Sum:
    """A sum over rows of a tensor less each of `means`, one to a row, or of the squares of that."""

    op: ir.Operation
    means: tuple[ir.Operation, ...]  # each takes one off
    squared: bool


def join_variances(block: ir.Block, parts_of: PartsOf) -> None:
    """Rewrites such sums of a block; `parts_of` says in which parts a reduction is done, None where in one."""
    found = dict[ir.Value, tuple[_Rows, list[_Sum]]]()
    done = set[ir.Value]()
    for op in operations_of(block):
        parts = _summed_in(op, parts_of)
        if parts is None or op.results[0] in done:
            continue
        sums = list(_sums_of(op.operands[0], (), parts, parts_of))
        if sums[0].op != op:  # another sum of the same numbers, which has what follows
            continue
        done.update(one.op.results[0] for one in sums)
        if any(one.squared for one in sums):
            found[op.results[0]] = _Rows(parts, op), sums
    for whole, sums in found.values():
        whole.rewrite(sums)


def _sums_of(value: ir.Value, means: tuple[ir.Operation, ...], parts: Parts, parts_of: PartsOf) -> Iterator[_Sum]:
    """The sums of a tensor, in such parts, and those of what is left of it when their means are taken off."""
    if means:
        for square in users(value):
            if inputs_of(square, "arith.mulf") == [0, 0] and square.operands[0] == value:
                alike = [op for op in users(square.results[0]) if _is_alike(op, parts, parts_of)]
                yield from (_Sum(op, means, True) for op in alike if op.operands[0] == square.results[0])
    for total in users(value):
        if total.name != "linalg.generic" or total.operands[0] != value or not _is_alike(total, parts, parts_of):
            continue
        yield _Sum(total, means, False)
        for mean in users(total.results[0]):
            if mean.name != "linalg.generic" or not (s := rows.Structured(mean)).is_of_elements() or s.inputs != 1:
                continue
            for less in users(mean.results[0]):
                if takes_off(less, value, parts) and root(less.operands[1]) == mean.results[0]:
                    yield from _sums_of(less.results[0], (*means, less), parts, parts_of)
        return  # other sums of the same are one with this one


def _summed_in(op: ir.Operation, parts_of: PartsOf) -> Parts | None:
    """The parts in which all numbers of a tensor of f32, or of numbers made f32, are summed."""
    if sorted(inputs_of(op, "arith.addf")) != [0, 1] or not isinstance(element_of(op), ir.F32Type):
        return None
    s, parts = rows.Structured(op), parts_of(op)
    is_whole = s.inputs == 1 and s.maps[0] == ir.AffineMap.get_identity(len(s.iterators))
    return parts if parts is not None and is_whole and len(parts.outer) > s.iterators.count("parallel") else None


def _is_alike(op: ir.Operation, parts: Parts, parts_of: PartsOf) -> bool:
    found = _summed_in(op, parts_of)
    same = (parts.sizes, parts.first, parts.columns)
    return found is not None and (found.sizes, found.first, found.columns) == same


def takes_off(op: ir.Operation, value: ir.Value, parts: Parts) -> bool:
    """Whether an operator makes of each number what it is less one that its row has."""
    if inputs_of(op, "arith.subf") != [0, 1] or op.operands[0] != value:
        return False
    s = rows.Structured(op)
    of_mean = [rows.dim_of(expr) for expr in s.maps[1].results]
    return (
        s.is_of_elements()
        and s.inputs == 2
        and s.maps[0] == s.maps[2]
        and of_mean == [rows.dim_of(expr) for expr in parts.s.maps[1].results]
        and rows.shape_of(op.operands[1]) == rows.shape_of(parts.s.op.results[0])
    )


def element_of(op: ir.Operation) -> ir.Type:
    return element_type(op.results[0])


def inputs_of(op: ir.Operation, name: str) -> list[int]:
    """The numbers of the arguments of a body that are what its one operation of this name takes, made f32 or as they
    are; none where the body is another, or takes something else."""
    if not is_generic(op):
        return []
    block = op.regions[0].blocks[0]
    first, *others = [inner.operation for inner in block.operations if inner.operation.name != "arith.extf"]
    if first.name != name or [other.name for other in others] != ["linalg.yield"]:
        return []
    arguments = list(block.arguments)
    taken = [made.operands[0] if _is_made(made := rows.producer(value)) else value for value in first.operands]
    return [arguments.index(value) for value in taken] if all(value in arguments for value in taken) else []


def _is_made(op: ir.Operation | None) -> bool:
    return op is not None and op.name == "arith.extf"


@dataclass
class _Rows:
    """Rows in parts, of which `total` is the first sum."""

    parts: Parts
    total: ir.Operation

    def rewrite(self, found: list[_Sum]) -> None:
        combiner = Combiner("arith.addf", ir.F32Type.get(self.total.context))
        is_twice = any(one.means and not one.squared for one in found)
        with self.total.location, ir.InsertionPoint(self.total):
            sums = self.parts.along(combiner)
            each = arith.constant(combiner.kind, 1 / self.parts.columns)
            own = elementwise([sums], combiner.kind, lambda x: arith.mulf(x, each))
            left = self._less(own, combiner, False) if is_twice else None
            squares = self._less(own, combiner, True)
        for one in found:
            with one.op.location, ir.InsertionPoint(one.op):
                along = self._of_parts(one, own, left, squares) if one.means else sums
                made = replace(self.parts, s=rows.Structured(one.op)).across(along, combiner)
            replace_op(one.op, made.results[0])

    def _less(self, own: ir.Value, combiner: Combiner, squared: bool) -> ir.Value:
        """The sum over each part of its numbers less the part's mean, or of the squares of these."""
        taken, loops = self.parts.taken(self.total.operands[0], self.parts.s.maps[0])
        count = len(self.parts.outer) + 1

        def body(x: ir.Value, mean: ir.Value, sum_: ir.Value) -> ir.Value:
            wide = extended(x, combiner.kind)
            found = arith.subf(wide, mean)
            return combiner.join(arith.mulf(found, found) if squared else found, sum_)

        maps = [map_of(count, loops), map_of(count, range(count - 1))]
        return self.parts.summed(combiner, [taken, own], maps, body)

    def _of_parts(self, one: _Sum, own: ir.Value, left: ir.Value | None, squares: ir.Value) -> ir.Value:
        """What each part adds to a sum of a tensor less means, or of the squares of that."""
        means, count = [less.operands[1] for less in one.means], len(self.parts.outer)
        rest = [*([] if left is None else [left]), *([squares] if one.squared else [])]
        columns = arith.constant(ir.F32Type.get(), float(self.parts.columns))

        def body(own: ir.Value, *given: ir.Value) -> ir.Value:
            off = own
            for mean in given[: len(means)]:
                off = arith.subf(off, mean)
            whole, others = arith.mulf(columns, off), list(given[len(means) : -1])
            if not one.squared:
                return arith.addf(others[0], whole)
            if left is not None:
                whole = arith.addf(whole, arith.addf(others[0], others[0]))
            return arith.addf(others[-1], arith.mulf(whole, off))

        of_mean = [rows.dim_of(expr) for expr in self.parts.s.maps[1].results]
        start = tensor.empty(sizes_of(own), ir.F32Type.get())
        maps = [map_of(count, range(count)), *[map_of(count, of_mean)] * len(means)]
        maps += [map_of(count, range(count))] * (len(rest) + 1)
        return generic([own, *means, *rest], [start], maps, ["parallel"] * count, body).results[0]
