"""What a stage costs on a target: the model of the paper's section 5.3 with what a tile waits for, pure arithmetic.

One CTA a SM. The warps that multiply a tile are those that compute on it afterwards, so the times of tensor cores and
of SIMT lanes add up, and so does what each product waits for until its first sums are there; behind the first tile half
of the shorter is done beside another warpgroup's products, unless CTAs wait for one another. Weights that are streamed
and queue tiles that pass through L2 come meanwhile: a role takes the longer of the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .target import Target

START_US = 1.0  # until a pipeline's CTAs have barriers, vectors and their first tile, and behind their last
CYCLES_A_US = 1.7e3  # of an H100's SMs under load
# The numbers below are of 150 kernels of a chain each (H100): off by 7 % in the median, by 21 % at the ninth decile.
_TURN_US, _PRODUCT_US = 0.53, 0.05  # of a GPU's tile, and of each product of it, besides
EXCHANGE_US = 0.5  # of a product for each other CTA that has columns of its operand, of 16-bit elements
_BESIDE = 0.5  # of the shorter of multiplying and computing, what is not done beside the longer by another warpgroup
# How many times as long products of f32 take warpgroups, one and two of them beside each other, as tensor cores: pieces
# of the left operand are made by threads, and of several the sums are added up before the next chunk's products begin.
_WIDE_ALONE, _WIDE = 2.0, 1.4
_ALONE_ROWS = 64
_ISSUED = {"gpu": 0.29, "cpu": 1.0}  # operations that warps, or a core, do in the time of one of `simt_tflops`
# Registers of a thread that hold a tile's rows before some are spilled, and operations of a row for each of more:
# 100,003 rows of 464 numbers of f16, a norm and three layers took 170 us, and 69 were predicted (H100).
_MOST_KEPT, _SPILLED = 104, 1500.0
_STORED = 16.0  # bytes a cycle that a GPU's tile leaves its CTA with, before the next one's sums take the registers
_COPIED = 128 / 18  # bytes a cycle that threads copy of rows here and there, 16 each, beside those that compute
_NUMBERS_US = 0.8  # of a tile, until the numbers of its rows in a table are there: what memory takes to answer
_STREAMED = 0.89  # of DRAM's rate, that a GPU's pipelines reach
_PASSED = 0.15  # of L2's work for a byte of weights, what one takes that DRAM gives
_FEW = 2.0  # times its share of L2's rate that one SM can draw where others rest
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
    wide_flops: float = 0.0  # of these, those of f32 elements
    simt_ops: float = 0.0
    plain_ops: float = 0.0  # the same as kernels of products count what they do to their results
    weight_bytes: float = 0.0  # resident tensors, read once a tile, whatever its rows
    dram_bytes: float = 0.0  # loads and stores, a row
    stored_bytes: float = 0.0  # of these, stores
    loaded: Mapping[int, float] = field(default_factory=dict)  # of these, what is loaded of a tensor, by its number
    queue_bytes: float = 0.0  # tiles got and put, a row
    row_bytes: float = 0.0  # the widest set of tiles alive at once, a row
    products: tuple[ProductCost, ...] | None = None  # as kernels of their own; None where these have no such form
    joined_bytes: float = 0.0  # of a row of products' operands that are several tensors side by side
    joined_lines: float = 1.0  # lines of L2 that a row of a box of these, and of their weights, lies in
    kept: float = 0.0  # registers of a thread that hold the widest rows that are read and reduced
    kernels: int = 0  # of other operators, where the stage runs an operator at a time
    plain_bytes: float = 0.0  # that these move, a row
    copied_bytes: float = 0.0  # of a row that threads gather into shared memory, in each CTA that shares columns
    copied: int = 0  # out of so many tables, by numbers of their own
    beside: int = 0  # what its one product reads, by number, where others of that may be one product with it

    @property
    def product_count(self) -> int:
        return len(self.products) if self.products else int(self.product_flops > 0)

    def part(self, parts: int) -> StageCost:
        """What the stage does in one of so many CTAs that share the columns."""
        shared = ("product_flops", "wide_flops", "simt_ops", "weight_bytes", "dram_bytes", "stored_bytes", "kept")
        loaded = {tensor: nbytes / parts for tensor, nbytes in self.loaded.items()}
        return dataclasses.replace(self, loaded=loaded, **{name: getattr(self, name) / parts for name in shared})


@dataclass(frozen=True)
class Price:
    """Predicted microseconds, and which of the limits above they are due to."""

    us: float
    limit: str


def role_price(
    role: Sequence[StageCost],
    rows: int,
    target: Target,
    queues_in_l2: bool,
    ctas: int = 0,
    waiting_us: float = 0.0,
    first: bool = True,
) -> Price:
    """What a tile of `rows` rows takes one of `ctas` CTAs, by default as many as SMs, that run these stages one by
    one: its `first`, or one behind that. `waiting_us` is what it waits for other CTAs: nothing is hidden then."""
    wide = (_WIDE_ALONE if rows <= _ALONE_ROWS else _WIDE) - 1 if target.has_warpgroups else 0.0
    flops = sum(stage.product_flops + wide * stage.wide_flops for stage in role) * rows
    passed = sum(stage.queue_bytes if queues_in_l2 else 0.0 for stage in role)
    passed += dram_bytes(role) * (_PASSED if target.kind == "gpu" else 1.0)
    l2_bytes = sum(stage.weight_bytes for stage in role) + rows * passed
    computed = max(rows, 2 * _ALONE_ROWS) if target.has_warpgroups else rows  # one warpgroup has half the lanes
    issued = _ISSUED[target.kind] * target.simt_tflops * 1e6 / target.sms
    terms = {
        TENSOR: flops / (target.tensor_tflops * 1e6 / target.sms),
        ARITHMETIC: sum(stage.simt_ops + _spilled(stage, target) for stage in role) * computed / issued,
        LATENCY: waiting_us + (_turn_us(role, rows) if target.kind == "gpu" else 0.0),
    }
    limit, work = max(terms, key=terms.__getitem__), sum(terms.values())
    if not first and not waiting_us and target.kind == "gpu":
        work -= (1 - _BESIDE) * min(terms[TENSOR], work - terms[TENSOR])
    share = min(_FEW, target.sms / (ctas or target.sms)) if target.kind == "gpu" else 1.0
    l2_us = l2_bytes / (target.l2_gbps * 1e3 / target.sms * share)
    copied_us = rows * sum(stage.copied_bytes for stage in role) / (_COPIED * CYCLES_A_US)
    copied_us += _NUMBERS_US * sum(stage.copied for stage in role)
    return max(Price(work, limit), Price(l2_us, L2), Price(copied_us, L1), key=lambda price: price.us)


def _spilled(stage: StageCost, target: Target) -> float:
    """Operations of a row that is read into more registers than a thread of a GPU has for it."""
    return _SPILLED * max(0.0, stage.kept - _MOST_KEPT) if target.kind == "gpu" else 0.0


def dram_bytes(role: Sequence[StageCost]) -> float:
    """Bytes that a row of a tile is loaded and stored with. What several stages of a role load is loaded once."""
    total = 0.0
    seen: set[int] = set()
    for stage in role:
        total += stage.dram_bytes - sum(nbytes for tensor, nbytes in stage.loaded.items() if tensor in seen)
        seen |= stage.loaded.keys()
    return total


def _turn_us(role: Sequence[StageCost], rows: int) -> float:
    """What a GPU's tile waits: for its first chunk and each product's sums, and until it has left."""
    stored = rows * sum(stage.stored_bytes for stage in role) / (_STORED * CYCLES_A_US)
    return _TURN_US + _PRODUCT_US * sum(stage.product_count for stage in role) + stored


def pipeline_price(
    roles: Sequence[Sequence[StageCost]],
    replicas: Sequence[int],
    tiles: int,
    rows: int,
    target: Target,
    queues_in_l2: bool,
    waiting_us: float = 0.0,
) -> Price:
    """What `tiles` tiles take: the slowest role or DRAM, one filling, one launch. `waiting_us` is what each tile waits
    for other CTAs."""
    ctas = sum(replicas)
    prices = [role_price(role, rows, target, queues_in_l2, ctas, waiting_us) for role in roles]
    later = [role_price(role, rows, target, queues_in_l2, ctas, waiting_us, first=False).us for role in roles]
    times = [price.us for price in prices]
    busy = [time + max(0, -(-tiles // count) - 1) * more for time, more, count in zip(times, later, replicas)]
    slowest, filling = max(busy), sum(times) - max(times)
    rate = target.dram_gbps * (_STREAMED if target.kind == "gpu" else 1.0)
    dram = sum(map(dram_bytes, roles)) * rows * tiles / (rate * 1e3)
    limit = DRAM if dram > slowest else prices[busy.index(slowest)].limit
    start = start_us(target)
    if start + filling > max(slowest, dram):
        limit = LATENCY
    return Price(start + filling + max(slowest, dram), limit)


def start_us(target: Target) -> float:
    """Microseconds of a pipeline's launch, and of what its CTAs do once."""
    return target.launch_us + (START_US if target.kind == "gpu" else 0.0)


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
