"""Loops over chunks of k in random kernels of products: see random_products.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .kernel_text import Text

if TYPE_CHECKING:
    from .random_products import RandomProduct


class PlainLoop:
    """What is done for each chunk, in loops that carry nothing."""

    def __init__(self, text: Text, body: Any):
        self.text, self.body = text, body

    def __call__(self, k: str) -> None:
        self.body(k)

    def begin(self, loop: str) -> None:
        self.text.add(f"{loop} {{")

    def end(self) -> None:
        self.text.add("}")


@dataclass
class Late:
    """A slot that is to be released once these products have ended."""

    ring: str
    slot: str
    tokens: list[str]


class ProductLoop:
    """The products of a chunk, in loops that carry sums. With `behind` also the slots of a chunk, which are released
    behind the products of the next one."""

    def __init__(
        self, of: RandomProduct, text: Text, acc: str, sums: list[str], kept: Sequence[str], behind: bool = False
    ):
        self.of, self.text, self.acc, self.sums, self.kept, self.behind = of, text, acc, sums, kept, behind
        self.late: list[Late] = []
        self._results: list[str] = []

    def begin(self, loop: str) -> None:
        arguments, results = [self.text.name() for _ in self._carried()], self.text.name()
        pairs = ", ".join(f"{a} = {b}" for a, b in zip(arguments, self._carried(), strict=True))
        self.text.add(f"{results}:{len(arguments)} = {loop} iter_args({pairs}) -> ({self._types()}) {{")
        self._take_up(arguments)
        self._results.append(results)

    def end(self) -> None:
        self.text.add(f"scf.yield {', '.join(self._carried())} : {self._types()}\n}}")
        results = self._results.pop()
        self._take_up([f"{results}#{i}" for i in range(len(self._carried()))])

    def _carried(self) -> list[str]:
        return [*self.sums, *(value for late in self.late for value in (late.slot, *late.tokens))]

    def _types(self) -> str:
        types = [self.acc] * len(self.sums)
        for late in self.late:
            types += [self.of.slot_type(late.ring), *["!kitsune.token"] * len(late.tokens)]
        return ", ".join(types)

    def _take_up(self, values: list[str]) -> None:
        count = len(self.sums)
        self.sums, rest = values[:count], values[count:]
        taken = []
        for late in self.late:
            taken.append(Late(late.ring, rest[0], rest[1 : 1 + len(late.tokens)]))
            rest = rest[1 + len(late.tokens) :]
        self.late = taken

    def __call__(self, k: str) -> None:
        before, self.late = self.late, []
        if self.of.stays:
            left = self.of.take(self.text, "left0")
            token = self._multiply(0, ("left0", left), ("right0", self.kept[int(k)]))
            self._give(Late("left0", left, [token]))
        elif self.of.sums == 2:
            self._two_sums(before)
        else:
            self._terms(before)
        self._release(before)

    def close(self) -> None:
        """Behind the loops: what is still to be released."""
        self._release(self.late)

    def _terms(self, before: list[Late]) -> None:
        of, text, rng = self.of, self.text, self.of.rng
        names = ("left1", "right1") if of.terms == 2 and not of.one_ring else ("left0", "right0")
        begun = "left0", of.multiplied
        held: list[Late] = []  # till behind the next product
        for pair in [begun, names][: of.terms]:
            taken = [(name, of.take(text, name)) for name in pair]
            token = self._multiply(0, *taken)
            self._release(before)
            self._give(*held)
            held = [Late(*slot, [token]) for slot in taken]
            if rng.random() < 0.5:
                self._give(*held)
                held = []
        self._give(*held)

    def _two_sums(self, before: list[Late]) -> None:
        of, text = self.of, self.text
        left = "left0", of.take(text, "left0")
        first = "right0", of.take(text, "right0")
        one = self._multiply(0, left, first)
        self._release(before)
        if at_once := of.rng.random() < 0.5:
            self._give(Late(*first, [one]))
        second = "right1", of.take(text, "right1")
        two = self._multiply(1, left, second)
        if not at_once:
            self._give(Late(*first, [one]))
        self._give(Late(*left, [one, two]), Late(*second, [two]))

    def _multiply(self, number: int, left: tuple[str, str], right: tuple[str, str]) -> str:
        of = self.of
        types = f"({self.acc}, {of.slot_type(left[0])}, {of.slot_type(right[0])}) -> ({self.acc}, !kitsune.token)"
        ways = ", turned" if of.turned else ""
        attributes = f'{{engine = "{of.engines[1]}"{ways}}}'
        operands = [self.sums[number], left[1], right[1]]
        self.sums[number], token = self.text.call("product", operands, attributes, types, 2)
        return token

    def _give(self, *slots: Late) -> None:
        """Slots that their agent is done with, once their products have ended."""
        if self.behind:
            self.late += slots
        else:
            self._release(list(slots))

    def _release(self, slots: list[Late]) -> None:
        for late in slots:
            types = ", ".join([self.of.slot_type(late.ring), *["!kitsune.token"] * len(late.tokens)])
            self.text.call("release", [late.slot, *late.tokens], "", f"({types}) -> ()", 0)
        slots.clear()
