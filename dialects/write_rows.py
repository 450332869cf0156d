"""Rows of tiles that leave for rows of a table by number."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import check_integer, fail, has_its_rows, integer, parent_of, verify_like
from .kernels import AgentOp, KernelOp
from .tiles import RingEffect
from .types import Kitsune


class WriteRowsOp(Kitsune.Operation, name="write_rows", traits=[RingEffect]):
    """Writes each row of a tile in the registers of a warpgroup to the row of output `index` that `to` names, for
    each row of the tile an integer, from column `column` on; columns that the output does not have are dropped. With
    the unit attribute `adds` the row, of f32, is added there: the output begins at zero, and rows that meet are added
    in any order. The tile's first row is number `first` of `count`; rows beyond are dropped, and, where they are
    added, rows that the output does not have. An output that is added to and has an open number of rows has as many as
    the tensor `sized`. Rows leave through boxes of their copy in shared memory, as those of a `kitsune.write` by the
    copy engine."""

    tile: ext.Operand[Any]
    to: ext.Operand[Any]
    first: ext.Operand[ir.IndexType]
    count: ext.Operand[ir.IndexType]
    column: ext.Operand[ir.IndexType]
    sized: Sequence[ext.Operand[Any]]
    index: ir.IntegerAttr

    @property
    def position(self) -> int:
        return integer(self, "index")

    @property
    def like(self) -> list[ir.Value]:
        """The tensor that has as many rows as the output, where that number is open."""
        return list(self.operands)[5:]

    @property
    def adds(self) -> bool:
        return "adds" in self.attributes

    def verify_region_invariants(self) -> bool:
        kernel = parent_of(self, KernelOp.OPERATION_NAME)
        if kernel is None or parent_of(self, AgentOp.OPERATION_NAME) is None:
            return fail(self, f"stands in no {AgentOp.OPERATION_NAME}")
        tile, to = self.operands[0].type, self.operands[1].type
        if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2:
            return fail(self, f"writes rows of a tile of two dimensions, found {tile}")
        if not verify_like(self, self.like):
            return False
        if self.adds and not isinstance(tile.element_type, ir.F32Type):
            return fail(self, f"adds rows of f32, found {tile}")
        integers = isinstance(to, ir.RankedTensorType) and isinstance(to.element_type, ir.IntegerType)
        if not integers or list(to.shape) != list(tile.shape)[:1]:
            return fail(self, f"wants an integer for each row of {tile}, found {to}")
        for result in kernel.opview.result_ops:
            output = ir.RankedTensorType(result.results[0].type)
            same = output.rank == 2 and output.element_type == tile.element_type
            if result.position == self.position and not same:
                return fail(self, f"writes rows of {tile} to rows of {output}")
            if result.position == self.position and self.adds and not has_its_rows(self, output, self.like):
                return False
        return check_integer(self, "index", 0)
