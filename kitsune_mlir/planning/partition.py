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
    """The graph with every group shrunk to one vertex; merges keep it acyclic. In `order` each group stands behind
    those that it takes from, so a path from one group to another goes through groups that stand between them."""

    def __init__(self, nodes: Sequence[Node]):
        self.group = list(range(len(nodes)))  # node -> group
        self.members = {i: [i] for i in range(len(nodes))}
        self.order: list[int | None] = list(range(len(nodes)))  # None where a group was that is part of another now
        self.place = list(range(len(nodes)))  # group -> where it stands in this order
        self.sources = [{*node.streams, *node.wholes} for node in nodes]
        self.readers: list[set[int]] = [set() for _ in nodes]
        self.apart = [set(node.wholes) for node in nodes]  # groups of which one needs all of what the other makes
        for node in nodes:
            for source in self.sources[node.index]:
                self.readers[source].add(node.index)
            for source in node.wholes:
                self.apart[source].add(node.index)

    def mergeable(self, a: int, b: int) -> bool:
        """Whether merging groups a and b keeps the quotient acyclic and no whole-tensor edge inside."""
        first, last = sorted((a, b), key=self.place.__getitem__)
        return b not in self.apart[a] and not self._ahead(first, last) & self.readers[first]

    def _ahead(self, first: int, last: int) -> set[int]:
        """The groups between two that have to stand before the last one."""
        stack, found = [last], set[int]()
        while stack:
            for source in self.sources[stack.pop()]:
                if self.place[source] > self.place[first] and source not in found:
                    found.add(source)
                    stack.append(source)
        return found

    def merge(self, a: int, b: int) -> None:
        """Makes group b part of group a."""
        first, last = sorted((a, b), key=self.place.__getitem__)
        start, end = self.place[first], self.place[last]
        ahead, between = self._ahead(first, last), [g for g in self.order[start + 1 : end] if g is not None]
        moved = [*(g for g in between if g in ahead), a, *(g for g in between if g not in ahead)]
        self.order[start : end + 1] = [*moved, *[None] * (end + 1 - start - len(moved))]
        for place, group in enumerate(moved, start):
            self.place[group] = place
        for member in self.members[b]:
            self.group[member] = a
        self.members[a] += self.members.pop(b)
        for own, others in ((self.sources, self.readers), (self.readers, self.sources), (self.apart, self.apart)):
            for other in own[b]:
                others[other].discard(b)
                others[other].add(a)
            own[a] |= own[b]
        for own in (self.sources, self.readers):
            own[a] -= {a, b}


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
