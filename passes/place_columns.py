"""place-columns: kernels write their results where they are wanted, among the columns of longer rows.

    %a = "kitsune.result"(%p) : tensor<16x512xf16>             %a = "kitsune.result"(%p)
    %b = "kitsune.result"(%q) : tensor<16x360xf16>                    : tensor<16x512xf16, #kitsune.columns<0, 872>>
    %c = tensor.concat dim(1) %a, %b                     =>    %x = tensor.cast %a : ... to tensor<16x512xf16>
                                                               ...   // %b from column 512 on, and its cast %y
                                                               %c = tensor.concat dim(1) %x, %y

    %z = linalg.generic {kitsune.padded} ...                   %a = "kitsune.result"(%p)
        // %a : tensor<16x369xf16> with zeros behind its              : tensor<16x369xf16, #kitsune.columns<0, 376>>
        // rows, tensor<16x376xf16>                      =>    "kitsune.kernel"() ({
    "kitsune.kernel"() ({                                        ... "kitsune.copy"(%s, %a, %i, %k)
      ... "kitsune.copy"(%s, %z, %i, %k)

A concatenation of what kernels write, and an operand whose rows no tensor copy takes as they are, each cost a kernel
that moves what has just been written. Here the kernel that computes a tensor gives its rows the distance that is
wanted: what lies behind a row's end nobody reads, for a copy's box ends with the tensor. Kernels that read such a
tensor find its rows there; other operators read a view (codegen/gpu_placed.py allocates what all of it lies in).

Columns that are sliced off a tensor are read where they lie, too, as are the rows of one step of a sequence
(strided_views.py). A tensor is placed once, by the first concatenation that takes it once, else where it is padded. It
stays as it is where something reads it that wants it dense: @main's caller, a gather, a copy whose boxes would begin at
no multiple of 16 bytes. A store by the copy engine at such places becomes one by warps, unless products are in flight
beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.chains.program import LEAST_ROW_BYTES
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import parent_of
from kitsune_mlir.dialects.columns import Place, columns_of, is_among_columns, place_of
from kitsune_mlir.dialects.kitsune import ResultOp, result
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import attr_int, ir, replace_op, tensor, walk
from kitsune_mlir.operations import made_by, operations_of
from kitsune_mlir.rows import RESHAPES
from kitsune_mlir.traffic import element_bytes

from .base import ModulePass
from .operand_layout import PADDED
from .reshapes import reshaped
from .row_groups import root
from .strided_views import lying, place_among
from .tensor_sizes import TensorSizes

_COPY, _READ = schedule.CopyOp.OPERATION_NAME, schedule.ReadOp.OPERATION_NAME


@dataclass(frozen=True)
class PlaceColumns(ModulePass):
    """It has no options."""

    name: ClassVar[str] = "place-columns"

    def run(self, module: ir.Module) -> None:
        for main in walk(module, "func.func"):
            _undo_reshapes(main)
        padded = [op for op in walk(module, "linalg.generic") if _is_padded(op)]
        for op in padded:
            if (made := _source(op).owner) and (_is_concatenation(made) or _is_generic(made)):
                _pad(op, list(made.operands) if _is_concatenation(made) else [_source(op)])
        for op in walk(module, "tensor.concat"):
            if op.parent.name == "func.func":
                _join_rows(op)
        for op in walk(module, "tensor.concat"):
            if op.parent.name == "func.func" and _is_concatenation(op):
                parts = [(op, number) for number in range(len(op.operands))]
                _place_parts(parts, ir.RankedTensorType(op.results[0].type).shape[1])
        for op in walk(module, "linalg.generic"):
            if _is_padded(op):
                _place_padded(op)
        for op in walk(module, "tensor.extract_slice", *RESHAPES):
            if op.parent.name == "func.func":
                _read_in_place(op.results[0])


def _undo_reshapes(function: ir.Operation) -> None:
    """Takes the tensor itself for a reshape of a reshape of it that has its sizes again, as several open ones need not
    be where the types are the same."""
    found = [(op.results[0], root(op.results[0])) for op in walk(function, *RESHAPES) if op.parent == function]
    again = [(value, source) for value, source in found if value.type == source.type]
    if not again:
        return
    sizes = TensorSizes(function.regions[0].blocks[0])
    for value, source in again:
        if sizes.are_alike(value, source):
            value.replace_all_uses_with(source)


def _is_padded(op: ir.Operation) -> bool:
    """Whether it copies a tensor of rows and columns to longer rows, for copies into slots."""
    padded = PADDED in op.attributes and op.parent.name == "func.func" and len(walk(op, "tensor.extract")) == 1
    rank = ir.RankedTensorType(op.results[0].type).rank
    return padded and rank == 2 and all(use.owner.name == _COPY for use in op.results[0].uses)


def _source(padded: ir.Operation) -> ir.Value:
    (extract,) = walk(padded, "tensor.extract")
    return extract.operands[0]


def _is_concatenation(op: ir.Operation | ir.Block) -> bool:
    """Whether it puts the columns of tensors side by side."""
    if isinstance(op, ir.Block) or op.name != "tensor.concat":
        return False
    whole = ir.RankedTensorType(op.results[0].type)
    return attr_int(op, "dim") == 1 and whole.rank == 2 and not whole.is_dynamic_dim(1)


def _join_rows(concat: ir.Operation) -> None:
    """Puts the columns of kernels' results side by side, where other operators have the rows as several dimensions."""
    kind = ir.RankedTensorType(concat.results[0].type)
    *outer, columns = kind.shape
    if attr_int(concat, "dim") != kind.rank - 1 or kind.rank < 3 or not kind.has_static_shape:
        return
    wanted = [[prod(outer), rows.shape_of(value)[-1]] for value in concat.operands]
    found = [root(value) for value in concat.operands]
    fits = [rows.shape_of(value) == shape for value, shape in zip(found, wanted, strict=True)]
    if not any(fit and _kernel_of(value) is not None for fit, value in zip(fits, found, strict=True)):
        return
    with concat.location, ir.InsertionPoint(concat):
        values = zip(concat.operands, found, fits, wanted, strict=True)
        parts = [own if fit else reshaped(value, shape) for value, own, fit, shape in values]
        joined = tensor.concat(ir.RankedTensorType.get([prod(outer), columns], kind.element_type), 1, parts)
        whole = reshaped(joined, list(kind.shape))
    replace_op(concat, whole)


