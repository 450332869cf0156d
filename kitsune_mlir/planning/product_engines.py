"""What multiplies the tiles of products on a target, and how fast: warpgroups, or warps by themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .cost import CYCLES_A_US
from .product_widths import COLUMNS
from .target import Target

CHUNK = 64  # columns of k that a slot holds, of 16-bit elements
COPY_ROWS = 64  # rows of a copy of the agent that multiplies: of a warpgroup, or of four warps one tile each
ISSUED = 64.0  # instructions of a copy's threads a cycle
BARRIERS = 1024  # bytes of shared memory in front of the slots
OUTBOX = 2 * COPY_ROWS * 128  # bytes of shared memory through which the tiles of a copy leave
MOST_SLOTS = 8  # of a ring
BESIDE_SUMS = 26  # registers that ptxas wants of a thread at launch besides those of a warpgroup's sums
_OF_THREE, _SLOWER = 128, 1.04  # columns of the sums of three warpgroups, as measured, and how long these take
_BESIDE_MAKING = 192  # columns of the sums of two warpgroups beside one that makes
_WARPS, _THREADS = 4, 128  # of a copy, and of the agent that feeds it
_REGISTERS, _MOST_REGISTERS = 65536, 255  # of an SM, of a thread


@dataclass(frozen=True)
class Warpgroups:
    """wgmma and tensor copies. A copy has 64 rows; registers move from who feeds. Cycles are fitted to 132 products of
    bf16 with tiles of all shapes on an H200, from 128 x 128 x 64 to 4096 x 4096 x 4096, what is multiplied and loaded
    a cycle to 19 layers in tiles of 13 widths each on an H100, of which the fastest by these numbers take 0.7 % longer
    than the fastest measured. The next tile's chunks are on their way while one is stored."""

    target: Target
    copies = (1, 2, 3)
    copy_rows = (COPY_ROWS,)
    most_kept = 16  # chunks of an operand that is kept: each turn of their loop is code of its own
    whole_copies = (1, 2)  # where a tile has all columns, and what joins them is done to it
    multiplied = 1850.0  # multiply-adds a cycle; tensor cores have 2048
    loaded = 63.0  # bytes a cycle and SM from L2, of whole lines
    turn = 10.0  # of a chunk, besides
    added = 200.0  # the same where its sums are added outside of tensor cores
    start = 1550.0  # until the first tile's first chunk is there
    tile = 150.0  # of a tile, besides
    stored = 4.0  # instructions of a thread for an element that leaves, besides those of what is done to it
    last = 9.0  # the same of the last tile besides, behind which nothing is on its way
    # Bytes a cycle and SM from L2 where no other asks for them, and how that grows with those that do: windows of 3 x 3
    # took 4.7 cycles a line of 128 bytes alone, 3.5 where five tiles read them, 2.7 where ten do (H100).
    _APART, _NEARER = 27.0, 0.25

    def alone(self, tiles: float) -> float:
        """Bytes a cycle and SM from L2 of what so many tiles ask for at about the same time."""
        return min(self.loaded, self._APART * math.pow(max(tiles, 1.0), self._NEARER))

    def registers(self, copies: int, makes: bool = False) -> tuple[int, ...]:
        """The registers of a thread that feeds, of one that multiplies, and of one that makes pieces."""
        if makes:
            return 24, 240 if copies == 1 else 200, 88
        return (24, 240) if copies < 3 else (24, 152)

    def fits(self, copies: int, copy_rows: int, columns: int, pairs: int, whole: bool, makes: bool) -> bool:
        """Whether the sums fit the registers; those that are added outside tensor cores take another set. Of four
        warpgroups, of which one makes, ptxas gives a thread 128."""
        most = COLUMNS[-1] if pairs == 1 else COLUMNS[-1] // 2
        if copies > 2:
            return columns == _OF_THREE and pairs == 1 and not makes
        return columns <= (min(most, _BESIDE_MAKING) if makes and copies > 1 else most)

    def read_cycles(self, copies: int, copy_rows: int, columns: int) -> float:
        """Cycles in which a chunk's operands leave shared memory: of three warpgroups each reads all of the right one,
        so that products of 192 x 128 took 4 % longer than those of 128 x 256 (23 products, H200)."""
        return _SLOWER * copies * copy_rows * columns * CHUNK / self.multiplied if copies > 2 else 0.0


@dataclass(frozen=True)
class Warps:
    """mma.sync and cp.async, by the target's rates. A copy is four warps of 16 or 32 rows, which load their operands
    from shared memory; all threads have equally many registers."""

    target: Target
    copies = (1, 2)
    copy_rows = (COPY_ROWS, 2 * COPY_ROWS)
    most_kept = 4
    whole_copies = (1,)  # else threads have too few registers for what is kept of a row
    turn = added = 150.0
    start, tile = 0.0, 1500.0
    stored, last = 9.0, 0.0
    _BESIDE_SUMS = 64  # registers
    _SHARED = 128.0  # bytes a cycle that shared memory gives or takes

    @property
    def multiplied(self) -> float:
        return self.target.tensor_tflops * 1e6 / 2 / self.target.sms / CYCLES_A_US

    @property
    def loaded(self) -> float:
        return self.target.l2_gbps * 1e3 / self.target.sms / CYCLES_A_US

    def alone(self, tiles: float) -> float:
        return self.loaded

    def registers(self, copies: int, makes: bool = False) -> tuple[int, ...]:
        """The same as in Warpgroups: all agents have equally many."""
        given = min(_MOST_REGISTERS, _REGISTERS // (_THREADS * (1 + copies))) // 8 * 8
        return given, given

    def fits(self, copies: int, copy_rows: int, columns: int, pairs: int, whole: bool, makes: bool) -> bool:
        """Whether registers hold it. What follows wants a register for each of a thread's columns, unless tiles have
        exactly all, of f32 two; sums that are added outside tensor cores take another set, of 16 rows a warp."""
        if pairs > 1 and copy_rows > COPY_ROWS:
            return False
        wanted = copy_rows * columns // _THREADS * (1 if pairs == 1 else 2) + self._BESIDE_SUMS
        if not whole:
            wanted += columns // 4 * (1 if pairs == 1 else 2)
        return wanted <= self.registers(copies)[1]

    def read_cycles(self, copies: int, copy_rows: int, columns: int) -> float:
        """As Warpgroups says; here a warp reads its rows and all columns."""
        written = (copies * copy_rows + columns) * CHUNK * 2
        return (copies * (copy_rows + _WARPS * columns) * CHUNK * 2 + written) / self._SHARED


def engine(target: Target) -> Warpgroups | Warps:
    """What a target multiplies with, whose `products` are "wgmma" or "mma"."""
    return Warpgroups(target) if target.has_warpgroups else Warps(target)
