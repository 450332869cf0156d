"""Where the rows of a tile come from that a warp loads into registers: each lane has every eighth, and finds its own
tensor, and its row's number in a tensor of numbers, among those of eight parts.

What differs between lanes is chosen by selects, once in front of the loop over tiles: eight parts of a concatenation
are loaded by one instruction as if they were rows of one tensor. A number that is no row of its table becomes row 0 and
is reported (index_checks.py). Lanes that have no row of the tile load the last one again, where another lane loads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.dialects import schedule
from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import arith, ir, location
from kitsune_mlir.operations import operations_of
from kitsune_mlir.row_numbers import row_number


@dataclass(frozen=True)
class Source:
    """A row of a tile: `start` elements into a tensor, and `pitch` for each number before its own. That is the tile's
    number, or what `numbers` holds there, of a gather's `extract`: `start` elements into it, and `pitch` a tile. Where
    it `wraps` negative ones count from the table's end."""

    tensor: ir.Value
    start: int
    pitch: int
    numbers: Source | None = None
    extract: ir.Operation | None = None
    wraps: bool = False

    @property
    def limit(self) -> int:
        """Rows of the table."""
        return ir.RankedTensorType(self.tensor.type).shape[0]


def sources(tile: ir.Value) -> list[Source]:
    """Those of the rows of a tile, in order. Raises UnsupportedError for a tile that is not made of such rows."""
    op = rows.producer(tile)
    if op is not None and op.name == "tensor.concat":
        return [source for part in op.operands for source in sources(part)]
    if op is not None and op.name == schedule.ReadOp.OPERATION_NAME:
        return _read(op.opview)
    if op is not None and op.name == "linalg.generic":
        s = rows.Structured(op)
        extracts = operations_of(s.body, "tensor.extract")
        numbers = rows.producer(op.operands[0])
        if len(extracts) == 1 and numbers is not None and numbers.name == schedule.ReadOp.OPERATION_NAME:
            (extract,) = extracts
            width = ir.RankedTensorType(tile.type).shape[1]
            wraps = row_number(extract.operands[1]).size is not None
            return [Source(extract.operands[0], 0, width, own, extract, wraps) for own in _read(numbers.opview)]
    raise UnsupportedError(f"a warp multiplies rows that it reads or gathers, and no result of {op and op.name}")


def _read(read: schedule.ReadOp) -> list[Source]:
    """A source for each row of the box, or of one dimension for each element."""
    tensor, *at = read.operands
    kind, shape = ir.RankedTensorType(tensor.type), ir.RankedTensorType(read.results[0].type).shape
    strides = [1]
    for size in reversed(kind.shape[1:]):
        strides.insert(0, strides[0] * size)
    known = [constant(offset) for offset in at]
    if None in known[1:] or known[0] is not None or any(size < 0 for size in kind.shape[1:]):
        raise UnsupportedError(f"{location(read.location)}: a warp reads the rows of its own number of the batch")
    start = sum(offset * stride for offset, stride in zip(known[1:], strides[1:]))
    along = read.axes[0]
    count = shape[0]
    if along == 0 and count != 1:
        raise UnsupportedError(f"{location(read.location)}: a warp reads the rows of one number of the batch")
    return [Source(tensor, start + row * strides[along], strides[0]) for row in range(count)]


@dataclass(frozen=True)
class _Numbers:
    """Where lanes find the numbers of their rows."""

    pointer: ir.Value
    pitch: ir.Value  # i64
    limit: ir.Value  # i64, rows of the lane's table
    taken: ir.Value | None  # whether (i1) the lane's row has one; None where all have
    wraps: ir.Value | None  # whether (i1) negative ones count from the table's end; None where none do
    checks: tuple[tuple[ir.Operation, ir.Value], ...]  # a gather, and whether (i1) the lane's row is of it


