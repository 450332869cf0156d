"""Discrete Fourier transforms whose numbers a block of threads holds (Cooley and Tukey 1965, in Stockham's order).

    %x:2 = call @kitsune_fourier0(%waves, %re, %im)          waves: n x 2

A pass takes the numbers of its butterflies into registers, the first from memory, others from shared memory, and
puts them back when all have read; the last one writes to memory. A block has several lines where these are short; where
numbers of a line lie apart, neighbouring threads have neighbouring lines.

Of an even count n of real numbers x, which are z[j] = x[2j] + i x[2j+1], m = n / 2 of them, the transform is

    X[k] = (Z[k] + Z*[m-k]) / 2 - i exp(-2 pi i k / n) (Z[k] - Z*[m-k]) / 2

and to have real numbers, of X[0] ... X[m], Z is transformed backwards, which is

    Z[k] = (X[k] + X*[m-k]) + i exp(2 pi i k / n) (X[k] - X*[m-k])
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from kitsune_mlir.mlir import arith, func, gpu, ir, memref

from . import gpu_words
from .fourier import Complex, Pass, Transform, butterfly, multiplied, passes, scaled, transforms, turned
from .gpu_around import Around, Operators
from .gpu_fourier_block import ROUND, Block, Layout, Share
from .gpu_generic import Generic
from .gpu_kernel import (
    Kernel,
    Kernels,
    See,
    Size,
    as_value,
    ceildiv,
    delinearize,
    extent,
    on_host,
    only_if,
    product,
)
from .gpu_points import body_at
from .gpu_word_access import keeps_words, load_word, store_word
from .pipeline.device import below, when

LONG, MOST = 24, 96  # operations of what is computed in front of a kernel, twice and once


def lower_transforms(module: ir.Module, main: func.FuncOp, kernels: Kernels) -> None:
    """Puts the kernels' launches in the place of the calls of transforms."""
    found = [one for one in transforms(module) if one.call.block == main.body.blocks[0]]
    taken = set[ir.Operation]()
    # While no launch, which may write anything, is in the way. A number is read twice by what is halved and real.
    most = [LONG if one.is_real and _is_halved(one) else MOST for one in found]
    around = [Around.of(one.call, one.parts, limit, taken) for one, limit in zip(found, most, strict=True)]
    for transform, own in zip(found, around, strict=True):
        _lower(transform, own.read(transform.parts), kernels)


