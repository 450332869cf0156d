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

A tensor is placed once, by the first concatenation that takes it once, else where it is padded. It stays as it is where
something reads it that wants it dense: @main's caller, a gather, a copy whose boxes would begin at no multiple of 16
bytes. A store by the copy engine at such places becomes one by warps, unless products are in flight beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kitsune_mlir.chains.program import LEAST_ROW_BYTES
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import parent_of
from kitsune_mlir.dialects.columns import Place, columns_of, is_among_columns
from kitsune_mlir.dialects.kitsune import ResultOp
from kitsune_mlir.mlir import ir, tensor, walk
from kitsune_mlir.traffic import element_bytes

from .base import ModulePass
from .operand_layout import PADDED

_COPY, _READ = schedule.CopyOp.OPERATION_NAME, schedule.ReadOp.OPERATION_NAME


@dataclass(frozen=True)
class PlaceColumns(ModulePass):
    """It has no options."""

    name: ClassVar[str] = "place-columns"

    def run(self, module: ir.Module) -> None:
        for op in walk(module, "tensor.concat"):
            if op.parent.name == "func.func":
                _place_parts(op)
        for op in walk(module, "linalg.generic"):
            if PADDED in op.attributes and op.parent.name == "func.func":
                _place_padded(op)


def _place_parts(concat: ir.Operation) -> None:
    """Has what a concatenation takes written where it belongs."""
    whole = ir.RankedTensorType(concat.results[0].type)
    if ir.IntegerAttr(concat.attributes["dim"]).value != 1 or whole.rank != 2 or whole.is_dynamic_dim(1):
        return
    first = 0
    for number, kind in enumerate([ir.RankedTensorType(value.type) for value in concat.operands]):
        value, place = concat.operands[number], Place(first, whole.shape[1])
        once = [operand for operand in concat.operands if operand == value] == [value]
        if once and _may_lie(value, place, concat):
            _move(value, place)
        first += kind.shape[1]


def _place_padded(generic: ir.Operation) -> None:
    """Has a tensor written with the rows that its reader wants, in the place of a copy of it with such rows."""
    extracts = walk(generic, "tensor.extract")
    padded, kind = generic.results[0], ir.RankedTensorType(generic.results[0].type)
    uses = list(padded.uses)
    if len(extracts) != 1 or kind.rank != 2 or any(use.owner.name != _COPY for use in uses):
        return
    value, place = extracts[0].operands[0], Place(0, kind.shape[1])
    if not is_among_columns(value.type):
        if not _may_lie(value, place, extracts[0]):
            return
        value = _move(value, place)
    elif not all(_reads(use, place) for use in uses):
        return
    padded.replace_all_uses_with(value)
    generic.erase()


def _may_lie(value: ir.Value, place: Place, wanted_by: ir.Operation) -> bool:
    """Whether a tensor is a kernel's result that may lie there."""
    made = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if made is None or made.name != ResultOp.OPERATION_NAME or is_among_columns(value.type):
        return False
    kernel = made.operands[0].owner.operation
    if kernel.name != schedule.KernelOp.OPERATION_NAME or kernel.opview.has_roles:
        return False
    others = [use for use in value.uses if use.owner.operation != wanted_by]
    return all(_writes(op, place) for op in _stores(value)) and all(_reads(use, place) for use in others)


def _stores(value: ir.Value) -> list[ir.Operation]:
    """What writes a kernel's result."""
    result = value.owner.operation.opview
    kernel = result.operands[0].owner.operation
    ops = walk(kernel, schedule.WriteOp.OPERATION_NAME, schedule.WRITE_ROWS)
    return [op for op in ops if op.opview.position == result.position]


def _writes(op: ir.Operation, place: Place) -> bool:
    """Whether what writes a tensor may write it there."""
    if op.name != schedule.WriteOp.OPERATION_NAME or op.opview.is_once:
        return False
    return op.opview.engine_name != schedule.COPIED or _is_copied(op.operands[0].type, place) or _is_last(op)


def _is_copied(kind: ir.Type, place: Place) -> bool:
    """Whether the copy engine takes boxes of a tensor there."""
    return place.step * element_bytes(ir.RankedTensorType(kind).element_type) % schedule.GRANULE == 0


def _is_last(write: ir.Operation) -> bool:
    """Whether no products are in flight beside a store: none stands behind it in its turn of the loop over tiles."""
    operations = [op.operation for op in write.block.operations]
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
    dense, kind = ir.RankedTensorType(value.type), columns_of(value.type, place.first, place.pitch)
    with made.location, ir.InsertionPoint(made):
        placed = ResultOp(made.operands[0], made.attributes["index"], kind)
    with made.location, ir.InsertionPoint.after(placed):
        view = tensor.cast(dense, placed.results[0])
    for use in list(value.uses):
        inside = parent_of(use.owner, schedule.KernelOp.OPERATION_NAME) is not None
        use.owner.operands[use.operand_number] = placed.results[0] if inside else view
    made.erase()
    if not list(view.uses):
        view.owner.erase()
    for write in stores:
        _choose_engine(write, dense, place)
    return placed.results[0]


def _choose_engine(write: ir.Operation, whole: ir.RankedTensorType, place: Place) -> None:
    """Has the copy engine store what warps have stored because of the place, and the other way round."""
    engine, tile = write.opview.engine_name, ir.RankedTensorType(write.operands[0].type)
    if engine is None:
        return
    row = tile.shape[1] * element_bytes(tile.element_type)
    if engine == schedule.COPIED and not _is_copied(tile, place):
        if row >= LEAST_ROW_BYTES:
            write.attributes["engine"] = ir.StringAttr.get(schedule.BY_ROWS)
        else:
            del write.attributes["engine"]
    elif engine == schedule.BY_ROWS and _is_copied(tile, place):
        if tile.shape[1] >= whole.shape[1] or row % schedule.BOX_BYTES == 0:
            write.attributes["engine"] = ir.StringAttr.get(schedule.COPIED)
