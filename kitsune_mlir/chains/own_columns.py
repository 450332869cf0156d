"""Whether threads compute tiles from what they have: a tile in registers is read at the columns that a thread holds.

A thread holds pairs of columns, 8 apart (wgmma.py): it can read a tile a multiple of 8 columns further on, where a
slice or a concatenation says so. Each CTA of a cluster holds a share of the columns, and reads tiles of the same width
at the same column only. A single column that is read all over a row (a gate, say) is *spread*: the thread that holds
it tells the others of its row (Fragment.spread_out). A tile of one column is whole in every CTA of a cluster, so it
can be spread there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.fragments import BLOCK
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import MAP, REDUCTION, Nest, StageNests
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import slice_of

from .operands import is_in_stage, is_loaded, parts_of

if TYPE_CHECKING:
    from .program import Program


@dataclass(frozen=True)
class At:
    """Where rows of a tile are read: `column` columns behind the thread's own, or everywhere at the one `column`."""

    column: int
    own: bool = False


Place = At | None  # None is what is neither
OWN, FIRST = At(0, own=True), At(0)
WORD_BITS = 32


@dataclass(frozen=True)
class Read:
    """A tile that is read at `at`, for one that is `width` columns wide: `held` in registers, or computed there."""

    value: ir.Value
    at: Place
    width: int
    held: bool


@dataclass(frozen=True)
class ColumnsRead:
    """How a stage reads tiles, by their keys. `spread` are the columns of tiles in registers that are read all over a
    row. `elsewhere` are tiles that are computed from what is loaded where they are read, and are read at columns that
    other threads have: such a tile is not read in registers, although a product may have it there."""

    spread: dict[int, set[int]] = field(default_factory=dict)
    elsewhere: set[int] = field(default_factory=set)


def columns_read(program: Program, nests: StageNests) -> ColumnsRead:
    """How a stage reads tiles. Raises UnsupportedError for a stage in which a thread would read what others hold."""
    found = ColumnsRead()
    for nest in nests:
        for read in _reads(program, nest, nests):
            width = _width(read.value)
            if read.at == OWN and width == read.width:
                continue
            if not read.held:
                if not _is_own(program, read.at):
                    found.elsewhere.add(hash(read.value))
                continue
            column = 0 if width == 1 else _column(program, read.at)
            if column is not None:
                _check_word(read.value)
                found.spread.setdefault(hash(read.value), set()).add(column)
    return found


def _is_own(program: Program, at: Place) -> bool:
    """Whether each thread reads columns of a wider tile that it holds."""
    return program.cluster == 1 and at is not None and at.own and at.column % BLOCK == 0


def _column(program: Program, at: Place) -> int | None:
    """The column of a wider tile that is read all over a row; None where each thread reads its own."""
    if program.cluster > 1 or at is None or at.own and not _is_own(program, at):
        raise UnsupportedError("a warpgroup reads columns of a tile in registers that lie in other threads")
    return None if at.own else at.column


def _check_word(value: ir.Value) -> None:
    """Threads tell each other words."""
    element = element_of(value)
    if not isinstance(element, ir.FloatType | ir.IntegerType) or element.width > WORD_BITS:
        raise UnsupportedError(f"a warpgroup does not spread columns of {element}")


def _width(value: ir.Value) -> int:
    return prod(shape_of(value)[1:])


def _roots(program: Program, nest: Nest) -> Iterator[tuple[ir.Value, Place, int]]:
    """What a nest computes: values, where, and how wide their tiles are."""
    if nest.kind == MAP:
        if program.holds(nest) or nest.stores or nest.puts:
            width = _width(nest.value)
            yield nest.value, FIRST if width == 1 else OWN, width
        return
    assert nest.op is not None
    if nest.kind == REDUCTION:
        s = rows.Structured(nest.op)
        reduced = s.reductions
        width = _width(nest.op.operands[0])
        for value, at in _generic_operands(s, OWN, reduced, width):
            yield value, at, width
        return
    yield nest.value, OWN, _width(nest.value)
    yield nest.op.operands[2], OWN, _width(nest.value)
    for part in parts_of(nest.op.operands[0]):
        yield part, OWN, _width(part)


