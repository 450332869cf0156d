"""What the verifiers of the kitsune dialect are made of. Each check that fails emits its diagnostic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import users_of

if TYPE_CHECKING:
    from .kitsune import PipelineOp, QueueOp, ResultOp, StoreOp

MOST = 2**31 - 1  # of any count or index: device code holds them in 32 bits


def is_row_tile(tile: ir.Type, whole: ir.Type) -> bool:
    """Whether `tile` is a block of rows (dimension 0) of `whole`: same rank, trailing sizes, elements."""
    if not isinstance(tile, ir.RankedTensorType) or not isinstance(whole, ir.RankedTensorType):
        return False
    same = tile.rank == whole.rank > 0 and tile.element_type == whole.element_type
    return same and tile.shape[1:] == whole.shape[1:]


def parent_of(op, name: str) -> ir.Operation | None:
    """The nearest enclosing operation of that name."""
    parent = op.operation.parent
    while parent is not None and parent.operation.name != name:
        parent = parent.operation.parent
    return None if parent is None else parent.operation


def fail(op, message: str) -> bool:
    """Emits an error at the operation's location, for the verifier to return."""
    op.operation.location.emit_error(f"'{op.operation.name}' op {message}")
    return False


def string(op, name: str) -> str | None:
    """A string attribute's value; None when it is absent."""
    return ir.StringAttr(op.attributes[name]).value if name in op.attributes else None


def integer(op, name: str) -> int | None:
    """An integer attribute's value; None when it is absent."""
    return attr_int(op, name) if name in op.attributes else None


def number(op, name: str) -> float | None:
    """A floating-point attribute's value; None when it is absent."""
    return ir.FloatAttr(op.attributes[name]).value if name in op.attributes else None


def check_integer(op, name: str, least: int) -> bool:
    """The attribute, where it is present (IRDL has no optional ones), is an integer and in range."""
    if name not in op.attributes:
        return True
    value = op.attributes[name]
    if isinstance(value, ir.IntegerAttr) and least <= value.value <= MOST:
        return True
    return fail(op, f"{name} must be an integer from {least} to {MOST}, found {value}")


def check_kind(op, name: str, kind: type[ir.Attribute], what: str) -> bool:
    """The attribute, where it is present, is of that class; `what` names it to people."""
    if name not in op.attributes or isinstance(op.attributes[name], kind):
        return True
    return fail(op, f"{name} must be {what}, found {op.attributes[name]}")


def stands_in(op, *names: str) -> bool:
    """The operation's parent is one of these."""
    parent = op.operation.parent
    if parent is not None and parent.operation.name in names:
        return True
    return fail(op, f"must stand directly in a {' or '.join(names)}")


def check_body(op) -> bool:
    """One block without arguments (IRDL would take any)."""
    blocks = op.regions[0].blocks
    if len(blocks) != 1:
        return fail(op, f"body must be one block, found {len(blocks)}")
    if len(blocks[0].arguments):
        return fail(op, "body takes no arguments; it names the values around it")
    return True


def verify_endpoint(op, tile: ir.Type) -> bool:
    """Shared by the ops that touch one queue from inside a stage (the bindings allow one base class)."""
    if not defined_by(op.operands[0], "kitsune.queue"):
        return fail(op, "takes its queue straight from a kitsune.queue")
    if tile != op.operands[0].type.tile:
        return fail(op, f"tile type {tile} does not match queue tile type {op.operands[0].type.tile}")
    return stands_in(op, "kitsune.stage")


def verify_like(op, like: list[ir.Value]) -> bool:
    """That the operands which say how many rows an output has, if any, are one tensor."""
    if len(like) > 1 or any(not isinstance(value.type, ir.RankedTensorType) or not value.type.rank for value in like):
        return fail(op, f"has as many rows as one tensor, found {', '.join(str(value.type) for value in like)}")
    return True


def has_its_rows(op, output: ir.Type, like: list[ir.Value]) -> bool:
    """Whether a tensor says how many rows an output has if these are open."""
    if ir.RankedTensorType(output).is_dynamic_dim(0) == bool(like):
        return True
    return fail(op, f"has rows of {output} {'and' if like else 'without'} a tensor that has as many")


def defined_by(value: ir.Value, *names: str) -> bool:
    """Whether an operation of one of these names, not a block argument, makes the value."""
    return isinstance(value.owner, ir.Operation | ir.OpView) and value.owner.operation.name in names


