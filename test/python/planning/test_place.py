"""Placement: the small optimisers against brute force, and every placement against the proof."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitsune_mlir.planning import target
from kitsune_mlir.planning.cost import (
    EXCHANGE_US,
    ProductCost,
    StageCost,
    dram_bytes,
    pipeline_price,
    role_price,
    start_us,
)
from kitsune_mlir.planning.flow import Flow, Queue, Stage
from kitsune_mlir.planning.place import (
    Chained,
    QueueCost,
    allocate,
    balanced_cuts,
    choose_tile_rows,
    parts_of,
    place,
)
from kitsune_mlir.planning.verify import verify

GPU, CPU = target.load("sm_90a"), target.load("cpu")
TIMES = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=4)


@given(TIMES, st.integers(4, 9), st.integers(1, 5))
def test_allocate_is_optimal(times, total, most):
    def rate(replicas):
        return min(count / time for count, time in zip(replicas, times))

    found = allocate(times, total, most)
    every = itertools.product(range(1, most + 1), repeat=len(times))
    assert rate(found) == max(rate(replicas) for replicas in every if sum(replicas) <= total)
    assert sum(found) <= total and all(1 <= count <= most for count in found)


@given(st.lists(st.integers(0, 30).map(float), min_size=1, max_size=7), st.integers(1, 5))
def test_balanced_cuts_are_optimal(costs, parts):
    def dearest(assigned):
        return max(sum(cost for cost, part in zip(costs, assigned) if part == p) for p in assigned)

    found = balanced_cuts(costs, parts)
    cuts = itertools.product((0, 1), repeat=len(costs) - 1)
    every = [list(itertools.accumulate(cut, initial=0)) for cut in cuts if sum(cut) < parts]
    assert found in every, "consecutive parts, numbered from 0, no more than allowed"
    assert dearest(found) == pytest.approx(min(dearest(assigned) for assigned in every))


@st.composite
def pipelines(draw):
    """Costs of up to 8 stages, queues forwards, and perhaps sums over rows behind them."""
    count = draw(st.integers(1, 8))
    amount = st.sampled_from([0.0, 16.0, 512.0, 4096.0, 65536.0])
    stages = [
        StageCost(f"s{i}", draw(st.sampled_from(["tensor", "simt"])), *(draw(amount) for _ in range(6)))
        for i in range(count)
    ]
    queues = []
    for consumer in range(1, count):
        producer = draw(st.integers(0, consumer - 1))
        others = draw(st.lists(st.integers(producer + 1, count - 1), max_size=2))
        consumers = tuple(sorted({consumer, *others}))
        queues.append(QueueCost(f"q{consumer}", producer, consumers, draw(st.sampled_from([4.0, 1024.0, 32768.0]))))
    for i in range(draw(st.integers(0, 2))):
        queues.append(QueueCost(f"t{i}", draw(st.integers(0, count - 1)), (len(stages),), 512.0, accumulates=True))
        stages.append(StageCost(f"sum{i}", "simt"))
    return stages, queues


def flow_of(stages, queues, placement):
    once = {consumer for queue in queues if queue.accumulates for consumer in queue.consumers}
    placed = [
        Stage(stage.name, stage.unit, role, placement.replicas[role], i in once)
        for i, (stage, role) in enumerate(zip(stages, placement.roles))
    ]
    rings = []
    for queue, transport, depth in zip(queues, placement.transports, placement.depths):
        size = queue.row_bytes * (1 if queue.accumulates else placement.tile_rows)
        names = tuple(stages[consumer].name for consumer in queue.consumers)
        accumulates = queue.accumulates
        rings.append(
            Queue(queue.name, stages[queue.producer].name, names, depth, int(size), transport, accumulates=accumulates)
        )
    return Flow("flow", tuple(placed), tuple(rings))


@settings(max_examples=300, deadline=None)
@given(
    pipelines(),
    st.sampled_from([None, 1, 100, 5000, 10**6]),
    st.sampled_from([GPU, GPU.override(sms=5), GPU.override(l2_bytes=1 << 20), CPU]),
    st.sampled_from(["auto", "spatial"]),
)
def test_every_placement_can_be_launched(pipeline, rows, machine, shape):
    stages, queues = pipeline
    placement = place(stages, queues, rows, machine, shape)
    errors = [finding for finding in verify(flow_of(stages, queues, placement), machine) if finding.severity == "error"]
    assert not errors
    if machine.kind == "gpu":
        assert sum(placement.replicas) <= machine.sms and placement.tile_rows % 16 == 0
    assert set(placement.roles) == set(range(len(placement.replicas)))
    assert shape in ("auto", placement.shape) and placement.predicted_us >= machine.launch_us


@given(pipelines(), st.sampled_from([100, 5000]))
def test_auto_takes_the_faster_shape(pipeline, rows):
    stages, queues = pipeline
    fused, spatial = (place(stages, queues, rows, CPU, shape) for shape in ("fused", "spatial"))
    assert place(stages, queues, rows, CPU).predicted_us == min(fused.predicted_us, spatial.predicted_us)


CHAIN = [StageCost(f"s{i}", "tensor", product_flops=8192.0, weight_bytes=8192.0, row_bytes=512.0) for i in range(3)]
QUEUES = [QueueCost("a", 0, (1,), 256.0), QueueCost("b", 1, (2,), 256.0)]


def test_fused_keeps_queues_on_the_chip():
    found = place(CHAIN, QUEUES, 6400, CPU.override(sms=200), "fused")
    assert (found.roles, found.replicas) == ((0, 0, 0), (100,)), "a core a tile"
    assert found.transports == ("reg", "reg") and found.depths == (1, 1)


def test_spatial_gives_every_stage_ctas():
    found = place(CHAIN, QUEUES, 10**6, GPU, "spatial")
    assert found.roles == (0, 1, 2) and sum(found.replicas) == GPU.sms
    assert found.replicas == (44, 44, 44) and found.transports == ("l2", "l2")
    assert all(depth > 44 for depth in found.depths), "every CTA at either end has a tile to work on"


def test_more_stages_than_sms_share_roles():
    found = place(CHAIN, QUEUES, 10**6, GPU.override(sms=2), "spatial")
    assert found.roles == (0, 0, 1) or found.roles == (0, 1, 1)
    assert sorted(found.transports) == ["l2", "reg"]


def test_a_stage_that_sums_has_a_role_of_its_own():
    stages = [*CHAIN, StageCost("sum", "simt")]
    queues = [*QUEUES, QueueCost("t", 2, (3,), 256.0, accumulates=True)]
    fused = place(stages, queues, 10**6, CPU.override(sms=9), "fused")
    assert fused.roles == (0, 0, 0, 1) and fused.replicas[1] == 1
    assert fused.transports[2] == "l2" and fused.depths[2] == fused.replicas[0], "a slot for each partial sum"
    few = place(stages, queues, 10**6, GPU.override(sms=3), "spatial")
    assert few.roles[3] == 2 and len(set(few.roles[:3])) == 2 and few.replicas == (1, 1, 1)


def test_chained_ctas_share_the_blocks_of_a_sum():
    stages = [*CHAIN[:2], StageCost("sum", "simt")]
    queues = [QUEUES[0], QueueCost("t", 1, (2,), 65536.0, accumulates=True)]
    form = (Chained(blocks=4, tile_rows=64),)
    found = place(stages, queues, 10**6, GPU, chained=form)
    assert found.shape == "chained" and found.roles == (0, 0, 0) and found.replicas == (132,)
    assert found.transports == ("smem", "hbm") and found.depths == (1, 33), "a partial sum for every four CTAs"
    assert place(stages, queues, 100, GPU, chained=form).replicas == (8,), "two tiles"
    more = place(stages, queues, 10**7, GPU, chained=form)
    assert 5 * found.predicted_us < more.predicted_us < 10 * found.predicted_us


def test_chained_ctas_share_columns():
    """Eight row tiles on 132 SMs: as many column tiles, or CTAs of a cluster, as can."""
    wide = [dataclasses.replace(stage, product_flops=20 * stage.product_flops) for stage in CHAIN]
    alone, columns, cluster = (
        place(wide, QUEUES, 1024, GPU, chained=(form,)) for form in (Chained(), Chained(1, 16), Chained(4))
    )
    assert (alone.replicas, columns.replicas, cluster.replicas) == ((8,), (128,), (32,))
    assert columns.predicted_us < cluster.predicted_us < alone.predicted_us


@given(st.integers(0, 10**7), st.integers(1, 132), st.sampled_from([64, 128]))
def test_no_part_of_a_sum_is_empty(rows, blocks, tile):
    parts = parts_of(rows, tile, blocks, GPU)
    each = max(1, -(-rows // (parts * tile))) * tile  # rows of a part
    assert 1 <= parts * blocks <= GPU.sms and (parts - 1) * each < max(1, rows) <= parts * each
    assert parts_of(None, tile, blocks, GPU) == GPU.sms // blocks


def test_wide_rings_lie_further_out():
    wide = [QueueCost(queue.name, queue.producer, queue.consumers, 16384.0) for queue in QUEUES]
    spatial = place(CHAIN, wide, 10**6, GPU, "spatial")
    assert spatial.transports == ("l2", "l2")
    assert 0.9 * GPU.l2_bytes < sum(spatial.depths) * 128 * 16384 <= GPU.l2_bytes, "shallower, all that L2 holds"
    tiny = GPU.override(l2_bytes=128 * 16384)
    assert sorted(place(CHAIN, wide, 10**6, tiny, "spatial").transports) == ["hbm", "l2"]


@pytest.mark.parametrize(
    ("rows", "machine", "tile"),
    [(None, GPU, 128), (10**6, GPU, 128), (1, GPU, 128)]
    + [(None, CPU, 64), (20, CPU, 24), (8, CPU, 8), (7, CPU, 7), (1, CPU, 1)],
)
def test_tile_rows(rows, machine, tile):
    assert choose_tile_rows(rows, machine) == tile
    assert place(CHAIN, QUEUES, rows, machine).tile_rows == tile
    assert place(CHAIN, QUEUES, rows, machine, tile_rows=48).tile_rows == 48


def _us(*role, rows=64, machine=GPU, in_l2=False, **where):
    return role_price(role, rows, machine, in_l2, **where).us


NOTHING = _us(StageCost("s", "simt"))


def test_warps_multiply_and_compute_by_turns():
    multiplies = StageCost("s", "tensor", product_flops=GPU.tensor_tflops * 1e6 / GPU.sms)
    computes = StageCost("s", "simt", simt_ops=0.29 * GPU.simt_tflops * 1e6 / GPU.sms)
    assert _us(computes, rows=128) == pytest.approx(NOTHING + 128)
    assert _us(computes, rows=64) == _us(computes, rows=128), "one warpgroup has half of the lanes' rate"
    assert _us(multiplies, computes, rows=128) == pytest.approx(_us(multiplies, rows=128) + 128)
    assert _us(multiplies) > NOTHING + 64, "a product waits for its first sums"


def test_tiles_behind_the_first_overlap():
    multiplies = StageCost("s", "tensor", product_flops=GPU.tensor_tflops * 1e6 / GPU.sms)
    computes = StageCost("s", "simt", simt_ops=GPU.simt_tflops * 1e6 / GPU.sms)
    first, later = (_us(multiplies, computes, rows=128, first=first) for first in (True, False))
    assert later == pytest.approx(first - 64), "half of what is multiplied"
    many = pipeline_price([[multiplies, computes]], [2], 7, 128, GPU, False)
    assert many.us == pytest.approx(start_us(GPU) + first + 3 * later)


def test_weights_come_while_warps_work():
    l2 = GPU.l2_gbps * 1e3 / GPU.sms
    weights = StageCost("s", "tensor", weight_bytes=2 * l2, queue_bytes=l2)
    assert _us(weights) == pytest.approx(2), "weights are read once a tile"
    assert _us(weights, in_l2=True) == pytest.approx(66)
    computes = StageCost("s", "simt", simt_ops=GPU.simt_tflops * 1e6 / GPU.sms)
    assert _us(weights, computes) == _us(computes)
    assert _us(weights, ctas=GPU.sms // 2) == pytest.approx(1), "others rest"


def test_a_core_has_no_latencies():
    computes = StageCost("s", "simt", simt_ops=CPU.simt_tflops * 1e6 / CPU.sms)
    assert _us(computes, rows=3, machine=CPU) == pytest.approx(3)


def test_time_of_a_pipeline():
    stage = StageCost("s", "simt", simt_ops=GPU.simt_tflops * 1e6 / GPU.sms)
    one = _us(stage, rows=128)
    two = pipeline_price([[stage], [stage]], [2, 3], 7, 128, GPU, False)
    assert two.us == pytest.approx(start_us(GPU) + 5 * one)
    waiting = pipeline_price([[stage]], [1], 7, 128, GPU, False, EXCHANGE_US)
    assert waiting.us == pytest.approx(start_us(GPU) + 7 * (one + EXCHANGE_US))
    loads = StageCost("s", "simt", dram_bytes=GPU.dram_gbps * 1e3)
    dram = pipeline_price([[loads]], [1000000], 7, 1, GPU.override(l2_gbps=1e30), False)
    assert dram.us >= start_us(GPU) + 7 and dram.limit == "DRAM"


def test_what_several_stages_load_is_loaded_once():
    x, y = ({tensor: 600.0} for tensor in (1, 2))
    first, again, other = (StageCost("s", "simt", dram_bytes=1000.0, loaded=loaded) for loaded in (x, x, y))
    assert dram_bytes([first, again]) == 1400 and dram_bytes([first, other]) == 2000
    assert dram_bytes([first.part(2), again.part(2)]) == 700


def test_products_of_f32_take_longer():
    """Less where another warpgroup multiplies meanwhile."""
    flops = GPU.tensor_tflops * 1e6 / GPU.sms
    plain, wide = (StageCost("s", "tensor", flops, of_f32) for of_f32 in (0.0, flops))
    assert _us(plain) < _us(wide)
    assert _us(wide, rows=128) < 2 * _us(wide)


def test_a_tile_leaves_before_the_next_takes_its_place():
    loads, stores = (StageCost("s", "simt", dram_bytes=1000.0, stored_bytes=of_it) for of_it in (0.0, 1000.0))
    assert _us(stores) > _us(loads)


def test_clusters_do_not_straddle_the_parts_of_a_chip():
    """33 clusters of four CTAs in the place of 30 would run one behind another."""
    assert [GPU.clusters_at_once(ctas) for ctas in (1, 2, 3, 4, 16)] == [132, 66, 40, 30, 7]
    assert GPU.override(sms=3).clusters_at_once(4) == 1


@pytest.mark.parametrize("columns", [64, 96, 192, 768])
def test_shares_that_are_sent_beyond_the_products_beside_them(columns):
    """A layer of 768 to a few columns waits for the other CTA's half of its operand: 4.5 us more than one of 768 to
    768, whose products with its own half take longer (H200)."""
    wide, narrow = (
        StageCost(name, "tensor", product_flops=2 * k * n, products=(ProductCost(n, k),))
        for name, k, n in (("wide", 64, 768), ("narrow", 768, columns))
    )
    queue = QueueCost("q0", 0, (1,), 768 * 2)
    alone, sent = (
        place([wide, narrow], [queue], 8192, GPU, "chained", chained=[Chained(cluster=2, exchanged=frozenset(names))])
        for names in ((), ("q0",))
    )
    waits = sent.predicted_us - alone.predicted_us
    assert waits == pytest.approx(0) if columns == 768 else 2 < waits < 5
