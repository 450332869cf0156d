"""Clones a region's body into a kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kitsune_mlir.mlir import attr_int, ir, walk
from kitsune_mlir.operations import operations_of

from .gpu_generic import COLUMN
from .gpu_kernel import Kernel, See


class Clone:
    """A block's operations, cloned one by one at the insertion point.

    `values` maps the block's arguments; `indices` are what linalg.index gives; `instead`, asked about each operation
    and given what shows a value in the kernel, may give what takes the place of its only result. The operations whose
    hashes are in `later` are cloned where their results are first asked for. Anything else from outside the block is
    brought into the kernel.
    """

    def __init__(
        self,
        block: ir.Block,
        kernel: Kernel,
        values: dict[int, ir.Value],
        indices: Sequence[ir.Value] = (),
        instead: Callable[[ir.Operation, See], ir.Value | None] = lambda op, see: None,
        later: Collection[int] = (),
    ):
        self._block, self._kernel, self._values = block, kernel, values
        self._indices, self._instead, self._later = indices, instead, later
        self._waiting: dict[int, ir.Operation] = {}  # by result
        *self.body, self._terminator = operations_of(block)

    def take(self, op: ir.Operation) -> None:
        """Clones the next operation of the body, or has it wait."""
        if hash(op) in self._later:
            self._waiting.update((hash(result), op) for result in op.results)
        else:
            self._clone(op)

    def yielded(self) -> list[ir.Value]:
        """What the terminator yields."""
        return [self._see(value) for value in self._terminator.operands]

    def _see(self, value: ir.Value) -> ir.Value:
        key = hash(value)
        if key not in self._values and key in self._waiting:
            self._clone(self._waiting[key])
        if key not in self._values:
            if _is_inside(value, self._block):
                return value
            self._values[key] = self._kernel.inside(value)
        return self._values[key]

    def _clone(self, op: ir.Operation) -> None:
        values = self._values
        if op.name == "linalg.index":
            values[hash(op.results[0])] = self._indices[attr_int(op, "dim")]
            return
        other = self._instead(op, self._see)
        if other is not None:
            values[hash(op.results[0])] = other
            return
        own = walk(op) if len(op.regions) else [op]
        seen = [[self._see(operand) for operand in each.operands] for each in own]
        copy = op.clone()
        if COLUMN in copy.attributes:  # else kernels that are alike would not be one
            del copy.attributes[COLUMN]
        for old, new, operands in zip(own, walk(copy) if len(op.regions) else [copy], seen, strict=True):
            for i, (operand, mapped) in enumerate(zip(old.operands, operands, strict=True)):
                if mapped != operand:
                    new.operands[i] = mapped
        for before, after in zip(op.results, copy.results, strict=True):
            values[hash(before)] = after
        if copy.name == "memref.load":
            values[hash(op.results[0])] = self._kernel.check_load(op, copy)


def clone_into(
    block: ir.Block,
    kernel: Kernel,
    values: dict[int, ir.Value],
    indices: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """A whole block's operations; what its terminator yields."""
    return run_through(Clone(block, kernel, values, indices))


def run_through(one: Clone) -> list[ir.Value]:
    """All operations of a clone; what its terminator yields."""
    return run_together([one])[0]


def run_together(clones: Sequence[Clone]) -> list[list[ir.Value]]:
    """The same of several clones of one block, operation by operation: what they share is used where it is loaded."""
    for op in clones[0].body:
        for one in clones:
            one.take(op)
    return [one.yielded() for one in clones]


def _is_inside(value: ir.Value, block: ir.Block) -> bool:
    """Whether a value is computed in a block, or in regions of its operations."""
    at = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
    while at != block and at.owner.operation.name != "func.func":
        at = at.owner.operation.block
    return at == block
