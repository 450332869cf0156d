"""Where to cut a designed pipeline into consecutive ones that warpgroups can chain (pure planning).

A chained pipeline runs at the full rate of the tensor cores, any other at a fraction of it; a cut costs a launch,
and every queue that it severs a store and a load. A dynamic program over the cuts finds the cheapest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from .cost import StageCost, pipeline_price
from .place import CHAINED_ROWS, TILE_ROWS, UNCHAINED_RATE, UNKNOWN_ROWS, QueueCost
from .target import Target

SCHEDULED_RATE = 0.5  # of the tensor cores, that products reach which are kernels of their own
KERNEL_LAUNCHES = 2.0  # of a kernel with few tiles: its time, in launches
APART_BY = 0.7  # of a pipeline's predicted time, below which its operators run apart
PLAIN_RATE = 0.005  # that products in no pipeline reach
Chains = Callable[[int, int], bool]  # whether the stages from the first to the last, both included, chain


_PART = "_part"


def part_name(pipeline: str, number: int) -> str:
    """What part `number` of a cut pipeline is called."""
    return f"{pipeline}{_PART}{number}"


def whole_name(part: str) -> str:
    """The name of the pipeline that a pipeline is a part of; its own when it was not cut."""
    whole, _, number = part.rpartition(_PART)
    return whole if whole and number.isdigit() else part


@dataclass(frozen=True)
class Run:
    """Consecutive stages, `first` to `last`, that become one pipeline; or, `apart`, one whose operators run one at a
    time, each product a kernel on tensor cores."""

    first: int
    last: int
    chains: bool
    apart: bool = False

    def __contains__(self, stage: int) -> bool:
        return self.first <= stage <= self.last


@dataclass(frozen=True)
class Cut:
    """The runs, in order, that hold every stage once, and what one call of them all takes."""

    runs: tuple[Run, ...]
    predicted_us: float


def cut(
    stages: Sequence[StageCost], queues: Sequence[QueueCost], rows: int | None, target: Target, chains: Chains
) -> Cut:
    """The cheapest cut. `rows` is None when open until the call. A pipeline that chains as a whole stays whole, and one
    of which nothing chains unless it sums over its rows: no kernel but a chained one does. `chains` is asked about runs
    with products only, and not about longer ones than one that it denied."""
    count, ask = len(stages), cache(chains)
    whole = Run(0, count - 1, _has_product(stages, 0, count - 1) and ask(0, count - 1))
    runs = [whole] if whole.chains else list(_runs(stages, queues, ask))
    apart = [] if target.products != "wgmma" else [Run(i, i, False, True) for i in _apart(stages, runs)]
    if not any(run.chains for run in runs) and not apart and not any(queue.accumulates for queue in queues):
        runs = [whole]
    runs += apart
    best: dict[int, Cut] = {0: Cut((), 0.0)}  # by how many stages are dealt with
    for run in sorted(runs, key=lambda run: run.last):
        if run.first not in best:
            continue
        before = best[run.first]
        found = Cut((*before.runs, run), before.predicted_us + run_us(run, stages, queues, rows, target))
        if run.last + 1 not in best or found.predicted_us < best[run.last + 1].predicted_us:
            best[run.last + 1] = found
    return best[count]


def cut_everywhere(
    stages: Sequence[StageCost], queues: Sequence[QueueCost], rows: int | None, target: Target, chains: Chains
) -> Cut:
    """Every queue of tiles severed: the bulk-synchronous form, a stage a kernel."""
    runs: list[Run] = []
    for run in _runs(stages, queues, chains):  # shorter ones first
        if run.first == (runs[-1].last + 1 if runs else 0):
            runs.append(run)
    return Cut(tuple(runs), sum(run_us(run, stages, queues, rows, target) for run in runs))


def run_us(
    run: Run, stages: Sequence[StageCost], queues: Sequence[QueueCost], rows: int | None, target: Target
) -> float:
    """Predicted microseconds of one run, whose severed queues lie in DRAM."""
    if run.apart:
        return _apart_us(stages[run.first], rows or UNKNOWN_ROWS, target)
    severed = _severed(run, queues)
    members = list(stages[run.first : run.last + 1])
    members[0] = dataclasses.replace(members[0], dram_bytes=members[0].dram_bytes + severed)
    tile = CHAINED_ROWS if run.chains else TILE_ROWS
    if not run.chains:
        sums = any(queue.accumulates and queue.producer in run for queue in queues)
        rate = PLAIN_RATE if sums else UNCHAINED_RATE if target.products == "wgmma" else 1.0
        target = target.override(tensor_tflops=target.tensor_tflops * rate)
    tiles = max(1, -(-(rows or UNKNOWN_ROWS) // tile))
    return pipeline_price([members], [min(tiles, target.sms)], tiles, tile, target, queues_in_l2=False).us


def is_faster_apart(stages: Sequence[StageCost], rows: int | None, predicted_us: float, target: Target) -> bool:
    """Whether the stages of a placed pipeline, of that predicted time, should run an operator at a time: few rows leave
    a pipeline few CTAs, each of which reads all weights."""
    if target.products != "wgmma" or not all(stage.kernels for stage in stages):
        return False
    return sum(_apart_us(stage, rows or UNKNOWN_ROWS, target) for stage in stages) < APART_BY * predicted_us


def _apart(stages: Sequence[StageCost], runs: Sequence[Run]) -> list[int]:
    """The stages that may run an operator at a time."""
    alone = [run.first for run in runs if run.first == run.last and not run.chains]
    return [i for i in alone if stages[i].kernels]


def _apart_us(stage: StageCost, rows: int, target: Target) -> float:
    """Of a stage whose operators run one at a time, with tiles that go through DRAM between them."""
    tensor = stage.product_flops * rows / (SCHEDULED_RATE * target.tensor_tflops * 1e6)
    moved = stage.weight_bytes + rows * (stage.dram_bytes + stage.queue_bytes + stage.plain_bytes)
    return max(tensor, moved / (target.dram_gbps * 1e3)) + stage.kernels * KERNEL_LAUNCHES * target.launch_us


def _severed(run: Run, queues: Sequence[QueueCost]) -> float:
    """Bytes a row that the run stores for later runs and loads from earlier ones."""
    total = 0.0
    for queue in queues:
        inside = [consumer in run for consumer in queue.consumers]
        leaves = queue.producer in run and not all(inside)
        enters = queue.producer not in run and any(inside)
        total += queue.row_bytes * (leaves + enters)
    return total


def _runs(stages: Sequence[StageCost], queues: Sequence[QueueCost], chains: Chains) -> Iterator[Run]:
    """Every run that may stand alone: none severs a stage from the stage that adds its partial sums."""
    sums = [(queue.producer, consumer) for queue in queues if queue.accumulates for consumer in queue.consumers]
    for first in range(len(stages)):
        may_chain = True
        for last in range(first, len(stages)):
            if may_chain and _has_product(stages, first, last):
                may_chain = chains(first, last)
            run = Run(first, last, may_chain and _has_product(stages, first, last))
            if all((producer in run) == (consumer in run) for producer, consumer in sums):
                yield run


def _has_product(stages: Sequence[StageCost], first: int, last: int) -> bool:
    return any(stage.product_flops for stage in stages[first : last + 1])
