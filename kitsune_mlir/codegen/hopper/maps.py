"""The tensor maps of a chained role: what the copy engine reads and writes, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import kitsune_label
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.traffic import element_bytes

from .fragments import is_packed
from .operands import is_multiplied, is_streamed, row_bytes
from .packing import Packing
from .tile_ring import RingPlace
from .tma import TensorMap
from .wgmma import BOX_ROW, CHUNK, ROWS

TILE_ROWS = 128


class Maps:
    """The tensor maps of a kernel with these `tensors` and `results`; `rings` are those between its roles. `box_rows`
    are the rows of a box of a streamed tile. `padded` are the numbers of tensors whose rows are to be made longer, to
    multiples of 16 bytes."""

    def __init__(
        self,
        tensors: Sequence[ir.Value],
        results: Sequence[kitsune.ResultOp],
        rings: Mapping[str, RingPlace],
        box_rows: int,
    ):
        self.numbers = {hash(value): number for number, value in enumerate(tensors)}
        self.all: list[TensorMap] = []
        self.padded: set[int] = set()
        self._results, self._rings, self._box_rows = results, rings, box_rows

    def weight(self, weight: ir.Value, packing: Packing | None, limit: int, columns: int) -> int:
        """Boxes of `columns` rows of the weight (n, k), as `packing` lays it out if it does, by 64 of its columns, as
        if it had `limit` of these."""
        element, number = element_of(weight), self.numbers[hash(weight)]
        n, k = shape_of(weight)
        stride = packing.columns * element_bytes(element) if packing else self._row_bytes(number, k, element)
        return self._add(TensorMap(number, str(element), (limit, n), (stride,), (CHUNK, columns)))

    def packed_weight(self, weight: ir.Value, packing: Packing, columns: int) -> int:
        """The same of an f32 weight, which `packing` lays out."""
        dims, stride = (packing.columns, shape_of(weight)[0]), packing.columns * 4
        box = BOX_ROW // 4, columns
        return self._add(TensorMap(self.numbers[hash(weight)], "f32", dims, (stride,), box))

    def rows(self, value: ir.Value) -> int | None:
        """The map of a wide tile that is loaded as it is: a chunk of its columns."""
        if not is_streamed(value):
            return None
        op, width, element = rows.producer(value), prod(shape_of(value)[1:]), element_of(value)
        if op.name == kitsune.GetOp.OPERATION_NAME:
            return self._ring(kitsune_label(op.operands[0]), value, TILE_ROWS)
        number = self.numbers[hash(op.operands[0])]
        stride = self._row_bytes(number, width, element)
        return self._add(TensorMap(number, str(element), (width, None), (stride,), _box(element, self._box_rows)))

    def put(self, put: kitsune.PutOp) -> int:
        """The map of a tile that goes to another role: a warpgroup's rows."""
        tile = put.operands[1]
        if not is_packed(element_of(tile)) or row_bytes(tile) % 16:
            raise UnsupportedError(f"tiles of type {tile.type} are not handed on by tensor copies")
        return self._ring(kitsune_label(put.operands[0]), tile, ROWS)

    def stores(self, stages: Sequence[kitsune.StageOp]) -> dict[int, int]:
        """By output of the stages, the maps of those that leave by tensor copies: a warpgroup's rows."""
        own = {store.position for stage in stages for store in stage.stores}
        found = {}
        for number, result in enumerate(self._results, len(self.numbers)):
            tile = result.store.operands[0]
            if result.position in own and isinstance(result.store, kitsune.StoreOp) and is_stored_whole(tile):
                element, width = element_of(tile), prod(shape_of(tile)[1:])
                map_ = TensorMap(number, str(element), (width, None), (row_bytes(tile),), _box(element, ROWS))
                found[result.position] = self._add(map_)
        return found

    def _ring(self, label: str, tile: ir.Value, box_rows: int) -> int:
        """All slots of a ring as one tensor in the workspace."""
        element, width, ring = element_of(tile), prod(shape_of(tile)[1:]), self._rings[label]
        dims, workspace = (width, ring.slots * TILE_ROWS), len(self.numbers) + len(self._results)
        box = CHUNK, box_rows
        return self._add(TensorMap(workspace, str(element), dims, (row_bytes(tile),), box, offset=ring.data))

    def _row_bytes(self, number: int, columns: int, element: ir.Type) -> int:
        """The bytes of a tensor's rows as a tensor map wants them."""
        if columns * element_bytes(element) % 16:
            self.padded.add(number)
            columns = padded_columns(columns, element)
        return columns * element_bytes(element)

    def _add(self, map_: TensorMap) -> int:
        self.all.append(map_)
        return len(self.all) - 1


def is_stored_whole(tile: ir.Value) -> bool:
    """Whether tensor copies can store a tile."""
    return is_multiplied(element_of(tile)) and row_bytes(tile) % 16 == 0


def padded_row(whole: ir.Value) -> int:
    """Columns of a tensor of two dimensions whose rows were made longer."""
    return padded_columns(shape_of(whole)[1], element_of(whole))


def padded_columns(columns: int, element: ir.Type) -> int:
    """Columns of a tensor whose rows are multiples of 16 bytes, as tensor maps want them."""
    each = 16 // element_bytes(element)
    return -(-columns // each) * each


def _box(element: ir.Type, box_rows: int) -> tuple[int, int]:
    return BOX_ROW // element_bytes(element), box_rows
