"""Whether threads compute tiles from what they have: a tile in registers is read at the columns that a thread holds.

A thread holds pairs of columns, 8 apart (wgmma.py): it can read a tile a multiple of 8 columns further on, where a
slice or a concatenation says so. Each CTA of a cluster holds a share of the columns, and reads tiles of the same width
at the same column only.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from kitsune_mlir import rows
from kitsune_mlir.codegen.pipeline.memory import shape_of
from kitsune_mlir.codegen.pipeline.nests import MAP, REDUCTION, Nest, StageNests
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir

from .fragments import BLOCK
from .operands import is_in_stage, is_loaded

if TYPE_CHECKING:
    from .program import Program

Shift = int | None  # columns further on; None where that is not one number


def check_columns(program: Program, nests: StageNests) -> None:
    """Raises UnsupportedError for a stage in which a thread would read what others hold."""
    for nest in nests:
        if nest.kind == MAP and not (program.holds(nest) or nest.stores or nest.puts):
            continue
        own = _width(nest.op.operands[0] if nest.kind == REDUCTION and nest.op is not None else nest.value)
        for value, shift in _reads(program, nest, nests):
            if (width := _width(value)) == 1:
                continue
            if (shift != 0 or width != own) if program.cluster > 1 else shift is not None and shift % BLOCK:
                raise UnsupportedError("a warpgroup reads columns of a tile in registers that lie in other threads")


def _width(value: ir.Value) -> int:
    return prod(shape_of(value)[1:])


def _reads(program: Program, nest: Nest, nests: StageNests) -> Iterator[tuple[ir.Value, Shift]]:
    """The tiles in registers that a nest is computed from, each with the shift at which it is read."""
    stack: list[tuple[ir.Value, Shift]] = [(nest.value, 0)]
    if nest.kind == REDUCTION and nest.op is not None:
        stack = list(_operands(nest.op, 0))
    while stack:
        value, shift = stack.pop()
        op = rows.producer(value)
        if op is None or not is_in_stage(value):
            continue
        if nest.op is not None and op == nest.op:
            yield value, shift
        elif op.name == kitsune.GetOp.OPERATION_NAME or value != nest.value and _is_held(program, value, nests):
            yield value, shift
        else:
            stack += _operands(op, shift)


def _is_held(program: Program, value: ir.Value, nests: StageNests) -> bool:
    known = nests.nests.get(hash(value))
    return known is not None and (known.kind != MAP or program.holds(known)) and not _is_made_anew(program, value)


def _is_made_anew(program: Program, value: ir.Value) -> bool:
    return program.cluster > 1 and is_loaded(value)


def _operands(op: ir.Operation, shift: Shift) -> Iterator[tuple[ir.Value, Shift]]:
    """What an operation computes its result's columns from, each with its shift, when that is read at `shift`."""
    if op.name == "linalg.generic":
        s = rows.Structured(op)
        plain = ir.AffineMap.get_identity(2)
        for i, value in enumerate(op.operands):
            if i < s.inputs or rows.init_of(value).tensor is not None:
                yield value, shift if s.maps[i] == plain else None
    elif op.name == "tensor.concat":
        start = 0
        for value in op.operands:
            yield value, None if shift is None or len(shape_of(value)) != 2 else shift - start
            start += shape_of(value)[-1]
    elif op.name == "tensor.extract_slice":
        parts = (op.attributes[f"static_{name}"] for name in ("offsets", "strides"))
        offsets, strides = (list(ir.DenseI64ArrayAttr(part)) for part in parts)
        known = shift is not None and len(offsets) == 2 and strides[1] == 1
        yield op.operands[0], shift + offsets[1] if known else None
    else:
        for value in op.operands:
            if rows.is_tensor(value):
                yield value, None
