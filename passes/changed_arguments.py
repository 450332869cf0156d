"""Arguments that the program changes are written where they are, if nothing reads their old contents later.

    %n = memref.alloc() : memref<2x16x4096x128xbf16>
    memref.copy %cache, %n                                      %cache: an argument, of which %n is the new contents
    tm_tensor.scatter ins(%k, %places) outs(%n)       =>        tm_tensor.scatter ins(%k, %places) outs(%cache)
    return %n                                                   return %cache

So keys and values that a model caches are not copied for each token's sake. Bufferization never writes arguments, and
copies what a scatter begins with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kitsune_mlir.codegen.gpu_buffers import ancestor_in, is_alloc, uses_of
from kitsune_mlir.mlir import func, ir
from kitsune_mlir.operations import end_of, users_of


def write_changed(main: func.FuncOp, changed: Sequence[int], memories: Sequence[int]) -> None:
    """Rewrites @main, whose arguments of these numbers are changed; `memories` are those of its results."""
    block = main.body.blocks[0]
    end = end_of(block)
    for value, number in zip(list(end.operands), memories, strict=True):
        if number in changed:
            _write(value, block.arguments[number], block)


def _write(value: ir.Value, argument: ir.Value, block: ir.Block) -> None:
    """Has an argument be the buffer of its new contents, where a copy of the old ones is what these begin with."""
    if not is_alloc(value) or value.type != argument.type:
        return
    copies = users_of(argument, "memref.copy")
    copy = next((op for op in copies if list(op.operands) == [argument, value] and op.block == block), None)
    if copy is None:
        return
    before = all(user.is_before_in_block(copy) for user in _users(argument, block) if user != copy)
    behind = all(copy.is_before_in_block(user) for user in _users(value, block) if user != copy)
    if before and behind:
        made = value.owner.operation
        value.replace_all_uses_with(argument)
        copy.erase()
        made.erase()


def _users(buffer: ir.Value, block: ir.Block) -> Iterator[ir.Operation]:
    """The operations of a block that use a buffer, or a view of it, themselves or in their regions."""
    return (ancestor_in(block, use.owner.operation) for use in uses_of(buffer))
