"""Small residents (biases and their like) in shared memory, for as long as the kernel runs.

The copy engine brings them while the first boxes come; an mbarrier counts their bytes. The consumers' threads copy
those whose size is no multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

from . import bulk, mbarrier, waits


@dataclass(frozen=True)
class Vector:
    """A resident to be copied: the number of its tensor, its bytes, and where it lies among the vectors."""

    tensor: int
    nbytes: int
    offset: int

    @property
    def is_sent(self) -> bool:
        """Whether the copy engine brings it: tensors are aligned to as many bytes."""
        return self.nbytes % bulk.UNIT == 0


@dataclass(frozen=True)
class Vectors:
    """Those of a CTA: `pointers` are the addresses of all tensors, `place` is that of the vectors in shared memory,
    `barrier` that of their mbarrier."""

    vectors: Sequence[Vector]
    pointers: Sequence[ir.Value]
    place: Int
    barrier: Int

    def init(self) -> None:
        """One thread, once."""
        mbarrier.init(self.barrier, 1)

    def send(self) -> None:
        """One thread."""
        if sent := [vector for vector in self.vectors if vector.is_sent]:
            mbarrier.expect(self.barrier, sum(vector.nbytes for vector in sent))
            for vector in sent:
                place = device.add(self.place, vector.offset)
                bulk.load(self.pointers[vector.tensor], place, vector.nbytes, self.barrier)

    def receive(self, thread: ir.Value, threads: int) -> None:
        """Threads numbered from 0: copies the rest, and waits for those that are sent. A barrier of the threads
        follows."""
        for vector in self.vectors:
            if not vector.is_sent:
                self._copy(vector, thread, threads)
        if any(vector.is_sent for vector in self.vectors):
            waits.on_barrier(self.barrier, 0, "the vectors")

    def _copy(self, vector: Vector, thread: ir.Value, threads: int) -> None:
        """2 bytes at a time where that divides them."""
        size = 2 if vector.nbytes % 2 == 0 else 1
        unit = ir.IntegerType.get_signless(8 * size)
        target = device.shared(device.add(self.place, vector.offset))

        def copy(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            x = device.load(device.offset(self.pointers[vector.tensor], i, unit), unit)
            device.store(x, device.offset(target, i, unit))
            return []

        device.loop(thread, vector.nbytes // size, threads, copy)
