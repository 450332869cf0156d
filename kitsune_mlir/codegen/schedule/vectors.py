"""Boxes of tensors in global memory whose elements threads read and write by vectors, neighbours along a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from kitsune_mlir.codegen.hopper.fragments import is_packed, unpack
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int, Offset
from kitsune_mlir.codegen.pipeline.memory import compute_type, narrowed, storage_type, widened
from kitsune_mlir.mlir import arith, ir

from .boxes import GlobalBox


class VectorBox(GlobalBox):
    """A box whose columns begin at a multiple of `vector` elements where that is given: the tensor's lines may have any
    length then. What is `streamed` is not kept in L1."""

    vector: int | None = None
    streamed: bool = False

    def has_vector(self, index: Sequence[Int], inside: ir.Value | None) -> ir.Value | None:
        """Whether the tensor has the neighbours along the last dimension from an index on, or the first of them where
        its lines are no multiples of so many; None where it has in any case. `inside` says so of the box."""
        dim = len(index) - 1
        if inside is not None or self.surely_has(dim, index[-1]):
            return inside
        return self.is_inside(dim, device.add(index[-1], (self.vector or 1) - 1))

    def load_vectors(self, runs: Sequence[tuple[Sequence[Int], int, ir.Value | None]]) -> list[list[ir.Value]]:
        """`load_vector` of several, of lines of any length: all are on their way before the first is there."""
        runs = [(first, count, self.has_vector(first, inside)) for first, count, inside in runs]

        def together() -> list[ir.Value]:
            return [x for first, count, inside in runs for x in self.load_vector(first, count, inside)]

        def apart() -> list[ir.Value]:
            return [self.load(place) for places in _all_places(runs) for place in places]

        lengths = [count for _, count, _ in runs]
        types = [compute_type(self.element)] * sum(lengths)
        found = iter(self._by_length(lengths[0], together, apart, types))
        return [[next(found) for _ in range(count)] for count in lengths]

    def load_words(self, runs: Sequence[tuple[Sequence[Int], int, ir.Value | None]]) -> list[ir.Value]:
        """The same as words, for a loop to carry: two elements of 16 bits are one where they are neighbours."""
        runs = [(first, count, self.has_vector(first, inside)) for first, count, inside in runs]
        each = self.in_word(runs[0][1])
        kind = storage_type(self.element) if each == 1 else device.i32()

        def together() -> list[ir.Value]:
            return [x for first, count, inside in runs for x in self._words_of(first, count, inside, kind)]

        def apart() -> list[ir.Value]:
            found = [self._clamped_element(place) for places in _all_places(runs) for place in places]
            return found if each == 1 else [_joined(*pair) for pair in zip(found[::2], found[1::2], strict=True)]

        return self._by_length(runs[0][1], together, apart, [kind] * (sum(count for _, count, _ in runs) // each))

    def in_word(self, count: int) -> int:
        """How many of so many neighbouring elements are a word of `load_words`."""
        return 2 if is_packed(self.element) and count % 2 == 0 and self._step % 2 == 0 else 1

    def elements(self, words: Sequence[ir.Value], each: int) -> list[ir.Value]:
        """The elements of words, of the compute type."""
        if each == 1:
            return [widened(x, self.element) for x in words]
        return [unpack(word, e, self.element) for word in words for e in range(each)]

    def _words_of(self, index: Sequence[Int], count: int, inside: ir.Value | None, kind: ir.Type) -> list[ir.Value]:
        """The words of a vector; `kind` is what they are. Of one at a multiple of its size that is not there zeros:
        no address is surely such a multiple then."""
        element = storage_type(self.element)
        each = kind.width // element.width

        def loaded() -> list[ir.Value]:
            place = self._vector(index, None if self.vector else inside)
            return [
                word
                for start, width in self._accesses(count)
                for word in device.load_together(
                    device.offset(place, start, element), width // each, kind, self.streamed
                )
            ]

        if self.vector is None or inside is None:
            return loaded()
        zeros = [arith.constant(kind, 0 if isinstance(kind, ir.IntegerType) else 0.0)] * (count // each)
        return device.either(inside, loaded, lambda: zeros, [kind] * len(zeros))

    def _clamped_element(self, index: Sequence[Int]) -> ir.Value:
        """An element as it is stored, the last one's where the tensor has none there."""
        return device.load(self._place(self._all_clamped(index)), storage_type(self.element))

    def _by_length(
        self,
        count: int,
        together: Callable[[], list[ir.Value] | None],
        apart: Callable[[], list[ir.Value] | None],
        types: Sequence[ir.Type] = (),
    ) -> list[ir.Value]:
        """One of two codes, by whether so many neighbours lie `together`, at a multiple of their number, in all lines:
        where one access has some of them only, a line may end between two."""
        size = self._sizes[self._axes[-1]]
        if count == 1 or self.vector is not None and not self._step:
            return together() or []
        if isinstance(size, int):
            return (together if size % count == 0 else apart)() or []
        return device.either(device.equal(device.mod(size, count), 0), together, apart, types)

    def load_vector(self, index: Sequence[Int], count: int, inside: ir.Value | None) -> list[ir.Value]:
        """So many neighbours along the last dimension, the first at an address that is a multiple of their size or of
        16 bytes; those of the last row where the tensor has no such row, the row's first where it is not `inside`."""
        return self._loaded(self._vector(index, inside), count)

    def _vector(self, index: Sequence[Int], inside: ir.Value | None) -> ir.Value:
        """The address of a vector that is loaded."""
        *outer, last = index
        base = self._place([*self._all_clamped(outer), self._at[self._axes[-1]]])
        if inside is not None:
            last = arith.select(inside, device.value(last), device.value(0))
        return self._further(base, last)

    def load_run(self, index: Sequence[Int], count: int) -> list[ir.Value]:
        """So many neighbours along the first dimension, in which the tensor's elements are neighbours too: the tensor's
        last ones where it has no such. The first is at a multiple of them."""
        first, *rest = index
        places = [self._clamped(0, first, count), *(self._clamped(d, i) for d, i in enumerate(rest, 1))]
        return self._loaded(self._place(places), count)

    def _loaded(self, place: ir.Value, count: int) -> list[ir.Value]:
        """So many neighbours from an address on."""
        found: list[ir.Value] = []
        for start, width in self._accesses(count):
            at = device.offset(place, start, storage_type(self.element))
            found += device.load_together(at, width, storage_type(self.element), self.streamed)
        return [widened(x, self.element) for x in found]

    def store_vector(self, index: Sequence[Int], values: Sequence[ir.Value]) -> None:
        """Stores neighbours as `load_vectors` loads them; the tensor has the first."""
        *outer, last = index

        def apart() -> None:
            for e, x in enumerate(values):
                with self.where_inside(len(outer), device.add(last, e)):
                    self.store([*outer, device.add(last, e)], x)

        def together() -> None:
            base = self._place([*self._all_along(outer), self._at[self._axes[-1]]])
            self._stored(values, self._further(base, last))

        self._by_length(len(values), together, apart)

    def store_run(self, index: Sequence[Int], values: Sequence[ir.Value]) -> None:
        """Stores neighbours as `load_run` loads them; the tensor has them."""
        self._stored(values, self._place(self._all_along(index)))

    def _stored(self, values: Sequence[ir.Value], place: ir.Value) -> None:
        stored = [narrowed(x, self.element) for x in values]
        for start, width in self._accesses(len(values)):
            at = device.offset(place, start, storage_type(self.element))
            device.store_together(stored[start : start + width], at, self.streamed)

    def _accesses(self, count: int) -> list[tuple[int, int]]:
        """Neighbours that are accessed together: the first's number and how many, of 16 bytes at most."""
        width = gcd(min(count, 16 * 8 // storage_type(self.element).width), self._step)
        return [(start, width) for start in range(0, count, width)]

    def _further(self, base: ir.Value, column: Int) -> ir.Value:
        """The address of a column of a row."""
        element = storage_type(self.element)
        if isinstance(column, Offset):
            return device.offset(self._moved(base, column.base, 1), column.constant, element)
        return self._moved(base, column, 1)


def _all_places(runs: Sequence[tuple[Sequence[Int], int, ir.Value | None]]) -> list[list[list[Int]]]:
    """The indices of the elements of vectors."""
    return [[[*first[:-1], device.add(first[-1], e)] for e in range(count)] for first, count, _ in runs]


def _joined(low: ir.Value, high: ir.Value) -> ir.Value:
    """Two numbers of 16 bits as a word."""
    i16 = ir.IntegerType.get_signless(16)
    bits = [arith.extui(device.i32(), arith.bitcast(i16, x)) for x in (low, high)]
    return arith.ori(bits[0], arith.shli(bits[1], device.value(16)))
