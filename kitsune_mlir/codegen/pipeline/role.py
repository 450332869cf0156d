"""The code of one role for one row tile: its stages in order, queues acquired and released around each."""

from __future__ import annotations

from dataclasses import dataclass, field

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.traffic import element_bytes

from . import arena, device, loops, products
from .evaluate import Recomputed
from .memory import Memory, compute_type, element_of, shape_of
from .nests import MAP, PRODUCT, Nest, StageNests, kitsune_label
from .ring import Ring

ON_CHIP = ("reg", "smem")


@dataclass
class Surroundings:
    """What a role's code uses from the kernel around it."""

    pointers: dict[int, ir.Value]  # whole tensor -> its address
    outputs: dict[int, ir.Value]  # output number -> its address
    rings: dict[str, Ring]  # by queue
    shared: ir.Value  # start of shared memory


@dataclass
class Role:
    """Stages that run one after another on the same CTAs."""

    stages: list[kitsune.StageOp]
    replicas: int
    nests: list[StageNests] = field(init=False)
    offsets: dict[int, int] = field(init=False)
    shared_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self._check()
        on_chip = {
            kitsune_label(put.operands[0])
            for stage in self.stages
            for put in stage.puts
            if rows.producer(put.operands[0]).opview.transport in ON_CHIP
        }
        self.on_chip = on_chip
        self.nests = [StageNests(stage, on_chip) for stage in self.stages]
        tile_rows = self.stages[0].operation.parent.opview.tile_rows
        self.offsets, self.shared_bytes = arena.allocate(_blocks(self.stages, self.nests, on_chip, tile_rows))

    def _check(self) -> None:
        for stage in self.stages:
            if stage.reduces or stage.accumulates:
                raise UnsupportedError("sums over the rows are not split over CTAs on a GPU yet")
            for op in stage.block.operations:
                if op.operation.name == "linalg.matmul":
                    products.check_product(op.operation)
                    if op.operands[1] not in stage.residents:
                        raise UnsupportedError("a product with a weight that the stage computes has no kernel form")

    def emit(self, tile: ir.Value, valid: ir.Value, row: ir.Value, around: Surroundings) -> None:
        """Code for row tile number `tile`, whose first row is `row` (i64) and which has `valid` rows."""
        memories: dict[int, Memory | Recomputed] = {}
        alias = _alias(self.stages, self.on_chip)
        for stage, stage_nests in zip(self.stages, self.nests):
            with stage.operation.location:
                self._stage(stage, stage_nests, _Place(tile, valid, row, around, memories, alias))

    def _stage(self, stage: kitsune.StageOp, nests: StageNests, place: _Place) -> None:
        for get in stage.gets:
            place.get(get)
        for load in stage.loads:
            place.memories[hash(load.results[0])] = place.rows_of(
                place.around.pointers[hash(load.operands[0])], load.results[0]
            )
        for value in stage.residents:
            place.memories[hash(value)] = _whole(place.around.pointers[hash(value)], value)
        rings_out = [r for put in stage.puts if (r := place.around.rings.get(kitsune_label(put.operands[0])))]
        for nest in nests:
            if nest.kind == MAP and nest.local and compute_type(element := element_of(nest.value)) != element:
                place.memories.setdefault(hash(nest.value), Recomputed(element))
        for ring in rings_out:
            ring.wait_empty(place.tile)
        for nest in nests:
            with (nest.op or nest.value.owner).location:
                self._nest(nest, place)
            device.barrier()
        for ring in rings_out:
            ring.publish(place.tile)
        for get in stage.gets:
            if (ring := place.around.rings.get(kitsune_label(get.operands[0]))) is not None:
                ring.release(place.tile)

    def _nest(self, nest: Nest, place: _Place) -> None:
        if isinstance(place.memories.get(hash(nest.value)), Recomputed):
            del place.memories[hash(nest.value)]
        targets: list[list[Memory]] = []
        for value in nest.values:
            local = self._local(value, place.around.shared) if nest.local else None
            targets.append(([local] if local else []) + place.targets(nest, value))
        if nest.kind == PRODUCT:
            loops.emit_product(nest, place.memories, targets[0])
        elif nest.kind == MAP:
            loops.emit_map(nest.value, place.memories, targets[0])
        else:
            assert nest.op is not None
            loops.emit_reduction(nest.op, place.memories, targets)
        if nest.local:
            for value, stored in zip(nest.values, targets):
                if isinstance(stored[0].element, ir.FloatType):
                    loops.emit_padding(stored[0], _padded(value))
                place.memories[hash(value)] = stored[0]

    def _local(self, value: ir.Value, shared: ir.Value) -> Memory:
        start = device.offset(shared, self.offsets[hash(value)], ir.IntegerType.get_signless(8))
        return Memory(start, element_of(value), shape_of(value), _stride(value))


