"""The kitsune dialect: spatial pipelines of stages joined by queues.

A `kitsune.pipeline` streams the rows of tensors through `kitsune.stage`s that run at the same time on
different thread blocks (CPU: threads); tiles of rows flow between them through `kitsune.queue`s.
Unplaced, a tile's rows are `?` and transports are open; `place-stages` fills in tile rows, roles,
replicas, transports and depths.

Regions are not isolated: a body names the tensors around it. What a stage loads it streams, one row
tile at a time; what it names directly is resident, the whole of it (weights). The generic form is the
only assembly form; two layers read:

    %p = "kitsune.pipeline"() ({
      %q = "kitsune.queue"() {sym_name = "hidden"} : () -> !kitsune.ring<tensor<?x256xf32>, 2 : i64>
      "kitsune.stage"() ({
        %tile = "kitsune.load"(%x) : (tensor<1000x64xf32>) -> tensor<?x64xf32>
        ... linalg on %tile and the weight %w0 ...
        "kitsune.put"(%q, %hidden) : (!kitsune.ring<...>, tensor<?x256xf32>) -> ()
      }) {kind = "tensor", sym_name = "up"} : () -> ()
      "kitsune.stage"() ({
        %hidden = "kitsune.get"(%q) : (!kitsune.ring<...>) -> tensor<?x256xf32>
        ...
        "kitsune.store"(%y) {index = 0 : i64} : (tensor<?x8xf32>) -> ()
      }) {kind = "tensor", sym_name = "down"} : () -> ()
    }) {sym_name = "mlp"} : () -> !kitsune.outputs
    %out = "kitsune.result"(%p) {index = 0 : i64} : (!kitsune.outputs) -> tensor<1000x8xf32>

Every operation has at most two operands and one result because IRDL, through which Python defines
dialects, wants all values of a variadic to have one type.
"""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Iterator
from typing import Any

from kitsune_mlir.mlir import ext, ir, walk

KINDS = ("tensor", "simt")
TRANSPORTS = ("reg", "smem", "dsmem", "l2", "hbm")


class _Writes(ir.MemoryEffectsOpInterface):
    """Queues carry state: nothing that touches one may be erased, merged or hoisted."""

    @staticmethod
    def get_effects(op, effects):
        effects.append(ir.MemoryEffect.Write, op.operation.op_operands[0])


class _QueueEffect:
    @staticmethod
    def attach(op_name):
        _Writes.attach(op_name)


class Kitsune(ext.Dialect, name="kitsune"):
    """The dialect."""


class Ring(Kitsune.Type, name="ring"):
    """`!kitsune.ring<TILE, DEPTH>`: the type of a queue, a bounded first-in-first-out ring of tiles.

    TILE is the ranked tensor type of one entry; DEPTH, at least 1, the number of entries. (IRDL keeps
    types and operations in one name space, so it cannot be called `queue` too.)
    """

    elem: ir.TypeAttr
    depth: ir.IntegerAttr

    @property
    def tile(self) -> ir.Type:
        return ir.TypeAttr(self.elem).value

    @property
    def slots(self) -> int:
        return ir.IntegerAttr(self.depth).value


class Outputs(Kitsune.Type, name="outputs"):
    """`!kitsune.outputs`: all that a pipeline computes; `kitsune.result` takes one tensor out of it."""


def ring_type(tile: ir.Type, depth: int) -> Ring:
    """The type of a queue of `depth` tiles of tensor type `tile`."""
    return Ring.get(tile, ir.IntegerAttr.get(ir.IntegerType.get_signless(64, tile.context), depth))


def is_row_tile(tile: ir.Type, whole: ir.Type) -> bool:
    """Whether `tile` is a block of rows (dimension 0) of `whole`: same rank, trailing sizes, elements."""
    if not isinstance(tile, ir.RankedTensorType) or not isinstance(whole, ir.RankedTensorType):
        return False
    same = tile.rank == whole.rank > 0 and tile.element_type == whole.element_type
    return same and tile.shape[1:] == whole.shape[1:]


