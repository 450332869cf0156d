"""The kernel of equal steps (recurrent_steps.py), at the schedule level.

kitsune.kernel, in clusters
  feed: copies the CTA's part of the weights, once
  math: for each tile of rows:
          for each step, which carries the states' columns of the CTA:
            kitsune.collect of the state that is multiplied; products of all of it; what follows, on the CTA's
            columns: the states of the next step, and what is written of this one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.dialects import clusters, kitsune, schedule
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, attr_int, in_block_order, ir, replace_op, scf, tensor
from kitsune_mlir.operations import element_type, made_by, slice_of
from kitsune_mlir.planning.kernel_cost import DEAR, DEAR_FAST
from kitsune_mlir.planning.product_engines import CHUNK, COPY_ROWS
from kitsune_mlir.planning.product_tiles import PAIRS
from kitsune_mlir.planning.step_tiles import Recurrence, StepTiles, choose
from kitsune_mlir.planning.target import Target
from kitsune_mlir.weights import is_weight

from .chain_tiles import added, columns_of_tile, part
from .joined_weights import side_by_side
from .kernel_build import (
    acquire_slot,
    cta_rank,
    deal_tiles,
    fill_slot,
    new_agent,
    new_kernel,
    new_ring,
    read_box,
    turns,
    wait_slot,
    write_box,
)
from .operand_layout import laid_out
from .product_follows import tiled, work_of
from .product_pieces import piece_of_tile
from .recurrent_steps import Steps, dependents
from .reshapes import reshaped

_WARPS = 4
_COPIES, _PRODUCTS = "tma", "wgmma"  # engines


@dataclass(frozen=True)
class Written:
    """A result that is needed outside: of all steps, or of the last alone; of all from the last to the first, where
    others have them in that order."""

    number: int
    always: bool
    backwards: bool = False


@dataclass
class StepKernel:
    """Builds the kernel of steps on tiles, whose numbers are so many pieces, in the place of the last of them."""

    of: Steps
    tiles: StepTiles
    target: Target
    pieces: int
    name: str
    states: list[int] = field(default_factory=list)  # numbers of results that loops carry

    def __post_init__(self) -> None:
        self.states = sorted(self.of.begins)
        kind = ir.RankedTensorType(self.of.first.results[self.of.hidden].type)
        (self.rows, self.width), self.kind = kind.shape, kind.element_type
        self.element = ir.BF16Type.get() if self.pieces > 1 else self.kind
        self.gates = len(self.of.first.products)
        self.chunks = self.width // CHUNK

    @staticmethod
    def of_steps(run: Steps, target: Target, pieces: int, name: str) -> StepKernel | None:
        """On the fastest tiles; None where there are none."""
        kind = ir.RankedTensorType(run.first.results[run.hidden].type)
        count, width = kind.shape
        work = work_of(run.first.follows, DEAR if isinstance(kind.element_type, ir.F32Type) else DEAR_FAST)
        sizes = Recurrence(len(run.steps), count, width, len(run.first.products), pieces, work)
        tiles = choose(sizes, target)
        kernel = None if tiles is None else StepKernel(run, tiles, target, pieces, name)
        return kernel if kernel is not None and kernel.fits() else None

    def fits(self) -> bool:
        """Whether all that steps take is read where it lies."""
        if any((of.left_roles, of.right_roles) != (("m", "k"), ("n", "k")) for of in self.of.first.found):
            return False
        if not all(is_weight(of.right) for of in self.of.first.found):
            return False
        for found in self.of.streamed.values():
            if _rows_of(found.source) % self.rows or found.first % self.rows or found.stride % self.rows:
                return False
        square = [ir.RankedTensorType(op.results[0].type).shape for step in self.of.steps for op in step.ops]
        return all(list(shape) == [self.rows, self.width] for shape in square)

    def build(self) -> bool:
        """Puts the kernel in the place of the steps, which are erased, unless kernels built before it left no run."""
        if (now := self.of.now()) is None:
            return False
        self.of = now
        behind, last = dependents(self.of), in_block_order(self.of.steps[-1].ops)[-1]
        written = self._written()
        with last.location, ir.InsertionPoint(last):
            outputs = self._kernel(written)
            self._hand_out(written, outputs)
        for op in in_block_order(behind):
            if op.is_before_in_block(last):
                op.move_before(last)
        for op in (op for step in reversed(self.of.steps) for op in reversed(step.ops)):
            op.erase()
        for op in [op for op in behind if op.name == "tensor.concat"]:
            give_whole(op)
        return True

    def _written(self) -> list[Written]:
        found = []
        for number in range(len(self.of.first.results)):
            *early, late = self.of.users(number)
            if any(early) or late:
                found.append(Written(number, any(early), self._is_read_backwards(number)))
        return found

    def _is_read_backwards(self, number: int) -> bool:
        """Whether a concatenation has what the last step makes in front of what the one before it does."""
        for one in self.of.users(number)[-1]:
            for use in one.results[0].uses if one.name == "tensor.expand_shape" else ():
                operands = list(use.owner.operation.operands)
                others = [op.results[0] for op in self.of.users(number)[-2] if op.name == "tensor.expand_shape"]
                if use.owner.operation.name == "tensor.concat" and operands[use.operand_number + 1 :][:1] == others:
                    return True
        return False

    # ---- around the kernel

    def _hand_out(self, written: Sequence[Written], outputs: Sequence[ir.Value]) -> None:
        """What was made by steps is part of what the kernel writes."""
        for of, output in zip(written, outputs, strict=True):
            users = self.of.users(of.number)
            if not of.always:
                last = self.of.result(self.of.steps[-1], of.number)
                _replace(last, reshaped(output, [self.rows, self.width]), users[-1])
                continue
            count = len(self.of.steps)
            whole = reshaped(output, [count, self.rows, self.width])
            for at, step in enumerate(self.of.steps):
                if users[at]:
                    by = _step_of(whole, count - 1 - at if of.backwards else at)
                    _replace(self.of.result(step, of.number), by, users[at])

    def _rows_apart(self, value: ir.Value, outer: int) -> ir.Value:
        """A tensor of rows as one of `outer` parts, tiles, rows of a tile and what else it has; of tiles that reach
        behind the last row as one of parts, rows, and that."""
        kind = ir.RankedTensorType(value.type)
        tiles = [self.rows // self.tiles.rows, self.tiles.rows] if self._is_cut else [self.rows]
        return reshaped(value, [outer, *tiles, kind.shape[-1]])

    @property
    def _is_cut(self) -> bool:
        """Whether tensors have a dimension for the rows of a tile, behind which a warpgroup's other rows are."""
        return self.tiles.rows < COPY_ROWS

    # ---- the kernel

    def _kernel(self, written: Sequence[Written]) -> list[ir.Value]:
        weights = laid_out(
            side_by_side([found.right for found in self.of.first.found], self.tiles.columns), self.pieces
        )
        self.begun = {number: self._rows_apart(value, 1) for number, value in self.of.begins.items()}
        streamed = dict.fromkeys(found.source for found in self.of.streamed.values())
        self.sources = {value: self._rows_apart(value, _rows_of(value) // self.rows) for value in streamed}
        price = self.tiles.price
        counts = {"cluster": self.tiles.cluster, "pairs": len(PAIRS[self.pieces]) if self.pieces > 1 else None}
        with new_kernel(self.name, self.target, price.us, price.limit, **counts) as built:
            dealt = deal_tiles([constant_index(self.rows)], [self.tiles.rows])
            wide, slots = self.gates * self.tiles.columns, self.chunks * self.pieces
            self.weights = new_ring("weights", (wide, CHUNK), self.element, slots)
            self.collected = [
                new_ring(f"state{piece}", (COPY_ROWS, CHUNK), self.element, self.chunks, "own", space=schedule.DSMEM)
                for piece in range(self.pieces)
            ]
            with new_agent("feed", 1, _WARPS, 24):
                self._feed(weights)
            with new_agent("math", 1, _WARPS, 240):
                self._multiply(dealt, written)
        kinds = [self._output_type(of) for of in written]
        return [kitsune.result(built.results[0], number, kind) for number, kind in enumerate(kinds)]

    def _output_type(self, of: Written) -> ir.Type:
        kind = ir.RankedTensorType(self.of.first.results[of.number].type)
        tiles = [self.rows // self.tiles.rows, self.tiles.rows] if self._is_cut else [self.rows]
        return ir.RankedTensorType.get([len(self.of.steps) if of.always else 1, *tiles, self.width], kind.element_type)

    def _feed(self, weights: Sequence[ir.Value]) -> None:
        """The rows of the weights that the CTA multiplies with, chunk by chunk."""
        first = arith.muli(cta_rank(), constant_index(self.gates * self.tiles.columns))
        with turns(constant_index(0), constant_index(self.width), constant_index(CHUNK)) as column:
            for value in weights:
                fill_slot(acquire_slot(self.weights), value, [first, column], [0, 1], _COPIES)

    def _multiply(self, dealt: schedule.TilesOp, written: Sequence[Written]) -> None:
        kept = [wait_slot(self.weights) for _ in range(self.chunks * self.pieces)]
        self.kept = [kept[at : at + self.pieces] for at in range(0, len(kept), self.pieces)]
        column = arith.muli(cta_rank(), constant_index(self.tiles.columns))
        with turns(*dealt.results) as row:
            self.place = row, column
            first = constant_index(0)
            begun = [self._kept_part(self._read(self.begun[number], first, column)) for number in self.states]
            loop = scf.ForOp(constant_index(0), constant_index(len(self.of.steps)), constant_index(1), begun)
            with ir.InsertionPoint(loop.body):
                scf.yield_(self._step(loop, written))
            for number, of in enumerate(written):
                if not of.always:
                    self._write(loop.results[self.states.index(of.number)], number, constant_index(0))
        for slot in kept:
            schedule.ReleaseOp(slot, [])

    def _step(self, loop: scf.ForOp, written: Sequence[Written]) -> list[ir.Value]:
        """A step: the states behind it."""
        carried = dict(zip(self.states, loop.inner_iter_args, strict=True))
        hidden = carried[self.of.hidden]
        for ring, piece in zip(self.collected, self._pieces_of(hidden), strict=True):
            clusters.CollectOp(ring.results[0], piece)
        step, first = loop.induction_variable, self.of.first
        given = dict(first.outside())
        made = {given[place]: carried[number] for place, number in self.of.states.items()}
        for place, found in self.of.streamed.items():
            outer = constant_index(found.first // self.rows)
            stride = constant_index(abs(found.stride) // self.rows)
            further = step if abs(found.stride) == self.rows else arith.muli(step, stride)
            outer = (arith.addi if found.stride > 0 else arith.subi)(outer, further)
            column = arith.addi(self.place[1], constant_index(found.column)) if found.column else self.place[1]
            made[given[place]] = self._read(self.sources[found.source], outer, column, ahead=True)
        total, columns = self._products(), self.tiles.columns
        for number, op in enumerate(first.products):
            made[op.results[0]] = columns_of_tile(total, number * columns, columns)
        row = arith.muli(self.place[0], constant_index(self.tiles.rows))
        kept = {first.results[number] for number in self.states}
        for op in first.follows.ops:
            tile = tiled(op, made, {"m": row, "n": self.place[1]})
            made[op.results[0]] = self._kept_part(tile) if op.results[0] in kept else tile
        for number, of in enumerate(written):
            if of.always:
                last = constant_index(len(self.of.steps) - 1)
                self._write(made[first.results[of.number]], number, arith.subi(last, step) if of.backwards else step)
        return [made[first.results[number]] for number in self.states]

    def _products(self) -> ir.Value:
        """The sums of all gates, side by side. Of pieces those of a chunk begin at zero, small terms first, and are
        added to the others outside of tensor cores, which cut off what they add."""
        tile = ir.RankedTensorType.get([COPY_ROWS, self.gates * self.tiles.columns], ir.F32Type.get())
        acc, engine = schedule.Acc.get(tile), ir.StringAttr.get(_PRODUCTS)
        shape = ir.RankedTensorType.get([self.tiles.rows, CHUNK], self.element)
        slots: list[ir.Value] = []
        total, sums = None, schedule.SumsOp([], acc).results[0]
        for chunk in range(self.chunks):
            lefts = [schedule.WaitOp(ring.results[0], schedule.Slot.get(shape)).results[0] for ring in self.collected]
            for left, right in PAIRS[self.pieces]:
                made = schedule.ProductOp(sums, lefts[left], self.kept[chunk][right], engine, acc, schedule.Token.get())
                sums = made.results[0]
            slots += lefts
            if self.pieces > 1:
                found = schedule.SettleOp(sums, tile).results[0]
                total = found if total is None else part(added(total, found), 0, tile.shape[1], wide=True)
                sums = schedule.SumsOp([], acc).results[0] if chunk + 1 < self.chunks else sums
        if total is None:
            total = schedule.SettleOp(sums, tile).results[0]
        for slot in slots:
            schedule.ReleaseOp(slot, [])
        return total

    def _pieces_of(self, tile: ir.Value) -> list[ir.Value]:
        """What is collected of a state: its rows, as numbers of 16 bits."""
        numbers = range(self.pieces)
        found = [piece_of_tile(tile, n, self.pieces) for n in numbers] if self.pieces > 1 else [tile]
        if not self._is_cut:
            return found
        shape = [self.tiles.rows, self.tiles.columns]
        type_ = ir.RankedTensorType.get(shape, self.element)
        return [tensor.ExtractSliceOp(type_, piece, [], [], [], [0, 0], shape, [1, 1]).result for piece in found]

    def _kept_part(self, tile: ir.Value) -> ir.Value:
        """A tile that is computed here, and stays in registers."""
        wide = isinstance(element_type(tile), ir.F32Type)
        return part(tile, 0, self.tiles.columns, wide=wide)

    def _offsets(self, outer: ir.Value, column: ir.Value) -> list[ir.Value]:
        if self._is_cut:
            return [outer, self.place[0], constant_index(0), column]
        return [outer, arith.muli(self.place[0], constant_index(self.tiles.rows)), column]

    def _read(self, source: ir.Value, outer: ir.Value, column: ir.Value, ahead: bool = False) -> ir.Value:
        last = ir.RankedTensorType(source.type).rank - 1
        tile = [COPY_ROWS, self.tiles.columns]
        return read_box(source, self._offsets(outer, column), tile, [last - 1, last], ["ahead"] * ahead)

    def _write(self, tile: ir.Value, number: int, outer: ir.Value) -> None:
        offsets = self._offsets(outer, self.place[1])
        write_box(tile, offsets, number, [len(offsets) - 2, len(offsets) - 1])


def _rows_of(value: ir.Value) -> int:
    return prod(ir.RankedTensorType(value.type).shape[:-1])


def _step_of(whole: ir.Value, at: int) -> ir.Value:
    """What one step has written: a matrix."""
    kind = ir.RankedTensorType(whole.type)
    _, *shape = kind.shape
    type_ = ir.RankedTensorType.get([1, *shape], kind.element_type)
    taken = tensor.ExtractSliceOp(type_, whole, [], [], [], [at, 0, 0], list(type_.shape), [1, 1, 1]).result
    return tensor.CollapseShapeOp(ir.RankedTensorType.get(shape, kind.element_type), taken, [[0, 1], [2]]).result


def give_whole(concat: ir.Operation) -> None:
    """Has a tensor in the place of the concatenation of all its elements along the first dimension, in their order."""
    found = [_element_of(operand) for operand in concat.operands]
    if attr_int(concat, "dim") or None in found:
        return
    whole = found[0][0]
    if whole.type == concat.results[0].type and found == [(whole, number) for number in range(len(found))]:
        replace_op(concat, whole)


def _element_of(value: ir.Value) -> tuple[ir.Value, int] | None:
    """Of which tensor a value is an element along the first dimension, and which; None of others."""
    expanded = rows.producer(value)
    collapsed = None if expanded is None else rows.producer(expanded.operands[0])
    if expanded is None or expanded.name != "tensor.expand_shape":
        return None
    if collapsed is None or collapsed.name != "tensor.collapse_shape":
        return None
    sliced = made_by(collapsed.operands[0], "tensor.extract_slice")
    if sliced is None or sliced.results[0].type != value.type:
        return None
    offsets, sizes, _ = slice_of(sliced)
    whole = sliced.operands[0]
    if list(sizes) != [1, *rows.shape_of(whole)[1:]] or any(offsets[1:]) or len(sliced.operands) > 1:
        return None
    return whole, offsets[0]


def _replace(value: ir.Value, by: ir.Value, users: Sequence[ir.Operation]) -> None:
    for op in users:
        for i, operand in enumerate(op.operands):
            if operand == value:
                op.operands[i] = by
