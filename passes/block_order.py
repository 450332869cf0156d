"""The order of a block's operations, in which groups of them may be joined to one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
