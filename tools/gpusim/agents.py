"""Warps of a CTA that go together, as an agent that the scheduler gives turns to; it stops where it waits.

A warpgroup is one agent until some of its warps take a branch in which they wait; then those that do and
those that do not are agents of their own, and one again at the next barrier that they come to together.
Values stay arrays over all threads of the warpgroup; the masks say for which ones an agent stands.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kitsune_mlir import mlir

from .decode import Op
from .faults import MemoryFault
from .instructions import Exit, Instructions
from .lanes import some, spread

_ENDS = frozenset(("scf.yield", "scf.condition", "gpu.return"))


class Scheduler:
    """Draws who goes on, from agents and copies in flight."""

    def __init__(self, seed: int):
        self.ready: list[Any] = []
        self._random = random.Random(seed)

    def add(self, more: Iterable[Any]) -> None:
        self.ready.extend(more)

    def draw(self) -> Any:
        place = self._random.randrange(len(self.ready))
        self.ready[place], self.ready[-1] = self.ready[-1], self.ready[place]
        return self.ready.pop()


@dataclass
class Frame:
    """A block that is being run, for an operation that contains it. `state` depends on that operation."""

    operations: list[Op]
    mask: np.ndarray
    op: Op | None = None
    at: int = 0
    state: list[Any] = field(default_factory=list)


class Agent(Instructions):
    """What is common to agents: control flow. Instructions are a subclass's (warp_agent.py)."""

    scheduler: Scheduler
    mask: np.ndarray  # the threads it stands for
    frames: list[Frame]

    def start(self) -> None:
        entry = self.function.regions[0].blocks[0]
        self.values.update(self.function.constants)
        self.values.update(zip(entry.arguments, map(np.array, self.arguments), strict=True))
        self.frames = [Frame(entry.operations, self.mask)]
        self.pause = False
        self.waits_for: Any = None

    def turn(self) -> bool:
        """Runs until it waits, ends, or did what others may see. False: not to be drawn again by itself."""
        self.pause, self.waits_for = False, None
        try:
            while self.frames:
                self._run(self.frames[-1])
                if self.pause:
                    return self.waits_for is None
        except MemoryFault as fault:
            if not fault.located:
                frame = self.frames[-1]
                location = mlir.location(frame.operations[frame.at - 1].location)
                fault.args, fault.located = (f"{fault}, at {location}",), True
            raise
        except Exit:
            self.frames.clear()
        self.ended()
        return False

    def ended(self) -> None:
        """All its threads have ended."""

    def _run(self, frame: Frame) -> None:
        """Until the frame ends, another is on top, or a pause."""
        operations, mask, values = frame.operations, frame.mask, self.values
        at, count = frame.at, len(operations)
        while at < count:
            op = operations[at]
            at += 1
            step = op.step
            if step is not None:  # which neither stops nor looks where it is
                step(values)
                continue
            frame.at = at
            if op.regions:
                if _CONTROL[op.name](self, op, frame):
                    return
            elif op.name in _ENDS:
                break
            else:
                for result, value in zip(op.results, self._operation(op, mask), strict=False):
                    values[result.key] = value
                if self.pause:
                    return
        else:
            op = None
        self.frames.pop()
        if frame.op is not None:
            _LEAVE[frame.op.name](self, frame, self._all(op.operands) if op else [])

    def _results(self, op: Op, found: list[Any]) -> None:
        self.values.update((result.key, value) for result, value in zip(op.results, found, strict=True))

    # Branches.

    def _enter_if(self, op: Op, frame: Frame) -> bool:
        mask = frame.mask
        condition = spread(self._see(op.operands[0]), mask.shape)
        then = mask & condition
        if op.waits and (other := self._part(then, frame)):
            other.frames[-1].at -= 1  # it comes to the branch itself
            then, mask = frame.mask & condition, frame.mask
        sides = [then, mask & ~condition]
        state = [condition, [None, None], [i for i in (1, 0) if len(op.regions[i].blocks) and some(sides[i])], sides]
        return self._next_side(op, state)

    def _next_side(self, op: Op, state: list[Any]) -> bool:
        """Whether there is one more to run."""
        condition, found, left, sides = state
        while left:
            side = left.pop()
            if some(mask := sides[side] & self.mask):
                self.frames.append(Frame(op.regions[side].blocks[0].operations, mask, op, 0, [side, state]))
                return True
        if op.results:
            a, b = found
            if a is None or b is None:
                found = a or b or [np.zeros(self.threads, result.type) for result in op.results]
            else:
                found = [_merged(condition, x, y) for x, y in zip(a, b, strict=True)]
            self._results(op, found)
        return False

    def _leave_if(self, frame: Frame, yielded: list[Any]) -> None:
        side, state = frame.state
        state[1][side] = yielded
        self._next_side(frame.op, state)

    # Counted loops: state is [index, end, step, carried].

    def _enter_for(self, op: Op, frame: Frame) -> bool:
        index, end, step, *carried = self._all(op.operands)
        return self._turn_for(op, [index, end, step, carried, frame.mask])

    def _turn_for(self, op: Op, state: list[Any]) -> bool:
        index, end, step, carried, mask = state
        active = mask & self.mask & (index < end)
        if op.waits and (other := self._part(active, self.frames[-1])):
            other._results(op, carried)
            active = active & self.mask
        if not some(active):
            self._results(op, carried)
            return False
        body = op.regions[0].blocks[0]
        self.values.update(zip(body.arguments, [index, *carried], strict=True))
        self.frames.append(Frame(body.operations, active, op, 0, state))
        return True

    def _leave_for(self, frame: Frame, yielded: list[Any]) -> None:
        index, end, step, carried, mask = frame.state
        if not np.array_equal(frame.mask, mask & self.mask):
            yielded = [_merged(frame.mask, a, b) for a, b in zip(yielded, carried, strict=True)]
        self._turn_for(frame.op, [index + step, end, step, yielded, mask])

    # Loops that wait: others take turns each time they go round.

    def _enter_while(self, op: Op, frame: Frame) -> bool:
        return self._before_while(op, self._all(op.operands), frame.mask, None)

    def _before_while(self, op: Op, carried: list[Any], active: np.ndarray, out: list[Any] | None) -> bool:
        before = op.regions[0].blocks[0]
        self.values.update(zip(before.arguments, carried, strict=True))
        self.frames.append(Frame(before.operations, active, op, 0, [False, out]))
        return True

    def _leave_while(self, frame: Frame, yielded: list[Any]) -> None:
        is_after, out = frame.state
        if is_after:
            self._before_while(frame.op, yielded, frame.mask, out)
            self.polled()
            return
        condition, *passed = yielded
        active = frame.mask
        out = passed if out is None else [_merged(active, a, b) for a, b in zip(passed, out, strict=True)]
        active = active & condition
        if not some(active):
            self._results(frame.op, out)
            return
        after = frame.op.regions[1].blocks[0]
        self.values.update(zip(after.arguments, passed, strict=True))
        self.frames.append(Frame(after.operations, active, frame.op, 0, [True, out]))

    def polled(self) -> None:
        """It went round a loop that waits."""

    # Agents part and come together.

    def _part(self, there: np.ndarray, frame: Frame) -> Agent | None:
        """The threads that go `there` may wait: the agent that the warps without such threads become."""
        if not some(there):
            return None
        stay = there.reshape(-1, 32).any(1).repeat(32)
        if not some(frame.mask & ~stay):
            return None
        other = self.fork()
        other.restrict(~stay)
        self.restrict(stay)
        self.scheduler.add([other])
        return other

    def restrict(self, mask: np.ndarray) -> None:
        self.mask = self.mask & mask
        for frame in self.frames:
            frame.mask = frame.mask & mask

    def drop(self, mask: np.ndarray) -> None:
        """Threads end, in the block that is being run; others go on where they left them."""
        self.restrict(~mask)
        while self.frames and not self.frames[-1].mask.any():
            frame = self.frames.pop()
            if frame.op is None:
                continue
            if frame.op.name == "scf.if":
                self._next_side(frame.op, frame.state[1])
            else:
                assert frame.op.name == "scf.for", "threads end in a loop that waits"
                self._results(frame.op, frame.state[3])

    def copy_to(self, other: Agent) -> None:
        other.values = dict(self.values)
        other.frames = [Frame(f.operations, f.mask, f.op, f.at, _copied(f.state)) for f in self.frames]
        other.mask, other.pause, other.waits_for = self.mask, False, None

    def meets(self, other: Agent) -> bool:
        """Whether both are at the same place of the kernel."""
        return len(self.frames) == len(other.frames) and all(
            a.operations is b.operations and a.at == b.at and _same_turn(a, b)
            for a, b in zip(self.frames, other.frames, strict=True)
        )

    def join(self, other: Agent) -> None:
        """Takes over the threads of another agent at the same place."""
        values = self.values
        for key, theirs in other.values.items():
            mine = values.get(key, theirs)
            values[key] = theirs if mine is theirs else _merged(self.mask, mine, theirs)
        for mine, theirs in zip(self.frames, other.frames, strict=True):
            mine.state = _merged(self.mask, mine.state, theirs.state)
            mine.mask = mine.mask | theirs.mask
        self.mask = self.mask | other.mask

    def fork(self) -> Agent:
        """A copy."""
        raise NotImplementedError


def _copied(state: Any) -> Any:
    return [_copied(part) for part in state] if isinstance(state, list) else state


def _same_turn(a: Frame, b: Frame) -> bool:
    return a.op is None or a.op.name != "scf.for" or np.array_equal(a.state[0], b.state[0])


def _merged(condition: np.ndarray, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`."""
    if a is b:
        return a
    if isinstance(a, list):
        return [_merged(condition, x, y) for x, y in zip(a, b, strict=True)]
    if np.ndim(a) == 0 and np.ndim(b) == 0 and np.array_equal(a, b):
        return a
    return np.where(condition[:, None] if np.ndim(a) == 2 else condition, a, b)


_CONTROL: dict[str, Callable[[Agent, Op, Frame], bool]] = {
    "scf.if": Agent._enter_if,
    "scf.for": Agent._enter_for,
    "scf.while": Agent._enter_while,
}
_LEAVE: dict[str, Callable[[Agent, Frame, list[Any]], None]] = {
    "scf.if": Agent._leave_if,
    "scf.for": Agent._leave_for,
    "scf.while": Agent._leave_while,
}
