"""Discrete Fourier transforms of tensors."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import ext, ir
from kitsune_mlir.planning import fourier

from .checks import check_integer, check_kind, fail, integer
from .types import Kitsune


class FourierOp(Kitsune.Operation, name="fourier", traits=[ext.Pure]):
    """Discrete Fourier transforms of `size` numbers each along a dimension of tensors, times `scale`:

        X[k] = scale * sum of x[j] exp(-2 pi i j k / size),   j, k = 0 ... size - 1

    or, with the unit attribute `inverse`, of x[j] exp(2 pi i j k / size). `parts` are the real parts of x and, where it
    is not real, the imaginary ones; `transformed` those of X. Numbers that a tensor has more along the dimension are
    not read, those that it has fewer are zero; of results, so many are computed as there are. One result is the real
    parts of an X that is real: the parts are then those of the first size / 2 + 1 numbers, the others being their
    conjugates. A size is a product of primes up to 13, no more than a block of threads holds (planning/fourier.py)."""

    parts: Sequence[ext.Operand[Any]]
    dimension: ir.IntegerAttr
    size: ir.IntegerAttr
    scale: ir.FloatAttr
    transformed: Sequence[ext.Result[Any]]

    @property
    def length(self) -> int:
        """The numbers of a transform."""
        return integer(self, "size")

    @property
    def axis(self) -> int:
        """The dimension along which they stand."""
        return integer(self, "dimension")

    @property
    def is_real(self) -> bool:
        """Whether results are real, of the first half of the numbers."""
        return len(self.operation.results) == 1

    @property
    def has_real_side(self) -> bool:
        """Whether the numbers, or the results, are real."""
        return self.is_real or len(self.operands) == 1

    def verify_region_invariants(self) -> bool:
        parts, results = ([value.type for value in side] for side in (self.operands, self.operation.results))
        if not 1 <= len(parts) <= 2 or not 1 <= len(results) <= 2 or len(parts) + len(results) < 3:
            counts = f"{len(parts)} and {len(results)}"
            return fail(self, f"takes one or two parts and gives two, or two and one, found {counts}")
        kind = parts[0]
        if not isinstance(kind, ir.RankedTensorType) or not isinstance(kind.element_type, ir.F32Type | ir.F64Type):
            return fail(self, f"takes tensors of f32 or f64, found {kind}")
        if not check_integer(self, "dimension", 0) or not check_integer(self, "size", 2):
            return False
        if not check_kind(self, "inverse", ir.UnitAttr, "said without a value"):
            return False
        if self.axis >= kind.rank or kind.is_dynamic_dim(self.axis):
            return fail(self, f"goes along a dimension of a known size, found {self.axis} of {kind}")
        if not fourier.fits(self.length, kind.element_type.width // 8, self.has_real_side):
            return fail(self, f"has no transform of {self.length} numbers: {self._limit(kind.element_type)}")
        return self._verify_result(kind, results[0])

    def _limit(self, kind: ir.Type) -> str:
        most = fourier.most(kind.width // 8, self.has_real_side and self.length % 2 == 0)
        return f"its primes are up to {fourier.MOST_PRIME}" if self.length <= most else f"at most {most} of {kind}"

    def _verify_result(self, kind: ir.RankedTensorType, found: ir.Type) -> bool:
        sizes = list(found.shape) if isinstance(found, ir.RankedTensorType) else []
        given = list(kind.shape)
        given[self.axis : self.axis + 1] = sizes[self.axis : self.axis + 1]
        if sizes != given or found.element_type != kind.element_type:
            return fail(self, f"gives tensors like {kind} but along dimension {self.axis}, found {found}")
        if not 0 < sizes[self.axis] <= self.length:
            return fail(self, f"gives up to {self.length} numbers, found {found}")
        return True
