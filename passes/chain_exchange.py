"""Tiles of a chain that the CTAs of a cluster share: each computes some of the columns of every tile, for the same
rows, and keeps them in registers. What products read of it goes to the other CTAs (`kitsune.send`), chunk by chunk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kitsune_mlir import rows
from kitsune_mlir.chains.operands import is_loaded, is_only_operand
from kitsune_mlir.codegen.schedule.reductions import row_combiner
from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.clusters import SendOp, TotalOp
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.row_cloner import RowCloner

from .chain_columns import check_numbered
from .kernel_build import wait_slot

NEUTRAL = {"arith.addf": 0.0, "arith.maximumf": float("-inf"), "arith.minimumf": float("inf")}
NEUTRAL |= {"arith.mulf": 1.0, "arith.maxnumf": float("-inf"), "arith.minnumf": float("inf")}


class ShareCloner(RowCloner):
    """Clones operators onto a block of rows and a CTA's share of the columns; a single column every CTA has."""

    def __init__(self, count: int, parts: int):
        super().__init__(count)
        self.parts = parts

    def type_of(self, type_: ir.Type, p: int = 1) -> ir.RankedTensorType:
        """A tensor type with the block's rows and the CTA's columns."""
        kind = super().type_of(type_, p)
        shape = list(kind.shape)
        if len(shape) > 1 and shape[1] > 1:
            shape[1] //= self.parts
        return ir.RankedTensorType.get(shape, kind.element_type)


@dataclass
class Exchanged:
    """A tile of which a CTA has `width` columns, that so many operands of products are still to read. `tile` is the
    type of a slot of all columns of a chunk; `sent` counts chunks. By CTA, how far behind it is, and chunk, `slots` are
    those of what was sent here, and `tokens` those of the products that have read it."""

    rings: Sequence[schedule.AllocRingOp]
    width: int
    readers: int
    sent: int = 0
    slots: dict[tuple[int, int], ir.Value] = field(default_factory=dict)
    tokens: dict[tuple[int, int], list[ir.Value]] = field(default_factory=lambda: defaultdict(list))

    @property
    def each(self) -> int:
        """The columns of a chunk."""
        return self.rings[0].tile.shape[1]

    @property
    def chunks(self) -> int:
        return -(-self.width // self.each)

    def send(self, chunk: ir.Value) -> None:
        """The next chunk of the own columns."""
        SendOp([ring.results[0] for ring in self.rings], chunk)
        self.sent += 1

    def slot(self, distance: int, chunk: int) -> ir.Value:
        """What the CTA so far behind has of a chunk's columns; waits for it where it is asked for first."""
        if (distance, chunk) not in self.slots:
            ring = self.rings[distance - 1]
            self.slots[distance, chunk] = wait_slot(ring, columns=min(self.each, self.width - chunk * self.each))
        return self.slots[distance, chunk]

    def open_all(self) -> None:
        """All that was sent here is there."""
        for chunk in range(self.chunks):
            for distance in range(1, len(self.rings) + 1):
                self.slot(distance, chunk)


def total(op: ir.Operation, part: ir.Value) -> ir.Value:
    """The result of a reduction along rows, from that of the CTA's columns."""
    join = row_combiner(rows.Structured(op)).name
    return TotalOp(part, ir.StringAttr.get(join), part.type).results[0]


def joins_columns(op: ir.Operation) -> bool:
    """Whether an operation is a reduction along rows of more than one column."""
    if op.name != "linalg.generic" or "reduction" not in (s := rows.Structured(op)).iterators:
        return False
    return any(rows.shape_of(value)[1:2] > [1] for value in s.given if rows.is_tensor(value))


def check_shared(op: ir.Operation) -> None:
    """Raises UnsupportedError for an operation of a stage whose columns CTAs do not share: one that moves columns, but
    for products, or a reduction along rows that begins with a number of its own."""
    moves = op.name in ("tensor.extract_slice", "tensor.concat", *rows.RESHAPES)
    if moves and rows.shape_of(op.results[0])[1:] != [1] and not is_only_operand(op.results[0]):
        raise UnsupportedError("columns that are moved are not shared by CTAs")
    leaves = op.name in (kitsune.ScatterOp.OPERATION_NAME, kitsune.PlaceOp.OPERATION_NAME)
    if leaves and rows.shape_of(op.operands[0])[1] == 1:
        raise UnsupportedError("numbers that leave for rows of a table are each CTA's")
    if op.name == "linalg.generic" and not (is_only_operand(op.results[0]) and is_loaded(op.results[0])):
        check_numbered(op)
    if not joins_columns(op):
        return
    s = rows.Structured(op)
    name, start = row_combiner(s).name, rows.init_of(op.operands[s.inputs])
    constant = None if start.scalar is None else rows.producer(start.scalar)
    if name not in NEUTRAL or constant is None or constant.name != "arith.constant":
        raise UnsupportedError("a reduction that CTAs would join begins with a number that is not known")
    if ir.FloatAttr(constant.attributes["value"]).value != NEUTRAL[name]:
        raise UnsupportedError("a reduction that CTAs would join begins with a number of its own")
