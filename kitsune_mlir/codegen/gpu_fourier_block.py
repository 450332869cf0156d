"""Lines of numbers of two parts that a block of threads holds: which threads have which, and where in shared memory
they lie between two passes (gpu_fourier.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kitsune_mlir.mlir import arith, gpu, ir
from kitsune_mlir.planning.kernel_cost import MOST_TRANSFORMED

from .fourier import Pass, Transform
from .gpu_kernel import WARP, as_value, ceildiv, delinearize, only_if, power_of_two, product

_OF_THREAD = 16  # numbers
_NUMBERS = 2048  # of a block whose lines are short
_BESIDE = 8  # lines that a block has where numbers of one line lie apart: what L2 hands over at once
_BLOCKS = 264  # at least so many, where lines are few: two for each SM
ROUND = 128  # bytes that shared memory gives at once


class Share(NamedTuple):
    """A point that a thread has: its line and place. One that may not be there has a number, which is less than the
    count if it is."""

    line: ir.Value
    place: ir.Value
    number: ir.Value | None
    count: int

    def if_there(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.number is None else only_if(self.number, self.count)


@dataclass(frozen=True)
class Block:
    """A block's lines, of `size` numbers each; `strided` where those of a line lie apart."""

    size: int
    lines: int
    strided: bool

    @staticmethod
    def of(transform: Transform, size: int) -> Block:
        """That of a transform's kernel."""
        shape = list(ir.MemRefType(transform.parts[0].type).shape)
        strided = any(count != 1 for count in shape[transform.dimension + 1 :])
        most = MOST_TRANSFORMED * 32 // transform.element.width // size
        least = min(_BESIDE, most) if strided else 1
        lines = max(least, min(most, _NUMBERS // size), 1)
        del shape[transform.dimension]
        if all(count > 0 for count in shape):
            while lines > least and ceildiv(product(shape), lines) < _BLOCKS:
                lines //= 2
        return Block(size, max(lines, least), strided)

    @property
    def threads(self) -> int:
        return max(WARP, -(-self.size * self.lines // (_OF_THREAD * WARP)) * WARP)

    def shares(self, each: int) -> Iterator[Share]:
        """What a thread has of so many points of each line. A thread that has none left has the last one."""
        thread, count = gpu.thread_id(gpu.Dimension.x), each * self.lines
        for first in range(0, count, self.threads):
            point = arith.addi(thread, as_value(first))
            own = point if first + self.threads <= count else arith.minui(point, as_value(count - 1))
            sides = [each, self.lines] if self.strided else [self.lines, each]
            line, place = delinearize(own, sides)[:: -1 if self.strided else 1]
            yield Share(line, place, point if own != point else None, count)


@dataclass(frozen=True)
class Layout:
    """Where a block's numbers lie in shared memory between two passes: `pad` slots are left out behind each `chunk`,
    lest threads that write what a pass gives meet in a bank."""

    own: Block
    chunk: int
    pad: int

    @staticmethod
    def of(own: Block, made: Pass, banks: int) -> Layout:
        """That of what a pass gives."""
        run = made.done * (own.lines if own.strided else 1)
        chunk = max(banks, power_of_two(run * made.radix))
        return Layout(own, chunk, min(run, chunk // 8) if run < banks and made.radix % 2 == 0 else 0)

    @property
    def slots(self) -> int:
        """How many there are."""
        count = self.own.lines * self.own.size
        return count + (count - 1) // self.chunk * self.pad

    def slots_of(self, line: ir.Value, first: ir.Value, steps: Sequence[int], whole: int = 0) -> list[ir.Value]:
        """Those of a line's numbers that are so many behind `first`. `whole`: all are among so many that begin at a
        multiple of that."""
        pitch = self.own.lines if self.own.strided else 1
        inside = whole > 0 and self.chunk % (whole * pitch) == 0
        if self.pad and not inside and any(step * pitch % self.chunk for step in steps):
            return [self._slot(line, arith.addi(first, as_value(step))) for step in steps]
        begin = self._slot(line, first)
        moves = [step * pitch + step * pitch // self.chunk * self.pad for step in steps]
        return [arith.addi(begin, as_value(move)) for move in moves]

    def _slot(self, line: ir.Value, place: ir.Value) -> ir.Value:
        a, b, pitch = (place, line, self.own.lines) if self.own.strided else (line, place, self.own.size)
        at = arith.addi(arith.muli(a, as_value(pitch)), b)
        if not self.pad:
            return at
        return arith.addi(at, arith.muli(arith.divui(at, as_value(self.chunk)), as_value(self.pad)))
