"""What a scatter adds, computed where it is added: updates that one elementwise operator makes, and that nothing else
reads, are in no memory.

    linalg.generic ... outs(%u : memref<nx8xf32>)                     // x[from] * weight
    %v = memref.expand_shape %u : ... into memref<nx1x8xf32>   =>     one kernel
    tm_tensor.scatter ins(%v, %rows) outs(%table)
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.operations import made_by

from . import gpu_words
from .gpu_around import maker
from .gpu_buffers import VIEWS, is_alloc, root_of
from .gpu_clone import clone_into
from .gpu_generic import Generic
from .gpu_kernel import Kernel
from .gpu_points import body_at
from .gpu_word_access import load_word

IDLE = (*VIEWS, "memref.alloc", "memref.dim")
LONG = 24  # operations of an update


@dataclass(frozen=True)
class Updates:
    """The updates of a scatter; `made` by an operator where they are in no memory."""

    buffer: ir.Value
    made: Generic | None = None

    @staticmethod
    def of(op: ir.Operation) -> Updates:
        """Those of a tm_tensor.scatter on memrefs."""
        buffer = op.operands[0]
        root = root_of(buffer)
        views, kind = _views(buffer), ir.MemRefType(buffer.type)
        if not is_alloc(root) or views is None or any(map(kind.is_dynamic_dim, range(1, kind.rank))):
            return Updates(buffer)
        if any(len(list(view.results[0].uses)) != 1 for view in views):
            return Updates(buffer)
        return Updates(buffer, maker([root], op, views))

    @property
    def takes_long(self) -> bool:
        """Whether an update is made by so many operations that several together would take most of a thread's
        registers, and with them the warps that hide what a load takes."""
        return self.made is not None and len(list(self.made.block.operations)) > LONG

    def load(self, kernel: Kernel, position: list[ir.Value], count: int) -> list[ir.Value]:
        """In the kernel: `count` neighbouring updates, of a row, from there on."""
        if self.made is None:
            return load_word(kernel.inside(self.buffer), position, count, once=count > 1)
        if count > 1 and gpu_words.width(self.made, few=True) % count == 0:
            dims = dict(enumerate(_without_ones(position, self.buffer, len(self.made.parallel))))
            found, _ = gpu_words.neighbours(self.made, kernel, dims, count)
            return [values[0] for values in found]
        steps = [arith.ConstantOp.create_index(e).result for e in range(count)]
        places = [[*position[:-1], arith.addi(position[-1], step)] for step in steps] if count > 1 else [position]
        return [self._made_at(kernel, place) for place in places]

    def _made_at(self, kernel: Kernel, position: list[ir.Value]) -> ir.Value:
        """The update there, computed."""
        assert self.made is not None
        dims = _without_ones(position, self.buffer, len(self.made.parallel))
        return body_at(self.made, kernel, dict(enumerate(dims)), [None])[0]

    def erase(self) -> None:
        """Behind the scatter's kernel: what made the updates is done there."""
        if self.made is not None:
            self.made.op.erase()
            for op in [*(_views(self.buffer) or ()), root_of(self.buffer).owner.operation]:
                op.erase()


def applied(op: ir.Operation, kernel: Kernel, update: ir.Value, before: ir.Value | None) -> ir.Value:
    """What a scatter's body makes of an update and of what is there before it, where it asks for that."""
    block = op.regions[0].blocks[0]
    values = dict(zip(map(hash, block.arguments), [update] if before is None else [update, before], strict=False))
    return clone_into(block, kernel, values)[0]


def _views(buffer: ir.Value) -> list[ir.Operation] | None:
    """The memref.expand_shapes, by dimensions of one element, from an allocation to a buffer; None for other views."""
    found: list[ir.Operation] = []
    while made_by(buffer, *VIEWS) is not None:
        op = buffer.owner.operation
        shapes = [ir.MemRefType(value.type).shape for value in (op.operands[0], op.results[0])]
        if op.name != "memref.expand_shape" or [s for s in shapes[1] if s != 1] != [s for s in shapes[0] if s != 1]:
            return None
        found.append(op)
        buffer = op.operands[0]
    return found


def _without_ones(position: list[ir.Value], buffer: ir.Value, rank: int) -> list[ir.Value]:
    """A position in a buffer in that from which it was expanded to more dimensions of one element."""
    spare = len(position) - rank
    found = []
    for index, size in zip(position, ir.MemRefType(buffer.type).shape, strict=True):
        if size == 1 and spare:
            spare -= 1
        else:
            found.append(index)
    return found