def verify_result(result: ResultOp, stores: list[StoreOp], count: int | None) -> bool:
    """Run by the pipeline, which knows its stores and its `count` of rows; the result itself may not have been verified
    yet."""
    index = result.attributes["index"] if "index" in result.attributes else None
    if not isinstance(index, ir.IntegerAttr) or index.value < 0 or len(result.results) != 1:
        return True  # the result's own verifier reports it
    if index.value >= len(stores):
        return fail(result, f"index {index.value} has no kitsune.store in the pipeline")
    store = stores[index.value]
    tile, whole = store.operands[0].type, result.results[0].type
    if store.operation.name == "kitsune.scatter":
        fits = isinstance(whole, ir.RankedTensorType) and whole.element_type == tile.element_type
        if not fits or list(whole.shape)[1:] != list(tile.shape)[1:]:
            return fail(result, f"type {whole} does not have rows as the scattered tiles {tile}")
        return has_its_rows(store, whole, store.like)
    stage = parent_of(store, "kitsune.stage")
    if stage is not None and not stage.opview.fires_once:
        if not is_row_tile(tile, whole):
            return fail(result, f"type {whole} is not made of row tiles {tile}")
        if not _may_have_rows(whole, count):
            return fail(result, f"type {whole} does not have the {count} rows that the pipeline streams")
    elif tile != whole:
        return fail(result, f"type {whole} is not the stored type {tile}")
    return True


def verify_placed(pipeline: PipelineOp) -> bool:
    """Run by the pipeline: what placement decides is there, and every tile has the rows that it decided on."""
    for stage in pipeline.stages:
        if stage.role is None or stage.replicas is None:
            return fail(stage, "of a placed pipeline needs a role and replicas")
    for queue in pipeline.queues:
        if queue.transport is None:
            return fail(queue, "of a placed pipeline needs a transport")
    count = pipeline.tile_rows
    for stage in pipeline.stages:
        tiles = [(op, op.results[0]) for op in (*stage.loads, *stage.gets)]
        tiles += [(put, put.operands[1]) for put in stage.puts]
        tiles += [(store, store.operands[0]) for store in stage.stores if not stage.fires_once]
        for op, tile in tiles:
            if tile.type.rank == 0 or tile.type.shape[0] != count:
                return fail(op, f"has a tile of type {tile.type} in a pipeline whose tiles have {count} rows")
    return True


def verify_rows(pipeline: PipelineOp) -> bool:
    """Run by the pipeline: all tensors that it streams have the same rows, as far as these are known."""
    count = pipeline.row_count
    for load in (load for stage in pipeline.stages for load in stage.loads):
        whole = load.operands[0].type
        if not _may_have_rows(whole, count):
            return fail(load, f"streams a tensor of type {whole} beside others of {count} rows")
    return True


def _may_have_rows(whole: ir.RankedTensorType, count: int | None) -> bool:
    """Whether a tensor can have so many rows; either number may be open."""
    return count is None or whole.is_dynamic_dim(0) or whole.shape[0] == count


def verify_queue(queue: QueueOp, order: dict[str, int]) -> bool:
    """Run by the pipeline; `order` gives the position of each stage."""
    users = {user.name for user in users_of(queue.results[0])}
    per_tile = {"kitsune.put", "kitsune.get"}
    once = {"kitsune.accumulate", "kitsune.reduce"}
    if users - per_tile - once:
        return fail(queue, f"is used by {min(users - per_tile - once)}; only get, put, accumulate and reduce may")
    producers, consumers = queue.producers, queue.consumers
    if len(producers) != 1:
        return fail(queue, f"needs exactly one kitsune.put or kitsune.accumulate, found {len(producers)}")
    if not consumers:
        return fail(queue, "needs at least one consumer stage")
    if users not in (per_tile, once):
        return fail(queue, "joins kitsune.accumulate with kitsune.reduce, or kitsune.put with kitsune.get")
    labels = [consumer.label for consumer in consumers]
    if len(set(labels)) != len(labels):
        return fail(queue, "is taken from twice by one stage; get once and use the tile twice")
    producer = producers[0].label
    for label in labels:
        if order[label] <= order[producer]:
            return fail(queue, f"is consumed by stage '{label}', which does not stand after its producer '{producer}'")
    return True


def constant(value: ir.Value) -> int | None:
    """The number that an index is; None where it is no constant."""
    if not defined_by(value, "arith.constant"):
        return None
    return attr_int(value.owner.operation, "value")
