"""A product's sums over all chunks of k, out of the slots of its operands' rings (product_kernel.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import ir, scf

from .product_pieces import in_pieces

if TYPE_CHECKING:
    from .product_kernel import ProductKernel

Rings = Mapping[str, schedule.AllocRingOp]


def all_chunks(
    kernel: ProductKernel, rings: Rings, kept: Sequence[ir.Value], at: dict[str, ir.Value], acc: ir.Type
) -> tuple[list[ir.Value], list[ir.Value]]:
    """The sums, and what of the last chunk `release` is still to be given; chunks of one operand are `kept`, if any
    are."""
    if kernel.of.pieces > 1:
        return in_pieces(kernel, rings, at, acc), []
    if kept:
        return [_summed_with(kernel, rings, kept, acc)], []
    sums = [schedule.SumsOp([], acc).results[0] for _ in range(kernel.sums)]
    found = (_overlapped if kernel.overlaps else _one_by_one)(kernel, rings, at, sums)
    return found[: len(sums)], found[len(sums) :]


def _summed_with(kernel: ProductKernel, rings: Rings, kept: Sequence[ir.Value], acc: ir.Type) -> ir.Value:
    """The sums of a tile, one operand's chunks being kept: of the other's each is released behind the next
    product, so that two run at a time."""
    sums, before = schedule.SumsOp([], acc).results[0], None
    (other,) = (ring for name, ring in rings.items() if name != kernel.tiles.kept)
    for chunk in kept:
        slot = kernel.wait(other)
        pair = (chunk, slot) if kernel.tiles.kept == "left" else (slot, chunk)
        multiplied = schedule.ProductOp(sums, *pair, kernel.products, acc, schedule.Token.get())
        if before is not None:
            schedule.ReleaseOp(before[0], [before[1]])
        sums, before = multiplied.results[0], (slot, multiplied.results[1])
    assert before is not None
    schedule.ReleaseOp(before[0], [before[1]])
    return sums


def _overlapped(kernel: ProductKernel, rings: Rings, at: dict[str, ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
    """The sums of all chunks, each chunk's slots released when the next one's products have been issued; and, of
    the last chunk, the slots and its products' tokens."""
    chunk = _product(kernel, rings, sums)
    loop = scf.ForOp(*kernel.rest(at), chunk)
    with ir.InsertionPoint(loop.body):
        carried = list(loop.inner_iter_args)
        chunk = _product(kernel, rings, carried[: len(sums)])
        release(kernel, *carried[len(sums) :])
        scf.yield_(chunk)
    return list(loop.results)


def _one_by_one(kernel: ProductKernel, rings: Rings, at: dict[str, ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
    """The sums, each chunk's slots released behind its own products."""
    loop = scf.ForOp(*kernel.rest(at), sums)
    with ir.InsertionPoint(loop.body):
        chunk = _product(kernel, rings, list(loop.inner_iter_args))
        release(kernel, *chunk[len(sums) :])
        scf.yield_(chunk[: len(sums)])
    return list(loop.results)


def _product(kernel: ProductKernel, rings: Rings, sums: Sequence[ir.Value]) -> list[ir.Value]:
    """Multiplies the next chunk: the sums, the slots that are read, the left one first, the products' tokens."""
    left, *rights = map(kernel.wait, rings.values())
    totals, tokens = [], []
    for before, right in zip(sums, rights, strict=True):
        multiplied = schedule.ProductOp(before, left, right, kernel.products, before.type, schedule.Token.get())
        totals.append(multiplied.results[0])
        tokens.append(multiplied.results[1])
    return [*totals, left, *rights, *tokens]


def release(kernel: ProductKernel, *chunk: ir.Value) -> None:
    """The left slot is free behind all products, each right one behind its own."""
    left, *rest = chunk
    rights, tokens = rest[: kernel.sums], rest[kernel.sums :]
    schedule.ReleaseOp(left, tokens)
    for right, token in zip(rights, tokens, strict=True):
        schedule.ReleaseOp(right, [token])
