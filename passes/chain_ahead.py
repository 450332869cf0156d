"""Rows of tensors that a chain's threads load long before they use them: a warpgroup that waits for memory issues
nothing else, and all that a tile's threads load themselves they would wait for.

What the stages before a chain's first product read is loaded a tile ahead, and goes round the loop over tiles in
registers. What a product's epilogue reads is loaded before the product. Both only as far as registers hold it.
"""

from __future__ import annotations

from collections.abc import Callable

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.fragments import WIDE, is_packed
from kitsune_mlir.codegen.hopper.pressure import REGISTERS, pressures, registers_of
from kitsune_mlir.codegen.hopper.program import Block, Program
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.mlir import ir

from .schedule_build import constant_index


class Ahead:
    """What is loaded ahead in a chain of whose tiles a CTA has so many: `tiles` a tile ahead, `beside` before a product,
    by the key of its result. `here` are the tile's own, which go round the loop, and `next` those of the next."""

    def __init__(self, program: Program, tiles_each: float):
        self.tiles: list[kitsune.LoadOp] = []
        self.beside: dict[int, list[kitsune.LoadOp]] = {}
        self.here: list[ir.Value] = []
        self.next: list[ir.Value] = []
        if program.cluster > 1 or any(product.passes > 1 for product in program.products):
            return
        pressure: dict[int, int] = {}
        for step, registers in pressures(program):
            pressure[id(step.block)] = max(pressure.get(id(step.block), 0), registers)
        room = REGISTERS - max(pressure.values())
        for block in _before_products(program) if tiles_each > 1 else ():
            room = _take(block, lambda user: True, room, self.tiles)
        taken = sum(registers_of(load.results[0]) for load in self.tiles)
        for block in program.blocks:
            if len(block.products) == 1:
                (product,) = block.products.values()
                behind = _behind(product.op)
                found = self.beside.setdefault(hash(product.op.results[0]), [])
                _take(block, behind, REGISTERS - taken - pressure[id(block)], found)

    def begin(self, here: list[ir.Value], read_next: Callable[[], list[ir.Value]]) -> None:
        """A tile begins."""
        self.here, self.next, self._read_next = here, [], read_next

    def leave(self, block: Block) -> None:
        """Behind the stage of a block: where all that goes round has been used, the next tile's is loaded."""
        if self.tiles and self.tiles[-1] in block.stage.loads:
            self.next = self._read_next()


def read_rows(load: kitsune.LoadOp, row: ir.Value, count: int) -> ir.Value:
    """So many whole rows of a tensor, loaded now."""
    kind = ir.RankedTensorType(load.results[0].type)
    type_ = ir.RankedTensorType.get([count, kind.shape[1]], kind.element_type)
    read = schedule.ReadOp(load.operands[0], [row, constant_index(0)], type_)
    read.attributes["dims"] = ir.DenseI64ArrayAttr.get([0, 1])
    read.attributes["ahead"] = read.attributes["together"] = ir.UnitAttr.get()
    return read.results[0]


def _before_products(program: Program) -> list[Block]:
    """The blocks of a chain before the first that multiplies, each a stage of its own."""
    found: list[Block] = []
    for block in program.blocks:
        if block.products or len(block.stages) > 1:
            break
        found.append(block)
    return found


def _take(
    block: Block, reads_it: Callable[[ir.Operation], bool], room: int, into: list[kitsune.LoadOp]
) -> int:
    """Takes loads of a stage all of whose users are such, as far as there is room; what room is left."""
    for load in block.stage.loads:
        users = [use.owner.operation for use in load.results[0].uses]
        users = [op for op in users if op.name != "tensor.dim"]
        if not _is_whole(load) or not all(_is_elementwise(op, load.results[0]) and reads_it(op) for op in users):
            continue
        if (count := registers_of(load.results[0])) <= room:
            into.append(load)
            room -= count
    return room


def _is_whole(load: kitsune.LoadOp) -> bool:
    """Whether threads load whole rows in words: of 16-bit elements 16 bytes together, of f32 pairs."""
    kind = ir.RankedTensorType(load.results[0].type)
    if kind.rank != 2 or kind.is_dynamic_dim(1):
        return False
    if is_packed(kind.element_type):
        return kind.shape[1] % WIDE == 0
    return isinstance(kind.element_type, ir.F32Type) and kind.shape[1] % WIDE == 0


def _is_elementwise(op: ir.Operation, value: ir.Value) -> bool:
    """Whether an operation uses elements of a tile in their own places."""
    if op.name != "linalg.generic":
        return False
    s = rows.Structured(op)
    maps = [map_ for operand, map_ in zip(op.operands, s.maps) if operand == value]
    return all(map_ == ir.AffineMap.get_identity(2) for map_ in maps) and not s.gathers()


def _behind(product: ir.Operation) -> Callable[[ir.Operation], bool]:
    """Whether an operation stands behind a product."""
    order = [op.operation for op in product.block.operations]
    behind = order[order.index(product) + 1 :]
    return lambda op: op in behind
