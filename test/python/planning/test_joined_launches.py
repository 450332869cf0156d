"""Which launches are joined: any calls keep the order that they need, and joining makes nothing dearer."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.joined_launches import MOST_BYTES, MOST_SHARED, MOST_TURNS, Call, join_calls
from kitsune_mlir.planning.kernel_cost import KernelWork, kernel_price

TARGET = targets.load("sm_90a")
NAMES = st.frozensets(st.sampled_from("abcdefg"), max_size=3)
WORK = KernelWork(1, 256, 32, 1024.0, 1024.0, 2048.0, instructions=100.0, cycles=600.0)


@st.composite
def calls(draw):
    blocks = draw(st.sampled_from([None, 1, 1, 1, 2, 3, 9, 40, 500]))
    cycles, threads = draw(st.sampled_from([300.0, 600.0, 5000.0])), draw(st.sampled_from([256, 256, 512]))
    written = draw(NAMES)
    return Call(
        draw(NAMES) | written,
        written,
        work=draw(st.sampled_from([replace(WORK, blocks=blocks or 20, cycles=cycles, threads=threads)] * 4 + [None])),
        blocks=blocks,
        arguments=frozenset((draw(st.integers(0, 20)), 200) for _ in range(3)),
        shared=draw(st.sampled_from([0, 0, 9000])),
    )


@given(st.lists(calls(), max_size=25))
def test_calls_keep_their_order(drawn):
    launches = join_calls(drawn, TARGET)
    where = {call: (n, strand) for n, one in enumerate(launches) for strand in map(tuple, one) for call in strand}
    assert sorted(where) == list(range(len(drawn)))
    for later, call in enumerate(drawn):
        for earlier in range(later):
            if call.shared_with(drawn[earlier]):
                (first, strand), (second, other) = where[earlier], where[later]
                assert first < second or (strand == other and strand.index(earlier) < strand.index(later))


@given(st.lists(calls(), max_size=25))
def test_launches_are_such_as_a_gpu_has(drawn):
    for launch in join_calls(drawn, TARGET):
        held = [drawn[number] for strand in launch for number in strand]
        assert len(held) == 1 or all(call.work is not None for call in held)
        assert len({call.work.threads for call in held if call.work is not None}) <= 1
        assert len(held) == 1 or sum(size for _, size in frozenset().union(*(c.arguments for c in held))) <= MOST_BYTES
        assert len(held) == 1 or sum(call.shared for call in held) <= MOST_SHARED
        for strand in launch:
            blocks = [drawn[number].blocks for number in strand]
            assert len(strand) == 1 or all(count is not None and count <= MOST_TURNS for count in blocks)


def test_what_is_joined():
    """Side by side, in turn, and a launch of its own where turns take longer than a launch."""
    load, other = Call(frozenset("ab"), frozenset("b"), WORK, 1), Call(frozenset("cd"), frozenset("d"), WORK, 1)
    assert join_calls([load, other], TARGET) == [[[0], [1]]]
    both = Call(frozenset("bde"), frozenset("e"), WORK, 1)
    assert join_calls([load, other, both], TARGET) == [[[0, 1, 2]]]
    long = Call(frozenset("be"), frozenset("e"), replace(WORK, blocks=MOST_TURNS, cycles=2000.0), MOST_TURNS)
    assert join_calls([load, long], TARGET) == [[[0]], [[1]]]
    assert kernel_price(long.work, TARGET).us < 8 * 2000 / 1700


def test_parts_of_a_buffer():
    """Of which no two have an element in common are side by side, and behind what touches all of it."""
    part = Call(frozenset("w"), frozenset("w"), WORK, 1)
    assert join_calls([part, part], TARGET) == [[[0, 1]]]
    other, whole = replace(part, apart=frozenset({0})), Call(frozenset("wx"), frozenset("x"), WORK, 40)
    assert join_calls([part, other, whole], TARGET) == [[[0], [1]], [[2]]]


def test_what_stands_between_is_passed():
    """A call goes ahead of others that it does not depend on, to a launch that has room for it."""
    load = Call(frozenset("ab"), frozenset("b"), WORK, 1)
    pipeline = Call(frozenset("bc"), frozenset("c"))
    other = Call(frozenset("xy"), frozenset("y"), WORK, 1)
    after = Call(frozenset("cz"), frozenset("z"), WORK, 1)
    assert join_calls([load, pipeline, other, after], TARGET) == [[[0], [2]], [[1]], [[3]]]
