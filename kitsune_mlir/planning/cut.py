"""Where to cut a designed pipeline into consecutive ones that can be chained, and into stages whose operators run one
at a time, apart (pure planning).

A chained pipeline runs at the full rate of the tensor cores, and so does a product apart, where it has such a kernel; a
cut costs a launch, and every queue that it severs a store and a load. A dynamic program over the cuts finds the
cheapest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from .cost import StageCost, pipeline_price
from .open_rows import MANY, NEAR, UNKNOWN_ROWS, Rows
from .place import TILE_ROWS, Chained, QueueCost, place
from .product_tiles import PIECES_OF, choose
from .target import Target
from .thin_products import THIN_BY, thin_us

KERNEL_US = 0.6  # of a kernel of one operator that moves little, besides its launch
PLAIN_DRAM = 0.8  # of DRAM's rate, that such kernels reach
_EASY = 2  # CTAs of a cluster, of which a chip that is full of them has few places left
MANY_STAGES, LONG = 24, 12  # stages of a pipeline, of more of which runs of at most so many are asked for
PLAIN_RATE = 0.005  # of the tensor cores, that products without kernels there reach
# The ways in which the stages from the first to the last, both included, chain; none where they do not.
Chains = Callable[[int, int], Sequence[Chained]]


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
    """Consecutive stages, `first` to `last`, that become one pipeline, chained in one of `forms`; or, where there are
    none, whose operators run one at a time."""

    first: int
    last: int
    forms: tuple[Chained, ...] = ()

    @property
    def chains(self) -> bool:
        return bool(self.forms)

    def __contains__(self, stage: int) -> bool:
        return self.first <= stage <= self.last


@dataclass(frozen=True)
class Cut:
    """The runs, in order, that hold every stage once, and what one call of them all takes."""

    runs: tuple[Run, ...]
    predicted_us: float


def cut(
    stages: Sequence[StageCost],
    queues: Sequence[QueueCost],
    rows: int | None,
    target: Target,
    chains: Chains,
    example: int = UNKNOWN_ROWS,
) -> Cut:
    """The cheapest cut. `rows` is None when open until the call: `example` are then those to decide for (open_rows.py).
    A pipeline that chains as a whole, in fewer than four CTAs, is cut only into stages that run apart, all of them.
    `chains` is asked about runs with products only, and not about longer ones than one that it denied."""
    count, ask = len(stages), cache(chains)
    whole = Run(0, count - 1, tuple(ask(0, count - 1)) if _has_product(stages, 0, count - 1) else ())
    runs = [whole]
    if all(form.cluster > _EASY for form in whole.forms):
        every = list(_runs(stages, queues, ask))
        runs = [run for run in every if run.chains] + [Run(run.first, run.last) for run in _shortest(every)]
    runs += [Run(i, i) for i in range(count) if stages[i].products is not None]
    runs += _side_by_side(stages)
    found = _cheapest(runs, stages, queues, Rows(rows, example), target)
    if rows is None:
        of_many = _cheapest(runs, stages, queues, Rows(rows, MANY * example), target)
        us = sum(run_us(run, stages, queues, rows, target, example) for run in of_many.runs)
        found = Cut(of_many.runs, us) if us <= NEAR * found.predicted_us else found
    return found


def _cheapest(
    runs: Sequence[Run], stages: Sequence[StageCost], queues: Sequence[QueueCost], rows: Rows, target: Target
) -> Cut:
    """The cheapest runs, among these, that hold every stage."""
    best: dict[int, Cut] = {0: Cut((), 0.0)}  # by how many stages are dealt with
    for run in sorted(runs, key=lambda run: run.last):
        if run.first not in best:
            continue
        before = best[run.first]
        us = run_us(run, stages, queues, rows.known, target, rows.example)
        found = Cut((*before.runs, run), before.predicted_us + us)
        if run.last + 1 not in best or found.predicted_us < best[run.last + 1].predicted_us:
            best[run.last + 1] = found
    return best[len(stages)]


def cut_everywhere(
    stages: Sequence[StageCost],
    queues: Sequence[QueueCost],
    rows: int | None,
    target: Target,
    chains: Chains,
    example: int = UNKNOWN_ROWS,
) -> Cut:
    """Every queue of tiles severed: the bulk-synchronous form, a stage a kernel."""
    runs: list[Run] = []
    for run in _shortest(_runs(stages, queues, chains)):
        if run.first == (runs[-1].last + 1 if runs else 0):
            runs.append(run)
    return Cut(tuple(runs), sum(run_us(run, stages, queues, rows, target, example) for run in runs))


def run_us(
    run: Run,
    stages: Sequence[StageCost],
    queues: Sequence[QueueCost],
    rows: int | None,
    target: Target,
    example: int = UNKNOWN_ROWS,
) -> float:
    """Predicted microseconds of one run, whose severed queues lie in DRAM."""
    members = list(stages[run.first : run.last + 1])
    if not run.chains and all(stage.products is not None for stage in members):
        joined = _joined(members)
        return sum(_apart_us(stage, Rows(rows, example), target) for stage in ([joined] if joined else members))
    severed = _severed(run, queues)
    members[0] = dataclasses.replace(members[0], dram_bytes=members[0].dram_bytes + severed)
    if run.chains:
        inside = [
            dataclasses.replace(
                queue, producer=queue.producer - run.first, consumers=tuple(i - run.first for i in queue.consumers)
            )
            for queue in queues
            if queue.producer in run and all(consumer in run for consumer in queue.consumers)
        ]
        price = place(members, inside, rows, target, "chained", chained=run.forms, example=example).predicted_us
    else:
        rated = target.override(tensor_tflops=target.tensor_tflops * PLAIN_RATE)
        price = _tiled_us(members, Rows(rows, example), TILE_ROWS, rated)
    weights = sum(stage.weight_bytes for stage in stages[run.first : run.last + 1])
    return max(price, weights / (target.dram_gbps * 1e3))


def _tiled_us(members: list[StageCost], rows: Rows, tile: int, target: Target) -> float:
    """Predicted microseconds of stages on tiles of so many rows, one after another."""
    tiles = rows.tiles(tile)
    return pipeline_price([members], [min(tiles, target.sms)], tiles, tile, target, queues_in_l2=False).us


def _apart_us(stage: StageCost, of: Rows, target: Target) -> float:
    """Predicted microseconds of a stage whose operators run one at a time, tiles going through DRAM between them.
    Infinite where a product has no such kernel."""
    rows = of.taken
    total, columns = 0.0, sum(product.columns for product in stage.products or ())
    work = float(round(stage.plain_ops / columns)) if columns else 0.0
    for product in stage.products or ():
        own = product.on(target)
        short = frozenset(("left",) if own.across else ("left", "right"))
        size, form = (1, rows, own.columns, own.k), (own.across, own.pairs)
        tiles = choose(*size, *form, target, work=work, words=own.words, short=short, open_="" if of.known else "m")
        read = own.k * (2 * PIECES_OF[own.pairs] if own.pairs > 1 else own.element_bytes)
        nbytes = rows * (read + product.columns * product.element_bytes)  # through DRAM: tiles have no price for it
        moved_us = target.launch_us + nbytes / (target.dram_gbps * 1e3)
        us = max(tiles.microseconds, moved_us) if tiles else math.inf
        sizes = sorted((of.known or 0, product.columns))
        thin = None if product.across else thin_us(*sizes, product.k, product.element_bytes, target)
        total += (
            thin if thin is not None and thin < THIN_BY * us else us + _in_pieces_us(rows, own.k, own.pairs, target)
        )
    total = max(total, stage.weight_bytes / (target.dram_gbps * 1e3))
    moved = rows * stage.plain_bytes / (PLAIN_DRAM * target.dram_gbps * 1e3)
    return total + stage.kernels * (KERNEL_US + target.launch_us) + moved


def moved_us(nbytes: float, target: Target) -> float:
    """Predicted microseconds of a kernel that moves so many bytes through DRAM."""
    return KERNEL_US + target.launch_us + nbytes / (PLAIN_DRAM * target.dram_gbps * 1e3)


def _in_pieces_us(rows: int, k: int, pairs: int, target: Target) -> float:
    """Predicted microseconds of the kernel that makes so many rows of f32 pieces, where they are multiplied so."""
    if pairs == 1:
        return 0.0
    return moved_us(rows * k * (4 + 2 * PIECES_OF[pairs]), target)


def _side_by_side(stages: Sequence[StageCost]) -> Iterator[Run]:
    """Runs of stages that may be one product apart."""
    for first in range(len(stages)):
        for last in range(first + 1, len(stages)):
            if _joined(stages[first : last + 1]) is None:
                break
            yield Run(first, last)


def _joined(stages: Sequence[StageCost]) -> StageCost | None:
    """Stages whose products are one, with their columns side by side; None where they can't be. What follows them
    elementwise is taken to be the same."""
    forms = {dataclasses.replace(product, columns=0) for stage in stages for product in stage.products or ()}
    alike = len({stage.beside for stage in stages}) == len(forms) == 1 and not any(stage.kernels for stage in stages)
    if len(stages) < 2 or not alike or not stages[0].beside:
        return None
    products = [product for stage in stages for product in stage.products or ()]
    return dataclasses.replace(
        stages[0],
        products=(dataclasses.replace(products[0], columns=sum(product.columns for product in products)),),
        plain_ops=sum(stage.plain_ops for stage in stages),
        weight_bytes=sum(stage.weight_bytes for stage in stages),
    )


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
    """Every run that may stand alone: none severs a stage from the stage that adds its partial sums. To ask whether a
    run chains takes the longer, the longer it is: of an unrolled recurrence it took minutes."""
    sums = [(queue.producer, consumer) for queue in queues if queue.accumulates for consumer in queue.consumers]
    for first in range(len(stages)):
        may_chain = True
        for last in range(first, len(stages)):
            forms: tuple[Chained, ...] = ()
            may_chain = may_chain and (len(stages) <= MANY_STAGES or last - first < LONG)
            if may_chain and _has_product(stages, first, last):
                forms = tuple(chains(first, last))
                may_chain = bool(forms)
            run = Run(first, last, forms)
            if all((producer in run) == (consumer in run) for producer, consumer in sums):
                yield run


def _shortest(runs: Iterable[Run]) -> Iterator[Run]:
    """Of those that begin with the same stage, which come shortest first, the first."""
    begun: set[int] = set()
    for run in runs:
        if run.first not in begun:
            begun.add(run.first)
            yield run


def _has_product(stages: Sequence[StageCost], first: int, last: int) -> bool:
    return any(stage.product_flops for stage in stages[first : last + 1])
