"""Tiles of single products: whatever the sizes and the chip, there are some, and they fit it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitsune_mlir.planning import target
from kitsune_mlir.planning.product_tiles import CHUNK, choose, engine

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
