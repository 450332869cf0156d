"""How a scan's kernel joins elements: what stands for some elements of a line, together.

That is one value, which one operation joins, or, of a logarithm of a sum of exponentials, two: the largest element m,
and the sum s of the exponentials of all others' distances from it, for m + log(1 + s). Joining two of these takes one
exponential, and only what is stored takes a logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from kitsune_mlir.mlir import arith, gpu, ir
from kitsune_mlir.mlir import math as functions
from kitsune_mlir.operations import operations_of
from kitsune_mlir.running_exponentials import joins_exponentials

from .gpu_reduction import JOINS, Combiner

Found = tuple[ir.Value, ...]  # what stands for some elements
# Attributes of scans of rows: they begin with the last element; elements are joined with those before them alone.
BACKWARDS, BEFORE = "kitsune.backwards", "kitsune.before"


class Joining(Protocol):
    """What stands for one element, for two neighbouring groups, and what is stored of it."""

    @property
    def kinds(self) -> tuple[ir.Type, ...]: ...

    def neutral(self) -> ir.Value:
        """An element that changes nothing."""

    def of(self, x: ir.Value) -> Found: ...

    def join(self, a: Found, b: Found) -> Found: ...

    def result(self, found: Found) -> ir.Value: ...

    def moved(self, distance: int | ir.Value, found: Found, mode: gpu.ShuffleMode) -> Found:
        """What another lane has; see Combiner.moved."""


@dataclass(frozen=True)
class _OneOperation:
    combine: Combiner

    @property
    def kinds(self) -> tuple[ir.Type, ...]:
        return (self.combine.kind,)

    def neutral(self) -> ir.Value:
        return self.combine.neutral()

    def of(self, x: ir.Value) -> Found:
        return (x,)

    def join(self, a: Found, b: Found) -> Found:
        return (self.combine.join(a[0], b[0]),)

    def result(self, found: Found) -> ir.Value:
        return found[0]

    def moved(self, distance: int | ir.Value, found: Found, mode: gpu.ShuffleMode) -> Found:
        return (self.combine.moved(distance, found[0], mode),)


@dataclass(frozen=True)
class _Exponentials:
    kind: ir.Type

    @property
    def kinds(self) -> tuple[ir.Type, ...]:
        return (self.kind, self.kind)

    def neutral(self) -> ir.Value:
        return arith.constant(self.kind, -math.inf)

    def of(self, x: ir.Value) -> Found:
        return x, arith.constant(self.kind, 0.0)

    def join(self, a: Found, b: Found) -> Found:
        """Two equal elements, which may be infinite, are no distance apart."""
        (m, s), (n, t) = a, b
        first, equal = (arith.cmpf(p, m, n) for p in (arith.CmpFPredicate.OGE, arith.CmpFPredicate.OEQ))
        high, low = arith.maximumf(m, n), arith.select(first, n, m)
        gap = arith.select(equal, arith.constant(self.kind, 0.0), arith.subf(low, high))
        more, less = arith.select(first, s, t), arith.select(first, t, s)
        one = arith.constant(self.kind, 1.0)
        return high, arith.addf(more, arith.mulf(arith.addf(less, one), functions.exp(gap)))

    def result(self, found: Found) -> ir.Value:
        return arith.addf(found[0], functions.log1p(found[1]))

    def moved(self, distance: int | ir.Value, found: Found, mode: gpu.ShuffleMode) -> Found:
        combine = Combiner("arith.maximumf", self.kind)
        return tuple(combine.moved(distance, value, mode) for value in found)


def joining(op: ir.Operation) -> Joining | None:
    """How a tm_tensor.scan joins elements; None where that is none of these, or leaves the first out."""
    block, kind = op.regions[0].blocks[0], op.operands[0].type.element_type
    join, *_, end = operations_of(block)
    if not isinstance(kind, ir.IntegerType | ir.F32Type | ir.F64Type) or not is_inclusive(op):
        return None
    if joins_exponentials(op):
        return _Exponentials(kind)
    if join.name not in JOINS or list(end.operands) != list(join.results):
        return None
    return _OneOperation(Combiner(join.name, kind)) if set(join.operands) == set(block.arguments) else None


def neutral_of(op: ir.Operation) -> float | int | None:
    """The number that changes nothing that a tm_tensor.scan joins, where one operation does."""
    join = op.regions[0].blocks[0].operations[0].operation
    if joins_exponentials(op) or join.name not in JOINS or joining(op) is None:
        return None
    return Combiner(join.name, op.operands[0].type.element_type).neutral_number()


def is_inclusive(op: ir.Operation) -> bool:
    return "inclusive" in op.attributes and ir.BoolAttr(op.attributes["inclusive"]).value
