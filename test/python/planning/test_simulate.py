"""The simulator itself: that it would notice semantics that are broken, and what it tells of a hang."""

import pytest
from flows import flow, queue, stage

from kitsune_mlir.planning import simulate as simulator
from kitsune_mlir.planning.simulate import OutOfOrder, Step, random_schedule, simulate

TWO_TO_ONE = flow([stage("a", 0, 2), stage("b", 1)], queue("q", "a", "b", depth=1))


def test_tiles_arrive_in_order_from_replicas_that_overtake_each_other():
    for seed in range(20):
        outcome = simulate(TWO_TO_ONE, 12, random_schedule(seed))
        assert outcome.completed and outcome.seen == {("q", "b"): list(range(12))}


def test_slots_must_be_handed_out_by_tile_number(monkeypatch):
    # "The slot is empty" in place of "it is this tile's turn": a later tile of the other replica slips in.
    def any_empty_slot(rings, replica):
        slot = rings[replica.now.queue][replica.now.lane][0]
        return (slot.held is None) == (replica.now.action == "put")

    monkeypatch.setattr(simulator, "_can", any_empty_slot)
    with pytest.raises(OutOfOrder, match="its slot holds tile"):
        for seed in range(20):
            simulate(TWO_TO_ONE, 12, random_schedule(seed))


def test_a_hang_says_who_waits_for_what():
    swapped = flow([stage("late", 0), stage("early", 0)], queue("q", "early", "late", transport="smem"))
    outcome = simulate(swapped, 3)
    assert not outcome.completed
    assert outcome.waiting == (Step("get", "q", "late", tile=0, lane=0, index=0),)
    assert str(outcome.waiting[0]) == "'late' waits to get tile 0 of queue 'q'"


def test_every_replica_has_a_ring_of_its_own_on_a_cta():
    paired = flow([stage("a", 0, 3), stage("b", 1, 3)], queue("q", "a", "b", depth=2, transport="dsmem"))
    outcome = simulate(paired, 9)
    assert outcome.completed
    # Scheduled first come, first served, replica 0 runs through all of its tiles before replica 1 starts:
    assert outcome.seen["q", "b"] == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_no_tiles_at_all():
    assert simulate(TWO_TO_ONE, 0) == simulator.Outcome(True, (), {})
