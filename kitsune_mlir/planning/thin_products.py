"""Products of few rows: each of the right operand's rows is multiplied with each of the left's and summed, as one of a
row group (row_tiles.py). All SMs share the weights, where a tile of 64 rows would have most of its own empty.

Products across the rows of both operands, of few columns, are sums over rows (codegen/gpu_columns.py). Sums of a few
products are elementwise operators, fused with others: a chunk of tensor cores would be zeros for the most part. Of a
batch of products that are smaller than a tile of tensor cores each, threads have a few results each."""

from __future__ import annotations

from functools import cache

from .cost import CYCLES_A_US
from .kernel_cost import dram_us
from .row_tiles import RowGroup, choose
from .target import Target

MOST_ROWS = 32  # of the left operand: the right one is read once for each
THIN_BY = 0.9  # of the time of a product on tensor cores, below which a row group takes its place
_WORK = 1.0  # instructions that multiply a pair, besides that which adds
_WIDENED = 2.0  # instructions more where elements have 16 bits
# Of sums over rows: the least turns of a loop whose lanes have one operand together, and the most points of a product
# of matrices, beyond which a thread that has blocks of results loads less.
LEAST_SHARED, MOST_SHARED = 128, 1 << 21
SMALL = 32  # rows, columns and k of a small product
SMALL_POINT_US = 0.5e-6  # of a point of one, as planning/kernel_cost.py says of their kernels
_POINT_US = 1.8e-6  # of a point, beside a launch or two
_KERNEL_US = 0.6
MOST_TERMS = 12  # of a sum that is an elementwise operator, as of the channels of an image that a layer mixes
_RESULT, _TERM = 4.0, 2.0  # instructions of a result, and of a term
_APART = 64.0  # what such a term takes besides where neighbours of a result read what lies apart: no word has both
_LONG_SUM = 1 << 12  # turns from which on a second kernel joins parts


def takes_its_place(microseconds: float | None, tiles_us: float | None) -> bool:
    """Whether another form of a product, if there is one, takes the place of one on tensor cores, if there is such."""
    return microseconds is not None and (tiles_us is None or microseconds < THIN_BY * tiles_us)


@cache
def thin_us(rows: int, columns: int, k: int, element_bytes: int, target: Target) -> float | None:
    """Microseconds of a product (rows x k) times (columns x k) transposed, of elements of so many bytes, as a row group
    of rows x columns rows and k columns. None where rows are not few, or k is too long for the registers of a CTA."""
    if not 0 < rows <= MOST_ROWS or not k or not columns:
        return None
    group = RowGroup(
        rows=rows * columns,
        columns=k,
        element_bytes=element_bytes,
        row_bytes=k * element_bytes / rows,
        shared_bytes=k * element_bytes * (1 - 1 / rows),
        live=1.0 + element_bytes / 2,
        work=_WORK + (_WIDENED if element_bytes == 2 else 0.0),
        reductions=1,
    )
    tiles = choose(group, target)
    return None if tiles is None else tiles.microseconds


def across_us(m: int, n: int, k: int, element_bytes: int, target: Target) -> float | None:
    """Microseconds of a product (k x m) transposed times (k x n) as sums over rows; None where these take no longer
    ones. They are about what planning/kernel_cost.py says of the kernels."""
    if k < LEAST_SHARED or min(m, n) > 1 and m * n * k > MOST_SHARED:
        return None
    alone = _KERNEL_US + target.launch_us
    points = m * n * k * _POINT_US
    return alone * (2 if k >= _LONG_SUM else 1) + max(points, dram_us((m + n) * k * element_bytes, target))


def elementwise_us(results: int, k: int, nbytes: float, target: Target, apart: bool = False) -> float | None:
    """Microseconds of so many sums of k products each as an elementwise operator that moves so many bytes; None where
    sums are too long for that. `apart`: of an operand results that are neighbours read what are none."""
    if not 0 < k <= MOST_TERMS:
        return None
    term = _TERM + apart * _APART
    issued = results * (_RESULT + k * term) / (target.sms * 4 * 32 * CYCLES_A_US)  # four schedulers of 32 lanes
    return _KERNEL_US + target.launch_us + max(issued, dram_us(nbytes, target), nbytes / (target.l2_gbps * 1e3))


def small_us(b: int | None, m: int | None, n: int | None, k: int | None, target: Target) -> float | None:
    """Microseconds of a batch of small products in threads; None where they are larger, or a size is open."""
    if b is None or m is None or n is None or k is None or max(m, n, k) > SMALL:
        return None
    return _KERNEL_US + target.launch_us + b * m * n * k * SMALL_POINT_US
