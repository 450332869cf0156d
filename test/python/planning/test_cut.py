"""Cutting pipelines: the dynamic program against every cut there is, and what it must leave alone."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kitsune_mlir.planning import target
from kitsune_mlir.planning.cost import ProductCost, StageCost
from kitsune_mlir.planning.cut import Run, cut, cut_everywhere, part_name, run_us, whole_name
from kitsune_mlir.planning.open_rows import NEAR
from kitsune_mlir.planning.place import Chained, QueueCost, place

GPU = target.load("sm_90a")
WHOLE = (Chained(),)  # the plainest way to chain


@st.composite
def pipelines(draw):
    """Up to 6 stages, queues forwards, perhaps a sum over rows, and the longest runs that chain."""
    count = draw(st.integers(1, 6))
    flops = st.sampled_from([0.0, 2.0 * 64 * 64, 2.0 * 512 * 512, 2.0 * 4096 * 1024])
    stages = [
        StageCost(f"s{i}", "tensor", draw(flops), simt_ops=512.0, weight_bytes=8192.0, dram_bytes=64.0 * (i == 0))
        for i in range(count)
    ]
    queues = []
    for consumer in range(1, count):
        producer = draw(st.integers(0, consumer - 1))
        others = draw(st.lists(st.integers(producer + 1, count - 1), max_size=1))
        width = draw(st.sampled_from([4.0, 1024.0, 32768.0]))
        queues.append(QueueCost(f"q{consumer}", producer, tuple(sorted({consumer, *others})), width))
    if draw(st.booleans()):
        queues.append(QueueCost("sum", draw(st.integers(0, count - 1)), (count,), 512.0, accumulates=True))
        stages.append(StageCost("total", "simt"))
    reach = [draw(st.integers(-1, len(stages))) for _ in stages]  # from each stage on, the last that it chains with
    return stages, queues, lambda first, last: WHOLE if last <= reach[first] else ()


ROWS = st.sampled_from([None, 100, 4096, 200_000])


@settings(max_examples=200, deadline=None)
@given(pipelines(), ROWS)
def test_no_cut_is_cheaper(pipeline, rows):
    stages, queues, chains = pipeline
    found = cut(stages, queues, rows, GPU, chains)
    count = len(stages)
    assert [stage for run in found.runs for stage in range(run.first, run.last + 1)] == list(range(count))
    assert found.predicted_us == pytest.approx(sum(run_us(run, stages, queues, rows, GPU) for run in found.runs))
    if len(found.runs) > 1:
        every = _every_cut(stages, queues, chains)
        cheapest = min(sum(run_us(run, stages, queues, rows, GPU) for run in runs) for runs in every)
        assert found.predicted_us <= (1.000001 if rows else NEAR) * cheapest  # of open rows it is fast for more of them


def _every_cut(stages, queues, chains):
    found = []
    for cuts in itertools.product((False, True), repeat=len(stages) - 1):
        borders = [0, *(i + 1 for i, is_cut in enumerate(cuts) if is_cut), len(stages)]
        runs = [_run(a, b - 1, stages, chains) for a, b in itertools.pairwise(borders)]
        sums = [(queue.producer, queue.consumers[0]) for queue in queues if queue.accumulates]
        kept = all((a in run) == (b in run) for a, b in sums for run in runs)
        if kept and all(run.chains or _is_shortest(run, sums) for run in runs):
            found.append(tuple(runs))
    return found


def _is_shortest(run, sums):
    """Whether no run that begins with the same stage, and keeps sums together, is shorter."""
    return not any(
        all((a in shorter) == (b in shorter) for a, b in sums)
        for shorter in (Run(run.first, last) for last in range(run.first, run.last))
    )


def _run(first, last, stages, chains):
    products = [i for i in range(first, last + 1) if stages[i].product_flops]
    longest = bool(products) and all(chains(first, upto) for upto in range(products[0], last + 1))
    return Run(first, last, WHOLE if longest else ())


@given(pipelines(), ROWS)
def test_a_pipeline_that_chains_stays_whole(pipeline, rows):
    stages, queues, _ = pipeline
    assume(any(stage.product_flops for stage in stages))
    found = cut(stages, queues, rows, GPU, lambda first, last: WHOLE)
    assert len(found.runs) == 1


@given(pipelines(), ROWS)
def test_of_a_pipeline_of_which_nothing_chains_each_stage_runs_apart(pipeline, rows):
    stages, queues, _ = pipeline
    assume(not any(queue.accumulates for queue in queues))
    assert cut(stages, queues, rows, GPU, lambda first, last: ()).runs == tuple(Run(i, i) for i in range(len(stages)))


@pytest.mark.parametrize("machine", [GPU, target.load("sm_80")], ids=["wgmma", "mma"])
def test_a_sum_over_the_rows_takes_no_product_out_of_its_kernel(machine):
    stages = [StageCost(f"s{i}", "tensor", 2.0 * 512 * 512, weight_bytes=512 * 1024.0) for i in range(2)]
    stages += [StageCost("terms", "simt", simt_ops=512.0), StageCost("total", "simt")]
    queues = [QueueCost(f"q{i}", i, (i + 1,), 1024.0) for i in range(2)]
    queues.append(QueueCost("sum", 2, (3,), 1024.0, accumulates=True))
    found = cut(stages, queues, 65536, machine, lambda first, last: WHOLE if last < 2 else ())
    assert found.runs == (Run(0, 1, WHOLE), Run(2, 3))


@given(pipelines(), ROWS)
def test_cut_everywhere_but_in_a_sum(pipeline, rows):
    stages, queues, chains = pipeline
    found = cut_everywhere(stages, queues, rows, GPU, chains)
    assert [stage for run in found.runs for stage in range(run.first, run.last + 1)] == list(range(len(stages)))
    sums = {stage for q in queues if q.accumulates for stage in range(q.producer + 1, q.consumers[0] + 1)}
    assert [run.first for run in found.runs] == [stage for stage in range(len(stages)) if stage not in sums]


def test_wide_layers_are_cut_one_by_one():
    stages = [StageCost(f"s{i}", "tensor", 2.0 * 512 * 512, weight_bytes=512 * 1024.0) for i in range(10)]
    queues = [QueueCost(f"q{i}", i, (i + 1,), 1024.0) for i in range(9)]
    found = cut(stages, queues, 65536, GPU, lambda first, last: WHOLE if first == last else ())
    assert found.runs == tuple(Run(i, i, WHOLE) for i in range(10))


def test_products_run_apart_where_that_is_faster():
    """Wide tiles leave the other kernel few rows; narrow ones that chain stay in registers."""
    for width, apart in ((4096, True), (32, False)):
        weights = 2.0 * width * width
        product = (ProductCost(width, width),)
        stages = [
            StageCost(f"s{i}", "tensor", weights, weight_bytes=weights, dram_bytes=4.0 * width, products=product)
            for i in range(4)
        ]
        chains = (lambda first, last: ()) if apart else (lambda first, last: WHOLE)
        found = cut(stages, [], 4096, GPU, chains).runs
        assert found == (tuple(Run(i, i) for i in range(4)) if apart else (Run(0, 3, WHOLE),))


def test_nothing_longer_is_asked_about_than_what_was_denied():
    asked = []

    def chains(first, last):
        asked.append((first, last))
        return WHOLE if first == last else ()

    stages = [StageCost("s", "tensor", 1000.0)] * 20
    cut(stages, [], 4096, GPU, chains)
    assert len(asked) == len(set(asked)) == 1 + 20 + 19


@pytest.mark.parametrize("count, longest", [(24, 23), (60, 12)])
def test_of_many_stages_long_runs_are_not_asked_about(count, longest):
    """But for all of them, which may chain as they are."""
    asked = []

    def chains(first, last):
        asked.append(last - first + 1)
        return () if last - first + 1 == count else WHOLE

    stages = [StageCost("s", "tensor", 1000.0)] * count
    runs = cut(stages, [], 4096, GPU, chains).runs
    assert sorted(set(asked)) == [*range(1, longest + 1), count]
    assert len(runs) == -(-count // longest) and all(run.chains for run in runs)


@pytest.mark.parametrize("name", ["pipeline0", "net_part", "_part3", "a_partial"])
def test_names_of_parts_lead_back(name):
    assert whole_name(name) == name
    assert whole_name(part_name(name, 12)) == name


def test_only_what_ctas_can_share_is_shared():
    """A product of 512 columns of 200 rows, whose tiles are few: fast where CTAs take columns each, else as a kernel of
    its own."""
    fields = {"dram_bytes": 2048.0, "kernels": 1, "plain_bytes": 2048.0, "products": (ProductCost(512, 512),)}
    stage = StageCost("s0", "tensor", 2.0 * 512 * 512, simt_ops=1024.0, weight_bytes=524288.0, **fields)
    prices = {}
    for form in (Chained(), Chained(column_tiles=8)):
        prices[form] = run_us(Run(0, 0, (form,)), [stage], [], 200, GPU)
        (run,) = cut([stage], [], 200, GPU, lambda first, last: (form,)).runs  # noqa: B023
        assert run.chains == (form.column_tiles > 1)
    assert prices[Chained()] > 2 * prices[Chained(column_tiles=8)]


@given(pipelines(), ROWS, st.sampled_from([Chained(), Chained(cluster=2), Chained(tile_rows=64)]))
def test_a_chain_is_priced_as_it_is_placed(pipeline, rows, form):
    stages, queues, _ = pipeline
    placed = place(stages, queues, rows, GPU, "chained", chained=(form,)).predicted_us
    weights = sum(stage.weight_bytes for stage in stages) / (GPU.dram_gbps * 1e3)
    assert run_us(Run(0, len(stages) - 1, (form,)), stages, queues, rows, GPU) == max(placed, weights)
