"""Swizzled boxes in shared memory, 128 bytes of each of a warpgroup's rows, written from and read into registers; and
tiles that leave through them: one thread has the copy engine store a box. Two boxes a warpgroup, so that one is written
while the other leaves; one where tiles are no wider.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.ampere.ldmatrix import load_matrices
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.memory import Memory
from kitsune_mlir.dialects.kernels import MOST_OUTBOXES
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.traffic import element_bytes

from . import tma, warps
from .fragments import BLOCK, HALVES, Fragment, PairedMemory, is_packed
from .wgmma import BOX_ROW, ROWS, STEP_BYTES, STEPS, THREADS

BOXES = MOST_OUTBOXES
BOX_BYTES = ROWS * BOX_ROW
WARP_ROWS = ROWS * warps.WARP // THREADS
WORD = 4  # bytes
SWIZZLED = 16  # bytes of a row that stay together


def boxes_of(columns: int, nbytes: int = 2) -> int:
    """Boxes that so many columns of a warpgroup's rows take, of elements of so many bytes."""
    return -(-columns * nbytes // BOX_ROW)


@dataclass
class Boxes:
    """A thread's way to boxes of its warpgroup. `own_row` is a thread's first row among the warpgroup's 64, `pair` 2q
    (fragments.py), `leader` (i1) holds in one thread, `barriers` is the number of the first of the barriers that
    consumer warpgroups have alone. What depends on the warpgroup is computed where it is used (warps.consumer)."""

    own_row: ir.Value
    pair: ir.Value
    leader: ir.Value
    barriers: int

    @staticmethod
    def of(thread: ir.Value, leader: ir.Value, barriers: int = 1) -> Boxes:
        """That of the thread of this number in the CTA."""
        lane, warp = device.mod(thread, warps.WARP), device.div(device.mod(thread, THREADS), warps.WARP)
        own_row = device.add(device.mul(warp, 2 * BLOCK), device.div(lane, 4))
        return Boxes(device.value(own_row), device.value(device.mul(device.mod(lane, 4), 2)), leader, barriers)

    @property
    def barrier(self) -> Int:
        """The number of the warpgroup's own."""
        return device.add(warps.consumer(), self.barriers)

    @property
    def first_row(self) -> Int:
        """The warpgroup's, in a tile."""
        return device.mul(warps.consumer(), ROWS)

    @property
    def warp(self) -> Int:
        """The thread's warp in the warpgroup, whose rows 16 * warp and on it has."""
        return device.div(self.own_row, 2 * BLOCK)

    @property
    def lane(self) -> Int:
        return device.add(device.mul(device.mod(self.own_row, BLOCK), 4), device.div(self.pair, 2))

    def write(self, box: Int, tile: Fragment, number: int) -> None:
        """Box `number` of a tile as products read it, zeros beyond the tile: a step of four words at once (PTX ISA,
        stmatrix)."""
        place, blocks = self._place(box), len(HALVES) * STEPS
        if tile.loads:  # no load may pass what stores: all that the box takes is asked for before
            tile.compute_all(range(number * blocks, (number + 1) * blocks))
        for step in range(STEPS):
            text = f"""{{
.reg .b32 place;
xor.b32 place, $0, {step * STEP_BYTES};
stmatrix.sync.aligned.m8n8.x4.shared.b16 [place], {{$1, $2, $3, $4}};
}}"""
            words = tile.step(number * STEPS + step)
            device.assembly(text, place, *words)

    def write_words(self, box: Int, tile: Fragment, number: int) -> None:
        """The same, word by word, on chips without such an instruction."""
        row, granule = device.mod(self.own_row, BLOCK), SWIZZLED
        within = device.add(device.mul(row, granule), device.mul(self.pair, WORD // 2))
        place = device.add(device.add(box, device.mul(self.own_row, BOX_ROW)), within)
        for step in range(STEPS):
            text = f"""{{
.reg .b32 place;
xor.b32 place, $0, {step * STEP_BYTES};
st.shared.b32 [place], $1;
add.s32 place, place, {BLOCK * BOX_ROW};
st.shared.b32 [place], $2;
xor.b32 place, place, {granule};
st.shared.b32 [place], $4;
sub.s32 place, place, {BLOCK * BOX_ROW};
st.shared.b32 [place], $3;
}}"""
            words = tile.step(number * STEPS + step)
            device.assembly(text, place, *words)

    def write_whole(self, box: Int, tile: Fragment, number: int) -> None:
        """The same with f32 columns in their own order."""
        if is_packed(tile.element):
            self.write(box, tile, number)
            return
        if tile.loads:
            tile.compute_all(range(number * STEPS, (number + 1) * STEPS))
        row = device.mod(self.own_row, BLOCK)  # of both of a thread's rows, modulo 8
        chunk = arith.xori(device.value(device.div(self.pair, 4)), device.value(row))
        within = device.add(device.mul(chunk, 16), device.mul(device.mod(self.pair, 4), 4))
        place = device.add(device.add(box, device.mul(self.own_row, BOX_ROW)), within)
        for block in range(STEPS):
            four = [tile.f32(number * STEPS + block, h, e) for h in HALVES for e in (0, 1)]
            text = f"""{{
.reg .b32 place;
xor.b32 place, $0, {block * STEP_BYTES};
st.shared.v2.f32 [place], {{$1, $2}};
add.s32 place, place, {BLOCK * BOX_ROW};
st.shared.v2.f32 [place], {{$3, $4}};
}}"""
            device.assembly(text, place, *four)

    def read(self, box: Int, step: int) -> list[ir.Value]:
        """The four words of a step of a box."""
        return load_matrices(self._place(box), step * STEP_BYTES)

    def _place(self, box: Int) -> Int:
        """The place of the row of an 8 x 8 block that the lane names: four blocks, two halves of rows for each of two
        16-byte chunks. Chunk c of row r lies at chunk c ^ (r mod 8)."""
        thread = warps.thread()
        lane, warp = device.mod(thread, warps.WARP), device.div(device.mod(thread, THREADS), warps.WARP)
        row_in_block, matrix = device.mod(lane, BLOCK), device.div(lane, BLOCK)
        row = device.add(device.mul(warp, 2 * BLOCK), row_in_block)
        row = device.add(row, device.mul(device.mod(matrix, 2), BLOCK))
        chunk = arith.xori(device.value(device.div(matrix, 2)), device.value(row_in_block))
        return device.add(device.add(box, device.mul(row, BOX_ROW)), device.mul(chunk, 16))


@dataclass
class Outbox:
    """A warpgroup's boxes in shared memory, so `many`; those of the first, after the producer's, are at `start`."""

    maps: ir.Value
    start: Int
    boxes: Boxes
    many: int = BOXES

    def store(self, map_: int, tile: Fragment, columns: int, at: tuple[Int, ...]) -> None:
        """Sends `columns` columns of a tile to the column, the row and so on `at` of an output, when no products are in
        flight. It branches: without, ptxas lacks registers for a loop over layers before it (C7512)."""
        for box in range(boxes_of(columns, element_bytes(tile.element))):
            with device.when(self.boxes.leader):
                tma.wait_read(self.many - 1 if box else 0)
            warps.barrier(self.boxes.barrier, THREADS)
            self.write(tile, box)
            self._depart(map_, tile, box, self.box(box), at)

    def send(self, map_: int, tile: Fragment, at: tuple[Int, ...], sent: int) -> int:
        """Sends a tile while products are in flight, which branches would end. `sent` boxes have been sent before that
        are known of, 0 where others may have been; gives how many there are with the tile's."""
        for box in range(boxes_of(tile.width, element_bytes(tile.element))):
            place = device.add(self._place, sent % self.many * BOX_BYTES)
            tma.wait_read(self.many - 1 if sent else 0)  # the leader alone has stored
            warps.barrier(self.boxes.barrier, THREADS)
            self.boxes.write_whole(place, tile, box)
            self._depart(map_, tile, box, place, at)
            sent += 1
        return sent

    def store_rows(
        self, tile: Fragment, memory: PairedMemory, columns: int, start: Int, valid: ir.Value, width: Int
    ) -> None:
        """Writes `columns` columns of a tile, from column `start` on, to rows of `width` columns that tensor copies do
        not store: each warp lays its 16 rows out in shared memory, then writes them one after another, neighbouring
        columns at once. The first `valid` rows of the tile exist."""
        self.free()
        for box in range(boxes_of(columns, element_bytes(tile.element))):
            self.write(tile, box)
            warps.sync()
            self._write_rows(tile, memory, box, columns, start, valid, width)

    def _write_rows(
        self, tile: Fragment, memory: PairedMemory, number: int, columns: int, start: Int, valid: ir.Value, width: Int
    ) -> None:
        nbytes = element_bytes(tile.element)
        words = isinstance(width, int) and memory.step % (WORD // nbytes) == width % (WORD // nbytes) == 0
        together = WORD // nbytes if words else 1  # columns that a thread stores at once
        type_ = ir.IntegerType.get_signless(8 * together * nbytes)
        lane, first = self.boxes.lane, device.add(self.boxes.first_row, device.mul(self.boxes.warp, WARP_ROWS))
        box = device.add(self.box(number), device.mul(self.boxes.warp, WARP_ROWS * BOX_ROW))
        own = device.value(device.mul(lane, together))
        before = number * BOX_ROW // nbytes  # columns of other boxes
        for part in range(0, min(BOX_ROW // nbytes, columns - before), warps.WARP * together):
            local = device.value(device.add(own, before + part))
            column = device.value(device.add(local, start))
            place = device.value(device.mul(device.add(own, part), nbytes))
            inside = arith.andi(device.less(local, columns), device.less(column, width))
            with device.when(inside):
                _copy_column(type_, (box, place), memory, first, column, valid)

    def write(self, tile: Fragment, box: int) -> None:
        """Puts columns of the tile into its box."""
        self.boxes.write_whole(self.box(box), tile, box)

    def _depart(self, map_: int, tile: Fragment, box: int, place: Int, at: tuple[Int, ...]) -> None:
        """Sends a box that all have written, and that lies at that place."""
        tma.fence()
        warps.barrier(self.boxes.barrier, THREADS)
        column = device.add(at[0], box * BOX_ROW // element_bytes(tile.element))
        tma.store(tma.map_pointer(self.maps, map_), (column, *at[1:]), place, self.boxes.leader)
        tma.commit()

    def free(self) -> None:
        """Before warps write boxes for themselves: what left from them has been read."""
        with device.when(self.boxes.leader):
            tma.wait_read(0)
        warps.barrier(self.boxes.barrier, THREADS)

    def box(self, number: int) -> Int:
        """Where box `number` of a tile lies."""
        return device.add(self._place, number % self.many * BOX_BYTES)

    @property
    def _place(self) -> Int:
        return device.add(warps.here(self.start), device.mul(warps.consumer(), self.many * BOX_BYTES))

    def finish(self) -> None:
        """Before the kernel ends: shared memory lives until all boxes are read."""
        with device.when(self.boxes.leader):
            tma.wait_read(0)


def _load_word(type_: ir.Type, source: tuple[Int, ir.Value], row: Int) -> ir.Value:
    """A word of a box at `source`, its place and that of the word in its first row, in a row further on."""
    swizzled = arith.xori(source[1], device.value(device.mul(device.mod(row, BLOCK), SWIZZLED)))
    at = device.add(source[0], device.add(swizzled, device.mul(row, BOX_ROW)))
    return device.load(device.shared(at), type_)


def _store_word(word: ir.Value, memory: Memory, row: Int, column: ir.Value) -> None:
    at = memory.place(device.value(row), column)
    device.store(word, at, align=ir.IntegerType(word.type).width // 8)


def _copy_column(
    type_: ir.Type, source: tuple[Int, ir.Value], memory: Memory, first: Int, column: ir.Value, valid: ir.Value
) -> None:
    """Stores a warp's rows of one word from a box at `source`, its place and that of the word in its first row, to rows
    `first` and on of a tensor of which `valid` exist. One condition for all rows where they all do: LLVM takes minutes
    for a branch each where tiles are wide."""

    def one(row: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        _store_word(_load_word(type_, source, row), memory, device.add(first, row), column)
        return []

    def all_rows() -> None:
        for row, word in enumerate([_load_word(type_, source, row) for row in range(WARP_ROWS)]):
            _store_word(word, memory, device.add(first, row), column)

    have_all = device.less(device.add(first, WARP_ROWS - 1), valid)
    device.either(have_all, all_rows, lambda: device.loop(0, device.sub(valid, first), 1, one))
