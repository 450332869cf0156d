"""The kernel of two products with weights between them (schedule_attention.py): for each tile of rows a loop over the
columns of the first product, which the second sums over.

A turn multiplies a tile of the left operand with so many rows of the right one, computes weights of what comes of it,
and multiplies these, from registers, with as many rows of the second product's right operand. It carries the sums of
that product, and for each row the largest number so far and the sum of the weights: what was summed before is multiplied
by what the largest number's growth makes of it (softmax_rows.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, Roles
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.mlir import arith, ir, linalg, math, scf, tensor
from kitsune_mlir.planning.attention_tiles import AttentionTiles
from kitsune_mlir.planning.product_tiles import CHUNK, COPY_ROWS
from kitsune_mlir.planning.target import Target

from .chain_tiles import part, zeros
from .of_places import Range, is_of_places, tile_of_places
from .operand_layout import laid_out
from .product_follows import Follows, tiled
from .row_bodies import Key, RowBody
from .row_groups import Member, joined, root, scalar_of
from .schedule_build import constant_index, empty_generic, i64, map_of, reshaped
from .softmax_rows import Weights
from .split_batches import Stored, offsets_of

_WARPS = 4
LOG2_E = 1 / log(2)
_STEP = 16  # columns of 16 bits that tensor cores multiply at a time


@dataclass(frozen=True)
class Attention:
    """What the kernel computes: the products, their operands, the weights between them and what follows the second.
    `first` and `second` are the operations. Columns outside of `range`, which says it by rows, have no weight."""

    first: ir.Operation
    second: ir.Operation
    scores: Contraction
    values: Contraction
    weights: Weights
    follows: Follows
    stored: Stored | None
    range: Range
    sizes: dict[str, int]  # b, m, n, k, and v: the columns of the second product
    target: Target
    name: str


class TileBody(RowBody):
    """The group on some columns of rows. `first` are the offsets of the tile's first element: of its rows' segments, and
    of its columns."""

    def place(self, at: Sequence[ir.Value], first_column: ir.Value, columns: int) -> None:
        self.at, self.first_column, self._columns = list(at), first_column, columns
        self.tiles: dict[Key, ir.Value] = {}
        self.values = {}

    @property
    def columns(self) -> int:
        """The columns of a tile."""
        return self._columns

    def bring(self) -> None:
        super().bring()
        self.inputs = {key: root(key[0]) if self._is_computed(key) else whole for key, whole in self.inputs.items()}

    def _is_computed(self, key: Key) -> bool:
        return is_of_places(key[0]) and self._dims(key) is not None

    def _dims(self, key: Key) -> list[int | None] | None:
        """For each dimension of a tensor the segment that it is, -1 where it is the columns, None where it has a single
        element; None where its dimensions are others."""
        value, present, columns = key
        wanted = [(i, size) for i, (size, here) in enumerate(zip(self.plan.segments, present)) if here]
        wanted += [(-1, self.plan.space.columns)] if columns else []
        long = [(d, size) for d, size in enumerate(rows.shape_of(value)) if size != 1]
        wanted = [(i, size) for i, size in wanted if size != 1]
        if [size for _, size in wanted] != [size for _, size in long]:
            return None
        of = {d: i for (i, _), (d, _) in zip(wanted, long)}
        return [of.get(d) for d in range(len(rows.shape_of(value)))]

    def tile(self, member: Member) -> ir.Value:
        """An operator of the group on the tile."""
        for key in self._keys(member):
            if key is not None and key not in self.tiles:
                self.tiles[key] = self._brought(key)
        self.values[member.op.results[0]] = made = self._tiled(member, self.tiles)
        return made

    def _brought(self, key: Key) -> ir.Value:
        value, present, columns = key
        if not self._is_computed(key):
            return self._read(key, self.inputs[key], self.at, self.first_column)
        dims = self._dims(key)
        assert dims is not None
        last, has_rows = len(self.at) - 1, present[-1]
        shape = [self.rows] * has_rows + [self.columns] * columns
        first = [None if d is None else self.first_column if d < 0 else self.at[d] for d in dims]
        place = [int(has_rows) if d == -1 else 0 if d == last else None for d in dims]
        return tile_of_places(value, shape, first, place)


class AttentionKernel:
    """Builds the kernel at the insertion point."""

    def __init__(self, of: Attention, body: TileBody, tiles: AttentionTiles):
        self.of, self.body, self.tiles = of, body, tiles
        given = {
            "left": (of.scores.left, of.scores.left_roles),
            "right": (of.scores.right, of.scores.right_roles),
            "values": (of.values.right, of.values.right_roles),
        }
        self.operands = {name: (laid_out(value, 1)[0], roles) for name, (value, roles) in given.items()}
        self.element = ir.RankedTensorType(of.scores.left.type).element_type
        self.segments = [size for size in body.plan.segments if size is not None]
        inside = body.plan.cuts.index(of.sizes["m"]) + 1 if of.sizes["m"] in body.plan.cuts else 0
        self.of_batch = len(self.segments) if of.sizes["m"] == 1 else inside
        self.wide = -(-of.sizes["v"] // CHUNK) * CHUNK
        k = of.sizes["k"]
        self.chunks = [(first, min(CHUNK, -(-(k - first) // _STEP) * _STEP)) for first in range(0, k, CHUNK)]
        self.f32, self.index = ir.F32Type.get(), ir.IndexType.get()

    def build(self) -> list[ir.Value]:
        """What takes the place of the stored results of what follows, or of the second product's."""
        of, tiles = self.of, self.tiles
        kernel = schedule.KernelOp(ir.StringAttr.get(of.name), kitsune.Outputs.get())
        kernel.attributes["target"] = ir.StringAttr.get(of.target.name)
        kernel.attributes["predicted_us"] = ir.FloatAttr.get(self.f32, tiles.price.us)
        kernel.attributes["limit"] = ir.StringAttr.get(tiles.price.limit)
        with ir.InsertionPoint(kernel.regions[0].blocks.append()):
            sizes = [*self.segments[:-1], self.segments[-1]]
            self.order = [len(sizes) - 1, *range(len(sizes) - 1)] if self._is_uneven else list(range(len(sizes)))
            dealt = schedule.TilesOp([constant_index(sizes[i]) for i in self.order], *[self.index] * 3)
            boxes = [tiles.rows if i == len(sizes) - 1 else 1 for i in self.order]
            dealt.attributes["tile"] = ir.DenseI64ArrayAttr.get(boxes)
            rings = {
                "left": self._ring("left", tiles.rows, "rows", "split", tiles.left_slots),
                "right": self._ring("right", tiles.columns, self._box("right", "k"), "all", tiles.right_slots),
                "values": self._ring("values", self.wide, self._box("values", "k"), "all", tiles.value_slots),
            }
            for name, copies, registers in (("feed", 1, 24), ("math", tiles.copies, 240)):
                agent = schedule.AgentOp(ir.StringAttr.get(name), *map(i64, (copies, _WARPS, registers)))
                with ir.InsertionPoint(agent.regions[0].blocks.append(self.index)):
                    self.copy_number = agent.regions[0].blocks[0].arguments[0]
                    loop = scf.ForOp(*dealt.results, [])
                    with ir.InsertionPoint(loop.body):
                        at = self._place(loop.induction_variable)
                        (self._feed if name == "feed" else self._compute)(rings, at)
                        scf.yield_([])
        return self._results(kernel)

    @property
    def _is_uneven(self) -> bool:
        """Whether tiles of some rows have more columns than others."""
        return (self.of.range.first, self.of.range.last).count(None) == 1

    def _box(self, name: str, along: str) -> str:
        return "rows" if self.operands[name][1][-1] == along else "columns"

    def _ring(self, name: str, rows_: int, box: str, share: str, slots: int) -> schedule.AllocRingOp:
        tile = ir.RankedTensorType.get([rows_, CHUNK], self.element)
        names = map(ir.StringAttr.get, (name, "smem", box, share))
        return schedule.AllocRingOp(*names, kitsune.ring_type(tile, slots))

    def _place(self, number: ir.Value) -> list[ir.Value]:
        """Where a tile begins in each segment of the rows. Tiles of many columns come first: else the last CTAs to end
        would be those that begin with one of them late."""
        found, rest, last = {}, number, len(self.segments) - 1
        counts = [-(-size // self.tiles.rows) if i == last else size for i, size in enumerate(self.segments)]
        for i in reversed(self.order[1:]):
            found[i] = arith.remui(rest, constant_index(counts[i]))
            rest = arith.divui(rest, constant_index(counts[i]))
        found[self.order[0]] = rest
        if self._is_uneven and self.of.range.last is not None:
            found[last] = arith.subi(constant_index(counts[last] - 1), found[last])
        found[last] = arith.muli(found[last], constant_index(self.tiles.rows))
        return [found[i] for i in range(len(self.segments))]

    def _offsets(self, at: Sequence[ir.Value], own: int = 0) -> dict[str, ir.Value]:
        """The number in the batch, and the row, of a place in the segments of the rows."""
        batch, within = list(enumerate(at))[: self.of_batch], list(enumerate(at))[self.of_batch :]
        return {"b": self._flat(batch, self.of_batch), "m": self._flat(within, len(at))}

    def _flat(self, at: Sequence[tuple[int, ir.Value]], end: int) -> ir.Value:
        found = constant_index(0)
        for number, (i, place) in enumerate(at):
            rest = prod(self.segments[i + 1 : end])
            term = place if rest == 1 else arith.muli(place, constant_index(rest))
            found = term if not number else arith.addi(found, term)
        return found

    def _columns(self, at: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The bounds and the step of the loop over columns that a tile has."""
        first, last = self.of.range.first, self.of.range.last
        size, step, row = self.of.sizes["n"], self.tiles.columns, at[-1]
        lower, upper = constant_index(0), constant_index(size)
        if last is not None:
            upper = arith.minui(upper, arith.addi(row, constant_index(self.tiles.rows + last)))
        if first is not None:
            begin = arith.addi(row, constant_index(first)) if first >= 0 else arith.subi(row, arith.minui(row, constant_index(-first)))
            lower = arith.muli(arith.divui(begin, constant_index(step)), constant_index(step))
        return lower, upper, constant_index(step)

    def _feed(self, rings: dict[str, schedule.AllocRingOp], at: Sequence[ir.Value]) -> None:
        place = self._offsets(at)
        for first, columns in self.chunks:
            self._copy("left", rings, place | {"k": constant_index(first)}, "m", columns)
        lower, upper, step = self._columns(at)
        self._feed_right(rings, place, lower)
        loop = scf.ForOp(lower, arith.subi(upper, step), step, [])
        with ir.InsertionPoint(loop.body):
            column = loop.induction_variable
            self._feed_right(rings, place, arith.addi(column, step))
            self._feed_values(rings, place, column)
            scf.yield_([])
        self._feed_values(rings, place, self._last(lower, upper, step))

    @staticmethod
    def _last(lower: ir.Value, upper: ir.Value, step: ir.Value) -> ir.Value:
        """Where the last turn of a loop begins, which has one or more."""
        turns = arith.divui(arith.subi(arith.subi(upper, constant_index(1)), lower), step)
        return arith.addi(lower, arith.muli(turns, step))

    def _feed_right(self, rings: dict[str, schedule.AllocRingOp], place: dict[str, ir.Value], column: ir.Value) -> None:
        for first, columns in self.chunks:
            self._copy("right", rings, place | {"n": column, "k": constant_index(first)}, "n", columns)

    def _feed_values(self, rings: dict[str, schedule.AllocRingOp], place: dict[str, ir.Value], column: ir.Value) -> None:
        for first in range(0, self.tiles.columns, CHUNK):
            row = column if not first else arith.addi(column, constant_index(first))
            self._copy("values", rings, place | {"k": row, "n": constant_index(0)}, "n", CHUNK)

    def _copy(
        self, name: str, rings: dict[str, schedule.AllocRingOp], place: dict[str, ir.Value], own: str, columns: int
    ) -> None:
        value, roles = self.operands[name]
        slot = schedule.AcquireOp(rings[name].results[0], self._slot(rings[name], columns)).results[0]
        offsets = offsets_of(roles, place)
        copy = schedule.CopyOp(slot, value, offsets, ir.StringAttr.get("tma"), schedule.Token.get())
        copy.attributes["dims"] = ir.DenseI64ArrayAttr.get([roles.index(own), roles.index("k")])
        schedule.CommitOp(slot, [copy.results[0]])

    def _slot(self, ring: schedule.AllocRingOp, columns: int) -> ir.Type:
        tile = ir.RankedTensorType(ring.results[0].type.tile)
        if ring.layout != "rows":
            columns = tile.shape[1]
        return schedule.Slot.get(ir.RankedTensorType.get([tile.shape[0], columns], tile.element_type))

    def _wait(self, ring: schedule.AllocRingOp, columns: int = CHUNK) -> ir.Value:
        return schedule.WaitOp(ring.results[0], self._slot(ring, columns)).results[0]

    def _compute(self, rings: dict[str, schedule.AllocRingOp], at: list[ir.Value]) -> None:
        own = [*at[:-1], arith.addi(at[-1], arith.muli(self.copy_number, constant_index(COPY_ROWS)))]
        left = [self._wait(rings["left"], columns) for _, columns in self.chunks]
        lower, upper, step = self._columns(at)
        sums = part(zeros(COPY_ROWS, self.wide), 0, self.wide, wide=True)
        begin = [sums, self._rows_of(float("-inf")), self._rows_of(0.0)]
        begin += self._multiply(rings, left)
        loop = scf.ForOp(lower, arith.subi(upper, step), step, begin)
        with ir.InsertionPoint(loop.body):
            carried = list(loop.inner_iter_args)
            scf.yield_(self._turn(rings, left, own, loop.induction_variable, carried, goes_on=True))
        found = self._turn(rings, left, own, self._last(lower, upper, step), list(loop.results), goes_on=False)
        for slot in left:
            schedule.ReleaseOp(slot, [])
        self._finish(own, *found)

    def _turn(
        self,
        rings: dict[str, schedule.AllocRingOp],
        left: Sequence[ir.Value],
        own: list[ir.Value],
        column: ir.Value,
        carried: list[ir.Value],
        goes_on: bool,
    ) -> list[ir.Value]:
        """So many columns: the sums, the largest numbers and the sums of weights with them; where it `goes_on` also the
        next columns' products, which run beside what is done with these."""
        engine, token = ir.StringAttr.get("wgmma"), schedule.Token.get()
        before, largest, weights, total, *rest = carried
        scores = schedule.SettleOp(total, ir.TypeAttr(total.type.elem).value).results[0]
        for slot, done in zip(rest[: len(self.chunks)], rest[len(self.chunks) :], strict=True):
            schedule.ReleaseOp(slot, [done])
        following: list[ir.Value] = []
        if goes_on:  # in the same registers
            held, scores = scores, part(scores, 0, self.tiles.columns, wide=True)
            following = self._multiply(rings, left, [held])
        packed, largest, grown, weights = self._weigh(scores, own, column, largest, weights)
        acc = schedule.Acc.get(ir.RankedTensorType(before.type))
        wide = part(self._scaled(before, grown), 0, self.wide, wide=True)
        total, chunks = schedule.SumsOp([wide], acc).results[0], []
        total.owner.attributes["begin"] = ir.UnitAttr.get()
        for first in range(0, self.tiles.columns, CHUNK):
            slot = self._wait(rings["values"])
            multiplied = schedule.ProductOp(total, part(packed, first, CHUNK), slot, engine, acc, token)
            total = multiplied.results[0]
            chunks.append((slot, multiplied.results[1]))
        sums = schedule.SettleOp(total, before.type).results[0]
        for slot, done in chunks:
            schedule.ReleaseOp(slot, [done])
        return [sums, largest, weights, *following]

    def _multiply(
        self, rings: dict[str, schedule.AllocRingOp], left: Sequence[ir.Value], over: Sequence[ir.Value] = ()
    ) -> list[ir.Value]:
        """The products of a tile with the next columns: their sums, the slots and the products' tokens."""
        acc = schedule.Acc.get(ir.RankedTensorType.get([COPY_ROWS, self.tiles.columns], self.f32))
        total, slots, tokens = schedule.SumsOp(over, acc).results[0], [], []
        for a, (_, columns) in zip(left, self.chunks, strict=True):
            slots.append(self._wait(rings["right"], columns))
            multiplied = schedule.ProductOp(
                total, a, slots[-1], ir.StringAttr.get("wgmma"), acc, schedule.Token.get()
            )
            total = multiplied.results[0]
            tokens.append(multiplied.results[1])
        return [total, *slots, *tokens]

    def _weigh(
        self, scores: ir.Value, own: Sequence[ir.Value], column: ir.Value, largest: ir.Value, weights: ir.Value
    ) -> tuple[ir.Value, ...]:
        """The weights of a tile of scores, as the second product takes them; the largest number of each row, what
        becomes of what was summed before, and the sum of weights."""
        found, body = self.of.weights, self.body
        body.place(own, column, self.tiles.columns)
        body.given = {self.of.first.results[0]: scores}
        scale = found.scale
        for member in found.scores:
            if scale is not None and member == scale.member:  # below
                body.values[member.op.results[0]] = (body.given | body.values)[scale.of]
            else:
                body.tile(member)
        x = root(found.largest.op.operands[0])
        if self.of.sizes["n"] % self.tiles.columns:
            body.values[x] = self._inside(body.values.get(x, scores), column)
        before = self._shift(largest)
        join = joined(found.largest.op)
        assert join is not None
        largest = self._of_rows([largest, body.tile(found.largest)], lambda a, b: _like(join, a, b))
        shift = self._shift(largest)
        safe = self._of_rows([shift], _or_zero)  # where all numbers so far are -inf
        body.values[found.shift] = self._typed(safe, _element_of(shift))
        for member in found.weights:
            if found.is_plain and member == found.weights[0]:
                continue
            if found.is_plain and member == found.weights[1]:
                body.values[member.op.results[0]] = self._powers(body.values.get(x, scores), safe)
            else:
                body.tile(member)
        exponential = math.exp if found.exponential == "math.exp" else math.exp2
        grown = self._of_rows([before, safe], lambda a, b: exponential(arith.subf(a, b)))
        if found.total is not None:
            added = body.tile(found.total)
            weights = self._of_rows([weights, grown, added], lambda a, b, c: arith.addf(arith.mulf(a, b), c))
        weight = body.values[found.weight]
        packed = self._by_element([weight], self.element, lambda a: a)
        return packed, largest, grown, weights

    def _powers(self, tile: ir.Value, shift: ir.Value) -> ir.Value:
        """The exponentials of a tile's numbers, scaled, less each row's shift, as powers of two: with the scale, of two
        instructions each."""
        scale = 1.0 if self.of.weights.scale is None else self.of.weights.scale.factor
        base = LOG2_E if self.of.weights.exponential == "math.exp" else 1.0
        less = self._of_rows([shift], lambda a: arith.mulf(a, arith.constant(self.f32, -base)))
        maps, shape = [map_of(2, [0, 1]), map_of(2, [0])], [COPY_ROWS, self.tiles.columns]

        def power(x: ir.Value, less: ir.Value) -> ir.Value:
            return math.exp2(arith.addf(arith.mulf(x, arith.constant(self.f32, scale * base)), less))

        return self._made([tile, less], maps, shape, self.f32, power)

    def _shift(self, largest: ir.Value) -> ir.Value:
        """What is taken off each row's numbers, from the largest of them."""
        found = self.of.weights
        kind = _element_of(found.largest.op.results[0])
        if found.scale is not None:
            factor = arith.constant(self.f32, found.scale.factor)
            largest = self._of_rows([largest], lambda a: arith.mulf(a, factor))
        self.body.values[found.largest.op.results[0]] = self._typed(largest, kind)
        for member in found.shifts:
            self.body.tile(member)
        return self.body.values[found.shift]

    def _finish(self, own: list[ir.Value], sums: ir.Value, largest: ir.Value, weights: ir.Value) -> None:
        """Divides the sums as weights were divided, computes what follows, and writes it."""
        of, body, found = self.of, self.body, self.of.weights
        body.place(own, constant_index(0), self.tiles.columns)
        self._shift(largest)
        if found.total is not None:
            result = found.total.op.results[0]
            body.values[result] = self._typed(weights, _element_of(result))
        for member in found.sums:
            body.tile(member)
        for member in found.shares:
            sums = self._shared(member, sums)
        place = self._offsets(own) | {"n": constant_index(0)}
        made = {of.second.results[0]: sums}
        for op in of.follows.ops:
            made[op.results[0]] = tiled(op, made, place)
        for number, op in enumerate(of.follows.stored or [of.second]):
            if of.stored is not None:
                roles = of.stored.roles
                offsets, dims = offsets_of(roles, place), [roles.index("m"), roles.index("n")]
            else:
                batch = [place["b"]] if self._has_batch else []
                offsets = [*batch, *own[self.of_batch :], place["n"]]
                dims = [len(offsets) - 2, len(offsets) - 1]
            write = schedule.WriteOp(made[op.results[0]], offsets, i64(number))
            write.attributes["dims"] = ir.DenseI64ArrayAttr.get(dims)

    def _shared(self, member: Member, sums: ir.Value) -> ir.Value:
        """What an operator that divides weights makes of sums with these weights."""
        inputs, maps, values, arguments = [sums], [map_of(2, [0, 1])], {}, []
        for argument, value, role in zip(member.s.body.arguments, member.op.operands, member.roles):
            if role is None:
                values[argument] = scalar_of(value)
            elif role.columns:
                values[argument] = None
            else:
                inputs.append(self.body.values[root(value)])
                maps.append(map_of(2, [0]))
                arguments.append(argument)
        generic = self._generic(inputs, maps, [COPY_ROWS, self.wide], self.f32)
        block = generic.regions[0].blocks[0]
        values = {a: block.arguments[0] if v is None else v for a, v in values.items()}
        values |= dict(zip(arguments, list(block.arguments)[1:]))
        weights = {a for a, v in values.items() if v == block.arguments[0]}
        with ir.InsertionPoint(block):
            for op in (op.operation for op in member.s.body.operations):
                if op.name == "linalg.yield":
                    linalg.YieldOp([values[op.operands[0]]])
                    break
                operands = [values.get(value, value) for value in op.operands]
                own = any(value in weights for value in op.operands)
                weights |= {*op.results} if own else set()
                if not own:
                    clone = op.clone()
                    for number, operand in enumerate(operands):
                        clone.operands[number] = operand
                    values.update(zip(op.results, clone.results))
                elif len(operands) == 1:  # a cast
                    values[op.results[0]] = operands[0]
                else:
                    make = arith.mulf if op.name == "arith.mulf" else arith.divf
                    values[op.results[0]] = make(*[self._widened(operand) for operand in operands])
        return generic.results[0]

    @property
    def _has_batch(self) -> bool:
        return "b" in self.of.scores.left_roles or "b" in self.of.values.right_roles or ir.RankedTensorType(self.of.second.results[0].type).rank == 3

    def _results(self, kernel: schedule.KernelOp) -> list[ir.Value]:
        of = self.of
        ends = list(of.stored.operations)[-1:] if of.stored is not None else of.follows.stored or [of.second]
        found = []
        for number, op in enumerate(ends):
            kind = ir.RankedTensorType(op.results[0].type)
            shape = list(kind.shape)
            own = shape if of.stored is not None else [
                *([of.sizes["b"]] if self._has_batch else []), *self.segments[self.of_batch :], of.sizes["v"],
            ]
            type_ = ir.RankedTensorType.get(own, kind.element_type)
            found.append(reshaped(kitsune.ResultOp(kernel.results[0], i64(number), type_).results[0], shape))
        return found

    # ---- tiles

    def _inside(self, tile: ir.Value, column: ir.Value) -> ir.Value:
        """A tile of scores, of which columns that are not there have no weight."""
        i32 = ir.IntegerType.get_signless(32)
        generic = self._generic([tile], [map_of(2, [0, 1])], [COPY_ROWS, self.tiles.columns], _element_of(tile))
        block = generic.regions[0].blocks[0]
        with ir.InsertionPoint(block):
            place = arith.addi(arith.index_cast(i32, linalg.IndexOp(1).result), arith.index_cast(i32, column))
            there = arith.cmpi(arith.CmpIPredicate.slt, place, arith.constant(i32, self.of.sizes["n"]))
            x = block.arguments[0]
            linalg.YieldOp([arith.select(there, x, arith.constant(x.type, float("-inf")))])
        return generic.results[0]

    def _rows_of(self, number: float) -> ir.Value:
        return self._of_rows([], lambda: arith.constant(self.f32, number))

    def _of_rows(self, inputs: Sequence[ir.Value], make: Callable[..., ir.Value], element: ir.Type | None = None) -> ir.Value:
        """A number for each row, of those of others, computed in f32."""
        return self._made(inputs, [map_of(1, [0])] * len(inputs), [COPY_ROWS], element or self.f32, make)

    def _typed(self, numbers: ir.Value, element: ir.Type) -> ir.Value:
        """Numbers of rows as such elements."""
        return numbers if _element_of(numbers) == element else self._of_rows([numbers], lambda a: a, element)

    def _by_element(self, inputs: Sequence[ir.Value], element: ir.Type, make: Callable[..., ir.Value]) -> ir.Value:
        shape = list(ir.RankedTensorType(inputs[0].type).shape)
        return self._made(inputs, [map_of(2, [0, 1])] * len(inputs), shape, element, make)

    def _scaled(self, tile: ir.Value, by: ir.Value) -> ir.Value:
        """A tile whose rows are multiplied."""
        shape = list(ir.RankedTensorType(tile.type).shape)
        return self._made([tile, by], [map_of(2, [0, 1]), map_of(2, [0])], shape, self.f32, arith.mulf)

    def _made(
        self,
        inputs: Sequence[ir.Value],
        maps: Sequence[ir.AffineMap],
        shape: list[int],
        element: ir.Type,
        make: Callable[..., ir.Value],
    ) -> ir.Value:
        generic = self._generic(inputs, maps, shape, element)
        block = generic.regions[0].blocks[0]
        with ir.InsertionPoint(block):
            x = make(*[self._widened(argument) for argument in list(block.arguments)[:-1]])
            linalg.YieldOp([x if x.type == element else arith.truncf(element, x)])
        return generic.results[0]

    @staticmethod
    def _generic(
        inputs: Sequence[ir.Value], maps: Sequence[ir.AffineMap], shape: list[int], element: ir.Type
    ) -> ir.Operation:
        result = map_of(len(shape), list(range(len(shape))))
        return empty_generic(inputs, [tensor.empty(shape, element)], [*maps, result], ["parallel"] * len(shape))

    def _widened(self, x: ir.Value) -> ir.Value:
        return x if x.type == self.f32 else arith.extf(self.f32, x)


def _or_zero(x: ir.Value) -> ir.Value:
    none = arith.cmpf(arith.CmpFPredicate.OEQ, x, arith.constant(x.type, float("-inf")))
    return arith.select(none, arith.constant(x.type, 0.0), x)


def _like(op: ir.Operation, a: ir.Value, b: ir.Value) -> ir.Value:
    """The same operation on other numbers."""
    make = arith.maximumf if op.name == "arith.maximumf" else arith.maxnumf
    return make(a, b)


def _element_of(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type
