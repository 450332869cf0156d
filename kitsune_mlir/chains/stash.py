"""Held tiles that wait in shared memory for a later product, so that they take no registers meanwhile.

A skip connection's tile, or one that several products read, is written once into swizzled boxes of the warpgroup's
own, from where products read it. So is a tile too wide to be held beside the sums of the next product: all such tiles
take the same boxes, one product's after another's.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.hopper.stores import boxes_of
from kitsune_mlir.codegen.pipeline.nests import PRODUCT, REDUCTION
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import users_of

from .operands import is_held, is_multiplied, row_bytes
from .steps import steps

MOST_BYTES = 256  # of a tile's row; wider ones are better kept where the next product wants them
WIDE_BYTES = 512  # beyond so many a tile and the next product's sums do not both fit registers


def choose(blocks: Sequence, pieces: int) -> dict[int, int]:
    """Which tiles of a program wait in shared memory: the number of the first box by the value's key. Those that
    products alone read, and not just the next one; what goes round a loop of equal stages stays in registers. And
    wide ones that the next product alone reads; of f32 in two `pieces`, whose products take more registers, half as
    wide."""
    order: list[list[int]] = []  # of products: the tiles read
    made: dict[int, tuple[int, ir.Value]] = {}  # tile -> products before it, value
    loops: set[tuple[int, int]] = set()  # of equal stages: the tile that the first takes, and that which each leaves
    for step in steps(blocks):
        if step.nest.kind == PRODUCT:
            order.append(step.operands())
        if step.nest.kind != REDUCTION and is_held(step.nest):
            made[hash(step.nest.value)] = len(order), step.nest.value
        if len(step.block.stages) > 1:
            loops |= {(got, hash(step.block.stage.puts[0].operands[1])) for got in step.got.values()}
    found: dict[int, int] = {}
    wide: dict[int, int] = {}
    taken: dict[int, int] = {}  # boxes of wide tiles, by the product that reads them
    box = 0
    for key, (before, value) in made.items():
        readers = [number for number, read in enumerate(order) if key in read]
        nbytes, boxes = row_bytes(value), boxes_of(row_bytes(value), 1)
        if not is_multiplied(value.type.element_type) or not _only_products_read(value):
            continue
        most = WIDE_BYTES // pieces if value.type.element_type.width == 32 else WIDE_BYTES
        if nbytes > most and readers == [before]:
            wide[key] = taken.get(before, 0)
            taken[before] = wide[key] + boxes
        elif nbytes <= MOST_BYTES and readers and readers != [before] and not any(key in ends for ends in loops):
            found[key] = box
            box += boxes
    for taken_up, left in loops:  # in the same boxes, or neither in any
        if (taken_up in wide) != (left in wide):
            wide.pop(taken_up, None)
            wide.pop(left, None)
    return found | {key: box + at for key, at in wide.items()}


def _only_products_read(value: ir.Value) -> bool:
    """Whether a tile is an operand of products alone, here or in other stages. One that it is a part of, and that is
    handed on, is made of it."""
    for use in value.uses:
        op = use.owner.operation
        if op.name == kitsune.PutOp.OPERATION_NAME:
            taken = users_of(op.operands[0])
            if not all(_only_products_read(get.results[0]) for get in taken if get != op):
                return False
        elif not _is_operand(op):
            return False
    return True


def _is_operand(op: ir.Operation) -> bool:
    """Whether an operation takes a tile as a product's operand, or puts it beside others to be one."""
    if op.name == "tensor.concat":
        return all(_is_operand(use.owner.operation) for use in op.results[0].uses)
    return op.name in ("linalg.matmul", "tensor.dim")
