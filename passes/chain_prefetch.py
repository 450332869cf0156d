"""Rows that a chain's tiles take out of tables, asked for while the CTA works on the tile before.

    "kitsune.agent"() ({                                             // three warps beside the one that copies
      scf.for %t = %lo to %hi step %st {
        %s = "kitsune.acquire"(%turn)                                // the tile before has begun
        %n = "kitsune.read"(%senders, %row) : tensor<128xi64>
        "kitsune.prefetch"(%s, %nodes, %n, %row, %count)
        "kitsune.commit"(%s) } }) {sym_name = "ask"}
    "kitsune.agent"() ({
      scf.for %t = %lo to %hi step %st {
        %s = "kitsune.wait"(%turn)                                   // this tile's rows are asked for
        "kitsune.release"(%s)                                        // so may the next one's be
        ...

A warpgroup waits for the numbers of a tile's rows, then for the rows. It finds the first in the SM's cache then, and
the rows in L2.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import Gather, gather_of
from kitsune_mlir.chains.operands import is_in_stage, is_loaded
from kitsune_mlir.chains.program import Program
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.prefetch import PrefetchOp
from kitsune_mlir.generics import clone_operations, constant_index, generic
from kitsune_mlir.mlir import arith, ir, tensor
from kitsune_mlir.row_cloner import RowCloner

from .kernel_build import read_box

LEAST_BYTES = 64  # of a row: fewer are not worth a request
MOST_COLUMNS = 192  # of a product: the sums of more take all registers, and those who ask have some of them


def gathers_of(program: Program) -> list[Gather]:
    """Those of a program whose rows are asked for ahead: where its products leave registers to who asks, rows that a
    request may name."""
    if not leaves_registers(program):
        return []
    known = {hash(value) for number, value in enumerate(program.tensors) if number not in program.padded}
    stages = [block.stage for block in program.blocks if len(block.stages) == 1]
    ops = [op.operation for stage in stages for op in stage.block.operations if op.operation.name == "linalg.generic"]
    found = [gather for op in ops if (gather := gather_of(op)) is not None and hash(gather.table) in known]
    return [gather for gather in found if gather.row_bytes >= LEAST_BYTES and _is_known(gather)]


def leaves_registers(program: Program) -> bool:
    """Whether a program's products leave registers to who reads beside them."""
    return all(product.n <= MOST_COLUMNS for product in program.products)


def _is_known(gather: Gather) -> bool:
    """Whether the number of a row depends on the row alone, and on what is loaded."""
    inputs = [gather.op.operands[i] for i in gather.inputs]
    return gather.is_of_rows and all(is_loaded(value) for value in inputs if is_in_stage(value))


def prefetch(gather: Gather, slot: ir.Value, first: ir.Value, count: ir.Value, tile_rows: int) -> None:
    """Asks for a tile's rows, of which the first is number `first` of `count`."""
    PrefetchOp(slot, gather.table, numbers_of(gather, first, tile_rows), first, count)


def numbers_of(gather: Gather, first: ir.Value, tile_rows: int) -> ir.Value:
    """The numbers of the rows of a table that a tile of so many rows takes, whose first row is number `first`."""
    cloner, own, computed = RowCloner(tile_rows), gather.inputs, gather.computed
    inputs = [_tile(gather.op.operands[i], first, cloner) for i in own]
    if inputs and not computed and list(inputs[0].type.shape) == [tile_rows]:
        return inputs[0]
    s, i64, number = rows.Structured(gather.op), ir.IntegerType.get_signless(64), gather.number
    maps = [ir.AffineMap.get(1, 0, list(s.maps[i].results)) for i in own]
    start = tensor.empty([tile_rows], i64)

    def body(*given: ir.Value) -> ir.Value:
        values = {s.body.arguments[i]: argument for i, argument in zip(own, given)}
        clone_operations(computed, values)
        return _cast(values.get(number, number), i64)

    return generic(inputs, [start], [*maps, ir.AffineMap.get_identity(1)], ["parallel"], body).results[0]


def _tile(value: ir.Value, first: ir.Value, cloner: RowCloner) -> ir.Value:
    """A tile of what the stage loads or computes of that, or all of what it does not."""
    op, kind = rows.producer(value), ir.RankedTensorType(value.type)
    if is_in_stage(value) and op is not None and op.name != kitsune.LoadOp.OPERATION_NAME:
        for operand in op.operands:
            if rows.is_tensor(operand) and rows.init_of(operand).tensor is not None:
                cloner[operand] = _tile(operand, first, cloner)
        cloner.clone(op, 1)
        return cloner[value]
    whole, type_ = (op.operands[0], cloner.type_of(kind)) if is_in_stage(value) else (value, kind)
    at = [first if is_in_stage(value) and not dim else constant_index(0) for dim in range(kind.rank)]
    return read_box(whole, at, type_.shape)


def _cast(number: ir.Value, type_: ir.Type) -> ir.Value:
    if number.type == type_:
        return number
    return arith.index_cast(type_, number) if isinstance(number.type, ir.IndexType) else arith.extsi(type_, number)
