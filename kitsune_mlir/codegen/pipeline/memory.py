"""Where tiles lie: tensors in global memory, tiles in shared memory and in ring slots.

A tile's rows are dimension 0; the dimensions after it are contiguous. Elements are widened on loading
and narrowed on storing: code computes in `compute_type`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir

from . import device
from .device import Int


def compute_type(element: ir.Type) -> ir.Type:
    """What an element is computed in: f32 for the narrower floats, else itself."""
    return ir.F32Type.get() if isinstance(element, ir.BF16Type | ir.F16Type) else element


def widened(x: ir.Value, element: ir.Type) -> ir.Value:
    """What was loaded of an element, as the compute type."""
    if compute_type(element) != element:
        return arith.extf(ir.F32Type.get(), x)
    if isinstance(element, ir.IntegerType) and element.width == 1:
        return arith.trunci(element, x)
    return arith.index_cast(element, x) if isinstance(element, ir.IndexType) else x


def narrowed(x: ir.Value, element: ir.Type) -> ir.Value:
    """An element of the compute type, as it is stored."""
    if compute_type(element) != element:
        return arith.truncf(element, x)
    if isinstance(element, ir.IntegerType) and element.width == 1:
        return arith.extui(storage_type(element), x)
    return arith.index_cast(storage_type(element), x) if isinstance(element, ir.IndexType) else x


def storage_type(element: ir.Type) -> ir.Type:
    """What an element is in memory: a byte for i1, 64 bits for an index."""
    if isinstance(element, ir.IndexType):
        return ir.IntegerType.get_signless(64)
    if isinstance(element, ir.IntegerType) and element.width == 1:
        return ir.IntegerType.get_signless(8)
    return element


@dataclass
class Memory:
    """A tensor of `shape` at `pointer`. `stride` elements lie between rows."""

    pointer: ir.Value
    element: ir.Type
    shape: tuple[int, ...]
    stride: int

    def load(self, index: Sequence[Int]) -> ir.Value:
        """The element at `index`, of the compute type."""
        if not self.shape:
            return widened(device.load(self.pointer, storage_type(self.element)), self.element)
        place = self.place(index[0], device.flattened(index[1:], self.shape[1:]))
        return widened(device.load(place, storage_type(self.element)), self.element)

    def from_row(self, row: ir.Value) -> Memory:
        """The tensor from a row (i64) on, whose number may be any that the tensor has."""
        return Memory(self._address(row), self.element, self.shape, self._step)

    def _address(self, row: ir.Value) -> ir.Value:
        """That of a row (i64)."""
        return device.further(self.pointer, row, self._step, storage_type(self.element))

    @property
    def _step(self) -> int:
        """Elements from a row to the next, where `stride` may be the length of the only one."""
        return self.stride if len(self.shape) > 1 else 1

    def load_together(self, index: Sequence[Int]) -> ir.Value:
        """`load` where all threads of a warp are."""
        return self.load(index)

    def place(self, row: Int, column: Int) -> ir.Value:
        """The address of an element at a flattened column."""
        at = device.add(device.mul(row, self.stride), column)
        return device.offset(self.pointer, at, storage_type(self.element))


def shape_of(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def element_of(value: ir.Value) -> ir.Type:
    element = ir.RankedTensorType(value.type).element_type
    if isinstance(element, ir.FloatType | ir.IntegerType | ir.IndexType) and element_bits(element) <= 64:
        return element
    raise UnsupportedError(f"elements of type {element} are not computed in pipelines on a GPU")


def element_bits(element: ir.Type) -> int:
    return 64 if isinstance(element, ir.IndexType) else element.width
