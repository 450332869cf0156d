"""Operators of a chain that take whole rows out of tables, which warps may ask for a tile ahead."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.mlir import ir
from kitsune_mlir.traffic import element_bytes

from .program import Program

LEAST_BYTES = 64  # of a row: fewer are not worth a request
MOST_COLUMNS = 192  # of a product: the sums of more take all registers, and those who ask have some of them
_UNIT = 16  # bytes that a request is a multiple of


@dataclass(frozen=True)
class Gather:
    """An operator of a stage that takes whole rows out of a table, by an extract in its body."""

    op: ir.Operation
    extract: ir.Operation

    @property
    def table(self) -> ir.Value:
        return self.extract.operands[0]

    @property
    def row_bytes(self) -> int:
        return prod(shape_of(self.table)[1:]) * element_bytes(element_of(self.table))


def gathers_of(program: Program) -> list[Gather]:
    """Those of a program whose rows a request may name, where its products leave registers to who asks."""
    if any(product.n > MOST_COLUMNS for product in program.products):
        return []
    known = {hash(value) for number, value in enumerate(program.tensors) if number not in program.padded}
    stages = [block.stage for block in program.blocks if len(block.stages) == 1]
    ops = [op.operation for stage in stages for op in stage.block.operations if op.operation.name == "linalg.generic"]
    return [gather for op in ops if (gather := _gather(op)) is not None and hash(gather.table) in known]


def _gather(op: ir.Operation) -> Gather | None:
    s = rows.Structured(op)
    extracts = [one.operation for one in s.body.operations if one.operation.name == "tensor.extract"]
    if len(extracts) != 1 or s.iterators != ["parallel"] * 2 or len(op.results) != 1:
        return None
    gather = Gather(op, extracts[0])
    table, column = gather.table, rows.producer(gather.extract.operands[-1])
    whole = column is not None and column.name == "linalg.index" and ir.IntegerAttr(column.attributes["dim"]).value == 1
    if not whole or len(shape_of(table)) != 2 or shape_of(table)[1] != shape_of(op.results[0])[1]:
        return None
    return gather if gather.row_bytes >= LEAST_BYTES and gather.row_bytes % _UNIT == 0 else None
