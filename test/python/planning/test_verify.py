"""Every finding of the proof but deadlock: what triggers it, what it names, and the nearest flow without it."""

import dataclasses

import pytest
from flows import GPU, errors, flow, queue, stage

from kitsune_mlir.planning import target
from kitsune_mlir.planning.resources import shared_bytes
from kitsune_mlir.planning.verify import verify

AB = [stage("a", 0), stage("b", 1)]
ABC = [*AB, stage("c", 2)]
SUM = stage("sum", 9, once=True)


def partial(producer="a", *consumers, **more):
    return queue("partial", producer, *(consumers or ("sum",)), accumulates=True, **more)


BROKEN = {
    "two stages of one name": (flow([*AB, stage("a", 2)]), "a", "names 2 stages"),
    "two queues of one name": (flow(AB, queue("q", "a", "b"), queue("q", "a", "b")), "q", "names 2 queues"),
    "unit": (flow([dataclasses.replace(AB[0], unit="fpga")]), "a", "one of tensor, simt, found 'fpga'"),
    "no replica": (flow([stage("a", 0, 0)]), "a", "at least 1 replica, found 0"),
    "replicas of a role": (flow([stage("a", 0, 2), stage("b", 0, 3)]), "b", "but 'a' of the same role 0 has 2"),
    "unknown producer": (flow(AB, queue("q", "x", "b")), "q", "joins stage 'x', which 'flow' does not have"),
    "unknown consumer": (flow(AB, queue("q", "a", "x")), "q", "joins stage 'x'"),
    "no consumer": (flow(AB, queue("q", "a")), "q", "at least 1 consumer, found 0"),
    "a consumer twice": (flow(AB, queue("q", "a", "b", "b")), "q", "names a consumer twice"),
    "against program order": (flow(AB, queue("q", "b", "a")), "q", "'a', which does not stand after its producer 'b'"),
    "to itself": (flow(AB, queue("q", "a", "a")), "q", "must follow program order"),
    "no slot": (flow(AB, queue("q", "a", "b", depth=0)), "q", "a depth of at least 1, found 0"),
    "tile bytes": (
        flow(AB, dataclasses.replace(queue("q", "a", "b"), tile_bytes=-1)),
        "q",
        "a tile size of 0 bytes or more, found -1",
    ),
    "lookahead of whom": (flow(AB, queue("q", "a", "b", lookahead=(1, 1))), "q", "each of 1 consumers, found (1, 1)"),
    "negative lookahead": (flow(AB, queue("q", "a", "b", lookahead=(-1,))), "q", "lookahead of 0 or more"),
    "transport": (flow(AB, queue("q", "a", "b", transport="wire")), "q", "reg, smem, dsmem, l2, hbm, found 'wire'"),
    "open transport": (flow(AB, queue("q", "a", "b", transport="")), "q", "found ''"),
    "registers across CTAs": (flow(AB, queue("q", "a", "b", transport="reg")), "q", "stays in one CTA"),
    "shared memory across CTAs": (
        flow([AB[0], stage("b", 0), stage("c", 2)], queue("q", "a", "b", "c", transport="smem")),
        "q",
        "'c' has role 2 and 'a' role 0",
    ),
    "unpaired replicas": (
        flow([stage("a", 0, 2), stage("b", 1, 3)], queue("q", "a", "b", transport="dsmem")),
        "q",
        "'b' has 3 and 'a' 2",
    ),
    "once beside every tile": (flow([AB[0], stage("sum", 0, once=True)], partial()), "sum", "shares role 0"),
    "once puts": (
        flow([AB[0], SUM, stage("b", 1)], partial(), queue("q", "sum", "b")),
        "q",
        "is put in by 'sum', which fires once",
    ),
    "sums taken every tile": (flow(AB, partial("a", "b")), "partial", "but 'b' takes from it on every tile"),
    "tiles taken once": (flow([AB[0], SUM], queue("q", "a", "sum")), "q", "but 'sum' takes from it once"),
    "once after nothing": (flow([AB[0], SUM]), "sum", "takes from no accumulating queue"),
    "once on many": (flow([AB[0], stage("sum", 9, 2, once=True)], partial()), "sum", "on 1 replica, found 2"),
    "too few partial sums": (flow([stage("a", 0, 3), SUM], partial(depth=2)), "partial", "at least 3, found 2"),
    "lookahead at sums": (flow([AB[0], SUM], partial(lookahead=(1,))), "partial", "lookahead must be 0, found (1,)"),
    "residency": (flow([stage("a", 0, 100), stage("b", 1, 33)]), "flow", "needs 133 CTAs at once (a: 100, b: 33)"),
    "shared memory": (
        flow([stage("a", 0), stage("b", 0)], queue("q", "a", "b", depth=1 << 14, transport="smem")),
        "a",
        "(role 0: a, b) has 1048576 bytes of rings in shared memory",
    ),
    "L2": (
        flow(AB, dataclasses.replace(queue("q", "a", "b", depth=64), tile_bytes=1 << 20)),
        "flow",
        f"has {64 << 20} bytes of rings in L2, but sm_90a has {GPU.l2_bytes}",
    ),
    "cluster": (
        flow(
            [stage(f"s{i}", i) for i in range(9)],
            *(queue(f"q{i}", f"s{i}", f"s{i + 1}", transport="dsmem") for i in range(8)),
        ),
        "flow",
        "makes a cluster of 9 CTAs",
    ),
    "dsmem without a cluster": (
        flow(AB, queue("q", "a", "b", transport="dsmem"), cluster=1),
        "q",
        "'flow' runs in clusters of 1, which would have to be of 2",
    ),
    "dsmem in a role without a cluster": (
        flow([stage("a", 0), stage("b", 0)], queue("q", "a", "b", transport="dsmem"), cluster=1),
        "q",
        "'flow' runs in clusters of 1, which would have to be of 2",
    ),
    "dsmem between more roles": (
        flow(ABC, *(queue(f"q{i}", "ab"[i], "bc"[i], transport="dsmem") for i in range(2)), cluster=2),
        "q1",
        "which would have to be of 3",
    ),
    "half a cluster": (flow([stage("a", 0, 131)], cluster=2), "a", "has 131 replicas, which are not whole clusters"),
}


