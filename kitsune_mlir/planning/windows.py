"""The windows of a convolution as rows of a matrix, and how the copy engine reads them (PTX ISA, Im2col mode).

An image has its channels last: batch x sizes x channels. A filter sees it through windows, `places` of them along each
dimension of its space, `strides` apart, the first one `low` elements before the image, the filter's elements
`dilations` apart; what lies outside the image is zero. As a matrix a window is a row. Its columns are the filter's
elements in row-major order, for each the channels, filled up with zeros to whole chunks: so a chunk of 64 columns is
one element of the filter. Of few channels chunks may have fewer columns (`narrow`), for zeros behind an image's
channels take the copy engine longer than channels do, and tensor cores as long. The matrix is nowhere in memory: the
copy engine reads rows of it from the image. Where filters see one of several blocks of the channels each, a window has
a row of the columns for each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, gcd, prod

from .kernel_cost import SECTOR
from .product_engines import CHUNK, Warpgroups
from .product_widths import ROW_CYCLES, WindowChunks, in_two_lines, sectors

GRANULE = 16  # bytes of which the copy engine's strides are multiples
STEP = 16  # columns of which chunks are multiples: those of one product of 16-bit numbers
# Cycles of the copy engine for a granule of a box that is behind the image's channels: 262,144 windows of 125 elements
# of 8 channels, in chunks of 64, took an H100 1.1 ms.
BEHIND_CYCLES = 1.0
# Bytes a cycle that the L2 gives an SM where all ask, and cycles of a chunk for each of a tile's rows (H100).
L2_BYTES, TURN_CYCLES = 32.0, 0.2
OPEN = -1  # a size, or a number of places, that is open until the call
MOST_STRIDE = 8  # elements that the copy engine may skip between windows
# By dimensions of space: the bits of a corner of the box of windows, which is relative to the image, and of an offset.
_CORNER_BITS = {1: 16, 2: 8, 3: 5}
_OFFSET_BITS = {1: 16, 2: 8, 3: 5}


@dataclass(frozen=True)
class Windows:
    """Windows on images of `sizes` x `channels`, as the head of this file has them."""

    sizes: tuple[int, ...]
    channels: int
    filter: tuple[int, ...]
    strides: tuple[int, ...]
    low: tuple[int, ...]
    dilations: tuple[int, ...]
    places: tuple[int, ...]
    blocks: int = 1  # of channels; of several each is of whole chunks
    chunk: int = CHUNK
    ends: tuple[int, ...] = ()  # where sizes and places are open until the call (OPEN): `upper`, which are known

    @property
    def is_open(self) -> bool:
        """Whether sizes are open until the call."""
        return OPEN in self.sizes

    def of_sizes(self, sizes: tuple[int, ...]) -> Windows:
        """Windows on images of open sizes where these are known."""
        reach = (size + upper - lower - 1 for size, lower, upper in zip(sizes, self.lower, self.upper))
        places = tuple(far // stride + 1 for far, stride in zip(reach, self.strides))
        return replace(self, sizes=sizes, places=places, ends=())

    def narrow(self, pitches: tuple[int, ...]) -> Windows:
        """The same in chunks of so many columns that they are copied soonest; `pitches` as `row_cycles` has them."""
        widths = [STEP] if self.channels <= STEP else range(2 * STEP, CHUNK + 1, STEP)
        found = [replace(self, chunk=width) for width in widths]
        return min(found, key=lambda own: (round(own.copy_cycles(pitches), 1), own.columns, -own.chunk))

    def chunks(self, operand: str, pitches: tuple[int, ...], words: int = 1) -> WindowChunks:
        """What a window's row of a chunk takes the copy engine and the L2, on average over an element's chunks.
        Elements are `pitches` numbers apart along all dimensions but the channels, each of so many `words` of 16 bits.
        What lies in two lines takes twice as long: so 3 x 3 of 165 channels of f32 are predicted within 5 % (H100)."""
        own, chunk = ceil(self.channels / self.blocks) * 2 * words, 2 * self.chunk
        starts = range(0, self.depth * 2 * words, chunk)
        unit = gcd(chunk if len(starts) > 1 else 0, *(2 * words * pitch for pitch in pitches))
        there = [min(max(own - start, 0), chunk) for start in starts]
        lines = [1 + in_two_lines(unit, each) for each in there]
        cycles = [max(ROW_CYCLES, each * count / Warpgroups.loaded) for each, count in zip(there, lines)]
        behind = sum(chunk - each for each in there) / GRANULE * BEHIND_CYCLES
        nbytes = SECTOR * sum(sectors(unit, each) for each in there)
        return WindowChunks(operand, self.chunk, (sum(cycles) + behind) / len(starts), nbytes / len(starts))

    def copy_cycles(self, pitches: tuple[int, ...]) -> float:
        """Cycles that a window of 16-bit numbers takes until it is copied, where nothing else bounds its kernel."""
        own = self.chunks("", pitches)
        return self.columns / self.chunk * (max(own.row_cycles, own.row_bytes / L2_BYTES) + TURN_CYCLES)

    @property
    def pitches(self) -> tuple[int, ...]:
        """How far apart elements of 16 bits of dense images are along all dimensions but the channels."""
        channels = ceil(self.channels * 2 / GRANULE) * GRANULE // 2
        return tuple(prod((*self.sizes[d:], channels)) for d in range(len(self.sizes) + 1))

    @property
    def count(self) -> int:
        """The windows of one image."""
        return prod(self.places)

    @property
    def depth(self) -> int:
        """Columns of one element of the filter."""
        return ceil(self.channels / self.blocks / self.chunk) * self.chunk

    @property
    def columns(self) -> int:
        """Columns of the matrix, or of each block."""
        return prod(self.filter) * self.depth

    @property
    def lower(self) -> tuple[int, ...]:
        """Along each dimension, where the first window begins."""
        return tuple(-low for low in self.low)

    @property
    def upper(self) -> tuple[int, ...]:
        """Along each dimension, where the last window begins, relative to the image's last element, or where it would
        begin if windows were neighbours."""
        if self.ends:
            return self.ends
        ends = zip(self.places, self.strides, self.low, self.sizes)
        return tuple((count - 1) * stride - low - (size - 1) for count, stride, low, size in ends)

    def elements(self) -> Iterator[tuple[int, ...]]:
        """The filter's elements in the order of the columns: how far each is from the window's begin."""
        for number in range(prod(self.filter)):
            yield self.element(number)

    def element(self, number: int) -> tuple[int, ...]:
        """How far the filter's element of that number is from the window's begin."""
        return tuple(i * dilation for i, dilation in zip(split(number, self.filter), self.dilations))

    def seen(self, patch: tuple[int, ...]) -> tuple[int, ...]:
        """The elements of an image along each dimension that windows see whose places are a patch of these sizes, where
        places are neighbours."""
        reach = ((size - 1) * dilation for size, dilation in zip(self.filter, self.dilations))
        return tuple(size + more for size, more in zip(patch, reach))

    def unreadable(self) -> str | None:
        """Why the copy engine cannot read them, or None where it can."""
        rank = len(self.sizes)
        if rank not in _CORNER_BITS:
            return f"it has {rank} dimensions of space"
        most = 1 << (_CORNER_BITS[rank] - 1)
        if max(self.strides) > MOST_STRIDE:
            return f"its windows are {max(self.strides)} elements apart"
        if not all(-most <= corner < most for corner in (*self.lower, *self.upper)):
            return f"its windows begin {self.lower} from the image's begin and {self.upper} from its end"
        far = max((size - 1) * dilation for size, dilation in zip(self.filter, self.dilations))
        if far >= 1 << _OFFSET_BITS[rank]:
            return f"its filter reaches {far} elements far"
        return None


def split(number: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """A row-major number as an index along each of these sizes; the first one takes what is left."""
    found: list[int] = []
    for size in reversed(sizes[1:]):
        number, index = divmod(number, size)
        found.append(index)
    return (number, *reversed(found))
