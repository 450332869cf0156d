"""Discrete Fourier transforms on a CPU: a line's numbers are copied to memory of its own, and the passes go from one
buffer to another (Cooley and Tukey 1965, in Stockham's order).

    %x:2 = call @kitsune_fourier0(%waves, %re, %im)
  =>
    for each line:  a = its numbers;  for each pass: for each butterfly: b = what it gives of a; a, b = b, a;  %x = a
"""

from __future__ import annotations

import contextlib

from kitsune_mlir.mlir import arith, ir, memref

from .cpu_build import dim, each, index
from .fourier import Complex, Pass, Transform, butterfly, passes, scaled, transforms, turned


def lower_transforms(module: ir.Module) -> None:
    """Puts loops in the place of the calls of transforms, in buffers that are made in front of them."""
    for transform in transforms(module):
        with transform.call.location, ir.InsertionPoint(transform.call):
            _Lines(transform).build()


class _Lines:
    """The lines of a transform's tensors, and the buffers that it goes through them with."""

    def __init__(self, transform: Transform):
        self._of = transform
        self._others = [d for d in range(ir.MemRefType(transform.parts[0].type).rank) if d != transform.dimension]
        line = ir.MemRefType.get([transform.size], transform.element)
        self._buffers = [Complex(*(memref.alloc(line, [], []) for _ in range(2))) for _ in range(2)]
        self._results = []
        for result in transform.call.results:
            kind = ir.MemRefType(result.type)
            sizes = [dim(transform.parts[0], d) for d in self._others if kind.is_dynamic_dim(d)]
            self._results.append(memref.alloc(kind, sizes, []))

    def build(self) -> None:
        """Builds the loops."""
        outer = list[ir.Value]()
        with contextlib.ExitStack() as turns:
            for d in self._others:
                outer.append(turns.enter_context(each(index(0), dim(self._of.parts[0], d))))
            self._transform(outer)
        self._of.replace(*self._results)

    def _transform(self, outer: list[ir.Value]) -> None:
        source, target = self._buffers
        self._load(outer, source)
        for own in passes(self._of.size):
            with each(index(0), index(own.butterflies // own.done)) as group, each(index(0), index(own.done)) as beside:
                self._pass(own, group, beside, source, target)
            source, target = target, source
        with each(index(0), index(self._of.kept)) as j:
            number = scaled(Complex(*(memref.load(buffer, [j]) for buffer in source)), self._of.scale)
            for part, result in zip(number, self._results, strict=False):  # of a real result the first alone
                memref.store(part, result, self._at(outer, j))

    def _pass(self, own: Pass, group: ir.Value, beside: ir.Value, source: Complex, target: Complex) -> None:
        """A butterfly: that of number `beside` of a group."""
        begin = arith.muli(group, index(own.done))
        place = arith.addi(begin, beside)
        numbers = []
        for i in range(own.radix):
            at = arith.addi(place, index(i * own.butterflies))
            numbers.append(Complex(*(memref.load(buffer, [at]) for buffer in source)))
        if own.done > 1:
            turn = own.size // (own.done * own.radix)
            numbers = turned(numbers, lambda i: self._wave(beside, i * turn), self._of.inverse)
        first = arith.addi(arith.muli(begin, index(own.radix)), beside)
        for i, number in enumerate(butterfly(numbers, self._of.inverse)):
            at = arith.addi(first, index(i * own.done))
            for part, buffer in zip(number, target, strict=True):
                memref.store(part, buffer, [at])

    def _wave(self, number: ir.Value, turn: int) -> Complex:
        at = arith.muli(number, index(turn))
        return Complex(*(memref.load(self._of.waves, [at, index(part)]) for part in range(2)))

    def _load(self, outer: list[ir.Value], into: Complex) -> None:
        """Copies a line, with zeros behind it."""
        there = min(self._of.given, self._of.size // 2 + 1 if self._of.is_real else self._of.size)
        zero = arith.constant(self._of.element, 0.0)
        with each(index(0), index(there)) as j:
            found = [memref.load(part, self._at(outer, j)) for part in self._of.parts]
            for part, buffer in zip((*found, zero), into, strict=False):
                memref.store(part, buffer, [j])
        with each(index(there), index(self._of.size)) as j:
            for buffer in into:
                memref.store(zero, buffer, [j])
        if self._of.is_real:
            self._mirror(into, zero)

    def _mirror(self, line: Complex, zero: ir.Value) -> None:
        """Makes the second half of numbers whose transform is real: the conjugates of the first. The first one, and
        that in the middle, are real."""
        size, half = self._of.size, self._of.size // 2
        for at in [0] + [half] * (size % 2 == 0):
            memref.store(zero, line.im, [index(at)])
        with each(index(1), index(size - half)) as j:
            at = arith.subi(index(size), j)
            memref.store(memref.load(line.re, [j]), line.re, [at])
            memref.store(arith.negf(memref.load(line.im, [j])), line.im, [at])

    def _at(self, outer: list[ir.Value], place: ir.Value) -> list[ir.Value]:
        return [*outer[: self._of.dimension], place, *outer[self._of.dimension :]]
