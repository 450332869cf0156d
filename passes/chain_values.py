"""The values of a chain's stages on a warpgroup's rows: what is read, cloned or kept in registers."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.chains.operands import is_loaded
from kitsune_mlir.chains.program import Block
from kitsune_mlir.codegen.hopper.fragments import BLOCK, is_packed
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import slice_of
from kitsune_mlir.row_cloner import RowCloner

from .chain_columns import take_columns
from .chain_exact import ChainExact
from .chain_exchange import ShareCloner, joins_columns, total
from .chain_fills import selected
from .chain_kernel import COPY_ROWS, ChainKernel
from .chain_tiles import Pieces, one_column, part
from .kernel_build import read_box


class ChainValues(ChainExact):
    """Values by those of the `block` of stages that is worked on, of a tile whose first row is at `row`."""

    block: Block

    def __init__(self, kernel: ChainKernel, row: ir.Value):
        super().__init__(kernel)
        self.program, self.row = kernel.program, row
        self.cluster = kernel.cluster
        self.cloner = self._new_cloner()
        self.firsts: dict[int, ir.Value] = {}  # of the stage's shares, by their columns
        self.loaded: dict[int, Pieces] = {}  # operands in registers of which each CTA of a cluster has all columns
        self.tiles: dict[int, Pieces] = {}  # in registers

    def _new_cloner(self) -> RowCloner:
        return RowCloner(COPY_ROWS) if self.cluster == 1 else ShareCloner(COPY_ROWS, self.cluster)

    def _first(self, count: int) -> ir.Value:
        """The first of the columns that the CTA of a cluster has, of so many each: asked for once a stage, so that what
        is read at it is found from one register."""
        if count not in self.firsts:
            self.firsts[count] = self.kernel.first_of_share(count)
        return self.firsts[count]

    @property
    def _parts(self) -> int:
        """Into how many parts columns are divided, of which a CTA has one."""
        return getattr(self.cloner, "parts", 1)

    def _value(self, value: ir.Value) -> ir.Value:
        """A stage's value on the copy's rows; what it is computed from is read, or cloned, first."""
        if hash(value) in self.tiles and hash(value) not in self.cloner.values:
            tile = self.tiles[hash(value)]
            self.cloner[value] = tile.columns(0, tile.width)
        if hash(value) in self.cloner.values:
            return self.cloner[value]
        op = rows.producer(value)
        if op is None or op.parent.name != kitsune.StageOp.OPERATION_NAME:
            self.cloner[value] = self._resident(value)
        elif op.name == kitsune.LoadOp.OPERATION_NAME:
            self.cloner[value] = self._read(op.operands[0], value, (self.row,))
        elif (column := _column_of(op, self._parts > 1)) is not None:
            whole = self._value(op.operands[0]) if self._parts == 1 else self._loaded_value(op.operands[0])
            self.cloner[value] = one_column(whole, column)
        elif op.name not in rows.SUPPORT:
            for operand in op.operands:
                if rows.is_tensor(operand) and rows.init_of(operand).tensor is not None:
                    self._value(operand)
            width = self.cloner.type_of(value.type).shape[-1]
            first = self._first(width) if self._parts > 1 and op.name == "linalg.generic" and width > 1 else None
            self.cloner.clone(op, 1)
            if first is not None:
                take_columns(self.cloner[value].owner, first, width)
            if self._parts > 1 and joins_columns(op):
                self.cloner[value] = total(op, self.cloner[value])
        else:  # one scalar everywhere
            return self.cloner.init(value, 1)
        return self.cloner[value]

    def _resident(self, value: ir.Value) -> ir.Value:
        """All of a tensor that is the same for all rows, that of the layer in a loop over layers."""
        layer = None if self.layers is None else self.layers.counter
        if (vector := self.kernel.vector(self.block, value, layer, self._parts, self._first)) is not None:
            return vector
        if self.layers is None:
            return self._read(value, value, ())
        of_layers = self.layers.of(value)
        return self._read(selected(of_layers, self.layers.counter), value, ())

    def _read(self, whole: ir.Value, value: ir.Value, at: Sequence[ir.Value]) -> ir.Value:
        """A box of a tensor: the copy's rows, or all of it."""
        kind = ir.RankedTensorType(value.type)
        sizes = list((self.cloner.type_of(kind) if at else kind).shape)
        offsets = [*at, *[constant_index(0)] * (kind.rank - len(at))]
        if self._parts > 1 and kind.rank > len(at) and kind.shape[-1] > 1:
            sizes[-1] = kind.shape[-1] // self._parts
            offsets[-1] = self._first(sizes[-1])
        together = at and kind.rank == 2 and is_packed(kind.element_type) and sizes[-1] == kind.shape[-1]
        return read_box(whole, offsets, sizes, marks=["together"] if together else ())

    def _keep(self, value: ir.Value) -> Pieces:
        """Computes a tile and keeps it: a part for each chunk that products take."""
        if self.cluster > 1 and is_loaded(value):
            return self._keep_loaded(value)
        if hash(value) not in self.tiles:
            tile, width, each = self._value(value), self._width(value), self.kernel.chunk
            found = Pieces(width, each, lambda number: part(tile, number * each, min(each, width - number * each)))
            whole = found.columns(0, width)
            self.tiles[hash(value)] = found
            if self.alike.get(hash(value), hash(value)) not in self.block.columns.elsewhere:
                self.cloner[value] = whole
        return self.tiles[hash(value)]

    def _keep_loaded(self, value: ir.Value) -> Pieces:
        """The same of an operand that each CTA of a cluster computes from what is loaded, with all its columns."""
        if hash(value) not in self.loaded:
            tile, width, each = self._loaded_value(value), rows.shape_of(value)[1], self.kernel.chunk
            self.loaded[hash(value)] = pieces = Pieces(
                width, each, lambda number: part(tile, number * each, min(each, width - number * each))
            )
            pieces.columns(0, width)
        return self.loaded[hash(value)]

    def _loaded_value(self, value: ir.Value) -> ir.Value:
        """All columns of what each CTA of a cluster computes from what is loaded."""
        around, self.cloner = self.cloner, RowCloner(COPY_ROWS)
        tile = self._value(value)
        self.cloner = around
        return tile

    def _width(self, value: ir.Value) -> int:
        """The columns of a tile that the CTA has."""
        return self.program.share(rows.shape_of(value)[1])


def _column_of(op: ir.Operation, in_parts: bool) -> int | None:
    """Which one column of a tile an operation takes, where not each row's first thread has it, or CTAs have parts of
    the columns; None elsewhere."""
    shapes = [rows.shape_of(op.operands[0]), rows.shape_of(op.results[0])] if op.name == "tensor.extract_slice" else []
    if [len(shape) for shape in shapes] != [2, 2] or shapes[1][1] != 1:
        return None
    column = slice_of(op).offsets[1]
    return column if column % BLOCK or in_parts else None
