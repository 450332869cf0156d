"""Small products, one for each number of a batch, whose operands a warp loads straight into the registers that tensor
cores multiply out of: no product is cut into tiles, and no operand passes shared memory. Such a kernel takes as long as
DRAM takes for the rows, where many warps have theirs on the way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil

from .cost import CYCLES_A_US, DRAM, LATENCY, TENSOR, Price
from .kernel_cost import dram_us
from .target import Target

MOST_ROWS = 64  # of an operand
MOST_BYTES = 2048  # of a row of an operand
LANES = 8  # rows that a warp loads together
STEP = 64  # bytes of each that it loads together
_WORDS = 64  # registers of a thread in which operands are held at a time, about
_ADDRESSES = 6  # registers of a thread for where LANES rows are
_PLACE, _MOST_PLACES = 4, 64  # registers of a thread for where an element that it stores is; which are kept at most
_REGISTERS, _MOST_REGISTERS, _MOST_CTAS = 65536, 248, 32  # of an SM, of a thread, of an SM
_PARTITIONS = 4  # of an SM, each with its share of registers and warps
_WARP = 32
_MULTIPLIED = 1000.0  # multiply-adds a cycle and SM, of 16-bit elements
_STARTED = 2500.0  # cycles from a warp's first load to its last store
_INSTRUCTIONS, _ISSUED = 24.0, 2.0  # of a warp, for 32 elements that leave; a cycle and SM


@dataclass(frozen=True)
class Dots:
    """The form of a kernel: `ctas` of one warp an SM, of at most `registers` a thread. A thread that `keeps_places`
    loads once, for all tiles, where the elements are that it stores."""

    ctas: int
    registers: int
    keeps_places: bool
    price: Price


def most_steps(slots: int, sums: int, element_bytes: int) -> int:
    """How many times STEP bytes of `slots` times LANES rows are held at a time, beside so many sums of a thread."""
    free = _MOST_REGISTERS - _beside(element_bytes) - slots * _ADDRESSES - sums
    return max(1, min(_WORDS, free) // (slots * _step_words(element_bytes)))


def _step_words(element_bytes: int) -> int:
    """Registers of a thread for STEP bytes of LANES rows; an f32 becomes two numbers of tf32."""
    return 4 if element_bytes == 2 else 16


def _beside(element_bytes: int) -> int:
    """Registers of a thread besides operands, their addresses and sums."""
    return 40 if element_bytes == 2 else 72


def sums_of(left: int, right: int) -> int:
    """A thread's sums of left by right rows."""
    return ceil(left / 16) * 16 * ceil(right / 8) * 8 // _WARP


@cache
def choose(
    batch: int, left: int, right: int, k: int, same: bool, element_bytes: int, moved: float, stored: int, target: Target
) -> Dots | None:
    """The kernel of `batch` products of `left` by `right` rows of k columns; `same`: both operands are one. `moved` are
    the bytes that it reads and writes, `stored` a product's elements that leave. None where it has no such form."""
    if not 0 < left <= MOST_ROWS or not 0 < right <= MOST_ROWS or not batch:
        return None
    if not 0 < k * element_bytes <= MOST_BYTES or k * element_bytes % 16:
        return None
    slots = sum(ceil(n / LANES) for n in ((left,) if same else (left, right)))
    steps = ceil(k * element_bytes / STEP)
    sums = sums_of(left, right)
    together = min(steps, most_steps(slots, sums, element_bytes))
    wanted = together * slots * _step_words(element_bytes) + sums + slots * _ADDRESSES + _beside(element_bytes)
    places = _PLACE * ceil(stored / _WARP)
    keeps = wanted + places <= _MOST_REGISTERS and places <= _MOST_PLACES
    wanted = ceil((wanted + places * keeps) / 8) * 8
    if wanted > _MOST_REGISTERS:
        return None
    ctas = min(_MOST_CTAS, _PARTITIONS * (_REGISTERS // (_PARTITIONS * _WARP * wanted)))
    registers = min(_MOST_REGISTERS, _REGISTERS // (_WARP * ctas)) // 8 * 8
    turns = ceil(batch / (target.sms * ctas))
    multiplied = sums * _WARP * k / _MULTIPLIED * (1 if element_bytes == 2 else 6)
    issued = _INSTRUCTIONS / _ISSUED * ceil(stored / _WARP)
    busy = ceil(batch / target.sms) * max(multiplied, issued) / CYCLES_A_US
    waits, dram = turns * _STARTED / CYCLES_A_US, dram_us(moved, target)
    us, limit = max((dram, DRAM), (busy, TENSOR), (waits, LATENCY))
    return Dots(ctas, registers, keeps, Price(target.launch_us + us, limit))