def _fail(op, message: str) -> bool:
    op.operation.location.emit_error(f"'{op.operation.name}' op {message}")
    return False


def _string(op, name: str) -> str | None:
    return ir.StringAttr(op.attributes[name]).value if name in op.attributes else None


def _integer(op, name: str) -> int | None:
    return ir.IntegerAttr(op.attributes[name]).value if name in op.attributes else None


def _check_integer(op, name: str, least: int) -> bool:
    if name not in op.attributes:
        return True
    value = op.attributes[name]
    if isinstance(value, ir.IntegerAttr) and value.value >= least:
        return True
    return _fail(op, f"{name} must be an integer of at least {least}, found {value}")


def parent_of(op, name: str) -> ir.Operation | None:
    """The nearest enclosing operation of that name."""
    parent = op.operation.parent
    while parent is not None and parent.name != name:
        parent = parent.operation.parent
    return None if parent is None else parent.operation


class QueueOp(Kitsune.Operation, name="queue"):
    """Declares a queue: one producer stage, one or more consumer stages, each of which gets every tile.

    `transport` is open until placement, then one of reg, smem, dsmem, l2, hbm.
    """

    sym_name: ir.StringAttr
    queue: ext.Result[Ring]

    @property
    def label(self) -> str:
        return _string(self, "sym_name")

    @property
    def transport(self) -> str | None:
        return _string(self, "transport")

    @property
    def ring(self) -> Ring:
        return self.results[0].type

    def _stages(self, *names: str) -> list["StageOp"]:
        users = [use.owner.operation for use in self.results[0].uses]
        stages = [parent_of(user, StageOp.OPERATION_NAME) for user in users if user.name in names]
        return [stage.opview for stage in reversed(stages) if stage is not None]

    @property
    def producers(self) -> list["StageOp"]:
        """The stages that put or accumulate; the verifier sees to it that there is one."""
        return self._stages(PutOp.OPERATION_NAME, AccumulateOp.OPERATION_NAME)

    @property
    def consumers(self) -> list["StageOp"]:
        """The stages that get or reduce, each once."""
        return self._stages(GetOp.OPERATION_NAME, ReduceOp.OPERATION_NAME)

    def verify_invariants(self) -> bool:
        ring = self.results[0].type
        if not isinstance(ring, Ring):
            return True  # the dialect's own constraint reports it
        if not isinstance(ring.tile, ir.RankedTensorType):
            return _fail(self, f"tile type must be a ranked tensor, found {ring.tile}")
        if ring.slots < 1:
            return _fail(self, f"depth must be at least 1, found {ring.slots}")
        if "transport" in self.attributes:
            transport = self.attributes["transport"]
            if not isinstance(transport, ir.StringAttr) or transport.value not in TRANSPORTS:
                return _fail(self, f"transport must be one of {', '.join(TRANSPORTS)}, found {transport}")
        if parent_of(self, PipelineOp.OPERATION_NAME) is None:
            return _fail(self, "must stand in a kitsune.pipeline")
        return True


def _verify_endpoint(op, tile: ir.Type) -> bool:
    """Shared by the ops that touch one queue from inside a stage (the bindings allow one base class)."""
    ring = op.operands[0].type
    if isinstance(ring, Ring) and tile != ring.tile:
        return _fail(op, f"tile type {tile} does not match queue tile type {ring.tile}")
    if parent_of(op, StageOp.OPERATION_NAME) is None:
        return _fail(op, "must stand in a kitsune.stage")
    return True


class GetOp(Kitsune.Operation, name="get", traits=[_QueueEffect]):
    """Waits for the next full slot and gives its tile; the slot is released after the tile's last use."""

    queue: ext.Operand[Ring]
    tile: ext.Result[Any]

    def verify_invariants(self) -> bool:
        return _verify_endpoint(self, self.results[0].type)


