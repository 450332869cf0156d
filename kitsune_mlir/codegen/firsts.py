"""kitsune.firsts while tensors become buffers: calls for GPUs (gpu_firsts.py), sorts of whole rows for CPUs.

%v, %p = "kitsune.firsts"(%x) {descending}   =>   %v, %p = call @kitsune_firsts0(%x)
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.dialects.firsts import FirstsOp
from kitsune_mlir.generics import generic
from kitsune_mlir.mlir import arith, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.rows import size_of

from .outlined import Call, calls, outlined

CALL = "kitsune_firsts"  # what a kitsune.firsts is a call of while tensors become buffers
_DESCENDING = "descending"
_F, _I = arith.CmpFPredicate, arith.CmpIPredicate


@dataclass(frozen=True)
class Firsts(Call):
    """What a call finds."""

    descending: bool

    @property
    def keys(self) -> ir.Value:
        return self.call.operands[0]

    @property
    def count(self) -> int:
        """Elements of a row."""
        return int(ir.MemRefType(self.call.results[0].type).shape[-1])


def outline_firsts(module: ir.Module) -> None:
    """Makes calls of kitsune.firsts, which bufferization takes for calls of code from elsewhere."""
    for position, op in enumerate(walk(module, FirstsOp.OPERATION_NAME)):
        kinds = [result.type for result in op.results]
        own, call = outlined(module, op, f"{CALL}{position}", list(op.operands), kinds)
        if op.opview.is_descending:
            own.attributes[_DESCENDING] = ir.UnitAttr.get(op.context)
        replace_op(op, *call.results)


def firsts(module: ir.Module) -> list[Firsts]:
    """Those that calls stand for, after bufferization."""
    return [Firsts(op, function, _DESCENDING in function.attributes) for op, function in calls(module, CALL)]


def sort_whole_rows(module: ir.Module) -> None:
    """Makes kitsune.firsts the beginnings of rows that are sorted."""
    for op in walk(module, FirstsOp.OPERATION_NAME):
        with op.context, op.location, ir.InsertionPoint(op):
            replace_op(op, *(_begin(whole, like) for whole, like in zip(_sorted(op), op.results, strict=True)))


def _sorted(op: ir.Operation) -> list[ir.Value]:
    """Rows in their order, and where their elements stood."""
    keys = op.operands[0]
    kind = ir.RankedTensorType(keys.type)
    sizes = [size_of(keys, d) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
    numbers = tensor.empty(sizes, ir.IntegerType.get_signless(64))
    places = _numbered(numbers, kind.rank)
    copy = linalg.copy(keys, outs=[tensor.empty(sizes, kind.element_type)])
    along = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), kind.rank - 1)
    made = ir.Operation.create(
        "tm_tensor.sort",
        [copy.type, places.type],
        [copy, places],
        {"dimension": along, "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 2])},
        regions=1,
    )
    elements = [kind.element_type] * 2 + [ir.IntegerType.get_signless(64)] * 2
    block = made.regions[0].blocks.append(*elements)
    with ir.InsertionPoint(block):
        found = _may_lead(*list(block.arguments)[:2], op.opview.is_descending)
        ir.Operation.create("tm_tensor.yield", [], [found])
    return list(made.results)


def _numbered(start: ir.Value, rank: int) -> ir.Value:
    """The numbers of the elements of rows."""

    def number(out: ir.Value) -> ir.Value:
        return arith.index_cast(out.type, linalg.IndexOp(rank - 1).result)

    return generic([], [start], [ir.AffineMap.get_identity(rank)], ["parallel"] * rank, number).results[0]


def _may_lead(a: ir.Value, b: ir.Value, descending: bool) -> ir.Value:
    """Whether `a` may stand before `b`: NaN is greater than all numbers."""
    if isinstance(a.type, ir.IntegerType):
        return arith.cmpi(_I.sge if descending else _I.sle, a, b)
    greatest = a if descending else b
    fits = arith.cmpf(_F.OGE if descending else _F.OLE, a, b)
    return arith.ori(fits, arith.cmpf(_F.UNO, greatest, greatest))


def _begin(whole: ir.Value, like: ir.Value) -> ir.Value:
    """The first elements of rows, as many as another tensor has."""
    kind = ir.RankedTensorType(like.type)
    sizes = [size_of(whole, d) for d in range(kind.rank) if kind.is_dynamic_dim(d)]
    zeros, ones = [0] * kind.rank, [1] * kind.rank
    return tensor.ExtractSliceOp(kind, whole, [], sizes, [], zeros, list(kind.shape), ones).result
