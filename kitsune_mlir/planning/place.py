"""Placement: tile rows, roles, replicas, transports and depths for a designed pipeline (pure planning).

There are three shapes: *spatial*, in which consecutive stages share CTAs only when there are more stages than SMs and
queues lie in L2; of CPUs *fused*, in which every core runs all stages on its own tiles; and of GPUs *chained*, in which
every CTA does, queues in registers, where code generation can do that. Chained is taken where it exists, else the
faster of the others. What memory cannot hold gets shallower queues or lies further out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from .cost import CYCLES_A_US, EXCHANGE_US, L2, StageCost, pipeline_price, reduction_us, role_price, start_us
from .open_rows import MANY, UNKNOWN_ROWS, Rows, nearly_fastest
from .product_engines import Warpgroups
from .target import Target

SHAPES = ("auto", "chained", "fused", "spatial")
TILE_ROWS = 64
_STEP = 8  # rows of which a CPU's tiles are multiples
_SENT = 12.0  # bytes a cycle of a share of a tile that a CTA sends to another; 14 MLPs and chains of clusters (H200)
# The rows of a tile that two warpgroups, or one, carry in their registers.
HEIGHTS = CHAINED_ROWS, SHORT_ROWS = 128, 64


@dataclass(frozen=True)
class QueueCost:
    """One intermediate: stage positions of its ends, and the bytes of a row of it."""

    name: str
    producer: int
    consumers: tuple[int, ...]
    row_bytes: float
    accumulates: bool = False


@dataclass(frozen=True)
class Chained:
    """How a pipeline is chained: `cluster` CTAs share the columns of a tile, or `column_tiles` CTAs take a row tile's
    columns by themselves. CTAs that share a tile's columns hand the tiles of the `exchanged` queues to one another;
    those of other queues stay in registers. Where it sums over the rows, each CTA has one of `blocks` blocks of a
    partial sum. A tile has `tile_rows` rows, 64 for each warpgroup."""

    cluster: int = 1
    column_tiles: int = 1
    blocks: int = 0
    exchanged: frozenset[str] = frozenset()
    tile_rows: int = CHAINED_ROWS


@dataclass(frozen=True)
class Placement:
    """`roles[i]` is the role of stage i, `replicas[r]` the CTAs of role r; a transport and depth a queue."""

    shape: str
    tile_rows: int
    roles: tuple[int, ...]
    replicas: tuple[int, ...]
    transports: tuple[str, ...]
    depths: tuple[int, ...]
    predicted_us: float
    limit: str  # what that time is due to; see cost.py
    cluster: int = 1


def place(
    stages: Sequence[StageCost],
    queues: Sequence[QueueCost],
    rows: int | None,
    target: Target,
    shape: str = "auto",
    tile_rows: int | None = None,
    chained: Sequence[Chained] = (),
    example: int = UNKNOWN_ROWS,
) -> Placement:
    """The best placement of the shapes asked for. `rows` is None when open until the call: what is fast is then decided
    for `example` rows (open_rows.py). `chained` are the pipeline's chained forms, none when it has none."""
    found = _placements(stages, queues, Rows(rows, example), target, shape, tile_rows, chained)
    if rows is not None or len(found) == 1:
        return min(found, key=lambda p: p.predicted_us)
    of_many = _placements(stages, queues, Rows(None, MANY * example), target, shape, tile_rows, chained)
    return found[nearly_fastest(*([p.predicted_us for p in own] for own in (found, of_many)))]


def _placements(
    stages: Sequence[StageCost],
    queues: Sequence[QueueCost],
    rows: Rows,
    target: Target,
    shape: str,
    tile_rows: int | None,
    chained: Sequence[Chained],
) -> list[Placement]:
    if chained and shape in ("chained", "auto"):
        return [_chained(stages, queues, rows, target, form) for form in chained]
    tile, found = tile_rows or choose_tile_rows(rows.known, target), []
    if shape == "fused" or shape == "auto" and target.kind == "cpu":
        found.append(_placement("fused", _fused(stages, queues), stages, queues, tile, rows, target))
    if shape in ("spatial", "auto"):
        roles = _spatial(stages, queues, tile, target)
        found.append(_placement("spatial", roles, stages, queues, tile, rows, target))
    return found


