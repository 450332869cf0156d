"""Placement: tile rows, roles, replicas, transports and depths for a designed pipeline (pure planning).

There are three shapes: *spatial*, in which consecutive stages
share CTAs only when there are more stages than SMs and queues lie in L2, *fused*, in which every
CTA runs all stages on its own tiles and queues lie in shared memory, and *chained*, which is fused with queues
in the registers of warpgroups, where code generation can do that. Chained is taken where it exists, else
the faster of the others. What memory cannot hold gets shallower queues or lies further out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .cost import StageCost, pipeline_price, reduction_us, tile_price
from .target import Target

SHAPES = ("auto", "chained", "fused", "spatial")
UNCHAINED_RATE = 0.1  # of the tensor cores, that products outside warpgroups reach on a chip that has these
UNCHAINED_TIMES = 5.0  # as long as predicted is what such a kernel takes there, in the median of random networks
UNCHAINED_SM_TFLOPS = 1.45  # that such a kernel reaches on an SM at best (a NeRF on an H100), whatever the chip
UNKNOWN_ROWS = 65536  # rows assumed when they are open until the call
TILE_ROWS = 64
# The rows of a tile that two warpgroups, or one, carry in their registers.
HEIGHTS = CHAINED_ROWS, SHORT_ROWS = 128, 64
# Bytes of shared memory that a CTA wants: by each stage's role, the queues inside roles, and the rows of a tile.
Shared = Callable[[Sequence[int], Sequence[str], int], int]


@dataclass(frozen=True)
class QueueCost:
    """One intermediate: stage positions of its ends, and the bytes of a row of it; `stored_bytes` are what storing one
    in DRAM is worth, where that is more."""

    name: str
    producer: int
    consumers: tuple[int, ...]
    row_bytes: float
    accumulates: bool = False
    stored_bytes: float = 0.0


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
    shared: Shared | None = None,
) -> Placement:
    """The best placement of the shapes asked for. `rows` is None when open until the call; `chained` are the pipeline's
    chained forms, none when it has none; `shared` knows what code generation wants of shared memory for the other
    shapes, None estimates it."""
    room = shared or _estimate(stages)
    found = _placements(stages, queues, rows, target, shape, tile_rows, chained, room)
    return min(found, key=lambda p: p.predicted_us)


def unchained(target: Target) -> tuple[Target, float]:
    """The target at the rate that pipelines of mma.sync reach, and how many times as long as predicted they take."""
    if target.products == "wgmma":
        return target.override(tensor_tflops=target.tensor_tflops * UNCHAINED_RATE), UNCHAINED_TIMES
    if target.kind != "gpu" or target.products != "mma":
        return target, 1.0
    return target.override(tensor_tflops=min(target.tensor_tflops, UNCHAINED_SM_TFLOPS * target.sms)), 1.0


def _placements(
    stages: Sequence[StageCost],
    queues: Sequence[QueueCost],
    rows: int | None,
    target: Target,
    shape: str,
    tile_rows: int | None,
    chained: Sequence[Chained],
    shared: Shared,
) -> list[Placement]:
    if chained and (shape == "chained" or shape == "auto" and tile_rows in (None, CHAINED_ROWS)):
        return [_chained(stages, queues, rows, target, form) for form in chained]
    tile, rated, times = tile_rows or choose_tile_rows(rows, target), target, 1.0
    if tile_rows != CHAINED_ROWS:
        rated, times = unchained(target)
    found = []
    if shape in ("fused", "auto"):
        roles = _fused(stages, queues)
        fitting, fits = _fitting(tile, tile_rows is None, roles, queues, target, shared)
        if fits or shape == "fused":
            tiles = [fitting]
            while target.kind == "gpu" and tile_rows is None and tiles[-1] > 16:  # shorter ones are more
                tiles.append(tiles[-1] // 32 * 16)
            found += [_placement("fused", roles, stages, queues, rows_, rows, rated) for rows_ in tiles]
    if shape in ("spatial", "auto"):
        roles = _spatial(stages, queues, tile, target)
        fitting, _ = _fitting(tile, tile_rows is None, roles, queues, target, shared)
        found.append(_placement("spatial", roles, stages, queues, fitting, rows, rated))
    return [dataclasses.replace(one, predicted_us=times * one.predicted_us) for one in found]


def _chained(
    stages: Sequence[StageCost], queues: Sequence[QueueCost], rows: int | None, target: Target, form: Chained
) -> Placement:
    """One role whose replicas are whole clusters."""
    height = form.tile_rows
    found = _placement("chained", [0] * len(stages), stages, queues, height, rows, target)
    tiles = target.sms if rows is None else max(1, -(-rows // height))
    if form.blocks:
        return _accumulated(found, stages, queues, rows, target, form)
    clusters = min(tiles * form.column_tiles, target.sms // form.cluster)
    transports = tuple("dsmem" if queue.name in form.exchanged else "reg" for queue in queues)
    ctas, parts = clusters * form.cluster, form.cluster * form.column_tiles
    pieces = max(1, -(-(rows or UNKNOWN_ROWS) // height)) * parts
    price = pipeline_price([[stage.part(parts) for stage in stages]], [ctas], pieces, height, target, False)
    return dataclasses.replace(
        found,
        replicas=(ctas,),
        transports=transports,
        predicted_us=price.us,
        limit=price.limit,
        cluster=form.cluster,
    )


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
    rows: int | None,
    target: Target,
    form: Chained,
) -> Placement:
    """Groups of `blocks` CTAs leave a partial sum each, which a kernel behind adds up. Tiles are computed by every CTA
    of a group."""
    parts, tiles = parts_of(rows, form.tile_rows, form.blocks, target), -(-(rows or UNKNOWN_ROWS) // form.tile_rows)
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
    """64 rows, or as few as hold them all: a multiple of 16 on a GPU, of 8 on a CPU."""
    step = 16 if target.kind == "gpu" else 8
    if rows is None or rows >= TILE_ROWS:
        return TILE_ROWS
    if target.kind == "cpu" and rows < step:
        return max(1, rows)
    return -(-rows // step) * step


def _fitting(
    tile: int, may_halve: bool, roles: Sequence[int], queues: Sequence[QueueCost], target: Target, shared: Shared
) -> tuple[int, bool]:
    """Half the rows, and half again, while a CTA's shared memory does not hold the tiles of its stages with the rings
    between them; at least 16. And whether it holds them then."""
    local = [queue.name for queue in queues if _is_local(queue, roles)]

    def fits(rows: int) -> bool:
        return _rings_fit(queues, roles, rows, target) and shared(roles, local, rows) <= target.shared_bytes

    while target.kind == "gpu" and may_halve and tile > 16 and not fits(tile):
        tile = tile // 32 * 16
    return tile, fits(tile)


def _estimate(stages: Sequence[StageCost]) -> Shared:
    """The widest stage's tiles, all of them at once."""
    return lambda roles, local, tile: int(max(stage.row_bytes for stage in stages) * tile)


