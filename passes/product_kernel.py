"""The kernel of a product outside pipelines, at the schedule level: rings, an agent that copies chunks of both operands
into them, an agent that multiplies and writes tiles with what follows applied to them (schedule_products.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kitsune_mlir.codegen.hopper.wgmma import STEP
from kitsune_mlir.codegen.schedule.extents import rows_left
from kitsune_mlir.contraction import NUMBERED, Roles
from kitsune_mlir.dialects import clusters, kitsune, schedule
from kitsune_mlir.dialects.windows import has_open_windows, in_memory, windows_of
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, i64, ir, scf
from kitsune_mlir.planning.cost import DRAM, Price
from kitsune_mlir.planning.kernel_cost import dram_us
from kitsune_mlir.planning.product_engines import CHUNK, engine
from kitsune_mlir.planning.product_tiles import PAIRS, ProductTiles
from kitsune_mlir.planning.product_widths import short_rows
from kitsune_mlir.traffic import tensor_bytes

from .chain_tiles import columns_of_tile
from .joined_weights import are_joined, side_by_side
from .kernel_build import (
    acquire_slot,
    cta_rank,
    deal_tiles,
    fill_slot,
    new_agent,
    new_kernel,
    new_ring,
    turns,
    wait_slot,
    write_box,
)
from .numbered_matrices import looked_up
from .operand_layout import GRANULE, has_open_lines, laid_out, weight_granule, words_laid_out
from .partial_sums import summed
from .priced_product import Asked
from .product_follows import AHEAD, Follows, Patch, matrices_of, tiled, vectors_of
from .product_parts import feed_parts, parts_side_by_side
from .product_pieces import make_pieces
from .product_pingpong import PingPong
from .product_sizes import ProductSizes
from .product_sums import Rings, all_chunks, release
from .product_vectors import open_vector, vector_ring
from .row_bodies import RowBody
from .split_batches import Stored, offsets_of
from .tile_order import place_of

_WARPS = 4


class ProductKernel:
    """Builds the kernel of a product at the insertion point."""

    counted = order = "sbmn"  # of a tile's place, as they are counted, and of what is stored

    def __init__(
        self,
        of: Asked,
        tiles: ProductTiles,
        follows: Follows,
        rows: RowBody | None = None,
        stored: Stored | None = None,
    ):
        self.of, self.tiles, self.follows, self.rows, self.stored = of, tiles, follows, rows, stored
        self.patch: Patch | None = None
        self.copies, products = schedule.engines(of.target.products)
        self.products = ir.StringAttr.get(products)
        self.made = [of.op, *(op for op, _ in of.beside)]  # products, whose tiles lie beside each other
        self.operands: dict[str, Roles] = {}
        self.pieces: dict[str, list[ir.Value]] = {}
        self.whole: dict[str, schedule.AllocRingOp] = {}  # rings of operands whose pieces are made here
        self.room = CHUNK // 2 if of.words else CHUNK  # columns of k that a slot has room for
        matrices = filter(None, map(windows_of, (of.found.left, of.found.right)))
        self.chunk = min([self.room, *(found.chunk for found in matrices)])  # and that are multiplied at a time
        self.lefts = parts_side_by_side(of.found, tiles, of.pieces, self.chunk)
        for left in self.lefts:
            self._lay_out("left", left, of.found.left_roles, GRANULE)
        rights = [found.right for found in (of.found, *(found for _, found in of.beside))]
        self.joined = are_joined(rights, of.found.right_roles, tiles.columns)
        for number, right in enumerate([side_by_side(rights, tiles.columns)] if self.joined else rights):
            name = f"right{number - 1}" if number else "right"
            self._lay_out(name, right, of.found.right_roles, weight_granule(right))
        self.vectors: list[ir.Value] = []  # what follows reads a row of: in shared memory throughout
        if tiles.copied and (of.sizes["n"] or 0) % tiles.columns == 0:
            self.vectors = vectors_of(follows, of.sizes["n"] or 0)
        copied = {name: (self.pieces[name][0], self.operands[name]) for name in ("left", "right")}
        self.sizes = ProductSizes(of, self.lefts[0], copied)
        self.extents = {role: self.sizes.extent(role) for role in of.sizes}
        kind = ir.RankedTensorType(of.found.left.type).element_type
        self.element = ir.BF16Type.get() if of.pieces > 1 else kind
        self.columns = self._opened_columns()

    @property
    def sums(self) -> int:
        """How many sets of sums a tile has."""
        return 1 if self.joined else len(self.made)

    def _lay_out(self, name: str, value: ir.Value, roles: Roles, granule: int) -> None:
        """An operand, in rows of multiples of so many bytes."""
        if self.of.words and in_memory(value) == value and name not in self.tiles.made:
            self.pieces.setdefault(name, []).append(words_laid_out(value, roles, granule))
            self.operands[name] = tuple(sorted(roles, key="k".__eq__))  # last
            return
        pieces = 1 if name in self.tiles.made else self.of.pieces
        self.pieces.setdefault(name, []).extend(laid_out(value, pieces, granule))
        self.operands[name] = roles

    def _opened_columns(self) -> int:
        """Columns of k that slots are opened for: of a short sum, whole steps of a product, for the copy engine takes
        long for what boxes along rows have and a tensor has not (H100: 57,269 x 32 to 128 took 13.6 us, 11.2 so)."""
        k, along = self.of.sizes["k"], all(roles[-1] == "k" for roles in self.operands.values())
        if k is None or k >= self.chunk or self.copies != "tma" or not along or self.tiles.made:
            return self.chunk
        step = STEP // 2 if self.of.words else STEP
        return -(-k // step) * step

    def build_rows(self) -> list[ir.Value]:
        """What takes the place of the row group's outputs."""
        assert self.rows is not None
        return self.rows.results(self._kernel(tensor_bytes(self.of.op.results[0])))

    def build(self, ends: Sequence[ir.Value]) -> list[ir.Value]:
        """What takes the place of these results of the stored operators, or of the product."""
        whole, types, nbytes = self.of.op.results[0], [end.type for end in ends], sum(map(tensor_bytes, ends))
        if self.tiles.split > 1:
            sizes = [self.tiles.split, *ir.RankedTensorType(whole.type).shape]
            types, nbytes = [ir.RankedTensorType.get(sizes, ir.F32Type.get())], self.tiles.split * tensor_bytes(whole)
        built = self._kernel(nbytes).results[0]
        if self.of.several is not None:
            roles, split = [role for role in self.order if role in self._tile_sizes()], self.tiles.split
            each = enumerate(zip(ends, types))
            results = [
                self.sizes.result(built, n, kind, self.sizes.wanted(end, split), roles) for n, (end, kind) in each
            ]
        else:
            open_ = [self.extents["m"]] if has_open_windows(self.of.found.left) else []
            results = [kitsune.result(built, number, kind, open_) for number, kind in enumerate(types)]
        return [summed(results[0])] if self.tiles.split > 1 else results

    def _kernel(self, written: int) -> schedule.KernelOp:
        """The kernel, whose results have about so many bytes."""
        tiles, price = self.tiles, self._price(written)
        cluster = tiles.cluster if tiles.cluster > 1 else None
        pairs = len(PAIRS[self.of.pieces]) if self.of.pieces > 1 else None
        with new_kernel(self.of.name, self.of.target, price.us, price.limit, cluster=cluster, pairs=pairs) as built:
            self.kernel = built
            sizes = self._tile_sizes()
            roles = [role for role in self.counted if role in sizes]
            extents = [constant_index(tiles.split) if role == "s" else self.extents[role] for role in roles]
            dealt = deal_tiles(extents, [sizes[role] for role in roles])
            columns = max(tiles.sets) * (len(self.made) if self.joined else 1)
            counts = {name: tiles.rows if name == "left" else columns for name in self.operands}
            rings = {name: self._ring(name, count) for name, count in counts.items()}
            made = (ir.F32Type.get(), "all", tiles.whole_slots)  # of operands whose pieces are made in the kernel
            self.whole = {n: self._alloc(f"{n}_whole", n, counts[n], *made) for n in counts if n in tiles.made}
            vectors = {value: vector_ring(value, i) for i, value in enumerate(self.vectors)}
            registers = engine(self.of.target).registers(tiles.copies, bool(tiles.made))
            for name, count in zip(("feed", "math", "make"), registers, strict=False):
                copies = tiles.copies if name == "math" else 1
                with new_agent(name, copies, _WARPS, count) as self.copy_number:
                    kept = self._keep(rings, name)
                    opened = vectors.items() if name != "make" else ()
                    slots = {value: open_vector(name, ring, value) for value, ring in opened}
                    pingpong = PingPong(self, slots) if tiles.alternates else None
                    begin = pingpong.before() if pingpong and name == "math" else []
                    loop = scf.ForOp(*dealt.results, begin)
                    with ir.InsertionPoint(loop.body):
                        share = self.of.found.numbers is not None
                        place = partial(place_of, loop.induction_variable, roles, extents, sizes, share)
                        around: list[ir.Value] = []
                        if pingpong is None and name == "feed":
                            self._feed(rings, looked_up(self.of.found.numbers, place()[0]))
                        elif name == "make":
                            make_pieces(self, rings, place()[0] if tiles.split > 1 else {})
                        elif pingpong is None:
                            self._multiply(rings, place, kept, slots)
                        elif name == "feed":
                            pingpong.feed(rings, looked_up(self.of.found.numbers, place()[0]))
                        else:
                            around = pingpong.tile(rings, list(loop.inner_iter_args), place)
                        scf.yield_(around)
                    if begin:
                        pingpong.behind(list(loop.results))
                    for slot in [*kept, *slots.values()] if name == "math" else ():
                        schedule.ReleaseOp(slot, [])
        return built

    def reads_ahead(self, columns: int) -> bool:
        """Whether all that follows reads of so many columns of a tile is asked for at once: where it fits the registers
        beside the sums. A part at a time a multiprocessor has too few bytes on their way: 16,384 x 512 numbers that are
        added to a product took 10 us, and 5 are what memory takes (H200)."""
        return self.of.target.has_warpgroups and columns * len(matrices_of(self.made, self.follows)) <= AHEAD

    def own_place(self, at: dict[str, ir.Value]) -> dict[str, ir.Value]:
        """Where the agent's copy of a tile is."""
        return at | {"m": self.own_row(at["m"])}

    def all_chunks(
        self, rings: Rings, kept: Sequence[ir.Value], at: dict[str, ir.Value], acc: ir.Type
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """A tile's sums, and what of the last chunk `release_last` is still to be given."""
        return all_chunks(self, rings, kept, at, acc)

    def release_last(self, *last: ir.Value) -> None:
        """Releases a tile's last slots."""
        release(self, *last)

    def own_row(self, row: ir.Value) -> ir.Value:
        """The first row of the agent's copy, of a tile that begins at a row."""
        return arith.addi(row, arith.muli(self.copy_number, constant_index(self.tiles.copy_rows)))

    def _keep(self, rings: dict[str, schedule.AllocRingOp], does: str) -> list[ir.Value]:
        """In front of the loop over tiles: fills the slots of an operand that is kept, or opens them for the loop."""
        name = self.tiles.kept
        if name is None:
            return []
        if does == "math":
            return [self.wait(rings[name]) for _ in range(self._chunks)]
        zero = constant_index(0)
        with turns(zero, self.extents["k"], constant_index(self.chunk)) as k:
            self.copy(name, rings[name], self.pieces[name][0], dict.fromkeys("bmn", zero) | {"k": k})
        return []

    @property
    def _chunks(self) -> int:
        """The chunks of the whole sum."""
        return -(-(self.of.sizes["k"] or 0) // self.chunk)

    def _price(self, written: int) -> Price:
        """The kernel's price: its tiles', or DRAM's where that is slower."""
        numbers = self.of.found.numbers
        parts = {name: numbers.part if numbers and NUMBERED in roles else 1.0 for name, roles in self.operands.items()}
        operands = {in_memory(value): parts[name] for name, pieces in self.pieces.items() for value in pieces}
        read = [value for value in matrices_of(self.made, self.follows) if value not in operands]
        nbytes = written + sum(tensor_bytes(value) * part for value, part in operands.items())
        nbytes += sum(map(tensor_bytes, read))
        moved = Price(self.of.target.launch_us + dram_us(nbytes, self.of.target), DRAM)
        return max(self.tiles.price, moved, key=lambda price: price.us)

    def _tile_sizes(self) -> dict[str, int]:
        sizes = {"m": self.tiles.rows, "n": self.tiles.columns} | ({"b": 1} if "b" in self.of.sizes else {})
        return sizes | ({"s": 1} if self.tiles.split > 1 else {})

    def _ring(self, name: str, count: int) -> schedule.AllocRingOp:
        share = "split" if name == "left" else "all"
        slots = self._chunks if name == self.tiles.kept else self.tiles.slots
        if name == "right" and self.tiles.alternates:
            slots = self.tiles.right_slots
        return self._alloc(name, name, count, self.element, share, slots)

    def _alloc(
        self, label: str, operand: str, count: int, element: ir.Type, share: str, slots: int
    ) -> schedule.AllocRingOp:
        """A ring of chunks of an operand, of `count` rows or columns of it."""
        along = self.operands[operand][-1] == "k" or (self.of.words and label == operand)  # turned, if need be
        return new_ring(label, (count, self.room), element, slots, share, "rows" if along else "columns")

    def _range(self, at: dict[str, ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The bounds and the step of the loop over k: the tile's part of it. Of a cluster all CTAs have equally many
        turns, of which the last CTA's may be behind the end: each adds `_own_part`."""
        if self.tiles.cluster > 1:
            return constant_index(0), constant_index(self.tiles.part), constant_index(self.chunk)
        if "s" not in at:
            return constant_index(0), self.extents["k"], constant_index(self.chunk)
        part = self._part()
        last = arith.minui(arith.muli(arith.addi(at["s"], constant_index(1)), part), self.extents["k"])
        return arith.minui(arith.muli(at["s"], part), last), last, constant_index(self.chunk)

    def _part(self) -> ir.Value:
        """What of k a tile sums, whole chunks: as much in each, of a length that is open until the call too."""
        if self.of.sizes["k"] is not None:
            return constant_index(self.tiles.part)
        each = constant_index(self.tiles.split * self.chunk)
        return arith.muli(arith.ceildivui(self.extents["k"], each), constant_index(self.chunk))

    @property
    def overlaps(self) -> bool:
        """Whether a chunk's slots are released behind the next chunk's product, for which the first chunk stands before
        the loop over the others. Waited for anyway are a warp's own products, and what is added outside of tensor
        cores; and a length that is open until the call may be zero."""
        goes_on = self.products.value == "wgmma" and self.of.pieces == 1
        return goes_on and self.of.sizes["k"] is not None

    def rest(self, at: dict[str, ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The range without its first chunk, where that stands before the loop."""
        first, last, step = self._range(at)
        return (arith.addi(first, step) if self.overlaps else first), last, step

    def _feed(self, rings: dict[str, schedule.AllocRingOp], at: dict[str, ir.Value]) -> None:
        if len(self.lefts) > 1:
            feed_parts(self, rings, at)
            return
        first = self._own_part()
        if self.overlaps:
            self._copies(rings, at | {"k": _moved(self._range(at)[0], first)})
        with turns(*self.rest(at)) as k:
            self._copies(rings, at | {"k": _moved(k, first)})

    def _own_part(self) -> ir.Value | None:
        """Where the part of k begins that the CTA of a cluster sums."""
        if self.tiles.cluster == 1:
            return None
        return arith.muli(cta_rank(), constant_index(self.tiles.part))

    def _copies(self, rings: dict[str, schedule.AllocRingOp], place: dict[str, ir.Value]) -> None:
        """A chunk of each piece of the operands that are not kept, into the next slots."""
        for piece in range(self.of.pieces):
            for name, own in rings.items():
                if name in self.whole and not piece:
                    self.copy(name, self.whole[name], self.pieces[name][0], place)
                elif name != self.tiles.kept and name not in self.whole:
                    self.copy(name, own, self.pieces[name][piece], place)

    def copy(
        self,
        name: str,
        into: schedule.AllocRingOp,
        value: ir.Value,
        place: dict[str, ir.Value],
        count: int | None = None,
    ) -> None:
        """A chunk of an operand's piece into the next slot, which is opened for `count` rows where that is not all."""
        roles, own = self.operands[name], "m" if name == "left" else "n"
        slot = acquire_slot(into, count, self.columns)
        if self.joined and own == "n":
            place = place | {"n": arith.muli(place["n"], constant_index(len(self.made)))}
        copy = fill_slot(slot, value, offsets_of(roles, place), [roles.index(own), roles.index("k")], self.copies)
        for mark, holds in (("rounded", self.of.words), ("longer", has_open_lines(value))):
            if holds:
                copy.attributes[mark] = ir.UnitAttr.get()
        if self.copies == "tma" and ("left" if name == "left" else "right") in self.tiles.short:
            self._shorten(copy, own)

    def _shorten(self, copy: schedule.CopyOp, own: str) -> None:
        """Where the last tile has fewer rows of a role than others, has the boxes that reach behind the tensor's last
        row end with it, as far as whole patterns of a box do."""
        rows, axis = schedule.tile_of(copy.operands[0]).shape[0], copy.axes[0]
        size = self.of.sizes[own] or 0
        left = rows_left(size, rows, copy.operands[2 + axis]) if size % self._tile_sizes()[own] else None
        if left is not None and short_rows(left) < rows:
            copy.attributes["last"] = i64(short_rows(left))

    def _multiply(
        self,
        rings: dict[str, schedule.AllocRingOp],
        place: Callable[[], tuple[dict[str, ir.Value], dict[str, ir.Value]]],
        kept: Sequence[ir.Value],
        slots: Mapping[ir.Value, ir.Value],
    ) -> None:
        """A tile. Where it is, which takes a while to compute, is known once its products are on their way, but for the
        part of k."""
        at = place()[0] if self.tiles.split > 1 else {}
        sets = len(self.made) if self.joined else 1
        tile = ir.RankedTensorType.get([self.tiles.copy_rows, sets * self.tiles.columns], ir.F32Type.get())
        totals, last = self.all_chunks(rings, kept, at, schedule.Acc.get(tile))
        at = at or place()[0]
        if self.of.pieces == 1:
            totals = [schedule.SettleOp(total, tile).results[0] for total in totals]
        if self.joined:
            totals = [
                columns_of_tile(totals[0], number * self.tiles.columns, self.tiles.columns) for number in range(sets)
            ]
        value, *others = totals
        if last:
            self.release_last(*last)
        own = self.own_place(at)
        if self.tiles.cluster > 1:
            width = self.tiles.columns // self.tiles.cluster
            share = ir.RankedTensorType.get([self.tiles.copy_rows, width], ir.F32Type.get())
            value = clusters.MeetOp(value, share).results[0]
            own["n"] = arith.addi(at["n"], arith.muli(cta_rank(), constant_index(width)))
        made = {op.results[0]: total for op, total in zip(self.made, (value, *others), strict=True)}
        if self.rows is not None:
            self.rows.given = made
            self.rows.emit([own[role] for role in "bm" if role in own], constant_index(0))
            return
        ahead = self.reads_ahead(self.tiles.columns * len(totals))
        for op in self.follows.ops:
            made[op.results[0]] = tiled(op, made, own, slots, ahead, self.patch)
        roles = (
            self.sizes.parted(role for role in self.order if role in own) if self.stored is None else self.stored.roles
        )
        for number, op in enumerate(self.follows.stored or [self.of.op]):
            by_rows = schedule.BY_ROWS if self.tiles.by_rows and self.stored is None else None
            engine_of = schedule.COPIED if self.tiles.copied else by_rows
            dims = [roles.index(role) for role in "myxn" if role in roles]
            write = write_box(made[op.results[0]], offsets_of(roles, own), number, dims, engine_of)
            if self.patch is not None:
                self.patch.mark(write)

    def wait(self, of: schedule.AllocRingOp) -> ir.Value:
        return wait_slot(of, columns=self.columns)


def _moved(index: ir.Value, by: ir.Value | None) -> ir.Value:
    return index if by is None else arith.addi(index, by)
