"""What a row group would write for others alone, which they compute as soon as they would read it:

    %c = linalg.generic ... ins(%x : bf16, %mean) -> f32      // in the group: the numbers without their mean
    %s = linalg.generic {... "reduction"} ins(%c)              // in the group: the sum of their squares
    %y = linalg.generic ... ins(%c, %s)                        // behind it
  =>
    %s = ...                                                   // the group alone
    %d = linalg.generic ... ins(%x, %mean) -> f32              // as %c; it becomes part of %y
    %y = linalg.generic ... ins(%d, %s)

So it is with the norms of groups of channels of which a CTA's registers hold a part: the tensor without its mean is not
written in f32 and read again. Elementwise arithmetic of no more bytes than it gives is computed twice.
"""

from __future__ import annotations

from collections.abc import Collection

from kitsune_mlir import rows
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import element_type

from .row_groups import Group, Member, root, users


def recompute(group: Group, others: Collection[ir.Value]) -> None:
    """Gives the elementwise operators that read such results of a group their own. `others` are the results of members
    of groups, which are not given any."""
    for member in group.outputs:
        result = member.op.results[0]
        readers = [use for use in result.uses if not group.has(use.owner.operation)]
        if _is_cheap(member, group) and all(_is_elementwise(use.owner.operation, result, others) for use in readers):
            for use in readers:
                with ir.InsertionPoint(use.owner):
                    use.owner.operands[use.operand_number] = member.op.clone().results[0]


def handed_on(group: Group) -> list[Member]:
    """The members of which operators beside a group read wider elements than it reads: they had better compute them."""
    columns = [v for m in group.ordered for v, role in zip(m.op.operands, m.roles) if role and role.columns]
    least = min(map(_bits_of, columns), default=0)
    return [
        member
        for member in group.outputs
        if member.kind == "tile" and _bits_of(member.op.results[0]) > least
        if any(op.name.startswith("linalg.") and not group.has(op) for op in users(member.op.results[0]))
    ]


def without_wider(group: Group) -> Group:
    """The group without what it would hand on, as far as that is arithmetic: operators that read it have their own
    where the group wants it as well. What is left hands on numbers of rows."""
    while handed := handed_on(group):
        for member in handed:
            result = member.op.results[0]
            if not is_arithmetic(member.s):
                return group
            if any(map(group.has, users(result))):
                with ir.InsertionPoint.after(member.op):
                    own = member.op.clone().results[0]
                result.replace_all_uses_with(own)
                for use in list(own.uses):
                    if group.has(use.owner.operation):
                        use.owner.operands[use.operand_number] = result
            else:
                group = Group(group.space, {value: m for value, m in group.members.items() if m != member})
    return group


def _bits_of(value: ir.Value) -> int:
    return element_type(value).width


def is_arithmetic(s: rows.Structured) -> bool:
    """Whether an operator does nothing but arithmetic."""
    return all(inner.operation.name.startswith(("arith.", "linalg.yield")) for inner in s.body.operations)


def _is_cheap(member: Member, group: Group) -> bool:
    """Whether an elementwise operator is arithmetic of what is there before the group, of no more bytes than its
    results are."""
    wide = [value for value, role in zip(member.op.operands, member.roles) if role is not None and role.columns]
    inputs = member.s.given
    own = {root(value) for value in inputs if value in wide}
    outside = not any(root(value) in group.members for value in inputs)
    bits = list(map(_bits_of, (*own, member.op.results[0])))
    return member.kind == "tile" and outside and is_arithmetic(member.s) and sum(bits[:-1]) <= bits[-1]


def _is_elementwise(op: ir.Operation, value: ir.Value, others: Collection[ir.Value]) -> bool:
    """Whether an operator in no group computes one element for each of a tensor's."""
    if op.name != "linalg.generic" or any(result in others for result in op.results):
        return False
    alike = sorted(map(str, rows.known_sizes(op.results[0]))) == sorted(map(str, rows.known_sizes(value)))
    return alike and rows.Structured(op).is_elementwise()
