"""Row groups of one space that have nothing to do with each other, two in one kernel.

    the step of one direction of a recurrent network beside that of the other

Of short kernels most is a launch, and waiting for memory, which two groups do at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kitsune_mlir.mlir import ir
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.row_tiles import choose
from kitsune_mlir.planning.target import Target

from .block_order import Order, bring_together
from .row_groups import Group
from .row_plan import RowPlan

_MOST_US = 3.0  # that a kernel takes: of longer ones a launch is little, and each wants the caches for itself


def with_others(groups: Sequence[Group], order: Order, target: Target, taken: Callable[[int], int]) -> list[Group]:
    """The groups, pairs of which are one where that is predicted to be faster; `taken` as RowPlan has it."""
    left, found = list(groups), []
    own = {id(group): order.closed(_ops(group))[0] for group in left}
    while left:
        group = left.pop(0)
        alone = _us(group, target, taken)
        may_join = alone is not None and alone < _MOST_US and not is_open(group.space.rows)
        _, before, after = order.closed(_ops(group)) if may_join else (0, 0, 0)
        for other in left if may_join else ():
            if (
                other.space != group.space or (before | after) & own[id(other)]
            ):  # what is computed from one goes into it
                continue
            beside = _us(other, target, taken)
            both = Group(group.space, group.members | other.members)
            if (
                beside is not None
                and (us := _us(both, target, taken)) is not None
                and us < min(alone + beside, _MOST_US)
            ):
                order.join(_ops(both))
                left.remove(other)
                group = both
            break
        found.append(group)
    if len(found) < len(groups):
        bring_together(found[0].ordered[0].op.block, [_ops(group) for group in found])
    return found


def _ops(group: Group) -> list[ir.Operation]:
    return [member.op for member in group.ordered]


def _us(group: Group, target: Target, taken: Callable[[int], int]) -> float | None:
    """What a kernel of a group takes; None where it has none."""
    plan = RowPlan(group, (), taken)
    tiles = None if plan.segments is None else choose(plan.counts(), target)
    return None if tiles is None else tiles.microseconds
