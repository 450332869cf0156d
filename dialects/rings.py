"""Rings of slots, and how slots are opened and closed."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from typing import Any

from kitsune_mlir.mlir import ext, ir
from kitsune_mlir.operations import users_of

from .checks import defined_by, fail, parent_of, string
from .kernels import COLLECT, COPY, FILL, GATHER_ROWS, PRODUCT, READ, ROLE, SEND, SPLIT, STOW, AgentOp, KernelOp, inside
from .tiles import RingEffect
from .types import Kitsune, Ring, Slot, Token, tile_of

SMEM, DSMEM, L2 = "smem", "dsmem", "l2"
SPACES = (SMEM, DSMEM, L2)
BOXES = ("rows", "columns", "dense")
SHARES = ("all", "split", "own")
STEP_BYTES = 32  # of k that tensor cores multiply at a time, whatever the elements


class AllocRingOp(Kitsune.Operation, name="alloc_ring"):
    """A ring of slots in `space`. A slot's tile lies in swizzled boxes along its "rows" or its "columns": the dimension
    whose elements are neighbours there; or "dense", a row of elements one after another, which threads read.
    Consumers' copies see all of a slot (`share` "all") or their part of its rows ("split"). An agent of one copy fills
    it, by copies, or with a tile from its registers (`kitsune.fill`). Where each copy has its
    part to itself ("own") it fills it by itself, too, with tiles from its registers (`kitsune.stow`); or, where the
    space is "dsmem", other CTAs of the cluster do (`kitsune.send`, `kitsune.collect`). A dense ring whose tiles have no
    elements passes turns: agents wait for one another there, and nothing is copied.

    A ring in "l2" lies between roles: the CTAs of one fill it, those of one or several others take all of it. Whoever
    opens it does so once in each turn of its loop over tiles, and gets the slot of that turn's tile: of tile t, slot t
    modulo their number. It closes the slot in the same turn, behind all copies into it and out of it."""

    sym_name: ir.StringAttr
    space: ir.StringAttr
    box: ir.StringAttr
    share: ir.StringAttr
    ring: ext.Result[Ring]

    @property
    def label(self) -> str:
        return string(self, "sym_name")

    @property
    def layout(self) -> str:
        return string(self, "box")

    @property
    def sharing(self) -> str:
        return string(self, "share")

    @property
    def memory(self) -> str:
        return string(self, "space")

    @property
    def tile(self) -> ir.RankedTensorType:
        return ir.RankedTensorType(self.results[0].type.tile)

    @property
    def is_between_roles(self) -> bool:
        """Whether it lies in "l2"."""
        return self.memory == L2

    @property
    def slots(self) -> int:
        return self.results[0].type.slots

    @property
    def slot_bytes(self) -> int:
        rows, columns = self.tile.shape
        return rows * columns * self.tile.element_type.width // 8

    @property
    def is_filled_by_threads(self) -> bool:
        """Whether threads store what its slots in shared memory hold (`kitsune.fill`, `kitsune.split`), or copy it
        there by themselves (`kitsune.gather_rows`)."""
        if self.memory != SMEM:
            return False
        uses = self._uses_of_slots(SPLIT, FILL, GATHER_ROWS)
        return any(use.operand_number > 0 or use.owner.operation.name != SPLIT for use in uses)

    @property
    def is_collected(self) -> bool:
        """Whether several CTAs fill each of its slots together (`kitsune.collect`)."""
        return any(use.owner.operation.name == COLLECT for use in self.results[0].uses)

    @property
    def is_read_by_threads(self) -> bool:
        """Whether threads load numbers out of its boxes (`kitsune.read`, `kitsune.split`)."""
        if self.memory != SMEM or self.layout == "dense":
            return False
        uses = self._uses_of_slots(SPLIT, READ)
        return any(use.operand_number == 0 or use.owner.operation.name != SPLIT for use in uses)

    @property
    def is_rounded(self) -> bool:
        """Whether its numbers are rounded to tf32 by all copies that bring them, or brought what they are made of."""
        made = [use.owner.operation for use in self._uses_of_slots(SPLIT) if use.operand_number > 0]
        rings = [ring for op in made if (ring := ring_of(op.operands[0])) is not None]
        copies = [use.owner.operation.opview for use in self._uses_of_slots(COPY) if use.operand_number == 0]
        return bool(rings or copies) and all(source.is_rounded for source in (*rings, *copies))

    @property
    def is_left_operand(self) -> bool:
        """Whether products take its slots as their left operand."""
        return any(use.operand_number == 1 for use in self._uses_of_slots(PRODUCT))

    @property
    def has_rows_of_products(self) -> bool:
        """Whether nobody but products reads its slots, and none of these sums over their rows."""
        products = [use for use in self._uses_of_slots(PRODUCT) if use.operand_number == 2]
        turned = any(use.owner.operation.opview.is_turned for use in products)
        return not turned and not self.is_read_by_threads

    def _uses_of_slots(self, *names: str) -> list[ir.OpOperand]:
        """Where operations of these names use slots as they were opened."""
        opened = users_of(self.results[0])
        opened = [op for op in opened if op.name in (AcquireOp.OPERATION_NAME, WaitOp.OPERATION_NAME)]
        return [use for op in opened for use in op.results[0].uses if use.owner.operation.name in names]

    @property
    def has_elements(self) -> bool:
        """Whether its tiles hold anything; a ring that passes turns alone has none."""
        return self.slot_bytes > 0

    def _verify_opened(self) -> bool:
        """Nobody waits for more of a slot than its producer opens: what stood there before is no part of its tile."""
        opened, awaited = (
            [tile_of(use.owner.operation.results[0]).shape for use in self.results[0].uses if use.owner.name == name]
            for name in (AcquireOp.OPERATION_NAME, WaitOp.OPERATION_NAME)
        )
        if not opened or any(len(shape) != 2 for shape in (*opened, *awaited)):
            return True
        most = [max(shape[d] for shape in opened) for d in (0, 1)]
        for shape in awaited:
            if any(size > own for size, own in zip(shape, most)):
                sizes = " x ".join(map(str, shape)), " x ".join(map(str, most))
                return fail(self, "is waited for with {} of a slot that is opened with {}".format(*sizes))
        return True

    def verify_region_invariants(self) -> bool:
        for name, allowed in (("space", SPACES), ("box", BOXES), ("share", SHARES)):
            if string(self, name) not in allowed:
                return fail(self, f"{name} must be one of {', '.join(allowed)}, found {self.attributes[name]}")
        if not isinstance(self.results[0].type.tile, ir.RankedTensorType) or not self.tile.has_static_shape:
            return fail(self, f"tile type must be a ranked tensor of known sizes, found {self.results[0].type.tile}")
        if self.tile.rank != 2 or self.slots < 1:
            return fail(self, f"holds tiles of two dimensions in 1 slot or more, found {self.results[0].type}")
        if self.layout == "dense" and (self.tile.shape[0] != 1 or self.sharing != "all"):
            return fail(self, f"holds dense tiles of one row for all copies, found {self.tile}")
        if self.memory == DSMEM and (self.sharing, self.layout) != ("own", "rows"):
            return fail(self, "has tiles of other CTAs as rows that are each copy's own")
        if self.memory == L2 and (self.sharing, self.layout) != ("all", "rows"):
            return fail(self, "has tiles of other roles as rows, for all copies")
        if not self._verify_opened():
            return False
        kernel = parent_of(self, KernelOp.OPERATION_NAME)
        if kernel is not None and (self.memory == L2) != (self.operation.parent == kernel and kernel.opview.has_roles):
            return fail(self, f"lies in {L2} where it stands between {ROLE}s, and there alone")
        return inside(self, KernelOp.OPERATION_NAME)


class AcquireOp(Kitsune.Operation, name="acquire", traits=[RingEffect]):
    """The producer's: waits for the next slot to be empty. Where tiles lie in boxes along rows, a turn may have fewer
    rows than the ring's tile: those of the slot's type, at both ends; a second copy has no part of them. So may it have
    fewer columns, of multiples of 32 bytes."""

    ring: ext.Operand[Ring]
    slot: ext.Result[Slot]

    def verify_region_invariants(self) -> bool:
        return _verify_opened(self)


class WaitOp(Kitsune.Operation, name="wait", traits=[RingEffect]):
    """A consumer's: waits for the next slot to be full."""

    ring: ext.Operand[Ring]
    slot: ext.Result[Slot]

    def verify_region_invariants(self) -> bool:
        return _verify_opened(self)


