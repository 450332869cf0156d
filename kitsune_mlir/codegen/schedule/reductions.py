"""Reductions along the rows of tiles in registers: a thread's part, in a few sums. A thread has 64 columns of a row at
most, and its sums and those of other threads are added in a tree: no sum of f32 is of more than 16 numbers one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.gpu_reduction import Combiner, combiners
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir, location
from kitsune_mlir.rows import Structured

SUMS = 4


def row_combiner(s: Structured) -> Combiner:
    """How a linalg.generic along rows joins elements. Raises UnsupportedError for one that has no code."""
    combine = combiners(s.body, s.inputs)
    if s.iterators != ["parallel", "reduction"] or combine is None or len(combine) != 1:
        raise UnsupportedError(f"{location(s.op.location)}: a reduction that is not one of 32-bit numbers along rows")
    return combine[0]


def own_part(
    evaluator: Evaluator,
    s: Structured,
    combine: Combiner,
    row: ir.Value,
    columns: Sequence[tuple[Int, ir.Value | None]],
) -> ir.Value:
    """A thread's columns of a row, joined; beside each whether (i1) the row has it, None where it does."""
    sums: list[ir.Value] = [combine.neutral()] * min(SUMS, len(columns))
    for number, (column, inside) in enumerate(columns):
        before = sums[number % SUMS]
        (x,) = evaluator.body(s, [row, column], {0: before})
        sums[number % SUMS] = x if inside is None else arith.select(inside, x, before)
    while len(sums) > 1:
        sums = [combine.join(*sums[i : i + 2]) if i + 1 < len(sums) else sums[i] for i in range(0, len(sums), 2)]
    return sums[0]
