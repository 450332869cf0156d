"""Windows over lines that are no whole words, as those of 7 or 83 elements: threads compute neighbours all the same.

What neighbours' windows share is loaded once for all of them, element by element, and so is what they are multiplied
with. The last thread of a line computes its last element again in the place of those that there are none of, and stores
none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitsune_mlir.mlir import arith, ir, memref

from .affine_index import evaluate
from .gpu_generic import Generic
from .gpu_kernel import THREADS, Kernel, Size, as_value, ceildiv, only_if, product
from .gpu_words import ENOUGH, neighbours, of_thread, taps_of_lines

COUNT = 4  # neighbours of a thread: more would leave fewer threads, and many of them idle at the end of a short line

# Elements of a window of strides of 1 from which on that is faster: threads of a warp then load every COUNT-th element
# of a line, and of more lines. Where windows are further apart they share less, and lie in more lines.
LEAST = 9


@dataclass(frozen=True)
class Uneven:
    """An operator on windows of whose results each thread computes `count` neighbours, whether there are as many or
    not."""

    generic: Generic
    count: int

    @classmethod
    def of(cls, generic: Generic) -> Uneven | None:
        """None for any other operator, and where results are few."""
        sizes = [generic.known_size(d) for d in generic.parallel]
        if generic.reduction or not sizes or None in sizes:
            return None
        taps, step = taps_of_lines(generic)
        if not taps or taps < LEAST * step * step:
            return None
        own = cls(generic, COUNT)
        threads = prod(size for size in own.groups(lambda value: value) if isinstance(size, int))
        return own if sizes[-1] > 1 and threads >= ENOUGH else None

    def groups(self, see: object) -> list[Size]:
        """The sizes of the loops, that of the last in groups of neighbours."""
        *sizes, last = [self.generic.size(d, see) for d in self.generic.parallel]
        return [*sizes, ceildiv(last, self.count)]

    def blocks(self, see: object) -> Size:
        """Thread blocks that it wants."""
        return ceildiv(product(self.groups(see)), THREADS)

    def emit(self, block: ir.Value, kernel: Kernel) -> None:
        """The neighbours of block number `block`."""
        generic, last = self.generic, self.generic.parallel[-1]
        with of_thread(generic, kernel, block, self.groups(kernel.inside), self.count) as dims:
            found, _ = neighbours(generic, kernel, dims, self.count, even=False)
            for e, values in enumerate(found):
                column = arith.addi(dims[last], as_value(e)) if e else dims[last]
                place = [column if d == last else dims[d] for d in range(len(dims))]
                with only_if(column, generic.known_size(last)):
                    for value, buffer, map_ in zip(values, generic.outputs, generic.out_maps, strict=True):
                        memref.store(value, kernel.inside(buffer), evaluate(map_, place))
