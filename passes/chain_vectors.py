"""Vectors that a chain's threads read from shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.chains.program import MOST_VECTOR_BYTES, Block
from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import ir


class Vectors:
    """Small residents, biases and their like, which are kept in shared memory: for each type of elements a slot. Those
    of a stage lie behind those of the stage before. Large ones are read from global memory."""

    def __init__(self, blocks: Sequence[Block]):
        self.placed: dict[str, list[tuple[ir.Value, int]]] = {}  # by the type of elements, with the first's place
        self.ends: dict[str, int] = {}
        self._at: dict[tuple[int, int], int] = {}  # by block and tensor
        for block in blocks:
            for stage in block.stages:
                for value in stage.residents:
                    if _is_vector(ir.RankedTensorType(value.type)):
                        self._place(block, value)

    def _place(self, block: Block, value: ir.Value) -> None:
        kind = ir.RankedTensorType(value.type)
        element = str(kind.element_type)
        first = self.ends.get(element, 0)
        self._at.setdefault((id(block), hash(value)), first)  # one that equal stages share lies there for each of them
        self.placed.setdefault(element, []).append((value, first))
        self.ends[element] = first + padded_size(kind)

    def nbytes(self) -> list[int]:
        """The bytes of each slot."""
        placed = self.placed.values()
        return [
            sum(
                padded_size(kind) * kind.element_type.width // 8
                for kind in (ir.RankedTensorType(v.type) for v, _ in own)
            )
            for own in placed
        ]

    @staticmethod
    def step(block: Block, element: ir.Type) -> int:
        """How far the vectors of one of equal stages are behind those of the one before."""
        kinds = [ir.RankedTensorType(value.type) for value in block.stage.residents]
        return sum(padded_size(kind) for kind in kinds if _is_vector(kind) and kind.element_type == element)

    def place(self, block: Block, value: ir.Value) -> int | None:
        """The first element of a block's vector in its slot; None where it is in none."""
        return self._at.get((id(block), hash(value)))


def _is_vector(kind: ir.RankedTensorType) -> bool:
    if kind.rank != 1 or not kind.has_static_shape or not isinstance(kind.element_type, ir.FloatType):
        return False
    nbytes = kind.shape[0] * kind.element_type.width // 8
    return 0 < nbytes <= MOST_VECTOR_BYTES


def padded_size(kind: ir.RankedTensorType) -> int:
    """The elements of a vector with those that are put behind it, to multiples of 16 bytes."""
    each = schedule.GRANULE // (kind.element_type.width // 8)
    return -(-kind.shape[0] // each) * each
