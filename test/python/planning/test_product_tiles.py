"""Tiles of single products: whatever the sizes and the chip, there are some, and they fit it; and beside what some of
them took on an H200."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitsune_mlir.planning import target
from kitsune_mlir.planning.product_engines import CHUNK, engine
from kitsune_mlir.planning.product_tiles import CLUSTERS, choose
from kitsune_mlir.planning.product_widths import BETWEEN, layer_widths

CHIPS = [target.load(name) for name in target.names() if name != "cpu"]
SIZES = st.integers(1, 5000)
REGISTERS, THREADS, BESIDE_SUMS = 65536, 128, 20


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(CHIPS),
    st.integers(1, 300),
    SIZES,
    SIZES,
    SIZES,
    st.booleans(),
    st.sampled_from([1, 3, 6]),
    st.sets(st.sampled_from(["left", "right"])),
)
def test_tiles_fit(chip, b, m, n, k, across, pairs, shared):
    tiles = choose(b, m, n, k, across, pairs, chip, shared=frozenset(shared))
    chunks = {"left": tiles.rows, "right": tiles.columns}
    kept = chunks.pop(tiles.kept) * -(-k // CHUNK) if tiles.kept else 0
    assert tiles.slots >= 2 and (tiles.slots * sum(chunks.values()) + kept) * CHUNK * 2 < chip.shared_bytes
    feed, math = engine(chip).registers(tiles.copies)
    assert (feed + tiles.copies * math) * THREADS <= REGISTERS
    sums = tiles.copy_rows * tiles.columns // THREADS
    assert math >= (1 if pairs == 1 or chip.products == "mma" else 2) * sums + BESIDE_SUMS
    assert tiles.price.us <= tiles.microseconds and tiles.split * tiles.part >= k
    assert not (across and tiles.columns % 64)


@pytest.mark.parametrize("name, rate", [("sm_80", 0.6), ("sm_86", 0.6), ("sm_89", 0.6), ("sm_120", 0.6)])
def test_large_products_are_predicted_near_the_peak(name, rate):
    chip = target.load(name)
    tiles = choose(1, 8192, 8192, 8192, False, 1, chip)
    peak = 2 * 8192**3 / (chip.tensor_tflops * 1e6)
    assert peak <= tiles.microseconds < peak / rate


def test_who_multiplies_warp_by_warp_has_equal_registers():
    on = engine(target.load("sm_80"))
    assert on.registers(1) == (248, 248) and on.registers(2) == (168, 168)


GPU = target.load("sm_90a")
# b, m, n, k, whether the right operand's columns are neighbours; microseconds of the fastest tiles.
MEASURED = {
    (2, 4096, 4096, 4096, True): 360.6,
    (2, 4096, 4096, 4096, False): 360.5,
    (8, 2048, 2048, 2048, True): 182.7,
    (4, 1024, 1024, 1024, True): 13.7,
    (32, 1000, 1000, 1000, False): 180.0,
    (64, 512, 512, 512, True): 30.0,
    (96, 256, 256, 256, False): 8.2,
    (2, 2048, 512, 8192, False): 45.4,
    (2048, 27, 27, 128, False): 8.2,
    (1, 2048, 128, 256, False): 2.4,
}


@pytest.mark.parametrize("sizes", MEASURED, ids=str)
def test_as_measured(sizes):
    *sizes_of, across = sizes
    tiles = choose(*sizes_of, across, 1, GPU, 1)
    assert 1 / 1.25 < tiles.microseconds / MEASURED[sizes] < 1.25


def test_rows_that_begin_within_lines_take_longer():
    whole, across_lines = (choose(32, 1024, 1024, k, False, 1, GPU, 1).microseconds for k in (1024, 1016))
    assert 1.2 * whole < across_lines < 2.5 * whole


def test_the_largest_tiles_for_the_largest_products():
    large, small = (choose(b, size, size, size, True, 1, GPU) for b, size in ((2, 4096), (64, 64)))
    assert (large.copies, large.columns) == (2, 256) and small.columns <= 64


def test_no_more_ctas_share_a_sum_than_there_are_sms():
    for sms in (1, 2, 3, 7):
        chip = GPU.override(sms=sms)
        tiles = [choose(1, 15, 1024, 4096, False, 1, chip, 1, clusters=(ctas,)) for ctas in CLUSTERS]
        assert [one is not None for one in tiles] == [ctas <= sms for ctas in CLUSTERS]


def test_two_sets_of_sums_for_large_products_that_the_copy_engine_stores():
    tiles = choose(1, 16384, 1024, 1024, False, 1, GPU, stored_bytes=2, vector_bytes=2048)
    assert tiles.alternates and tiles.copied and tiles.sets == (128, 128) and (tiles.slots, tiles.right_slots) == (4, 8)
    held = 16384 * (tiles.slots + tiles.right_slots) + 2 * 16384 + 2048
    assert held <= GPU.shared_bytes
    direct = choose(1, 16384, 1024, 1024, False, 1, GPU)
    assert not direct.alternates and not direct.copied and tiles.price.us < direct.price.us


@given(SIZES, SIZES, SIZES, SIZES)
def test_words_of_f32_are_priced_as_twice_the_k(b, m, n, k):
    """But for what 16 bits alone can do: keep an operand, and let two sets of sums alternate."""
    tiles, alike = choose(b, m, n, k, False, 1, GPU, words=True), choose(b, m, n, 2 * k, False, 1, GPU)
    assert tiles.kept is None and not tiles.alternates and tiles.split * tiles.cluster * tiles.part >= k
    assert tiles.microseconds >= alike.microseconds - 1e-6


def test_rows_behind_the_last_have_a_price():
    """A tile of 128 rows of which 127 are no tensor's is dearer than the same of all rows."""
    whole, ragged = (choose(1, m, 64, 4096, False, 1, GPU, 1, widths=(64,)) for m in (256, 129))
    assert whole.microseconds < ragged.microseconds or ragged.rows < whole.rows


