"""The price of kernels of single operators: each term where it decides, and never less than a launch."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitsune_mlir.planning import target
from kitsune_mlir.planning.cost import CYCLES_A_US
from kitsune_mlir.planning.kernel_cost import (
    BlockWork,
    KernelWork,
    beside,
    copied,
    kernel_price,
    loop_cycles,
    straight_cycles,
    whole,
)

GPU = target.load("sm_90a")
IDLE = KernelWork(blocks=4096, threads=256, registers=32, read_bytes=0, written_bytes=0, l2_bytes=0)


def price(**work):
    return kernel_price(dataclasses.replace(IDLE, **work), GPU)


def test_nothing_takes_a_launch():
    assert price().us == GPU.launch_us and price().limit == "latency"


@pytest.mark.parametrize(
    ("work", "us", "limit"),
    [
        ({"read_bytes": 2e9, "written_bytes": 1e9}, 3e9 / (GPU.dram_gbps * 1e3), "DRAM"),
        ({"l2_bytes": 3e9}, 3e9 / (GPU.l2_gbps * 1e3), "L2"),
        ({"lines": GPU.sms * CYCLES_A_US * 100}, 100, "L1"),
        ({"sent": GPU.sms * CYCLES_A_US * 37}, 100, "L1"),
        ({"instructions": GPU.sms * 2.5 * CYCLES_A_US * 100}, 100, "arithmetic"),
        ({"cycles": 100 * CYCLES_A_US}, 400, "latency"),  # 8 blocks an SM, so four sets of blocks
    ],
)
def test_what_is_slowest_decides(work, us, limit):
    found = price(**work)
    assert found.us == pytest.approx(GPU.launch_us + us) and found.limit == limit


def test_what_l2_keeps_is_not_read_from_dram():
    small = copied(GPU.l2_bytes // 8, GPU)
    assert kernel_price(small, GPU).limit != "DRAM" and kernel_price(copied(GPU.l2_bytes, GPU), GPU).limit == "DRAM"


def test_few_blocks_draw_a_share_of_the_rates():
    assert price(l2_bytes=1e8, blocks=1).us > 20 * price(l2_bytes=1e8).us


def test_buffers_are_counted_once():
    block = BlockWork(instructions=8, lines=2, sent=1, read={0: 1024, 1: 64}, written={2: 256}, cycles=5)
    found = whole(block, 10, 256, 32, {0: 2048, 1: 10**6, 2: 10**6})
    assert found.read_bytes == 2048 + 640 and found.written_bytes == 2560 and found.l2_bytes == 13440
    assert (found.instructions, found.lines, found.sent, found.cycles) == (80, 20, 10, 5)


@given(st.floats(0, 1e3), st.integers(1, 20), st.floats(0, 1))
def test_turns_overlap_what_straight_code_waits_for(instructions, loads, share):
    assert loop_cycles(instructions, loads, share * loads) < straight_cycles(instructions, loads, share * loads)


def test_short_blocks_run_beside_long_ones():
    """A few long blocks and many short ones take what the long ones do, or what all of them do on all SMs."""
    few, many = (
        dataclasses.replace(IDLE, blocks=4, cycles=100 * CYCLES_A_US),
        dataclasses.replace(IDLE, blocks=GPU.sms * 24, cycles=CYCLES_A_US),
    )
    assert kernel_price(beside([few, many]), GPU).us == pytest.approx(GPU.launch_us + 100)
    assert kernel_price(beside([many, many]), GPU).us == pytest.approx(GPU.launch_us + 6, rel=0.01)
    assert kernel_price(beside([many]), GPU).us == kernel_price(many, GPU).us