def _lower(transform: Transform, around: Operators, kernels: Kernels) -> None:
    op, rank = transform.call, ir.MemRefType(transform.parts[0].type).rank
    others = [d for d in range(rank) if d != transform.dimension]
    halved = _is_halved(transform)

    def outer(see: See) -> list[Size]:
        return [around.size(transform.parts[0], d, see) for d in others]

    with op.context, op.location, ir.InsertionPoint(op):
        results = []
        for result in [] if around.after else op.results:
            sizes = [extent(transform.parts[0], d) for d in others if ir.MemRefType(result.type).is_dynamic_dim(d)]
            results.append(memref.alloc(result.type, sizes, []))
    own = Block.of(transform, transform.size // 2 if halved else transform.size)
    kernel = Kernel(kernels, op, "fourier", own.threads)
    with kernel.body():
        _Code(kernel, transform, own, around, results, outer(kernel.inside), halved).build()
    kernel.launch(lambda: ceildiv(product(outer(on_host)), own.lines))
    around.erase()
    transform.replace(*results)


def _is_halved(transform: Transform) -> bool:
    """Whether pairs of real numbers are taken for numbers of two parts."""
    return transform.size % 2 == 0 and transform.size > 2 and (len(transform.parts) == 1 or transform.is_real)


class _Code:
    """A kernel's code. `halved`: pairs of real numbers are numbers of two parts."""

    def __init__(
        self,
        kernel: Kernel,
        transform: Transform,
        own: Block,
        around: Operators,
        results: Sequence[ir.Value],
        outer: list[Size],
        halved: bool,
    ):
        self._of, self._own, self._outer, self._halved = transform, own, outer, halved
        self._kernel, self._around = kernel, around
        self._results = list(map(kernel.inside, results))
        self._waves = kernel.inside(transform.waves)
        self._passes = passes(own.size)
        stored = self._passes if self._from_real else self._passes[:-1]
        banks = ROUND * 8 // (2 * transform.element.width)
        self._layouts = {made: Layout.of(own, made, banks) for made in stored}
        slots = max((layout.slots for layout in self._layouts.values()), default=1)
        self._shared = kernel.shared([slots, 2], transform.element)
        self._first = arith.muli(gpu.block_id(gpu.Dimension.x), as_value(own.lines))
        self._inverse = transform.is_real or (transform.inverse and not self._from_real)
        self._mirrored = transform.is_real and not transform.inverse  # which is backwards, of the conjugates

    @property
    def _from_real(self) -> bool:
        """Whether real numbers are transformed as half as many."""
        return self._halved and not self._of.is_real

    @property
    def _is_last(self) -> bool:
        """Whether numbers of a line lie beside one another."""
        return self._of.dimension == ir.MemRefType(self._of.parts[0].type).rank - 1

    def build(self) -> None:
        """Builds the passes."""
        before = None
        for own in self._passes:
            every = list(self._own.shares(own.butterflies))
            given = [(share, self._read(own, before, share)) for share in every]
            if before is not None:
                gpu.barrier()  # all have read what is now written over
            for share, numbers in given:
                with share.if_there():
                    self._write(own, share, numbers)
            if own in self._layouts:
                gpu.barrier()
            before = own
        if self._from_real:
            self._part()

    def _read(self, own: Pass, before: Pass | None, share: Share) -> list[Complex]:
        """What a butterfly gives, of what the pass before gave."""
        steps = [i * own.butterflies for i in range(own.radix)]
        if before is None:
            ends = [range(step, step + own.butterflies) for step in steps]
            places = [arith.addi(share.place, as_value(step)) for step in steps]
            return butterfly([self._load(share.line, *where) for where in zip(places, ends)], self._inverse)
        numbers = [self._get(slot) for slot in self._layouts[before].slots_of(share.line, share.place, steps)]
        within, turn = arith.remui(share.place, as_value(own.done)), own.size // (own.done * own.radix)
        numbers = turned(numbers, lambda i: self._wave(within, i * turn), self._inverse)
        return butterfly(numbers, self._inverse)

    def _write(self, own: Pass, share: Share, numbers: list[Complex]) -> None:
        """Puts what a butterfly gives where it is to be."""
        within = arith.remui(share.place, as_value(own.done))
        first = arith.addi(arith.muli(arith.subi(share.place, within), as_value(own.radix)), within)
        steps = [i * own.done for i in range(own.radix)]
        if own in self._layouts:
            slots = self._layouts[own].slots_of(share.line, first, steps, own.done * own.radix)
            for slot, number in zip(slots, numbers, strict=True):
                store_word(list(number), self._shared, [slot, as_value(0)])
            return
        with self._if_there(share.line):
            for step, number in zip(steps, numbers, strict=True):
                place = arith.addi(first, as_value(step))
                self._result(share.line, place, range(step, step + own.done), scaled(number, self._of.scale))

    def _get(self, slot: ir.Value) -> Complex:
        return Complex(*load_word(self._shared, [slot, as_value(0)], 2))

    def _wave(self, number: ir.Value, turn: int) -> Complex:
        """exp(2 pi i number turn / m), of a pass over m numbers."""
        return self._on_circle(arith.muli(number, as_value(turn * (self._of.size // self._own.size))))

    def _on_circle(self, at: ir.Value) -> Complex:
        """exp(2 pi i at / n)."""
        return Complex(*load_word(self._waves, [at, as_value(0)], 2))

    def _zero(self) -> ir.Value:
        return arith.constant(self._of.element, 0.0)

    def _load(self, line: ir.Value, place: ir.Value, places: range) -> Complex:
        """The number at a place, which is one of `places`, of what the passes transform."""
        if not self._of.is_real and not self._halved:
            found = self._elements(line, place, places)
            return Complex(found[0], found[1] if len(found) == 2 else self._zero())
        if self._from_real:
            twice = arith.muli(place, as_value(2))
            if 2 * places.stop <= self._of.given and self._is_last:
                return Complex(*self._two(line, twice))
            ends = range(2 * places.start, 2 * places.stop), range(2 * places.start + 1, 2 * places.stop + 1)
            first, second = twice, arith.addi(twice, as_value(1))
            return Complex(*(self._elements(line, at, own)[0] for at, own in zip((first, second), ends)))
        if not self._halved:
            return self._of_half(line, place, places)
        other = range(self._own.size + 1 - places.stop, self._own.size + 1 - places.start)
        a = self._of_half(line, place, places)
        b = self._of_half(line, arith.subi(as_value(self._own.size), place), other)
        wave = multiplied(self._on_circle(place), Complex(arith.subf(a.re, b.re), arith.addf(a.im, b.im)))
        return Complex(arith.subf(arith.addf(a.re, b.re), wave.im), arith.addf(arith.subf(a.im, b.im), wave.re))

    def _of_half(self, line: ir.Value, place: ir.Value, places: range) -> Complex:
        """The number at a place of all, of which the first half are given: others are conjugates. The first one, and
        that in the middle, are real."""
        n, half = self._of.size, self._of.size // 2
        behind, before = places.start > half, places.stop - 1 <= half
        if before:
            at, where = place, places
        else:
            mirrored = arith.subi(as_value(n), place)
            at = mirrored if behind else arith.minui(place, mirrored)
            where = range(n + 1 - places.stop, n + 1 - places.start) if behind else range(half + 1)
        re, im = self._elements(line, at, where)
        is_real = arith.cmpi(arith.CmpIPredicate.eq, at, as_value(0))
        if n % 2 == 0:
            is_real = arith.ori(is_real, arith.cmpi(arith.CmpIPredicate.eq, at, as_value(half)))
        im = arith.select(is_real, self._zero(), im)
        if behind != self._mirrored and (behind or before):
            im = arith.negf(im)
        elif not behind and not before:
            turns = below(as_value(half), place) if not self._mirrored else below(place, as_value(half + 1))
            im = arith.select(turns, arith.negf(im), im)
        return Complex(re, im)

    def _elements(self, line: ir.Value, place: ir.Value, places: range) -> list[ir.Value]:
        """The parts of what is given at a place; zeros where nothing is, which is known where it is at none of
        `places`."""
        given, parts = self._of.given, self._of.parts
        if places.start >= given:
            return [self._zero()] * len(parts)
        if places.stop <= given:
            return self._given(self._at(line, place))
        found = self._given(self._at(line, arith.minui(place, as_value(given - 1))))
        there = below(place, as_value(given))
        return [arith.select(there, value, self._zero()) for value in found]

    def _given(self, at: list[ir.Value]) -> list[ir.Value]:
        """The parts that are there, or made."""
        found, made = list[ir.Value](), dict[Generic, list[ir.Value]]()
        for part, own in zip(self._of.parts, self._around.before, strict=True):
            if own is None:
                found.append(memref.load(self._kernel.inside(part), at))
                continue
            generic, number = own
            if generic not in made:
                nothing = [None] * len(generic.outputs)
                made[generic] = body_at(generic, self._kernel, dict(enumerate(at)), nothing)
            found.append(made[generic][number])
        return found

    def _two(self, line: ir.Value, place: ir.Value) -> list[ir.Value]:
        """Two real numbers beside one another, from an even place on."""
        own, at = self._around.before[0], self._at(line, place)
        if own is None:
            return load_word(self._kernel.inside(self._of.parts[0]), at, 2)
        if gpu_words.width(own[0], few=True) % 2 == 0:
            found, _ = gpu_words.neighbours(own[0], self._kernel, dict(enumerate(at)), 2)
            return [values[own[1]] for values in found]
        return [self._given(self._at(line, where))[0] for where in (place, arith.addi(place, as_value(1)))]

    def _at(self, line: ir.Value, place: ir.Value) -> list[ir.Value]:
        """Where a line's element stands; that of the last line for one behind it."""
        line = arith.minui(arith.addi(self._first, line), arith.subi(as_value(product(self._outer)), as_value(1)))
        others = delinearize(line, self._outer) if self._outer else []
        return [*others[: self._of.dimension], place, *others[self._of.dimension :]]

    def _result(self, line: ir.Value, place: ir.Value, places: range, number: Complex) -> None:
        """Writes what the passes give at a place, one of `places`."""
        if not self._of.is_real:
            self._store(line, place, places, number)
        elif not self._halved:
            self._store(line, place, places, number[:1])
        elif 2 * places.stop <= self._of.kept and self._results and self._is_last and keeps_words(self._results[0], 2):
            store_word(list(number), self._results[0], self._at(line, arith.muli(place, as_value(2))))
        else:
            for j, part in enumerate(number):
                to = arith.addi(arith.muli(place, as_value(2)), as_value(j))
                self._store(line, to, range(2 * places.start + j, 2 * places.stop - 1 + j), [part])

    def _if_there(self, line: ir.Value) -> contextlib.AbstractContextManager[None]:
        return only_if(arith.addi(self._first, line), product(self._outer))

    def _store(self, line: ir.Value, place: ir.Value, places: range, number: Sequence[ir.Value]) -> None:
        """Writes a number to a place, one of `places`, if there is such a result."""
        if places.start >= self._of.kept:
            return
        with only_if(place, self._of.kept) if places.stop > self._of.kept else contextlib.nullcontext():
            at = self._at(line, place)
            for part, buffer in zip(number, self._results, strict=False):  # which are none where others take the parts
                memref.store(part, buffer, at)
            self._around.take(self._kernel, dict(zip(self._of.call.results, number, strict=True)), at)

    def _part(self) -> None:
        """The transform of real numbers, of that of half as many of two parts, which is in shared memory: X[k] and
        X[m-k] are made of the same two numbers."""
        m, layout = self._own.size, self._layouts[self._passes[-1]]
        half = arith.constant(self._of.element, 0.5 * self._of.scale)
        for share in self._own.shares((m + 1) // 2):
            line, k = share.line, share.place
            is_first = arith.cmpi(arith.CmpIPredicate.eq, k, as_value(0))
            mirrored = arith.subi(as_value(m), k)
            other = arith.select(is_first, as_value(0), mirrored)
            a, b = (self._get(*layout.slots_of(line, at, [0])) for at in (k, other))
            both = Complex(arith.addf(a.re, b.re), arith.subf(a.im, b.im))
            wave = self._on_circle(k)
            less = Complex(arith.subf(a.re, b.re), arith.addf(a.im, b.im))
            less = multiplied(Complex(wave.re, arith.negf(wave.im)), less)
            near = [arith.mulf(half, x) for x in (arith.addf(both.re, less.im), arith.subf(both.im, less.re))]
            far = [arith.mulf(half, x) for x in (arith.subf(both.re, less.im), arith.addf(both.im, less.re))]
            with share.if_there(), self._if_there(line):
                self._both(line, k, range((m + 1) // 2), Complex(*near))
                self._both(line, mirrored, range(m // 2 + 1, m + 1), Complex(far[0], arith.negf(far[1])))
                if m % 2 == 0:
                    with when(is_first):
                        middle = scaled(self._get(*layout.slots_of(line, as_value(m // 2), [0])), self._of.scale)
                        middle = Complex(middle.re, arith.negf(middle.im))
                        self._both(line, as_value(m // 2), range(m // 2, m // 2 + 1), middle)

    def _both(self, line: ir.Value, k: ir.Value, places: range, number: Complex) -> None:
        """Writes X[k], and X[n-k], its conjugate; of the transform backwards they change places."""
        n, (re, im) = self._of.size, number
        other = arith.negf(im)
        im, other = (other, im) if self._of.inverse else (im, other)
        self._store(line, k, places, [re, im])
        if self._of.kept > n // 2 + 1:
            self._store(line, arith.subi(as_value(n), k), range(n + 1 - places.stop, n + 1 - places.start), [re, other])
