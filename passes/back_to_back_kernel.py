"""The kernel of products with elementwise operators and more products behind them (schedule_back_to_back.py): for each
tile of rows a loop over the columns of the first products, which the seconds sum over.

A turn has 64 columns of the first products' sums, computes elements of them, and multiplies these, from registers, with
as many rows of the seconds' right operands. Where a second multiplies what a first did, as the gradient by queries does
keys, it is the same slots: the first takes their rows, the second takes them as they lie. What needs the sums of some
products only is computed while others run.

Source: Dao, FlashAttention-2 (arXiv 2307.08691), for gradients of attention that hold a tile of keys, or of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kitsune_mlir.contraction import Contraction, Roles
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, ir, scf
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.attention_tiles import FEED_REGISTERS
from kitsune_mlir.planning.back_to_back_tiles import COLUMNS, BackToBackTiles
from kitsune_mlir.planning.open_sizes import is_open
from kitsune_mlir.planning.product_engines import CHUNK, COPY_ROWS
from kitsune_mlir.planning.target import Target

from .attention_places import Places
from .back_to_back import Between, sources
from .chain_tiles import part
from .kernel_build import acquire_slot, fill_slot, new_agent, new_kernel, new_ring, turns, wait_slot, write_box
from .of_places import Range
from .operand_layout import laid_out
from .product_follows import Follows, tiled
from .reshapes import reshaped, reshaped_as
from .row_groups import root, users
from .score_tiles import ScoreTiles
from .split_batches import Stored, along, offsets_of
from .tensor_sizes import Shape, or_dynamic

_WARPS = 4
Rings = dict[str, schedule.AllocRingOp]
_STEP = 16  # columns of 16 bits that tensor cores multiply at a time


@dataclass(frozen=True)
class Second:
    """A product of elements, what follows it, and how its result is stored: as rows and columns of which each is
    several of its dimensions where it `is_flat`."""

    op: ir.Operation
    found: Contraction
    element: ir.Value
    follows: Follows
    stored: Stored | None
    is_flat: bool = False

    @property
    def ends(self) -> list[ir.Operation]:
        """The operators whose results are stored."""
        return self.follows.stored or [self.op]

    @property
    def replaced(self) -> list[ir.Operation]:
        """The operators in whose place the kernel's results stand."""
        return list(self.stored.operations)[-1:] if self.stored is not None else self.ends


@dataclass(frozen=True)
class Computed:
    """What the kernel computes. `firsts` and `seconds` multiply operands where they lie; columns outside of `range`,
    which says it by rows, are nothing. `sizes` are b, m, n, and v, the most columns of a second."""

    between: Between
    firsts: Sequence[Contraction]
    seconds: Sequence[Second]
    range: Range
    sizes: dict[str, int]
    shape: Shape
    target: Target
    name: str


@dataclass(frozen=True)
class _Operand:
    """A tensor of which boxes come into a ring, of rows whose role is its `own` and columns of the `other`, in
    `chunks`: where each begins, and how many columns it has."""

    name: str
    value: ir.Value
    roles: Roles
    own: str
    other: str
    chunks: list[tuple[int, int]]


@dataclass(frozen=True)
class _Turn:
    """What runs when a turn ends: the seconds' `sums`, and the products that read `slots`, whose `tokens` these are."""

    sums: list[ir.Value]
    slots: list[ir.Value]
    tokens: list[list[ir.Value]]

    @property
    def values(self) -> list[ir.Value]:
        return [*self.sums, *self.slots, *(token for own in self.tokens for token in own)]

    def like(self, values: Sequence[ir.Value]) -> _Turn:
        """The same of other values."""
        left = iter(values)
        return _Turn(
            [next(left) for _ in self.sums],
            [next(left) for _ in self.slots],
            [[next(left) for _ in own] for own in self.tokens],
        )

    def wait(self, ring: schedule.AllocRingOp, columns: int) -> int:
        """Takes a ring's next slot; gives its number."""
        self.slots.append(wait_slot(ring, columns=columns))
        self.tokens.append([])
        return len(self.slots) - 1

    def multiply(
        self, sums: ir.Value, left: ir.Value, slot: int, engine: ir.Attribute, turned: bool = False
    ) -> ir.Value:
        """Sums with the product of a tile or slot and the slot of a number."""
        made = schedule.ProductOp(sums, left, self.slots[slot], engine, sums.type, schedule.Token.get())
        if turned:
            made.attributes["turned"] = ir.UnitAttr.get()
        self.tokens[slot].append(made.results[1])
        return made.results[0]

    def release(self) -> None:
        """Gives the slots back."""
        for slot, tokens in zip(self.slots, self.tokens, strict=True):
            schedule.ReleaseOp(slot, tokens)


