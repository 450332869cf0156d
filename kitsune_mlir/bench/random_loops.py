"""Loops over chunks of k in random kernels of products: see random_products.py."""

from __future__ import annotations

from collections.abc import Sequence
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


class ProductLoop:
    """The products of a chunk, in loops that carry sums."""

    def __init__(self, of: RandomProduct, text: Text, acc: str, sums: list[str], kept: Sequence[str]):
        self.of, self.text, self.acc, self.sums, self.kept = of, text, acc, sums, kept
        self._around: list[str] = []
        self._results: list[str] = []

    def begin(self, loop: str) -> None:
        arguments, results = [self.text.name() for _ in self.sums], self.text.name()
        pairs = ", ".join(f"{a} = {b}" for a, b in zip(arguments, self.sums, strict=True))
        types = ", ".join([self.acc] * len(self.sums))
        many = f"{results}:{len(self.sums)}"
        self.text.add(f"{many} = {loop} iter_args({pairs}) -> ({types}) {{")
        self.sums = arguments
        self._results.append(results)

    def end(self) -> None:
        types = ", ".join([self.acc] * len(self.sums))
        self.text.add(f"scf.yield {', '.join(self.sums)} : {types}\n}}")
        results = self._results.pop()
        self.sums = [f"{results}#{i}" for i in range(len(self.sums))]

    def __call__(self, k: str) -> None:
        of, text, rng = self.of, self.text, self.of.rng
        if of.stays:
            left = of.take(text, "left0")
            token = self._multiply(0, ("left0", left), ("right0", self.kept[int(k)]))
            self._release([("left0", left)], token)
            return
        if of.sums == 2:
            self._two_sums()
            return
        names = ("left1", "right1") if of.terms == 2 and not of.one_ring else ("left0", "right0")
        late = None  # slots that are released behind the next product, and their product's token
        for pair in [("left0", "right0"), names][: of.terms]:
            taken = [(name, of.take(text, name)) for name in pair]
            token = self._multiply(0, *taken)
            if late:
                self._release(*late)
            late = taken, token
            if rng.random() < 0.5:
                self._release(*late)
                late = None
        if late:
            self._release(*late)

    def _two_sums(self) -> None:
        of, text = self.of, self.text
        left = "left0", of.take(text, "left0")
        first = "right0", of.take(text, "right0")
        one = self._multiply(0, left, first)
        if of.rng.random() < 0.5:
            self._release([first], one)
            first = None
        second = "right1", of.take(text, "right1")
        two = self._multiply(1, left, second)
        if first:
            self._release([first], one)
        self._release([left], one, two)
        self._release([second], two)

    def _multiply(self, number: int, left: tuple[str, str], right: tuple[str, str]) -> str:
        of = self.of
        types = f"({self.acc}, {of.slot_type(left[0])}, {of.slot_type(right[0])}) -> ({self.acc}, !kitsune.token)"
        attributes = f'{{engine = "wgmma"{", outside" if of.outside else ""}}}'
        operands = [self.sums[number], left[1], right[1]]
        self.sums[number], token = self.text.call("product", operands, attributes, types, 2)
        return token

    def _release(self, slots: Sequence[tuple[str, str]], *tokens: str) -> None:
        for ring, slot in slots:
            types = ", ".join([self.of.slot_type(ring), *["!kitsune.token"] * len(tokens)])
            self.text.call("release", [slot, *tokens], "", f"({types}) -> ()", 0)
