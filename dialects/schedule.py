"""The schedule level: what runs on a GPU, in order. A kernel holds rings and agents; an agent's body is its program.

    "kitsune.kernel"() ({
      %lo, %hi, %step = "kitsune.tiles"(%m, %n) {tile = array<i64: 128, 128>} : (index, index) -> (index, index, index)
      %x = "kitsune.alloc_ring"() {box = "rows", share = "split", space = "smem", sym_name = "left"} : () -> !x
      "kitsune.agent"() ({                              // a thread that feeds the ring
        scf.for %t = %lo to %hi step %step {
          ...
          %s = "kitsune.acquire"(%x) : (!x) -> !slot
          %d = "kitsune.copy"(%s, %A, %i, %k) {dims = array<i64: 0, 1>, engine = "tma"} : ...
          "kitsune.commit"(%s, %d) : (!slot, !kitsune.token) -> ()

What is decided about a kernel stands here, and nothing that can be derived: no counts of arrivals or bytes, no
parities, no fences, no numbers of outstanding products. A *slot* is opened once (`acquire`, `wait`) and closed once
(`commit`, `release`) on every path; what closes it names the tokens of the asynchronous work that must end before.
Bodies are linalg on tiles.
"""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from kitsune_mlir.mlir import ext, ir, walk
from kitsune_mlir.traffic import element_bytes

from .captures import captures
from .checks import check_integer, check_kind, defined_by, fail, integer, number, parent_of, string
from .tiles import RingEffect
from .types import Acc, Kitsune, Outputs, Ring, Slot, Token

DSMEM, L2 = "dsmem", "l2"
SPACES = ("smem", DSMEM, L2)
BOXES = ("rows", "columns", "dense")
SHARES = ("all", "split", "own")
STOW, WRITE_ROWS = "kitsune.stow", "kitsune.write_rows"  # stow.py, write_rows.py
SEND, TOTAL = "kitsune.send", "kitsune.total"  # clusters.py
ROLE, FILL = "kitsune.role", "kitsune.fill"  # roles.py
COPIED, BY_ROWS = "tma", "warps"  # the engines of writes that leave through boxes in shared memory
BOX_BYTES = 128  # of each row of what the copy engine stores at once
OUTBOX_BYTES = 2 * 64 * BOX_BYTES  # of shared memory for each copy of an agent whose tiles leave so
WARP = 32  # threads
COPY_ROWS = 64  # of a tile that a warpgroup has
GRANULE = 16  # bytes that a copy to a dense slot moves together
BLOCK = 8  # columns that a row's four threads have together
PIECES = ("high", "low")  # of an f32, as tf32 numbers
ENGINES = {"copy": ("tma", "cp_async"), "product": ("wgmma", "mma_sync")}


def engines(products: str) -> tuple[str, str]:
    """The engines of copies and of products, where products are "wgmma" or "mma" (Target.products)."""
    number = 0 if products == "wgmma" else 1
    return ENGINES["copy"][number], ENGINES["product"][number]


