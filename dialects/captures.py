"""What regions that are not isolated use of their surroundings."""

from __future__ import annotations

from kitsune_mlir.mlir import ir, walk


def captures(op, skip: set[ir.Operation] = frozenset()) -> list[ir.Value]:
    """The values defined outside `op` that its regions use, in order of first use.

    Uses by the operations in `skip` do not count.
    """
    if not len(op.regions):
        return []
    inside: set[int] = set()
    used: dict[int, ir.Value] = {}
    for number, inner in enumerate(walk(op)):  # the first is `op` itself
        inside.update(map(hash, inner.results))
        for region in inner.regions:
            for block in region.blocks:
                inside.update(map(hash, block.arguments))
        if number and not (skip and inner in skip):
            for value in inner.operands:
                used.setdefault(hash(value), value)
    return [value for key, value in used.items() if key not in inside]


def id_of(value: ir.Value) -> int:
    """A key by which two Python handles of one SSA value are equal."""
    return hash(value)
