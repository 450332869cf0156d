"""Parts of a buffer in a block's shared memory: a kernel has one that is larger than all may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, ir, memref

from .gpu_kernel import as_value
from .gpu_word_access import load_word


@dataclass(frozen=True)
class SharedPart:
    """A part of a buffer in shared memory, of so many dimensions, from its element of number `first` on."""

    whole: ir.Value
    first: int
    shape: tuple[int, ...]

    def number(self, at: Sequence[ir.Value]) -> ir.Value:
        """That of an element, in the whole buffer."""
        found = at[0]
        for index, size in zip(at[1:], self.shape[1:], strict=True):
            found = arith.addi(arith.muli(found, as_value(size)), index)
        return arith.addi(found, as_value(self.first)) if self.first else found

    def load(self, at: Sequence[ir.Value], count: int = 1) -> list[ir.Value]:
        """So many neighbours."""
        return load_word(self.whole, [self.number(at)], count)

    def store(self, value: ir.Value, at: Sequence[ir.Value]) -> None:
        memref.store(value, self.whole, [self.number(at)])
