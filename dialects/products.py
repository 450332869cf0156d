"""Products: sums that they are added to, and the tiles that they become."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from kitsune_mlir.mlir import ext, ir

from .checks import check_integer, fail, integer, parent_of, string
from .kernels import AgentOp, has_numbers, inside, numbers
from .rings import L2, is_stowed, ring_of
from .types import Acc, Kitsune, Slot, Token, tile_of

BLOCK = 8  # columns that a row's four threads have together
WINDOW, RIGHT_WINDOW = "window", "right_window"  # the attributes that say which rows of a slot are multiplied
PIECES = ("high", "low")  # of an f32, as tf32 numbers
PRODUCT_ENGINES = ("wgmma", "mma_sync")


@dataclass(frozen=True)
class Window:
    """As ProductOp says."""

    first: int
    pitch: int
    apart: int

    def rows(self, copy: int, count: int) -> list[int]:
        """The rows of a slot, so many, that a copy multiplies."""
        start = self.first + copy * self.apart
        return [start + line * self.pitch + place for line in range(count // BLOCK) for place in range(BLOCK)]


class SumsOp(Kitsune.Operation, name="sums", traits=[ext.Pure]):
    """Sums of a product, zero, to which products are added. They may take over the registers of tiles that nobody uses
    any more, `over`, as many as they have: registers that are without a value for a while are kept for it all the
    same. With the unit attribute `begin` they are not zero, but begin with what these tiles, of f32, hold: wide
    `part`s, side by side."""

    over: Sequence[ext.Operand[Any]]
    sums: ext.Result[Acc]

    @property
    def begins(self) -> bool:
        return "begin" in self.attributes

    def verify_region_invariants(self) -> bool:
        types = [value.type for value in self.operands]
        if not all(isinstance(type_, ir.RankedTensorType) and type_.has_static_shape for type_ in types):
            return fail(self, f"takes over the registers of tiles, found {', '.join(map(str, types))}")
        wanted = prod(tile_of(self.results[0]).shape)
        if types and (found := sum(prod(type_.shape) for type_ in types)) != wanted:
            return fail(self, f"takes over the registers of {found} elements for {wanted} sums")
        if self.begins and not (types and all(isinstance(type_.element_type, ir.F32Type) for type_ in types)):
            return fail(self, f"begins with tiles of f32, found {', '.join(map(str, types)) or 'none'}")
        return inside(self, AgentOp.OPERATION_NAME)


class ProductOp(Kitsune.Operation, name="product", traits=[ext.Pure]):
    """Begins to add left (m x k) times right (n x k), transposed, to sums (m x n), and gives them as they will be; of
    `left` the copy's rows, of `right` all of them, or the copy's where its ring is "split". With the unit attribute
    `turned` right is (k x n) and taken as it lies. Left is a slot, or a tile in registers, made of `part`s. That, and a
    tile that was stowed, may have fewer columns: there right's do not count. A slot that was opened for the first rows
    of a ring's tile gives those rows of the sums; others have no value that may be used. The engine is "wgmma", a
    copy's warps together, or "mma_sync", each warp a share of the copy's rows. Nothing but a product or `settle` may
    take sums.

    With `window`, three numbers, a copy multiplies rows of a left slot that all copies see, 8 by 8 of them: the first
    one's number, how many rows lie from one 8 to the next, and from a copy's first to the next copy's. With
    `right_window` so it is with the right slot's rows, for all copies alike. So a convolution's products read the
    same pixels for each element of its filter. The engine is "wgmma" then.

    By wgmma f32 is multiplied as tf32. What copies did not round is cut off, but for the left operand: its numbers are
    rounded or, as `piece` says, the "high" or the "low" part of each is taken. Of a tile in registers, or stowed, each
    8 columns lie in the order 0, 2, 4, 6, 1, 3, 5, 7: so must right's."""

    sums: ext.Operand[Acc]
    left: ext.Operand[Any]
    right: ext.Operand[Slot]
    engine: ir.StringAttr
    total: ext.Result[Acc]
    done: ext.Result[Token]

    @property
    def is_turned(self) -> bool:
        """Whether the right operand is (k x n)."""
        return "turned" in self.attributes

    @property
    def piece(self) -> str | None:
        """The part of f32 numbers that is multiplied; None where these are rounded."""
        return string(self, "piece")

    @property
    def window(self) -> Window | None:
        """Which rows of the left slot are multiplied; None where these are the copy's part of it."""
        return self._window(WINDOW)

    @property
    def right_window(self) -> Window | None:
        """Which rows of the right slot are multiplied; None where these are all."""
        return self._window(RIGHT_WINDOW)

    def _window(self, name: str) -> Window | None:
        return Window(*numbers(self, name)) if name in self.attributes else None

    @property
    def is_from_registers(self) -> bool:
        """Whether the left operand is a tile in registers."""
        return isinstance(self.operands[1].type, ir.RankedTensorType)

    @property
    def engine_name(self) -> str:
        return string(self, "engine")

    def verify_region_invariants(self) -> bool:
        if string(self, "engine") not in PRODUCT_ENGINES:
            allowed = ", ".join(PRODUCT_ENGINES)
            return fail(self, f"engine must be one of {allowed}, found {self.attributes['engine']}")
        if not isinstance(self.operands[1].type, Slot | ir.RankedTensorType):
            return fail(self, f"multiplies a slot or a tile in registers, found {self.operands[1].type}")
        for slot in (value for value in list(self.operands)[1:] if isinstance(value.type, Slot)):
            if (ring := ring_of(slot)) is not None and ring.memory == L2:
                return fail(self, f"multiplies what lies in shared memory, ring '{ring.label}' is in {L2}")
        sums, left, right = (ir.RankedTensorType(type_) for type_ in map(tile_of, self.operands))
        agent = parent_of(self, AgentOp.OPERATION_NAME)
        if agent is None:
            return fail(self, f"stands in no {AgentOp.OPERATION_NAME}")
        if self.piece is not None and (self.piece not in PIECES or not isinstance(left.element_type, ir.F32Type)):
            return fail(self, f"piece must be {' or '.join(PIECES)}, of f32, found {self.piece!r} of {left}")
        if self.piece is not None and isinstance(self.operands[1].type, Slot):
            if (ring := ring_of(self.operands[1])) is not None and ring.is_rounded:
                return fail(self, f"takes a piece of whole numbers, ring '{ring.label}' has rounded ones")
        count, width = list(right.shape)[::-1] if self.is_turned else list(right.shape)
        copies = agent.opview.count
        narrow = self.is_from_registers or is_stowed(self.operands[1])
        widths_agree = left.shape[1] <= width if narrow else left.shape[1] == width
        if not widths_agree or left.element_type != right.element_type:
            return fail(self, f"multiplies tiles of one type and width, found {left} and {right}")
        if WINDOW in self.attributes and not self._verify_window(WINDOW, 1, sums.shape[0]):
            return False
        if RIGHT_WINDOW in self.attributes and not self._verify_window(RIGHT_WINDOW, 2, sums.shape[1]):
            return False
        heights = (sums.shape[0],) if self.is_from_registers else (sums.shape[0], sums.shape[0] * copies)
        fewer = copies == 1 and not self.is_from_registers and left.shape[0] < sums.shape[0]
        widths = (sums.shape[1],) if self.is_turned else (sums.shape[1], sums.shape[1] * copies)
        count = sums.shape[1] if RIGHT_WINDOW in self.attributes else count
        height = sums.shape[0] if WINDOW in self.attributes else left.shape[0]
        if count not in widths or not fewer and height not in heights:
            return fail(self, f"adds {left} times {right} to sums of {sums}, whose sizes differ")
        if copies > 1:
            for value, wanted in (
                (self.operands[1], ("split", "own") if height > sums.shape[0] else ("all",)),
                (self.operands[2], ("split",) if count > sums.shape[1] else ("all",)),
            ):
                ring = ring_of(value) if isinstance(value.type, Slot) else None
                if ring is not None and ring.sharing not in wanted:
                    return fail(self, f"wants ring '{ring.label}' shared as \"{wanted[0]}\" by the copies of its agent")
        return self._gives_sums()

    def _gives_sums(self) -> bool:
        return self.results[0].type == self.operands[0].type or fail(self, "gives sums of another type than it takes")

    def _verify_window(self, name: str, operand: int, count: int) -> bool:
        if not has_numbers(self, name) or len(numbers(self, name)) != 3 or min(numbers(self, name)) < 0:
            return fail(self, f"{name} must be three numbers from 0 on, found {self.attributes[name]}")
        slot = self.operands[operand]
        ring = ring_of(slot) if isinstance(slot.type, Slot) else None
        if ring is None or (ring.layout, ring.sharing) != ("rows", "all") or self.engine_name != "wgmma":
            return fail(self, "sees windows of a slot of rows that all copies have, by wgmma")
        if count % BLOCK or self.is_turned:
            return fail(self, f"sees lines of {BLOCK} rows, found {count}")
        copies = parent_of(self, AgentOp.OPERATION_NAME).opview.count if name == WINDOW else 1
        last, whole = self._window(name).rows(copies - 1, count)[-1], ir.RankedTensorType(tile_of(slot))
        return last < whole.shape[0] or fail(self, f"sees row {last} of {whole}")