class PutOp(Kitsune.Operation, name="put", traits=[_QueueEffect]):
    """Waits for an empty slot, writes the tile there and publishes it to every consumer."""

    queue: ext.Operand[Ring]
    tile: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        return _verify_endpoint(self, self.operands[1].type)


class AccumulateOp(Kitsune.Operation, name="accumulate", traits=[_QueueEffect]):
    """Adds `tile`, a term without a row dimension, to this replica's partial sum; the partial sum is put
    in the queue once, after the replica's last row tile. The split half of a reduction over rows
    (paper section 5.2, Algorithm 1)."""

    queue: ext.Operand[Ring]
    tile: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        return _verify_endpoint(self, self.operands[1].type)


class ReduceOp(Kitsune.Operation, name="reduce", traits=[_QueueEffect]):
    """Gets the partial sum of every replica of the producer and gives their sum. A stage with a reduce
    fires once, after the last row tile."""

    queue: ext.Operand[Ring]
    tile: ext.Result[Any]

    def verify_invariants(self) -> bool:
        return _verify_endpoint(self, self.results[0].type)


class LoadOp(Kitsune.Operation, name="load", traits=[ext.Pure]):
    """The stage's current row tile of a streamed tensor whose dimension 0 is the pipeline's rows."""

    whole: ext.Operand[Any]
    tile: ext.Result[Any]

    def verify_invariants(self) -> bool:
        if not is_row_tile(self.results[0].type, self.operands[0].type):
            return _fail(self, f"result type {self.results[0].type} is not a row tile of {self.operands[0].type}")
        if parent_of(self, StageOp.OPERATION_NAME) is None:
            return _fail(self, "must stand in a kitsune.stage")
        return True


class StoreOp(Kitsune.Operation, name="store", traits=[_QueueEffect]):
    """Writes output `index` of the pipeline: in a stage its current row tile (all of it when the stage
    fires once); directly in an undesigned pipeline, the whole tensor."""

    tile: ext.Operand[Any]
    index: ir.IntegerAttr

    @property
    def position(self) -> int:
        return _integer(self, "index")

    def verify_invariants(self) -> bool:
        if not isinstance(self.operands[0].type, ir.RankedTensorType):
            return _fail(self, f"stores a ranked tensor, found {self.operands[0].type}")
        if parent_of(self, PipelineOp.OPERATION_NAME) is None:
            return _fail(self, "must stand in a kitsune.pipeline")
        return _check_integer(self, "index", 0)


class StageOp(Kitsune.Operation, name="stage", traits=[ir.NoTerminatorTrait]):
    """A body that fires once for each row tile, on CTAs (threads) of its own.

    `kind` says which units it keeps busy, "tensor" or "simt". After placement `role` and `replicas`
    say which CTAs run it: stages of one role run one after another on the same CTAs, and replica r of
    n takes row tiles r, r + n, r + 2n, ...
    """

    sym_name: ir.StringAttr
    kind: ir.StringAttr
    body: ext.Region

    @property
    def label(self) -> str:
        return _string(self, "sym_name")

    @property
    def unit(self) -> str:
        """Either "tensor" or "simt"."""
        return _string(self, "kind")

    @property
    def role(self) -> int | None:
        return _integer(self, "role")

    @property
    def replicas(self) -> int | None:
        return _integer(self, "replicas")

    @property
    def block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    def _ops(self, name: str) -> list[ir.Operation]:
        return [op.operation.opview for op in self.block.operations if op.operation.name == name]

    @property
    def gets(self) -> list[GetOp]:
        return self._ops(GetOp.OPERATION_NAME)

    @property
    def puts(self) -> list[PutOp]:
        return self._ops(PutOp.OPERATION_NAME)

    @property
    def accumulates(self) -> list[AccumulateOp]:
        return self._ops(AccumulateOp.OPERATION_NAME)

    @property
    def reduces(self) -> list[ReduceOp]:
        return self._ops(ReduceOp.OPERATION_NAME)

    @property
    def loads(self) -> list[LoadOp]:
        return self._ops(LoadOp.OPERATION_NAME)

    @property
    def stores(self) -> list[StoreOp]:
        return self._ops(StoreOp.OPERATION_NAME)

    @property
    def fires_once(self) -> bool:
        return bool(self.reduces)

    @property
    def residents(self) -> list[ir.Value]:
        """The tensors around the pipeline that the body names directly, in order of first use."""
        streamed = {op.operation for op in self.loads}
        return [value for value in captures(self, skip=streamed) if isinstance(value.type, ir.RankedTensorType)]

    def verify_invariants(self) -> bool:
        if self.unit not in KINDS:
            return _fail(self, f"kind must be one of {', '.join(KINDS)}, found {self.attributes['kind']}")
        if parent_of(self, PipelineOp.OPERATION_NAME) is None:
            return _fail(self, "must stand in a kitsune.pipeline")
        return _check_integer(self, "role", 0) and _check_integer(self, "replicas", 1)

    def verify_region_invariants(self) -> bool:
        if len(self.regions[0].blocks) != 1:
            return _fail(self, "body must be one block")
        if self.fires_once and (self.gets or self.puts or self.loads or self.accumulates):
            return _fail(self, "with a kitsune.reduce fires once, so it cannot get, put, load or accumulate row tiles")
        return True


