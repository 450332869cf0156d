"""Where a product's left operand stands: in registers, or on its way through shared memory."""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.fragments import is_packed
from kitsune_mlir.codegen.hopper.tile_ring import crosses
from kitsune_mlir.codegen.pipeline.memory import element_of, shape_of
from kitsune_mlir.codegen.pipeline.nests import MAP, Nest, StageNests
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import users_of
from kitsune_mlir.traffic import element_bytes

from .gathers import gather_of, streams

STREAMED_BYTES = 256  # of a row: operands at least that wide come through shared memory
# Rows that are no multiple of 16 bytes must be copied first: only when registers do not hold the operand. Those of an
# argument take a kernel of their own for that, what another kernel makes it may make longer.
MOST_HELD_BYTES, MOST_HELD_OF_ARGUMENT = 512, 704


def parts_of(value: ir.Value) -> list[ir.Value]:
    """The tiles that a product's left operand is a concatenation of."""
    op = rows.producer(value)
    if op is not None and op.name == "tensor.concat" and attr_int(op, "dim") == 1:
        return [part for operand in op.operands for part in parts_of(operand)]
    return [value]


def is_streamed(value: ir.Value) -> bool:
    """Whether a tile comes through shared memory: a wide one that is loaded as it is, one from another CTA."""
    op, nbytes = rows.producer(value), row_bytes(value)
    if op is None or not is_multiplied(element_of(value)):
        return False
    if is_gathered(value):
        return True
    if op.name == kitsune.GetOp.OPERATION_NAME:
        return crosses(rows.producer(op.operands[0]).opview) and nbytes % 16 == 0
    if op.name != kitsune.LoadOp.OPERATION_NAME or nbytes < STREAMED_BYTES:
        return False
    most = MOST_HELD_OF_ARGUMENT if isinstance(op.operands[0].owner, ir.Block) else MOST_HELD_BYTES
    return nbytes % 16 == 0 or nbytes > most and _can_be_widened(op)


def is_gathered(value: ir.Value) -> bool:
    """Whether a tile comes through shared memory as rows of a table that threads gather there: part of an operand of
    which more is gathered than registers hold."""
    gather = gather_of(rows.producer(value))
    if gather is None or not is_in_stage(value) or not streams(value):
        return False
    numbers = [gather.op.operands[i] for i in gather.inputs]
    return all(is_loaded(number) for number in numbers if is_in_stage(number))


def is_read_by_threads(value: ir.Value) -> bool:
    """Whether threads read a wide tile, from a tensor of rows that tensor copies do not read."""
    op, nbytes = rows.producer(value), row_bytes(value)
    is_load = op is not None and op.name == kitsune.LoadOp.OPERATION_NAME
    return is_load and nbytes >= STREAMED_BYTES and nbytes % 16 > 0 and not is_streamed(value)


def is_multiplied(element: ir.Type) -> bool:
    """Whether warpgroups have products of such elements."""
    return isinstance(element, ir.BF16Type | ir.F16Type | ir.F32Type)


def row_bytes(value: ir.Value) -> int:
    """The bytes of a tile's row."""
    return prod(shape_of(value)[1:]) * element_bytes(element_of(value))


def _can_be_widened(load: ir.Operation) -> bool:
    """Whether the pipeline's products alone read the tensor that a tile is loaded from, of two dimensions, so that its
    rows may be made longer for them. Other pipelines, which may be kernels already, read the tensor as it is."""
    whole, pipeline = load.operands[0], load.parent.operation.parent.operation
    readers = users_of(whole)
    loads = [op for op in readers if op.name == kitsune.LoadOp.OPERATION_NAME and is_inside(op, pipeline)]
    return len(shape_of(whole)) == 2 and all(is_multiplied_alone(load.results[0]) for load in loads)


def is_inside(op: ir.Operation, around: ir.Operation) -> bool:
    """Whether an operation stands in another one, at any depth."""
    while (parent := op.parent) is not None:
        op = parent.operation
        if op == around:
            return True
    return False


def is_multiplied_alone(value: ir.Value) -> bool:
    """Whether nothing but products reads a tile, by itself or beside others."""
    readers = users_of(value)
    return all(
        op.name == "tensor.concat" and value in parts_of(op.results[0]) and is_multiplied_alone(op.results[0])
        for op in readers
        if op.name not in ("linalg.matmul", "tensor.dim")
    )


