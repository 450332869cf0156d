"""Warp roles in one CTA: registers moved between warpgroups, barriers of some of the threads."""

from __future__ import annotations

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir, nvvm

from . import wgmma

WARP = 32  # threads


def set_registers(count: int, grow: bool) -> None:
    """A warpgroup gives registers up or takes them (PTX ISA, setmaxnreg): a multiple of 8, 24 to 256. The kernel
    must bound its threads (maxntid, minctasm)."""
    actions = nvvm.SetMaxRegisterAction
    nvvm.SetMaxRegisterOp(count, actions.increase if grow else actions.decrease)


def barrier(number: int, threads: Int) -> None:
    """Barrier `number`, 1 to 15, of that many threads (PTX ISA, bar.sync)."""
    device.assembly("bar.sync $0, $1;", number, threads)


def here(x: Int) -> ir.Value:
    """The same number, i32, from which nothing is computed ahead: what is moved out of loops takes registers there."""
    return device.assembly("mov.b32 $0, $1;", x, result=device.i32(), memory=False)


def thread() -> ir.Value:
    """The thread's number in the CTA, asked for where it is used, for the same reason."""
    return device.assembly("mov.u32 $0, %tid.x;", result=device.i32(), memory=False)


def lane() -> Int:
    """The thread's number in its warp, likewise."""
    return device.mod(thread(), WARP)


def is_first() -> ir.Value:
    """Holds in one thread of each warp."""
    return device.equal(lane(), 0)


def consumer() -> Int:
    """The number of the thread's warpgroup behind the producer's, likewise."""
    return device.sub(device.div(thread(), wgmma.THREADS), 1)


def hand(word: ir.Value, lane: Int) -> ir.Value:
    """All threads of a warp: each gets the word (i32) of `lane` (PTX ISA, shfl.sync)."""
    text = "shfl.sync.idx.b32 $0, $1, $2, 0x1f, 0xffffffff;"  # lanes may come from the whole warp; all take part
    return device.assembly(text, word, lane, result=device.i32(), memory=False)


def sync() -> None:
    """The threads of a warp; orders their accesses to memory (PTX ISA, bar.warp.sync)."""
    device.assembly("bar.warp.sync 0xffffffff;")
