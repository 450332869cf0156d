"""Tiles of a chain that wait in shared memory for a later product (chains/stash.py says which): each chunk of
columns is a slot of a ring that is each copy's own, opened when the tile is made and released behind the last product
that reads it. Tiles whose lives do not meet take the slots of one ring, one tile's after another's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kitsune_mlir.chains.operands import row_bytes
from kitsune_mlir.chains.program import Program
from kitsune_mlir.chains.steps import steps
from kitsune_mlir.codegen.hopper.stores import boxes_of
from kitsune_mlir.mlir import ir


@dataclass
class Stowed:
    """A tile in slots, chunk by chunk, that so many operands of products are still to read. `tokens` are those of the
    products that have read each chunk."""

    slots: list[ir.Value]
    readers: int
    tokens: list[list[ir.Value]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = [[] for _ in self.slots]


def slots_of_stows(program: Program) -> dict[int, int]:
    """The slots of each ring, by the number that `program.stashes` gives its tiles."""
    found: dict[int, int] = {}
    for block in program.blocks:
        for nest in block.nests:
            if (first := program.stashes.get(hash(nest.value))) is not None:
                found[first] = max(found.get(first, 0), boxes_of(row_bytes(nest.value), 1))
    return found


def read_later(program: Program) -> set[int]:
    """Keys of products of whose left operand something later reads a tile, too."""
    found, seen = set(), set[int]()
    for step in reversed(list(steps(program.blocks))):
        operands = step.operands()
        if operands and step.nest.op is not None and not seen.isdisjoint(operands):
            found.add(hash(step.nest.op.results[0]))
        seen.update(step.reads())
    return found


def readers_of(program: Program) -> Counter[int]:
    """How many operands of products a tile is, by its key."""
    return Counter(key for step in steps(program.blocks) for key in step.operands())
