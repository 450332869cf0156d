"""Words of a payload in the queue benchmark's kernels: written by senders, summed by receivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.queue_cases import BY_NUMBER, BY_PAIR, BY_WORD, GROUP, MIX, WEIGHTS, WORD, Case
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir, vector


def byte() -> ir.Type:
    return ir.IntegerType.get_signless(8)


def wrapped(x: int) -> int:
    """A number as a signed i32."""
    return (x + 2**31) % 2**32 - 2**31


@dataclass
class Words:
    """The 16-byte words of a piece that a thread (its number in the agent) writes and sums."""

    case: Case
    pair: ir.Value
    thread: ir.Value

    def fill(self, pointer: ir.Value, number: ir.Value) -> None:
        """Writes piece `number` at the address."""
        salt = device.add(device.mul(number, wrapped(BY_NUMBER)), device.mul(self.pair, wrapped(BY_PAIR)))

        def one(word: Int) -> None:
            first = device.value(device.add(device.mul(word, wrapped(BY_WORD)), salt))
            parts = [arith.xori(first, device.value(i)) for i in range(4)]
            device.store(make_vector(parts), device.offset(pointer, device.mul(word, WORD), byte()), WORD)

        self._each(one)

    def total(self, pointer: ir.Value, sums: ir.Value) -> ir.Value:
        """The thread's checksum with the piece at the address."""
        type_ = ir.VectorType.get([4], device.i32())
        if self.case.touch == "stamp":
            places = [0, self.case.slot_bytes - WORD]
            words = [device.load(device.offset(pointer, at, byte()), type_, WORD) for at in places]
            return mix(words, sums)
        count = self.case.slot_bytes // WORD
        mine = device.offset(pointer, device.mul(self.thread, WORD), byte())
        if count < GROUP:
            return device.choose(
                device.less(self.thread, count), device.i32(), lambda: mix([device.load(mine, type_, WORD)], sums),
                lambda: sums,
            )  # fmt: skip
        at_once = min(8, count // GROUP)

        def some(start: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            place = device.offset(mine, device.mul(start, WORD), byte())
            words = [device.load(device.offset(place, i * GROUP * WORD, byte()), type_, WORD) for i in range(at_once)]
            return [mix(words, carried[0])]

        return device.loop(0, count, at_once * GROUP, some, [sums])[0]

    def _each(self, one: Callable[[Int], None]) -> None:
        count = self.case.slot_bytes // WORD
        if self.case.touch == "stamp":
            one(0)
            one(count - 1)
        elif count < GROUP:
            with device.when(device.less(self.thread, count)):
                one(self.thread)
        else:
            at_once = min(4, count // GROUP)

            def some(start: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                for i in range(at_once):
                    one(device.add(device.add(start, self.thread), i * GROUP))
                return []

            device.loop(0, count, at_once * GROUP, some)


def make_vector(parts: list[ir.Value]) -> ir.Value:
    return vector.from_elements(ir.VectorType.get([4], device.i32()), parts)


def mix(words: list[ir.Value], sums: ir.Value) -> ir.Value:
    for word in words:
        parts = [vector.extract(word, [], [i]) for i in range(4)]
        total: Int = 0
        for part, weight in zip(parts, WEIGHTS):
            total = device.add(total, device.mul(part, weight))
        sums = device.value(device.add(device.mul(sums, MIX), total))
    return sums
