"""Loops of an agent whose tiles lie as sums do: what they carry, and what is known in a turn and behind them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from kitsune_mlir.codegen import index_checks
from kitsune_mlir.codegen.hopper import waits, warps, wgmma
from kitsune_mlir.codegen.hopper.fragments import Fragment, Lanes, LoadedRows, PairedMemory
from kitsune_mlir.codegen.hopper.mbarrier import Slot
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.dialects import schedule
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.mlir import ir, location, walk
from kitsune_mlir.operations import end_of

from .boxes import GlobalBox
from .extents import is_from_tiles
from .in_flight import Acc, InFlight, Token
from .meetings import TURN
from .stores import Half, Place, RowNumbers

TOTALS = "kitsune.total"  # among the turns of rings, that of numbers of rows


def sent_to(ring: str) -> str:
    """Among the turns of rings, that of what is sent to a ring of the next CTA and, as often, to the others'."""
    return f"{ring} of others"


Known = GlobalBox | PairedMemory | Fragment | LoadedRows | RowNumbers | Place  # where the elements of a tile are


@dataclass(frozen=True)
class Open:
    """An open slot."""

    ring: schedule.AllocRingOp
    slot: Slot
    tile: ir.RankedTensorType

    @property
    def nbytes(self) -> int:
        rows, columns = self.tile.shape
        return rows * columns * self.tile.element_type.width // 8


