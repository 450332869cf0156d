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

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.codegen.pipeline.memory import Memory, element_of, shape_of
from kitsune_mlir.mlir import arith, ir

from . import gathers, mbarrier, waits, warps, wgmma
from .gathers import Gather
from .layout import VECTORS_AT
from .operands import is_in_stage, is_loaded
from .program import Program

THREADS = wgmma.THREADS - warps.WARP  # all of the producer's warpgroup but the warp of the one that copies
_BEGUN, _FETCHED = VECTORS_AT - 2 * mbarrier.BYTES, VECTORS_AT - 3 * mbarrier.BYTES  # beside the vectors' own barrier


def gathers_of(program: Program) -> list[Gather]:
    """Those of a program whose rows are asked for ahead."""
    if program.cluster * program.multicast > 1:
        return []  # warpgroups of a cluster have no registers to give
    return [gather for gather in gathers.gathers_of(program) if _is_of_loaded(gather.op)]


def _is_of_loaded(op: ir.Operation) -> bool:
    """Whether all tiles that an operator takes come from memory."""
    operands = list(op.operands)[: rows.Structured(op).inputs]
    return all(is_loaded(value) for value in operands if rows.is_tensor(value) and is_in_stage(value))


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
    asked: list[Gather],
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
        for gather in asked:
            with gather.op.location:
                places.append(_address(gather, number, _memories(gather, pointers, start, valid)))
        for gather, place in zip(asked, places):  # all numbers are on their way together
            text = "cp.async.bulk.prefetch.L2.global [$0], $1;"
            device.assembly(text, "l,r,~{memory}", [place, device.value(gather.row_bytes)], None)
        return []

    device.loop(thread, device.least(valid, tile_rows), THREADS, row)
    warps.sync()
    mbarrier.arrive(device.add(base, _FETCHED), device.equal(device.mod(warps.thread(), warps.WARP), 0))


def _memories(gather: Gather, pointers: dict[int, ir.Value], start: ir.Value, valid: Int) -> dict[int, Memory]:
    """Where what a stage loads is, from the tile's first row on, and the tables."""
    found: dict[int, Memory] = {}
    stage = gather.op.parent.opview
    for load in stage.loads:
        whole, tile = load.operands[0], load.results[0]
        stride = prod(shape_of(tile)[1:])
        far = arith.muli(start, arith.constant(start.type, stride))
        at = device.offset(pointers[hash(whole)], far, element_of(tile))
        found[hash(tile)] = Memory(at, element_of(tile), shape_of(tile), stride, device.value(valid))
    for value in stage.residents:
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
