"""How the threads of a GPU share the gradient of a convolution of few channels a group, by its filters.

A thread holds sums of some rows of taps, those along the last size of images, for neighbouring channels. It goes over
strips of places along that size, whose elements of the image are loaded once for all taps of a row. Threads side by
side have channels side by side, those behind them other strips; blocks have other channels, other rows of taps, or
other parts of the strips, whose sums are added up by a kernel behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

THREADS = 256  # of a block
WARP = 32
MOST_SUMS = 56  # that a thread holds
MOST_TAPS = 16  # of a row, which is cut where it has more
MOST_TOGETHER, MOST_BYTES = 4, 8  # channels of a thread, and the bytes of one word of them
MOST_STRIP = 16  # places
MOST_WORDS = 40  # of 32 bits of a strip, those of the image and of the gradient
STRIP_COST = 12  # loads that take as long as finding where a strip is
BLOCKS_AN_SM = 2
WASTED = 1.15  # times the channels for which there are threads, up to which a whole warp has channels side by side


@dataclass(frozen=True)
class Convolution:
    """One of images with channels last. `sizes` are those of images and `places` those of its results, along each size,
    None for open ones, whose numbers in an example are in `example`; `inputs` and `outputs` channels of a group."""

    batch: int
    sizes: tuple[int | None, ...]
    places: tuple[int | None, ...]
    example: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    groups: int
    inputs: int
    outputs: int
    element_bytes: int

    @property
    def channels(self) -> int:
        """Pairs of channels that a filter joins."""
        return self.groups * self.inputs * self.outputs

    @property
    def neighbours(self) -> int:
        """Pairs side by side that are of neighbouring channels, of the image, of the gradient, or of both."""
        if self.inputs > 1:
            return self.inputs
        return self.outputs if self.outputs > 1 else self.groups

    def is_within(self, size: int, first: int, last: int) -> bool:
        """Whether elements from one up to another, counted from the first that any window has, are in the image."""
        extent = self.sizes[size]
        return first >= self.padding[size] and extent is not None and last - self.padding[size] < extent

    def is_padded(self, size: int) -> bool:
        """Whether windows may have elements outside of the image along a size."""
        places = self.places[size]
        span = (self.kernel[size] - 1) * self.dilation[size]
        return places is None or not self.is_within(size, 0, (places - 1) * self.stride[size] + span)


@dataclass(frozen=True)
class Shares:
    """A thread's channels are `together`, `lanes` threads stand side by side. A row's taps are cut into `segments` of
    `taps`; a thread has `rows` of those rows, of which there are `row_parts` times as many. A strip has `strip`
    places; `parts` blocks share the strips."""

    together: int
    lanes: int
    taps: int
    segments: int
    rows: int
    row_parts: int
    strip: int
    parts: int

    @property
    def sums(self) -> int:
        """Those that a thread holds."""
        return self.rows * self.taps * self.together

    def channel_blocks(self, channels: int) -> int:
        """Blocks that have all channels."""
        return -(-channels // (self.together * self.lanes))

    def blocks(self, channels: int) -> int:
        """All that there are."""
        return self.parts * self.row_parts * self.segments * self.channel_blocks(channels)


def columns(of: Convolution, strip: int, taps: int) -> list[int]:
    """The elements along the last size that windows of a strip have in a row, counted from the first."""
    step, apart = of.stride[-1], of.dilation[-1]
    return sorted({place * step + tap * apart for place in range(strip) for tap in range(taps)})


def share(of: Convolution, sms: int) -> Shares:
    """How so many multiprocessors are kept busy."""
    taps = ceil(of.kernel[-1] / ceil(of.kernel[-1] / MOST_TAPS))
    segments, all_rows = ceil(of.kernel[-1] / taps), prod(of.kernel[:-1])
    together = _together(of, min(all_rows * taps, MOST_SUMS))
    row_parts = ceil(all_rows / max(1, MOST_SUMS // (taps * together)))
    rows = ceil(all_rows / row_parts)
    row_parts = ceil(all_rows / rows)
    lanes = _lanes(ceil(of.channels / together))
    strip = _strip(of, rows, taps, together)
    beside = row_parts * segments * ceil(of.channels / (together * lanes))
    strips = of.batch * prod(of.example[:-1]) * ceil(of.example[-1] / strip)
    behind = THREADS // lanes
    most = max(1, (BLOCKS_AN_SM * sms) // beside)
    turns = ceil(strips / (behind * most))
    return Shares(together, lanes, taps, segments, rows, row_parts, strip, max(1, ceil(strips / (behind * turns))))


def _together(of: Convolution, taps: int) -> int:
    """Channels of a thread."""
    count = MOST_TOGETHER
    while count > 1 and (
        of.neighbours % count or count * of.element_bytes > MOST_BYTES or (count > 2 and count * taps > MOST_SUMS)
    ):
        count //= 2
    return count


def _lanes(words: int) -> int:
    """Threads side by side that have so many words of channels, without too many that have none."""
    counts = [WARP >> i for i in range(4)]
    wasted = [count * ceil(words / count) / words for count in counts]
    return next((n for n, w in zip(counts, wasted, strict=True) if w <= WASTED), counts[wasted.index(min(wasted))])


def _strip(of: Convolution, rows: int, taps: int, together: int) -> int:
    """The places of a strip for which fewest words are loaded; those that are left over are strips of one each."""
    places, words = of.example[-1], max(1, together * of.element_bytes // 4)

    def cost(strip: int) -> float:
        of_strip = strip + rows * len(columns(of, strip, taps)) + STRIP_COST
        left = places % strip * (1 + rows * taps + STRIP_COST)
        return places // strip * of_strip + left

    fits = [
        n
        for n in range(1, min(MOST_STRIP, max(1, places)) + 1)
        if n == 1 or (n + len(columns(of, n, taps))) * words <= MOST_WORDS
    ]
    return min(fits, key=lambda n: (cost(n), -n))


def left_over(places: int | None, strip: int) -> bool:
    """Whether places may be left over behind the last whole strip."""
    return strip > 1 and (places is None or places % strip > 0)
