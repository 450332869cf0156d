"""Copies between buffers, by kernels (gpu_parts.py).

A thread moves one word of a small copy and EACH words of a large one, which lie a block's threads apart, so that a
warp's are neighbours and enough loads are in flight; a word is as many elements as both buffers keep together
(gpu_words.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitsune_mlir.example_sizes import shape_of
from kitsune_mlir.mlir import arith, ir, memref, vector

from .gpu_kernel import THREADS, Kernel, Size, as_value, ceildiv, delinearize, extent, only_if, product, thread_of
from .gpu_word_access import WORD, bytes_of, keeps_words

EACH = 4  # words that a thread of a large copy moves
SMALL = 132 * 2048  # words that as many threads as a GPU holds move at once


@dataclass(frozen=True)
class Copy:
    """A copy from one memref to another."""

    source: ir.Value
    target: ir.Value

    @property
    def word(self) -> int:
        """Elements that a thread moves at once."""
        return _word(self.source, self.target)

    @property
    def each(self) -> int:
        """Words that a thread moves: of very large copies of open inner sizes more, for their division is dear."""
        kind = ir.MemRefType(self.target.type)
        divided = any(map(kind.is_dynamic_dim, range(1, kind.rank)))
        if divided and prod(shape_of(self.target)) // self.word > EACH * SMALL:
            return EACH * EACH
        return 1 if kind.has_static_shape and prod(kind.shape) // self.word <= SMALL else EACH

    def sizes(self, see: object) -> list[Size]:
        """The sizes of the target, the last dimension in words."""
        kind = ir.MemRefType(self.target.type)
        found = [extent(see(self.target), d) for d in range(kind.rank)]
        return [*found[:-1], found[-1] // self.word] if self.word > 1 else found

    @property
    def apart(self) -> int | None:
        """The dimension along which a thread's words lie, as far apart as there are threads: one whose divisions, by
        sizes that are open, then tell where all of them are. None where sizes are known, or it is too short."""
        kind = ir.MemRefType(self.target.type)
        if not any(map(kind.is_dynamic_dim, range(1, kind.rank))):
            return None
        return next((d for d, size in enumerate(shape_of(self.target)[:-1]) if size >= self.each), None)

    def blocks(self, see: object) -> Size:
        """Thread blocks that it wants."""
        if self.apart is not None:
            return ceildiv(product(self._groups(self.sizes(see))), THREADS)
        return ceildiv(product(self.sizes(see)), THREADS * self.each)

    def _groups(self, sizes: list[Size]) -> list[Size]:
        return [ceildiv(size, self.each) if d == self.apart else size for d, size in enumerate(sizes)]

    def emit(self, block: ir.Value, kernel: Kernel) -> None:
        """The words of one block of those that this copy has."""
        sizes = self.sizes(kernel.inside)
        if self.apart is not None:
            self._emit_apart(block, kernel, sizes, self.apart)
            return
        words = product(sizes)
        first = thread_of(block, THREADS * self.each)
        for number in range(self.each):
            index = arith.addi(first, as_value(number * THREADS))
            with only_if(index, words):
                self._move(kernel, delinearize(index, sizes) if sizes else [])

    def _emit_apart(self, block: ir.Value, kernel: Kernel, sizes: list[Size], apart: int) -> None:
        groups = self._groups(sizes)
        index = thread_of(block, THREADS)
        with only_if(index, product(groups)):
            position = delinearize(index, groups)
            for number in range(self.each):
                far = arith.addi(position[apart], arith.muli(as_value(groups[apart]), as_value(number)))
                with only_if(far, sizes[apart]):
                    self._move(kernel, [*position[:apart], far, *position[apart + 1 :]])

    def _move(self, kernel: Kernel, position: list[ir.Value]) -> None:
        """One word, whose place is given in words along the last dimension."""
        source, target = kernel.inside(self.source), kernel.inside(self.target)
        if self.word > 1:
            position = [*position[:-1], arith.muli(position[-1], as_value(self.word))]
            kind = ir.VectorType.get([self.word], ir.MemRefType(target.type).element_type)
            align = self.word * bytes_of(self.target.type)
            moved = vector.load(kind, source, position, alignment=align)
            vector.store(moved, target, position, alignment=align)
        else:
            memref.store(memref.load(source, position), target, position)


def _word(*buffers: ir.Value) -> int:
    """Elements that a thread may move at once."""
    nbytes, target = bytes_of(buffers[0].type), ir.MemRefType(buffers[1].type)
    if not nbytes or not target.rank or target.is_dynamic_dim(target.rank - 1):
        return 1
    word = WORD // nbytes
    while word > 1 and not all(keeps_words(buffer, word) for buffer in buffers):
        word //= 2
    return max(word, 1)
