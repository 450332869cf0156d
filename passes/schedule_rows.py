"""schedule-rows: operators on rows outside pipelines become kernels at the schedule level, with one pass over memory.

    %m = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%x : tensor<512x100xbf16>) ...   // a maximum
    %e = linalg.generic {...} ins(%x, %m) ...                                                             // exp(x - m)
    %s = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%e) ...
    %y = linalg.generic {...} ins(%e, %s) ...
  =>
    %p = "kitsune.kernel"() ({
      %lo, %hi, %st = "kitsune.tiles"(%c512) {tile = array<i64: 64>}
      "kitsune.agent"() ({
      ^bb0(%copy: index):
        scf.for %t = %lo to %hi step %st {
          %r = ...                                     // the first row of this copy's tile
          %x = "kitsune.read"(%X, %r, %c0) {dims = array<i64: 0, 1>} : (...) -> tensor<8x100xbf16>
          ...                                          // the same operators on tiles
          "kitsune.write"(%y, %r, %c0) {dims = array<i64: 0, 1>, index = 0 : i64}
      }) {copies = 8 : i64, lanes = 4 : i64, vector = 4 : i64, warps = 1 : i64, ...}
    }) : () -> !kitsune.outputs
    %y = "kitsune.result"(%p) {index = 0 : i64}

Reductions over several dimensions become two first (split_sums.py), and what is elementwise behind rows has the rows'
dimensions (row_shapes.py). A group is what `row_groups` finds: any elementwise operators and reductions over columns
that are connected. Only what is used outside of it is written, unless it is as well computed there
(recomputed_elements.py). Rows of several dimensions are one, unless an operand has some of them only (a mask of all
heads): then tiles have one of each but one. They may be open until the call, such as the tokens of a batch. How
rows lie in threads is `planning/row_tiles.py`'s to say. Rows too wide for the registers of a CTA, or whose length is
open until the call, are gone through part by part (long_rows.py), where they would be read more than once anyway;
others are left as they are, with a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from kitsune_mlir import rows
from kitsune_mlir.dialects.kernels import TURNED
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, in_block_order, ir, remark, walk
from kitsune_mlir.operations import is_generic
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.row_tiles import LEAST_INNER, RowTiles, choose
from kitsune_mlir.planning.target import Target

from .base import ModulePass
from .block_order import Order
from .channel_planes import split_channels
from .kernel_build import deal_tiles, new_agent, new_kernel, turns
from .long_rows import LongRowBody
from .open_lengths import lengths_in
from .parted_softmaxes import join_softmaxes
from .recomputed_elements import recompute, without_wider
from .row_bodies import RowBody, gather, replace
from .row_groups import Group, find, root, users
from .row_passes import choose_parts, long_reductions, plan_long
from .row_plan import RowPlan
from .row_scans import fit, space_of
from .row_shapes import take_row_shapes
from .rows_beside import with_others
from .rows_in_place import take_rows_in_place
from .scan_forms import form_scans, has_form, unform_scans
from .split_sums import parts_in, split_sums
from .sums_apart import keep_sums_apart
from .taken_columns import take_columns
from .tensor_sizes import TensorSizes
from .thread_rows import schedule_thread_rows
from .variances import join_variances

_SECTOR = 32  # bytes that memory gives at once
_APART = 1.15  # times as long are rows taken to be that are no neighbours: more of what is read for them is their own
_FEW = 8  # columns: sums over so many took less time by operators at all sizes, by prediction


@dataclass(frozen=True)
class ScheduleRows(ModulePass):
    """target: what the kernels are for, a name or the path of a description."""

    name: ClassVar[str] = "schedule-rows"
    target: str = "sm_90a"

    def run(self, module: ir.Module) -> None:
        target = targets.load(self.target)
        if target.kind != "gpu":
            return
        number = 0
        for function in walk(module, "func.func"):
            for block in function.regions[0].blocks:
                number += schedule_thread_rows(block, target, number)
                split_channels(block)
                keep_sums_apart(block)
                take_rows_in_place(block)
                long_ = long_reductions(block, target)
                join_variances(block, parts_in(block, long_, alone=False))
                join_softmaxes(block, parts_in(block, long_, alone=False))
                split_sums(block, long_)
                take_row_shapes(block)
                form_scans(block)
                order, sizes = Order(block), TensorSizes(block)
                groups = find(
                    order,
                    sizes.shape,
                    of_lengths=True,
                    is_taken=partial(_is_taken, target=target, taken=sizes.taken),
                    own=space_of,
                    fits=fit,
                )
                members = {result for group in groups for result in group.members}
                for group in groups:
                    recompute(group, members)
                lengths = _lengths(groups, sizes)
                for group in with_others(groups, order, target, sizes.taken):
                    own = _as_they_stand(take_columns(group, sizes))
                    number += _schedule(own, target, f"rows{number}", sizes, lengths)
                unform_scans(block)


def _is_taken(group: Group, target: Target, taken: Callable[[int], int]) -> bool:
    """Whether a kernel on rows is to do a group. One with scans has all of a row in registers. Of one whose columns
    stand in the middle operators read memory as well, if nothing is to be read twice for its one reduction, or
    neighbours among the rows are few. Of one whose columns are few a thread does a row as well as several do."""
    if is_open(group.space.inner):
        return False
    along = [member for member in group.ordered if member.kind in ("reduction", "scan")]
    if group.scans and (is_open(group.space.columns) or len(group.members) == 1 and not has_form(*group.scans)):
        return False  # one alone has a kernel of its own (codegen/gpu_scan.py)
    if group.scans and choose(RowPlan(group, (), taken).counts(), target) is None:
        return False
    twice = len(along) > 1 or any(member.has_columns for member in group.outputs)
    if group.space.inner == 1:
        return twice or group.space.columns > _FEW
    return group.space.inner >= LEAST_INNER and twice and _fits(group, target, taken)


def _fits(group: Group, target: Target, taken: Callable[[int], int]) -> bool:
    """Whether there are tiles for a group, whole or part by part: what it would hold for nothing may be another's."""
    if is_open(group.space.columns) or choose(RowPlan(group, (), taken).counts(), target) is not None:
        return True
    long = plan_long(group, taken)
    return long is not None and choose_parts(long, target) is not None


