"""What agents use of the kernel around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir.codegen.hopper.mbarrier import Ring
from kitsune_mlir.codegen.hopper.tile_ring import TileRing
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

from .exchanges import Totals
from .loops import Open
from .meetings import Meetings


@dataclass(frozen=True)
class Ctas:
    """The CTAs that run a part of a kernel: from number `first` on so many; all where that is not known."""

    first: int = 0
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class KernelAround:
    """What all agents use of the kernel around them."""

    pointers: dict[int, ir.Value]  # tensor -> its address
    outputs: dict[int, tuple[ir.Value, ir.Type, list[ir.Value]]]  # number -> its address, type, open sizes
    queues: dict[str, TileRing]  # between roles
    maps: ir.Value | None
    map_of: dict[ir.Operation, int]  # copy -> number of its tensor map
    constant: dict[int, int]  # tensor that no kernel of the program writes -> its number
    sizes: dict[int, list[ir.Value]]  # tensor -> those of its sizes that are open until the call, in their order
    size_of: Callable[[ir.Value], ir.Value]  # a tensor.dim -> the size that is open until the call
    base: ir.Value  # the address of shared memory
    cluster: int


@dataclass(frozen=True, kw_only=True)
class Surroundings(KernelAround):
    """What agents use of the kernel around them, and of the part of it that their CTA runs."""

    ctas: Ctas
    rings: dict[str, Ring]
    scratch: Int  # the address of what is behind the rings
    outboxes: Int  # that of the boxes through which tiles leave
    meetings: Meetings | None  # of the agent whose copies meet those of other CTAs
    totals: Totals | None  # of the agent whose copies tell those of other CTAs numbers

    def place(self, opened: Open) -> Int:
        """Where an open slot begins."""
        return self.rings[opened.ring.label].place(opened.slot)
