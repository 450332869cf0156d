"""Subgraph selection: convex groups of operators that stream the same rows (paper, section 5.1).

The paper matches regular expressions against one linearisation of the graph; here groups are grown on
the graph itself: neighbours that stream the same rows merge whenever the merged group stays convex,
that is, no path leaves it and comes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import PRODUCT, Group, Node, Partition

VIEWS = ("tensor.collapse_shape", "tensor.expand_shape")  # what moves no data


class _Quotient:
    """The graph with every group shrunk to one vertex; merges keep it acyclic."""

    def __init__(self, nodes: Sequence[Node]):
        self.nodes = nodes
        self.group = list(range(len(nodes)))  # node -> group
        self.members = {i: [i] for i in range(len(nodes))}
        self.successors: dict[int, set[int]] = {i: set() for i in range(len(nodes))}
        self.barriers: set[tuple[int, int]] = set()  # (producer node, node that needs all of it)
        for node in nodes:
            for source in (*node.streams, *node.wholes):
                self.successors[source].add(node.index)
            self.barriers.update((source, node.index) for source in node.wholes)

    def mergeable(self, a: int, b: int) -> bool:
        """Whether merging groups a and b keeps the quotient acyclic and no whole-tensor edge inside."""
        inside = {a, b}
        if any({self.group[source], self.group[reader]} <= inside for source, reader in self.barriers):
            return False
        return not self._reaches_around(a, b) and not self._reaches_around(b, a)

    def _reaches_around(self, start: int, goal: int) -> bool:
        """Whether a path start -> other group -> ... -> goal exists."""
        stack = [s for s in self.successors[start] if s != goal]
        seen = set(stack)
        while stack:
            for successor in self.successors[stack.pop()]:
                if successor == goal:
                    return True
                if successor not in seen:
                    seen.add(successor)
                    stack.append(successor)
        return False

    def merge(self, a: int, b: int) -> None:
        for member in self.members[b]:
            self.group[member] = a
        self.members[a] += self.members.pop(b)
        self.successors[a] = (self.successors[a] | self.successors.pop(b)) - {a, b}
        for targets in self.successors.values():
            if b in targets:
                targets.discard(b)
                targets.add(a)
        self.successors[a].discard(a)


def partition(nodes: Sequence[Node], min_products: int = 1) -> Partition:
    """Groups the nodes (numbered in topological order) into convex sets of one row space each.

    A group needs `min_products` matrix products: without one there is nothing to overlap, and the
    plain path fuses elementwise operators as well.
    """
    quotient = _Quotient(nodes)
    for a, b in _affinities(nodes):
        left, right = quotient.group[a], quotient.group[b]
        if left != right and quotient.mergeable(left, right):
            quotient.merge(left, right)
    result = Partition(declined={node.index: node.reason for node in nodes if node.space is None})
    for members in quotient.members.values():
        space = nodes[members[0]].space
        if space is None:
            continue
        members, views = _without_last_views(nodes, members)
        result.declined.update(dict.fromkeys(views, "is a view of what its pipeline gives"))
        products = sum(nodes[member].kind == PRODUCT or nodes[member].multiplies for member in members)
        if products >= min_products:
            result.groups.append(Group(tuple(sorted(members)), space))
        else:
            reason = f"its group has {products} products, fewer than {min_products}"
            result.declined.update(dict.fromkeys(members, reason))
    result.groups.sort(key=lambda group: group.nodes)
    return result


def _without_last_views(nodes: Sequence[Node], members: Sequence[int]) -> tuple[list[int], list[int]]:
    """The members of a group but for those, behind all others, that only give its results another shape; and those."""
    kept, views = sorted(members), list[int]()
    for member in reversed(sorted(members)):
        read = any(member in (*nodes[other].streams, *nodes[other].wholes) for other in kept)
        if nodes[member].name in VIEWS and not read:
            kept.remove(member)
            views.append(member)
    return kept, views


def _affinities(nodes: Sequence[Node]) -> list[tuple[int, int]]:
    """Pairs worth merging, nearest first: producer and consumer, then consumers of one producer."""
    pairs: list[tuple[int, int]] = []
    readers: dict[int, list[int]] = {}
    for node in nodes:
        if node.space is None:
            continue
        for source in node.streams:
            if nodes[source].space == node.space:
                pairs.append((source, node.index))
            readers.setdefault(source, []).append(node.index)
    for siblings in readers.values():
        pairs += [(a, b) for a, b in zip(siblings, siblings[1:]) if nodes[a].space == nodes[b].space]
    return pairs