def _as_they_stand(group: Group) -> Group:
    """The group with its members in the order in which they stand by now: kernels before it may have moved some."""
    places = {op: number for number, op in enumerate(in_block_order(member.op for member in group.ordered))}
    return Group(group.space, dict(sorted(group.members.items(), key=lambda item: places[item[1].op])))


def _lengths(groups: Sequence[Group], sizes: TensorSizes) -> dict[ir.Value, list[ir.Value] | None]:
    """By a member's result, where columns are open until the call, the numbers around it that are as many as these;
    None where it uses others too. Asked for before kernels take the place of operators, of which sizes know."""
    return {
        result: lengths_in(member.op, lambda value, group=group: sizes.number(value) == group.space.columns)
        for group in groups
        if is_open(group.space.columns)
        for result, member in group.members.items()
    }


def _schedule(
    group: Group,
    target: Target,
    name: str,
    sizes: TensorSizes,
    lengths: dict[ir.Value, list[ir.Value] | None],
) -> bool:
    """Puts a kernel in the place of a group, if it can."""
    if is_open(group.space.columns):
        group = without_wider(group)
    last, taken = group.ordered[-1].op, sizes.taken
    plan, tiles = RowPlan(group, (), taken), None
    if not is_open(group.space.columns):
        tiles = _choose_along(plan, target)
    if tiles is None and (long := plan_long(group, taken)) is not None:
        plan, tiles = long, choose_parts(long, target)
    used = [lengths.get(result, []) for result in group.members]
    several = sizes if plan.has_several_open else None
    if (reason := _obstacle(plan, tiles, None in used, several)) is not None:
        remark(last, f"is not computed row by row: {reason}")
        return False
    assert tiles is not None
    gather(group.ops)
    with last.location, ir.InsertionPoint(last):
        known = [value for own in used if own is not None for value in own]
        replace(group.results, _Builder(plan, tiles, target, name, known, several).build(), group.ops)
    sizes.forget_erased()
    return True


def _choose_along(plan: RowPlan, target: Target) -> RowTiles | None:
    """The fastest way to deal with a plan's rows, which is told along which segment tiles have neighbours: the last, or
    another where so few rows are neighbours that a tile has place for more, such as the heads of a node."""
    counts, last = plan.counts(), plan.along
    is_apart = plan.segments is not None and not plan.behind and counts.columns * counts.element_bytes >= _SECTOR
    found = {}
    for along in range(last, -1, -1) if is_apart else [last]:
        plan.along = along
        found[along] = choose(plan.counts(), target)
    fits = {along: tiles.microseconds for along, tiles in found.items() if tiles is not None}
    plan.along = min(fits, key=lambda along: fits[along] * (1 if along == last else _APART), default=last)
    return found[plan.along]


