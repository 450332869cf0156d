"""The order of a block's operations, in which groups of them may be joined to one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import operations_of

Closed = tuple[int, int, int]  # operations, with all before, and with all after, a bit each


class Order:
    """What each operation of a block is computed from, and what from it. Operations are known by their results: their
    hashes change with their operands."""

    def __init__(self, block: ir.Block):
        self.ops = operations_of(block)
        self._numbers = {result: number for number, op in enumerate(self.ops) for result in op.results}
        self._before: list[int] = []  # with a bit for each operation, itself included
        self._through = 0  # all but reshapes
        for number, op in enumerate(self.ops):
            found = 1 << number
            for value in rows.used_values(op):
                if value in self._numbers:
                    found |= self._before[self._numbers[value]]
            self._before.append(found)
            self._through |= (op.name not in rows.RESHAPES) << number
        self._after = [1 << number for number in range(len(self.ops))]
        for number in reversed(range(len(self.ops))):
            for use in (use for result in self.ops[number].results for use in result.uses):
                if (user := self._of(use.owner.operation)) is not None:
                    self._after[number] |= self._after[user]

    def _of(self, op: ir.Operation) -> int | None:
        """The number of the operation of the block in which one stands, if others may use its results."""
        while op.parent is not None and op.block != self.ops[0].block:
            op = op.parent.operation
        return self._numbers.get(op.results[0]) if len(op.results) else None

    def has(self, op: ir.Operation) -> bool:
        return len(op.results) > 0 and op.results[0] in self._numbers

    def sorted(self, ops: Iterable[ir.Operation]) -> list[ir.Operation]:
        return sorted(filter(self.has, ops), key=lambda op: self._numbers[op.results[0]])

    def is_convex(self, ops: Sequence[ir.Operation]) -> bool:
        """Whether nothing that is computed from one of these goes into another, unless through these. Reshapes may."""
        return self.are_together(self.closed(ops))

    def are_together(self, closed: Closed) -> bool:
        """The same of operations of which this is known."""
        own, before, after = closed
        return not before & after & ~own & self._through

    def join(self, ops: Sequence[ir.Operation]) -> None:
        """These will be one operation: what one of them is computed from all are."""
        own, before, after = self.closed(ops)
        numbers = list(_bits(own))
        behind, ahead = _shared(numbers[::-1], self._before, self._after), _shared(numbers, self._after, self._before)
        for number in _bits(after & ~behind):
            self._before[number] |= before
        for number in _bits(before & ~ahead):
            self._after[number] |= after

    def closed(self, ops: Sequence[ir.Operation]) -> Closed:
        """These, with all before, and with all after."""
        own = before = after = 0
        for op in ops:
            number = self._numbers[op.results[0]]
            own |= 1 << number
            before |= self._before[number]
            after |= self._after[number]
        return own, before, after


def bring_together(block: ir.Block, groups: Sequence[Sequence[ir.Operation]]) -> None:
    """Has the operations of each group stand one behind the other, with all others as near to where they stood as what
    they are computed from lets them. Each group by itself would move all that is computed from one of its operations
    behind another, which is most of a recurrence for each step of it. Where groups stand in each other's way none
    moves."""
    *ops, _ = [op.operation for op in block.operations]
    of = {result: number for number, group in enumerate(groups) for op in group for result in op.results}
    nodes: dict[ir.Value, int] = {}  # by result; the number of a group, or, behind these, of an operation
    members: dict[int, list[int]] = {}
    for place, op in enumerate(ops):
        made = nodes.get(op.operands[0], -1) if op.name in rows.RESHAPES else -1
        node = next((of[result] for result in op.results if result in of), len(groups) + place)
        node = made if node >= len(groups) and 0 <= made < len(groups) else node
        members.setdefault(node, []).append(place)
        nodes.update(dict.fromkeys(op.results, node))
    needed: dict[int, set[int]] = {node: set() for node in members}
    for node, places in members.items():
        for place in places:
            needed[node].update(nodes[value] for value in rows.used_values(ops[place]) if value in nodes)
        needed[node].discard(node)
    readers: dict[int, list[int]] = {}
    for node, sources in needed.items():
        for source in sources:
            readers.setdefault(source, []).append(node)
    ready = [(places[0], node) for node, places in members.items() if not needed[node]]
    heapify(ready)
    found: list[int] = []
    while ready:
        _, node = heappop(ready)
        found += members[node]
        for reader in readers.get(node, ()):
            needed[reader].discard(node)
            if not needed[reader]:
                heappush(ready, (members[reader][0], reader))
    if len(found) < len(ops):
        return
    for before, place in zip(found, found[1:]):
        ops[place].move_after(ops[before])


def _shared(numbers: Sequence[int], wanted: Sequence[int], others: Sequence[int]) -> int:
    """What is after all of some operations that have among them all that is before any, which it then has already; and
    the other way round. Of a chain its last is enough, which most operations behind the chain are after."""
    found, shared = 0, -1
    for number in numbers:
        if wanted[number] & ~found:
            found |= wanted[number]
            shared &= others[number]
    return shared


def _bits(number: int) -> Iterator[int]:
    """The places of a number's ones."""
    digits = bin(number)[:1:-1]
    place = digits.find("1")
    while place >= 0:
        yield place
        place = digits.find("1", place + 1)
