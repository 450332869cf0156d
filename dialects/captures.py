"""What regions that are not isolated use of their surroundings."""

from __future__ import annotations

from kitsune_mlir.mlir import ir, walk


def captures(op, skip: set[ir.Operation] = frozenset()) -> list[ir.Value]:
    """The values defined outside `op` that its regions use, in order of first use.

    Uses by the operations in `skip` do not count.
    """
    ops = walk(op)
    inside = {id_of(value) for inner in ops for value in inner.results}
    for inner in ops:
        for region in inner.regions:
            inside.update(id_of(argument) for block in region.blocks for argument in block.arguments)
    found: dict[int, ir.Value] = {}
    for inner in ops:
        if inner == op.operation or inner in skip:
            continue
        for value in inner.operands:
            if id_of(value) not in inside:
                found.setdefault(id_of(value), value)
    return list(found.values())


def id_of(value: ir.Value) -> int:
    """A key by which two Python handles of one SSA value are equal."""
    return hash(value)