def _obstacle(plan: RowPlan, tiles: RowTiles | None, of_other_sizes: bool, several: TensorSizes | None) -> str | None:
    """Why a group is no kernel; None where it is one. It may use numbers that are made of other sizes than its
    columns."""
    columns = plan.space.columns
    if tiles is None and is_open(columns):
        return "its columns are open until the call, and other kernels faster"
    if tiles is None:
        return f"{columns} columns do not fit the registers of a CTA"
    if not plan.reads_rows:
        return "it is made of numbers alone"
    if plan.segments is None:
        return "its operands cut the rows in ways that do not agree"
    if of_other_sizes:
        return "it is computed of other sizes that are open until the call than its columns"
    if _picks_columns(plan.group):
        return "its columns are elements that are read by number, once"
    if several is not None:
        try:
            RowBody(plan, 1, several=several).check()
        except UnsupportedError as error:
            return str(error)
    return None


def _picks_columns(group: Group) -> bool:
    """Whether a group is a reduction of elements that something reads by number, one by one, for it alone, such as
    windows of several sizes. A kernel of that reduction reads them where they are; one of rows would have them
    written."""
    along = [member for member in group.ordered if member.kind in ("reduction", "scan")]
    if len(along) > 1 or any(member.has_columns for member in group.outputs):
        return False
    makers = [rows.producer(root(value)) for value in group.edges if value not in group.members]
    return any(_picks_last(op) and all(map(group.has, users(op.results[0]))) for op in makers if op is not None)


def _picks_last(op: ir.Operation) -> bool:
    """Whether an operator reads each element of a line by its number."""
    found = walk(op, "tensor.extract") if is_generic(op) else []
    return any((last := rows.producer([*one.operands][-1])) is None or last.name != "linalg.index" for one in found)


@dataclass
class _Builder:
    """Builds the kernel of a group at the insertion point."""

    plan: RowPlan
    tiles: RowTiles
    target: Target
    name: str
    lengths: list[ir.Value]
    several: TensorSizes | None

    def build(self) -> list[ir.Value]:
        """What takes the place of the outputs."""
        body = RowBody(self.plan, self.tiles.copy_rows, several=self.several, streamed=not self.tiles.turned)
        if (part := self.tiles.part) is not None:
            fewer, vector = self.tiles.lanes * self.tiles.vector, self.tiles.vector
            body = LongRowBody(
                self.plan,
                self.tiles.copy_rows,
                several=self.several,
                most=self.tiles.most,
                part=part,
                fewer=fewer,
                vector=vector,
                lengths=self.lengths,
            )
        body.bring()
        extents = list(map(body.extent, self.plan.segments or []))
        zero, tiles = constant_index(0), self.tiles
        with new_kernel(self.name, self.target, tiles.microseconds, ctas=tiles.ctas) as built:
            if tiles.single:
                built.attributes["single"] = ir.UnitAttr.get()
            dealt = deal_tiles(extents, [tiles.rows if i == self.plan.along else 1 for i in range(len(extents))])
            counts = {"lanes": tiles.lanes, "vector": tiles.vector}
            with new_agent("rows", tiles.copies, tiles.warps, tiles.registers, **counts) as copy:
                if tiles.turned:
                    copy.owner.owner.attributes[TURNED] = ir.UnitAttr.get()
                with turns(*dealt.results) as number:
                    body.emit(self._place(number, extents, copy), zero)
        return body.results(built)

    def _place(self, number: ir.Value, extents: Sequence[ir.Value], copy: ir.Value) -> list[ir.Value]:
        """The first element, along each segment, of what a copy has of a tile."""
        at, rest = [], number
        for i in range(len(extents) - 1, -1, -1):
            count = extents[i]
            if i == self.plan.along:
                count = arith.ceildivui(count, constant_index(self.tiles.rows))
            at.insert(0, arith.remui(rest, count) if i else rest)
            rest = arith.divui(rest, count) if i else rest
        own = arith.muli(copy, constant_index(self.tiles.copy_rows))
        first = arith.muli(at[self.plan.along], constant_index(self.tiles.rows))
        at[self.plan.along] = arith.addi(first, own)
        return at
