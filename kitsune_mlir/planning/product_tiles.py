"""The tiles of one product (b x m x k) times (b x k x n), the operands of which come from memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil

from .cost import CYCLES_A_US, L2, LATENCY, TENSOR, Price
from .kernel_cost import LINE
from .open_rows import MANY, nearly_fastest
from .product_engines import BARRIERS, CHUNK, COPY_ROWS, ISSUED, MOST_SLOTS, OUTBOX, Warpgroups, Warps, engine
from .product_slots import alternating_slots, making_slots
from .product_widths import BETWEEN, COLUMNS, NO_WINDOWS, ROW_CYCLES, WindowChunks, line_parts, lines, short_rows
from .target import Target

MOST_SPLIT = 64
_LONG = 512  # a sum for which three warpgroups were found to be faster where tiles are better shared out
PAIRS = {  # of pieces of the operands that are multiplied, small terms first, by the number of pieces
    1: ((0, 0),),
    2: ((1, 0), (0, 1), (0, 0)),
    3: ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)),
}
PIECES_OF = {len(pairs): pieces for pieces, pairs in PAIRS.items()}
SETS = {256: (128, 128), 192: (128, 64)}  # the columns of a tile's two sets of sums, where these alternate
CLUSTERS = (1, 2, 4, 8)  # CTAs of a cluster that may share a tile's k
_MOST_MET = 64  # columns of a tile whose CTAs meet: of what was measured, no wider one was the fastest
_BLOCK = 8  # columns of which a CTA finishes a multiple
_MEETS, HANDED = 1500.0, 30.0  # cycles of a meeting, and of each column of a copy besides
# Of a tile that alternates: the part of its leaving that products do not hide, cycles besides, and those of each column
# where sets are not equal. So 81 products of bf16, k from 64 to 1024, are predicted within 6 % on average (H200).
_SHOWN, _TURNS, _UNEQUAL = 0.6, 400.0, 5.0
# Cycles of a tile of 16-bit results that threads store, where the copy engine would but for its columns, and of each
# part of a line that a warp sends: four threads 16 bytes each, or 4 each of what is no 32 columns (110 tiles, H200).
_SENT, _SENT_PART = 1000.0, 1.0
_MADE = 0.15  # cycles of a warpgroup for each piece of a number that it makes (H100); for one that it turns as many

_SUMMED = 1000.0  # bytes of partial sums a cycle, all SMs together, there and back
# Cycles for each row of a box that is behind a tensor's last, besides those that any row takes: 129 x 4096 times 4096 x
# 4096 took 37 us in tiles of 128 rows, 160 rows 32, 200 rows 27, 256 rows 19 (H200). Tiles that alternate take none.
# Boxes that end with the tensor (`short`) have at most 7.
_BEYOND = 4.0


@dataclass(frozen=True)
class ProductTiles:
    """`copies` warpgroups, or sets of four warps, of `copy_rows` rows times `columns`, `slots` chunks of operands on
    their way; the sum over k in `split` parts of `part` columns each. The chunks of an operand that is `kept`, "left"
    or "right", are the same for all tiles, and lie in shared memory throughout. Where a tile `alternates`, its columns
    are those of two sets of sums (SETS), of which each leaves while the other is multiplied: `slots` are then those of
    the left operand, `right_slots` those of the right one. Of a `cluster` each CTA sums `part` of k for the same tile.
    Where it is `copied`, the copy engine stores it, from shared memory; `by_rows` warps do from there. Boxes of
    operands that are `short` end with the tensor's last row. What is `made` of operands in the kernel is
    made of chunks of f32, which lie in `whole_slots` besides. A `patch` are a tile's windows where these are next to
    each other, `slots` those of their pixels and `right_slots` of filters (patch_tiles.py). `price` is the kernel's;
    `microseconds` are with the sum of the parts, which is another's."""

    copies: int
    columns: int
    slots: int
    split: int
    part: int
    price: Price
    microseconds: float
    kept: str | None = None
    copy_rows: int = COPY_ROWS
    alternates: bool = False
    right_slots: int = 0
    cluster: int = 1
    copied: bool = False
    by_rows: bool = False
    short: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    whole_slots: int = 0
    patch: tuple[int, int] | None = None

    @property
    def rows(self) -> int:
        return self.copies * self.copy_rows

    @property
    def sets(self) -> tuple[int, ...]:
        """The columns of each set of sums."""
        return SETS[self.columns] if self.alternates else (self.columns,)