def is_held(nest: Nest) -> bool:
    """Whether a nest's values stay in registers. An operand does not when it comes through shared memory: what else
    reads it loads it as it does any other tensor. Nor does one that only products read when its parts are operands of
    their own."""
    readers = {user.name for user in users_of(nest.value)} - {"tensor.dim"}
    if nest.kind == MAP and is_streamed(nest.value) and not is_handed_on(nest.value):
        return False
    if nest.kind == MAP and readers == {"linalg.matmul"}:
        return len(parts_of(nest.value)) == 1
    return nest.local


def is_handed_on(value: ir.Value) -> bool:
    """Whether a later stage gets a tile."""
    return any(use.owner.operation.name == kitsune.PutOp.OPERATION_NAME for use in value.uses)


def reads_held(nest: Nest, nests: StageNests) -> bool:
    """Whether a product's epilogue reads tiles, other than its sums, that are there in registers only."""
    assert nest.op is not None
    stack, seen = [nest.value], set[int]()
    while stack:
        value = stack.pop()
        op = rows.producer(value)
        if hash(value) in seen or op is None or not is_in_stage(value):
            continue
        seen.add(hash(value))
        if op == nest.op:
            stack.append(op.operands[2])
        elif op.name == kitsune.GetOp.OPERATION_NAME or hash(value) in nests.nests and value != nest.value:
            if prod(shape_of(value)[1:]) > 1 and not is_loaded(value):
                return True
        else:
            stack += [operand for operand in op.operands if rows.is_tensor(operand)]
    return False


def is_operand(value: ir.Value) -> bool:
    """Whether products read a held tile: themselves, or from the queue that it is put into."""
    for use in value.uses:
        op = use.owner.operation
        if op.name == "linalg.matmul" and use.operand_number == 0:
            return True
        if op.name == kitsune.PutOp.OPERATION_NAME:
            gets = users_of(op.operands[0])
            if any(is_operand(get.results[0]) for get in gets if get.name == kitsune.GetOp.OPERATION_NAME):
                return True
    return False


def is_only_operand(value: ir.Value) -> bool:
    """Whether nothing but products reads a tile."""
    return {user.name for user in users_of(value)} <= {"linalg.matmul", "tensor.dim"}


def is_loaded(value: ir.Value) -> bool:
    """Whether every CTA can compute all of a tile by itself: from loads, elementwise."""
    op = rows.producer(value)
    if op is None or op.name in ("linalg.matmul", kitsune.GetOp.OPERATION_NAME):
        return False
    if op.name == kitsune.LoadOp.OPERATION_NAME:
        return True
    if op.name == "linalg.generic" and "reduction" in rows.Structured(op).iterators:
        return False
    return all(is_loaded(operand) for operand in op.operands if rows.is_tensor(operand) and is_in_stage(operand))


def is_in_stage(value: ir.Value) -> bool:
    """Whether an operation of a stage makes a value."""
    op = rows.producer(value)
    return op is not None and op.parent is not None and op.parent.name == kitsune.StageOp.OPERATION_NAME


def is_exchanged(nest: Nest) -> bool:
    """Whether the CTAs of a cluster hand the nest's tile to one another: products read it, and no CTA can compute all
    of it by itself."""
    return is_held(nest) and is_operand(nest.value) and not is_loaded(nest.value)


def is_read_here(value: ir.Value) -> bool:
    """Whether more than products and queues read a value."""
    outward = ("linalg.matmul", "tensor.dim", kitsune.PutOp.OPERATION_NAME, *kitsune.OUTPUTS)
    return any(use.owner.operation.name not in outward for use in value.uses)


def is_deferred(nest: Nest) -> bool:
    """Whether a product's own stage reads its tile by products alone and keeps it: it need not be whole at once."""
    packed = is_packed(element_of(nest.value)) and not is_read_here(nest.value)
    return packed and is_held(nest) and not nest.stores and not nest.puts


def is_stored_whole(tile: ir.Value) -> bool:
    """Whether tensor copies can store a tile."""
    return is_multiplied(element_of(tile)) and row_bytes(tile) % 16 == 0
