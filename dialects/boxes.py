"""Boxes of tensors: copies into slots, tiles that threads read and write."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Sequence
from math import prod
from typing import Any

from kitsune_mlir.mlir import ext, ir
from kitsune_mlir.traffic import element_bytes

from .checks import check_integer, constant, defined_by, fail, integer, parent_of, string
from .columns import place_of
from .kernels import BOX_BYTES, AgentOp, KernelOp, has_numbers, inside, numbers
from .rings import L2, SMEM, ring_of
from .tiles import RingEffect
from .types import Kitsune, Slot, Token, tile_of
from .windows import windows_of

COPIED, BY_ROWS = "tma", "warps"  # the engines of writes that leave through boxes in shared memory
COPY_ENGINES = ("tma", "cp_async")
WHOLE, ALIGNED, UNTIL = "whole", "aligned", "until"  # what is known of the columns of a box
STREAMED = "streamed"  # of a box that the kernel does not come back to
PATCH, ACROSS = "patch", "across"  # the attributes that say of which places a tile's rows, or columns, are
GRANULE = 16  # bytes that a copy to a dense slot moves together
PATTERN = 8  # rows of a box after which its swizzle repeats


class CopyOp(Kitsune.Operation, name="copy", traits=[RingEffect]):
    """Begins to copy a box of a tensor in global memory, or of a slot in "l2", into a slot, or, where slots are dense,
    all of a tensor, whose elements come to lie in the slot from element `into` on: several copies fill a dense slot.
    The box is the one at `at` (an offset for each dimension of the tensor), along dimensions `dims` the tile's first
    and second, of size 1 along the others. Elements beyond the tensor are zero, but for rows of a matrix of windows
    (`kitsune.windows`), which nobody may use. The engine is "tma", which wants rows of multiples of 16 bytes. Of a
    slot in "l2" all of the box's rows are the slot's.

    With `last`, a box that reaches behind the tensor's last row (of the first dimension of `dims`) has its first `last`
    rows alone, for rows that are not there take the copy engine longer than others. The slot's other rows hold anything
    then: products alone may read them, whose sums have them in rows or columns that are written nowhere.

    With `patch` the tile's rows are a patch of the tensor, or, with the unit attribute `across`, its columns: so many
    places along one of `dims` times so many along the next, in row-major order. There is one more of `dims` then.

    With the unit attribute `longer` the tensor's last dimension, whose size is open, is that of lines which have been
    made whole multiples of 16 bytes: the box ends where as many elements end as there are of the call's size.

    With the unit attribute `rounded` numbers of f32 arrive as the nearest tf32 ones, of two as the even one (CUDA
    driver API, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32): products take them as they lie."""

    slot: ext.Operand[Slot]
    source: ext.Operand[Any]
    at: Sequence[ext.Operand[ir.IndexType]]
    engine: ir.StringAttr
    done: ext.Result[Token]

    @property
    def axes(self) -> list[int]:
        return numbers(self, "dims")

    @property
    def box(self) -> list[int]:
        """The sizes of the box along `dims`."""
        return box_of(self, tile_of(self.operands[0]))

    @property
    def engine_name(self) -> str:
        return string(self, "engine")

    @property
    def elements(self) -> range | None:
        """The elements of a dense slot that it writes; None where slots are boxes."""
        if "into" not in self.attributes:
            return None
        first = integer(self, "into") or 0
        return range(first, first + prod(ir.RankedTensorType(self.operands[1].type).shape))

    @property
    def is_rounded(self) -> bool:
        """Whether numbers of f32 arrive as tf32."""
        return "rounded" in self.attributes

    @property
    def is_longer(self) -> bool:
        """Whether lines of an open length have been made longer."""
        return "longer" in self.attributes

    @property
    def last_rows(self) -> int | None:
        """The rows of a box that reaches behind the tensor's last row; None where these are all of the tile's."""
        return integer(self, "last")

    def verify_region_invariants(self) -> bool:
        if string(self, "engine") not in COPY_ENGINES:
            return fail(self, f"engine must be one of {', '.join(COPY_ENGINES)}, found {self.attributes['engine']}")
        if not check_integer(self, "into", 0):
            return False
        tile, ring = tile_of(self.operands[0]), ring_of(self.operands[0])
        if ring is not None and (ring.layout == "dense") != ("into" in self.attributes):
            return fail(
                self, f"has an attribute into where slots are dense, and there alone, found ring '{ring.label}'"
            )
        source = self.operands[1]
        if self.elements is not None and not isinstance(source.type, Slot):
            return self._verify_dense(tile)
        if isinstance(source.type, Slot) and (taken := ring_of(source)) is not None and taken.memory != L2:
            return fail(self, f"copies out of tensors and of slots in {L2}, ring '{taken.label}' is in {taken.memory}")
        if isinstance(source.type, Slot) and (self.axes != [0, 1] or ring is not None and ring.layout != "rows"):
            return fail(self, f"copies rows and columns of a slot in {L2} into boxes along rows")
        whole = tile_of(source) if isinstance(source.type, Slot) else source.type
        if not _verify_box(self, whole, tile, len(self.operands) - 2) or not self._verify_last(whole, tile):
            return False
        if self.is_longer and (isinstance(source.type, Slot) or not whole.is_dynamic_dim(whole.rank - 1)):
            return fail(self, f"has longer lines of a tensor whose last size is open, found {source.type}")
        of_f32 = isinstance(tile.element_type, ir.F32Type) and not isinstance(source.type, Slot)
        if self.is_rounded and (self.engine_name != "tma" or not of_f32):
            return fail(self, f"has tensors of f32 rounded by the copy engine, found {source.type}")
        return not isinstance(source.type, Slot) or self._verify_rows(whole, tile)

    def _verify_last(self, whole: ir.RankedTensorType, tile: ir.RankedTensorType) -> bool:
        """A shorter box has whole patterns of the swizzle, and its rows are none that a product sums over."""
        if not check_integer(self, "last", 1):
            return False
        if (last := self.last_rows) is None:
            return True
        if last % PATTERN or last >= tile.shape[0]:
            return fail(self, f"last must be a multiple of {PATTERN} and less than the rows of {tile}, found {last}")
        source, ring = self.operands[1], ring_of(self.operands[0])
        if isinstance(source.type, Slot) or windows_of(source) is not None or whole.is_dynamic_dim(self.axes[0]):
            return fail(self, f"has last rows of a tensor whose rows are known, found {source.type}")
        if self.engine_name != "tma" or ring is not None and ring.layout != "rows":
            return fail(self, "has last rows where the copy engine fills boxes along rows")
        if ring is not None and not ring.has_rows_of_products:
            return fail(self, f"has last rows where products alone read them, and do not sum over them: '{ring.label}'")
        return True

    def _verify_rows(self, whole: ir.RankedTensorType, tile: ir.RankedTensorType) -> bool:
        """Behind the last row of a slot in "l2" the next slot begins, not nothing."""
        first, rows = constant(self.operands[2]), tile.shape[0]
        if first is not None and 0 <= first <= whole.shape[0] - rows:
            return True
        found = "from a row that is no constant" if first is None else f"from row {first}"
        return fail(self, f"copies rows that a slot in {L2} has, found {rows} {found} of {whole}")

    def _verify_dense(self, tile: ir.RankedTensorType) -> bool:
        source = ir.RankedTensorType(self.operands[1].type)
        nbytes = source.element_type.width // 8
        if len(self.operands) > 2 or not source.has_static_shape or source.element_type != tile.element_type:
            return fail(self, f"copies all of a tensor whose elements are the slot's, found {source} for {tile}")
        if any(number * nbytes % GRANULE for number in (self.elements.start, self.elements.stop)):
            return fail(self, f"copies multiples of {GRANULE} bytes to such places, found {source}")
        return self.elements.stop <= tile.shape[1] or fail(self, f"copies {source} beyond the end of {tile}")


class SelectOp(Kitsune.Operation, name="select", traits=[ext.Pure]):
    """Tensor number `at`, from 0 on, of several of one type in global memory: what a turn of a loop over equal layers
    copies or reads."""

    at: ext.Operand[ir.IndexType]
    tensors: Sequence[ext.Operand[Any]]
    selected: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        types = {str(value.type) for value in list(self.operands)[1:]}
        if types != {str(self.results[0].type)} or not isinstance(self.results[0].type, ir.RankedTensorType):
            return fail(self, f"gives {self.results[0].type}, one of {', '.join(sorted(types)) or 'nothing'}")
        return inside(self, AgentOp.OPERATION_NAME)


def candidates(value: ir.Value) -> list[ir.Value]:
    """The tensors in global memory that a copy or a read may mean: of a `select` all, else the one itself."""
    return list(value.owner.operands)[1:] if defined_by(value, SelectOp.OPERATION_NAME) else [value]


class ReadOp(Kitsune.Operation, name="read", traits=[ext.Pure]):
    """A box of a tensor in global memory as a tile in registers; `at`, which the tensor has, `dims` and `patch` as of a
    copy. Elements beyond the tensor have no value that may be used. With the unit attribute `together`, of a box of all
    columns of a tensor of two dimensions, the threads of a warpgroup that have a row together load 16 bytes of it each,
    where all do, and tell each other. Of a dense slot it is a tile of one dimension, of elements from `at` on. Elements
    are loaded where they are used: such a slot is released at the agent's end. With the unit attribute `ahead` those of
    a box of two dimensions, or of columns alone, are loaded where this stands, as far as threads load 16 bytes of a row
    together, or two neighbours; beside `together` all of them, of 32, 64, ... columns of 16 bits or f32, which may then
    be some of the tensor's, from a multiple of 16 bytes on: registers hold them, and loops may carry them.
    Of a slot whose tile, of 16-bit elements, lies in boxes along its rows it is all of that tile, loaded where this
    stands. In an agent whose tiles lie by rows two more unit attributes say what does not follow from sizes that are
    open: with `whole` the tensor has all of the box's columns; with `aligned` the first of them is, in memory, a
    multiple of the agent's vector behind the tensor's first element, and vectors of which the tensor has some columns
    only have no value either. With `streamed` the kernel does not come back to the box, which is not kept in L1 (PTX
    ISA, ld: .L1::no_allocate)."""

    source: ext.Operand[Any]
    at: Sequence[ext.Operand[ir.IndexType]]
    tile: ext.Result[Any]

    @property
    def axes(self) -> list[int]:
        return numbers(self, "dims")

    @property
    def box(self) -> list[int]:
        """The sizes of the box along `dims`."""
        return box_of(self, self.results[0].type)

    def verify_region_invariants(self) -> bool:
        if isinstance(self.operands[0].type, Slot):
            return self._verify_slot()
        whole, tile = self.operands[0].type, self.results[0].type
        if not _verify_box(self, whole, tile, len(self.operands) - 1):
            return False
        some = "ahead" in self.attributes
        if "together" in self.attributes and (
            tile.rank != 2 or self.axes != [0, 1] or (tile.shape[1:] != whole.shape[1:] and not some)
        ):
            return fail(self, f"is loaded together where it is rows of a tensor, found {tile} of {whole}")
        if "ahead" in self.attributes and tile.rank not in (1, 2):
            return fail(self, f"is loaded ahead where it has rows and columns, or one of these, found {tile}")
        return _verify_vectors(self, tile)

    @property
    def is_of_boxes(self) -> bool:
        """Whether it is a tile that lies in boxes of a slot."""
        return isinstance(self.operands[0].type, Slot) and len(self.operands) == 1

    def _verify_slot(self) -> bool:
        slot, tile = tile_of(self.operands[0]), self.results[0].type
        ring, agent = ring_of(self.operands[0]), parent_of(self, AgentOp.OPERATION_NAME)
        if ring is not None and ring.layout == "rows" and ring.memory == SMEM:
            if not self.is_of_boxes or tile != slot or element_bytes(slot.element_type) != 2:
                return fail(self, f"gives all of a slot of 16-bit elements, found {tile} of {slot}")
            whole = agent is None or agent.opview.count == 1
            return whole or fail(self, "gives all of a slot to an agent of one copy")
        if ring is not None and ring.layout != "dense":
            return fail(self, f"reads tensors, rows in boxes and dense slots, ring '{ring.label}' has {ring.layout}")
        if not isinstance(tile, ir.RankedTensorType) or tile.rank != 1 or tile.element_type != slot.element_type:
            return fail(self, f"gives elements of {slot} as {tile}")
        if len(self.operands) != 2 or tile.shape[0] > slot.shape[1]:
            return fail(self, f"gives {tile} from one place on of {slot}, found {len(self.operands) - 1} places")
        return True


class WriteOp(Kitsune.Operation, name="write", traits=[RingEffect]):
    """Writes a tile in registers to output `index`, whose type is that of its `kitsune.result`, at `at`, which the
    tensor has, and along `dims` and by `patch` as of a copy. Elements beyond the tensor are dropped. Threads store it,
    or, with an engine, lay it out in boxes of their copy in shared memory: two of them, of which one is filled while
    the other leaves, or one for tiles that are no wider. The copy engine ("tma") stores rows of multiples of 16 bytes;
    any others warps ("warps") do, row by row, those of the last two dimensions of a batch too. With the unit attribute
    `once` it is what each CTA of a cluster has, and the first alone writes it; `whole`, `aligned`, `streamed` as of a
    read. With `until`, in an agent whose tiles lie by rows, `at` has an index more: columns from there are dropped."""

    tile: ext.Operand[Any]
    at: Sequence[ext.Operand[ir.IndexType]]
    index: ir.IntegerAttr

    @property
    def axes(self) -> list[int]:
        return numbers(self, "dims")

    @property
    def box(self) -> list[int]:
        """The sizes of the box along `dims`."""
        return box_of(self, self.operands[0].type)

    @property
    def position(self) -> int:
        return integer(self, "index")

    @property
    def engine_name(self) -> str | None:
        """The engine; None where threads store."""
        return string(self, "engine")

    @property
    def is_once(self) -> bool:
        """Whether of a cluster one CTA writes it."""
        return "once" in self.attributes

    def _not_copied(self) -> str:
        """Why the copy engine does not store it; empty where it does."""
        if self.engine_name not in (COPIED, BY_ROWS):
            return f"engine must be {COPIED} or {BY_ROWS}, found {self.attributes['engine']}"
        type_ = self.operands[0].type
        kind = ir.RankedTensorType(type_) if isinstance(type_, ir.RankedTensorType) else None
        along = [0, 1]
        if self.engine_name == BY_ROWS:
            along = [len(self.operands) - 3, len(self.operands) - 2]
        elif PATCH in self.attributes:
            along = [1, 2, 3]
        if kind is None or kind.rank != 2 or not isinstance(kind.element_type, ir.FloatType) or self.axes != along:
            return f"has an engine for tiles of numbers along both dimensions, found {type_}"
        return ""

    def verify_region_invariants(self) -> bool:
        kernel = parent_of(self, KernelOp.OPERATION_NAME)
        if kernel is None:
            return fail(self, f"stands in no {KernelOp.OPERATION_NAME}")
        if self.engine_name is not None and (reason := self._not_copied()):
            return fail(self, reason)
        for result in kernel.opview.result_ops:
            if result.position == self.position:
                kinds = self.operands[0].type, result.results[0].type
                if self.engine_name == COPIED and (reason := _overlap(*kinds) or overwrites(kinds[1])):
                    return fail(self, reason)
                offsets = len(self.operands) - 1 - (UNTIL in self.attributes)
                return _verify_vectors(self, kinds[0]) and _verify_box(self, *kinds[::-1], offsets)
        return check_integer(self, "index", 0)


def _verify_vectors(op: ReadOp | WriteOp, tile: ir.RankedTensorType) -> bool:
    """That an agent has vectors of columns of which something is said."""
    marks = [mark for mark in (WHOLE, ALIGNED, UNTIL, STREAMED) if mark in op.attributes]
    agent = parent_of(op, AgentOp.OPERATION_NAME)
    by_rows = agent is not None and agent.opview.lanes is not None and not agent.opview.is_turned
    if not marks or (by_rows and isinstance(tile, ir.RankedTensorType) and tile.rank == 2):
        return True
    return fail(op, f"says '{marks[0]}' of rows and columns that lie by rows in an agent, found {tile}")


def overwrites(output: ir.Type) -> str:
    """Why the copy engine does not store a tensor of this type where it lies, or would store over what lies beside it;
    empty where it stores it. It stores 16 bytes at a time: of rows that end within such, it overwrites what lies behind
    them (so two nets on an H100 say; the simulator has it so)."""
    kind, place = ir.RankedTensorType(output), place_of(output)
    element, columns = kind.element_type, kind.shape[-1]
    if place.step * element_bytes(element) % GRANULE:
        return f"is stored at multiples of {GRANULE} bytes, as columns from {place.first} on of {place.pitch} are not"
    if place.shared and columns * element_bytes(element) % GRANULE:
        return f"is stored {GRANULE} bytes at a time, beyond {columns} columns of {element} beside others"
    return ""


def _overlap(tile: ir.Type, output: ir.Type) -> str:
    """Why the copy engine, which stores boxes of BOX_BYTES of each row, would store columns beside a tile's; empty
    where it does not, or the tile has all columns."""
    columns, element = ir.RankedTensorType(tile).shape[1], ir.RankedTensorType(tile).element_type
    whole = ir.RankedTensorType(output).shape[-1]
    if columns >= whole or columns * element_bytes(element) % BOX_BYTES == 0:
        return ""
    return f"is stored in boxes of {BOX_BYTES} bytes of each row, found {columns} of {whole} columns of {element}"


def box_of(op: Any, tile: ir.Type) -> list[int]:
    """The sizes of an operation's box along its `dims`, of which the tile's rows may be a patch."""
    sizes = list(ir.RankedTensorType(tile).shape)
    if PATCH not in op.attributes:
        return sizes
    return [*sizes[:-1], *numbers(op, PATCH)] if ACROSS in op.attributes else [*numbers(op, PATCH), *sizes[1:]]


def _verify_box(op: Any, whole: ir.Type, tile: ir.Type, offsets: int) -> bool:
    """The tile is a box of the whole: `dims` name different dimensions, one for each of the tile's, two for its rows
    where these are a patch."""
    if not has_numbers(op, "dims") or PATCH in op.attributes and not has_numbers(op, PATCH):
        return False
    if not isinstance(whole, ir.RankedTensorType) or not isinstance(tile, ir.RankedTensorType):
        return fail(op, f"moves a box of a ranked tensor, found {whole} and {tile}")
    dims = numbers(op, "dims")
    box = box_of(op, tile)
    if len(dims) != len(box) or len(set(dims)) != len(dims) or not all(0 <= d < whole.rank for d in dims):
        return fail(op, f"dims must name a dimension of {whole} for each of {tile}, found {dims}")
    if PATCH in op.attributes and (len(numbers(op, PATCH)) != 2 or prod(box) != prod(tile.shape)):
        return fail(op, f"patch must be two numbers whose product is a size of {tile}, found {numbers(op, PATCH)}")
    if offsets != whole.rank:
        return fail(op, f"has {offsets} offsets for the {whole.rank} dimensions of {whole}")
    if whole.element_type != tile.element_type:
        return fail(op, f"moves elements of {whole} as those of {tile}")
    return True
