"""A queue between agents that are the same threads: a payload is a few words in each thread's registers.

Where sender and receiver want a word in the same thread nothing is moved; where they differ within a warp, words move
by shuffles (PTX ISA, shfl.sync).
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

_WARP = "0x1f, 0xffffffff"  # lanes may come from the whole warp; all threads take part


def hand(words: Sequence[ir.Value], lane: Int | None = None) -> list[ir.Value]:
    """All threads of a warp: each thread's payload is that of `lane`; None means its own. Words are i32."""
    if lane is None:
        return list(words)
    text = f"shfl.sync.idx.b32 $0, $1, $2, {_WARP};"
    return [device.assembly(text, "=r,r,r", [word, device.value(lane)], device.i32()) for word in words]
