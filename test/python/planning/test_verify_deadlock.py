"""The proof of deadlock freedom against the simulator: sound, and as tight as the puts' open order allows."""

import dataclasses
import itertools

import pytest
from flows import GPU, errors, flow, flows, queue, stage
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kitsune_mlir.planning.deadlock import blocking_cycle, repair, waits
from kitsune_mlir.planning.simulate import Order, random_schedule, simulate, starving_schedule

# Few flows that are drawn have a cycle, which some tests are about.
_PATIENT = [HealthCheck.too_slow, HealthCheck.filter_too_much]
thorough = settings(max_examples=200, deadline=None, suppress_health_check=_PATIENT)


def put_orders(candidate):
    """Every order of the puts of every stage, as `Order`s."""
    puts = {}
    for q in candidate.queues:
        if not q.accumulates:
            puts.setdefault(q.producer, []).append(q.name)
    for choice in itertools.product(*(itertools.permutations(names) for names in puts.values())):
        yield Order(puts=dict(zip(puts, choice, strict=True)))


def enough_tiles(candidate):
    """Tiles after which a deadlock must have shown: the span of the closed walk in the theorem's converse."""
    cycle = blocking_cycle(candidate)
    replicas = max(s.replicas for s in candidate.stages)
    short = -sum(wait.distance for wait in cycle)
    return sum(abs(wait.distance) for wait in cycle) * (replicas + 1) + short * replicas + 2 * replicas + 2


def deadlocks(candidate):
    """Whether some order of puts hangs it."""
    tiles = enough_tiles(candidate) if blocking_cycle(candidate) else 24
    return any(not simulate(candidate, tiles, order=order).completed for order in put_orders(candidate))


def assert_in_order(candidate, outcome, tiles):
    """Every consumer saw every tile once, and each replica its own in ascending order."""
    for q in candidate.queues:
        producers = candidate.stage(q.producer).replicas
        for name in q.consumers:
            got = outcome.seen.get((q.name, name), [])
            assert sorted(got) == list(range(producers if q.accumulates else tiles))
            replicas = candidate.stage(name).replicas
            for r in range(replicas):
                mine = [tile for tile in got if tile % replicas == r]
                assert mine == sorted(mine)


@thorough
@given(flows(least_depth=1, most_lookahead=2, backwards=False), st.integers(0, 13), st.randoms(use_true_random=False))
def test_a_proven_flow_completes_under_any_schedule(candidate, tiles, rng):
    candidate = dataclasses.replace(
        candidate,
        queues=tuple(
            dataclasses.replace(q, depth=repair(candidate).depths.get(q.name, q.depth)) for q in candidate.queues
        ),
    )
    assume(not errors(candidate))
    seed = rng.randrange(1 << 30)
    for schedule in (None, random_schedule(seed), starving_schedule(seed)):
        for order in (Order(), Order(shuffle=rng)):
            outcome = simulate(candidate, tiles, schedule, order)
            assert outcome.completed, outcome.waiting
            assert_in_order(candidate, outcome, tiles)


@thorough
@given(flows(), st.integers(1, 20), st.randoms(use_true_random=False))
def test_a_flow_that_hangs_was_reported(candidate, tiles, rng):
    order = rng.choice([Order(), Order(shuffle=rng)])
    outcome = simulate(candidate, tiles, random_schedule(rng.randrange(1 << 30)), order)
    assert outcome.completed or errors(candidate)
    assert outcome.completed == (not outcome.waiting)


@thorough
@given(flows(least_depth=1, backwards=False))
def test_a_reported_cycle_hangs_for_some_order_of_puts(candidate):
    assume(blocking_cycle(candidate))
    assert errors(candidate)
    assert deadlocks(candidate)


@settings(thorough, max_examples=30)  # each is simulated several times
@given(flows(least_depth=1, backwards=False))
def test_repair_is_enough_and_one_slot_less_is_not(candidate):
    found = repair(candidate)
    assume(found.depths and not found.hopeless)

    def with_depths(depths):
        queues = tuple(dataclasses.replace(q, depth=depths.get(q.name, q.depth)) for q in candidate.queues)
        return dataclasses.replace(candidate, queues=queues)

    assert not blocking_cycle(with_depths(found.depths))
    for name, depth in found.depths.items():
        shallower = with_depths({**found.depths, name: depth - 1})
        assert blocking_cycle(shallower) and deadlocks(shallower)


@thorough
@given(flows(least_depth=1, most_lookahead=0, backwards=False))
def test_without_lookahead_program_order_is_enough(candidate):
    assert blocking_cycle(candidate) is None
    for order in itertools.islice(put_orders(candidate), 6):
        assert simulate(candidate, 11, order=order).completed


