"""The operations through which a stage touches tiles: get, put, accumulate, reduce, load, store, scatter, place."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import check_integer, fail, integer, is_row_tile, stands_in, verify_endpoint, verify_like
from .types import Kitsune, Ring

_STAGE, _PIPELINE = "kitsune.stage", "kitsune.pipeline"


class _Writes(ir.MemoryEffectsOpInterface):
    """Queues and rings carry state: nothing that touches one may be erased, merged or hoisted."""

    @staticmethod
    def get_effects(op, effects):
        effects.append(ir.MemoryEffect.Write, op.operation.op_operands[0])


class RingEffect:
    @staticmethod
    def attach(op_name):
        _Writes.attach(op_name)


class GetOp(Kitsune.Operation, name="get", traits=[RingEffect]):
    """Waits for the next full slot and gives its tile; the slot is released after the tile's last use."""

    queue: ext.Operand[Ring]
    tile: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        return verify_endpoint(self, self.results[0].type)


class PutOp(Kitsune.Operation, name="put", traits=[RingEffect]):
    """Waits for an empty slot, writes the tile there and publishes it to every consumer."""

    queue: ext.Operand[Ring]
    tile: ext.Operand[Any]

    def verify_region_invariants(self) -> bool:
        return verify_endpoint(self, self.operands[1].type)


class AccumulateOp(Kitsune.Operation, name="accumulate", traits=[RingEffect]):
    """Adds `tile`, a term without a row dimension, to this replica's partial sum; the partial sum is put
    in the queue once, after the replica's last row tile. The split half of a reduction over rows
    (paper section 5.2, Algorithm 1)."""

    queue: ext.Operand[Ring]
    tile: ext.Operand[Any]

    def verify_region_invariants(self) -> bool:
        return verify_endpoint(self, self.operands[1].type)


class ReduceOp(Kitsune.Operation, name="reduce", traits=[RingEffect]):
    """Gets the partial sum of every replica of the producer and gives their sum. A stage with a reduce
    fires once, after the last row tile."""

    queue: ext.Operand[Ring]
    tile: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        return verify_endpoint(self, self.results[0].type)


class LoadOp(Kitsune.Operation, name="load", traits=[ext.Pure]):
    """The stage's current row tile of a streamed tensor whose dimension 0 is the pipeline's rows."""

    whole: ext.Operand[Any]
    tile: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        if not is_row_tile(self.results[0].type, self.operands[0].type):
            return fail(self, f"result type {self.results[0].type} is not a row tile of {self.operands[0].type}")
        return stands_in(self, _STAGE)


class StoreOp(Kitsune.Operation, name="store", traits=[RingEffect]):
    """Writes output `index` of the pipeline: in a stage its current row tile (all of it when the stage
    fires once); directly in an undesigned pipeline, the whole tensor."""

    tile: ext.Operand[Any]
    index: ir.IntegerAttr

    @property
    def position(self) -> int:
        return integer(self, "index")

    def verify_region_invariants(self) -> bool:
        if not isinstance(self.operands[0].type, ir.RankedTensorType):
            return fail(self, f"stores a ranked tensor, found {self.operands[0].type}")
        if not check_integer(self, "index", 0):
            return False
        return stands_in(self, _STAGE, _PIPELINE)


class ScatterOp(Kitsune.Operation, name="scatter", traits=[RingEffect]):
    """Adds each row of the stage's row tile to the row of output `index` that `rows` names, for each row of the tile an
    integer. The output begins at zero; rows that meet are added in any order. An output with an open number of rows has
    as many as the tensor `sized`; any other has no such operand."""

    tile: ext.Operand[Any]
    rows: ext.Operand[Any]
    sized: Sequence[ext.Operand[Any]]
    index: ir.IntegerAttr

    @property
    def like(self) -> list[ir.Value]:
        """The tensor that has as many rows as the output, where that number is open."""
        return list(self.operands)[2:]

    @property
    def position(self) -> int:
        return integer(self, "index")

    def verify_region_invariants(self) -> bool:
        tile, rows = (value.type for value in list(self.operands)[:2])
        if not verify_like(self, self.like):
            return False
        if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2 or not isinstance(tile.element_type, ir.F32Type):
            return fail(self, f"scatters tiles of f32 of two dimensions, found {tile}")
        return _check_rows(self)


class PlaceOp(Kitsune.Operation, name="place", traits=[RingEffect]):
    """Writes each row of the stage's row tile to the row of output `index` that `rows` names, for each row of the tile
    an integer of 32 bits. All tiles together name each row of the output once."""

    tile: ext.Operand[Any]
    rows: ext.Operand[Any]
    index: ir.IntegerAttr

    @property
    def position(self) -> int:
        return integer(self, "index")

    def verify_region_invariants(self) -> bool:
        tile, rows = (value.type for value in self.operands)
        if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2:
            return fail(self, f"places tiles of two dimensions, found {tile}")
        if isinstance(rows, ir.RankedTensorType) and str(rows.element_type) != "i32":
            return fail(self, f"takes numbers of 32 bits as rows, found {rows}")
        return _check_rows(self)


def _check_rows(op: ScatterOp | PlaceOp) -> bool:
    """What names a row of an output for each row of a tile does so by integers."""
    tile, rows = (value.type for value in list(op.operands)[:2])
    if not isinstance(rows, ir.RankedTensorType) or not isinstance(rows.element_type, ir.IntegerType):
        return fail(op, f"takes a tensor of integers as rows, found {rows}")
    if list(rows.shape) != list(tile.shape)[:1]:
        return fail(op, f"wants a row for each of its tile's, found {rows} for {tile}")
    return check_integer(op, "index", 0) and stands_in(op, _STAGE)
