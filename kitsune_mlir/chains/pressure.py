"""Whether the tiles and sums of a program fit the registers of its warpgroups."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from kitsune_mlir.codegen.hopper.fragments import is_packed
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import PRODUCT
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir

from .operands import is_held
from .product_plan import Product
from .steps import Step, steps

if TYPE_CHECKING:
    from .program import Program

REGISTERS = 216  # of a thread, for tiles and sums; the rest are addresses and counters
F32_WORDS = 16  # a thread's of a chunk


def check_pressure(program: Program) -> None:
    """Raises UnsupportedError when tiles and sums alive together are more than a thread's registers."""
    for _, held, sums in _alive(program):
        if held + sums > REGISTERS:
            raise UnsupportedError(
                f"{held} registers of tiles and {sums} of sums are more than a thread of a warpgroup has"
            )


def pressures(program: Program) -> list[tuple[Step, int]]:
    """The registers of a thread that tiles and sums have at each step."""
    return [(step, held + sums) for step, held, sums in _alive(program)]


def _alive(program: Program) -> Iterator[tuple[Step, int, int]]:
    """Each step, with a thread's registers of tiles and of sums."""
    born: dict[int, tuple[int, int]] = {}
    died: dict[int, int] = {}
    sums: dict[int, int] = {}
    every = list(steps(program.blocks))
    for step in every:
        nest = step.nest
        for key in step.reads():
            died[key] = step.number
        if nest.kind == PRODUCT and nest.op is not None:
            product = step.block.products[hash(nest.op.results[0])]
            sums[step.number] = product.pass_columns // 2 + _operand_registers(product)
        if program.holds(nest) and hash(nest.value) not in program.stashes:
            for value in nest.values:
                born[hash(value)] = step.number, registers_of(value) // program.cluster
        elif is_held(nest) and hash(nest.value) not in program.stashes:  # made anew for each product
            born[hash(nest.value)] = step.number, registers_of(nest.value)
    for step in every:
        at = step.number
        held = sum(size for key, (birth, size) in born.items() if birth < at <= died.get(key, birth))
        yield step, held, sums.get(at, 0)


def _operand_registers(product: Product) -> int:
    """Words that a thread makes of f32 elements: of a chunk that is multiplied and of one that is to be; in full
    precision two of each element of one chunk, whose sums are apart."""
    if product.nbytes == 2:
        return 0
    return F32_WORDS * 2 + (product.columns // 2 if product.segments[0].pieces > 1 else 0)


def registers_of(value: ir.Value) -> int:
    """The registers that one thread has of a tile of 64 rows."""
    width = prod(shape_of(value)[1:])
    return -(-width // 8) * (2 if is_packed(element_of(value)) else 4)
