"""The order in which a product's tiles are taken.

CTAs that start one after another stand side by side on the chip, and what several of them ask the L2 for at about the
same time comes once. So that about sixteen of them read as few different rows and columns as they can, tiles are taken
in bands of few tiles of rows, down the band's rows first:

    0 4  8 12 ...
    1 5  9 13
    2 6 10 14
    3 7 11 15

Batches come one after another, but for those that find a matrix by number: several, which follow one another, have the
same one, and are taken as rows of one product.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir


def place_of(
    number: ir.Value, roles: Sequence[str], extents: Sequence[ir.Value], sizes: dict[str, int], share: bool = False
) -> tuple[dict[str, ir.Value], dict[str, ir.Value]]:
    """By role ("s" a part of the sum, "b" batch, "m" rows, "n" columns) the first element of tile `number`, and the
    tile's number along that dimension. `sizes` are a tile's, `extents` the product's, in the order of the roles.
    Batches that follow one another may `share` a matrix."""
    counts = {role: ceildiv(extent, sizes[role]) for role, extent in zip(roles, extents)}
    at, rest = dict[str, ir.Value](), number
    if share and list(roles) == ["b", "m", "n"]:
        each = counts["m"]
        down = counts["b"] if constant(each) == 1 else arith.muli(counts["b"], each)
        at = _in_bands(number, down, counts["n"], band_rows(sizes["m"], sizes["n"]))
        at["b"], at["m"] = arith.divui(at["m"], each), arith.remui(at["m"], each)
    elif list(roles[-2:]) == ["m", "n"]:
        if len(roles) > 2:
            matrix = arith.muli(counts["m"], counts["n"])
            rest, number = arith.divui(number, matrix), arith.remui(number, matrix)
        at = _in_bands(number, counts["m"], counts["n"], band_rows(sizes["m"], sizes["n"]))
    for role in reversed([role for role in roles if role not in at]):
        at[role] = rest if role == roles[0] else arith.remui(rest, counts[role])
        rest = arith.divui(rest, counts[role]) if role != roles[0] else rest
    first = {role: x if sizes[role] == 1 else arith.muli(x, constant_index(sizes[role])) for role, x in at.items()}
    return first, at


def band_rows(rows: int, columns: int) -> int:
    """How many tiles of rows a band has, for tiles of so many rows and columns. 2048 x 11008 x 4096 in tiles of
    128 x 96 takes 385 us in bands of 16, 307 of 8, 258 of 4; of 128 x 128 272, 247, 258; with 256 columns all are
    alike (H100)."""
    return 4 if columns < rows else 8 if 2 * columns < 3 * rows else 16


def ceildiv(extent: ir.Value, size: int) -> ir.Value:
    """How many boxes of so many elements there are; a constant where the extent is one."""
    if (known := constant(extent)) is not None:
        return constant_index(-(-known // size))
    return extent if size == 1 else arith.ceildivui(extent, constant_index(size))


def _in_bands(number: ir.Value, down: ir.Value, across: ir.Value, height: int) -> dict[str, ir.Value]:
    """Rows and columns of a tile among tiles of which so many are `down` and `across`."""
    rows, columns = constant(down), constant(across)
    if columns == 1:
        return {"m": number, "n": constant_index(0)}
    if rows is not None and rows <= height:
        return {"m": arith.remui(number, down), "n": arith.divui(number, down)}
    size = arith.muli(across, constant_index(height))
    band, inside = arith.divui(number, size), arith.remui(number, size)
    first = arith.muli(band, constant_index(height))
    own = arith.minui(arith.subi(down, first), constant_index(height))
    return {"m": arith.addi(first, arith.remui(inside, own)), "n": arith.divui(inside, own)}