def shared_bytes(stages: list[kitsune.StageOp], on_chip: set[str], tile_rows: int) -> int:
    """Bytes of shared memory that stages would take in one role, with tiles of so many rows: of a designed pipeline,
    placed or not. The queues `on_chip` stay in the CTA."""
    nests = [StageNests(stage, on_chip) for stage in stages]
    return arena.allocate(_blocks(stages, nests, on_chip, tile_rows))[1]


def _alias(stages: list[kitsune.StageOp], on_chip: set[str]) -> dict[int, int]:
    """A get from an on-chip queue reads what its put stored: key of the tile got -> key of the tile put."""
    put = {
        kitsune_label(op.operands[0]): hash(op.operands[1])
        for stage in stages
        for op in stage.puts
        if kitsune_label(op.operands[0]) in on_chip
    }
    return {
        hash(op.results[0]): put[kitsune_label(op.operands[0])]
        for stage in stages
        for op in stage.gets
        if kitsune_label(op.operands[0]) in on_chip
    }


def _blocks(
    stages: list[kitsune.StageOp], nests: list[StageNests], on_chip: set[str], tile_rows: int
) -> list[arena.Block]:
    """Shared memory wanted: every local value from the nest that stores it to its last reader."""
    alias = _alias(stages, on_chip)
    birth: dict[int, tuple[int, int]] = {}
    death: dict[int, int] = {}
    number = 0
    for stage_nests in nests:
        for nest in stage_nests:
            for key in stage_nests.leaves(nest):
                death[alias.get(key, key)] = number
            if nest.local:
                for value in nest.values:
                    birth[hash(value)] = number, tile_rows * _stride(value) * element_bytes(element_of(value))
            number += 1
    return [arena.Block(key, nbytes, born, max(born, death.get(key, born))) for key, (born, nbytes) in birth.items()]


@dataclass
class _Place:
    """A role at work on one tile."""

    tile: ir.Value
    valid: ir.Value
    row: ir.Value
    around: Surroundings
    memories: dict[int, Memory | Recomputed]
    alias: dict[int, int]

    def get(self, get: kitsune.GetOp) -> None:
        ring = self.around.rings.get(kitsune_label(get.operands[0]))
        if ring is None:
            self.memories[hash(get.results[0])] = self.memories[self.alias[hash(get.results[0])]]
        else:
            ring.wait_full(self.tile)
            self.memories[hash(get.results[0])] = ring.slot(self.tile)

    def rows_of(self, pointer: ir.Value, tile: ir.Value) -> Memory:
        """This tile's rows of a whole tensor."""
        memory = Memory(pointer, element_of(tile), shape_of(tile), 0, self.valid)
        memory.stride = memory.columns
        nbytes = element_bytes(memory.element) * memory.columns
        start = arith.muli(self.row, arith.constant(ir.IntegerType.get_signless(64), nbytes))
        memory.pointer = device.offset(pointer, start, ir.IntegerType.get_signless(8))
        return memory

    def targets(self, nest: Nest, value: ir.Value) -> list[Memory]:
        """Ring slots and outputs that a stored value goes to."""
        slots = [
            self.around.rings[kitsune_label(put.operands[0])].slot(self.tile)
            for put in nest.puts
            if put.operands[1] == value
        ]
        outputs = [
            self.rows_of(self.around.outputs[store.position], value)
            for store in nest.stores
            if store.operands[0] == value and store.position in self.around.outputs
        ]
        return slots + outputs


def _whole(pointer: ir.Value, value: ir.Value) -> Memory:
    shape = shape_of(value)
    memory = Memory(pointer, element_of(value), shape, 0)
    memory.stride = memory.columns
    return memory


def _columns(value: ir.Value) -> int:
    columns = 1
    for size in shape_of(value)[1:]:
        columns *= size
    return columns


def _padded(value: ir.Value) -> int:
    return products.padded_columns(_columns(value))


def _stride(value: ir.Value) -> int:
    element = element_of(value)
    if isinstance(element, ir.BF16Type | ir.F16Type | ir.F32Type):
        return products.a_stride(_columns(value), element)
    return _padded(value)


def streamed(pipeline: kitsune.PipelineOp, tensors: list[ir.Value]) -> list[int]:
    """The numbers of the streamed tensors among a kernel's inputs; all have the same rows."""
    keys = [hash(value) for value in tensors]
    return sorted({keys.index(hash(load.operands[0])) for stage in pipeline.stages for load in stage.loads})