@cache
def choose(
    b: int,
    m: int,
    n: int,
    k: int,
    across: bool,
    pairs: int,
    target: Target,
    most_split: int = MOST_SPLIT,
    work: float = 0.0,
    whole: bool = False,
    shared: frozenset[str] = frozenset(),
    stored_bytes: int = 0,
    vector_bytes: int = 0,
    widths: tuple[int, ...] = COLUMNS,
    clusters: tuple[int, ...] = (1,),
    aligned: bool = False,
    by_rows: bool = False,
    words: bool = False,
    short: frozenset[str] = frozenset(),
    rights: int = 1,
    results: int = 1,
    made: frozenset[str] = frozenset(),
    open_: str = "",
    windows: WindowChunks = NO_WINDOWS,
) -> ProductTiles | None:
    """The fastest tiles for a product of these sizes, or None when none fits. `across`: the columns of the right
    operand are neighbours in memory, so that it comes in boxes of 64. `pairs` products of 16-bit pieces make one; of
    more than one the sums are added outside tensor cores, which takes registers for another set. The sum over k is cut
    into at most `most_split` parts. So many instructions as `work` says deal with each element before it is stored.
    `whole`: tiles have exactly all columns and all of k. `shared` are operands, "left" and "right", that are the same
    throughout the batch, whose chunks may be kept. The copy engine stores the results, of `stored_bytes` an element,
    where these are not 0; shared memory then holds `vector_bytes` of what follows besides. `widths` are the columns
    that a tile may have, `clusters` the numbers of CTAs that may share the sum over k of one. `aligned`: the right
    operand's rows begin at whole lines of the L2. `by_rows`: warps store the results, from shared memory, too. `words`:
    operands are of f32, multiplied as tf32, which takes as long as twice the `k` of 16 bits. `short` are operands,
    "left" and "right", whose boxes end with the tensor's last row, as what threads copy does. Pieces of operands that
    are `made` are made in the kernel; `words` are turned there. `rights` are right operands, of as many columns each,
    that one left operand is multiplied with: a tile then has the same columns of each of their products, and one result
    of them; `results` is how many become of a product. `open_` is "b", "m" or "n" where the call says it (open_rows).
    One operand may be of `windows`, of which no tiles read the same but those beside each other."""
    on = engine(target)
    short = short if isinstance(on, Warpgroups) else frozenset(("left", "right"))
    k *= 2 if words else 1
    forms = [
        (copies, copy_rows, columns, form)
        for copies, copy_rows, columns in product(on.copies, on.copy_rows, widths)
        if on.fits(copies, copy_rows, columns * rights, pairs, whole, bool(made)) and not (across and columns % 64)
        if copies < 3 or k >= _LONG
        for form in _forms(
            *(m, n, k, copies * copy_rows, columns, across, pairs, on, most_split, whole, shared, made, windows.columns)
        )
        if rights == 1 or form == _Form()
        if (not form.alternates or stored_bytes and results == 1) and form.cluster in clusters
        if not whole or columns == n and copies in on.whole_copies and copy_rows == COPY_ROWS
    ]

    def at(sizes: tuple[int, int, int], of: tuple[int, int, int, _Form]) -> ProductTiles | None:
        copies, copy_rows, columns, form = of
        return _tiles(
            *(*sizes, k, copies, copy_rows, columns, form, across, pairs, on, work, stored_bytes, vector_bytes),
            *(aligned, by_rows, short - made, rights, made, windows),
        )

    found = [(of, tiles) for of in forms if (tiles := at((b, m, n), of))]
    order = [(own.microseconds, own.split, own.rows * own.columns, number) for number, (_, own) in enumerate(found)]
    if not found:
        return None
    best = found[min(order)[-1]][1]
    if open_:
        many = {name: MANY if name == open_ else 1 for name in "bmn"}
        larger = b * many["b"], m * many["m"], n * many["n"]
        of_many = [(at(larger, of) or own).microseconds for of, own in found]
        best = found[nearly_fastest([own.microseconds for _, own in found], of_many)][1]
    return replace(best, part=best.part // 2) if words else best


@dataclass(frozen=True)
class _Form:
    """What is done with tiles besides multiplying them, one of these; as ProductTiles says."""

    split: int = 1
    kept: str | None = None
    alternates: bool = False
    cluster: int = 1


def _forms(
    m: int,
    n: int,
    k: int,
    rows: int,
    columns: int,
    across: bool,
    pairs: int,
    on: Warpgroups | Warps,
    most_split: int,
    whole: bool,
    shared: frozenset[str],
    made: frozenset[str],
    chunk: int,
) -> Iterator[_Form]:
    """The forms that tiles of so many rows and columns may have."""
    yield _Form()
    if whole:
        return
    for parts in _splits(k)[1:]:
        if parts <= most_split:
            yield _Form(split=parts)
    if pairs > 1 or made:
        return
    for kept, size, tile in (("left", m, rows), ("right", n, columns)):
        if kept in shared and size <= tile and k <= on.most_kept * chunk:
            yield _Form(kept=kept)
    if not isinstance(on, Warpgroups):
        return
    equal = len(set(SETS.get(columns, ()))) == 1  # slots of boxes across have all their columns
    if columns in SETS and k > chunk and (equal or not across):
        yield _Form(alternates=True)
    if columns <= _MOST_MET:
        for ctas in CLUSTERS[1:]:
            if columns % (ctas * _BLOCK) == 0 and ctas * 2 * chunk <= k and ctas <= on.target.sms:
                yield _Form(cluster=ctas)


def _splits(k: int) -> list[int]:
    return [1 << i for i in range(MOST_SPLIT.bit_length()) if (1 << i) * 4 * CHUNK <= max(k, 4 * CHUNK)]


def _tiles(
    b: int,
    m: int,
    n: int,
    k: int,
    copies: int,
    copy_rows: int,
    columns: int,
    form: _Form,
    across: bool,
    pairs: int,
    on: Warpgroups | Warps,
    work: float,
    stored_bytes: int,
    vector_bytes: int,
    aligned: bool,
    by_rows: bool,
    short: frozenset[str],
    rights: int,
    made: frozenset[str],
    windows: WindowChunks,
) -> ProductTiles | None:
    rows, chunk, target, kept, split = copies * copy_rows, windows.columns, on.target, form.kept, form.split
    operands = {"left": 1, "right": rights}
    chunks = {"left": rows * CHUNK * 2, "right": rights * columns * CHUNK * 2}  # bytes of slots
    right_lines = 1.0 if aligned else lines(n) if across else lines(k, chunk)
    row = {name: chunk * 2 * each / on.loaded for name, each in (("left", lines(k, chunk)), ("right", right_lines))}
    if isinstance(on, Warpgroups):
        row = {name: windows.row_cycles if name == windows.operand else max(ROW_CYCLES, row[name]) for name in row}
    held = ceil(k / chunk) * chunks[kept] if kept is not None else 0
    held += rows * columns * 4 if form.cluster > 1 else 0
    copied = isinstance(on, Warpgroups) and form.cluster == split == 1
    by_rows = by_rows and copied
    copied = copied and stored_bytes > 0 and columns * stored_bytes % LINE == 0
    held += copies * OUTBOX if copied or by_rows else 0
    held += vector_bytes if copied else 0
    streamed = [name for name in chunks if name != kept]
    slot = sum(chunks[name] for name in streamed)
    slots, right_slots = min(MOST_SLOTS, (target.shared_bytes - BARRIERS - held) // slot), 0
    if form.alternates:
        of_set = max(SETS[columns]) * CHUNK * 2
        slots, right_slots = alternating_slots(chunks["left"], of_set, target.shared_bytes - BARRIERS - held)
    pieces, whole_slots = PIECES_OF[pairs], 0
    taken = 1 if pairs == 1 else 2  # times the bytes of words that are turned, of 16-bit pieces
    if made:
        wholes = sum(taken * chunks[name] for name in made)
        slots, whole_slots = making_slots(pieces, slot, wholes, target.shared_bytes - BARRIERS - held, len(made) == 2)
    if slots < pieces + (pairs == 1 or not made):  # those of a chunk are multiplied together, beside the chunk before
        return None
    part = ceil(ceil(k / (split * form.cluster)) / chunk) * chunk
    split = max(1, ceil(k / part)) if part and split > 1 else 1
    tiles = b * ceil(m / rows) * ceil(n / columns) * split
    wide = rights * columns  # columns of all sums
    multiplied = pairs * max(rows * wide * chunk / on.multiplied, on.read_cycles(copies, copy_rows, wide))
    sizes = {"left": (m, rows), "right": (n, columns)}
    boxes = {name: min(short_rows(size), tile) if name in short else tile for name, (size, tile) in sizes.items()}
    brought = {name: taken if name in made else pieces for name in streamed}  # times the bytes of 16-bit numbers
    if windows.operand in streamed:
        alike = ceil(n / columns) if windows.operand == "left" else ceil(m / rows)
        rate = on.alone(alike * target.sms / min(tiles, target.sms))
        row[windows.operand] = max(row[windows.operand], windows.row_bytes / rate)
    loaded = sum(brought[name] * operands[name] * boxes[name] * row[name] for name in streamed)
    making = sum(_MADE * pieces * sizes[name][1] * CHUNK * taken / 2 for name in made)
    if slots < 2 * pieces:  # made and multiplied in turn
        multiplied, making = multiplied + making, 0.0
    loaded = max(loaded, making)
    places = target.clusters_at_once(form.cluster)
    turns, count = ceil(tiles / places), ceil(part / chunk)
    products = turns * count * max(multiplied, loaded)
    element = rows * columns / (ISSUED * copies * form.cluster)  # one instruction for each element of a tile
    leaves, last = element * (on.stored + work), element * on.last
    if stored_bytes and columns in BETWEEN and not copied and isinstance(on, Warpgroups):
        leaves += sending_cycles(rows, columns, stored_bytes)
    if form.alternates:  # each set beside the other's products; the last tile's second set beside nothing
        last = leaves / 2
        leaves = max(leaves * _SHOWN, leaves - count * max(multiplied, loaded) / 2) + _TURNS
        leaves += _UNEQUAL * columns if len(set(SETS[columns])) > 1 else 0.0
    if form.cluster > 1:
        leaves += _MEETS + HANDED * columns * copies
    turn = on.turn if pairs == 1 else on.added
    waits = turns * (on.tile + count * turn + leaves)
    once = on.start + last + (ceil(k / chunk) * chunks[kept] / on.loaded if kept is not None else 0.0)
    if isinstance(on, Warpgroups) and not form.alternates:
        beyond = {n: short_rows(size) - size if n in short else -size % tile for n, (size, tile) in sizes.items()}
        beyond["right"] = 0 if across else beyond["right"]
        beyond[windows.operand] = 0  # what is behind an image's windows are the next one's
        last_loaded = loaded + pieces * _BEYOND * sum(operands[name] * beyond[name] for name in streamed)
        once += count * (max(multiplied, last_loaded) - max(multiplied, loaded))
    us = target.launch_us + (products + waits + once) / CYCLES_A_US
    summed = target.launch_us + b * m * n * 8 * split / _SUMMED / CYCLES_A_US if split > 1 else 0.0
    price, two = price_of(us, products, multiplied, loaded), form.alternates
    return ProductTiles(
        *(copies, columns, slots, split, part, price, us + summed, kept, copy_rows, two, right_slots, form.cluster),
        *(copied, by_rows, short, made, whole_slots),
    )


def price_of(us: float, products: float, multiplied: float, loaded: float) -> Price:
    """The price of a kernel that takes so long, of which so many cycles are its chunks': for each, it multiplies and
    loads for so many."""
    limit = LATENCY if 2 * products / CYCLES_A_US < us else TENSOR if multiplied >= loaded else L2
    return Price(us, limit)


def sending_cycles(rows: int, columns: int, nbytes: int) -> float:
    """Cycles of a tile that threads store."""
    return _SENT + _SENT_PART * rows * line_parts(columns, nbytes)