@dataclass(kw_only=True)
class LoopCode:
    """The loops of an agent, and what its code knows: values by their keys, by ring the next slot, the memories of
    tiles, where a thread stands in tiles that were settled, products in flight."""

    values: dict[int, object] = field(default_factory=dict)
    turns: dict[str, Slot] = field(default_factory=dict)
    memories: dict[int, Known] = field(default_factory=dict)
    lanes: Lanes | None = None
    halves: list[Half] = field(default_factory=list)
    products: InFlight = field(default_factory=InFlight)
    sent: int = 0  # boxes of tiles that have left since a loop's head, or since products were last in flight
    tile: ir.Value | None = None  # the number of the turn's in the loop over tiles
    of_rows: set[int] = field(default_factory=set)  # tiles of one column whose numbers all threads of a row have

    def number(self, value: ir.Value) -> device.Int:
        """An index."""
        raise NotImplementedError

    def _tiles(self, value: ir.Value) -> None:
        """The kernel's tiles, as this CTA's bounds."""
        raise NotImplementedError

    def _block(self, block: ir.Block) -> None:
        """The code of a block."""
        raise NotImplementedError

    def _rings(self, op: ir.Operation) -> list[str]:
        """The rings whose slots are opened in it."""
        opened = walk(op, schedule.AcquireOp.OPERATION_NAME, schedule.WaitOp.OPERATION_NAME, schedule.STOW)
        labels = [o.operands[0].owner.operation.opview.label for o in opened]
        sent = [o.operands[0].owner.operation.opview.label for o in walk(op, schedule.SEND, schedule.COLLECT)]
        labels += [*map(sent_to, sent), *(turn for turn in (TURN, TOTALS) if walk(op, turn))]
        return list(dict.fromkeys(labels))

    def _scf_for(self, op: ir.Operation) -> None:
        bounds = [self.number(bound) for bound in list(op.operands)[:3]]
        rings = [ring for ring in self._rings(op) if ring in self.turns]
        block = op.regions[0].blocks[0]
        yields = list(end_of(block).operands)
        starts = [self._begun(self._start(value)) for value in list(op.operands)[3:]]
        behind = [self._behind(*pair, op) for pair in zip(starts, yields, strict=True)]
        state, known = self.products.enter(behind), (self.memories, self.halves, self.lanes)
        over_tiles = is_from_tiles(op.operands[0])

        def take_up(values: Sequence[ir.Value], carried: list[ir.Value]) -> None:
            """What the loop carries, as its arguments or results."""
            rest = self._resume(rings, carried)
            for value, start, count in zip(values, starts, behind, strict=True):
                own, rest = rest[: len(_words(start))], rest[len(_words(start)) :]
                self._take_up(value, self._carried(start, own, count))

        def turn(counter: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            self.values[hash(block.arguments[0])] = counter
            self.sent = 0
            self._turn(*known)
            take_up(list(block.arguments)[1:], carried)
            with contextlib.ExitStack() as around:
                if over_tiles:
                    self.tile = counter
                    around.enter_context(waits.at_tile(counter))
                    around.enter_context(index_checks.reported_behind())
                self._block(block)
            given = [x for value in yields for x in _words(self._start(value))]
            return [*self._turns(rings), *given]

        begun = [*self._turns(rings), *(x for start in starts for x in _words(start))]
        rest = device.loop(*bounds, turn, begun)
        self.products.leave(state)
        self.sent = 0
        self.memories, self.halves, self.lanes = known
        if not any(isinstance(start, Acc) for start in starts):
            rest = [warps.here(x) if x.type == device.i32() else x for x in rest]
        take_up(op.results, rest)

    def _start(self, value: ir.Value) -> object:
        """What a loop begins with; numbers as words."""
        if isinstance(value.type, ir.IndexType):
            return device.value(self.number(value))
        known = self.memories.get(hash(value))
        return known if isinstance(known, RowNumbers) else self.values[hash(value)]

    def _begun(self, start: object) -> object:
        """What a loop begins with: sums are zero, whatever stood in their registers."""
        if isinstance(start, Acc) and start.is_new:
            return Acc(start.values if start.is_zero else wgmma.zeros(2 * len(start.values)))
        return start

    def _take_up(self, value: ir.Value, found: object) -> None:
        """A value is known from here on."""
        self.values[hash(value)] = found
        if isinstance(found, RowNumbers):
            self.memories[hash(value)] = found
            self.of_rows.add(hash(value))
        if isinstance(found, Fragment | LoadedRows | PairedMemory):
            self.memories[hash(value)] = found

    def _behind(self, start: object, yielded: ir.Value, loop: ir.Operation) -> int | None:
        """Of what a loop carries: as InFlight.behind."""
        if isinstance(start, Open | Fragment | LoadedRows | RowNumbers | ir.Value):
            return None
        if not isinstance(start, Acc | Token):
            raise UnsupportedError(f"{location(loop.location)}: a loop carries a tile of no parts")
        return self.products.behind(start, yielded)

    def _carried(self, start: object, words: list[ir.Value], behind: int | None) -> object:
        """What stands for a value that a loop carries, in a turn or behind it."""
        if isinstance(start, Open):
            return Open(start.ring, Slot(*words), start.tile)
        if isinstance(start, Fragment):
            words_of, rest = dict(zip(start.words, words)), words[len(start.words) :]
            values = dict(zip(start.values, rest, strict=True))
            return Fragment(start.lanes, start.element, start.shape, words_of, values)
        if isinstance(start, LoadedRows):
            return start.with_words(words)
        if isinstance(start, RowNumbers):
            return RowNumbers([(row, word) for (row, _), word in zip(start.numbers, words, strict=True)])
        if isinstance(start, ir.Value):
            return words[0]
        number = self.products.number(behind)
        return Token(number) if isinstance(start, Token) else Acc(words, number)

    def _turn(self, memories: dict[int, Known], halves: list[Half], lanes: Lanes | None) -> None:
        """A turn of a loop begins: what was computed before the loop is known, what was in another turn is not."""
        self.memories, self.lanes = dict(memories), lanes
        self.halves = [Half(half.row, half.evaluator.fork(nested=False)) for half in halves]
        for half in self.halves:
            half.evaluator.memories = self.memories

    def _turns(self, rings: list[str]) -> list[ir.Value]:
        turns = [self.turns[ring] for ring in rings]
        return [x for turn in turns for x in (turn.number, turn.parity) if not isinstance(x, int)]

    def _resume(self, rings: list[str], carried: list[ir.Value]) -> list[ir.Value]:
        for ring in rings:
            known = self.turns[ring].number  # of a ring whose slots all have their turn in each of the loop
            number, carried = (known, carried) if isinstance(known, int) else (carried[0], carried[1:])
            self.turns[ring], carried = Slot(number, carried[0]), carried[1:]
        return carried


def _words(carried: object) -> list[ir.Value]:
    """What a loop carries of a value: of a product's token nothing."""
    if isinstance(carried, Open):
        return [carried.slot.number, carried.slot.parity]
    if isinstance(carried, Fragment):
        return [*carried.words.values(), *carried.values.values()]
    if isinstance(carried, ir.Value):
        return [carried]
    if isinstance(carried, LoadedRows):
        return carried.words
    if isinstance(carried, RowNumbers):
        return [number for _, number in carried.numbers]
    return carried.values if isinstance(carried, Acc) else []
