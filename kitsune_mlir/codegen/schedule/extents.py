"""What is known of indices before a kernel runs: what divides them, and whether a tensor has all of a box."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.dialects.clusters import RankOp
from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import made_by, producer


def is_from_tiles(bound: ir.Value) -> bool:
    """Whether it is one of the bounds that kitsune.tiles gives."""
    return made_by(bound, schedule.TilesOp.OPERATION_NAME) is not None


def divisor(index: ir.Value) -> int:
    """A number that divides an index; 0 divides 0 alone."""
    op = producer(index)
    if op is None and index.owner.owner.name == "scf.for" and ir.BlockArgument(index).arg_number == 0:
        lower, _, step = list(index.owner.owner.operands)[:3]
        return gcd(divisor(lower), divisor(step))
    if op is not None and op.name == "arith.constant":
        return attr_int(op, "value")
    if op is not None and op.name == "arith.muli":
        return prod(map(divisor, op.operands))
    if op is not None and op.name == "arith.addi":
        return gcd(*map(divisor, op.operands))
    return 1


def whole_of(
    agent: schedule.AgentOp, kind: ir.Type, at: Sequence[ir.Value], axes: Sequence[int], box: Sequence[int]
) -> list[int]:
    """The dimensions of an agent's box along which a tensor of that type has all of it, wherever it is. Where copies of
    the agent, or CTAs, have boxes one behind the other, the tensor may have nothing of the last of them."""
    sizes = ir.RankedTensorType(kind)
    known = [(dim, sizes.shape[axis], at[axis]) for dim, axis in enumerate(axes) if not sizes.is_dynamic_dim(axis)]
    return [dim for dim, size, start in known if _has(size, box[dim], start, _boxes_behind(agent, start))]


def _has(size: int, box: int, start: ir.Value, behind: int) -> bool:
    """Whether boxes that begin so far behind the start of a tile, which is within a tensor's size, are within it. With
    others `behind` the first, these may begin beyond it, and so may what does not begin with its tile."""
    variable, further = _split(start)
    step = gcd(*map(divisor, variable))
    if not further and step % box == 0 and size % (box * behind) == 0:
        return True
    if not step:
        return behind == 1 and further + box <= size
    return behind == 1 and further + box <= step and size % step == 0


def rows_left(size: int, rows: int, start: ir.Value) -> int | None:
    """The most rows that a tensor of so many has left where a box of `rows` that begins at an index reaches behind its
    last; None where none does. A tile begins within the tensor, a box behind the tile's start may not."""
    variable, further = _split(start)
    first = max(0, size - rows + 1)  # the first index at which a box reaches behind
    step = gcd(*map(divisor, variable))
    begins = first + (further - first) % step if step else further
    if begins < first or begins >= size and not further:
        return None
    return max(0, size - begins)


def _split(index: ir.Value) -> tuple[list[ir.Value], int]:
    """The terms of a sum that are no constants, and the sum of those that are."""
    number = constant(index)
    if number is not None:
        return [], number
    if made_by(index, "arith.addi") is None:
        return [index], 0
    parts = [_split(operand) for operand in index.owner.operation.operands]
    return [value for values, _ in parts for value in values], sum(number for _, number in parts)


def _boxes_behind(agent: schedule.AgentOp, start: ir.Value) -> int:
    """How many copies of the agent, and CTAs of a cluster, have boxes that begin at an index and behind it. Sizes of
    tensors, and what these are made of, say nothing of that."""
    values, seen, found = [start], set[int](), {"copies": 1, "ctas": 1}
    while values:
        value = values.pop()
        if hash(value) in seen or not isinstance(value.type, ir.IndexType):
            continue
        seen.add(hash(value))
        if value == agent.block.arguments[0]:
            found["copies"] = agent.count
        elif not isinstance(value.owner, ir.Block):
            if value.owner.operation.name == RankOp.OPERATION_NAME:
                found["ctas"] = agent.operation.parent.opview.cluster
            values += value.owner.operands
    return prod(found.values())
