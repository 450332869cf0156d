"""Products of f32 as products of pieces of bf16: their sums, and pieces that are made in the kernel.

An operand whose pieces are made there comes as it is into a ring of its own. An agent of one warpgroup takes each chunk
and fills as many slots of the operand's ring as there are pieces; who multiplies takes them as if copies had brought
them. So what is computed with each call is read once, and its pieces go through no memory. Of an operand in tf32 whose
rows are not along k the one piece is the chunk, turned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kitsune_mlir.codegen.bf16_pieces import pieces_of
from kitsune_mlir.dialects import schedule
from kitsune_mlir.generics import elementwise
from kitsune_mlir.mlir import arith, ir, scf
from kitsune_mlir.planning.product_tiles import PAIRS

from .chain_tiles import added, part, zeros
from .kernel_build import acquire_slot, turns

if TYPE_CHECKING:
    from .product_kernel import ProductKernel


def make_pieces(kernel: ProductKernel, rings: Mapping[str, schedule.AllocRingOp], at: dict[str, ir.Value]) -> None:
    """The pieces of a tile's chunks, of operands that come as they are."""

    def chunk() -> None:
        for name, source in kernel.whole.items():
            taken, ring = kernel.wait(source), rings[name]
            made = [acquire_slot(ring) for _ in range(kernel.of.pieces)]
            schedule.SplitOp(taken, made)
            for slot in made:
                schedule.CommitOp(slot, [])
            schedule.ReleaseOp(taken, [])

    if kernel.overlaps:
        chunk()
    with turns(*kernel.rest(at)):
        chunk()


def in_pieces(
    kernel: ProductKernel, rings: Mapping[str, schedule.AllocRingOp], at: dict[str, ir.Value], acc: ir.Type
) -> list[ir.Value]:
    """The sums of all chunks, as tiles. Tensor cores cut off what they add: each chunk's sums begin at zero, small
    terms first, and are added to the others outside of them."""
    rows, columns = ir.RankedTensorType(ir.TypeAttr(acc.elem).value).shape
    nothing = [part(zeros(rows, columns), 0, columns, wide=True) for _ in range(kernel.sums)]
    loop = scf.ForOp(*kernel.rest(at), nothing)
    with ir.InsertionPoint(loop.body):
        slots: dict[str, list[ir.Value]] = {name: [] for name in rings}
        for _ in range(kernel.of.pieces):
            for name, ring in rings.items():
                slots[name].append(kernel.wait(ring))
        lefts, *rights = slots.values()
        totals = []
        for total, own in zip(loop.inner_iter_args, rights, strict=True):
            tile = multiplied(lefts, own, acc, kernel.products)
            totals.append(part(added(total, tile), 0, columns, wide=True))
        for slot in (slot for taken in zip(*slots.values(), strict=True) for slot in taken):
            schedule.ReleaseOp(slot, [])
        scf.yield_(totals)
    return list(loop.results)


def multiplied(lefts: Sequence[ir.Value], rights: Sequence[ir.Value], acc: ir.Type, engine: ir.Attribute) -> ir.Value:
    """The products of all pairs of pieces that count, whose sums begin at zero, small terms first, as a tile."""
    sums = schedule.SumsOp([], acc).results[0]
    for left, right in PAIRS[len(lefts)]:
        made = schedule.ProductOp(sums, lefts[left], rights[right], engine, acc, schedule.Token.get())
        sums = made.results[0]
    return schedule.SettleOp(sums, ir.TypeAttr(acc.elem).value).results[0]


def pieces_of_tile(tile: ir.Value, count: int) -> list[ir.Value]:
    """Tiles of bf16 whose sum is one of f32."""
    columns = ir.RankedTensorType(tile.type).shape[1]
    return [part(piece_of_tile(tile, number, count), 0, columns) for number in range(count)]


def piece_of_tile(tile: ir.Value, number: int, count: int) -> ir.Value:
    """One of so many such tiles, computed."""
    bf16 = ir.BF16Type.get()
    return elementwise([tile], bf16, lambda x: arith.truncf(bf16, pieces_of(x, count)[number]))
