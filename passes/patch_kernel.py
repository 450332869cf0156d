"""The kernel of a convolution whose tiles are patches of images (planning/patch_tiles.py, product_kernel.py).

    kitsune.copy %slot, %images[%b, %y - 1, %x - 1, %c] {dims = [1, 2, 3], patch = [10, 18]}     // once for 64 channels
    kitsune.product %sums, %slot, %filter {window = [0, 18, 8]}, ... {window = [1, 18, 8]}, ...  // each of 9 elements

The copies of the agent that multiplies have patches of 8 by 8 places side by side, of which all see the one slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.windows import windows_of
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, scf
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.patch_tiles import LINE_OF
from kitsune_mlir.planning.product_tiles import ProductTiles
from kitsune_mlir.planning.product_widths import short_rows
from kitsune_mlir.traffic import tensor_bytes

from .kernel_build import acquire_slot, fill_slot, turns, wait_slot
from .priced_product import Asked
from .product_follows import Follows
from .product_kernel import ProductKernel
from .product_sums import Rings
from .reshapes import reshaped

_SPACE = ("y", "x")


class PatchKernel(ProductKernel):
    """Builds it. The rows of the product "m", or its columns "n", are images "b", where these are one matrix, and
    places "y" and "x"; its other operand are filters."""

    def __init__(self, of: Asked, tiles: ProductTiles, follows: Follows):
        super().__init__(of, tiles, follows)
        self.side = "left" if windows_of(self.pieces["left"][0]) is not None else "right"
        self.filters, self.role = ("right", "m") if self.side == "left" else ("left", "n")
        self.counted, self.order = ("byxn", "byxn") if self.side == "left" else ("byxm", "bmyx")
        matrix = windows_of(self.pieces[self.side][0])
        assert matrix is not None and self.tiles.patch is not None
        self.windows, self.images, self.patch_sizes = matrix.windows, matrix.operands[0], self.tiles.patch
        self.seen = self.windows.seen(self.patch_sizes)
        self.is_one = "b" not in self.of.sizes  # matrix of all images
        counts = dict(zip(_SPACE, self.windows.places))
        self.extents |= {role: constant_index(count) for role, count in counts.items()}
        if self.is_one:
            self.extents["b"] = constant_index((self.of.sizes[self.role] or 0) // prod(counts.values()))
        self.patch, self._views = self, dict[ir.Value, ir.Value]()

    def build(self, ends: Sequence[ir.Value]) -> list[ir.Value]:
        kernel = self._kernel(sum(map(tensor_bytes, ends))).results[0]
        found = []
        for number, end in enumerate(ends):
            sizes, element = rows.known_sizes(end), element_type(end)
            unfolded = self._unfolded(sizes, len(sizes) - (2 if self.role == "m" else 1))
            type_ = ir.RankedTensorType.get([rows.DYNAMIC if size is None else size for size in unfolded], element)
            result = kitsune.result(kernel, number, type_)
            found.append(reshaped(result, sizes))
        return found

    def _unfolded(self, sizes: list[int | None], axis: int) -> list[int | None]:
        """The sizes of a tensor whose places along an axis are taken apart."""
        places = self.windows.places
        images = [(sizes[axis] or 0) // prod(places)] if self.is_one else []
        return [*sizes[:axis], *images, *places, *sizes[axis + 1 :]]

    def view(self, value: ir.Value, named: list[str | None]) -> tuple[ir.Value, list[str | None]]:
        """A tensor of places as one of images, which stands in front of the kernel."""
        axis = named.index(self.role)
        if value not in self._views:
            with ir.InsertionPoint(self.kernel):
                self._views[value] = reshaped(value, self._unfolded(rows.known_sizes(value), axis))
        own = ["b", *_SPACE] if self.is_one else [*_SPACE]
        return self._views[value], [*named[:axis], *own, *named[axis + 1 :]]

    def mark(self, op: ir.OpView) -> None:
        sizes = (LINE_OF, LINE_OF) if self.side == "left" else self.patch_sizes  # a copy's
        op.attributes[schedule.PATCH] = ir.DenseI64ArrayAttr.get(sizes)
        if self.side == "right":
            op.attributes[schedule.ACROSS] = ir.UnitAttr.get()

    def _tile_sizes(self) -> dict[str, int]:
        other = {"n": self.tiles.columns} if self.side == "left" else {"m": self.tiles.rows}
        return {"b": 1, **dict(zip(_SPACE, self.patch_sizes)), **other}

    def _ring(self, name: str, count: int) -> schedule.AllocRingOp:
        if name == self.side:
            return self._alloc(name, name, short_rows(prod(self.seen)), self.element, "all", self.tiles.slots)
        share = "split" if name == "left" else "all"
        return self._alloc(name, name, count, self.element, share, self.tiles.right_slots)

    def own_place(self, at: dict[str, ir.Value]) -> dict[str, ir.Value]:
        if self.side == "right":
            return super().own_place(at)
        return at | {"x": arith.addi(at["x"], arith.muli(self.copy_number, constant_index(LINE_OF)))}

    # ---- the agent that copies

    def _feed(self, rings: dict[str, schedule.AllocRingOp], at: dict[str, ir.Value]) -> None:
        with turns(*map(constant_index, (0, self.windows.channels, self.chunk))) as channel:
            self._copy_pixels(rings[self.side], at, channel)
            for element in range(prod(self.windows.filter)):
                k = arith.addi(channel, constant_index(element * self.windows.depth))
                self.copy(self.filters, rings[self.filters], self.pieces[self.filters][0], at | {"k": k})

    def _copy_pixels(self, ring: schedule.AllocRingOp, at: dict[str, ir.Value], channel: ir.Value) -> None:
        begins = (arith.subi(at[role], constant_index(low)) for role, low in zip(_SPACE, self.windows.low))
        slot = acquire_slot(ring, prod(self.seen), self.columns)
        copy = fill_slot(slot, self.images, [at["b"], *begins, channel], [1, 2, 3], self.copies)
        copy.attributes[schedule.PATCH] = ir.DenseI64ArrayAttr.get(self.seen)
        if self.of.words:
            copy.attributes["rounded"] = ir.UnitAttr.get()

    # ---- the agent that multiplies

    def all_chunks(
        self, rings: Rings, kept: Sequence[ir.Value], at: Mapping[str, ir.Value], acc: ir.Type
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """The sums of all channels; a slot of pixels, and of a filter's element, is released when the next products
        have been issued."""
        carried = self._chunk(rings, schedule.SumsOp([], acc).results[0], [])
        if self.windows.channels > self.chunk:
            loop = scf.ForOp(*map(constant_index, (self.chunk, self.windows.channels, self.chunk)), carried)
            with ir.InsertionPoint(loop.body):
                sums, *before = loop.inner_iter_args
                scf.yield_(self._chunk(rings, sums, before))
            carried = list(loop.results)
        return carried[:1], carried[1:]

    def _chunk(self, rings: Rings, sums: ir.Value, before: Sequence[ir.Value]) -> list[ir.Value]:
        """Multiplies a slot of pixels, and releases what is left of the one `before`: the sums, then both slots that
        are read last, the pixels' first, and the token of who does."""
        ring, line = rings[self.side], self.seen[1]
        pixels = wait_slot(ring, prod(self.seen), self.columns)
        for number, (down, across) in enumerate(self.windows.elements()):
            filters = self.wait(rings[self.filters])
            pair = (pixels, filters) if self.side == "left" else (filters, pixels)
            multiplied = schedule.ProductOp(sums, *pair, self.products, sums.type, schedule.Token.get())
            name, apart = (schedule.WINDOW, LINE_OF) if self.side == "left" else (schedule.RIGHT_WINDOW, 0)
            multiplied.attributes[name] = ir.DenseI64ArrayAttr.get([down * line + across, line, apart])
            if before:
                self.release_last(*(before[1:] if number else before))
            sums, token = multiplied.results
            before = [pixels, filters, token]
        return [sums, *before]

    def release_last(self, *last: ir.Value) -> None:
        *slots, token = last
        for slot in slots:
            schedule.ReleaseOp(slot, [token])