def _chained(
    stages: Sequence[StageCost], queues: Sequence[QueueCost], rows: Rows, target: Target, form: Chained
) -> Placement:
    """One role whose replicas are whole clusters."""
    height = form.tile_rows
    found = _placement("chained", [0] * len(stages), stages, queues, height, rows, target)
    tiles = target.sms if rows.known is None else rows.tiles(height)
    if form.blocks:
        return _accumulated(found, stages, queues, rows, target, form)
    clusters = min(tiles * form.column_tiles, target.clusters_at_once(form.cluster))
    transports = tuple("dsmem" if queue.name in form.exchanged else "reg" for queue in queues)
    ctas, parts = clusters * form.cluster, form.cluster * form.column_tiles
    pieces = rows.tiles(height) * parts
    words = sum(stage.product_count * (2 if stage.wide_flops else 1) for stage in stages)  # of 16 bits
    waiting_us = EXCHANGE_US * (form.cluster - 1) * words + _sending_us(stages, queues, target, form)
    members = [stage.part(parts) for stage in stages]
    price = pipeline_price([members], [ctas], pieces, height, target, False, waiting_us)
    joined = _joined_us(stages, form, -(-pieces // ctas), target)
    return dataclasses.replace(
        found,
        replicas=(ctas,),
        transports=transports,
        predicted_us=max(price.us, joined),
        limit=L2 if joined > price.us else price.limit,
        cluster=form.cluster,
    )


def _sending_us(stages: Sequence[StageCost], queues: Sequence[QueueCost], target: Target, form: Chained) -> float:
    """What a tile waits for shares of operands that other CTAs send, beyond the products with its own share."""
    rate, waiting = target.tensor_tflops * 1e6 / target.sms, 0.0
    for queue in queues:
        for consumer in queue.consumers if queue.name in form.exchanged else ():
            sent = queue.row_bytes * form.tile_rows / form.cluster / (_SENT * CYCLES_A_US)
            own = stages[consumer].product_flops * form.tile_rows / (form.cluster**2 * form.column_tiles) / rate
            waiting += max(0.0, sent - own)
    return waiting


def _joined_us(stages: Sequence[StageCost], form: Chained, turns: int, target: Target) -> float:
    """What the L2 takes for operands of several tensors, which each of the CTAs that share a tile's columns reads
    whole, and for their weights: what belongs to a tensor begins in the middle of lines."""
    if form.column_tiles == 1 or not target.has_warpgroups:
        return 0.0
    loaded = (
        (form.tile_rows * stage.joined_bytes + stage.weight_bytes / form.column_tiles) * stage.joined_lines
        for stage in stages
        if stage.joined_bytes
    )
    return start_us(target) + turns * sum(loaded) / (Warpgroups.loaded * CYCLES_A_US)


def parts_of(rows: int | None, tile_rows: int, blocks: int, target: Target) -> int:
    """The parts of a sum over so many rows that groups of `blocks` CTAs make each, none of them empty where the rows
    are known."""
    groups = max(1, target.sms // blocks)
    if rows is None:
        return groups
    tiles = max(1, -(-rows // tile_rows))
    return -(-tiles // -(-tiles // groups))


def _accumulated(
    found: Placement,
    stages: Sequence[StageCost],
    queues: Sequence[QueueCost],
    rows: Rows,
    target: Target,
    form: Chained,
) -> Placement:
    """Groups of `blocks` CTAs leave a partial sum each, which a kernel behind adds up. Tiles are computed by every CTA
    of a group."""
    parts, tiles = parts_of(rows.known, form.tile_rows, form.blocks, target), rows.tiles(form.tile_rows)
    ctas = parts * form.blocks
    resident = [dataclasses.replace(stage, weight_bytes=0.0) for stage in stages]  # in shared memory all the time
    price = pipeline_price([resident], [ctas], tiles, form.tile_rows, target, False)
    sums = sum(reduction_us(queue.row_bytes, parts, target) for queue in queues if queue.accumulates)
    return dataclasses.replace(
        found,
        replicas=(ctas,),
        transports=tuple("hbm" if queue.accumulates else "smem" for queue in queues),
        depths=tuple(parts if queue.accumulates else 1 for queue in queues),
        predicted_us=price.us + sums,
        limit=price.limit,
    )


def choose_tile_rows(rows: int | None, target: Target) -> int:
    """Those of two warpgroups on a GPU; on a CPU 64, or as few as hold them all, a multiple of 8."""
    if target.kind == "gpu":
        return CHAINED_ROWS
    if rows is None or rows >= TILE_ROWS:
        return TILE_ROWS
    return max(1, rows) if rows < _STEP else -(-rows // _STEP) * _STEP


def _is_local(queue: QueueCost, roles: Sequence[int]) -> bool:
    return {roles[consumer] for consumer in queue.consumers} == {roles[queue.producer]}


def _fused(stages: Sequence[StageCost], queues: Sequence[QueueCost]) -> list[int]:
    """One role for all, and one of its own for every stage that fires once."""
    once = _fires_once(queues)
    roles, following = [], 1
    for i in range(len(stages)):
        roles.append(following if i in once else 0)
        following += i in once
    return roles


def _spatial(stages: Sequence[StageCost], queues: Sequence[QueueCost], tile: int, target: Target) -> list[int]:
    """A role a stage while SMs last; else consecutive stages share roles, cut where it balances best."""
    if len(stages) <= target.sms:
        return list(range(len(stages)))
    once = _fires_once(queues)
    times = [role_price([stage], tile, target, True).us for i, stage in enumerate(stages) if i not in once]
    cuts = balanced_cuts(times, max(1, target.sms - len(once)))
    streaming, last = iter(cuts), iter(range(cuts[-1] + 1, len(stages)))
    return [next(last if i in once else streaming) for i in range(len(stages))]


def _fires_once(queues: Sequence[QueueCost]) -> set[int]:
    """The stages that add partial sums, after the last tile; each needs a role of its own."""
    return {consumer for queue in queues if queue.accumulates for consumer in queue.consumers}


def balanced_cuts(costs: Sequence[float], parts: int) -> list[int]:
    """Assigns consecutive items to at most `parts` parts so that the dearest part is cheapest."""
    low, high = max(costs), sum(costs)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _cut(costs, middle)[-1] < parts else (middle, high)
    return _cut(costs, high)


def _cut(costs: Sequence[float], most: float) -> list[int]:
    part, used, assigned = 0, 0.0, []
    for cost in costs:
        if used + cost > most and used > 0:
            part, used = part + 1, 0.0
        used += cost
        assigned.append(part)
    return assigned


def allocate(times: Sequence[float], total: int, most: int) -> list[int]:
    """CTAs for each role so that the slowest role's rate, replicas / time, is as high as it can be.

    The integer program of the paper's Algorithm 2: every rate grows with its own replicas alone, so
    giving each next CTA to the slowest role is optimal. No role gets more than `most`, its tiles.
    """
    replicas = [1] * len(times)
    for _ in range(total - len(times)):
        slowest = max(range(len(times)), key=lambda i: times[i] / replicas[i])
        if replicas[slowest] >= most:
            break
        replicas[slowest] += 1
    return replicas


def _placement(
    shape: str,
    roles: list[int],
    stages: Sequence[StageCost],
    queues: Sequence[QueueCost],
    tile: int,
    rows: Rows,
    target: Target,
) -> Placement:
    tiles = rows.tiles(tile)
    members = [[stage for stage, role in zip(stages, roles) if role == r] for r in range(max(roles) + 1)]
    in_l2 = len(members) > 1
    times = [role_price(group, tile, target, in_l2).us for group in members]
    replicas = allocate(times, target.sms, target.sms if rows.known is None else tiles)
    for queue in queues:  # a stage that fires once runs on one CTA
        if queue.accumulates:
            for consumer in queue.consumers:
                replicas[roles[consumer]] = 1
    transports, depths = [], []
    for queue in queues:
        transports.append("reg" if _is_local(queue, roles) else "l2")
        depths.append(1 if transports[-1] != "l2" else _depth(queue, roles, replicas))
    if target.kind == "gpu":
        _fit_l2(queues, replicas, roles, transports, depths, tile, target)
    price = pipeline_price(members, replicas, tiles, tile, target, in_l2)
    placed = tuple(roles), tuple(replicas), tuple(transports), tuple(depths)
    return Placement(shape, tile, *placed, price.us, price.limit)


def _depth(queue: QueueCost, roles: Sequence[int], replicas: Sequence[int]) -> int:
    """Slots so that every CTA at either end can work on a tile of its own, and once more between them."""
    if queue.accumulates:
        return replicas[roles[queue.producer]]
    ends = replicas[roles[queue.producer]] + max(replicas[roles[consumer]] for consumer in queue.consumers)
    skew = max(roles[consumer] for consumer in queue.consumers) - roles[queue.producer]
    return ends + max(1, skew)


def _fit_l2(
    queues: Sequence[QueueCost],
    replicas: Sequence[int],
    roles: Sequence[int],
    transports: list[str],
    depths: list[int],
    tile: int,
    target: Target,
) -> None:
    """Makes rings that L2 does not hold shallower, all by one factor, then lets the largest lie in DRAM."""
    least = [replicas[roles[queue.producer]] if queue.accumulates else 1 for queue in queues]
    slot = [queue.row_bytes * (1 if queue.accumulates else tile) for queue in queues]
    inside = [i for i, transport in enumerate(transports) if transport == "l2"]
    wanted = sum(depths[i] * slot[i] for i in inside)
    if wanted <= target.l2_bytes:
        return
    for i in inside:
        depths[i] = max(least[i], int(depths[i] * target.l2_bytes / wanted))
    while sum(depths[i] * slot[i] for i in inside) > target.l2_bytes:
        largest = max(inside, key=lambda i: depths[i] * slot[i])
        inside.remove(largest)
        transports[largest] = "hbm"