class KernelOp(Kitsune.Operation, name="kernel", traits=[ir.NoTerminatorTrait]):
    """A persistent launch: rings, `kitsune.tiles`, and agents that run at the same time in every CTA. `target` is the
    name of the target that it was scheduled for; `predicted_us` its time, in microseconds, and `limit` what that is due
    to. As many CTAs as `ctas` says run on an SM at once; one where it says nothing. Those of a `cluster`, so many
    neighbours, have the same tiles, and rings each of its own."""

    sym_name: ir.StringAttr
    outputs: ext.Result[Outputs]
    body: ext.Region

    @property
    def label(self) -> str:
        return string(self, "sym_name")

    @property
    def target(self) -> str | None:
        return string(self, "target")

    @property
    def ctas_per_sm(self) -> int:
        return integer(self, "ctas") or 1

    @property
    def cluster(self) -> int:
        """CTAs that work on a tile together."""
        return integer(self, "cluster") or 1

    @property
    def predicted_us(self) -> float | None:
        return number(self, "predicted_us")

    @property
    def limit(self) -> str | None:
        return string(self, "limit")

    @property
    def block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    def agents(self) -> list["AgentOp"]:
        """Those that stand in it directly: of a kernel with roles none."""
        return standing_in(self, AgentOp)

    @property
    def rings(self) -> list["AllocRingOp"]:
        """Those that stand in it directly: of a kernel with roles the ones between them."""
        return standing_in(self, AllocRingOp)

    @property
    def tiles(self) -> "TilesOp":
        return standing_in(self, TilesOp)[0]

    @property
    def cta_count(self) -> int | None:
        """How many CTAs there are: as many as fit, where it has no roles."""
        return None

    @property
    def parts(self) -> list[Any]:
        """What CTAs do that do the same: its roles, or the kernel itself. Each has a label, agents, rings, tiles and
        a number of CTAs."""
        return [op.operation.opview for op in self.block.operations if op.operation.name == ROLE] or [self]

    @property
    def has_roles(self) -> bool:
        return self.parts != [self]

    @property
    def writes(self) -> list["WriteOp"]:
        return [op.opview for op in walk(self, WriteOp.OPERATION_NAME)]

    @property
    def written(self) -> set[int]:
        """The numbers of the outputs that it writes."""
        return {op.opview.position for op in walk(self, WriteOp.OPERATION_NAME, WRITE_ROWS)}

    @property
    def result_ops(self) -> list[ir.OpView]:
        """The `kitsune.result`s that take outputs out, by index."""
        found = [use.owner.operation.opview for use in self.results[0].uses]
        return sorted(found, key=lambda result: result.position)

    @property
    def inputs(self) -> list[ir.Value]:
        """The values from around the kernel that it uses, in order of first use."""
        return captures(self)

    def verify_region_invariants(self) -> bool:
        if not (self._verify_roles() if self.has_roles else verify_part(self)):
            return False
        written = self.written
        if written != set(range(len(written))):
            return fail(self, f"writes outputs {sorted(written)}; wants each of 0 to n-1")
        for result in self.result_ops:
            if result.position not in written:
                return fail(result, f"takes output {result.position}, which its kitsune.kernel does not write")
        if not all(check_integer(self, name, 1) for name in ("ctas", "cluster")):
            return False
        if not check_kind(self, "limit", ir.StringAttr, "the name of a unit"):
            return False
        return check_kind(self, "predicted_us", ir.FloatAttr, "a number of microseconds")

    def _verify_roles(self) -> bool:
        if self.agents or standing_in(self, TilesOp):
            return fail(self, f"has {ROLE}s beside agents or tiles of its own")
        if self.cluster > 1 or self.ctas_per_sm > 1:
            return fail(self, f"has {ROLE}s, whose CTAs are one an SM and in no cluster")
        return unique(self, "ring", self.rings) and unique(self, "role", self.parts)


