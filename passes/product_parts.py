"""A product's left operand that is several tensors side by side, which its kernel reads where they are
(product_kernel.py): a tile has all of k, one part's chunks after another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitsune_mlir.chains.operands import parts_of
from kitsune_mlir.contraction import Contraction
from kitsune_mlir.dialects import schedule
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.planning.product_tiles import ProductTiles

from .kernel_build import turns

if TYPE_CHECKING:
    from .product_kernel import ProductKernel


def parts_side_by_side(found: Contraction, tiles: ProductTiles, pieces: int, chunk: int) -> list[ir.Value]:
    """The tensors of whole chunks that a left operand is, side by side; that operand alone where it is none such, or
    where tiles have a part of k, or chunks that are kept, made or in `pieces`."""
    parts = parts_of(found.left) if found.left_roles == ("m", "k") else [found.left]
    plain = tiles.split == tiles.cluster == pieces == 1 and not (tiles.kept or tiles.alternates or tiles.made)
    whole = all(ir.RankedTensorType(part.type).shape[1] % chunk == 0 for part in parts)
    return parts if len(parts) > 1 and plain and whole else [found.left]


def feed_parts(kernel: ProductKernel, rings: dict[str, schedule.AllocRingOp], at: dict[str, ir.Value]) -> None:
    """Copies the chunks of a tile: those of each part of the left operand, with those of all right ones beside them."""
    first = 0
    for left in kernel.pieces["left"]:
        width = ir.RankedTensorType(left.type).shape[kernel.operands["left"].index("k")]
        with turns(constant_index(0), constant_index(width), constant_index(kernel.chunk)) as k:
            behind = arith.addi(k, constant_index(first))
            for name, ring in rings.items():
                value, place = (left, k) if name == "left" else (kernel.pieces[name][0], behind)
                kernel.copy(name, ring, value, at | {"k": place})
        first += width
