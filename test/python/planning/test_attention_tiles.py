"""Tiles of attention: how many turns they have, and what they are predicted to take."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.attention_tiles import Weighed, choose

SM90 = targets.load("sm_90a")


@given(
    rows=st.integers(1, 400),
    n=st.integers(1, 400),
    tile=st.sampled_from([64, 128]),
    columns=st.sampled_from([64, 128]),
    first=st.none() | st.integers(-300, 0),
    last=st.none() | st.integers(0, 300),
    cluster=st.sampled_from([1, 2, 8]),
)
def test_turns_have_all_columns_of_a_tile(rows, n, tile, columns, first, last, cluster):
    """Those of no row are in none, but for the rest of a turn's; the CTAs of a cluster share them."""
    turns = Weighed(1, rows, n, 64, 64, 1.0, 0.0, first, last).turns(tile, columns, cluster)
    counted = Counter()
    for number in range(-(-rows // tile)):
        row = range(number * tile, (number + 1) * tile)
        begins = (r if first is None else r + first for r in row)
        ends = (n if last is None else r + last for r in row)
        spans = list(zip(begins if first is not None else [0] * tile, ends))
        blocks = {c // columns for begin, end in spans for c in range(max(0, begin), min(n - 1, end) + 1)}
        counted[max(1, -(-len(blocks) // cluster))] += 1
    assert turns == counted


@given(
    batch=st.integers(1, 64),
    rows=st.integers(1, 2048),
    n=st.integers(2, 2048),
    k=st.integers(8, 256),
    v=st.integers(8, 256),
    work=st.floats(0, 30),
)
def test_more_takes_longer(batch, rows, n, k, v, work):
    of = Weighed(batch, rows, n, k, v, work, 0.0)
    tiles = choose(of, SM90)
    assert tiles is not None and tiles.price.us > SM90.launch_us
    for more in (
        Weighed(batch, rows, n + 2048, k, v, work, 0.0),
        Weighed(batch + 200, rows, n, k, v, work, 0.0),
        Weighed(batch, rows, n, k, v, work + 100, 0.0),
    ):
        assert choose(more, SM90).price.us > tiles.price.us
    causal = Weighed(batch, rows, n, k, v, work, 0.0, None, 0)
    assert choose(causal, SM90).price.us <= tiles.price.us


@pytest.mark.parametrize("v, wide", [(256, 256), (264, 192), (320, 192), (512, 256)])
def test_wide_values_are_parted(v, wide):
    tiles = choose(Weighed(64, 1024, 1024, 64, v, 1.0, 0.0), SM90)
    assert tiles.wide == wide


def test_long_sums_have_no_tiles():
    assert choose(Weighed(1, 128, 128, 8192, 64, 1.0, 0.0), SM90) is None


@pytest.mark.parametrize("batch, parts", [(1, 1), (7, 1), (132, 1), (5, 3)])
def test_the_first_cta_has_the_most(batch, parts):
    of = Weighed(batch, 700, 700, 64, 64, 1.0, 0.0, None, 0)
    tiles = [turns for turns in sorted(of.turns(64, 64, 1).elements(), reverse=True) for _ in range(batch * parts)]
    dealt = [tiles[cta::132] for cta in range(132)]
    assert of.most_turns(64, 64, SM90, parts, 1) == (max(map(sum, dealt)), max(map(len, dealt)))


@pytest.mark.parametrize(
    "batch, n, v, resident", [(5376, 42, 16, 3), (5376, 42, 128, 2), (100, 42, 16, 1), (5376, 256, 16, 1)]
)
def test_tiles_of_few_columns_share_an_sm(batch, n, v, resident):
    """As many CTAs as registers hold, where there are tiles for them all."""
    tiles = choose(Weighed(batch, n, n, 16, v, 12.0, 0.0), SM90)
    assert tiles.resident == resident
    assert tiles.registers >= v // 2 + 64
