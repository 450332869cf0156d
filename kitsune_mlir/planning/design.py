"""Pipeline design: operators to stages, intermediates to queues (paper, section 5.2, Algorithm 1).

Every product starts a stage; what follows it row by row joins it (epilogue fusion); what no product
precedes becomes a SIMT stage in front. What only moves data (a concatenation, a slice) goes to the
stage that reads it, so that its parts cross the queues and not the whole. A sum over rows is split:
its terms are a stage's partial sums, and a stage of its own adds those. Every intermediate that crosses
stages gets one queue, whatever the number of its consumers (multicast).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .graph import MOVE, PRODUCT, REDUCTION, Node


@dataclass(frozen=True)
class StagePlan:
    """`nodes` in program order; `kind` is "tensor" or "simt"; `name` is unique in the pipeline."""

    name: str
    kind: str
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Design:
    """The stages in an order in which producers stand first."""

    stages: tuple[StagePlan, ...]

    def stage_of(self) -> dict[int, int]:
        """Node -> position of its stage."""
        return {node: i for i, stage in enumerate(self.stages) for node in stage.nodes}


def design(nodes: Sequence[Node], fuse: bool = True) -> Design:
    """Assigns the nodes of one group (in program order; `streams` outside the group are ignored).

    A node that follows products joins the latest of their stages, so no stage waits for a later one.
    With `fuse=False` every node becomes a stage of its own.
    """
    stage: dict[int, int] = {}
    members: list[list[Node]] = []
    moves: list[Node] = []  # of what the pipeline takes, which stand in no reader's way
    for node in nodes:
        sources = [stage[source] for source in node.streams if source in stage]
        latest = max(sources, default=None)
        if fuse and node.kind == MOVE and latest is None:
            moves.append(node)
            continue
        starts = not fuse or node.kind in (PRODUCT, REDUCTION) or latest is None
        if starts and fuse and node.kind != REDUCTION and latest is None:
            # What reads only the pipeline's inputs: one front stage for SIMT work, none shared by products.
            front = next((i for i, group in enumerate(members) if _is_front(group, stage, node)), None)
            starts, latest = front is None, front
        if starts:
            stage[node.index] = len(members)
            members.append([node])
        else:
            assert latest is not None
            stage[node.index] = latest
            members[latest].append(node)
    for node in reversed(moves):
        readers = {stage[reader.index] for reader in nodes if node.index in reader.streams}
        if len(readers) != 1:
            readers = {len(members)}
            members.append([])
        (stage[node.index],) = readers
        members[stage[node.index]].insert(0, node)
    if fuse:
        _sink_moves(nodes, stage, members)
    order = _topological(members, stage)
    return Design(tuple(_plan(i, members[m]) for i, m in enumerate(order)))


def _is_front(group: list[Node], stage: dict[int, int], node: Node) -> bool:
    """Whether `node`, which reads inputs only, can join this stage: SIMT work that reads inputs only."""
    if node.kind == PRODUCT:
        return False
    own = {member.index for member in group}
    simt = all(member.kind not in (PRODUCT, REDUCTION) for member in group)
    return simt and all(set(member.streams) & stage.keys() <= own for member in group)


def _sink_moves(nodes: Sequence[Node], stage: dict[int, int], members: list[list[Node]]) -> None:
    """Moves data movement to the one other stage that reads it, if there is just one."""
    for node in reversed(nodes):
        if node.kind != MOVE:
            continue
        readers = {stage[reader.index] for reader in nodes if node.index in reader.streams}
        if len(readers) == 1 and (goal := readers.pop()) != stage[node.index]:
            members[stage[node.index]].remove(node)
            members[goal].insert(0, node)
            stage[node.index] = goal


def _topological(members: list[list[Node]], stage: dict[int, int]) -> list[int]:
    """Stages so that producers stand first; ties keep program order."""
    waits = {
        i: {stage[source] for node in group for source in node.streams if source in stage} - {i}
        for i, group in enumerate(members)
        if group
    }
    order: list[int] = []
    while waits:
        ready = min(i for i, needed in waits.items() if needed <= set(order))
        order.append(ready)
        del waits[ready]
    return order


def _plan(position: int, group: list[Node]) -> StagePlan:
    kind = "tensor" if any(node.kind == PRODUCT or node.multiplies for node in group) else "simt"
    return StagePlan(f"s{position}", kind, tuple(sorted(node.index for node in group)))
