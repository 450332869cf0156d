"""One block of memory for all that a function allocates, handed in by its caller and used again at every call.

Fresh pages cost more than the arithmetic done in them, so buffers whose lifetimes do not meet share memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, func, ir, memref, walk

_ALIGNMENT = 64


@dataclass(frozen=True)
class Buffer:
    """`size` bytes, in use from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def place_buffers(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """An offset for each buffer, and the bytes of all; largest first, each at the lowest free place."""
    offsets = [0] * len(buffers)
    placed: list[int] = []
    for i in sorted(range(len(buffers)), key=lambda i: -buffers[i].size):
        own = buffers[i]
        others = [j for j in placed if buffers[j].first <= own.last and own.first <= buffers[j].last]
        for j in sorted(others, key=lambda j: offsets[j]):
            if offsets[i] + own.size <= offsets[j]:
                break
            offsets[i] = max(offsets[i], _aligned(offsets[j] + buffers[j].size))
        placed.append(i)
    return offsets, max((_aligned(start + b.size) for start, b in zip(offsets, buffers, strict=True)), default=0)


def take_scratch(function: func.FuncOp) -> int:
    """Moves what a bufferized function allocates into one trailing argument, a memref of bytes. Returns its size.

    Buffers of dynamic size, in loops, or returned stay as they are.
    """
    block = function.body.blocks[0]
    order = {op.operation: i for i, op in enumerate(block.operations)}
    found = []
    for alloc in walk(function, "memref.alloc"):
        last = _last_use(alloc.results[0], order) if alloc in order else None
        if last is not None and ir.MemRefType(alloc.results[0].type).has_static_shape:
            found.append((alloc, Buffer(_bytes(alloc.results[0].type), order[alloc], last)))
    offsets, total = place_buffers([buffer for _, buffer in found])
    with function.context, function.location:
        scratch = block.add_argument(ir.MemRefType.get([total], ir.IntegerType.get_signless(8)), function.location)
        for (alloc, _), offset in zip(found, offsets, strict=True):
            with ir.InsertionPoint(alloc):
                start = arith.constant(ir.IndexType.get(), offset)
                alloc.results[0].replace_all_uses_with(memref.view(alloc.results[0].type, scratch, start, []))
            alloc.erase()
        types = [argument.type for argument in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, function.type.results))
        for name in ("arg_attrs", "res_attrs"):
            if name in function.attributes:
                del function.attributes[name]
    return total


def _last_use(value: ir.Value, order: dict[ir.Operation, int]) -> int | None:
    """The last step of the function's block that touches the buffer or what may be a view of it; None when
    it is returned."""
    last, stack, seen = 0, [value], set()
    while stack:
        current = stack.pop()
        if hash(current) in seen:
            continue
        seen.add(hash(current))
        for use in current.uses:
            user = use.owner.operation
            if user.name == "func.return":
                return None
            stack.extend(result for result in user.results if isinstance(result.type, ir.MemRefType))
            while user not in order:  # inside a region of a step
                user = user.parent.operation
                stack.extend(result for result in user.results if isinstance(result.type, ir.MemRefType))
            last = max(last, order[user])
    return last


def _bytes(kind: ir.Type) -> int:
    memref_type = ir.MemRefType(kind)
    return math.prod(memref_type.shape) * max(1, memref_type.element_type.width // 8)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
