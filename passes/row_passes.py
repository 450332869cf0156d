"""How often the rows of a group are gone through where no registers hold them, or how long they are is open until the
call (long_rows.py): once for all reductions that follow from as many others, one after another, and for what is
computed of those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.long_rows import Pass, apart_us, choose_long, choose_open
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.row_tiles import WIDEST, RowTiles
from kitsune_mlir.planning.target import Target
from kitsune_mlir.traffic import element_bytes

from .block_order import Order
from .recomputed_elements import handed_on
from .row_groups import Group, Member, find, root, space_of, users
from .row_plan import RowPlan, rows_behind
from .softmax_rows import Online, find_online
from .split_sums import MOST_ROWS
from .stage_cost import DEAR, instructions_of
from .tensor_sizes import TensorSizes


def long_reductions(block: ir.Block, target: Target) -> set[ir.Value]:
    """What reductions of a block give whose rows, of more columns than are worth splitting, kernels go through."""
    wide = [op for op in block.operations if (space := space_of(op.operation)) and space.columns > WIDEST]
    if not wide:
        return set()
    order, sizes = Order(block), TensorSizes(block)
    found = set[ir.Value]()
    for group in find(order, sizes.shape):
        if is_open(group.space.columns) or group.space.columns <= WIDEST or _is_split(group, sizes.taken):
            continue
        plan = plan_long(group, sizes.taken)
        if plan is not None and choose_parts(plan, target) is not None:
            found |= {result for result, member in group.members.items() if member.kind == "reduction"}
    return found


def _is_split(group: Group, taken: Callable[[int], int]) -> bool:
    """Whether a group does nothing but reduce a few rows once: those of parts of them are as much one pass, which all
    of the GPU does together."""
    rows_, outputs = taken(group.space.rows), [m for m in group.outputs if m.kind == "tile"]
    return rows_ <= MOST_ROWS and not outputs and len(levels_of(group)) == 1


def _bytes_of(value: ir.Value) -> int:
    return element_bytes(element_type(value))


def plan_long(group: Group, taken: Callable[[int], int]) -> RowPlan | None:
    """What a group reads and writes where its rows are cut beside a size that is open; None where it is done in one
    pass by operators as well. Rows of several open sizes are as well one."""
    plan = RowPlan(group, _open_cuts(group), taken)
    if len(_open_sizes(plan)) > 1:
        plan = RowPlan(group, (), taken)
    several = len(_open_sizes(plan)) > 1
    if group.scans or handed_on(group) or not (several or all(_has_sizes(plan, member) for member in group.ordered)):
        return None
    once = sum(m.kind == "reduction" for m in group.ordered) + sum(m.kind == "tile" for m in group.outputs) == 1
    fits = plan.segments is not None and not plan.behind and not group.space.is_open
    return plan if fits and not once else None


def _open_sizes(plan: RowPlan) -> set[int]:
    return {size for size in (*(plan.segments or ()), plan.space.columns) if size is not None and is_open(size)}


def _has_sizes(plan: RowPlan, member: Member) -> bool:
    """Whether an operator reads each tensor from around with an open size for each that the kernel has. Where columns
    are known, those of rows may as well be one."""
    if not is_open(plan.space.columns):
        return True
    for value, role in zip(member.op.operands, member.roles):
        if role is None or plan.is_inside(value) or plan.segments is None:
            continue
        sizes = [size for size, here in zip(plan.segments, plan.present(member, role)) if here and size is not None]
        count = sum(map(is_open, [*sizes, *[plan.space.columns] * role.columns]))
        if count not in (rows.shape_of(v).count(rows.DYNAMIC) for v in (value, root(value))):
            return False
    return True


def _open_cuts(group: Group) -> list[int]:
    """The numbers of rows behind each size that is open, and with it."""
    member = next(member for member in group.ordered if member.kind != "rows")
    found = set()
    for i, size in enumerate(member.row_sizes):
        if size is not None and is_open(size):
            found |= {rows_behind(member, i), rows_behind(member, i + 1)}
    return sorted(found - {1, group.space.rows}, reverse=True)


def choose_parts(plan: RowPlan, target: Target) -> RowTiles | None:
    """How rows lie in threads, part by part; None where other kernels are predicted to be faster."""
    group, counts = plan.group, plan.counts()
    passes = [_pass(group, level) for level in levels_of(group)]
    columns = counts.columns
    each = [one.of(columns) for one in passes]
    choose = choose_open if is_open(group.space.columns) else choose_long
    tiles = choose(counts, each, target)
    apart = apart_us(counts, each, _kept_bytes(group) * columns, target)
    return tiles if tiles is not None and tiles.microseconds < apart else None


def _kept_bytes(group: Group) -> float:
    """The bytes of a column that operators would write, and read again, because they take long to compute twice."""
    found = 0.0
    for member in group.ordered:
        names = {op.operation.name for op in member.s.body.operations}
        if member.kind == "tile" and names & DEAR.keys() and len(list(users(member.op.results[0]))) > 1:
            found += _bytes_of(member.op.results[0])
    return found


@dataclass(frozen=True)
class Level:
    """What is done in a pass: the reductions and results that it is for, and all that these want of the columns; and
    which of the reductions are a largest number and a sum of weights less it, if any are."""

    reductions: list[Member]
    outputs: list[Member]
    wanted: list[Member]
    online: Online | None


def ready_in(group: Group, online: Online | None) -> dict[ir.Value, int]:
    """By a member's result the passes that have ended when it is there, or can be computed."""
    found: dict[ir.Value, int] = {}
    for member in group.ordered:
        inside = [found[root(value)] for value in member.op.operands if root(value) in found]
        with_others = online is not None and member == online.total
        found[member.op.results[0]] = max(inside, default=0) + (member.kind == "reduction" and not with_others)
    return found


def levels_of(group: Group) -> list[Level]:
    """The passes of a group, in order."""
    online, outputs = find_online(group), group.outputs
    ready, found = ready_in(group, online), []
    for number in range(max(ready.values()) + 1):
        reductions = [m for m in group.ordered if m.kind == "reduction" and ready[m.op.results[0]] == number + 1]
        made = [m for m in outputs if m.kind == "tile" and ready[m.op.results[0]] == number]
        wanted = {member.op.results[0] for member in (*reductions, *made)}
        for member in reversed(group.ordered):
            if member.op.results[0] in wanted and member.kind != "rows":
                of_columns = [
                    v for v, role in zip(member.op.operands, member.roles) if role is not None and role.columns
                ]
                wanted |= {root(value) for value in of_columns} & group.members.keys()
        own = online if online is not None and online.total in reductions else None
        found.append(Level(reductions, made, [m for m in group.ordered if m.op.results[0] in wanted], own))
    return [level for level in found if level.wanted]


def _pass(group: Group, level: Level) -> Pass:
    """The same in numbers, for each column."""
    own = shared = work = 0.0
    live, seen = 1.0, set[ir.Value]()
    for member in level.wanted:
        for value, role in zip(member.op.operands, member.roles):
            if role is None or not role.columns or root(value) in group.members or root(value) in seen:
                continue
            seen.add(root(value))
            size = _bytes_of(value)
            live += max(1.0, size / 4)
            own, shared = (own + size, shared) if member.is_whole(role) else (own, shared + size)
        work += instructions_of(member.s)
    written = sum(_bytes_of(member.op.results[0]) for member in level.outputs)
    return Pass(own, shared, written, live, work, len(level.reductions))
