"""Rows of tables that come into a chain's shared memory as they are gathered: operands of more than registers hold.

    "kitsune.agent"() ({                                             // three warps beside the one that feeds
      scf.for %t = %lo to %hi step %st {
        %n = "kitsune.read"(%order, %row) : tensor<128xi32>
        %s0 = "kitsune.acquire"(%gathered)
        %d0 = "kitsune.gather_rows"(%s0, %edges, %n, %row, %count, %c0)
        %s1 = "kitsune.acquire"(%gathered)
        %d1 = "kitsune.gather_rows"(%s1, %edges, %n, %row, %count, %c64)
        "kitsune.commit"(%s0, %d0)                                   // waits for copies of this slot alone
        ... }) {sym_name = "gather"}

A commit waits until copies have landed. It stands behind those of the next slots, so that some are always on their way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import Gather, gather_of
from kitsune_mlir.chains.program import Program
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.gather_rows import GatherRowsOp
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import ir

from .chain_fills import Fill
from .chain_prefetch import numbers_of
from .kernel_build import acquire_slot, turns

if TYPE_CHECKING:
    from .chain_kernel import ChainKernel

MOST_BEHIND = 2  # slots that are being filled behind the one that a commit waits for
_HELD = 2  # slots that a warpgroup may have open while it waits for the next one, and this one


def wants_registers(program: Program, slots: int) -> bool:
    """Whether threads that gather have more to keep than feeding threads have registers for: numbers of the rows of
    several tables, or those of the slots, which are known where each has its turn equally often in a tile."""
    gathered = [segment for segment in program.segments() if segment.gathered]
    return len(gathered) > 1 or sum(segment.chunks for segment in gathered) % slots > 0


def gather(kernel: ChainKernel, fills: Sequence[Fill], dealt: schedule.TilesOp) -> None:
    """The agent that fills these slots of each tile, at the insertion point."""
    with turns(*dealt.results) as number:
        first = kernel.start(number)
        numbers: dict[int, ir.Value] = {}
        open_: list[tuple[ir.Value, ir.Value]] = []
        for fill in fills:
            (value,) = fill.sources
            found = gather_of(rows.producer(value))
            with found.op.location:
                if hash(value) not in numbers:
                    numbers[hash(value)] = numbers_of(found, first, kernel.tile_rows)
                open_.append(_begun(kernel, found, fill, numbers[hash(value)], first))
                if len(open_) > max(0, min(MOST_BEHIND, kernel.slots[0] - _HELD)):
                    _commit(open_.pop(0))
        for opened in open_:
            _commit(opened)


def _begun(
    kernel: ChainKernel, gather: Gather, fill: Fill, numbers: ir.Value, first: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """A slot that is being filled, and the token of its copies."""
    slot = acquire_slot(kernel.rings[fill.ring], fill.rows)
    column = constant_index(fill.start + fill.column)
    token = schedule.Token.get()
    return slot, GatherRowsOp(slot, gather.table, numbers, first, kernel.extent, column, token).results[0]


def _commit(opened: tuple[ir.Value, ir.Value]) -> None:
    slot, token = opened
    schedule.CommitOp(slot, [token])
