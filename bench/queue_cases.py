"""What the queue benchmark measures, and what must arrive. Pure Python and numpy: no MLIR, no GPU.

A kernel is one `Case`: a transport with slots of one size. A payload larger than a slot goes in pieces through several
slots, so one kernel serves many payloads: only the number of pieces differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

PAIRS = 66  # half the SMs of an H100
GROUP = 256  # threads of an agent
THREADS = 2 * GROUP + 32  # writers, readers, a warp that fetches
PAYLOADS = tuple(1 << k for k in range(10, 19))  # bytes: 1 KB to 256 KB
SLOT_BYTES = tuple(1 << k for k in range(10, 17))
BARRIER_BYTES = 1024  # of shared memory, before the slots
SLOTS_BYTES = 192 * 1024
MOST_SLOTS = 16
COUNTERS_BYTES = 4096  # of a pair, in global memory
WORD = 16  # bytes that a thread moves at once
MIX, BY_NUMBER, BY_WORD, BY_PAIR = 0x01000193, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
WEIGHTS = (3, 5, 7, 11)  # of a word's four parts in its checksum

# With waits and signals; without any (bounds); one handshake for many pieces (DSMEM, where copies must be counted).
SYNCHRONISED, FREE, BATCHED = "synchronised", "free", "batched"
BATCH_BYTES = 256 * 1024  # of one handshake when batched: a barrier counts less than 1 MB


@dataclass(frozen=True)
class Case:
    """`touch`: "all" bytes are written by the sender's threads and summed by the receiver's, or one "stamp" of 16 bytes
    at either end of a piece. `sides`: "both", or "send" or "receive" alone."""

    transport: str  # "smem", "dsmem", "l2", "l2_ldst", "reg"
    slot_bytes: int
    touch: str = "stamp"
    mode: str = SYNCHRONISED
    sides: str = "both"
    lag: int = 1  # L2: copies not yet ended

    @property
    def name(self) -> str:
        return f"{self.transport}_{self.slot_bytes}_{self.touch}_{self.mode}_{self.sides}_{self.lag}"

    @property
    def slots(self) -> int:
        return min(MOST_SLOTS, SLOTS_BYTES // self.slot_bytes)

    @property
    def depth(self) -> int:
        """Pieces that a ring in global memory holds."""
        return max(8, min(MOST_SLOTS, 256 * 1024 // self.slot_bytes))

    @property
    def batch(self) -> int:
        """Pieces of one handshake."""
        return max(1, BATCH_BYTES // self.slot_bytes) if self.mode == BATCHED else 1

    @property
    def ctas(self) -> int:
        """Sender and receiver are CTAs 2p and 2p + 1 of pair p, or one CTA."""
        return PAIRS if self.transport in ("smem", "reg") else 2 * PAIRS

    @property
    def threads(self) -> int:
        return GROUP if self.transport in ("l2_ldst", "reg") else THREADS

    @property
    def shared_bytes(self) -> int:
        if self.transport == "reg":
            return 0
        return BARRIER_BYTES if self.transport == "l2_ldst" else BARRIER_BYTES + self.slots * self.slot_bytes

    @property
    def ring_bytes(self) -> int:
        """The bytes of a pair's ring in global memory."""
        return self.depth * self.slot_bytes if self.transport.startswith("l2") else 0

    @property
    def checked(self) -> bool:
        """Whether what arrives is determined."""
        return self.mode == SYNCHRONISED and self.sides == "both"

    def description(self) -> dict:
        return asdict(self) | {
            "name": self.name,
            "ctas": self.ctas,
            "threads": self.threads,
            "shared_bytes": self.shared_bytes,
            "ring_bytes": self.ring_bytes,
            "cooperative": self.transport.startswith("l2"),
            "batch": self.batch,
        }

    def touched(self) -> np.ndarray:
        """[words of a thread, threads]: the numbers of the 16-byte words that thread t sums, in order; -1: none."""
        words = self.slot_bytes // WORD
        if self.touch == "stamp":
            found = np.full((2, GROUP), -1)
            found[:, 0] = 0, words - 1
            return found
        found = np.arange(-(-words // GROUP) * GROUP).reshape(-1, GROUP)
        return np.where(found < words, found, -1)

    def checksums(self, count: int) -> np.ndarray:
        """[PAIRS, GROUP] u32: what the receiver's threads have after `count` pieces."""
        sums = np.zeros((PAIRS, GROUP), np.uint32)
        pair = np.arange(PAIRS, dtype=np.uint32)[:, None] * np.uint32(BY_PAIR)
        for number in range(count):
            for words in self.touched():
                salt = pair + np.uint32(number * BY_NUMBER % 2**32)
                first = words.astype(np.uint32)[None] * np.uint32(BY_WORD) + salt
                parts = sum(np.uint32(weight) * (first ^ np.uint32(i)) for i, weight in enumerate(WEIGHTS))
                sums = np.where(words >= 0, sums * np.uint32(MIX) + parts, sums)
        return sums


def cases() -> Iterator[Case]:
    """Every kernel."""
    for size in SLOT_BYTES:
        for touch in ("stamp", "all"):
            yield Case("smem", size, touch)
            yield Case("dsmem", size, touch)
            yield Case("l2", size, touch)
        yield Case("smem", size, "all", FREE)
        yield Case("dsmem", size, "stamp", BATCHED)
        yield Case("l2", size, lag=2)
        if size <= 16 * 1024:
            yield Case("l2", size, lag=4)
        for sides in ("both", "send", "receive"):
            yield Case("l2", size, "stamp", FREE, sides, lag=2)
            yield Case("l2_ldst", size, "all", FREE, sides)
        yield Case("l2_ldst", size, "all")
        yield Case("reg", size, "all")


def pieces(case: Case, payload: int) -> int:
    """Slots that a payload takes."""
    return payload // case.slot_bytes


def serves(case: Case, payload: int) -> bool:
    """Whether the kernel is one to carry that payload: a slot is the payload, or a large part of it."""
    return payload == case.slot_bytes or (payload > case.slot_bytes >= 16 * 1024)
