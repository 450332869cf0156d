"""Runs a persistent kernel on the CPU: its CTAs by turns, the threads of a CTA in lockstep.

A CTA is a coroutine that stops after every atomic operation and whenever a loop that waits goes round. Who
goes on is drawn from a seeded generator, so a seed is an interleaving.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from kitsune_mlir import mlir

from .clocks import in_groups
from .decode import Block, Op
from .faults import Deadlock, MemoryFault
from .instructions import Counters, Exit, Instructions
from .lanes import spread
from .space import Space

WAITS, GOES_ON = "waits", "goes on"
_ENDS = ("scf.yield", "scf.condition", "gpu.return")
_BRANCHES = ("scf.if", "scf.for", "scf.while")
Turns = Generator[str, None, list[Any]]


def run(
    kernel: Op,
    arguments: Sequence[int],
    memory: Space,
    launch: dict[str, Any],
    rng: np.random.Generator,
) -> Counters:
    """One launch; pointer arguments are addresses in `memory`. Gives the counters that it used.

    Raises MemoryFault, or Deadlock with every CTA that waits, on which address, and where in the model."""
    counters = Counters(in_groups(launch["ctas"]))
    ctas = [Cta(kernel, arguments, memory, launch, number, counters) for number in range(launch["ctas"])]
    left = {cta: cta.turns() for cta in ctas}
    waits_since: dict[Cta, int] = {}
    with np.errstate(all="ignore"):
        while left:
            ready = [cta for cta in left if waits_since.get(cta) != counters.version]
            if not ready and not launch["watched"]:
                raise Deadlock([str(cta) for cta in left])
            ready = ready or list(left)  # until their budget is spent
            cta = ready[rng.integers(len(ready))]
            event = next(left[cta], None)
            if event is None:
                del left[cta]
            elif event == WAITS:
                waits_since[cta] = counters.version
    return counters


class Cta(Instructions):
    """One CTA as a coroutine; divergence is masks."""

    def __str__(self) -> str:
        return f"CTA {self.number} waits: {self.polls}"

    def turns(self) -> Iterator[str]:
        entry = self.function.regions[0].blocks[0]
        self.values.update(self.function.constants)
        self.values.update(zip(entry.arguments, map(np.array, self.arguments), strict=True))
        with contextlib.suppress(Exit):
            yield from self._turns(entry, np.ones(self.threads, np.bool_))

    def _turns(self, block: Block, mask: np.ndarray) -> Turns:
        for op in block.operations:
            if op.step is not None:
                op.step(self.values)
                continue
            if op.name in _ENDS:
                return self._all(op.operands)
            before = self._counters.version
            try:
                if op.name in _BRANCHES:
                    results = yield from getattr(self, f"_turns_{op.name[4:]}")(op, mask)
                else:
                    results = self._operation(op, mask)
            except MemoryFault as fault:
                if not fault.located:
                    fault.args, fault.located = (f"{fault}, at {mlir.location(op.location)}",), True
                raise
            for result, value in zip(op.results, results, strict=True):
                self.values[result.key] = value
            if self._counters.version != before and op.name not in _BRANCHES:
                yield GOES_ON
        return []

    def _turns_if(self, op: Op, mask: np.ndarray) -> Turns:
        condition = spread(self._see(op.operands[0]), mask.shape)
        found: list[list[Any] | None] = []
        for region, side in zip(op.regions, (mask & condition, mask & ~condition), strict=True):
            runs = len(region.blocks) and np.any(side)
            found.append((yield from self._turns(region.blocks[0], side)) if runs else None)
        if not op.results:
            return []
        if found[0] is None or found[1] is None:
            return found[0] or found[1] or [np.zeros(mask.shape, result.type) for result in op.results]
        return [np.where(condition, a, b) for a, b in zip(*found, strict=True)]

    def _turns_for(self, op: Op, mask: np.ndarray) -> Turns:
        index, end, step, *state = self._all(op.operands)
        body = op.regions[0].blocks[0]
        while np.any(active := mask & (index < end)):
            self.values.update(zip(body.arguments, [index, *state], strict=True))
            new = yield from self._turns(body, active)
            together = np.array_equal(active, mask)
            state = new if together else [np.where(active, a, b) for a, b in zip(new, state, strict=True)]
            index = index + step
        return state

    def _turns_while(self, op: Op, mask: np.ndarray) -> Turns:
        """A loop that waits: others take their turns each time it goes round."""
        before, after = (region.blocks[0] for region in op.regions)
        state, active, out = self._all(op.operands), mask, None
        while True:
            self.values.update(zip(before.arguments, state, strict=True))
            condition, *passed = yield from self._turns(before, active)
            out = passed if out is None else [np.where(active, a, b) for a, b in zip(passed, out, strict=True)]
            active = active & condition
            if not np.any(active):
                return out
            self.values.update(zip(after.arguments, passed, strict=True))
            state = yield from self._turns(after, active)
            yield WAITS
