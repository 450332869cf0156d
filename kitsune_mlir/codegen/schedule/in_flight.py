"""Products of a warpgroup in flight: which have ended where, as far as the code tells.

Products are numbered in the order in which they are issued, and end in it: to wait for one is to wait until no more are
in flight than were issued after it (PTX ISA, wgmma.wait_group). Where code is reached along several ways, as the head
of a loop, the count of the way with the fewest is taken: who waits for fewer in flight waits for more.

Sums in flight lie in registers that nobody may touch (wgmma.py). The product that is next on them takes them over;
`settle` lets them through its wait, so that what reads them stands behind it. A release waits without them. A left
operand in registers is read as long: where a loop writes these anew in each turn, `unread` waits for the product that
read them in the turn before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import wgmma
from kitsune_mlir.dialects import schedule
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import operations_of, users_of


@dataclass(frozen=True)
class Acc:
    """Sums in registers, f32, and the number of the last product that adds to them, None where none is in flight. New
    ones are zero whatever stands in their registers, the first product on them does not read these; `is_zero` says that
    zeros stand there."""

    values: list[ir.Value]
    number: int | None = None
    is_new: bool = False
    is_zero: bool = False


@dataclass(frozen=True)
class Token:
    """A product, by its number."""

    number: int | None


@dataclass
class InFlight:
    """`issued` counts products, `waited` is the number of the last that is known to have ended."""

    issued: int = 0
    waited: int = 0

    def add(self, sums: list[ir.Value]) -> tuple[Acc, Token]:
        """A product was issued, which gives these sums."""
        self.issued += 1
        return Acc(sums, self.issued), Token(self.issued)

    def ended(self, sums: list[ir.Value]) -> tuple[Acc, Token]:
        """A product was issued and waited for."""
        self.issued += 1
        self.waited = self.issued
        return Acc(sums), Token(self.issued)

    @property
    def are_pending(self) -> bool:
        """Whether products may be in flight."""
        return self.issued > self.waited

    def wait(self, token: Token) -> None:
        """Until the product has ended; those after it may go on."""
        if token.number is not None and token.number > self.waited:
            self._wait_until(self.issued - token.number)
            self.waited = token.number

    def _wait_until(self, pending: int) -> None:
        """Until no more than so many are in flight."""
        wgmma.wait(pending)

    def settle(self, acc: Acc) -> list[ir.Value]:
        """The sums, once the products that made them have ended."""
        if acc.number is None:
            return acc.values
        self.waited = max(self.waited, acc.number)
        return wgmma.wait_for(acc.values, self.issued - acc.number)

    def unread(self, words: Sequence[ir.Value], op: ir.Operation) -> list[ir.Value]:
        """`words`, once no product in flight reads the registers that the left operand of product `op` is put into,
        which is made of them: where a loop's turn makes it, the last product on it in the turn before has ended."""
        behind = _issued_since(op)
        if behind is None or self.issued - behind <= self.waited:
            return list(words)
        self.waited = self.issued - behind
        return wgmma.wait_for(words, behind)

    def behind(self, start: Acc | Token, yielded: ir.Value) -> int | None:
        """How many products are in flight behind the one of a value that a loop carries, at least, where a turn begins
        and behind the loop: `start` is the value before it, `yielded` what a turn gives. None where it has ended."""
        before = None if start.number is None else self.issued - start.number
        counts = [count for count in (before, _issued_behind(yielded)) if count is not None]
        return min(counts, default=None)

    def enter(self, behind: Sequence[int | None]) -> tuple[int, int]:
        """The state at the head of a loop that carries products with so many behind them; `leave` goes back to it."""
        oldest = max((count for count in behind if count is not None), default=-1)
        self.waited = min(self.waited, self.issued - oldest - 1)
        return self.issued, self.waited

    def leave(self, state: tuple[int, int]) -> None:
        """Behind the loop, which may have had no turn."""
        self.issued, self.waited = state

    def number(self, behind: int | None) -> int | None:
        """The number of the product with so many behind it."""
        return None if behind is None else self.issued - behind


class NoneInFlight(InFlight):
    """Products of warps by themselves: who goes on has their sums."""

    def settle(self, acc: Acc) -> list[ir.Value]:
        """The sums."""
        return acc.values

    def behind(self, start: Acc | Token, yielded: ir.Value) -> int | None:
        """They have ended."""
        return None


def _issued_behind(yielded: ir.Value) -> int | None:
    """How many products of its block stand behind the one that gives a value, at least; None where it has ended."""
    owner = yielded.owner
    if isinstance(owner, ir.Block) or owner.operation.name != schedule.ProductOp.OPERATION_NAME:
        return 0
    products = _products(owner.operation)
    behind = products[products.index(owner.operation) :]
    if any(_is_waited_for(product) for product in behind):
        return None
    return len(behind) - 1


def _is_waited_for(product: ir.Operation) -> bool:
    """Whether a slot is given back in a product's block once it has ended."""
    users = users_of(product.results[1])
    return any(user.name == schedule.ReleaseOp.OPERATION_NAME and user.block == product.block for user in users)


def _issued_since(op: ir.Operation) -> int | None:
    """How many products were issued, at least, since the last one of the turn before that reads the left operand of
    `op`, the first in its turn that does; None where `op` is in no loop."""
    if not _is_in_loop(op):
        return None
    if op.parent.name != "scf.for":
        return 0
    products = _products(op)
    last = max(i for i, other in enumerate(products) if other.operands[1] == op.operands[1])
    return products.index(op) + len(products) - 1 - last


def _is_in_loop(op: ir.Operation) -> bool:
    """Whether there is a loop around an operation, in its agent."""
    parent = op.parent
    return parent.name != schedule.AgentOp.OPERATION_NAME and (parent.name == "scf.for" or _is_in_loop(parent))


def _products(op: ir.Operation) -> list[ir.Operation]:
    """The products of an operation's block."""
    return operations_of(op.block, schedule.ProductOp.OPERATION_NAME)