class CommitOp(Kitsune.Operation, name="commit", traits=[RingEffect]):
    """The producer's: the slot is full once the work of these tokens is done; one in "l2" once all copies of the agent
    have filled it."""

    slot: ext.Operand[Slot]
    after: Sequence[ext.Operand[Token]]

    def verify_region_invariants(self) -> bool:
        return _verify_closed(self)


class ReleaseOp(Kitsune.Operation, name="release", traits=[RingEffect]):
    """A consumer's: its copy has done with the slot once the work of these tokens is done; it is empty once all of its
    copies have."""

    slot: ext.Operand[Slot]
    after: Sequence[ext.Operand[Token]]

    def verify_region_invariants(self) -> bool:
        return _verify_closed(self)


def ring_of(slot: ir.Value) -> AllocRingOp | None:
    """The ring whose slot a value is; through the loops that carry it. None where it comes from something else."""
    while True:
        owner = slot.owner
        if isinstance(owner, ir.Block):  # carried by a loop: what it begins with
            loop = owner.owner
            if loop.operation.name != "scf.for":
                return None
            slot = loop.operands[3 + ir.BlockArgument(slot).arg_number - 1]
        elif owner.operation.name == "scf.for":
            slot = owner.operation.operands[3 + ir.OpResult(slot).result_number]
        elif owner.operation.name in (AcquireOp.OPERATION_NAME, WaitOp.OPERATION_NAME, STOW):
            return owner.operation.operands[0].owner.operation.opview
        else:
            return None


