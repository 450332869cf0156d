"""How the CTAs of a GPU share the steps of a recurrent layer (codegen/gpu_recurrent.py).

A cluster of CTAs has some rows of the batch through all steps. Each CTA has some columns of the state, and, of the
weights, what these are computed with, in its shared memory if that holds it. In a step a thread has one column of a
gate, or several, and a slice of what is summed up; what threads found of a column is added up behind a barrier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from .cost import CYCLES_A_US
from .target import Target

GATES = {"gru": 3, "lstm": 4, "relu": 1, "tanh": 1}  # of each kind of cell
MOST_WIDTH = 2048  # columns of a state: of one CTA's sums a thread has a few
THREADS = (256, 512)
CLUSTERS = (1, 2, 4, 8, 16)
ROWS = (1, 2, 4, 8)
WORD = 16  # bytes that a thread loads at once
_SUMS = 32  # registers of a thread for sums, at most
_STATIC = 48 << 10  # bytes of shared memory that every kernel may have, for states and sums
_RESERVE = 2 << 10
_MULTIPLIED = 128.0  # products of f32, and words of 4 bytes out of shared memory, of an SM in a cycle: 4 of 32 lanes
_GIVEN = 24.0  # bytes of L2 that an SM gets in a cycle while all others get as many
_ALONE, _MEETING = 250.0, 900.0  # cycles of a step, besides: of a CTA alone, of a cluster's (H100)
_LEAVES = 160.0  # instructions of what follows the products, for each element of the state


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
    """Rows and CTAs of a cluster, threads of a CTA, columns of the state that each CTA has; whether shared memory has
    the CTA's weights; microseconds of a call."""

    rows: int
    cluster: int
    threads: int
    columns: int
    width: int
    gates: int
    element_bytes: int
    resident: bool
    microseconds: float

    @property
    def own(self) -> int:
        """Columns of all gates that a CTA has."""
        return self.gates * self.columns

    @property
    def slices(self) -> int:
        """Threads that share a column."""
        return max(1, self.threads // self.own)

    @property
    def each(self) -> int:
        """Columns that a thread has."""
        return ceil(self.own * self.slices / self.threads)

    @property
    def word(self) -> int:
        """Numbers of a column of the weights that a thread loads at once."""
        return WORD // self.element_bytes

    @property
    def slice(self) -> int:
        """Numbers of a state that a thread sums up."""
        return ceil(ceil(self.width / self.slices) / self.word) * self.word

    @property
    def padded(self) -> int:
        """Numbers of a state in shared memory, of which those behind the width are zero."""
        return self.slices * self.slice

    @property
    def pitch(self) -> int:
        """Numbers from one column of the weights to the next: an odd number of words, so that neighbours lie in other
        banks."""
        return (self.padded // self.word | 1) * self.word

    @property
    def items(self) -> int:
        """Elements of the state that a thread has."""
        return ceil(self.rows * self.columns / self.threads)

    def static_bytes(self) -> int:
        """Shared memory for states, those before and those behind a step, and for sums."""
        return 4 * (2 * self.rows * self.padded + self.slices * self.rows * self.own)

    def weight_bytes(self) -> int:
        """Shared memory for weights."""
        return self.own * self.pitch * self.element_bytes if self.resident else 0


def choose(of: Layer, target: Target) -> Shares | None:
    """The fastest shares by predicted time; None where a state is too wide."""
    found = (own for own in _shares(of, target.clusters) if _fits(own, target.shared_bytes))
    priced = (_priced(own, of, target) for own in found)
    return min(priced, key=lambda own: own.microseconds, default=None)


def _shares(of: Layer, has_clusters: bool) -> Iterator[Shares]:
    for cluster, rows, threads, resident in product(CLUSTERS if has_clusters else (1,), ROWS, THREADS, (True, False)):
        columns = ceil(of.width / cluster)
        if rows < 2 * of.rows or rows == 1:
            yield Shares(rows, cluster, threads, columns, of.width, of.gates, of.element_bytes, resident, 0.0)


def _fits(own: Shares, shared_bytes: int) -> bool:
    is_held = own.static_bytes() <= _STATIC - _RESERVE and own.each * own.rows <= _SUMS
    return is_held and own.static_bytes() + own.weight_bytes() + _RESERVE <= shared_bytes


def _priced(own: Shares, of: Layer, target: Target) -> Shares:
    words = own.slice * (own.each * of.element_bytes / 4 + own.rows)  # a thread's, of weights and of states
    products = own.threads / _MULTIPLIED * max(own.slice * own.each * own.rows, words)
    if not own.resident:
        products = max(products, own.own * own.padded * of.element_bytes / _GIVEN)
    leaves = own.items * (_LEAVES + own.cluster + own.gates * own.slices) * own.threads / _MULTIPLIED
    step = products + leaves + (_MEETING if own.cluster > 1 else _ALONE)
    clusters = of.directions * ceil(of.rows / own.rows)
    turns = ceil(clusters / target.clusters_at_once(own.cluster))
    start = own.weight_bytes() / _GIVEN
    us = target.launch_us + turns * (start + of.steps * step) / CYCLES_A_US
    return replace(own, microseconds=us)
