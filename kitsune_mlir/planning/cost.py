"""What a stage costs on a target: a zero-latency model (paper, section 5.3), pure arithmetic.

One CTA a SM. A stage's time for a tile is the longest of its units' times: tensor cores, SIMT lanes,
and its share of L2 for weights it streams and for queue tiles that pass through L2.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .target import Target

START_US = 1.2  # until a pipeline's CTAs have barriers, vectors and their first tile, and behind their last
CYCLES_A_US = 1.7e3  # of an H100's SMs under load
# How many times as long products of f32 in pieces take warpgroups, one and two of them beside each other, as tensor
# cores: a chunk's sums are added to the others before the next one's products begin. Of 118 kernels of random nets, the
# long ones of the latter 1.0 to 1.3 (H100).
_ADDED_ALONE, _ADDED = 2.0, 1.15
_ALONE_ROWS = 64
# What limits a kernel: a unit, memory, or its launch and the waits in it.
TENSOR, ARITHMETIC, L1, L2, DRAM, LATENCY = "tensor cores", "arithmetic", "L1", "L2", "DRAM", "latency"


@dataclass(frozen=True)
class ProductCost:
    """A product of a row of `k` elements with a matrix of `columns` columns, whose elements along a column are
    neighbours in memory unless `across`. `pairs` products of 16-bit pieces make one; of `words` of f32 one in tf32 is
    as good, where a target has it."""

    columns: int
    k: int
    across: bool = True
    pairs: int = 1
    words: bool = False

    @property
    def element_bytes(self) -> int:
        return 4 if self.words or self.pairs > 1 else 2

    def on(self, target: Target) -> ProductCost:
        """The product as a kernel of its own multiplies it on a target."""
        own = self.words and target.has_warpgroups
        return dataclasses.replace(self, **({"across": False, "pairs": 1} if own else {"words": False}))


@dataclass(frozen=True)
class StageCost:
    """What one stage does for one row; bytes and operations."""

    name: str
    unit: str  # "tensor" or "simt"
    product_flops: float = 0.0  # a multiply-add is two
    added_flops: float = 0.0  # of these, those of chunks whose sums are added outside of tensor cores
    simt_ops: float = 0.0
    weight_bytes: float = 0.0  # resident tensors, read once a tile, whatever its rows
    dram_bytes: float = 0.0  # loads and stores, a row
    queue_bytes: float = 0.0  # tiles got and put, a row
    row_bytes: float = 0.0  # the widest set of tiles alive at once, a row
    products: tuple[ProductCost, ...] | None = None  # as kernels of their own; None where these have no such form
    kernels: int = 0  # of other operators, where the stage runs an operator at a time
    plain_bytes: float = 0.0  # that these move, a row

    def part(self, parts: int) -> StageCost:
        """What the stage does in one of so many CTAs that share the columns."""
        shared = ("product_flops", "added_flops", "simt_ops", "weight_bytes", "dram_bytes")
        return dataclasses.replace(self, **{name: getattr(self, name) / parts for name in shared})


@dataclass(frozen=True)
class Price:
    """Predicted microseconds, and which of the limits above they are due to."""

    us: float
    limit: str


def tile_price(stage: StageCost, rows: int, target: Target, queues_in_l2: bool) -> Price:
    """What a tile of `rows` rows takes one CTA of the stage."""
    l2_bytes = stage.weight_bytes + rows * (stage.dram_bytes + (stage.queue_bytes if queues_in_l2 else 0.0))
    waits = (_ADDED_ALONE if rows <= _ALONE_ROWS else _ADDED) - 1 if target.has_warpgroups else 0.0
    terms = {
        TENSOR: (stage.product_flops + waits * stage.added_flops) * rows / (target.tensor_tflops * 1e6 / target.sms),
        ARITHMETIC: stage.simt_ops * rows / (target.simt_tflops * 1e6 / target.sms),
        L2: l2_bytes / (target.l2_gbps * 1e3 / target.sms),
    }
    limit = max(terms, key=terms.__getitem__)
    return Price(terms[limit], limit)


def pipeline_price(
    roles: list[list[StageCost]],
    replicas: list[int],
    tiles: int,
    rows: int,
    target: Target,
    queues_in_l2: bool,
    waiting_us: float = 0.0,
) -> Price:
    """What `tiles` tiles take: the slowest role or DRAM, one filling, one launch. `waiting_us` is what a CTA waits for
    others in all."""
    prices = [[tile_price(stage, rows, target, queues_in_l2) for stage in role] for role in roles]
    times = [sum(price.us for price in role) for role in prices]
    busy = [-(-tiles // count) * time for time, count in zip(times, replicas)]
    slowest, filling = max(busy), sum(times) - max(times)
    dram = sum(stage.dram_bytes for role in roles for stage in role) * rows * tiles / (target.dram_gbps * 1e3)
    limit = max(prices[busy.index(slowest)], key=lambda price: price.us).limit
    if dram > slowest + waiting_us:
        limit = DRAM
    start = start_us(target)
    if start + filling + waiting_us > max(slowest, dram):
        limit = LATENCY
    return Price(start + filling + max(slowest + waiting_us, dram), limit)


def start_us(target: Target) -> float:
    """Microseconds of a pipeline's launch, and of what its CTAs do once."""
    return target.launch_us + (START_US if target.kind == "gpu" else 0.0)


def at_tiles(us: float, assumed: int, tiles: int, ctas: int, target: Target) -> float:
    """A time that was predicted for `assumed` tiles, at so many: CTAs take whole tiles, and a launch is a launch."""
    turns, before = (max(1, -(-count // ctas)) for count in (tiles, assumed))
    start = start_us(target)
    return start + max(0.0, us - start) * turns / before


def scattered_us(nbytes: float, table_bytes: float, ordered: bool, target: Target) -> float:
    """Microseconds that adding so many bytes to rows of a table takes beyond storing them one after another: what a
    table is too large for the L2 of is read besides being written. Rows in the order of the table's (`ordered`) meet in
    the L2, and the table alone is read and written: that may be less than storing them is."""
    if 2 * table_bytes <= target.l2_bytes:
        return 0.0
    more = 2 * min(table_bytes, nbytes) - nbytes if ordered else nbytes
    return more / (target.dram_gbps * 1e3)


def reduction_us(nbytes: float, parts: int, target: Target) -> float:
    """Microseconds from the last tile to the whole sum of so many partial sums of so many bytes: they go to the L2, and
    another kernel adds them up."""
    return nbytes * parts / (target.l2_gbps * 1e3) + adding_us(nbytes, parts, target)


def adding_us(nbytes: float, parts: int, target: Target) -> float:
    """What that kernel takes."""
    return nbytes * parts / (target.l2_gbps * 1e3) + start_us(target)