@thorough
@given(flows(), st.integers(0, 1 << 30))
def test_the_outcome_does_not_depend_on_the_schedule(candidate, seed):
    outcomes = {
        simulate(candidate, 9, schedule).completed
        for schedule in (None, random_schedule(seed), random_schedule(seed + 1), starving_schedule(seed))
    }
    assert len(outcomes) == 1


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("lookahead", [0, 1, 2])
@pytest.mark.parametrize("transport", ["l2", "dsmem"])
def test_depth_of_a_pair_covers_lookahead(replicas, lookahead, transport):
    def pair(depth):
        ring = queue("q", "a", "b", depth=depth, transport=transport, lookahead=(lookahead,))
        return flow([stage("a", 0, replicas), stage("b", 1, replicas)], ring)

    # A shared ring serves all replicas' lookahead; a ring of each replica's own serves one.
    needed = 1 + lookahead * (replicas if transport == "l2" else 1)
    assert not errors(pair(needed)) and simulate(pair(needed), 20).completed
    assert errors(pair(needed - 1)) and not simulate(pair(needed - 1), 20).completed
    if lookahead:
        assert f"needs a depth of at least {needed}, found {needed - 1}" in errors(pair(needed - 1))[0].message


def test_two_slots_and_two_loads_in_flight_is_the_hang_it_is_known_for():
    ring = queue("ring", "feed", "use", depth=2, lookahead=(2,))
    bad = flow([stage("feed", 0), stage("use", 1)], ring)
    (finding,) = errors(bad)
    assert finding.subject == "ring"
    assert "needs a depth of at least 3, found 2" in finding.message
    assert "'use' at tile t waits for 'feed' at t+2 to fill 'ring'" in finding.message
    waiting = [str(step) for step in simulate(bad, 10).waiting]
    assert waiting == ["'feed' waits to put tile 2 of queue 'ring'", "'use' waits to get tile 2 of queue 'ring'"]


def test_depths_along_a_reconvergent_path_cover_the_skew_together():
    def diamond(near, far):
        skip = queue("skip", "s", "c", depth=4, lookahead=(3,))
        return flow(
            [stage("s", 0), stage("m", 1), stage("c", 2)],
            queue("near", "s", "m", depth=near),
            queue("far", "m", "c", depth=far),
            skip,
        )

    for near, far in itertools.product(range(1, 5), repeat=2):
        sound = near + far > 3  # more than the skew that lookahead 3 asks for
        assert (not errors(diamond(near, far))) == sound
        assert deadlocks(diamond(near, far)) != sound


def test_two_roles_may_hand_a_tile_to_and_fro():
    there_and_back = flow(
        [stage("a1", 0, 2), stage("b", 1, 3), stage("a2", 0, 2)],
        queue("there", "a1", "b"),
        queue("back", "b", "a2"),
    )
    assert not errors(there_and_back)
    assert simulate(there_and_back, 20).completed


def test_lookahead_in_a_role_that_feeds_itself_is_hopeless():
    own = flow([stage("a", 0), stage("b", 0)], queue("q", "a", "b", transport="smem", depth=9, lookahead=(1,)))
    (finding,) = errors(own)
    assert finding.subject == "q" and "at any depth" in finding.message
    assert not simulate(own, 20).completed


def test_a_stage_that_stands_before_its_producer_hangs_and_is_reported():
    swapped = flow([stage("late", 0), stage("early", 0)], queue("q", "early", "late", transport="smem"))
    assert "must follow program order" in errors(swapped)[0].message
    assert not simulate(swapped, 3).completed


def test_partial_sums_want_a_slot_each():
    def summed(depth):
        return flow(
            [stage("part", 0, 4), stage("sum", 1, once=True)],
            queue("partial", "part", "sum", depth=depth, accumulates=True),
        )

    assert not errors(summed(4)) and simulate(summed(4), 10).completed
    assert simulate(summed(4), 2).completed  # replicas without tiles leave a sum as well
    assert "at least 4, found 3" in errors(summed(3))[0].message
    assert not simulate(summed(3), 10).completed


def test_one_cta_that_does_not_fit_hangs_the_rest():
    chain = flow([stage("a", 0, 2), stage("b", 1, 2)], queue("q", "a", "b", depth=3))
    machine = GPU.override(sms=3)
    assert "needs 4 CTAs at once (a: 2, b: 2)" in errors(chain, machine)[0].message
    assert simulate(chain, 20, resident=4).completed
    assert not simulate(chain, 20, resident=3).completed


def test_waits_of_a_role_name_the_tile_its_replica_had_before():
    found = waits(flow([stage("a", 0, 3), stage("b", 0, 3)], queue("q", "a", "b", transport="reg")))
    assert [str(wait) for wait in found] == [
        "'b' at tile t waits for 'a' at t in program order",
        "'a' at tile t waits for 'b' at t-3 in program order",
        "'b' at tile t waits for 'a' at t to fill 'q'",
        "'a' at tile t waits for 'b' at t-3 to drain 'q'",
    ]
