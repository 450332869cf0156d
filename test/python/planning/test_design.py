"""Operators to stages: what every design keeps to, and the paper's cases."""

from hypothesis import given, settings
from hypothesis import strategies as st
from operator_graphs import nodes

from kitsune_mlir.planning.design import design
from kitsune_mlir.planning.graph import MOVE, PRODUCT, REDUCTION, SIMT, Node

GROUPS = nodes(most=12, spaces=(0,), wholes=False)


def stages_of(graph, **options):
    return [stage.nodes for stage in design(graph, **options).stages]


def node(index, kind, *streams):
    return Node(index, kind, streams, space=0, kind=kind)


@settings(max_examples=400, deadline=None)
@given(GROUPS, st.booleans())
def test_every_node_has_one_stage_and_producers_stand_first(graph, fuse):
    plan = design(graph, fuse)
    assert sorted(index for stage in plan.stages for index in stage.nodes) == list(range(len(graph)))
    where = plan.stage_of()
    for reader in graph:
        assert all(where[source] <= where[reader.index] for source in reader.streams)
    assert all(list(stage.nodes) == sorted(stage.nodes) for stage in plan.stages), "program order"
    assert len({stage.name for stage in plan.stages}) == len(plan.stages)
    for stage in plan.stages:
        products = sum(graph[index].kind == PRODUCT for index in stage.nodes)
        assert stage.kind == ("tensor" if products else "simt")
        assert products <= 1, "a stage's tensor cores compute one product a tile"


@settings(max_examples=400, deadline=None)
@given(GROUPS)
def test_moves_stand_with_their_reader(graph):
    where = design(graph).stage_of()
    for move in (n for n in graph if n.kind == MOVE):
        readers = {where[reader.index] for reader in graph if move.index in reader.streams}
        if len(readers) == 1:
            assert where[move.index] in readers


@settings(max_examples=200, deadline=None)
@given(GROUPS)
def test_sums_over_rows_compute_nothing_else(graph):
    for stage in stages_of(graph):
        kinds = [graph[index].kind for index in stage]
        assert REDUCTION not in kinds or set(kinds) <= {REDUCTION, MOVE} and kinds.count(REDUCTION) == 1


@given(GROUPS)
def test_without_fusion_every_node_is_a_stage(graph):
    assert sorted(stages_of(graph, fuse=False)) == [(i,) for i in range(len(graph))]


def test_epilogues_join_their_product():
    graph = [node(0, PRODUCT), node(1, SIMT, 0), node(2, SIMT, 1), node(3, PRODUCT, 2), node(4, SIMT, 3, 1)]
    assert stages_of(graph) == [(0, 1, 2), (3, 4)]


def test_what_reads_inputs_only_is_one_front_stage():
    graph = [node(0, SIMT), node(1, SIMT), node(2, SIMT, 0, 1), node(3, PRODUCT, 2), node(4, PRODUCT, 2)]
    assert stages_of(graph) == [(0, 1, 2), (3,), (4,)]


def test_a_join_goes_to_the_latest_product():
    graph = [node(0, PRODUCT), node(1, PRODUCT, 0), node(2, PRODUCT, 0), node(3, SIMT, 1, 2)]
    assert stages_of(graph) == [(0,), (1,), (2, 3)]


def test_concatenations_sink_together():
    graph = [node(0, PRODUCT), node(1, MOVE, 0), node(2, MOVE, 1), node(3, PRODUCT, 2)]
    assert stages_of(graph) == [(0,), (1, 2, 3)]


def test_streams_of_other_groups_are_inputs():
    assert stages_of([Node(7, "relu", (2,), space=0), Node(9, "product", (7, 3), space=0, kind=PRODUCT)]) == [
        (7,),
        (9,),
    ]