def is_between(ring: ir.Value) -> bool:
    """Whether a ring lies between roles."""
    return ring.owner.operation.opview.is_between_roles


def distance(ring: AllocRingOp) -> int:
    """How far behind a CTA, in its cluster, the one is that fills a ring in "dsmem" (`kitsune.send`)."""
    (use,) = {use.operand_number for use in ring.results[0].uses if use.owner.operation.name == SEND}
    return use + 1


def is_stowed(slot: ir.Value) -> bool:
    """Whether the ring of a slot is each copy's own."""
    ring = ring_of(slot)
    return ring is not None and ring.sharing == "own"


def _verify_opened(op: Any) -> bool:
    if not defined_by(op.operands[0], AllocRingOp.OPERATION_NAME):
        return fail(op, "takes its operand straight from a kitsune.alloc_ring")
    tile, ring = tile_of(op.results[0]), op.operands[0].owner.operation.opview
    if ring.sharing == "own" and (ring.memory != DSMEM or op.OPERATION_NAME == AcquireOp.OPERATION_NAME):
        does = f"{SEND} or {COLLECT}" if ring.memory == DSMEM else STOW
        return fail(op, f"opens a slot of ring '{ring.label}', which {does} alone does")
    if ring.memory == DSMEM and _is_narrower(tile, ring.tile):
        return inside(op, AgentOp.OPERATION_NAME)
    if tile != ring.tile and not _is_corner(tile, ring):
        return fail(op, f"gives a slot of type {op.results[0].type}, of a ring of type {op.operands[0].type}")
    return inside(op, AgentOp.OPERATION_NAME)


def _is_narrower(tile: ir.Type, whole: ir.RankedTensorType) -> bool:
    """Whether a tile has a ring's rows, and no more columns than its tiles."""
    if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2 or tile.element_type != whole.element_type:
        return False
    return tile.shape[0] == whole.shape[0] and 0 < tile.shape[1] <= whole.shape[1]


def _is_corner(tile: ir.Type, ring: AllocRingOp) -> bool:
    """Whether a tile is the first rows of those of a ring whose boxes lie along rows, and all their columns or, in
    shared memory, the first ones, whole steps of a product."""
    if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2 or ring.layout != "rows":
        return False
    (rows, columns), whole = tile.shape, ring.tile
    inside = 0 < rows <= whole.shape[0] and 0 < columns <= whole.shape[1]
    steps = ring.memory == SMEM and columns * tile.element_type.width // 8 % STEP_BYTES == 0
    return inside and tile.element_type == whole.element_type and (columns == whole.shape[1] or steps)


def _verify_closed(op: Any) -> bool:
    others = [use.owner.operation.name for use in op.operands[0].uses if use.owner.operation != op.operation]
    if any(name in (CommitOp.OPERATION_NAME, ReleaseOp.OPERATION_NAME) for name in others):
        return fail(op, "closes a slot that is closed elsewhere too")
    ring = ring_of(op.operands[0])
    if len(op.operands) > 1 and ring is not None and ring.memory == L2:
        return fail(op, f"takes no tokens: a slot of ring '{ring.label}', in {L2}, waits for all copies by itself")
    return inside(op, AgentOp.OPERATION_NAME)
