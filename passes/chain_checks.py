"""What is not chained at the schedule level, with the reason."""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.chains.operands import is_loaded, is_multiplied_alone, is_streamed
from kitsune_mlir.chains.product_plan import starts_from_zero
from kitsune_mlir.chains.program import Program
from kitsune_mlir.codegen.pipeline.memory import element_of
from kitsune_mlir.codegen.pipeline.nests import PRODUCT, kitsune_label
from kitsune_mlir.codegen.schedule.reductions import row_combiner
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import users_of

from .chain_columns import check_begins, check_leaves
from .chain_exchange import check_shared


def check(program: Program) -> None:
    """Raises UnsupportedError for a pipeline that is not chained at the schedule level."""
    gets = [get for stage in program.stages for get in stage.gets]
    for tile in (get.results[0] for get in gets if kitsune_label(get.operands[0]) not in program.on_chip):
        if not (is_streamed(tile) and is_multiplied_alone(tile)):
            raise UnsupportedError("tiles of other roles are operands of products alone, of rows of 16 bytes")
    for op in (product.op for product in program.products):
        left, right, sums = (element_of(value) for value in (*list(op.operands)[:2], op.results[0]))
        if left != right or not isinstance(sums, ir.F32Type):
            raise UnsupportedError(f"sums in {sums} of products of {left} and {right} are not scheduled")
    if len({product.nbytes for product in program.products}) > 1:
        raise UnsupportedError("products of 16 and of 32 bits in one chain are not scheduled")
    for segment in program.segments():
        made = rows.producer(segment.value)
        if made is not None and made.name in rows.SUPPORT:
            raise UnsupportedError("products of tiles of one number everywhere are not scheduled")
    for stage in program.stages:
        for op in stage.block.operations:
            _check_operation(op.operation)
            if program.cluster > 1:
                check_shared(op.operation)
    for block in program.blocks:
        for nest in block.nests:
            if nest.op is None or nest.kind != PRODUCT:
                continue
            product = block.products[hash(nest.op.results[0])]
            if product.passes > 1:
                check_leaves(nest, product)
            if product.passes > 1 and not starts_from_zero(nest.op):
                check_begins(product)


def _check_operation(op: ir.Operation) -> None:
    for value in op.results:
        if rows.is_tensor(value) and ir.RankedTensorType(value.type).rank > 2 and not _is_inside(value):
            raise UnsupportedError(f"tiles of type {value.type} are not scheduled but where threads compute with them")
    if op.name == "linalg.generic" and "reduction" in (s := rows.Structured(op)).iterators:
        row_combiner(s)


def _is_inside(value: ir.Value) -> bool:
    """Whether each thread computes, of what is loaded, the elements of a tile that it needs."""
    users = {user.name for user in users_of(value)}
    alone = users <= {"linalg.generic", *rows.RESHAPES} and rows.producer(value).name != "tensor.concat"
    return alone and is_loaded(value)