# m, n, k of layers; microseconds in tiles of so many columns (H200).
LAYERS = {
    (256, 6144, 6144): {64: 46.7, 96: 30.4, 112: 34.7, 128: 37.4, 192: 41.7},
    (256, 18432, 6144): {144: 86.5, 192: 94.1},
    (12544, 768, 192): {80: 19.8, 96: 16.2, 112: 19.1, 128: 13.3, 160: 16.4, 192: 11.9},
    (8192, 640, 256): {80: 13.5, 96: 13.8, 128: 10.5, 144: 14.0, 160: 10.7},
}


@pytest.mark.parametrize("m, n, k", LAYERS)
def test_columns_between_boxes_where_they_are_faster(m, n, k):
    """What is chosen takes at most 5 % longer than the fastest that was measured."""
    taken = LAYERS[m, n, k]
    tiles = choose(1, m, n, k, False, 1, GPU, stored_bytes=2, widths=layer_widths(n), most_split=1)
    assert taken[tiles.columns] <= 1.05 * min(taken.values())
    assert tiles.copied == (tiles.columns not in BETWEEN)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
@pytest.mark.parametrize("m, n, k", [(7425, 440, 17), (8192, 2816, 1024), (300, 51, 4000)])
def test_two_products_of_one_operand(chip, m, n, k):
    """Their tiles fit; they take about as long as one product of all columns, no less than one of half of them."""
    pair = choose(1, m, n, k, False, 1, chip, rights=2)
    half, whole = (choose(1, m, columns, k, False, 1, chip, most_split=1) for columns in (n, 2 * n))
    slot = (pair.rows + 2 * pair.columns) * CHUNK * 2
    assert pair.slots >= 2 and pair.slots * slot < chip.shared_bytes
    assert engine(chip).registers(pair.copies)[1] >= pair.copy_rows * 2 * pair.columns // THREADS + BESIDE_SUMS
    assert (pair.split, pair.kept, pair.alternates, pair.cluster) == (1, None, False, 1)
    assert half.microseconds <= pair.microseconds <= 1.3 * whole.microseconds
