"""Products of a chain whose tile registers do not hold, in passes over their columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kitsune_mlir import rows
from kitsune_mlir.chains.product_plan import Product
from kitsune_mlir.codegen.hopper.fragments import is_packed
from kitsune_mlir.codegen.pipeline.nests import Nest, kitsune_label
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.roles import FillOp
from kitsune_mlir.dialects.write_rows import WriteRowsOp
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, i64, ir

from .chain_columns import Columns, computed_columns, is_computed, loaded_columns
from .chain_fills import Fills
from .chain_kernel import COPY_ROWS
from .chain_products import Operand
from .chain_tiles import beside, engine_of, part
from .chain_values import ChainValues
from .kernel_build import read_box, turns, write_box


class ChainPasses(ChainValues):
    """What is stored pass by pass."""

    @staticmethod
    def _packed(tile: ir.Value) -> ir.Value:
        """A product's tile that leaves: of 16-bit elements all of it is computed before. With the boxes between that it
        leaves through, what is read for its columns would be waited for one after another."""
        kind = ir.RankedTensorType(tile.type)
        return part(tile, 0, kind.shape[1]) if kind.rank == 2 and is_packed(kind.element_type) else tile

    def _passes(self, nest: Nest, product: Product) -> None:
        """A product of more columns than registers hold, whose tile is only stored: in a loop over its columns, unless
        tiles are of columns too."""
        assert nest.op is not None
        self._settle_background()
        self.free.clear()
        operands = self._operands(nest.op)
        for segment, (value, _) in zip(product.segments, operands, strict=True):
            if not segment.streams and hash(value) not in self.stowed:
                kept = self._keep(value)
                kept.columns(0, kept.width)
            if segment.parts > 1:
                self.exchanged[hash(value)].open_all()
        if self.kernel.column is not None:
            self._pass(nest, product, operands, self.kernel.column, [])
        else:
            slots = [self.kernel.acquire_queue(kitsune_label(put.operands[0])) for put in nest.puts]
            filling, self.filling, known = self.filling, [], dict(self.cloner.values)
            filling.append(Fills("passes", 0, product.n, product.pass_columns, self.filling))
            firsts = dict(self.firsts)
            with turns(*map(constant_index, (0, product.n, product.pass_columns))) as column:
                self._pass(nest, product, operands, column, slots)
            for slot in slots:
                schedule.CommitOp(slot, [])
            self.firsts = firsts
            self.filling, self.cloner.values = filling, known
        self.free.clear()
        for (value, _), ends in zip(operands, self._reads(operands), strict=True):
            if not ends:
                continue
            stowed, sent = self.stowed.get(hash(value)), self.exchanged.get(hash(value))
            for slot in stowed.slots if stowed is not None else sent.slots.values():
                schedule.ReleaseOp(slot, [])

    def _pass(
        self, nest: Nest, product: Product, operands: list[Operand], first: ir.Value, slots: Sequence[ir.Value]
    ) -> None:
        """The columns of a pass, from `first` on, which are stored, and fill `slots` of rings between roles."""
        self.first = first
        settled: dict[int, ir.Value] = {}
        self._run(product, operands, settled.__setitem__)
        sums = beside([settled[number] for number in range(product.sets)])
        columns = Columns(nest, partial(self._columns, product, first))
        value = self._packed(columns.of(sums, 0, product.pass_columns))
        for store in nest.stores:
            self._write_columns(value, store, self._of_share(product, first))
        for slot in slots:
            FillOp(slot, value, first)

    def _of_share(self, product: Product, column: ir.Value) -> ir.Value:
        """A column, counted from the first of the CTA's, among all."""
        return column if self.cluster == 1 else arith.addi(self._first(product.n), column)

    def _beginning(self, product: Product) -> ir.Value:
        value = product.op.operands[2]
        if product.passes == 1:
            return self._value(value)
        return self._columns(product, self.first, value, 1)

    def _columns(self, product: Product, first: ir.Value, value: ir.Value, dim: int | None) -> ir.Value:
        """What stands beside a pass's sums: the pass's columns, from `first` on, of a tensor or of what the stage
        computes by element."""
        if dim is None:
            return self._value(value)
        if is_computed(value):
            shape, leaf = (COPY_ROWS, product.pass_columns), partial(self._columns, product, first)
            return computed_columns(value, shape, self._of_share(product, first), leaf)
        count, loaded = product.pass_columns, loaded_columns(value)
        whole, at = value, [constant_index(0)] * ir.RankedTensorType(value.type).rank
        at[dim] = self._of_share(product, first)
        if loaded is not None:
            load, begin = loaded
            whole, at[0] = load.operands[0], self.row
            at[dim] = arith.addi(at[dim], constant_index(begin)) if begin else at[dim]
        kind = ir.RankedTensorType(value.type)
        sizes = [COPY_ROWS if at[0] is self.row and d == 0 else size for d, size in enumerate(kind.shape)]
        sizes[dim] = count
        return read_box(whole, at, sizes)

    def _write_rows(self, tile: ir.Value, store: kitsune.ScatterOp | kitsune.PlaceOp, column: ir.Value) -> None:
        """Writes, or adds, columns from `column` on to rows by number."""
        to = self._value(store.operands[1])
        like = store.like if isinstance(store, kitsune.ScatterOp) else []
        with store.operation.location:
            left = WriteRowsOp(tile, to, self.row, self.kernel.extent, column, like, i64(store.position))
        if isinstance(store, kitsune.ScatterOp):
            left.attributes["adds"] = ir.UnitAttr.get()

    def _write_columns(self, tile: ir.Value, store: kitsune.OutputOp, first: ir.Value) -> None:
        if not isinstance(store, kitsune.StoreOp):
            self._write_rows(tile, store, first)
            return
        engine = engine_of(store.operands[0].type, self.kernel.target, rows.shape_of(tile)[1])
        write_box(tile, [self.row, first], store.position, [0, 1], engine)
