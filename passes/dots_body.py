"""What the bodies of kernels of dots are built of (dots.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kitsune_mlir import rows
from kitsune_mlir.mlir import attr_int, i64, ir, linalg, tensor
from kitsune_mlir.operations import operations_of


def behind(tiles: Sequence[ir.Value]) -> ir.Value:
    """Tiles one behind the other."""
    if len(tiles) == 1:
        return tiles[0]
    kinds = [ir.RankedTensorType(tile.type) for tile in tiles]
    whole = ir.RankedTensorType.get([sum(kind.shape[0] for kind in kinds), kinds[0].shape[1]], kinds[0].element_type)
    return tensor.ConcatOp(whole, i64(0), list(tiles)).result


def clone(
    op: ir.Operation,
    into: ir.Operation,
    kept: Sequence[int],
    loop: Callable[[int | None], int],
    element: Callable[[Sequence[ir.Value]], ir.Value] | None = None,
) -> None:
    """The body of a linalg.generic as that of another, which has the inputs `kept` alone, and whose loop `loop(d)` is
    its loop d. An element that it takes out of a tensor of the batch is `element(index)`, of its index without the
    first."""
    source, block = op.regions[0].blocks[0], into.regions[0].blocks[0]
    values = {hash(source.arguments[i]): own for i, own in zip(kept, block.arguments)}
    inner = operations_of(source)
    needed, wanted = set(), [inner[-1]]
    while wanted:
        one = wanted.pop()
        needed.add(one)
        first = 2 if one.name == "tensor.extract" and element is not None else 0
        makers = [rows.producer(operand) for operand in list(one.operands)[first:]]
        wanted += [maker for maker in makers if maker is not None and maker.parent == op and maker not in needed]
    with ir.InsertionPoint(block):
        for one in (one for one in inner if one in needed):
            operands = [values.get(hash(operand), operand) for operand in one.operands]
            with one.location:
                if one.name == "linalg.index":
                    made = [linalg.IndexOp(i64(loop(attr_int(one, "dim")))).result]
                elif one.name == "tensor.extract" and element is not None:
                    made = [element(operands[2:])]
                else:
                    clone = one.clone()
                    for i, operand in enumerate(operands):
                        clone.operands[i] = operand
                    made = list(clone.results)
            values.update(zip(map(hash, one.results), made))
