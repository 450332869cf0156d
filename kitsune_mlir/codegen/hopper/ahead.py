"""Rows that a tile takes out of tables are asked for while the tile before is computed, by warps of the producer's
warpgroup that have nothing else to do.

A warpgroup loads the numbers of a tile's rows, then the rows, and waits for both where the tile begins. The numbers are
in the SM's cache by then, for these warps have loaded them, and the rows in L2 (PTX ISA, cp.async.bulk.prefetch.L2).

    consumers at a CTA's tile i:        wait for `fetched`, phase i - 1;  arrive at `begun`
    fetching warps, for i = 0, 1, ...:  wait for `begun`, phase i;  ask for the rows of tile i + 1;  arrive at `fetched`

Neither is more than a phase ahead of the other, so no phase is missed. The wait of tile 0 is for the phase before the
first, which counts as complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.memory import Memory, element_of, shape_of
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.traffic import element_bytes

from . import mbarrier, waits, warps, wgmma
from .layout import VECTORS_AT
from .operands import is_in_stage, is_loaded
from .program import Block, Program

THREADS = wgmma.THREADS - warps.WARP  # all of the producer's warpgroup but the warp of the one that copies
LEAST_BYTES = 64  # of a row: fewer are not worth a request
MOST_COLUMNS = 192  # of a product: the sums of more take all registers, and those who ask have some of them
_UNIT = 16  # bytes that a request is a multiple of
_BEGUN, _FETCHED = VECTORS_AT - 2 * mbarrier.BYTES, VECTORS_AT - 3 * mbarrier.BYTES  # beside the vectors' own barrier


@dataclass(frozen=True)
class Gather:
    """An operator of a block's stage that takes whole rows out of a table, by an extract in its body."""

    block: Block
    op: ir.Operation
    extract: ir.Operation

    @property
    def table(self) -> ir.Value:
        return self.extract.operands[0]

    @property
    def row_bytes(self) -> int:
        return prod(shape_of(self.table)[1:]) * element_bytes(element_of(self.table))


def gathers_of(program: Program) -> list[Gather]:
    """Those of a program whose rows are asked for ahead."""
    if program.cluster * program.multicast > 1:
        return []  # warpgroups of a cluster have no registers to give
    if any(product.n > MOST_COLUMNS for block in program.blocks for product in block.products.values()):
        return []
    known = {hash(value) for number, value in enumerate(program.tensors) if number not in program.padded}
    found = []
    for block in (block for block in program.blocks if len(block.stages) == 1):
        for op in (one.operation for one in block.stage.block.operations):
            gather = _gather(block, op) if op.name == "linalg.generic" else None
            if gather is not None and hash(gather.table) in known:
                found.append(gather)
    return found


def _gather(block: Block, op: ir.Operation) -> Gather | None:
    s = rows.Structured(op)
    extracts = [one.operation for one in s.body.operations if one.operation.name == "tensor.extract"]
    if len(extracts) != 1 or s.iterators != ["parallel"] * 2 or len(op.results) != 1:
        return None
    gather = Gather(block, op, extracts[0])
    table, column = gather.table, rows.producer(gather.extract.operands[-1])
    whole = column is not None and column.name == "linalg.index" and ir.IntegerAttr(column.attributes["dim"]).value == 1
    if not whole or len(shape_of(table)) != 2 or shape_of(table)[1] != shape_of(op.results[0])[1]:
        return None
    operands = [value for value in list(op.operands)[: s.inputs] if rows.is_tensor(value) and is_in_stage(value)]
    fits = gather.row_bytes >= LEAST_BYTES and gather.row_bytes % _UNIT == 0
    return gather if fits and all(is_loaded(value) for value in operands) else None