def _is_generic(op: ir.Operation | ir.Block) -> bool:
    """Whether it is an operator that a kernel of its own computes, which writes where it is told."""
    return not isinstance(op, ir.Block) and op.name == "linalg.generic" and PADDED not in op.attributes


def _place_parts(parts: Sequence[tuple[ir.Operation, int]], pitch: int) -> None:
    """Has operands, which become columns side by side in rows of `pitch` elements, written where they belong."""
    first, values = 0, [op.operands[number] for op, number in parts]
    kinds = [ir.RankedTensorType(value.type) for value in values]
    once = [sum(other == value for other in values) == 1 for value in values]
    for (op, number), kind, alone in zip(parts, kinds, once, strict=True):
        place = Place(first, pitch, shared=True)
        if alone and _may_lie(op.operands[number], place, op):
            _move(op.operands[number], place)
        first += kind.shape[1]


def _pad(padded: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Has a concatenation of `values`, or one that an operator computes, lie in longer rows at once:

    %c = tensor.concat dim(1) %a, %b               %1 = tensor.insert_slice %a into %0[0, 0] [65, 300] [1, 1]
    %p = linalg.generic {kitsune.padded} ... %c => %2 = tensor.insert_slice %b into %1[0, 300] [65, 254] [1, 1]
    "kitsune.copy"(%s, %p, ...)                    %c = tensor.extract_slice %2[0, 0] [65, 554] [1, 1]
                                                        : tensor<65x560xbf16> to tensor<65x554xbf16, #...>
                                                   "kitsune.copy"(%s, %c, ...)
    """
    source, pitch = _source(padded), ir.RankedTensorType(padded.results[0].type).shape[1]
    place, dense = Place(0, pitch), ir.RankedTensorType(source.type)
    (extract,) = walk(padded, "tensor.extract")
    others = [use for use in source.uses if use.owner.operation != extract]
    if not all(_reads(use, place) for use in others):
        return
    with padded.location, ir.InsertionPoint.after(source.owner):
        open_ = dense.is_dynamic_dim(0)
        rows = [tensor.dim(values[0], constant_index(0))] if open_ else []
        whole, first = tensor.empty([*rows, pitch] if open_ else [dense.shape[0], pitch], dense.element_type), 0
        parts = []
        for value in values:
            size = ir.RankedTensorType(value.type).shape[1]
            static = [[0, first], [dense.shape[0], size], [1, 1]]
            whole = tensor.InsertSliceOp(value, whole, [], rows, [], *static).result
            parts.append((whole.owner.operation, 0))
            first += size
        static = [[0, 0], list(dense.shape), [1, 1]]
        found = tensor.ExtractSliceOp(columns_of(dense, place), whole, [], rows, [], *static).result
        view = tensor.cast(dense, found)
    replace_op(padded, found)
    _replace(others, found, view)
    if source not in values:
        source.owner.erase()
    _place_parts(parts, pitch)


def _replace(uses: Sequence[ir.OpOperand], placed: ir.Value, view: ir.Value) -> None:
    """Has kernels read a tensor where it lies, other operators a view of it."""
    for use in uses:
        inside = parent_of(use.owner, schedule.KernelOp.OPERATION_NAME) is not None
        use.owner.operands[use.operand_number] = placed if inside else view
    if not list(view.uses):
        view.owner.erase()


def _place_padded(padded: ir.Operation) -> None:
    """Has a tensor written with the rows that its reader wants, in the place of a copy of it with such rows."""
    place, (extract,) = Place(0, ir.RankedTensorType(padded.results[0].type).shape[1]), walk(padded, "tensor.extract")
    value = lying(extract.operands[0])
    if not is_among_columns(value.type):
        if not _may_lie(value, place, extract):
            return
        value = _move(value, place)
    elif not all(_reads(use, place_of(value.type)) for use in padded.results[0].uses):
        return
    replace_op(padded, value)


def _read_in_place(value: ir.Value) -> None:
    """Has kernels read columns of a tensor where they lie, which for a kernel would be copied."""
    uses = [use for use in value.uses if parent_of(use.owner, schedule.KernelOp.OPERATION_NAME) is not None]
    place = None if not uses or is_among_columns(value.type) else place_among(value)
    if place is None or not all(_reads(use, place) for use in uses):
        return
    with value.owner.location, ir.InsertionPoint.after(value.owner):
        found = tensor.cast(columns_of(value.type, place), value)
    for use in uses:
        use.owner.operands[use.operand_number] = found


def _may_lie(value: ir.Value, place: Place, wanted_by: ir.Operation) -> bool:
    """Whether a tensor is a kernel's result that may lie there."""
    kernel = _kernel_of(value)
    if kernel is None or kernel.opview.has_roles or is_among_columns(value.type):
        return False
    others = [use for use in value.uses if use.owner.operation != wanted_by]
    writes = all(_writes(op, value.type, place) for op in _stores(value))
    return writes and all(_reads(use, place) for use in others)


def _kernel_of(value: ir.Value) -> ir.Operation | None:
    """The kernel whose result a tensor is."""
    made = made_by(value, ResultOp.OPERATION_NAME)
    if made is None:
        return None
    kernel = made.operands[0].owner.operation
    return kernel if kernel.name == schedule.KernelOp.OPERATION_NAME else None


def _stores(value: ir.Value) -> list[ir.Operation]:
    """What writes a kernel's result."""
    result = value.owner.operation.opview
    kernel = result.operands[0].owner.operation
    ops = walk(kernel, schedule.WriteOp.OPERATION_NAME, schedule.WRITE_ROWS)
    return [op for op in ops if op.opview.position == result.position]


def _writes(op: ir.Operation, kind: ir.Type, place: Place) -> bool:
    """Whether what writes a tensor of this type may write it there."""
    if op.name != schedule.WriteOp.OPERATION_NAME or op.opview.is_once:
        return False
    return op.opview.engine_name != schedule.COPIED or _is_stored(kind, place) or _is_last(op)


def _is_copied(kind: ir.Type, place: Place) -> bool:
    """Whether the copy engine takes boxes of a tensor there."""
    return place.step * element_bytes(ir.RankedTensorType(kind).element_type) % schedule.GRANULE == 0


def _is_stored(kind: ir.Type, place: Place) -> bool:
    """Whether the copy engine stores a tensor of this type there."""
    return not schedule.overwrites(columns_of(kind, place))


def _is_last(write: ir.Operation) -> bool:
    """Whether no products are in flight beside a store: none stands behind it in its turn of the loop over tiles."""
    operations = operations_of(write.block)
    behind = operations[operations.index(write) + 1 :]
    products = any(walk(op, schedule.ProductOp.OPERATION_NAME) for op in behind)
    carried = any(isinstance(value.type, schedule.Acc) for value in operations[-1].operands)
    return not products and not carried


def _reads(use: ir.OpOperand, place: Place) -> bool:
    """Whether what reads a tensor may find it there."""
    op = use.owner.operation
    if op.name == "func.return":
        return False
    if parent_of(op, schedule.KernelOp.OPERATION_NAME) is None:
        return True  # it reads a view
    if op.name == _COPY:
        return op.opview.elements is None and _is_copied(op.operands[1].type, place)
    aligned = "ahead" not in op.attributes or _is_copied(op.operands[0].type, place)
    return op.name == _READ and aligned


def _move(value: ir.Value, place: Place) -> ir.Value:
    """Lays a kernel's result there. Gives it, of the type that says so."""
    stores, made = _stores(value), value.owner.operation
    dense, kind = ir.RankedTensorType(value.type), columns_of(value.type, place)
    with made.location, ir.InsertionPoint(made):
        outputs, *sizes = made.operands
        placed = result(outputs, made.opview.position, kind, sizes)
    with made.location, ir.InsertionPoint.after(placed.owner):
        view = tensor.cast(dense, placed)
    _replace(list(value.uses), placed, view)
    made.erase()
    for write in stores:
        _choose_engine(write, dense, _is_stored(dense, place))
    return placed


def _choose_engine(write: ir.Operation, whole: ir.RankedTensorType, is_stored: bool) -> None:
    """Has the copy engine store what warps have stored because of the place, and the other way round."""
    engine, tile = write.opview.engine_name, ir.RankedTensorType(write.operands[0].type)
    if engine is None:
        return
    row = tile.shape[1] * element_bytes(tile.element_type)
    if engine == schedule.COPIED and not is_stored:
        if row >= LEAST_ROW_BYTES:
            write.attributes["engine"] = ir.StringAttr.get(schedule.BY_ROWS)
        else:
            del write.attributes["engine"]
    elif engine == schedule.BY_ROWS and is_stored:
        if tile.shape[1] >= whole.shape[1] or row % schedule.BOX_BYTES == 0:
            write.attributes["engine"] = ir.StringAttr.get(schedule.COPIED)
