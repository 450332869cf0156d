"""Reads a `kitsune.kernel` into the plain schedule that the proof works on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from kitsune_mlir import mlir
from kitsune_mlir.codegen.schedule.extents import rows_left
from kitsune_mlir.dialects import schedule as dialect
from kitsune_mlir.dialects.captures import id_of
from kitsune_mlir.dialects.checks import parent_of
from kitsune_mlir.dialects.roles import RoleOp
from kitsune_mlir.dialects.types import Acc, Slot, Token
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import users_of
from kitsune_mlir.planning.schedule import (
    Agent,
    Branch,
    Carried,
    Close,
    Copy,
    Done,
    Loop,
    Meet,
    Open,
    Place,
    Product,
    Read,
    Refused,
    Ring,
    Schedule,
    Settle,
    Side,
    Step,
    Sums,
    Touch,
    Use,
    Value,
)
from kitsune_mlir.planning.schedule_roles import End, Piece, Role, Roles

from .known_numbers import RANK, KnownNumbers, folded

LINEAR = (Slot, Token, Acc)
MOST_PIECES = 10_000  # of a slot, that are looked at: more than slots have columns
_MEETINGS = ("kitsune.meet", "kitsune.total")
OVER_TILES = "tiles#0 tiles#1 tiles#2"  # the bounds of a loop over tiles
_SENT = -(1 << 70)  # from here down numbers stand for slots that have no names
_COLLECTED = -(1 << 75)  # and from here down, for those that several CTAs fill
_BETWEEN = -(1 << 80)  # and from here down, of rings between roles
Part: TypeAlias = dialect.KernelOp | RoleOp


@dataclass
class Reading:
    """A kernel as plain data. `ops` are what the numbers of its places stand for."""

    kernel: dialect.KernelOp
    ops: list[ir.Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = KnownNumbers(self.kernel)

    def schedule(self) -> Schedule | Roles:
        """The kernel. Raises Refused at an operation that the proof has no rule for."""
        if not self.kernel.has_roles:
            return self._part(self.kernel)
        rings = tuple(Ring(ring.label, ring.slots, place=self._place(ring.operation)) for ring in self.kernel.rings)
        roles = tuple(
            Role(self._part(part), part.cta_count, self._tiles(part), tuple(self._ends(part)))
            for part in self.kernel.parts
        )
        return Roles(self.kernel.label, rings, roles, self._place(self.kernel.operation))

    def _part(self, part: Part) -> Schedule:
        """What CTAs do that do the same."""
        opened = mlir.walk(part, "kitsune.acquire", "kitsune.wait")
        used = {op.operands[0].owner.operation.opview.label for op in opened if dialect.is_between(op.operands[0])}
        between = [ring for ring in self.kernel.rings if ring.label in used]
        return Schedule(
            part.label,
            tuple(
                Ring(ring.label, ring.slots, ring.slot_bytes, self._place(ring.operation), ring.sharing == "own")
                for ring in part.rings
            )
            + tuple(Ring(ring.label, ring.slots, 0, self._place(ring.operation), True, True) for ring in between),
            tuple(self._agent(agent) for agent in part.agents),
            self._place(part.operation),
            self.kernel.ctas_per_sm,
            sum(agent.outbox_bytes + agent.count * (agent.meeting_bytes + agent.total_bytes) for agent in part.agents),
            OVER_TILES if self.kernel.has_roles else None,
        )

    def _tiles(self, part: Part) -> str:
        """How a part's tiles are dealt out."""
        extents = [self.numbers.known(extent) for extent in part.tiles.operands]
        if None in extents:
            raise Refused(self._place(part.tiles.operation), "has extents that roles may not know alike")
        return f"{part.tiles.sizes} of {extents}"

    def _ends(self, part: Part) -> Iterator[End]:
        """Where a role opens slots of rings between roles."""
        for op in mlir.walk(part, "kitsune.acquire", "kitsune.wait"):
            ring = op.operands[0].owner.operation.opview
            if ring.is_between_roles:
                side: Side = "producer" if op.name == "kitsune.acquire" else "consumer"
                agent = parent_of(op, dialect.AgentOp.OPERATION_NAME).opview
                copies = "kitsune.fill" if side == "producer" else "kitsune.copy"
                users = [user for user in mlir.walk(agent, copies) if op.results[0] in user.operands]
                columns, place, in_turn = ring.tile.shape[1], self._place(op), _is_of_turn(op, part)
                pieces = tuple(piece for user in users for piece in self._pieces(user, op, columns))
                yield End(ring.label, side, place, in_turn, agent.count, columns, pieces)

    def _pieces(self, user: ir.Operation, opened: ir.Operation, columns: int) -> Iterator[Piece]:
        """What an operation copies into a slot that was opened there, each time that it is done; of copies out of
        slots no columns are asked for."""
        place, loops = self._place(user), []
        around = user.parent.operation
        while around != opened.parent.operation:
            loops.append(around)
            around = around.parent.operation
        bounds = [self.numbers.bounds(loop) if loop.name == "scf.for" else (None,) for loop in loops]
        known = all(isinstance(bound, int) for loop in bounds for bound in loop) and all(loop[2] > 0 for loop in bounds)
        if user.name != "kitsune.fill" or not known:
            yield Piece(place, None)
            return
        counters = [id_of(loop.regions[0].blocks[0].arguments[0]) for loop in loops]
        width = ir.RankedTensorType(user.operands[1].type).shape[1]
        for turn in itertools.islice(itertools.product(*(range(*loop) for loop in bounds)), MOST_PIECES):
            first = folded(user.operands[2], dict(zip(counters, turn, strict=True)))
            yield Piece(place, None if first is None else (first, min(first + width, columns)))

    def _agent(self, agent: dialect.AgentOp) -> Agent:
        place = self._place(agent.operation)
        steps = self._steps(agent.block)
        return Agent(agent.label, steps, agent.count, agent.warp_count, agent.register_count, place)

    def _place(self, op: ir.Operation) -> Place:
        self.ops.append(op)
        return Place(len(self.ops) - 1, mlir.location(op.location))

    def _steps(self, block: ir.Block) -> tuple[Step, ...]:
        return tuple(step for op in block.operations for step in self._step(op.operation))

    def _step(self, op: ir.Operation) -> Iterable[Step]:
        operands = [id_of(value) for value in op.operands]
        results = [id_of(value) for value in op.results]
        match op.name:
            case "kitsune.acquire" | "kitsune.wait" if dialect.is_between(op.operands[0]):
                return self._open_between(op, results[0])
            case "kitsune.commit" if (between := _slot_between(op.operands[0])) is not None:
                return self._commit_between(op, operands[0], between)
            case "kitsune.fill" if op.opview.is_between_roles:
                return [Use(self._place(op)), Touch(operands[0], "producer", self._place(op))]
            case "kitsune.fill":
                return [Use(self._place(op)), Done(operands[0], self._place(op), whole=True)]  # all that it holds
            case "kitsune.split":
                taken, *made = operands
                return [
                    Touch(taken, "consumer", self._place(op)),
                    *(Done(slot, self._place(op), whole=True) for slot in made),
                ]
            case "kitsune.acquire" | "kitsune.wait":
                side = "producer" if op.name == "kitsune.acquire" else "consumer"
                ring = op.operands[0].owner.operation.opview.label
                rows = dialect.tile_of(op.results[0]).shape[0]
                return [Open(ring, side, results[0], self._place(op), rows)]
            case "kitsune.commit" | "kitsune.release":
                side = "producer" if op.name == "kitsune.commit" else "consumer"
                return [Close(side, operands[0], tuple(operands[1:]), self._place(op))]
            case "kitsune.stow":
                return self._stow(op, operands[0], results[0])
            case "kitsune.copy":
                elements, tile = op.opview.elements, dialect.tile_of(op.operands[0])
                box = None if elements is None else (elements.start, elements.stop, tile.shape[1])
                copied = Copy(operands[0], results[0], self._place(op), box, _last(op.opview, tile))
                from_slot = isinstance(op.operands[1].type, Slot)
                into = dialect.ring_of(op.operands[0])
                touch = Touch(operands[1], "consumer", copied.place, into.label if into is not None else None)
                return [touch, copied] if from_slot else [copied]
            case "kitsune.gather_rows":
                return [Copy(operands[0], results[0], self._place(op))]
            case "kitsune.prefetch":
                return [Done(operands[0], self._place(op))]
            case "kitsune.read" if op.opview.is_of_boxes:
                return [Touch(operands[0], "consumer", self._place(op))]
            case "kitsune.read" if isinstance(op.operands[0].type, Slot):
                return [Read(operands[0], self._place(op))]
            case "kitsune.part" | "kitsune.spread" | "kitsune.write" | "kitsune.write_rows":
                return [Use(self._place(op))]
            case "kitsune.sums":
                used = [Use(self._place(op))] if op.opview.begins else []
                return [*used, Sums(results[0], self._place(op))]
            case "kitsune.product":
                slots = operands[2:] if op.opview.is_from_registers else operands[1:]
                return [Product(operands[0], tuple(slots), *results, self._place(op))]
            case "kitsune.meet" | "kitsune.total":
                return [Meet(self._place(op))]
            case "kitsune.send":
                return self._send(op)
            case "kitsune.collect":
                return self._collect(op)
            case "kitsune.settle":
                return [Settle(operands[0], self._place(op))]
            case "scf.for":
                return [self._loop(op)]
            case "scf.if":
                return [self._branch(op)]
            case "scf.yield":
                return []
        self._check_other(op)
        return []

    def _open_between(self, op: ir.Operation, slot: Value) -> list[Step]:
        """Of a ring between roles: whoever takes a slot fills it first, without a name, and whoever fills one takes it
        behind that. So each role's ends match, and waits for other roles are left out: schedule_roles.py has those."""
        ring, place = op.operands[0].owner.operation.opview, self._place(op)
        label, rows = ring.label, ring.tile.shape[0]
        if op.name == "kitsune.acquire":
            return [Open(label, "producer", slot, place, rows), Copy(slot, _BETWEEN - slot, place)]
        filled, written = _BETWEEN - 2 * place.op, _BETWEEN - 2 * place.op - 1
        return [*_fills(label, filled, written, place, rows), Open(label, "consumer", slot, place, rows)]

    def _commit_between(self, op: ir.Operation, slot: Value, ring: dialect.AllocRingOp) -> list[Step]:
        place, taken = self._place(op), _BETWEEN - slot - 1
        return [
            Close("producer", slot, (_BETWEEN - slot,), place),
            Open(ring.label, "consumer", taken, place, ring.tile.shape[0]),
            Close("consumer", taken, (), place),
        ]

    def _stow(self, op: ir.Operation, ring: Value, slot: Value) -> list[Step]:
        """All four at once: a slot is filled by who takes it. The filled slot and the writing of it have no names."""
        label, place = op.operands[0].owner.operation.opview.label, self._place(op)
        rows = dialect.tile_of(op.results[0]).shape[0]
        filled, written = ~slot, ~ring
        taken = Open(label, "consumer", slot, place, rows)
        return [Use(place), *_fills(label, filled, written, place, rows), taken]

    def _send(self, op: ir.Operation) -> list[Step]:
        """Fills a slot of each ring: in truth of the other CTAs' rings. As all CTAs of a cluster do the same, and as
        often, what is shown of one that fills its own holds for them (docs/proof.md)."""
        found: list[Step] = [Use(place := self._place(op))]
        rings = [value.owner.operation.opview for value in list(op.operands)[:-1]]
        for number, ring in enumerate(rings):
            filled = _SENT - 2 * (len(list(op.operands)) * place.op + number)
            found += _fills(ring.label, filled, filled - 1, place, rings[0].tile.shape[0])
        return found

    def _collect(self, op: ir.Operation) -> list[Step]:
        """Fills all slots of a ring, of which each CTA of a cluster fills a part. As all do the same, and as often, a
        slot is filled when one of them has filled all of it (docs/proof.md)."""
        ring, agent = op.operands[0].owner.operation.opview, parent_of(op, dialect.AgentOp.OPERATION_NAME).opview
        rows = ir.RankedTensorType(op.operands[1].type).shape[0] * agent.count
        found: list[Step] = [Use(place := self._place(op))]
        for number in range(ring.slots):
            filled = _COLLECTED - 2 * (ring.slots * place.op + number)
            found += _fills(ring.label, filled, filled - 1, place, rows)
        return found

    def _loop(self, op: ir.Operation) -> Loop:
        bounds = lower, upper, step = self.numbers.bounds(op)
        trips = None
        if isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int) and step > 0:
            trips = max(0, -((lower - upper) // step))
        text = None if None in bounds else " ".join(map(str, bounds))
        self._check_meetings(op, text)
        block = op.regions[0].blocks[0]
        inits, arguments = list(op.operands)[3:], list(block.arguments)[1:]
        carried = tuple(
            Carried(*(id_of(value) for value in names))
            for names in zip(inits, arguments, _yielded(block), op.results, strict=True)
            if isinstance(names[0].type, LINEAR)
        )
        return Loop(text, trips, self._steps(block), carried, self._place(op))

    def _branch(self, op: ir.Operation) -> Branch:
        condition = self.numbers.known(op.operands[0])
        self._check_meetings(op, None if condition is None else str(condition))
        blocks = [region.blocks[0] if len(region.blocks) else None for region in op.regions]
        then, otherwise = (() if block is None else self._steps(block) for block in blocks)
        yields = zip(*(_yielded(block) for block in blocks if block is not None), op.results) if op.results else ()
        results = tuple(tuple(map(id_of, names)) for names in yields if isinstance(names[2].type, LINEAR))
        return Branch(None if condition is None else str(condition), then, otherwise, results, self._place(op))

    def _check_meetings(self, op: ir.Operation, known: str | None) -> None:
        """CTAs of a cluster meet equally often: not in what their own numbers decide about."""
        if known is not None and RANK in known and mlir.walk(op, *_MEETINGS):
            raise Refused(self._place(op), "meets other CTAs of the cluster as often as the CTA's number says")

    def _check_other(self, op: ir.Operation) -> None:
        """Any other operation must leave slots, tokens and sums alone."""
        touched = any(isinstance(value.type, LINEAR) for value in (*op.operands, *op.results))
        inside = [inner for region in op.regions for block in region.blocks for inner in block.operations]
        if touched or any(inner.operation.name.startswith("kitsune.") for inner in inside):
            raise Refused(self._place(op), "does with slots, tokens or sums what the proof has no rule for")
        for inner in inside:
            self._check_other(inner.operation)


def _fills(ring: str, slot: Value, written: Value, place: Place, rows: int) -> list[Step]:
    """A slot is opened, filled and closed at once."""
    return [
        Open(ring, "producer", slot, place, rows),
        Copy(slot, written, place),
        Close("producer", slot, (written,), place),
    ]


def _last(copy: dialect.CopyOp, tile: ir.RankedTensorType) -> tuple[int, int] | None:
    """The rows of a copy's boxes that reach behind the tensor's last row, and the most that the tensor has left there;
    None where they have all of the tile's."""
    if (rows := copy.last_rows) is None:
        return None
    axis = copy.axes[0]
    size = ir.RankedTensorType(copy.operands[1].type).shape[axis]
    return rows, rows_left(size, tile.shape[0], copy.operands[2 + axis]) or 0


def _slot_between(slot: ir.Value) -> dialect.AllocRingOp | None:
    """The ring of a slot between roles; None of any other."""
    ring = dialect.ring_of(slot)
    return ring if ring is not None and ring.is_between_roles else None


def _is_of_turn(op: ir.Operation, part: Part) -> bool:
    """Whether each turn of the loop over a part's tiles opens a slot there, and closes it."""
    loop = op.parent.operation
    if loop.name != "scf.for" or list(loop.operands)[:3] != list(part.tiles.results):
        return False
    if loop.parent.operation.name != dialect.AgentOp.OPERATION_NAME:
        return False
    closes = users_of(op.results[0])
    closes = [use for use in closes if use.name in ("kitsune.commit", "kitsune.release")]
    return len(closes) == 1 and closes[0].parent.operation == loop


def _yielded(block: ir.Block) -> list[ir.Value]:
    operations = list(block.operations)
    return list(operations[-1].operation.operands) if operations else []
