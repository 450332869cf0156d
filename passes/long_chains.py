"""Elementwise operators that are so many in a row that they are not computed with a product, or streamed to one.

    %1 = linalg.generic ins(%0) ... %999 = linalg.generic ins(%998)

Each element that a thread has of a product's tile is computed by instructions of its own: a thousand operators are many
thousand instructions, for which ptxas takes minutes. By themselves they are loops (codegen/fused_loops.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir

MOST_IN_A_ROW = 100


def far_from_products(ops: Sequence[ir.Operation]) -> set[ir.Operation]:
    """Of the operators of a block, in order, the elementwise ones that are made of too many others in a row without a
    product between."""
    levels: dict[ir.Operation, tuple[int, int]] = {}  # products before it; elementwise operators since the last of them
    found = set[ir.Operation]()
    for op in ops:
        before = [levels[made] for value in op.operands if (made := rows.producer(value)) in levels]
        level = max((products for products, _ in before), default=0)
        row = 0
        if op.name == "linalg.generic" and rows.Structured(op).is_elementwise():
            row = 1 + max((count for products, count in before if products == level), default=0)
        elif op.name in rows.RESHAPES:
            row = max((count for products, count in before if products == level), default=0)
        levels[op] = level + op.name.endswith("matmul"), row
        if row > MOST_IN_A_ROW:
            found.add(op)
    return found
