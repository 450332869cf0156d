"""What one kernel of a single operator, or a copy, costs on a target: pure arithmetic on counts of what its warps do.

A kernel takes its launch, and the longest of: its distinct bytes from DRAM, where L2 does not hold them; what misses
the SMs' own caches from L2; the lines that its warps' accesses touch and send; the instructions that are issued; and a
thread from its first instruction to its last, once for each set of blocks that the SMs hold together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from .cost import ARITHMETIC, CYCLES_A_US, DRAM, L1, L2, LATENCY, Price
from .target import Target

WARP = 32
SECTOR, LINE = 32, 128  # bytes that L2 hands over, and that an SM's cache looks up, at once
MOST_SORTED = 4096  # elements of a row that a block of threads sorts in its shared memory
MOST_TRANSFORMED = 4096  # numbers of two parts of f32 that such a block transforms
MOST_WINDOW = 64  # elements of a window that one kernel reads
# Instructions of what is dear, as expanded for a GPU (codegen/device_math.py).
DEAR: Mapping[str, int] = {
    "math.exp": 6,
    "math.expm1": 12,
    "math.log": 12,
    "math.log1p": 20,
    "math.tanh": 12,
    "math.erf": 24,
    "math.sin": 100,
    "math.cos": 100,
    "arith.divf": 8,
}
DEAR_EXACT = {  # the same in a kernel of the plain path whose results are f32
    **DEAR,
    "math.erf": 45,
    "math.erfc": 45,
    "math.expm1": 20,
    "math.log": 25,
    "math.log10": 25,
    "math.log1p": 45,
    "math.log2": 25,
    "math.powf": 60,
    "math.tan": 120,
}
DEAR_SHORT: Mapping[str, int] = {**DEAR_EXACT, **DEAR}  # the same of one whose results are rounded to f16, too
DEAR_FAST: Mapping[str, int] = {  # the same of one whose results are only rounded to bf16
    "arith.divf": 2,
    "math.cos": 15,
    "math.erf": 12,
    "math.erfc": 12,
    "math.exp": 2,
    "math.expm1": 8,
    "math.log": 2,
    "math.log10": 2,
    "math.log1p": 8,
    "math.log2": 2,
    "math.powf": 5,
    "math.sin": 15,
    "math.tan": 25,
    "math.tanh": 1,
}
DIVISION, BY_CONSTANT = 30, 5  # instructions of an integer's division, and of one by a number that is known
WIDE_PRODUCT = 4  # the same of a product of 8 x 8 x 4 of f64: 67 TFLOP/s of an H100
ADDRESSED = 2  # instructions of a load or store, its address included

_WARPS, _BLOCKS, _REGISTERS = 64, 32, 65536  # that an SM holds
_KEPT = 0.5  # of L2, up to which what a kernel reads is there from the kernel before
_ISSUED = 2.5  # instructions a cycle and SM
_LOOKED_UP = 1.0  # lines a cycle and SM
_SENT = 0.37  # lines, or parts of them, a cycle and SM that stores and atomic operations send to L2, besides
_ALONE = 5.0  # cycles from an instruction to the next of the same thread
_BARRIER = 40.0  # cycles of a block's barrier
_HIT, _MISSED = 35.0, 450.0  # cycles of a load that an SM's cache has, and what L2 or DRAM adds
ADDED = 1.0  # atomic operations of threads a cycle and SM: what an addition is of, one number or a word, is the same
TRIES = 3  # operations of memory for an atomic one that it does not know: the largest and the least of floats
_TOGETHER = 4  # turns of a loop whose loads are on their way together
_FEW = 2.0  # times its share of L2's and DRAM's rate that one SM alone can draw


@dataclass
class BlockWork:
    """What the warps of one block do in all, and one thread of it."""

    instructions: float = 0.0  # of all warps
    lines: float = 0.0  # of LINE bytes that loads and stores of all warps touch
    sent: float = 0.0  # of them, those of stores and atomic operations
    read: dict[int, float] = field(default_factory=dict)  # bytes that miss the SM's cache, by buffer
    written: dict[int, float] = field(default_factory=dict)
    atomics: float = 0.0  # of all threads
    cycles: float = 0.0  # of one thread, alone on its SM


@dataclass(frozen=True)
class KernelWork:
    """What a kernel of `blocks` blocks of `threads` threads does in all: distinct bytes that it reads and writes, bytes
    between SMs and L2; lines, those of them that are sent, and instructions (of warps); atomic operations (of threads);
    cycles of a thread alone."""

    blocks: int
    threads: int
    registers: int  # of a thread
    read_bytes: float
    written_bytes: float
    l2_bytes: float
    lines: float = 0.0
    sent: float = 0.0
    instructions: float = 0.0
    atomics: float = 0.0
    cycles: float = 0.0
    joined: tuple[float, ...] = ()  # of several kernels, the distinct bytes of each
    strands: tuple[tuple[int, float], ...] = ()  # of several side by side, the blocks of each and a thread's cycles

    @property
    def moved(self) -> tuple[float, ...]:
        """The distinct bytes of each kernel."""
        return self.joined or (self.read_bytes + self.written_bytes,)


def whole(block: BlockWork, blocks: int, threads: int, registers: int, sizes: Mapping[int, int]) -> KernelWork:
    """The work of all blocks, each as one of them. `sizes` are the bytes of each buffer: no more of it are distinct."""
    read, written = (
        sum(min(blocks * count, sizes[buffer]) for buffer, count in moved.items())
        for moved in (block.read, block.written)
    )
    l2 = sum(block.read.values()) + sum(block.written.values())
    return KernelWork(
        blocks,
        threads,
        registers,
        read_bytes=read,
        written_bytes=written,
        l2_bytes=blocks * l2,
        lines=blocks * block.lines,
        sent=blocks * block.sent,
        instructions=blocks * block.instructions,
        atomics=blocks * block.atomics,
        cycles=block.cycles,
    )


def beside(works: Sequence[KernelWork]) -> KernelWork:
    """The work of kernels that run at the same time on blocks of their own."""
    blocks, cycles = sum(work.blocks for work in works), max(work.cycles for work in works)
    return replace(_summed(works), blocks=blocks, cycles=cycles, strands=tuple((w.blocks, w.cycles) for w in works))


def in_turn(works: Sequence[KernelWork]) -> KernelWork:
    """The work of kernels whose blocks one block does one after another."""
    cycles = sum(work.blocks * (work.cycles + _BARRIER) for work in works)
    return replace(_summed(works), blocks=1, cycles=cycles)


def _summed(works: Sequence[KernelWork]) -> KernelWork:
    return KernelWork(
        blocks=0,
        threads=max(work.threads for work in works),
        registers=max(work.registers for work in works),
        read_bytes=sum(work.read_bytes for work in works),
        written_bytes=sum(work.written_bytes for work in works),
        l2_bytes=sum(work.l2_bytes for work in works),
        lines=sum(work.lines for work in works),
        sent=sum(work.sent for work in works),
        instructions=sum(work.instructions for work in works),
        atomics=sum(work.atomics for work in works),
        joined=tuple(nbytes for work in works for nbytes in work.moved),
    )


def copied(nbytes: int, target: Target) -> KernelWork:
    """A copy from memory to memory, at the rate of all SMs."""
    return KernelWork(target.sms, WARP, WARP, nbytes, nbytes, 2 * nbytes)


def filled(nbytes: int, target: Target) -> KernelWork:
    """Zeros in memory, at the rate of all SMs."""
    return KernelWork(target.sms, WARP, WARP, 0.0, nbytes, nbytes)


def kernel_price(work: KernelWork, target: Target) -> Price:
    """What one launch takes."""
    sms = min(work.blocks, target.sms)
    warps = max(1, ceil(work.threads / WARP))
    resident = max(1, min(_BLOCKS, _WARPS // warps, _REGISTERS // (max(1, work.registers) * warps * WARP)))
    share = min(1.0, _FEW * sms / target.sms)
    terms = {
        DRAM: sum(dram_us(nbytes, target) for nbytes in work.moved) / share,
        L2: max(work.l2_bytes / (target.l2_gbps * 1e3 * share), work.atomics / (sms * ADDED * CYCLES_A_US)),
        L1: (work.lines / _LOOKED_UP + work.sent / _SENT) / (sms * CYCLES_A_US),
        ARITHMETIC: work.instructions / (sms * _ISSUED * CYCLES_A_US),
        LATENCY: _latency(work, target.sms * resident) / CYCLES_A_US,
    }
    limit = max(terms, key=terms.__getitem__)
    return Price(target.launch_us + terms[limit], LATENCY if terms[limit] < target.launch_us else limit)


def _latency(work: KernelWork, places: int) -> float:
    """Cycles from the first block's beginning to the last one's end, of which so many run at once. Kernels side by side
    begin one after another; short blocks take the places beside long ones."""
    strands = work.strands or ((work.blocks, work.cycles),)
    longest = max(ceil(blocks / places) * cycles for blocks, cycles in strands)
    return max(longest, sum(blocks * cycles for blocks, cycles in strands) / places)


def dram_us(nbytes: float, target: Target) -> float:
    """Microseconds that DRAM takes for the distinct bytes of a kernel; none for what L2 keeps."""
    return 0.0 if nbytes <= _KEPT * target.l2_bytes else nbytes / (target.dram_gbps * 1e3)


def memory_us(nbytes: float, target: Target) -> float:
    """Microseconds that the L2, or DRAM, takes for so many bytes of a kernel."""
    return max(dram_us(nbytes, target), nbytes / (target.l2_gbps * 1e3))


def loop_cycles(instructions: float, loads: int, missed: float) -> float:
    """Cycles of one thread for a turn of an innermost loop, `missed` of whose loads miss the SM's cache."""
    return instructions * _ALONE + _waiting(loads, missed) / _TOGETHER


def straight_cycles(instructions: float, loads: int, missed: float) -> float:
    """Cycles of one thread for code without loops; its loads are on their way together."""
    return instructions * _ALONE + _waiting(loads, missed)


def _waiting(loads: int, missed: float) -> float:
    return _HIT + _MISSED * missed / loads if loads else 0.0
