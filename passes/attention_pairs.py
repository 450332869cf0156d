"""Which products are those of an attention: of two that nobody's weights are operands of, the second multiplies
exponentials of what the first gives. They are one kernel (schedule_attention.py), not stages of a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import end_of
from kitsune_mlir.weights import is_weight

from .softmax_rows import EXPONENTIALS

MOST_COLUMNS = 256  # of queries, and of values, that such a kernel holds
_MOST = 64  # operators between the products


def attention_products(ops: Iterable[ir.Operation]) -> list[ir.Operation]:
    """Of plain products, those. Batches of products are in no pipeline as it is."""
    products = [op for op in ops if op.name == "linalg.matmul" and not is_weight(op.operands[1])]
    found: list[ir.Operation] = []
    for second in products:
        first = _scores(second)
        if first is not None and first in products and rows.shape_of(second.results[0])[1] <= MOST_COLUMNS:
            if rows.shape_of(first.operands[0])[1] <= MOST_COLUMNS:
                found += [first, second]
    return found


def _scores(product: ir.Operation) -> ir.Operation | None:
    """The product of which a product's left operand has exponentials over their sums, row by row; None where there is
    none."""
    waiting, seen, has_sums = [product.operands[0]], list[ir.Operation](), False
    found = None
    while waiting and len(seen) < _MOST:
        op = rows.producer(waiting.pop())
        if op is None or op in seen:
            continue
        seen.append(op)
        if op.name == "linalg.matmul":
            found = op
        elif op.name == "linalg.generic":
            s = rows.Structured(op)
            has_sums = has_sums or ("reduction" in s.iterators and _gives_exponentials(op.operands[0]))
            waiting += s.given
        elif op.name in rows.RESHAPES:
            waiting.append(op.operands[0])
    return found if has_sums else None


def _gives_exponentials(value: ir.Value) -> bool:
    """Whether the elements of a tensor are exponentials, perhaps rounded."""
    op = rows.producer(value)
    while op is not None and op.name in rows.RESHAPES:
        op = rows.producer(op.operands[0])
    if op is None or op.name != "linalg.generic":
        return False
    block = op.regions[0].blocks[0]
    given = end_of(block).operands[0]
    while (made := rows.producer(given)) is not None and made.name in ("arith.truncf", "arith.extf"):
        given = made.operands[0]
    if made is not None:
        return made.name in EXPONENTIALS
    arguments = list(block.arguments)
    return given in arguments and _gives_exponentials(op.operands[arguments.index(given)])