def _reads(program: Program, nest: Nest, nests: StageNests) -> Iterator[Read]:
    """The tiles that a nest is computed from, up to those in registers."""
    for root, start, width in _roots(program, nest):
        stack, seen = [(root, start)], set[tuple[int, Place]]()
        while stack:
            value, at = stack.pop()
            op = rows.producer(value)
            if op is None or not is_in_stage(value) or (hash(value), at) in seen:
                continue
            seen.add((hash(value), at))
            if at is not None and at.own and not _keeps_columns(program, value):
                at = None
            if nest.op is not None and op == nest.op:
                if nest.kind != REDUCTION and at != OWN:
                    raise UnsupportedError("a warpgroup reads sums of a product that lie in other threads")
            elif op.name == kitsune.GetOp.OPERATION_NAME or value != nest.value and _is_held(program, value, nests):
                yield Read(value, at, width, held=True)
            else:
                yield Read(value, at, width, held=False)
                stack += _operands(op, value, at)


def _keeps_columns(program: Program, value: ir.Value) -> bool:
    """Whether a thread's columns are known to be its own in a tile of more dimensions."""
    inner = shape_of(value)[2:]
    blocks = all(prod(inner[d:]) % BLOCK == 0 for d in range(len(inner)))
    return not inner or program.cluster == 1 and blocks


def _is_held(program: Program, value: ir.Value, nests: StageNests) -> bool:
    known = nests.nests.get(hash(value))
    return known is not None and (known.kind != MAP or program.holds(known)) and not _is_made_anew(program, value)


def _is_made_anew(program: Program, value: ir.Value) -> bool:
    return program.cluster > 1 and is_loaded(value)


def _operands(op: ir.Operation, value: ir.Value, at: Place) -> Iterator[tuple[ir.Value, Place]]:
    """What an operation computes its result's columns from, each with its place, when that is read at `at`."""
    shape = shape_of(value)
    if op.name == "linalg.generic":
        s = rows.Structured(op)
        results = list(s.maps[s.inputs + list(op.results).index(value)].results)[1:]
        if all(isinstance(expr, ir.AffineDimExpr) for expr in results):
            yield from _generic_operands(s, at, [expr.position for expr in results], _width(value))
            return
    elif op.name == "tensor.concat" and len(shape) == 2:
        start = 0
        for operand in op.operands:
            width = shape_of(operand)[1]
            if at is None:
                yield operand, None
            elif at.own or start <= at.column < start + width:
                yield operand, At(at.column - start, at.own)
            start += width
        return
    elif op.name == "tensor.extract_slice":
        place = _sliced(op, shape, at)
        yield op.operands[0], place
        if at == FIRST and place is not None and len(shape) == 2 and place.column % BLOCK == 0:
            # For one column each row's first thread asks as for others.
            yield op.operands[0], At(place.column, own=True)
        return
    elif op.name in rows.RESHAPES:
        yield op.operands[0], at
        return
    for operand in op.operands:
        if rows.is_tensor(operand):
            yield operand, None


def _generic_operands(
    s: rows.Structured, at: Place, loops: Sequence[int], width: int
) -> Iterator[tuple[ir.Value, Place]]:
    """The same of a generic whose `loops` go over the columns at `at`; others that are no rows are at 0."""
    for i, value in enumerate(s.op.operands):
        if i >= s.inputs and rows.init_of(value).tensor is None:
            continue
        inner = list(s.maps[i].results)[1:]
        if [getattr(expr, "position", None) for expr in inner] == list(loops) and _width(value) == width:
            yield value, at
        elif _width(value) == 1 or all(isinstance(expr, ir.AffineConstantExpr) and expr.value == 0 for expr in inner):
            yield value, FIRST
        else:
            yield value, None


def _sliced(op: ir.Operation, shape: tuple[int, ...], at: Place) -> Place:
    """The place in what a slice is taken of."""
    source = shape_of(op.operands[0])
    taken = slice_of(op)
    offsets, strides = taken.offsets[1:], taken.strides[1:]
    if at is not None and at.own and len(shape) == len(source) == 2 and shape[1] == 1 and offsets[0] % BLOCK:
        return At(offsets[0])  # wherever it is put again: each row's first thread has it (chain_values._column_of)
    if at is None or len(shape) != len(source):
        return None
    if not at.own:
        index = [
            i * stride + offset for i, stride, offset in zip(device.unflattened(at.column, shape[1:]), strides, offsets)
        ]
        return At(sum(i * prod(source[d + 2 :]) for d, i in enumerate(index)))
    return At(at.column + offsets[0], own=True) if len(shape) == 2 and strides[0] == 1 else None
