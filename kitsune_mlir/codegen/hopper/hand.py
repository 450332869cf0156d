"""Words that go from thread to thread of a warp (PTX ISA, shfl.sync)."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

_WARP = "0x1f, 0xffffffff"  # lanes may come from the whole warp; all threads take part


def hand(words: Sequence[ir.Value], lane: Int | None = None) -> list[ir.Value]:
    """All threads of a warp: each gets the words of `lane`; None means its own. Words are i32."""
    if lane is None:
        return list(words)
    text = f"shfl.sync.idx.b32 $0, $1, $2, {_WARP};"
    return [device.assembly(text, word, lane, result=device.i32(), memory=False) for word in words]