class BackToBackKernel:
    """Builds the kernel at the insertion point."""

    def __init__(self, of: Computed, body: ScoreTiles, tiles: BackToBackTiles):
        self.of, self.body, self.tiles = of, body, tiles
        has_batch = ir.RankedTensorType(of.seconds[0].op.results[0].type).rank == 3
        self.places = Places(of, body.plan, tiles, has_batch)
        self.element = element_type(of.firsts[0].left)
        self.engine = ir.StringAttr.get("wgmma")
        self.lefts = [self._operand(f"left{i}", one.left, one.left_roles, "m", "k") for i, one in enumerate(of.firsts)]
        self.rights = [
            self._operand(f"right{i}", one.right, one.right_roles, "n", "k") for i, one in enumerate(of.firsts)
        ]
        self.sources = sources(of.between, of.shape)
        self.values = [
            self._operand(f"values{i}", second.found.right, second.found.right_roles, "k", "n") if source < 0 else None
            for i, (second, source) in enumerate(zip(of.seconds, self.sources, strict=True))
        ]
        self.levels = _levels(of.between)

    def _operand(self, name: str, value: ir.Value, roles: Roles, own: str, other: str) -> _Operand:
        (value,) = laid_out(value, 1)
        size = self.of.shape(value)[along(roles, other)]
        firsts = range(0, size, CHUNK)
        chunks = [(first, min(CHUNK, -(-(size - first) // _STEP) * _STEP)) for first in firsts]
        return _Operand(name, value, roles, own, other, chunks)

    def build(self) -> list[list[ir.Value]]:
        """What takes the place of each second's results."""
        of, tiles, places = self.of, self.tiles, self.places
        places.ask([operand.value for operand in (*self.lefts, *self.rights)])
        # A loop over columns has a turn or more, unless there are no rows either.
        least = 1 if is_open(of.sizes["n"]) and of.sizes["n"] not in places.segments else None
        with new_kernel(of.name, of.target, tiles.price.us, tiles.price.limit, least=least) as built:
            dealt = places.deal()
            rings = {
                operand.name: self._ring(operand) for operand in (*self.lefts, *self.rights, *filter(None, self.values))
            }
            for name, copies, registers in (("feed", 1, FEED_REGISTERS), ("math", tiles.copies, tiles.registers)):
                does = self._feed if name == "feed" else self._compute
                with new_agent(name, copies, _WARPS, registers) as self.copy_number, turns(*dealt.results) as number:
                    does(rings, places.place(number))
        return self._results(built)

    def _ring(self, operand: _Operand) -> schedule.AllocRingOp:
        is_left = operand.own == "m"
        rows_, share = (self.tiles.rows, "split") if is_left else (COLUMNS, "all")
        slots = len(operand.chunks) * (self.tiles.held if is_left else self.tiles.turns)
        return new_ring(operand.name, (rows_, CHUNK), self.element, slots, share)

    def _feed(self, rings: Rings, at: Sequence[ir.Value]) -> None:
        """Copies what a tile needs, in the order in which it does."""
        place = self.places.offsets(at)
        for operand in self.lefts:
            self._copy(operand, rings, place)
        lower, upper, step, _ = self.places.columns(at)
        self._feed_turn(rings, place, lower)
        with turns(arith.addi(lower, step), upper, step) as column:
            self._feed_turn(rings, place, column)

    def _feed_turn(self, rings: Rings, place: dict[str, ir.Value], column: ir.Value) -> None:
        for operand in (*self.rights, *filter(None, self.values)):
            self._copy(operand, rings, place | {operand.own: column})

    def _copy(self, operand: _Operand, rings: Rings, place: dict[str, ir.Value]) -> None:
        for first, columns in operand.chunks:
            offsets = offsets_of(operand.roles, place | {operand.other: constant_index(first)}, self.places.size)
            slot = acquire_slot(rings[operand.name], columns=columns)
            dims = [along(operand.roles, operand.own), along(operand.roles, operand.other)]
            fill_slot(slot, operand.value, offsets, dims, "tma")

    # ---- a tile

    def _compute(self, rings: Rings, at: list[ir.Value]) -> None:
        own = [*at[:-1], arith.addi(at[-1], arith.muli(self.copy_number, constant_index(COPY_ROWS)))]
        lefts = [[wait_slot(rings[left.name], columns=columns) for _, columns in left.chunks] for left in self.lefts]
        lower, upper, step, self.body.end = self.places.columns(at)
        self.body.keep_rows(self.of.between.members.values(), own, COLUMNS)
        first = self._turn(rings, lefts, own, lower, None)
        loop = scf.ForOp(arith.addi(lower, step), upper, step, first.values)
        with ir.InsertionPoint(loop.body):
            carried = first.like(loop.inner_iter_args)
            scf.yield_(self._turn(rings, lefts, own, loop.induction_variable, carried).values)
        last = first.like(loop.results)
        sums = [schedule.SettleOp(total, schedule.tile_of(total)).results[0] for total in last.sums]
        last.release()
        for slot in sum(lefts, []):
            schedule.ReleaseOp(slot, [])
        self._finish(own, sums)

    def _second(self, i: int) -> _Operand:
        """What a second product multiplies."""
        return self.values[i] or self.rights[self.sources[i]]

    def _turn(
        self,
        rings: Rings,
        lefts: Sequence[Sequence[ir.Value]],
        at: list[ir.Value],
        column: ir.Value,
        before: _Turn | None,
    ) -> _Turn:
        """So many columns. The seconds' products of the turn before run beside the firsts' of this one."""
        self.body.place(at, column, COLUMNS)
        self.body.read_ahead(self.of.between.members.values(), columns_alone=True)
        acc = schedule.Acc.get(ir.RankedTensorType.get([COPY_ROWS, COLUMNS], ir.F32Type.get()))
        made, firsts = _Turn([], [], []), []
        taken = list[list[int]]()  # the numbers of slots, by operand
        for left, right in zip(lefts, self.rights, strict=True):
            total = schedule.SumsOp([], acc).results[0]
            taken.append([])
            for a, (_, columns) in zip(left, right.chunks, strict=True):
                taken[-1].append(made.wait(rings[right.name], columns))
                total = made.multiply(total, a, taken[-1][-1], self.engine)
            firsts.append(total)
        sums = [list[ir.Value]() for _ in self.of.seconds]
        left = iter(before.sums if before is not None else [])
        held = [[next(left, None) for _ in self._second(i).chunks] for i in range(len(self.of.seconds))]
        for level, total in enumerate(firsts):
            tile = schedule.SettleOp(total, schedule.tile_of(total)).results[0]
            if before is not None and level == 0:
                before.release()
            elements = self._elements(level, tile)
            for i, second in enumerate(self.of.seconds):
                if self.levels[second.element] != level:
                    continue
                if (operand := self.values[i]) is not None:
                    slots = [made.wait(rings[operand.name], columns) for _, columns in operand.chunks]
                else:
                    slots = taken[self.sources[i]]
                for total, slot, (_, columns) in zip(held[i], slots, self._second(i).chunks, strict=True):
                    if total is None:
                        kind = ir.RankedTensorType.get([COPY_ROWS, columns], ir.F32Type.get())
                        total = schedule.SumsOp([], schedule.Acc.get(kind)).results[0]
                    sums[i].append(made.multiply(total, elements[second.element], slot, self.engine, turned=True))
        return _Turn(sum(sums, []), made.slots, made.tokens)

    def _elements(self, level: int, tile: ir.Value) -> dict[ir.Value, ir.Value]:
        """What operators make of the first products up to that of number `level`, whose tile this is, as the seconds
        take it. What several read stays in registers."""
        body, of, found = self.body, self.of.between, dict[ir.Value, ir.Value]()
        wanted = {second.element for second in self.of.seconds}
        body.given[of.firsts[level].result] = tile
        for result, member in of.members.items():
            if self.levels[result] != level:
                continue
            made = body._emit(member)
            inside = [op for op in users(result) if any(value in of.members for value in op.results)]
            if len(inside) + (result in wanted) > 1 or any(self.levels[op.results[0]] > level for op in inside):
                made = part(made, 0, COLUMNS, wide=isinstance(element_type(made), ir.F32Type))
                body.values[result] = made
            if result in wanted:
                found[result] = part(body.only_inside(made, 0.0) if body.has_rest else made, 0, COLUMNS)
        return found

    # ---- results

    def _finish(self, own: list[ir.Value], sums: Sequence[ir.Value]) -> None:
        """Computes what follows the seconds, and writes it."""
        left, number = iter(sums), 0
        for i, second in enumerate(self.of.seconds):
            for first, _ in self._second(i).chunks:
                place = self.places.offsets(own) | {"n": constant_index(first)}
                made = {second.op.results[0]: next(left)}
                for op in second.follows.ops:
                    made[op.results[0]] = tiled(op, made, place)
                for k, op in enumerate(second.ends):
                    write_box(made[op.results[0]], *self._box(second, own, place, number + k))
            number += len(second.ends)

    def _box(
        self, second: Second, own: list[ir.Value], place: dict[str, ir.Value], number: int
    ) -> tuple[list[ir.Value], int, list[int]]:
        if second.stored is not None:
            roles = second.stored.roles
            offsets = offsets_of(roles, place, self.places.size)
            if not second.is_flat:
                return offsets, number, [along(roles, "m"), roles.index("n")]
            return [self._joined(offsets, second.stored.sizes, own) for own in _flat(roles)], number, [0, 1]
        at = [*self.places.batch([place["b"]], own), *own[self.places.of_batch :]]
        return [*at, place["n"]], number, [len(at) - 1, len(at)]

    def _joined(self, offsets: Sequence[ir.Value], sizes: Sequence[int], dims: Sequence[int]) -> ir.Value:
        """The offset in a dimension that stands for several."""
        found = offsets[dims[0]]
        for d in dims[1:]:
            found = arith.addi(arith.muli(found, self.places.size(sizes[d])), offsets[d])
        return found

    def _results(self, built: schedule.KernelOp) -> list[list[ir.Value]]:
        of, places, found, number = self.of, self.places, [], 0
        outer = [*self.places.batch([of.sizes["b"]], places.segments), *places.segments[places.of_batch :]]
        for second in of.seconds:
            results = []
            for op in second.replaced:
                own = [*outer, of.shape(second.op.results[0])[-1]]
                if second.stored is not None:
                    own = list(second.stored.sizes)
                    if second.is_flat:
                        own = [prod(own[d] for d in dims) for dims in _flat(second.stored.roles)]
                results.append(self._result(built, number, op.results[0], own))
                number += 1
            found.append(results)
        return found

    def _result(self, built: schedule.KernelOp, number: int, value: ir.Value, own: list[int]) -> ir.Value:
        """What takes the place of a value, as the kernel gives it in these sizes."""
        of, places, kind = self.of, self.places, ir.RankedTensorType(value.type)
        type_ = ir.RankedTensorType.get(list(map(or_dynamic, own)), kind.element_type)
        sizes = list(map(places.size, filter(is_open, own))) if len(places.open) > 1 else []
        result = kitsune.result(built.results[0], number, type_, sizes)
        if any(map(is_open, own)):
            return reshaped_as(result, own, of.shape(value), places.size)
        return reshaped(result, list(kind.shape))


def _flat(roles: Roles) -> list[range]:
    """The dimensions up to the rows, and behind these."""
    rows_ = along(roles, "m") + 1
    return [range(rows_), range(rows_, len(roles))]


def _levels(of: Between) -> dict[ir.Value, int]:
    """For each member the last of the first products that it needs."""
    found = {first.result: number for number, first in enumerate(of.firsts)}
    for result, member in of.members.items():
        found[result] = max(found.get(root(value), 0) for value in member.op.operands)
    return found