@dataclass(frozen=True)
class LaneRows:
    """Eight rows of a tile as the lanes of a warp find them, lane g its own. Built in front of the loop over tiles."""

    element: ir.Type
    pointer: ir.Value
    pitch: ir.Value  # i64
    numbers: _Numbers | None
    integer: ir.Type | None

    @staticmethod
    def of(own: Sequence[Source], pointers: dict[int, ir.Value], group: ir.Value) -> LaneRows:
        """The lanes' rows of eight sources, lanes of group number 0 to 7 having one each."""
        bits = [device.has_bit(group, bit) for bit in (1, 2, 4)]

        def start(source: Source) -> ir.Value:
            kind = ir.RankedTensorType(source.tensor.type)
            return device.offset(pointers[hash(source.tensor)], source.start, kind.element_type)

        places = {source: start(source) for source in dict.fromkeys(own)}
        gathers = [source.numbers is not None for source in own]
        numbers = integer = None
        if any(gathers):
            other = next(source for source in own if source.numbers is not None)
            found = [source if source.numbers is not None else other for source in own]
            starts = {source: start(source.numbers) for source in dict.fromkeys(found)}
            checks = [
                (extract, _holds([source.extract is not None and source.extract == extract for source in own], bits))
                for extract in _checked(source.extract for source in own)
            ]
            numbers = _Numbers(
                _chosen([starts[source] for source in found], bits),
                _chosen_number([source.numbers.pitch for source in found], bits),
                _chosen_number([source.limit for source in found], bits),
                None if all(gathers) else _holds(gathers, bits),
                _holds([source.wraps for source in found], bits) if any(source.wraps for source in found) else None,
                tuple(checks),
            )
            integer = ir.RankedTensorType(other.numbers.tensor.type).element_type
        element = ir.RankedTensorType(own[0].tensor.type).element_type
        pitch = _chosen_number([source.pitch for source in own], bits)
        return LaneRows(element, _chosen([places[source] for source in own], bits), pitch, numbers, integer)

    def load_numbers(self, tile: ir.Value) -> ir.Value | None:
        """Begins to load the numbers of a tile's rows; `tile` is its own number (i64)."""
        if self.numbers is None:
            return None
        far = arith.muli(tile, self.numbers.pitch)
        return device.load(device.offset(self.numbers.pointer, far, self.integer), self.integer)

    def place(self, tile: ir.Value, number: ir.Value | None) -> ir.Value:
        """The address of the lane's row, `number` being what `load_numbers` gave."""
        row = tile
        if number is not None:
            row, limit = _wide(number), self.numbers.limit
            if self.numbers.wraps is not None:
                below = arith.cmpi(arith.CmpIPredicate.slt, row, arith.constant(row.type, 0))
                row = arith.select(arith.andi(below, self.numbers.wraps), arith.addi(row, limit), row)
            row = index_checks.rows_inside(row, limit, self.numbers.checks)
            if self.numbers.taken is not None:
                row = arith.select(self.numbers.taken, row, tile)
        return device.offset(self.pointer, arith.muli(row, self.pitch), self.element)


def _checked(extracts: Sequence[ir.Operation | None]) -> list[ir.Operation]:
    return list(dict.fromkeys(extract for extract in extracts if extract is not None))


def _wide(number: ir.Value) -> ir.Value:
    """The number as i64; a negative one stays negative."""
    return extended(number, ir.IntegerType.get_signless(64))


def _chosen(values: Sequence[ir.Value], bits: Sequence[ir.Value]) -> ir.Value:
    """Of 2^n values that of the lane, whose number has these bits, the lowest first."""
    if all(value == values[0] for value in values):
        return values[0]
    half = len(values) // 2
    low, high = _chosen(values[:half], bits[:-1]), _chosen(values[half:], bits[:-1])
    return low if low == high else arith.select(bits[-1], high, low)


def _chosen_number(numbers: Sequence[int], bits: Sequence[ir.Value]) -> ir.Value:
    """The same of numbers, as i64."""
    i64 = ir.IntegerType.get_signless(64)
    made = {number: arith.constant(i64, number) for number in dict.fromkeys(numbers)}
    return _chosen([made[number] for number in numbers], bits)


def _holds(truths: Sequence[bool], bits: Sequence[ir.Value]) -> ir.Value:
    i1 = ir.IntegerType.get_signless(1)
    made = {truth: arith.constant(i1, int(truth)) for truth in (False, True)}
    return _chosen([made[truth] for truth in truths], bits)
