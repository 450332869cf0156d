"""Subgraph selection: what every partition keeps to, and small graphs with a known answer."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_graphs import nodes, reachable, successors

from kitsune_mlir.planning.graph import PRODUCT, REDUCTION, SIMT, Node
from kitsune_mlir.planning.partition import partition


def groups_of(graph, **options):
    return [group.nodes for group in partition(graph, **options).groups]


@settings(max_examples=150, deadline=None)
@given(nodes(), st.integers(0, 2))
def test_groups_are_sound(graph, min_products):
    result = partition(graph, min_products)
    grouped = [index for group in result.groups for index in group.nodes]
    assert len(set(grouped)) == len(grouped), "disjoint"
    assert sorted([*grouped, *result.declined]) == list(range(len(graph))), "in a group or declined, not both"
    for group in result.groups:
        assert {graph[index].space for index in group.nodes} == {group.space} != {None}
        assert sum(graph[index].kind == PRODUCT for index in group.nodes) >= min_products
        assert not any(set(graph[index].wholes) & set(group.nodes) for index in group.nodes), "needs all of a member"
    for index, reason in result.declined.items():
        assert reason and (graph[index].space is None) == (reason == "excluded")


@settings(max_examples=150, deadline=None)
@given(nodes())
def test_groups_are_convex_and_can_be_ordered(graph):
    groups = groups_of(graph, min_products=0)
    edges = successors(graph)
    for group in groups:
        inside = set(group)
        left = set().union(*(edges[index] for index in group)) - inside
        assert not any(reachable(edges, index) & inside for index in left), "a path leaves and comes back"
    unit = {index: index for index in range(len(graph))} | {i: group[0] for group in groups for i in group}
    quotient = {unit[index]: set() for index in unit}
    for index, readers in edges.items():
        quotient[unit[index]] |= {unit[reader] for reader in readers} - {unit[index]}
    assert not any(vertex in reachable(quotient, vertex) for vertex in quotient), "groups wait for each other"


@settings(max_examples=100, deadline=None)
@given(nodes(spaces=(0,), wholes=False))
def test_what_streams_the_same_rows_is_one_group(graph):
    """With nothing excluded every merge is convex, so groups are the connected components of streams."""
    component = {node.index: node.index for node in graph}
    for node in graph:
        for source in node.streams:
            old, new = component[source], component[node.index]
            component = {index: new if c == old else c for index, c in component.items()}
    groups = groups_of(graph, min_products=0)
    assert len(groups) == len(set(component.values()))
    assert all(len({component[index] for index in group}) == 1 for group in groups)


def test_a_diamond_through_an_excluded_node_is_cut():
    product = Node(0, "a", space=0, kind=PRODUCT)
    outside = Node(2, "transpose", (0,), reason="permutes")
    graph = [product, Node(1, "b", (0,), space=0, kind=PRODUCT), outside, Node(3, "c", (1, 2), space=0, kind=PRODUCT)]
    assert groups_of(graph) == [(0, 1), (3,)]
    assert groups_of([*graph[:3], Node(3, "c", (1,), space=0, kind=PRODUCT)]) == [(0, 1, 3)]


def test_a_value_needed_whole_keeps_groups_apart():
    graph = [Node(0, "k", space=0, kind=PRODUCT), Node(1, "q", space=0, kind=PRODUCT)]
    assert groups_of([*graph, Node(2, "qk", (1,), (0,), 0, PRODUCT)]) == [(0,), (1, 2)]
    assert groups_of([*graph, Node(2, "sum", (1, 0), (), 0, SIMT)]) == [(0, 1, 2)]


def test_consumers_of_one_value_stand_together():
    graph = [Node(0, "gather", reason="gathers")]
    graph += [Node(i, "product", (0,), space=0, kind=PRODUCT) for i in (1, 2, 3)]
    assert groups_of(graph) == [(1, 2, 3)]


@pytest.mark.parametrize(("least", "groups"), [(1, [(0, 1)]), (2, [])])
def test_too_few_products(least, groups):
    graph = [Node(0, "a", space=0, kind=PRODUCT), Node(1, "relu", (0,), space=0), Node(2, "other", space=1)]
    result = partition(graph, least)
    assert [group.nodes for group in result.groups] == groups
    assert result.declined[2] == f"its group has 0 products, fewer than {least}"


@pytest.mark.parametrize(("multiplies", "groups"), [(True, [(0, 1)]), (False, [])])
def test_a_product_that_sums_over_the_rows_is_one(multiplies, groups):
    graph = [Node(0, "relu", space=0), Node(1, "sum", (0,), space=0, kind=REDUCTION, multiplies=multiplies)]
    assert groups_of(graph) == groups


def test_the_steps_of_a_long_recurrence_take_time_in_proportion():
    """Each of 3000 steps is a product of the step's own and two operators that take the states of the step before."""
    graph = []
    for _ in range(3000):
        n = len(graph)
        states = (n - 2, n - 1) if n else ()
        graph.append(Node(n, "linalg.matmul", (), (), n, PRODUCT))
        graph.append(Node(n + 1, "linalg.generic", (n, *states), (), n, SIMT))
        graph.append(Node(n + 2, "linalg.generic", (n + 1, *states), (), n, SIMT))
    start = time.process_time()
    assert len(groups_of(graph)) == 3000
    assert time.process_time() - start < 3
