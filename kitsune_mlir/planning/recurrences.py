"""How the CTAs of a GPU share the steps of a recurrent layer (codegen/gpu_recurrent.py).

A cluster of CTAs has some rows of the batch through all steps. Each CTA has some columns of the state, and, of the
weights, what these are computed with, in its shared memory as far as that holds it. In a step a thread has some columns
of gates, all rows, and a slice of what is summed up; what threads found of a column is added up behind a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import ceil

from .cost import CYCLES_A_US
from .target import Target

GATES = {"gru": 3, "lstm": 4, "relu": 1, "tanh": 1}  # of each kind of cell
MOST_WIDTH, MOST_OPEN_WIDTH = 1536, 4096  # columns of a state; of an open number of steps, which no other way has
CLUSTERS = (1, 2, 4, 8, 16)
ROWS, EACH, THREADS = (1, 2, 4, 8, 16), (1, 2, 4, 8, 16), (128, 256, 512)
WORD = 16  # bytes that a thread loads at once
STATIC = 48 << 10  # bytes of shared memory that every kernel may have
READ_AHEAD = 16  # numbers of a column that a thread loads out of L2 before it multiplies them
_RESERVE = 2 << 10
_SUMS = 32  # registers of a thread for sums, at most
_MOST_SLICES = 16
_LANES = 32.0
# Cycles, of 98 kernels (H200): of a step, a warp's word of shared memory, its product of 32 numbers, a turn of a loop
# over a slice, and in it a sum, a sum that is taken from shared memory, what follows for a warp, and for it a sum.
_STEP, _READ, _MULTIPLIED, _TURN, _SUM, _TAKEN = 991.0, 0.35, 0.233, 12.1, 4.32, 2.04
_LEAVES, _ADDED = 8.56, 1.36
_GIVEN, _AWAITED = 50.0, 507.0  # bytes of L2 that an SM gets in a cycle; until a thread's numbers of it are there


@dataclass(frozen=True)
class Layer:
    """Steps of a recurrent layer: rows of the batch, directions, steps, columns of the state, gates, bytes of a number
    of the weights."""

    rows: int
    directions: int
    steps: int
    width: int
    gates: int
    element_bytes: int


@dataclass(frozen=True)
class Shares:
    """How a `layer` is shared: rows and CTAs of a cluster, threads of a CTA, columns of gates that each of these has;
    bytes of shared memory that there are for weights, and that a CTA has at least; microseconds of a call."""

    layer: Layer
    rows: int
    cluster: int
    threads: int
    each: int
    room: int = 0
    least_bytes: int = 0
    microseconds: float = 0.0

    @cached_property
    def columns(self) -> int:
        """Columns of the state that a CTA has."""
        return ceil(self.layer.width / self.cluster)

    @property
    def own(self) -> int:
        """Columns of all gates that a CTA has."""
        return self.layer.gates * self.columns

    @cached_property
    def across(self) -> int:
        """Threads that have all of these columns."""
        return ceil(self.own / self.each)

    @cached_property
    def slices(self) -> int:
        """Slices of what is summed up, each of so many threads."""
        return min(_MOST_SLICES, self.threads // self.across)

    @property
    def word(self) -> int:
        """Numbers of a column of the weights that a thread loads at once."""
        return WORD // self.layer.element_bytes

    @cached_property
    def slice(self) -> int:
        """Numbers of a state that a thread sums up."""
        return ceil(ceil(self.layer.width / self.slices) / self.word) * self.word

    @property
    def padded(self) -> int:
        """Numbers of a state in shared memory, of which those behind the width are zero."""
        return self.slices * self.slice

    @cached_property
    def held(self) -> int:
        """Numbers of a slice of each column that shared memory holds."""
        words = self.room // (self.own * WORD) - 1
        return min(self.slice, max(0, words // self.slices) * self.word)

    @property
    def pitch(self) -> int:
        """Numbers from one column of the weights to the next: an odd number of words, so that neighbours lie in other
        banks."""
        return (self.slices * self.held // self.word | 1) * self.word

    @property
    def items(self) -> int:
        """Elements of the state that a thread has."""
        return ceil(self.rows * self.columns / self.threads)

    @property
    def is_one(self) -> bool:
        """Whether all of shared memory is one buffer, of f32: a kernel has one that is larger than all may have."""
        return self.layer.element_bytes == 4

    def times(self, target: Target) -> int:
        """How often places are found for as many clusters as a GPU has at once."""
        clusters = self.layer.directions * ceil(self.layer.rows / self.rows)
        return ceil(clusters / target.clusters_at_once(self.cluster))

    def static_bytes(self) -> int:
        """Shared memory for states, those before and those behind a step, and for sums."""
        return 4 * self.rows * (2 * self.padded + self.slices * self.own)

    def weight_bytes(self) -> int:
        """Shared memory for weights."""
        return self.own * self.pitch * self.layer.element_bytes if self.held else 0


def choose(of: Layer, target: Target) -> Shares | None:
    """The fastest shares by predicted time; None where a state is too wide."""
    return min((_priced(own, target) for own in _shares(of, target)), key=lambda own: own.microseconds, default=None)


def _shares(of: Layer, target: Target) -> Iterator[Shares]:
    for cluster, rows, threads, each in product(CLUSTERS if target.clusters else (1,), ROWS, THREADS, EACH):
        own = Shares(of, rows, cluster, threads, each)
        if (rows > 1 and rows >= 2 * of.rows) or each * rows > _SUMS or own.across > threads:
            continue
        used, most = own.static_bytes() + _RESERVE, target.shared_bytes if own.is_one else STATIC
        if used <= most:
            found = replace(own, room=target.shared_bytes - used)
            # CTAs that find a place each would share SMs otherwise, which steps all wait for.
            yield replace(found, least_bytes=target.shared_bytes // 2 + _RESERVE) if found.times(target) == 1 else found


def _priced(own: Shares, target: Target) -> Shares:
    of, warps = own.layer, own.threads / _LANES
    words = own.each * of.element_bytes / 4 + own.rows  # of shared memory that a warp reads for a product
    turns = own.slice / own.word
    step = _STEP + warps * own.slice * (_READ * words + _MULTIPLIED * own.each * own.rows)
    step += turns * (_TURN + _SUM * own.each * own.rows)
    step += own.items * (_TAKEN * of.gates * own.slices + warps * (_LEAVES + _ADDED * of.gates * own.slices))
    if (streamed := own.slice - own.held) > 0:
        step += own.own * own.slices * streamed * of.element_bytes / _GIVEN + ceil(streamed / READ_AHEAD) * _AWAITED
    times = own.times(target)
    start = own.weight_bytes() / _GIVEN
    us = target.launch_us + times * (start + of.steps * step) / CYCLES_A_US
    return replace(own, microseconds=us)