class SettleOp(Kitsune.Operation, name="settle", traits=[ext.Pure]):
    """Waits for the products of sums, and gives them as a tile in registers."""

    sums: ext.Operand[Acc]
    tile: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        if self.results[0].type != tile_of(self.operands[0]):
            return fail(self, f"gives a tile of type {self.results[0].type}, its sums are {self.operands[0].type}")
        return True


class PartOp(Kitsune.Operation, name="part", traits=[ext.Pure]):
    """The columns of a tile from `first` on, computed where it stands and kept in registers: 16-bit elements two to a
    word, as products take them, or, with the unit attribute `wide`, each as f32 in a register of its own, as sums lie.
    Words that products in flight read are nobody's to write: what is computed beside those is wide, and packed behind
    them. Other elementwise operators are computed where they are used."""

    tile: ext.Operand[Any]
    first: ir.IntegerAttr
    part: ext.Result[Any]

    @property
    def first_column(self) -> int:
        return integer(self, "first")

    @property
    def is_wide(self) -> bool:
        return "wide" in self.attributes

    def verify_region_invariants(self) -> bool:
        whole, part = self.operands[0].type, self.results[0].type
        if not all(isinstance(type_, ir.RankedTensorType) and type_.rank == 2 for type_ in (whole, part)):
            return fail(self, f"takes columns of a tile of two dimensions, found {whole} and {part}")
        if not check_integer(self, "first", 0):
            return False
        if part.shape[0] != whole.shape[0] or part.element_type != whole.element_type:
            return fail(self, f"gives columns of {whole} as {part}")
        end = self.first_column + part.shape[1]
        if self.first_column % BLOCK or end > whole.shape[1] or (end % BLOCK and end < whole.shape[1]):
            return fail(self, f"gives columns {self.first_column} to {end} of {whole}; wants whole blocks of {BLOCK}")
        return inside(self, AgentOp.OPERATION_NAME)
