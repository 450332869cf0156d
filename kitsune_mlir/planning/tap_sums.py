"""Whether a convolution of few outputs is faster as sums of products of single elements (passes/tap_sums.py).

As a product of windows an image's elements are read again for each of the filter's, of all their channels; as a product
with all the filter's elements at once they are read once, and as many numbers of f32 as filters have elements are
written for each, and read. Each image's tiles read all filters from L2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from .cut import KERNEL_US, PLAIN_DRAM
from .patch_tiles import choose_patches
from .product_engines import CHUNK
from .product_tiles import choose
from .target import Target
from .windows import Windows

MARGIN, NARROW_MARGIN = 0.9, 0.75  # of the time of windows, which is better known; where these have few channels
_SUM_BYTES = 4


@dataclass(frozen=True)
class TapSums:
    """A convolution of so many images and outputs, whose elements have `nbytes`; `pairs` products of 16-bit pieces are
    one of its, or `words` of f32 are multiplied as tf32."""

    images: int
    outputs: int
    windows: Windows
    nbytes: int
    pairs: int
    words: bool

    def is_faster(self, target: Target) -> bool:
        """Whether the sums are. Of fewer channels than a chunk has columns there is little that windows read again,
        unless each element is read as several pieces."""
        is_narrow = self.windows.channels < CHUNK
        if is_narrow and self.pairs == 1:
            return False
        return self._as_sums(target) < (NARROW_MARGIN if is_narrow else MARGIN) * self._as_windows(target)

    @property
    def _elements(self) -> int:
        return self.images * prod(self.windows.sizes)

    def _as_windows(self, target: Target) -> float:
        seen, outputs = self.windows, self.outputs
        chunks = seen.chunks("right", seen.pitches, 2 if self.words else 1)
        short = frozenset(["left"])
        sizes = self.images, outputs, seen.count, seen.columns
        tiles = choose(*sizes, False, self.pairs, target, words=self.words, short=short, windows=chunks)
        moved = self._elements * seen.channels + self.images * seen.count * outputs
        found = [tiles.microseconds] if tiles else []
        if self.pairs == 1:
            patches = choose_patches(self.images, outputs, seen, target, True, self.words, 0.0, 0, 0)
            found += [patches.microseconds] if patches else []
        return max(min(found, default=0.0), self._moved_us(moved * self.nbytes, target))

    def _as_sums(self, target: Target) -> float:
        seen = self.windows
        rows = self.outputs * prod(seen.filter)
        sizes = self.images, rows, prod(seen.sizes), seen.channels
        tiles = choose(*sizes, False, self.pairs, target, words=self.words)
        if tiles is None:
            return float("inf")
        between = self._elements * rows * _SUM_BYTES
        product = max(
            tiles.microseconds,
            self._moved_us(self._elements * seen.channels * self.nbytes + between, target),
            target.launch_us + self.images * rows * seen.channels * self.nbytes / (target.l2_gbps * 1e3),
        )
        written = self.images * seen.count * self.outputs * self.nbytes
        return product + KERNEL_US + self._moved_us(between + written, target)

    @staticmethod
    def _moved_us(nbytes: int, target: Target) -> float:
        return target.launch_us + nbytes / (PLAIN_DRAM * target.dram_gbps * 1e3)