class PipelineOp(Kitsune.Operation, name="pipeline", traits=[ir.NoTerminatorTrait]):
    """A group of operators that run at the same time, tiles of rows flowing between them.

    Until `design-pipeline` its body is the group's linalg on whole tensors with a `kitsune.store` for
    each output; then queues and stages, in an order in which every queue's producer stands before its
    consumers. `tile_rows` and `target` are set by placement.
    """

    sym_name: ir.StringAttr
    outputs: ext.Result[Outputs]
    body: ext.Region

    @property
    def label(self) -> str:
        return _string(self, "sym_name")

    @property
    def tile_rows(self) -> int | None:
        return _integer(self, "tile_rows")

    @property
    def block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    def stages(self) -> list[StageOp]:
        return [op.operation.opview for op in self.block.operations if op.operation.name == StageOp.OPERATION_NAME]

    @property
    def queues(self) -> list[QueueOp]:
        return [op.operation.opview for op in self.block.operations if op.operation.name == QueueOp.OPERATION_NAME]

    @property
    def stores(self) -> list[StoreOp]:
        """By output index."""
        found = [op.opview for op in walk(self, StoreOp.OPERATION_NAME)]
        return sorted(found, key=lambda store: store.position)

    @property
    def result_ops(self) -> list["ResultOp"]:
        """The `kitsune.result`s that take outputs out, by index; an output may have none."""
        found = [use.owner.operation.opview for use in self.results[0].uses]
        return sorted(found, key=lambda result: result.position)

    @property
    def inputs(self) -> list[ir.Value]:
        """The values from around the pipeline that it uses, in order of first use."""
        return captures(self)

    @property
    def is_designed(self) -> bool:
        return bool(self.stages)

    @property
    def is_placed(self) -> bool:
        return self.tile_rows is not None

    def verify_invariants(self) -> bool:
        return _check_integer(self, "tile_rows", 1)

    def verify_region_invariants(self) -> bool:
        if len(self.regions[0].blocks) != 1:
            return _fail(self, "body must be one block")
        positions = [store.position for store in self.stores]
        if positions != list(range(len(positions))):
            return _fail(self, f"stores outputs {positions}; wants each of 0 to n-1 once")
        if not self.is_designed:
            return True
        strangers = [
            op.operation
            for op in self.block.operations
            if op.operation.name not in (QueueOp.OPERATION_NAME, StageOp.OPERATION_NAME)
        ]
        if strangers:
            return _fail(strangers[0], "stands beside stages; a designed pipeline holds only queues and stages")
        return self._verify_queues()

    def _verify_queues(self) -> bool:
        order = {stage.label: i for i, stage in enumerate(self.stages)}
        if len(order) != len(self.stages):
            return _fail(self, "stage names must be unique")
        for queue in self.queues:
            producers, consumers = queue.producers, queue.consumers
            if len(producers) != 1:
                return _fail(queue, f"needs exactly one kitsune.put or kitsune.accumulate, found {len(producers)}")
            if not consumers:
                return _fail(queue, "needs at least one consumer stage")
            if len({consumer.label for consumer in consumers}) != len(consumers):
                return _fail(queue, "is taken from twice by one stage; get once and use the tile twice")
            accumulated = any(op.operands[0] == queue.results[0] for op in producers[0].accumulates)
            for consumer in consumers:
                if order[consumer.label] <= order[producers[0].label]:
                    return _fail(
                        queue, f"is consumed by stage '{consumer.label}' before its producer '{producers[0].label}'"
                    )
                if consumer.fires_once != accumulated:
                    return _fail(queue, "joins kitsune.accumulate with kitsune.reduce, or kitsune.put with kitsune.get")
        return True


