"""Running sums along the columns of row groups, and what else one operation joins.

    %e = linalg.generic ins(%x) ...
    %y:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%e) outs(...) { arith.addf }   // in the group
    %s = linalg.generic {... "reduction"} ins(%y#0) ...

A thread joins its own columns, and what those before have comes from lane to lane (codegen/schedule/scans.py): so a
model's running sums are computed with what stands before and behind them while a row is in registers.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.scan_joins import joining
from kitsune_mlir.mlir import attr_int, clone_on, ir, tensor
from kitsune_mlir.operations import element_type

from . import row_groups
from .plain_bodies import is_brought
from .row_groups import Member, Role, Shape, Space

SCAN = "tm_tensor.scan"


class ScanLoops(rows.Structured):
    """The loops of a scan, as those of an elementwise operator: the element of a place of its results is made of the
    one there, and of those before."""

    def __init__(self, op: ir.Operation):
        self.op, self.inputs = op, 1
        rank = ir.RankedTensorType(op.operands[0].type).rank
        self.iterators = ["parallel"] * rank
        self.maps = [ir.AffineMap.get_identity(rank)] * 2


def space_of(op: ir.Operation, shape: Shape) -> Space | None:
    """The space of a reduction, or of a scan along the last of its dimensions that has more than one element."""
    if op.name != SCAN:
        return row_groups.space_of(op, shape)
    sizes, along = list(shape(op.operands[0])), attr_int(op, "dimension")
    behind, columns = sizes[along + 1 :], sizes[along]
    if columns is None or columns <= 1 or any(size != 1 for size in behind):
        return None
    known = prod(size for size in sizes[:along] if size is not None)
    return Space(None in sizes[:along], known, columns) if known else None


def fit(op: ir.Operation, space: Space, shape: Shape, of_lengths: bool = False) -> Member | None:
    """The operator as a member of groups over the space, if it can be one, a scan too."""
    if op.name != SCAN:
        return row_groups.fit(op, space, shape, of_lengths)
    if space_of(op, shape) != space or list(op.results[1].uses) or not is_brought(op.operands[0]):
        return None
    if joining(op) is None or element_type(op.operands[0]).width != 32:
        return None
    sizes, along = list(shape(op.operands[0])), attr_int(op, "dimension")
    own = tuple(d for d, size in enumerate(sizes[:along]) if size != 1)
    if any(sizes[d] is None for d in own[1:]):
        return None
    return Member(op, ScanLoops(op), "scan", own, tuple(sizes[d] for d in own), (Role(own, True),))


def on_tile(op: ir.Operation, tile: ir.Value) -> ir.Value:
    """The scan of a tile's rows, at the insertion point."""
    kind = ir.RankedTensorType(tile.type)
    start, last = (tensor.empty(list(kind.shape)[:rank], kind.element_type) for rank in (2, 1))
    said = {name: op.attributes[name] for name in op.attributes}
    said["dimension"] = ir.IntegerAttr.get(said["dimension"].type, 1)
    made = ir.Operation.create(op.name, [start.type, last.type], [tile, start, last], said, regions=1)
    block = op.regions[0].blocks[0]
    own = made.regions[0].blocks.append(*[argument.type for argument in block.arguments])
    values = dict(zip(block.arguments, own.arguments, strict=True))
    with ir.InsertionPoint(own):
        for inner in block.operations:
            clone_on(inner.operation, values)
    return made.results[0]