def init(base: ir.Value, consumers: int) -> None:
    """One thread, once: both barriers. `base` is the address of shared memory."""
    mbarrier.init(device.add(base, _BEGUN), consumers)
    mbarrier.init(device.add(base, _FETCHED), THREADS // warps.WARP)


def begin(base: ir.Value, parity: ir.Value, leader: ir.Value) -> None:
    """A consumer warpgroup's, where a tile begins whose number among the CTA's has this parity (i32)."""
    before = arith.xori(parity, device.value(1))
    waits.on_barrier(device.add(base, _FETCHED), before, "the rows of the next tile to be asked for")
    mbarrier.arrive(device.add(base, _BEGUN), leader)


def fetch(
    gathers: list[Gather],
    base: ir.Value,
    parity: ir.Value,
    pointers: dict[int, ir.Value],
    first_row: ir.Value,
    valid: Int,
    tile_rows: int,
) -> None:
    """The fetching warps', for the tile behind one whose number has this parity: it begins at a row (i32), of which so
    many rows exist. `pointers` say where tensors are, by their hash."""
    waits.on_barrier(device.add(base, _BEGUN), parity, "the tile before to begin")
    thread = device.sub(warps.thread(), warps.WARP)
    start = arith.extui(ir.IntegerType.get_signless(64), first_row)

    def row(number: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        places = []
        for gather in gathers:
            with gather.op.location:
                places.append(_address(gather, number, _memories(gather, pointers, start, valid)))
        for gather, place in zip(gathers, places):  # all numbers are on their way together
            text = "cp.async.bulk.prefetch.L2.global [$0], $1;"
            device.assembly(text, "l,r,~{memory}", [place, device.value(gather.row_bytes)], None)
        return []

    device.loop(thread, device.least(valid, tile_rows), THREADS, row)
    warps.sync()
    mbarrier.arrive(device.add(base, _FETCHED), device.equal(device.mod(warps.thread(), warps.WARP), 0))


def _memories(gather: Gather, pointers: dict[int, ir.Value], start: ir.Value, valid: Int) -> dict[int, Memory]:
    """Where what a stage loads is, from the tile's first row on, and the tables."""
    found: dict[int, Memory] = {}
    for load in gather.block.stage.loads:
        whole, tile = load.operands[0], load.results[0]
        stride = prod(shape_of(tile)[1:])
        far = arith.muli(start, arith.constant(start.type, stride))
        at = device.offset(pointers[hash(whole)], far, element_of(tile))
        found[hash(tile)] = Memory(at, element_of(tile), shape_of(tile), stride, device.value(valid))
    for value in gather.block.stage.residents:
        if hash(value) in pointers:
            shape = shape_of(value)
            stride = prod(shape[1:]) if len(shape) > 1 else prod(shape)
            found[hash(value)] = Memory(pointers[hash(value)], element_of(value), shape, stride)
    return found


class _Numbers(Evaluator):
    """Computes the number of a gather's row, and takes no row."""

    def __init__(self, memories: dict[int, Memory], gather: Gather):
        super().__init__(memories, nested=True)
        self._gather = gather
        self.row: ir.Value | None = None

    def _extracted(
        self, op: ir.Operation, values: dict[int, ir.Value], places: dict[int, Int], together: bool
    ) -> ir.Value:
        if op != self._gather.extract:
            return super()._extracted(op, values, places, together)
        self.row = index_checks.row_inside(op, 0, values[hash(op.operands[1])], reports=False)
        kind = op.results[0].type
        return arith.constant(kind, 0.0 if isinstance(kind, ir.FloatType) else 0)


def _address(gather: Gather, row: ir.Value, memories: dict[int, Memory]) -> ir.Value:
    """Where the row of the table begins that a row of the tile takes."""
    numbers = _Numbers(memories, gather)
    numbers.body(rows.Structured(gather.op), [row, 0])
    assert numbers.row is not None
    i64 = ir.IntegerType.get_signless(64)
    far = arith.muli(arith.index_cast(i64, numbers.row), arith.constant(i64, prod(shape_of(gather.table)[1:])))
    return device.offset(memories[hash(gather.table)].pointer, far, element_of(gather.table))
