"""Which tile of rows and columns a number of a kernel's tiles means."""

from __future__ import annotations

from kitsune_mlir.mlir import arith, ir

from .schedule_build import constant_index

_DOWN = 16  # tiles of rows whose tiles of columns are taken together


def ceildiv(extent: ir.Value, size: int) -> ir.Value:
    """How many boxes of so many elements there are; a constant where the extent is one."""
    if (known := _constant(extent)) is not None:
        return constant_index(-(-known // size))
    return extent if size == 1 else arith.ceildivui(extent, constant_index(size))


def _constant(number: ir.Value) -> int | None:
    if isinstance(number.owner, ir.Block) or number.owner.name != "arith.constant":
        return None
    return ir.IntegerAttr(number.owner.attributes["value"]).value


def in_groups(number: ir.Value, down: ir.Value, across: ir.Value) -> dict[str, ir.Value]:
    """Rows and columns of a tile, in groups of _DOWN tiles of rows, down the rows first: the CTAs at work at one time
    read few different rows and few different columns, which stay in the L2."""
    rows, columns = _constant(down), _constant(across)
    if columns == 1:
        return {"m": number, "n": constant_index(0)}
    if rows is not None and rows <= _DOWN:
        return {"m": arith.remui(number, down), "n": arith.divui(number, down)}
    size = arith.muli(across, constant_index(_DOWN))
    group, inside = arith.divui(number, size), arith.remui(number, size)
    first = arith.muli(group, constant_index(_DOWN))
    height = arith.minui(arith.subi(down, first), constant_index(_DOWN))
    return {"m": arith.addi(first, arith.remui(inside, height)), "n": arith.divui(inside, height)}
