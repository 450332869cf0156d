"""The tiles of a convolution whose filter sees neighbouring windows: a tile's windows are a patch of an image, and what
they see comes into shared memory once for each chunk of channels, not once for each element of the filter.

A slot holds the pixels of the patch and those around it, row by row. The product of an element of the filter reads 64
of them, 8 lines of 8, that many pixels further on (PTX ISA, Matrix Descriptor Format: lines may lie any number of rows
apart). Windows of 3 x 3 on 128 places are 1,152 rows from L2 so read, and 180 as a patch: all SMs together draw 27
bytes a cycle each from L2 where none asks for what another does, and a row takes 4.7 cycles (H100).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from .cost import CYCLES_A_US
from .kernel_cost import LINE
from .product_engines import BARRIERS, CHUNK, COPY_ROWS, ISSUED, MOST_SLOTS, OUTBOX, Warpgroups
from .product_tiles import ProductTiles, price_of, sending_cycles
from .product_widths import BETWEEN, COLUMNS, ROW_CYCLES, short_rows
from .target import Target
from .windows import GRANULE, Windows

LINE_OF = 8  # places of a line of a copy's patch, and lines
MOST_ELEMENTS = 25  # of a filter: each is code of its own
# Columns of products in a kernel's code, a loop's over channels besides those of the first ones: of 12,800 ptxas takes
# half a minute, of these 6 s at most.
_MOST_CODE = 3200
_SHARED = 128.0  # bytes a cycle that shared memory gives
# Cycles of a tile that threads store patches across, and the bytes a cycle of it, 16 at a time, or fewer where images'
# lines are no multiples of that (H100, 100 tiles of 11 convolutions).
_SENT, _LINES, _PIECES = 700.0, 12.0, 6.4
_ARRIVES = 1500.0  # cycles until what is asked for is there, where all SMs ask: so long slots are on their way


def takes_patches(windows: Windows) -> bool:
    """Whether a filter's elements see shifted patches: of images, windows next to each other."""
    near = max(windows.strides) == 1 and len(windows.sizes) == 2 and windows.blocks == 1
    return near and 1 < prod(windows.filter) <= MOST_ELEMENTS and max(windows.seen((LINE_OF, 2 * LINE_OF))) <= 256


def choose_patches(
    images: int,
    outputs: int,
    windows: Windows,
    target: Target,
    across: bool,
    words: bool,
    work: float,
    stored_bytes: int,
    vector_bytes: int,
) -> ProductTiles | None:
    """The fastest tiles of patches for windows on so many `images` and filters of so many `outputs`, or None where
    there are none. The windows are rows of the product, or, `across`, its columns. The others say what they say in
    product_tiles.choose."""
    if not target.has_warpgroups or not takes_patches(windows):
        return None
    found = []
    for copies, columns in product((1, 2), (*COLUMNS, *BETWEEN) if across else COLUMNS):
        patch = (columns // LINE_OF, LINE_OF) if across else (LINE_OF, LINE_OF * copies)
        kind = _Form(copies, columns, patch, across, target, 2 if words else 1)
        found.append(kind.tiles(images, outputs, windows, work, stored_bytes, vector_bytes))
    return min((tiles for tiles in found if tiles is not None), key=lambda tiles: tiles.microseconds, default=None)


@dataclass(frozen=True)
class _Form:
    """Tiles of so many copies and columns; an element is as long as so many of 16 bits."""

    copies: int
    columns: int
    patch: tuple[int, int]
    across: bool
    target: Target
    width: int

    def tiles(
        self, images: int, outputs: int, windows: Windows, work: float, stored_bytes: int, vector_bytes: int
    ) -> ProductTiles | None:
        copies, columns, on, elements = self.copies, self.columns, Warpgroups(self.target), prod(windows.filter)
        seen, rows = prod(windows.seen(self.patch)), copies * COPY_ROWS
        own = rows if self.across else columns  # outputs of a tile
        copied = not self.across and stored_bytes > 0 and columns * stored_bytes % LINE == 0
        pixels, filters = short_rows(seen) * LINE, own * LINE  # bytes of slots
        room = self.target.shared_bytes - BARRIERS - (copies * OUTBOX + vector_bytes if copied else 0)
        slots = 3 if 3 * pixels + MOST_SLOTS * filters <= room else 2
        of_filters = min(MOST_SLOTS, (room - slots * pixels) // filters)
        chunk = windows.chunk if self.width == 1 else CHUNK  # numbers of 16 bits
        chunks, groups = ceil(windows.channels * self.width / chunk), ceil(outputs / own)
        if of_filters < 3 or not on.fits(copies, COPY_ROWS, columns, 1, False, False):
            return None
        if elements * columns * min(chunks, 2) > _MOST_CODE:
            return None
        count = images * prod(ceil(places / size) for places, size in zip(windows.places, self.patch)) * groups
        turns = ceil(count / self.target.sms)
        row = 2 * chunk
        read = copies * (COPY_ROWS + columns) * row / _SHARED  # cycles of shared memory
        multiplied = elements * max(rows * columns * chunk / on.multiplied, read)
        loaded = seen * max(row / on.alone(groups), ROW_CYCLES)
        loaded += elements * own * max(row / on.loaded, ROW_CYCLES, row * _ARRIVES / (of_filters * filters))
        products = turns * chunks * max(multiplied, loaded)
        element = COPY_ROWS * columns / ISSUED
        leaves = element * (on.stored + work)
        nbytes = stored_bytes or LINE // CHUNK * self.width
        if self.across:
            whole = windows.places[-1] * nbytes % GRANULE == 0
            leaves += _SENT + min(rows, outputs) * columns * nbytes / (_LINES if whole else _PIECES)
        elif not copied:
            leaves += sending_cycles(rows, columns, nbytes)
        waits = turns * (on.tile + chunks * elements * on.turn + leaves)
        us = self.target.launch_us + (products + waits + on.start + element * on.last) / CYCLES_A_US
        return ProductTiles(
            copies,
            columns,
            slots,
            split=1,
            part=chunks * elements * chunk,
            price=price_of(us, products, multiplied, loaded),
            microseconds=us,
            right_slots=of_filters,
            copied=copied,
            patch=self.patch,
        )
