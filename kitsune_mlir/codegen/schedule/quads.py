"""Operands of mma.sync that threads load by themselves, four neighbouring columns at a time.

The order of k inside a step is free as long as both operands agree, so thread q of four takes the columns 4q to 4q + 3
of a step of 16 for its places 2q, 2q + 1, 2q + 8 and 2q + 9 (PTX ISA, Matrix Fragments for mma.m16n8k16; of f32 for
mma.m16n8k8). f32 is multiplied as three products of tf32 numbers, or as one (hopper/tf32.py).
"""

from __future__ import annotations

from kitsune_mlir.codegen.ampere import mma_sync
from kitsune_mlir.codegen.hopper import tf32
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import arith, ir

Fragment = list[list[ir.Value]]  # words of a quad; of f32 in parts, those of each


def fragments(quad: ir.Value, pieces: int) -> Fragment:
    """A quad as the instruction takes it, made once for all products that read it."""
    words = device.parts(quad)
    if ir.VectorType(quad.type).element_type != ir.F32Type.get():
        return [words]
    if pieces == 1:
        return [list(map(tf32.rounded, words))]
    return tf32.split_words(words)


def multiplied(element: ir.Type, a: list[Fragment], b: Fragment, sums: list[ir.Value]) -> list[ir.Value]:
    """Adds one step's products; `a` has the fragments of rows g and g+8."""
    if element.width == 32:
        return _mma_f32(a, b, sums)
    kind = "bf16" if isinstance(element, ir.BF16Type) else "f16"
    ((a0, a2),), ((a1, a3),) = a
    return mma_sync.add_16_bit(kind, [a0, a1, a2, a3], b[0], sums)


def _mma_f32(a: list[Fragment], b: Fragment, sums: list[ir.Value]) -> list[ir.Value]:
    """Two steps of k8; positions q and q+4 of step s are columns 4q+2s and 4q+2s+1. Tensor cores cut off what they add,
    so that a sum loses with every instruction: in full precision the six of these steps have sums of their own, small
    terms first, which are added outside."""
    upper, lower = a
    exact = len(b) > 1
    found = [arith.constant(ir.F32Type.get(), 0.0)] * len(sums) if exact else sums
    steps = []
    for s in (0, 2):
        parts = [[up[s], low[s], up[s + 1], low[s + 1]] for up, low in zip(upper, lower)]
        steps.append((parts, [part[s : s + 2] for part in b]))
    for left, right in ((tf32.LOW, tf32.HIGH), (tf32.HIGH, tf32.LOW), (tf32.HIGH, tf32.HIGH)) if exact else ((0, 0),):
        for parts, b_parts in steps:
            found = mma_sync.add_tf32(parts[left], b_parts[right], found)
    return [arith.addf(total, new) for total, new in zip(sums, found)] if exact else found
