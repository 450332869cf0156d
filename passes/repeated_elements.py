"""What several operators read, one of which sums it, is computed by each of them where that moves fewer bytes.

    %c = linalg.generic ins(%x : bf16, %mean) -> f32           %s = linalg.generic {... "reduction"} ins(%x, %mean)
    %s = linalg.generic {... "reduction"} ins(%c)       =>     %y = linalg.generic ins(%x, %mean, %s)
    %y = linalg.generic ins(%c, %s)

So it is with norms of rows that no CTA holds: numbers without their mean are not written to be read again. MLIR's
fusion takes what one operator reads; what elementwise operators alone read is of one kernel with them
(shared_elements.py).
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.traffic import tensor_bytes


def repeat_elements(main: ir.Operation) -> bool:
    """Gives the readers of such operators of @main one each; whether there were any."""
    found = False
    for op in walk(main, "linalg.generic"):
        readers = list(op.results[0].uses) if len(op.results) == 1 else []
        if len(readers) > 1 and _is_cheap(op, len(readers)) and _are_fused(readers):
            for use in readers:
                with ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = op.clone().results[0]
            op.erase()
            found = True
    return found


def _is_cheap(op: ir.Operation, readers: int) -> bool:
    """Whether an operator is elementwise arithmetic whose operands are read by so many others sooner than it, and what
    it gives by them."""
    s = rows.Structured(op)
    plain = all(one.operation.name.startswith(("arith.", "linalg.yield")) for one in s.body.operations)
    if not s.is_elementwise() or not plain or list(s.body.arguments[s.inputs].uses):
        return False
    read = sum(tensor_bytes(value) for value in list(op.operands)[: s.inputs] if rows.is_tensor(value))
    return (readers - 1) * read <= (readers + 1) * tensor_bytes(op.results[0])


def _are_fused(readers: list[ir.OpOperand]) -> bool:
    """Whether operators, each once, are such that what they read can be put into them, and one of them sums it."""
    owners = [use.owner.operation for use in readers]
    if len(set(owners)) < len(owners) or any(op.name != "linalg.generic" for op in owners):
        return False
    read = [rows.Structured(op) for op in owners]
    inputs = all(use.operand_number < s.inputs for use, s in zip(readers, read, strict=True))
    return inputs and any("reduction" in s.iterators for s in read)
