"""What kernels read where it lies: neighbouring rows of a tensor, which are a tensor themselves.

    %part = memref.subview %x[3, 0, 0] [1, 32, 256] ...        %part = ...
    %rows = memref.collapse_shape %part [[0, 1], [2]]          %rows = ...
    %own = memref.alloc() : memref<32x256xf32>            =>   %at = memref.cast %rows  // strided<[256, 1], offset: ?>
    memref.copy %rows, %own                                    func.call @k(%at)
    func.call @k(%own)

A kernel is given an address. Bufferization knows no more of it than that it takes a dense tensor, and copies what
begins within another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kitsune_mlir.mlir import arith, func, ir, memref
from kitsune_mlir.operations import operations_of, users_of
from kitsune_mlir.runtime.host_program import row_major

from .gpu_buffers import is_alloc, root_of
from .gpu_word_access import WORD, bytes_of
from .outlined import callee


def take_rows(main: func.FuncOp, written: Mapping[str, set[int | None]]) -> None:
    """Hands calls the rows themselves. `written` are the numbers of the operands that a function's kernel writes."""
    for copy in operations_of(main.body.blocks[0], "memref.copy"):
        source, target = copy.operands
        if (own := copied(target)) is None or own != copy or not _are_rows(source.type):
            continue
        uses = [use for use in target.uses if use.owner.operation != copy]
        if not any(use.operand_number in written.get(callee(use.owner), {use.operand_number}) for use in uses):
            for use in uses:
                use.owner.operands[use.operand_number] = source
            erase_copy(copy)


def agree(main: func.FuncOp, kernels: Mapping[str, func.FuncOp]) -> None:
    """Has functions take tensors at any place, where a call gives one that begins within another tensor."""
    calls: dict[str, list[ir.Operation]] = {name: [] for name in kernels}
    for op in main.body.blocks[0].operations:
        if op.operation.name == "func.call" and callee(op.operation) in calls:
            calls[callee(op.operation)].append(op.operation)
    for name, function in kernels.items():
        inputs = list(function.type.inputs)
        for number, kind in enumerate(inputs):
            if any(call.operands[number].type != kind for call in calls[name]):
                inputs[number] = _anywhere(kind)
                for call in calls[name]:
                    with call.location, ir.InsertionPoint(call):
                        call.operands[number] = memref.cast(inputs[number], call.operands[number])
        type_ = ir.FunctionType.get(inputs, function.type.results)
        function.attributes["function_type"] = ir.TypeAttr.get(type_)


def copied(value: ir.Value) -> ir.Operation | None:
    """What fills an allocation, where that is one copy, and nothing but calls reads it."""
    if not is_alloc(value):
        return None
    users = users_of(value)
    copies = [user for user in users if user.name == "memref.copy" and user.operands[1] == value]
    others = [user for user in users if user not in copies]
    called = others and all(user.name == "func.call" for user in others)
    return copies[0] if len(copies) == 1 and called else None


def erase_copy(copy: ir.Operation) -> None:
    """Erases what copies to an allocation, and that, where nothing else uses it any more."""
    alloc = copy.operands[1].owner.operation
    if len(list(alloc.results[0].uses)) == 1:
        copy.erase()
        alloc.erase()


def rows_around(value: ir.Value, first: int, pitch: int) -> ir.Value | None:
    """The rows of `pitch` elements of whose columns from `first` on a tensor consists, at the insertion point; None
    where it does not lie so, or rows begin where no kernel takes them."""
    kind, root = ir.MemRefType(value.type), root_of(value)
    whole = ir.MemRefType(root.type)
    strides, offset = kind.get_strides_and_offset()
    known = all(size >= 0 for size in (*kind.shape[1:], *whole.shape[1:]))
    if list(strides) != [pitch, 1] or not (known and _is_identity(whole)):
        return None
    begins, count = offset - first, kind.shape[0]
    if offset < 0 or begins % pitch:
        return None
    is_whole = prod(whole.shape[1:]) % pitch == 0  # where a row of columns begins within, all of it is there
    if not is_whole and (min(count, whole.shape[0]) < 0 or begins + count * pitch > prod(whole.shape)):
        return None
    layout = ir.StridedLayoutAttr.get(begins, [pitch, 1])
    type_ = ir.MemRefType.get([count, pitch], kind.element_type, layout)
    if not _is_aligned(type_):
        return None
    rows = [memref.dim(value, arith.ConstantOp.create_index(0).result)] if count < 0 else []
    static = [begins], [count, pitch], [pitch, 1]
    return memref.ReinterpretCastOp(type_, root, [], rows, [], *static).result


def _is_identity(kind: ir.MemRefType) -> bool:
    return kind.affine_map == ir.AffineMap.get_identity(kind.rank)


def _are_rows(kind: ir.MemRefType) -> bool:
    """Whether elements lie as in a dense tensor, from a place on that is known and that kernels take."""
    kind = ir.MemRefType(kind)
    if any(map(kind.is_dynamic_dim, range(1, kind.rank))):
        return False
    return list(kind.get_strides_and_offset()[0]) == list(row_major(kind.shape)) and _is_aligned(kind)


def _is_aligned(kind: ir.MemRefType) -> bool:
    offset, nbytes = kind.get_strides_and_offset()[1], bytes_of(kind)
    return offset >= 0 and bool(nbytes) and offset * nbytes % WORD == 0


def _anywhere(kind: ir.Type) -> ir.MemRefType:
    """The type of such a tensor at any place."""
    kind = ir.MemRefType(kind)
    layout = ir.StridedLayoutAttr.get(ir.ShapedType.get_dynamic_stride_or_offset(), row_major(kind.shape))
    return ir.MemRefType.get(kind.shape, kind.element_type, layout)