class ResultOp(Kitsune.Operation, name="result", traits=[ext.Pure]):
    """Output `index` of a pipeline as a whole tensor."""

    pipeline: ext.Operand[Outputs]
    index: ir.IntegerAttr
    whole: ext.Result[Any]

    @property
    def position(self) -> int:
        return _integer(self, "index")

    @property
    def store(self) -> StoreOp | None:
        """The store that makes this output."""
        stores = self.operands[0].owner.operation.opview.stores
        return next((store for store in stores if store.position == self.position), None)

    def verify_invariants(self) -> bool:
        if not isinstance(self.operands[0].type, Outputs):
            return True  # the dialect's own constraint reports it
        owner = self.operands[0].owner
        if not isinstance(owner, ir.Operation | ir.OpView) or owner.operation.name != PipelineOp.OPERATION_NAME:
            return _fail(self, "takes its operand straight from a kitsune.pipeline")
        if not _check_integer(self, "index", 0):
            return False
        if (store := self.store) is None:
            return _fail(self, f"index {self.position} has no kitsune.store in the pipeline")
        tile, whole = store.operands[0].type, self.results[0].type
        stage = parent_of(store, StageOp.OPERATION_NAME)
        if stage is not None and not stage.opview.fires_once:
            if not is_row_tile(tile, whole):
                return _fail(self, f"type {whole} is not made of row tiles {tile}")
        elif tile != whole:
            return _fail(self, f"type {whole} is not the stored type {tile}")
        return True


def captures(op, skip: set[ir.Operation] = frozenset()) -> list[ir.Value]:
    """The values defined outside `op` that its regions use, in order of first use.

    Uses by the operations in `skip` do not count.
    """
    inside = {id_of(value) for inner in walk(op) for value in inner.results}
    for inner in walk(op):
        for region in inner.regions:
            inside.update(id_of(argument) for block in region.blocks for argument in block.arguments)
    found: dict[int, ir.Value] = {}
    for inner in walk(op):
        if inner == op.operation or inner in skip:
            continue
        for value in inner.operands:
            if id_of(value) not in inside:
                found.setdefault(id_of(value), value)
    return list(found.values())


def id_of(value: ir.Value) -> int:
    """A key by which two Python handles of one SSA value are equal."""
    return hash(value)


def pipelines(module: Any) -> Iterator[PipelineOp]:
    """The pipelines of a module, in program order; safe to erase while iterating."""
    for op in walk(module, PipelineOp.OPERATION_NAME):
        yield op.opview


def load(ctx: ir.Context) -> None:
    """Loads the dialect into a context; a second call for the same context does nothing."""
    with ctx, ir.Location.unknown():
        try:
            Kitsune.load()
        except ext.DialectAlreadyLoadedError:
            pass