@pytest.mark.parametrize(("broken", "subject", "words"), BROKEN.values(), ids=BROKEN)
def test_error(broken, subject, words):
    found = errors(broken)
    assert any(finding.subject == subject and words in finding.message for finding in found), list(map(str, found))


SOUND = {
    "no queue": flow(AB),
    "chain": flow(ABC, queue("q", "a", "b", depth=2), queue("r", "b", "c", depth=2)),
    "multicast": flow(ABC, queue("q", "a", "b", "c", depth=2)),
    "one role in registers": flow([stage("a", 0, 132), stage("b", 0, 132)], queue("q", "a", "b", transport="reg")),
    "one role in shared memory": flow([stage("a", 0, 9), stage("b", 0, 9)], queue("q", "a", "b", transport="smem")),
    "a cluster of two": flow([stage("a", 0, 66), stage("b", 1, 66)], queue("q", "a", "b", transport="dsmem")),
    "unlike replicas": flow([stage("a", 0, 3), stage("b", 1, 5)], queue("q", "a", "b", depth=8)),
    "reduction": flow([stage("a", 0, 131), SUM], partial(depth=131)),
    "reduction by the CTAs that sum": flow(
        [stage("a", 0, 132), dataclasses.replace(stage("sum", 0, 132, once=True), split=True)], partial(depth=66)
    ),
    "two sums in one stage": flow([*AB, SUM], partial(), queue("other", "b", "sum", accumulates=True)),
    "two reductions in one role": flow([AB[0], SUM, stage("max", 9, once=True)], partial("a", "sum", "max")),
}


@pytest.mark.parametrize("sound", SOUND.values(), ids=SOUND)
def test_sound(sound):
    assert verify(sound, GPU) == []


def test_the_first_failing_group_ends_the_proof():
    both = flow([stage("a", 0, 999), stage("b", 1)], queue("q", "a", "x"))
    assert [finding.subject for finding in verify(both, GPU)] == ["q"]  # and nothing of 1000 CTAs


def test_dsmem_wants_clusters():
    paired = flow(AB, queue("q", "a", "b", transport="dsmem"))
    assert "sm_80 has no clusters" in errors(paired, target.load("sm_80"))[0].message


def test_a_cpu_may_have_more_threads_than_cores():
    many = flow([stage("a", 0, 100), stage("b", 1, 100)], queue("q", "a", "b", depth=200))
    (finding,) = verify(many, target.load("cpu"))
    assert finding.severity == "warning" and "needs 200 CTAs" in finding.message


@pytest.mark.parametrize(("lookahead", "wanted"), [(0, 66), (1, 99)])
def test_a_ring_that_starves_its_replicas_is_a_warning(lookahead, wanted):
    def pair(depth):
        ring = queue("q", "a", "b", depth=depth, lookahead=(lookahead,))
        return verify(flow([stage("a", 0, 33), stage("b", 1, 33)], ring), GPU)

    (finding,) = pair(wanted - 1)
    assert finding.severity == "warning" and f"depth of {wanted - 1}; {wanted} would" in finding.message
    assert pair(wanted) == []


def test_a_dsmem_ring_lies_in_every_consumer():
    shared = flow(ABC, queue("q", "a", "b", "c", depth=3, transport="dsmem"))
    assert shared_bytes(shared) == {0: 0, 1: 3 * 64, 2: 3 * 64}


def test_a_cluster_has_room_for_the_other_ctas_shares_of_a_tile():
    stages = [stage(name, 0, 4) for name in "abc"]
    queues = [queue(f"q{i}", "ab"[i], "bc"[i], transport="dsmem") for i in range(2)]
    assert shared_bytes(flow(stages, *queues, cluster=4)) == {0: 3 * 64 // 4}


def test_rings_of_one_role_share_memory_when_their_times_do_not_overlap():
    stages = [stage(name, 0) for name in "abcd"]

    def bytes_of(*queues):
        return shared_bytes(flow(stages, *(queue(f"q{i}", *ends, **kw) for i, (ends, kw) in enumerate(queues))))[0]

    smem = {"depth": 1, "transport": "smem"}
    chain = [(("a", "b"), smem), (("b", "c"), smem), (("c", "d"), smem)]
    assert bytes_of(*chain) == 2 * 64  # at b: what it takes and what it puts
    assert bytes_of(*chain, (("a", "d"), smem)) == 3 * 64
    assert bytes_of(*chain, (("a", "b"), smem | {"depth": 2, "lookahead": (1,)})) == 2 * 64 + 2 * 64


def test_a_finding_reads_as_a_sentence():
    (finding,) = errors(flow(AB, queue("hidden", "a", "b", depth=0)))
    assert str(finding) == "error: 'hidden' needs a depth of at least 1, found 0"
