"""Which loops over equal stages hand on a tile that is still being worked on, and where they begin."""

from __future__ import annotations

from kitsune_mlir.codegen.pipeline.nests import PRODUCT

from .equal_stages import feeds_alike
from .operands import is_deferred, is_only_operand
from .product_plan import starts_from_zero
from .program import Block, Program


def rolls(block: Block, program: Program) -> bool:
    """Whether each of a block's equal stages begins while the tile of the one before is worked on: the stage is one
    product, whose tile is computed from its sums and residents."""
    only_operands = all(is_only_operand(get.results[0]) for get in block.stage.gets)
    return len(list(block.nests)) == 1 and only_operands and _leaves_unfinished(block, program)


def follows_alike(block: Block, program: Program) -> bool:
    """Whether the stage before a block that rolls leaves its tile as the block's own stages do, as if it were number -1
    of them, but for where vectors lie. Else the first of them stands before the loop, which takes up what that
    leaves."""
    index = program.blocks.index(block)
    if index == 0:
        return False
    before = program.blocks[index - 1]
    if len(before.stages) > 1 or len(before.products) > 1 or not _leaves_unfinished(before, program):
        return False
    first, second = (product for each in (before, block) for product in each.products.values())
    if (first.n, first.columns, first.sets) != (second.n, second.columns, second.sets):
        return False
    if not starts_from_zero(first.op) or not starts_from_zero(second.op):
        return False
    return feeds_alike(before.stage, block.stage)


def _leaves_unfinished(block: Block, program: Program) -> bool:
    """Whether a stage ends with a product whose tile is still worked on."""
    *_, nest = block.nests
    if nest.kind != PRODUCT or nest.op is None:
        return False
    product = block.products[hash(nest.op.results[0])]
    return product.sets > 1 and is_deferred(nest) and hash(nest.value) not in program.stashes