def _rings_fit(queues: Sequence[QueueCost], roles: Sequence[int], tile: int, target: Target) -> bool:
    """Whether shared memory holds, at any stage, the rings between stages of its role."""
    spans = [(q.producer, max(q.consumers), q.row_bytes * tile) for q in queues if _is_local(q, roles)]
    alive = (sum(size for first, last, size in spans if first <= i <= last) for i in range(len(roles)))
    return max(alive) <= target.shared_bytes


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
    times = [tile_price(stage, tile, target, queues_in_l2=True).us for i, stage in enumerate(stages) if i not in once]
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
    rows: int | None,
    target: Target,
) -> Placement:
    tiles = max(1, -(-(rows or UNKNOWN_ROWS) // tile))
    members = [[stage for stage, role in zip(stages, roles) if role == r] for r in range(max(roles) + 1)]
    in_l2 = len(members) > 1
    times = [sum(tile_price(stage, tile, target, in_l2).us for stage in group) for group in members]
    replicas = allocate(times, target.sms, tiles)
    for queue in queues:  # a stage that fires once runs on one CTA
        if queue.accumulates:
            for consumer in queue.consumers:
                replicas[roles[consumer]] = 1
    transports, depths = [], []
    for queue in queues:
        local = _is_local(queue, roles)
        if local and (target.kind == "cpu" or shape == "chained"):
            transports.append("reg")
        else:
            transports.append("smem" if local and _rings_fit(queues, roles, tile, target) else "l2")
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
