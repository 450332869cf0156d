"""What operations say but for names, of values and their own: those of equal form compute the same of what they use."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.dialects.windows import WindowsOp
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import made_by

Form = tuple[Any, ...]


def form_of(
    ops: Iterable[ir.Operation | ir.OpView],
    names_only: frozenset[str] = frozenset({"sym_name"}),
    with_numbers: bool = True,
) -> Form:
    """The form of consecutive operations, regions included; to be compared within one context. Values are numbered as
    they come, with their types; but scalars from around the operations are not alike: code copies them. Neither are
    windows, whose images code reads. The attributes in `names_only` are left out; unless `with_numbers`, all finite
    floating-point numbers of a type but 0 are alike."""
    names: dict[int, object] = {}

    def name(value: ir.Value) -> object:
        key = hash(value)
        if key not in names:
            names[key] = len(names), value.type, _windows(value)
        return names[key]

    def use(value: ir.Value) -> object:
        if hash(value) not in names and (scalar := _scalar(value)) is not None:
            names[hash(value)] = scalar if with_numbers else _kind(scalar)
        return name(value)

    def form(op: ir.Operation) -> Form:
        attributes = frozenset(pair for pair in op.attributes.items() if pair[0] not in names_only)
        if not with_numbers and op.name == "arith.constant":
            attributes = frozenset((key, _kind(attribute)) for key, attribute in attributes)
        operands = tuple(use(value) for value in op.operands)
        results = tuple(name(value) for value in op.results)
        blocks = tuple(
            (
                tuple(name(argument) for argument in block.arguments),
                tuple(form(inner.operation) for inner in block.operations),
            )
            for region in op.regions
            for block in region.blocks
        )
        return op.name, attributes, operands, results, blocks

    return tuple(form(op.operation) for op in ops)


def pipeline_form(pipeline: kitsune.PipelineOp) -> Form:
    """The form of a pipeline with its results: on one target, those of equal form have equal kernels."""
    return form_of([pipeline]), tuple(result.position for result in pipeline.result_ops)


def _scalar(value: ir.Value) -> object:
    """What a constant or a number computed from constants is known by; None for any other value."""
    op = rows.producer(value)
    if op is None or not op.name.startswith("arith."):
        return None
    return op.attributes["value"] if op.name == "arith.constant" else hash(value)


def _kind(scalar: object) -> object:
    """The type of a finite floating-point number other than 0; anything else as it is."""
    if isinstance(scalar, ir.FloatAttr) and scalar.value != 0 and math.isfinite(scalar.value):
        return scalar.type
    return scalar


def _windows(value: ir.Value) -> object:
    """What tells windows over images from others of the same type; None for any other value."""
    op = made_by(value, WindowsOp.OPERATION_NAME)
    if op is None:
        return None
    return op.operands[0].type, frozenset(op.attributes.items())
