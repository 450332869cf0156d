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

Verifiers are `verify_region_invariants` throughout: unlike `verify_invariants` that hook runs after the
declared operands, attributes, results and regions were checked, so it may rely on them.
"""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

import os
import threading
from collections.abc import Iterator
from typing import Any

from kitsune_mlir.mlir import ext, ir, walk
from kitsune_mlir.operations import operations_of, users_of
from kitsune_mlir.planning.flow import TRANSPORTS, UNITS
from kitsune_mlir.planning.place import SHAPES

from .captures import captures
from .checks import (
    MOST,
    check_body,
    check_integer,
    check_kind,
    fail,
    integer,
    number,
    parent_of,
    stands_in,
    string,
    verify_placed,
    verify_queue,
    verify_result,
    verify_rows,
)
from .clusters import MeetOp, RankOp  # noqa: F401  (part of the dialect)
from .dots import DotsOp, StashOp  # noqa: F401  (part of the dialect)
from .filter_gradient import FilterGradientOp  # noqa: F401  (part of the dialect)
from .firsts import FirstsOp  # noqa: F401  (part of the dialect)
from .fourier import FourierOp  # noqa: F401  (part of the dialect)
from .gather_rows import GatherRowsOp  # noqa: F401  (part of the dialect)
from .look_up import LookUpOp  # noqa: F401  (part of the dialect)
from .order import OrderOp  # noqa: F401  (part of the dialect)
from .prefetch import PrefetchOp  # noqa: F401  (part of the dialect)
from .recurrent import RecurrentOp  # noqa: F401  (part of the dialect)
from .results import ResultOp, result  # noqa: F401  (part of the dialect)
from .roles import FillOp, RoleOp  # noqa: F401  (part of the dialect)
from .spread import SpreadOp  # noqa: F401  (part of the dialect)
from .stow import StowOp  # noqa: F401  (part of the dialect)
from .systems import CholeskyOp, PivotsOp, SolveOp, SubstituteOp  # noqa: F401  (part of the dialect)
from .tiles import AccumulateOp, GetOp, LoadOp, PlaceOp, PutOp, ReduceOp, ScatterOp, StoreOp
from .types import Kitsune, Outputs, Ring, ring_type  # noqa: F401  (part of the dialect)
from .unchanged import asked_once
from .windows import WindowsOp  # noqa: F401  (part of the dialect)
from .write_rows import WriteRowsOp  # noqa: F401  (part of the dialect)

OUTPUTS = (StoreOp.OPERATION_NAME, ScatterOp.OPERATION_NAME, PlaceOp.OPERATION_NAME)
OutputOp = StoreOp | ScatterOp | PlaceOp


class QueueOp(Kitsune.Operation, name="queue"):
    """Declares a queue: one producer stage, one or more consumer stages, each of which gets every tile.

    `transport` is open until placement, then one of reg, smem, dsmem, l2, hbm.
    """

    sym_name: ir.StringAttr
    queue: ext.Result[Ring]

    @property
    def label(self) -> str:
        return string(self, "sym_name")

    @property
    def transport(self) -> str | None:
        return string(self, "transport")

    @property
    def ring(self) -> Ring:
        return self.results[0].type

    @asked_once
    def _stages(self, *names: str) -> list["StageOp"]:
        users = users_of(self.results[0])
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

    def verify_region_invariants(self) -> bool:
        if not isinstance(self.ring.tile, ir.RankedTensorType):
            return fail(self, f"tile type must be a ranked tensor, found {self.ring.tile}")
        if ir.ShapedType.get_dynamic_size() in self.ring.tile.shape[1:]:
            return fail(self, f"tile type may be dynamic in its rows only, dimension 0, found {self.ring.tile}")
        if not 1 <= self.ring.slots <= MOST:
            return fail(self, f"depth must be from 1 to {MOST}, found {self.ring.slots}")
        if "transport" in self.attributes:
            transport = self.attributes["transport"]
            if not isinstance(transport, ir.StringAttr) or transport.value not in TRANSPORTS:
                return fail(self, f"transport must be one of {', '.join(TRANSPORTS)}, found {transport}")
        return stands_in(self, PipelineOp.OPERATION_NAME)


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
        return string(self, "sym_name")

    @property
    def unit(self) -> str:
        """Either "tensor" or "simt"."""
        return string(self, "kind")

    @property
    def role(self) -> int | None:
        return integer(self, "role")

    @property
    def replicas(self) -> int | None:
        return integer(self, "replicas")

    @property
    def block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @asked_once
    def _ops(self, *names: str) -> list[ir.Operation]:
        return [op for op in self.block.operations if op.operation.name in names]

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
    def stores(self) -> list[OutputOp]:
        """What it writes outputs with."""
        return self._ops(*OUTPUTS)

    @property
    def fires_once(self) -> bool:
        return bool(self.reduces)

    @property
    @asked_once
    def residents(self) -> list[ir.Value]:
        """The tensors around the pipeline that the body names directly, in order of first use."""
        streamed = {op.operation for op in self.loads}
        return [value for value in captures(self, skip=streamed) if isinstance(value.type, ir.RankedTensorType)]

    def verify_region_invariants(self) -> bool:
        if self.unit not in UNITS:
            return fail(self, f"kind must be one of {', '.join(UNITS)}, found {self.attributes['kind']}")
        if not check_integer(self, "role", 0) or not check_integer(self, "replicas", 1) or not check_body(self):
            return False
        names = {op.operation.name for op in self.block.operations}
        each_tile = (GetOp, PutOp, LoadOp, AccumulateOp)
        if ReduceOp.OPERATION_NAME in names and any(op.OPERATION_NAME in names for op in each_tile):
            return fail(self, "with a kitsune.reduce fires once, so it cannot get, put, load or accumulate row tiles")
        return stands_in(self, PipelineOp.OPERATION_NAME)


class PipelineOp(Kitsune.Operation, name="pipeline", traits=[ir.NoTerminatorTrait]):
    """A group of operators that run at the same time, tiles of rows flowing between them.

    Until `design-pipeline` its body is the group's linalg on whole tensors with a `kitsune.store` for
    each output; then queues and stages, in an order in which every queue's producer stands before its
    consumers. Placement sets `tile_rows`, `target`, `predicted_us` (microseconds, of one run), `limit`, what that time
    is due to, `shape` ("chained", "fused" or "spatial") and `cluster`, the CTAs that share a tile's columns, a tile,
    or a partial sum (1 when absent).
    """

    sym_name: ir.StringAttr
    outputs: ext.Result[Outputs]
    body: ext.Region

    @property
    def label(self) -> str:
        return string(self, "sym_name")

    @property
    def tile_rows(self) -> int | None:
        return integer(self, "tile_rows")

    @property
    def shape(self) -> str | None:
        return string(self, "shape")

    @property
    def target(self) -> str | None:
        """The name of the target that the pipeline was placed for."""
        return string(self, "target")

    @property
    def predicted_us(self) -> float | None:
        return number(self, "predicted_us")

    @property
    def limit(self) -> str | None:
        return string(self, "limit")

    @property
    def row_count(self) -> int | None:
        """The rows that a designed pipeline streams; None when they are open until the call."""
        wholes = (load.operands[0].type for stage in self.stages for load in stage.loads)
        return next((whole.shape[0] for whole in wholes if not whole.is_dynamic_dim(0)), None)

    @property
    def cluster(self) -> int:
        return integer(self, "cluster") or 1

    @property
    def block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    @asked_once
    def stages(self) -> list[StageOp]:
        return [op.operation.opview for op in self.block.operations if op.operation.name == StageOp.OPERATION_NAME]

    @property
    @asked_once
    def queues(self) -> list[QueueOp]:
        return [op.operation.opview for op in self.block.operations if op.operation.name == QueueOp.OPERATION_NAME]

    @property
    def stores(self) -> list[OutputOp]:
        """What outputs are written with, by their index."""
        blocks = [self.block, *(stage.block for stage in self.stages)]
        ops = [op.operation for block in blocks for op in block.operations]
        found = [op.opview for op in ops if op.name in OUTPUTS]
        return sorted(found, key=lambda store: store.position)

    @property
    def result_ops(self) -> list["ResultOp"]:
        """The `kitsune.result`s that take outputs out, by index; an output may have none."""
        found = [use.owner.operation.opview for use in self.results[0].uses]
        return sorted(found, key=lambda taken: taken.position)

    @property
    @asked_once
    def inputs(self) -> list[ir.Value]:
        """The values from around the pipeline that it uses, in order of first use."""
        return captures(self)

    @property
    def is_designed(self) -> bool:
        return bool(self.stages)

    @property
    def is_placed(self) -> bool:
        return self.tile_rows is not None

    def verify_region_invariants(self) -> bool:
        if parent_of(self, PipelineOp.OPERATION_NAME) is not None:
            return fail(self, "cannot stand in another kitsune.pipeline")
        if not all(check_integer(self, name, 1) for name in ("tile_rows", "cluster")):
            return False
        if not check_body(self):
            return False
        if not check_kind(self, "shape", ir.StringAttr, "the name of a shape"):
            return False
        if self.shape not in (None, *SHAPES[1:]):
            return fail(self, f"shape must be one of {', '.join(SHAPES[1:])}, found '{self.shape}'")
        if not check_kind(self, "target", ir.StringAttr, "the name of a target"):
            return False
        if not check_kind(self, "predicted_us", ir.FloatAttr, "a number of microseconds"):
            return False
        if not check_kind(self, "limit", ir.StringAttr, "the name of a unit"):
            return False
        names = (QueueOp.OPERATION_NAME, StageOp.OPERATION_NAME)
        members = operations_of(self.block)
        if any(op.name in names for op in members):
            stranger = next((op for op in members if op.name not in names), None)
            if stranger is not None:
                return fail(stranger, "stands beside stages; a designed pipeline holds only queues and stages")
        if self.is_placed and self.is_designed and not verify_placed(self):
            return False
        return verify_rows(self) and self._verify_outputs() and self._verify_queues()

    def _verify_outputs(self) -> bool:
        stores = self.stores
        positions = [store.position for store in stores]
        if positions != list(range(len(stores))):
            return fail(self, f"stores outputs {positions}; wants each of 0 to n-1 once")
        users = users_of(self.results[0])
        for user in users:
            if user.name != ResultOp.OPERATION_NAME:
                return fail(user, "uses the outputs of a kitsune.pipeline; only kitsune.result may")
        count = self.row_count
        return all(verify_result(user.opview, stores, count) for user in reversed(users))

    def _verify_queues(self) -> bool:
        stages, queues = self.stages, self.queues
        for what, members in (("stage", stages), ("queue", queues)):
            labels: set[str] = set()
            for member in members:
                if member.label in labels:
                    return fail(member, f"has the name '{member.label}' of an earlier {what}; names must be unique")
                labels.add(member.label)
        order = {stage.label: i for i, stage in enumerate(stages)}
        return all(verify_queue(queue, order) for queue in queues)


def pipelines(module: Any) -> Iterator[PipelineOp]:
    """The pipelines of a module, in program order; safe to erase while iterating."""
    for op in walk(module, PipelineOp.OPERATION_NAME):
        yield op.opview


_turn = threading.Lock()


def _forget_turn() -> None:
    global _turn
    _turn = threading.Lock()  # a forked process may have copied one that is held for ever


os.register_at_fork(after_in_child=_forget_turn)


def load(ctx: ir.Context) -> None:
    """Loads the dialect into a context; a second call for the same context does nothing.

    Threads wait for each other: the bindings keep the definition in the class while they load it, so that a thread
    would load another's into the other's context, which dies of an operation that is registered twice.
    """
    with _turn, ctx, ir.Location.unknown():
        try:
            Kitsune.load()
        except ext.DialectAlreadyLoadedError:
            pass
