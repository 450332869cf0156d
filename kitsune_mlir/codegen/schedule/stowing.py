"""Tiles that an agent of warpgroups puts into rings that are each copy's own (dialects/stow.py), for its products.

Nobody else knows of such a slot, so that it has no mbarriers. What lay in it before has been multiplied, by all warps,
before any of them writes there; and all have written before a product of one of them reads it, through another proxy
(PTX ISA, fence.proxy.async).
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import tma, warps, wgmma
from kitsune_mlir.codegen.hopper.fragments import Fragment
from kitsune_mlir.codegen.hopper.mbarrier import Ring, Slot
from kitsune_mlir.codegen.hopper.stores import Boxes
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import ir

from . import parts
from .loops import LoopCode


@dataclass(kw_only=True)
class StowCode(LoopCode):
    """The code of an agent whose threads begin at `first`. `may_stow` says whether all threads of the copy have done
    with what lay in its empty slots, `unseen` whether products do not see yet what was stowed."""

    first: int
    may_stow: bool = False
    unseen: bool = False

    @staticmethod
    def _leader() -> ir.Value:
        """Holds in one thread of each warpgroup."""
        return device.equal(device.mod(device.thread(), wgmma.THREADS), 0)

    def _own_boxes(self) -> Boxes:
        """The thread's way to boxes of its warpgroup."""
        return Boxes.of(warps.thread(), self._leader())

    def _opened(self, op: ir.Operation) -> tuple[Ring, Slot]:
        """The ring's next slot, which an operation opens."""
        raise NotImplementedError

    def _stow(self, op: ir.Operation) -> None:
        """The warps write their rows, once none of them reads what was there."""
        ring, slot = self._opened(op)
        own = self._own_boxes()
        tile = self._leaving(op.operands[1])
        if not self.may_stow:
            warps.barrier(own.barrier, wgmma.THREADS)
        self.may_stow = self.unseen = True
        own.write(device.add(ring.place(slot), self._own_part()), tile, 0)

    def _leaving(self, value: ir.Value) -> Fragment:
        """A tile that leaves the registers."""
        self._stand(value)
        return parts.leaving(value, self.halves, self.lanes, self.values.get(hash(value)))

    def _own_part(self) -> Int:
        """Where the copy's rows begin in a slot of which each copy has a part."""
        return device.mul(self._group(), wgmma.ROWS * wgmma.BOX_ROW)

    def _group(self) -> Int:
        """The copy's number."""
        return device.sub(device.div(warps.thread(), wgmma.THREADS), self.first // wgmma.THREADS)

    def _see(self) -> None:
        """Has products see what was stowed."""
        if self.unseen:
            tma.fence()
            warps.barrier(self._own_boxes().barrier, wgmma.THREADS)
        self.unseen = False

    def _scf_for(self, op: ir.Operation) -> None:
        self._see()
        self.may_stow = False
        super()._scf_for(op)
        self.may_stow = False

    def _scf_yield(self, op: ir.Operation) -> None:
        self._see()