class AgentOp(Kitsune.Operation, name="agent", traits=[ir.NoTerminatorTrait]):
    """A role in every CTA of a kernel: `copies` times `warps` warps that run the body, each copy told its number by the
    block's argument; each thread of it has at most `registers` registers (a multiple of 8, 24 to 256).

    With `lanes` its tiles lie by rows: that many neighbouring threads of a copy have a row together, in turn vectors of
    `vector` neighbouring columns. Both are powers of two. A row of more than one warp is all that its copy has, and
    the copy the only one."""

    sym_name: ir.StringAttr
    copies: ir.IntegerAttr
    warps: ir.IntegerAttr
    registers: ir.IntegerAttr
    body: ext.Region

    @property
    def label(self) -> str:
        return string(self, "sym_name")

    @property
    def count(self) -> int:
        return integer(self, "copies")

    @property
    def warp_count(self) -> int:
        return integer(self, "warps")

    @property
    def register_count(self) -> int:
        return integer(self, "registers")

    @property
    def lanes(self) -> int | None:
        """Threads that have a row together; None where tiles lie otherwise."""
        return integer(self, "lanes")

    @property
    def vector(self) -> int:
        """Neighbouring columns that a lane has together."""
        return integer(self, "vector") or 1

    @property
    def block(self) -> ir.Block:
        return self.regions[0].blocks[0]

    @property
    def meeting_bytes(self) -> int:
        """Shared memory of each copy for what the CTAs of a cluster send each other (`kitsune.meet`)."""
        tiles = (ir.RankedTensorType(op.operands[0].type) for op in walk(self, "kitsune.meet"))
        return max((prod(tile.shape) * tile.element_type.width // 8 for tile in tiles), default=0)

    @property
    def total_bytes(self) -> int:
        """Shared memory of each copy for two turns of numbers of rows that CTAs tell each other (`kitsune.total`)."""
        ctas = parent_of(self, KernelOp.OPERATION_NAME).opview.cluster
        return 2 * ctas * COPY_ROWS * 4 if walk(self, TOTAL) else 0

    @property
    def outbox_bytes(self) -> int:
        """Shared memory of the boxes through which its tiles leave."""
        writes = (op.opview for op in walk(self, WriteOp.OPERATION_NAME))
        leave = any(write.engine_name is not None for write in writes) or walk(self, WRITE_ROWS, SEND, FILL)
        return self.count * OUTBOX_BYTES if leave else 0

    def verify_region_invariants(self) -> bool:
        if not all(check_integer(self, name, 1) for name in ("copies", "warps", "registers")):
            return False
        if self.register_count % 8 or not 24 <= self.register_count <= 256:
            return fail(self, f"registers must be a multiple of 8 from 24 to 256, found {self.register_count}")
        arguments = list(self.block.arguments)
        if len(arguments) != 1 or not isinstance(arguments[0].type, ir.IndexType):
            return fail(self, "has one block argument, the number of the copy, of type index")
        return self._verify_lanes() and _inside(self, KernelOp.OPERATION_NAME)

    def _verify_lanes(self) -> bool:
        if not all(check_integer(self, name, 1) for name in ("lanes", "vector")):
            return False
        if ("lanes" in self.attributes) != ("vector" in self.attributes):
            return fail(self, "has both lanes and vector, or neither")
        for name, count in (("lanes", self.lanes or 1), ("vector", self.vector)):
            if count & (count - 1):
                return fail(self, f"{name} must be a power of two, found {count}")
        threads = self.warp_count * WARP
        if self.lanes is not None and self.warp_count > 1 and (self.lanes != threads or self.count > 1):
            return fail(self, f"of {self.warp_count} warps wants rows of {threads} lanes in one copy")
        if (self.lanes or 1) > threads:
            return fail(self, f"has {threads} threads in a copy for rows of {self.lanes} lanes")
        return True


class TilesOp(Kitsune.Operation, name="tiles"):
    """The tiles of a CTA of the kernel, or of the role that it stands in, of a space of these extents cut into boxes of
    `tile` elements: number `lower`, then every `step`-th below `upper`. Tiles are numbered row-major. The only source
    of trip counts that all agents share."""

    extents: Sequence[ext.Operand[ir.IndexType]]
    lower: ext.Result[ir.IndexType]
    upper: ext.Result[ir.IndexType]
    step: ext.Result[ir.IndexType]

    @property
    def sizes(self) -> list[int]:
        return _numbers(self, "tile")

    def verify_region_invariants(self) -> bool:
        if not _has_numbers(self, "tile"):
            return False
        if len(self.sizes) != len(self.operands) or min(self.sizes, default=0) < 1:
            return fail(self, f"tile has a size from 1 on for each extent, found {self.sizes}")
        return _inside(self, KernelOp.OPERATION_NAME)


class AllocRingOp(Kitsune.Operation, name="alloc_ring"):
    """A ring of slots in `space`. A slot's tile lies in swizzled boxes along its "rows" or its "columns": the dimension
    whose elements are neighbours there; or "dense", a row of elements one after another, which threads read.
    Consumers' copies see all of a slot (`share` "all") or their part of its rows ("split"). Where each copy has its
    part to itself ("own") it fills it by itself, too, with tiles from its registers (`kitsune.stow`); or, where the
    space is "dsmem", another CTA of the cluster does (`kitsune.send`). A dense ring whose tiles have no elements passes
    turns: agents wait for one another there, and nothing is copied.

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
    def slots(self) -> int:
        return self.results[0].type.slots

    @property
    def slot_bytes(self) -> int:
        rows, columns = self.tile.shape
        return rows * columns * self.tile.element_type.width // 8

    @property
    def has_elements(self) -> bool:
        """Whether its tiles hold anything; a ring that passes turns alone has none."""
        return self.slot_bytes > 0

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
        kernel = parent_of(self, KernelOp.OPERATION_NAME)
        if kernel is not None and (self.memory == L2) != (self.operation.parent == kernel and kernel.opview.has_roles):
            return fail(self, f"lies in {L2} where it stands between {ROLE}s, and there alone")
        return _inside(self, KernelOp.OPERATION_NAME)


class AcquireOp(Kitsune.Operation, name="acquire", traits=[RingEffect]):
    """The producer's: waits for the next slot to be empty. Where tiles lie in boxes along rows, a turn may have fewer
    rows than the ring's tile: those of the slot's type, at both ends; a second copy has no part of them."""

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


class CopyOp(Kitsune.Operation, name="copy", traits=[RingEffect]):
    """Begins to copy a box of a tensor in global memory, or of a slot in "l2", into a slot, or, where slots are dense,
    all of a tensor, whose elements come to lie in the slot from element `into` on: several copies fill a dense slot.
    The box is the one at `at` (an offset for each dimension of the tensor), along dimensions `dims` the tile's first
    and second, of size 1 along the others. Elements beyond the tensor are zero, but for rows of a matrix of windows
    (`kitsune.windows`), which nobody may use. The engine is "tma", which wants rows of multiples of 16 bytes."""

    slot: ext.Operand[Slot]
    source: ext.Operand[Any]
    at: Sequence[ext.Operand[ir.IndexType]]
    engine: ir.StringAttr
    done: ext.Result[Token]

    @property
    def axes(self) -> list[int]:
        return _numbers(self, "dims")

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

    def verify_region_invariants(self) -> bool:
        if string(self, "engine") not in ENGINES["copy"]:
            return fail(self, f"engine must be one of {', '.join(ENGINES['copy'])}, found {self.attributes['engine']}")
        if not check_integer(self, "into", 0):
            return False
        tile, ring = ir.RankedTensorType(ir.TypeAttr(self.operands[0].type.elem).value), ring_of(self.operands[0])
        if ring is not None and (ring.layout == "dense") != ("into" in self.attributes):
            return fail(
                self, f"has an attribute into where slots are dense, and there alone, found ring '{ring.label}'"
            )
        if self.elements is not None:
            return self._verify_dense(tile)
        source = self.operands[1]
        if isinstance(source.type, Slot) and (taken := ring_of(source)) is not None and taken.memory != L2:
            return fail(self, f"copies out of tensors and of slots in {L2}, ring '{taken.label}' is in {taken.memory}")
        whole = _tile_of(source) if isinstance(source.type, Slot) else source.type
        return _verify_box(self, whole, tile, len(self.operands) - 2)

    def _verify_dense(self, tile: ir.RankedTensorType) -> bool:
        source = ir.RankedTensorType(self.operands[1].type)
        nbytes = source.element_type.width // 8
        if len(self.operands) > 2 or not source.has_static_shape or source.element_type != tile.element_type:
            return fail(self, f"copies all of a tensor whose elements are the slot's, found {source} for {tile}")
        if any(number * nbytes % GRANULE for number in (self.elements.start, self.elements.stop)):
            return fail(self, f"copies multiples of {GRANULE} bytes to such places, found {source}")
        return self.elements.stop <= tile.shape[1] or fail(self, f"copies {source} beyond the end of {tile}")


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
        wanted = prod(ir.RankedTensorType(ir.TypeAttr(self.results[0].type.elem).value).shape)
        if types and (found := sum(prod(type_.shape) for type_ in types)) != wanted:
            return fail(self, f"takes over the registers of {found} elements for {wanted} sums")
        if self.begins and not (types and all(isinstance(type_.element_type, ir.F32Type) for type_ in types)):
            return fail(self, f"begins with tiles of f32, found {', '.join(map(str, types)) or 'none'}")
        return _inside(self, AgentOp.OPERATION_NAME)


class ProductOp(Kitsune.Operation, name="product", traits=[ext.Pure]):
    """Begins to add left (m x k) times right (n x k), transposed, to sums (m x n), and gives them as they will be; of
    `right` all rows, of `left` those of the copy. Left is a slot, or a tile in registers, made of `part`s. That, and a
    tile that was stowed, may have fewer columns: there right's do not count. A slot that was opened for the first rows
    of a ring's tile gives those rows of the sums; others have no value that may be used. The engine is "wgmma", a
    copy's warps together, or "mma_sync", each warp a share of the copy's rows. Nothing but a product or `settle` may
    take sums. Tensor cores cut off what they add: with the unit attribute `outside` they begin at zero, and what they
    give is added elsewhere.

    By wgmma f32 is multiplied as tf32: the left operand's numbers rounded or, as `piece` says, the "high" or the "low"
    part of each. Of a tile in registers, or stowed, each 8 columns lie in the order 0, 2, 4, 6, 1, 3, 5, 7: so must
    right's."""

    sums: ext.Operand[Acc]
    left: ext.Operand[Any]
    right: ext.Operand[Slot]
    engine: ir.StringAttr
    total: ext.Result[Acc]
    done: ext.Result[Token]

    @property
    def is_added_outside(self) -> bool:
        return "outside" in self.attributes

    @property
    def piece(self) -> str | None:
        """The part of f32 numbers that is multiplied; None where these are rounded."""
        return string(self, "piece")

    @property
    def is_from_registers(self) -> bool:
        """Whether the left operand is a tile in registers."""
        return isinstance(self.operands[1].type, ir.RankedTensorType)

    @property
    def engine_name(self) -> str:
        return string(self, "engine")

    def verify_region_invariants(self) -> bool:
        if string(self, "engine") not in ENGINES["product"]:
            allowed = ", ".join(ENGINES["product"])
            return fail(self, f"engine must be one of {allowed}, found {self.attributes['engine']}")
        if not isinstance(self.operands[1].type, Slot | ir.RankedTensorType):
            return fail(self, f"multiplies a slot or a tile in registers, found {self.operands[1].type}")
        sums, left, right = (ir.RankedTensorType(type_) for type_ in map(_tile_of, self.operands))
        agent = parent_of(self, AgentOp.OPERATION_NAME)
        if agent is None:
            return fail(self, f"stands in no {AgentOp.OPERATION_NAME}")
        if self.piece is not None and (self.piece not in PIECES or not isinstance(left.element_type, ir.F32Type)):
            return fail(self, f"piece must be {' or '.join(PIECES)}, of f32, found {self.piece!r} of {left}")
        copies = agent.opview.count
        narrow = self.is_from_registers or is_stowed(self.operands[1])
        widths_agree = left.shape[1] <= right.shape[1] if narrow else left.shape[1] == right.shape[1]
        if not widths_agree or left.element_type != right.element_type:
            return fail(self, f"multiplies tiles of one type and width, found {left} and {right}")
        heights = (sums.shape[0],) if self.is_from_registers else (sums.shape[0], sums.shape[0] * copies)
        fewer = copies == 1 and not self.is_from_registers and left.shape[0] < sums.shape[0]
        if right.shape[0] != sums.shape[1] or not fewer and left.shape[0] not in heights:
            return fail(self, f"adds {left} times {right} to sums of {sums}, whose sizes differ")
        if copies > 1:
            for value, wanted in (
                (self.operands[1], ("split", "own") if left.shape[0] > sums.shape[0] else ("all",)),
                (self.operands[2], ("all",)),
            ):
                ring = ring_of(value) if isinstance(value.type, Slot) else None
                if ring is not None and ring.sharing not in wanted:
                    return fail(self, f"wants ring '{ring.label}' shared as \"{wanted[0]}\" by the copies of its agent")
        return self.results[0].type == self.operands[0].type or fail(self, "gives sums of another type than it takes")


class SettleOp(Kitsune.Operation, name="settle", traits=[ext.Pure]):
    """Waits for the products of sums, and gives them as a tile in registers."""

    sums: ext.Operand[Acc]
    tile: ext.Result[Any]

    def verify_region_invariants(self) -> bool:
        if self.results[0].type != ir.TypeAttr(self.operands[0].type.elem).value:
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
        return _inside(self, AgentOp.OPERATION_NAME)


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
        return _inside(self, AgentOp.OPERATION_NAME)


def candidates(value: ir.Value) -> list[ir.Value]:
    """The tensors in global memory that a copy or a read may mean: of a `select` all, else the one itself."""
    return list(value.owner.operands)[1:] if defined_by(value, SelectOp.OPERATION_NAME) else [value]


class ReadOp(Kitsune.Operation, name="read", traits=[ext.Pure]):
    """A box of a tensor in global memory as a tile in registers; `at`, which the tensor has, and `dims` as of a copy.
    Elements beyond the tensor have no value that may be used. With the unit attribute `together`, of a box of all
    columns of a tensor of two dimensions, the threads of a warpgroup that have a row together load 16 bytes of it each,
    where all do, and tell each other. Of a dense slot it is a tile of one dimension, of elements from `at` on. Elements
    are loaded where they are used: such a slot is released at the agent's end. With the unit attribute `ahead` those of
    a box of two dimensions are loaded where this stands, as far as threads load 16 bytes of a row together; beside
    `together` all of them, of 32, 64, ... columns of 16 bits or f32: registers hold them, and loops may carry them."""

    source: ext.Operand[Any]
    at: Sequence[ext.Operand[ir.IndexType]]
    tile: ext.Result[Any]

    @property
    def axes(self) -> list[int]:
        return _numbers(self, "dims")

    def verify_region_invariants(self) -> bool:
        if isinstance(self.operands[0].type, Slot):
            return self._verify_dense()
        whole, tile = self.operands[0].type, self.results[0].type
        if not _verify_box(self, whole, tile, len(self.operands) - 1):
            return False
        if "together" in self.attributes and (
            tile.rank != 2 or self.axes != [0, 1] or tile.shape[1:] != whole.shape[1:]
        ):
            return fail(self, f"is loaded together where it is rows of a tensor, found {tile} of {whole}")
        if "ahead" in self.attributes and tile.rank != 2:
            return fail(self, f"is loaded ahead where it has rows and columns, found {tile}")
        return True

    def _verify_dense(self) -> bool:
        slot, tile = ir.RankedTensorType(_tile_of(self.operands[0])), self.results[0].type
        ring = ring_of(self.operands[0])
        if ring is not None and ring.layout != "dense":
            return fail(self, f"reads tensors and dense slots, ring '{ring.label}' has {ring.layout}")
        if not isinstance(tile, ir.RankedTensorType) or tile.rank != 1 or tile.element_type != slot.element_type:
            return fail(self, f"gives elements of {slot} as {tile}")
        if len(self.operands) != 2 or tile.shape[0] > slot.shape[1]:
            return fail(self, f"gives {tile} from one place on of {slot}, found {len(self.operands) - 1} places")
        return True


class WriteOp(Kitsune.Operation, name="write", traits=[RingEffect]):
    """Writes a tile in registers to output `index`, whose type is that of its `kitsune.result`, at `at`, which the
    tensor has, and along `dims` as of a copy. Elements beyond the tensor are dropped. Threads store it, or, with an
    engine, lay it out in boxes of their copy in shared memory: two of them, of which one is filled while the other
    leaves. The copy engine ("tma") stores rows of multiples of 16 bytes; any others warps ("warps") do, row by row.
    With the unit attribute `once` it is what each CTA of a cluster has, and the first alone writes it."""

    tile: ext.Operand[Any]
    at: Sequence[ext.Operand[ir.IndexType]]
    index: ir.IntegerAttr

    @property
    def axes(self) -> list[int]:
        return _numbers(self, "dims")

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
        if kind is None or kind.rank != 2 or not isinstance(kind.element_type, ir.FloatType) or self.axes != [0, 1]:
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
                if self.engine_name == COPIED and (reason := _overlap(self.operands[0].type, result.results[0].type)):
                    return fail(self, reason)
                return _verify_box(self, result.results[0].type, self.operands[0].type, len(self.operands) - 1)
        return check_integer(self, "index", 0)


def _overlap(tile: ir.Type, output: ir.Type) -> str:
    """Why the copy engine, which stores boxes of BOX_BYTES of each row, would store columns beside a tile's; empty
    where it does not, or the tile has all columns."""
    columns, element = ir.RankedTensorType(tile).shape[1], ir.RankedTensorType(tile).element_type
    whole = ir.RankedTensorType(output).shape[1]
    if columns >= whole or columns * element_bytes(element) % BOX_BYTES == 0:
        return ""
    return f"is stored in boxes of {BOX_BYTES} bytes of each row, found {columns} of {whole} columns of {element}"


def kernels(module: Any) -> Iterator[KernelOp]:
    """The kernels of a module, in program order; safe to erase while iterating."""
    for op in walk(module, KernelOp.OPERATION_NAME):
        yield op.opview


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


def distance(ring: AllocRingOp) -> int:
    """How far behind a CTA, in its cluster, the one is that fills a ring in "dsmem" (`kitsune.send`)."""
    (use,) = {use.operand_number for use in ring.results[0].uses if use.owner.operation.name == SEND}
    return use + 1


def is_stowed(slot: ir.Value) -> bool:
    """Whether the ring of a slot is each copy's own."""
    ring = ring_of(slot)
    return ring is not None and ring.sharing == "own"


def standing_in(op: Any, kind: type) -> list[Any]:
    """The operations of a kind that stand in another one's body directly."""
    return [inner.operation.opview for inner in op.block.operations if inner.operation.name == kind.OPERATION_NAME]


def unique(op: Any, what: str, members: Sequence[Any]) -> bool:
    """No two members have one name."""
    labels = [member.label for member in members]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    return not twice or fail(op, f"has two {what}s called '{twice[0]}'; names must be unique")


def verify_part(op: Any) -> bool:
    """What CTAs that do the same have: agents, and tiles dealt out once."""
    if not op.agents:
        return fail(op, "has no kitsune.agent")
    if len(standing_in(op, TilesOp)) != 1:
        return fail(op, "deals out its tiles by one kitsune.tiles")
    return unique(op, "ring", op.rings) and unique(op, "agent", op.agents)


def _inside(op: Any, name: str) -> bool:
    return parent_of(op, name) is not None or fail(op, f"stands in no {name}")


def _numbers(op: Any, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))


def _has_numbers(op: Any, name: str) -> bool:
    """The attribute is there, an array of i64; IRDL cannot say that of a field."""
    if name not in op.attributes or not isinstance(op.attributes[name], ir.DenseI64ArrayAttr):
        return fail(op, f"has an attribute {name}, an array of i64")
    return True


def _tile_of(value: ir.Value) -> ir.Type:
    """The tile that sums, a slot or registers hold."""
    return value.type if isinstance(value.type, ir.RankedTensorType) else ir.TypeAttr(value.type.elem).value


def _verify_opened(op: Any) -> bool:
    if not defined_by(op.operands[0], AllocRingOp.OPERATION_NAME):
        return fail(op, "takes its operand straight from a kitsune.alloc_ring")
    tile, ring = ir.TypeAttr(op.results[0].type.elem).value, op.operands[0].owner.operation.opview
    if ring.sharing == "own" and (ring.memory != DSMEM or op.OPERATION_NAME == AcquireOp.OPERATION_NAME):
        does = SEND if ring.memory == DSMEM else STOW
        return fail(op, f"opens a slot of ring '{ring.label}', which {does} alone does")
    if ring.memory == DSMEM and _is_narrower(tile, ring.tile):
        return _inside(op, AgentOp.OPERATION_NAME)
    if tile != ring.tile and not _is_first_rows(tile, ring):
        return fail(op, f"gives a slot of type {op.results[0].type}, of a ring of type {op.operands[0].type}")
    return _inside(op, AgentOp.OPERATION_NAME)


def _is_narrower(tile: ir.Type, whole: ir.RankedTensorType) -> bool:
    """Whether a tile has a ring's rows, and no more columns than its tiles."""
    if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2 or tile.element_type != whole.element_type:
        return False
    return tile.shape[0] == whole.shape[0] and 0 < tile.shape[1] <= whole.shape[1]


def _is_first_rows(tile: ir.Type, ring: AllocRingOp) -> bool:
    """Whether a tile is the first rows of those of a ring in which a row is a row of a box."""
    if not isinstance(tile, ir.RankedTensorType) or tile.rank != 2 or ring.layout != "rows":
        return False
    same = tile.element_type == ring.tile.element_type and tile.shape[1] == ring.tile.shape[1]
    return same and 0 < tile.shape[0] <= ring.tile.shape[0]


def _verify_closed(op: Any) -> bool:
    others = [use.owner.operation.name for use in op.operands[0].uses if use.owner.operation != op.operation]
    if any(name in (CommitOp.OPERATION_NAME, ReleaseOp.OPERATION_NAME) for name in others):
        return fail(op, "closes a slot that is closed elsewhere too")
    ring = ring_of(op.operands[0])
    if len(op.operands) > 1 and ring is not None and ring.memory == L2:
        return fail(op, f"takes no tokens: a slot of ring '{ring.label}', in {L2}, waits for all copies by itself")
    return _inside(op, AgentOp.OPERATION_NAME)


def _verify_box(op: Any, whole: ir.Type, tile: ir.Type, offsets: int) -> bool:
    """The tile is a box of the whole: `dims` name different dimensions, one for each of the tile's."""
    if not _has_numbers(op, "dims"):
        return False
    if not isinstance(whole, ir.RankedTensorType) or not isinstance(tile, ir.RankedTensorType):
        return fail(op, f"moves a box of a ranked tensor, found {whole} and {tile}")
    dims = _numbers(op, "dims")
    if len(dims) != tile.rank or len(set(dims)) != len(dims) or not all(0 <= d < whole.rank for d in dims):
        return fail(op, f"dims must name a dimension of {whole} for each of {tile}, found {dims}")
    if offsets != whole.rank:
        return fail(op, f"has {offsets} offsets for the {whole.rank} dimensions of {whole}")
    if whole.element_type != tile.element_type:
        return fail(op, f"moves elements of {whole} as those of {tile}")
    return True
