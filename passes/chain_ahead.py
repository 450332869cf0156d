"""Rows of tensors that a chain's threads load long before they use them: a warpgroup that waits for memory issues
nothing else.

What the stages before a chain's first product read, and its operand where that is loaded into registers as it is, is
loaded a tile ahead, and goes round the loop over tiles in registers. What a product's epilogue reads is loaded beside
the product. Loads stand where a product is issued and not waited for: it takes a while until many are under way.

Where rows leave for those of a table before a stage reads more, or gathers more, half of that, as far as registers hold
it, is loaded in front of what brings them there, which takes a while, and the rest behind that, before the first of it
is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import gather_of
from kitsune_mlir.chains.operands import is_gathered, is_only_operand, is_streamed
from kitsune_mlir.chains.pressure import REGISTERS, pressures, registers_of
from kitsune_mlir.chains.program import Block, Program
from kitsune_mlir.codegen.hopper.fragments import WIDE, is_packed
from kitsune_mlir.codegen.hopper.wgmma import ROWS
from kitsune_mlir.codegen.pipeline.nests import PRODUCT
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.operations import element_type, operations_of, users_of
from kitsune_mlir.row_cloner import RowCloner

from .chain_deferred import defers
from .chain_tiles import beside, part
from .kernel_build import read_box

Source: TypeAlias = kitsune.LoadOp | ir.Operation  # of rows: a load, or a gather
_LEAVING = 56  # registers of a thread that rows take which leave by number, beside their tile


class Ahead:
    """What a chain loads ahead of whose tiles a CTA has so many: `tiles` are loaded a tile ahead, `_beside` beside the
    product of this key, `_around` what has rows leave in these stages, by their blocks. `next` are those of the tile
    behind the one that is worked on, as far as they were loaded."""

    def __init__(self, program: Program, tiles_each: float):
        self.tiles: list[kitsune.LoadOp] = []
        self._beside: dict[int, list[kitsune.LoadOp]] = {}
        self._around: dict[int, list[Source]] = {}
        self._cluster = program.cluster
        self._here: Sequence[ir.Value] = ()
        self.next: list[ir.Value] = []
        at_once = all(product.passes == product.segments[0].pieces == 1 for product in program.products)
        if not at_once:
            return
        self._load_around(program)
        if program.cluster > 1:
            return
        pressure: dict[int, int] = {}
        for step, registers in pressures(program):
            pressure[id(step.block)] = max(pressure.get(id(step.block), 0), registers)
        room = REGISTERS - max(pressure.values())
        for block in _before_products(program) if tiles_each > 1 else ():
            self.tiles += (found := _fitting(block, room))
            room -= _registers(found)
        if tiles_each > 1:
            self.tiles += _operands(program, room)
        for block in program.blocks:
            for nest in block.nests if len(block.products) == 1 else ():
                if nest.op is not None and nest.kind == PRODUCT and not defers(nest, *block.products.values()):
                    room = REGISTERS - pressure[id(block)] - _registers(self.tiles)
                    self._beside[hash(nest.op.results[0])] = _fitting(block, room, nest.op)

    def _load_around(self, program: Program) -> None:
        """Finds what stages read behind a product whose rows leave by number: as much as registers hold beside its
        tile, half of that beside what such rows take."""
        for block in program.blocks if program.moves_rows else ():
            products = [nest.op for nest in block.nests if nest.kind == PRODUCT and nest.op is not None]
            stores = (store for nest in block.nests for store in nest.stores)
            if len(products) == len(block.stages) == 1 and any(not isinstance(s, kitsune.StoreOp) for s in stores):
                (product,) = block.products.values()
                room = min(
                    REGISTERS - product.pass_columns // 2, 2 * (REGISTERS - _LEAVING - product.pass_columns // 2)
                )
                gathers = [op.operation for op in block.stage.block.operations if _is_gathered_here(op.operation)]
                found = _fitting(block, room, products[0], program.cluster, gathers)
                self._around[id(block)] = [load for load in found if _is_whole(load, 2 * program.cluster)]

    def load(self, number: ir.Value, end: ir.Value, row: Callable[[ir.Value], ir.Value]) -> list[ir.Value]:
        """What goes round the loop over tiles, of the tile of a number, whose first row `row` gives; of the last tile
        where that is `end` or more."""
        if not self.tiles:
            return []
        first = row(arith.minui(number, arith.subi(end, constant_index(1))))
        return [_rows(load, first) for load in self.tiles]

    def begin(self, here: Sequence[ir.Value], load_next: Callable[[], list[ir.Value]]) -> None:
        """A tile begins, of which that goes round."""
        self._here, self.next, self._load_next, self._is_used = here, [], load_next, False

    def ended(self) -> list[ir.Value]:
        """The tile has ended: what goes round, which is loaded now where it was not before."""
        self.next = self.next or self._load_next()
        return self.next

    def take_up(self, cloner: RowCloner) -> None:
        """What was loaded a tile ahead is known."""
        for load, tile in zip(self.tiles, self._here, strict=True):
            cloner[load.results[0]] = tile

    def leave(self, block: Block) -> None:
        """Behind the stage of a block: where all that goes round has been used, the next tile's may be loaded."""
        self._is_used = self._is_used or bool(self.tiles) and self.tiles[-1] in block.stage.loads

    def around(self, block: Block, cloner: RowCloner) -> list[Source]:
        """What is to be loaded around what has a stage's rows leave, and is not there."""
        return [load for load in self._around.pop(id(block), []) if hash(load.results[0]) not in cloner.values]

    def leaves(
        self,
        loads: Sequence[Source],
        cloner: RowCloner,
        row: ir.Value,
        first: Callable[[int], ir.Value],
        value: Callable[[ir.Value], ir.Value],
    ) -> Callable[[], None]:
        """Rows of a tile are to leave, of which a CTA has so many columns each from `first` on. What is given says that
        they have. `value` is the tile that a warpgroup computes of what is gathered."""
        tiles = [None if isinstance(load, kitsune.LoadOp) else value(load.results[0]) for load in loads]

        def half(load: Source, tile: ir.Value | None, number: int) -> ir.Value:
            if tile is None:
                return self._half(load, row, first, number)
            width = rows.shape_of(tile)[1]
            count = max(WIDE, width // 2 - WIDE)  # the numbers of its rows, and their checks, take registers too
            return part(tile, count, width - count) if number else part(tile, 0, count)

        halves = [half(load, tile, 0) for load, tile in zip(loads, tiles, strict=True)]

        def left() -> None:
            for load, tile, loaded in zip(loads, tiles, halves, strict=True):
                cloner[load.results[0]] = beside([loaded, half(load, tile, 1)])

        return left

    def _half(self, load: kitsune.LoadOp, row: ir.Value, first: Callable[[int], ir.Value], number: int) -> ir.Value:
        """Half of the columns that a CTA has of a warpgroup's rows, loaded now."""
        width = rows.shape_of(load.results[0])[1] // self._cluster
        at = first(width) if self._cluster > 1 else constant_index(0)
        return _rows(load, row, arith.addi(at, constant_index(width // 2)) if number else at, 2 * self._cluster)

    def issued(self, product: ir.Operation, cloner: RowCloner, row: ir.Value, in_loop: bool) -> None:
        """A product is issued and not waited for: loads what its epilogue reads, and, where it is in no loop over
        layers, the next tile's. Before it would be issued, the warps would wait until the loads are."""
        for load in self._beside.pop(hash(product.results[0]), ()):
            cloner[load.results[0]] = _rows(load, row)
        if self._is_used and not self.next and not in_loop:
            self.next = self._load_next()


def _rows(load: kitsune.LoadOp, row: ir.Value, first: ir.Value | None = None, parts: int = 1) -> ir.Value:
    """A warpgroup's rows of a tensor, loaded now; of so many parts of the columns the one that begins at `first`."""
    kind = ir.RankedTensorType(load.results[0].type)
    at = [row, constant_index(0) if first is None else first]
    return read_box(load.operands[0], at, [ROWS, kind.shape[1] // parts], [0, 1], ["ahead", "together"])


def _before_products(program: Program) -> list[Block]:
    """The blocks of a chain before the first that multiplies, each a stage of its own."""
    found: list[Block] = []
    for block in program.blocks:
        if block.products or len(block.stages) > 1:
            break
        found.append(block)
    return found


def _operands(program: Program, room: int) -> list[kitsune.LoadOp]:
    """Of a chain's first product, a stage of its own, the operand that is loaded as it is, into registers: so many hold
    it while others are multiplied, one of which, in no loop, it is loaded beside."""
    first, *others = [block for block in program.blocks if block.products]
    beside_any = any(len(block.stages) == 1 for block in others)
    if len(first.stages) > 1 or len(first.products) > 1 or not beside_any:
        return []
    (product,) = first.products.values()
    return [
        load
        for load in first.stage.loads
        if load.results[0] == product.op.operands[0]
        and is_only_operand(load.results[0])
        and is_packed(element_type(load.results[0]))
        and not is_streamed(load.results[0])
        and _is_whole(load, 1)
        and _registers([load]) <= room
    ]


def _is_gathered_here(op: ir.Operation) -> bool:
    """Whether an operator takes rows out of a table as they are, which do not come through shared memory."""
    gather = gather_of(op)
    return gather is not None and gather.may_stream and not is_gathered(op.results[0])


def _fitting(
    block: Block,
    room: int,
    product: ir.Operation | None = None,
    parts: int = 1,
    gathers: Sequence[ir.Operation] = (),
) -> list[Source]:
    """Loads of a stage, and these gathers, of which so many registers hold one of `parts` of the columns, all of whose
    elements are used in their own places; those that are used behind a product."""
    order, found = operations_of(block.stage.block), list[Source]()
    behind = order if product is None else order[order.index(product) + 1 :]
    for load in [*block.stage.loads, *gathers]:
        if not _is_whole(load, parts):
            continue
        users = users_of(load.results[0])
        if not all(op in behind and _is_elementwise(op, load.results[0]) for op in users if op.name != "tensor.dim"):
            continue
        if hash(load.results[0]) in block.columns.elsewhere:
            continue
        if _registers([*found, load]) // parts <= room:
            found.append(load)
    return found


def _registers(loads: Sequence[Source]) -> int:
    """What a thread holds of rows."""
    return sum(registers_of(load.results[0]) for load in loads)


def _is_whole(load: Source, parts: int) -> bool:
    """Whether threads load rows, or so many parts of them, in words: of 16-bit elements 16 bytes together, of f32
    pairs."""
    kind = ir.RankedTensorType(load.results[0].type)
    words = is_packed(kind.element_type) or isinstance(kind.element_type, ir.F32Type)
    return words and kind.rank == 2 and not kind.is_dynamic_dim(1) and kind.shape[1] % (WIDE * parts) == 0


def _is_elementwise(op: ir.Operation, value: ir.Value) -> bool:
    """Whether an operation uses elements of a tile in their own places."""
    if op.name != "linalg.generic":
        return False
    s = rows.Structured(op)
    maps = [map_ for operand, map_ in zip(op.operands, s.maps) if operand == value]
    return all(map_ == ir.AffineMap.get_identity(2) for map_ in maps) and not s.gathers()
