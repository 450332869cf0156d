"""The nests of a program one after another, each with the tiles that it reads: those made in the same stage, and those
that came from an earlier one through a queue, by the key of the tile that was put."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kitsune_mlir.codegen.pipeline.nests import PRODUCT, Nest, kitsune_label
from kitsune_mlir.mlir import ir

from .operands import parts_of

if TYPE_CHECKING:
    from .program import Block


@dataclass(frozen=True)
class Step:
    """`number` counts nests; `got` gives the key of the tile that was put for that of a value got from a queue."""

    number: int
    block: Block
    nest: Nest
    got: dict[int, int]

    def tile(self, value: ir.Value) -> int:
        """The key of the tile that a value is."""
        return self.got.get(hash(value), hash(value))

    def operands(self) -> list[int]:
        """Keys of the tiles that a product's left operand is made of."""
        if self.nest.kind != PRODUCT or self.nest.op is None:
            return []
        return [self.tile(part) for part in parts_of(self.nest.op.operands[0])]

    def reads(self) -> set[int]:
        """Keys of all tiles that the nest reads."""
        leaves = self.block.nests.leaves(self.nest)
        return {self.got.get(key, key) for key in leaves} | set(self.operands())


def steps(blocks: Sequence[Block]) -> Iterator[Step]:
    """The steps of blocks; of equal stages the first one's, which all do. What another role puts has no key."""
    put: dict[str, int] = {}
    number = 0
    for block in blocks:
        got = {hash(get.results[0]): put.get(kitsune_label(get.operands[0]), 0) for get in block.stage.gets}
        for nest in block.nests:
            yield Step(number, block, nest, got)
            number += 1
        for last, first in zip(block.stages[-1].puts, block.stage.puts):
            put[kitsune_label(last.operands[0])] = hash(first.operands[1])
