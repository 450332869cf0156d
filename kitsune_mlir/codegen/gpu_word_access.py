"""Words of up to 16 bytes of neighbouring elements, loaded and stored by one access each."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.mlir import arith, ir, memref, vector

from .pipeline import device
from .stride_factors import offset_factor, stride_factors

WORD = 16  # bytes


def keeps_words(buffer: ir.Value, count: int) -> bool:
    """Whether words of so many neighbours of a buffer that begins at a multiple of them do not cross their bounds."""
    strides = stride_factors(buffer)
    known = [*strides[:-1], offset_factor(buffer), ir.MemRefType(buffer.type).shape[-1]]
    return strides[-1] == 1 and all(x >= 0 and x % count == 0 for x in known)


def store_word(values: Sequence[ir.Value], buffer: ir.Value, at: Sequence[ir.Value]) -> None:
    """Stores neighbouring elements from a place on whose number is a multiple of theirs."""
    vector.store(device.whole(values), buffer, list(at), alignment=len(values) * bytes_of(buffer.type))


def load_word(buffer: ir.Value, at: Sequence[ir.Value], count: int, once: bool = False) -> list[ir.Value]:
    """The neighbouring elements from a place on, one by one where they make no word; `once`: nobody reads them
    again."""
    if keeps_words(buffer, count) and 0 < count * bytes_of(buffer.type) <= WORD:
        word = word_at(buffer, at, count, once)
        return device.parts(word)
    steps = [arith.ConstantOp.create_index(e).result for e in range(count)]
    return [memref.load(buffer, [*at[:-1], arith.addi(at[-1], step)]) for step in steps]


def word_at(buffer: ir.Value, indices: Sequence[ir.Value], count: int, once: bool = False) -> ir.Value:
    """A vector of so many elements; see `load_word`."""
    kind = ir.VectorType.get([count], ir.MemRefType(buffer.type).element_type)
    return vector.load(kind, buffer, indices, nontemporal=once or None, alignment=count * bytes_of(buffer.type))


def bytes_of(buffer: ir.Type) -> int:
    """Bytes of a memref's element; 0 of what makes no words: truths, whose bits are no bytes, and indices."""
    width = getattr(ir.MemRefType(buffer).element_type, "width", 0)
    return width // 8
