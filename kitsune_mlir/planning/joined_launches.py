"""Which launches of small kernels are one: kernels that do not depend on one another side by side, on thread blocks of
their own, and kernels of few blocks that do in turn, on one block. For passes/join_launches.py; no IR.

    a: x -> p    b: y -> q    c: p, q -> r    d: z -> s         =>    [[a, b, c], [d]]: one block does a, b and c,
                                                                      others d
A launch takes as long again as a small kernel computes. Calls are taken in their order, each to where it makes a run
dearer by the least: into a launch behind all that it depends on, or into one of these, behind them in its own block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .kernel_cost import KernelWork, beside, in_turn, kernel_price
from .target import Target

MOST_TURNS = 8  # blocks of a kernel that one block does in turn
MOST_BYTES = 32_000  # of one kernel's parameters; PTX has 32,764 (ISA 5.1.6, kernel function parameters)
MOST_SHARED = 40 << 10  # bytes of shared memory, of which a kernel may have 48 KB without being asked for more
MOST_CALLS = 64  # of a launch: each is code
NEAR = 8  # launches behind what a call depends on that it is tried in: so many of the first, and of the last


@dataclass(frozen=True)
class Call:
    """What a run calls. `touched` are the buffers that it reads or writes, `written` those that it writes; `apart` the
    numbers of earlier calls with which it shares buffers, but no elements that one of them writes. `work` is None for
    what stays a launch of its own, `blocks` their number, None where the call decides it."""

    touched: frozenset[str]
    written: frozenset[str]
    work: KernelWork | None = None
    blocks: int | None = None
    apart: frozenset[int] = frozenset()
    arguments: frozenset[tuple[int, int]] = frozenset()  # each a number and its bytes; equal ones are given once
    shared: int = 0

    def shared_with(self, other: Call) -> frozenset[str]:
        """The buffers of both that one of them writes."""
        return self.touched & other.written | other.touched & self.written


@dataclass
class _Strand:
    """Calls that one block makes in turn, or one call."""

    calls: list[int]
    work: KernelWork


@dataclass
class _Launch:
    """Strands side by side, or a call that nothing is joined with."""

    strands: list[_Strand]
    open: bool = True
    arguments: frozenset[tuple[int, int]] = frozenset()
    shared: int = 0
    us: float = 0.0
    calls: set[int] = field(default_factory=set)


def join_calls(calls: Sequence[Call], target: Target) -> list[list[list[int]]]:
    """The launches in their order: each a list of strands, which are the numbers of calls in turn."""
    return _Joining(calls, target).run()


class _Joining:
    def __init__(self, calls: Sequence[Call], target: Target):
        self._calls, self._target = calls, target
        self._launches: list[_Launch] = []
        self._where: list[int] = []  # of each call, its launch
        self._users: dict[str, list[int]] = {}  # of each buffer, calls so far

    def run(self) -> list[list[list[int]]]:
        for number, call in enumerate(self._calls):
            earlier = {other for name in call.touched for other in self._users.get(name, ())} - call.apart
            before = {other for other in earlier if call.shared_with(self._calls[other])}
            self._place(number, call, before)
            for name in call.touched:
                self._users.setdefault(name, []).append(number)
        return [[strand.calls for strand in launch.strands] for launch in self._launches]

    def _place(self, number: int, call: Call, before: set[int]) -> None:
        last = max((self._where[other] for other in before), default=-1)
        if call.work is None:
            self._launches.append(_Launch([_Strand([number], KernelWork(0, 0, 0, 0.0, 0.0, 0.0))], open=False))
            self._where.append(len(self._launches) - 1)
            return
        alone = _Strand([number], call.work)
        best, place, made = self._price([alone]), len(self._launches), [alone]
        behind = [at for at in range(max(last, 0), len(self._launches)) if self._launches[at].open]
        for at in dict.fromkeys(behind[:NEAR] + behind[-NEAR:]):
            launch = self._launches[at]
            strands = self._joined(number, call, launch, before & launch.calls)
            if strands is not None and (more := self._price(strands) - launch.us) < best:
                best, place, made = more, at, strands
        if place == len(self._launches):
            self._launches.append(_Launch([]))
        launch = self._launches[place]
        launch.strands, launch.us = made, self._price(made)
        launch.arguments |= call.arguments
        launch.shared += call.shared
        launch.calls.add(number)
        self._where.append(place)

    def _joined(self, number: int, call: Call, launch: _Launch, before: set[int]) -> list[_Strand] | None:
        """The strands of a launch with one more call, which depends on those of `before`; None where it can't be."""
        nbytes = sum(size for _, size in launch.arguments | call.arguments)
        if nbytes > MOST_BYTES or len(launch.calls) == MOST_CALLS:
            return None
        if launch.shared + call.shared > MOST_SHARED:
            return None
        assert call.work is not None
        if launch.strands[0].work.threads != call.work.threads:
            return None
        first = [strand for strand in launch.strands if before.intersection(strand.calls)]
        if not first:
            return [*launch.strands, _Strand([number], call.work)]
        numbers = [one for strand in first for one in strand.calls] + [number]
        if not all(self._is_short(one) for one in numbers):
            return None
        merged = _Strand(sorted(numbers), in_turn([*(strand.work for strand in first), call.work]))
        return [merged, *(strand for strand in launch.strands if strand not in first)]

    def _is_short(self, number: int) -> bool:
        blocks = self._calls[number].blocks
        return blocks is not None and blocks <= MOST_TURNS

    def _price(self, strands: Sequence[_Strand]) -> float:
        return kernel_price(beside([strand.work for strand in strands]), self._target).us
