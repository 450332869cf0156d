"""A placed pipeline as plain data: what the proof and the simulator reason about. No MLIR.

A stage fires once for each row tile t = 0 .. T-1 (a `once` stage: once, after the last). The stages of
a role run on the same `replicas` CTAs; replica r of n takes tiles r, r + n, r + 2n, ... in order and
runs the role's stages on each in the order they have in `Flow.stages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNITS = {
    "tensor": "matrix products, on the tensor cores",
    "simt": "everything else, on the vector units",
}
TRANSPORTS = {
    "reg": "registers, between stages of one role: the tile is handed over within the CTA",
    "smem": "a ring in the shared memory of a CTA, between stages of one role",
    "dsmem": "a ring in the shared memory of the consumers, written over the cluster: a replica of each role",
    "l2": "a ring in global memory, small enough to stay in the L2 cache, between any replicas",
    "hbm": "a ring in global memory that need not fit the L2 cache, between any replicas",
}
ON_CTA = ("reg", "smem", "dsmem")  # the ring lies in a CTA, so every replica has a ring of its own


@dataclass(frozen=True)
class Stage:
    """Work on one row tile by one CTA of a role."""

    name: str
    unit: str  # "tensor" or "simt"
    role: int
    replicas: int  # CTAs of the role; equal for all its stages
    once: bool = False  # fires once, on the partial sums of accumulating queues
    split: bool = False  # once, in the role of what it sums: after the last tile each CTA adds a share of the elements
    location: str = ""  # "model.py:12"


@dataclass(frozen=True)
class Queue:
    """A ring of `depth` tiles from one stage to one or more others, each of which takes every tile.

    In a ring shared by all replicas (l2, hbm) tile t lies in slot t mod depth. Where the ring lies in a
    CTA (`ON_CTA`) each of the n replicas has one, and tile t lies in slot (t div n) mod depth of replica
    t mod n's. An accumulating queue carries one partial sum of each producer replica, in place of tiles.
    """

    name: str
    producer: str
    consumers: tuple[str, ...]
    depth: int
    tile_bytes: int
    transport: str
    accumulates: bool = False
    lookahead: tuple[int, ...] = ()  # per consumer: tiles it acquires beyond the one it works on; () is all 0

    @property
    def lookaheads(self) -> tuple[int, ...]:
        """`lookahead`, spelled out."""
        return self.lookahead or (0,) * len(self.consumers)

    @property
    def on_cta(self) -> bool:
        return self.transport in ON_CTA


@dataclass(frozen=True)
class Flow:
    """A placed pipeline: its stages in program order, and its queues. `cluster` CTAs stand in one cluster: those of a
    role that share each tile, or one of each role that dsmem queues join."""

    name: str
    stages: tuple[Stage, ...]
    queues: tuple[Queue, ...]
    cluster: int = 1

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def roles(self) -> dict[int, list[Stage]]:
        """The stages of each role, in program order."""
        found: dict[int, list[Stage]] = {}
        for stage in self.stages:
            found.setdefault(stage.role, []).append(stage)
        return found


@dataclass(frozen=True)
class Finding:
    """What is wrong with a flow ("error": it must not be launched) or wasteful in it ("warning")."""

    severity: Literal["error", "warning"]
    subject: str  # the name of a queue, a stage, or the flow
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: '{self.subject}' {self.message}"
