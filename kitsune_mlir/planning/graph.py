"""The operator graph that planning works on: plain data, no IR."""

from __future__ import annotations

from dataclasses import dataclass, field

# A node's part in a pipeline.
PRODUCT = "product"  # a matrix product of row tiles with a resident operand: tensor cores
SIMT = "simt"  # anything else that treats rows independently
MOVE = "move"  # moves data only: concatenation, slice, reshape, gather
REDUCTION = "reduction"  # sums over the rows: split into partial sums and a sum of those


@dataclass(frozen=True)
class Node:
    """One operator. Nodes are numbered in program order, which is a topological order.

    `streams` are the nodes whose rows it reads tile by tile, `wholes` those it needs complete before
    its first row (a weight computed by the model, a key it compares every row with). `space` says
    which rows it streams: nodes of one space see the same rows in the same order. None excludes the
    node from pipelines, and `reason` says why.
    """

    index: int
    name: str
    streams: tuple[int, ...] = ()
    wholes: tuple[int, ...] = ()
    space: int | None = None
    kind: str = SIMT
    reason: str = ""
    multiplies: bool = False  # a matrix product, also one that sums over the rows


@dataclass(frozen=True)
class Group:
    """A convex set of nodes that become one pipeline."""

    nodes: tuple[int, ...]
    space: int


@dataclass
class Partition:
    """What `partition` decided: the groups, and why every other node is in none."""

    groups: list[Group] = field(default_factory=list)
    declined: dict[int, str] = field(default_factory=dict)
