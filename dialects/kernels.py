"""Kernels at the schedule level, the agents in them, and the tiles that they work on."""
# No `from __future__ import annotations` here: the field declarations are read as raw annotations.

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from kitsune_mlir.mlir import ext, ir, walk
from kitsune_mlir.planning.row_tiles import MOST_ROWS

from .captures import captures
from .checks import check_integer, check_kind, fail, integer, number, parent_of, string
from .columns import is_among_columns, misplaced
from .types import Kitsune, Outputs

TURNED = "turned"
STOW, WRITE_ROWS = "kitsune.stow", "kitsune.write_rows"  # stow.py, write_rows.py
SEND, COLLECT, TOTAL = "kitsune.send", "kitsune.collect", "kitsune.total"  # clusters.py
ROLE, FILL, SPLIT = "kitsune.role", "kitsune.fill", "kitsune.split"  # roles.py, split.py
ALLOC, READ, WRITE = "kitsune.alloc_ring", "kitsune.read", "kitsune.write"  # rings.py, boxes.py
PRODUCT, COPY = "kitsune.product", "kitsune.copy"  # products.py, boxes.py
GATHER_ROWS = "kitsune.gather_rows"  # gather_rows.py
BOX_BYTES = 128  # of each row of what the copy engine stores at once
OUTBOX_BYTES = 64 * BOX_BYTES  # of shared memory for a box of a copy's rows
MOST_OUTBOXES = 2  # of a copy of an agent whose tiles leave so: one is written while the other leaves
WARP = 32  # threads
COPY_ROWS = 64  # of a tile that a warpgroup has


class KernelOp(Kitsune.Operation, name="kernel", traits=[ir.NoTerminatorTrait]):
    """A persistent launch: rings, `kitsune.tiles`, and agents that run at the same time in every CTA. `target` is the
    name of the target that it was scheduled for; `predicted_us` its time, in microseconds, and `limit` what that is due
    to. As many CTAs as `ctas` says run on an SM at once; one where it says nothing. They go round the tiles; where each
    has a `single` one, there are as many as tiles. Those of a `cluster`, so many neighbours, have the same tiles, and
    rings each of its own. Numbers of f32 may be multiplied as several of 16 bits: then so many `pairs` of these make a
    product. A size that is open until the call is one, wherever tensors have it; it is `least` or more in each call, if
    that is said."""

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
    def has_single_tiles(self) -> bool:
        """Whether each tile has a CTA of its own."""
        return "single" in self.attributes

    @property
    def cluster(self) -> int:
        """CTAs that work on a tile together."""
        return integer(self, "cluster") or 1

    @property
    def pairs(self) -> int:
        """Pairs of pieces of f32 numbers that make a product; 1 where numbers are whole."""
        return integer(self, "pairs") or 1

    @property
    def least_open(self) -> int:
        """What a size that is open until the call is at least."""
        return integer(self, "least") or 0

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
        return standing_in(self, AgentOp.OPERATION_NAME)

    @property
    def rings(self) -> list[Any]:
        """Those that stand in it directly: of a kernel with roles the ones between them."""
        return standing_in(self, ALLOC)

    @property
    def tiles(self) -> "TilesOp":
        return standing_in(self, TilesOp.OPERATION_NAME)[0]

    @property
    def cta_count(self) -> int | None:
        """How many CTAs there are: as many as fit, where it has no roles."""
        return None

    @property
    def parts(self) -> list[Any]:
        """What CTAs do that do the same: its roles, or the kernel itself. Each has a label, agents, rings, tiles and
        a number of CTAs."""
        return standing_in(self, ROLE) or [self]

    @property
    def has_roles(self) -> bool:
        return self.parts != [self]

    @property
    def writes(self) -> list[Any]:
        return [op.opview for op in walk(self, WRITE)]

    @property
    def written(self) -> set[int]:
        """The numbers of the outputs that it writes."""
        return {op.opview.position for op in walk(self, WRITE, WRITE_ROWS)}

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
            if reason := misplaced(result.results[0].type) or self._misplaces(result):
                return fail(result, reason)
        if not all(check_integer(self, name, 1) for name in ("ctas", "cluster", "least")):
            return False
        if not check_kind(self, "limit", ir.StringAttr, "the name of a unit"):
            return False
        if not check_kind(self, "single", ir.UnitAttr, "said without a value"):
            return False
        return check_kind(self, "predicted_us", ir.FloatAttr, "a number of microseconds")

    def _misplaces(self, result: ir.OpView) -> str:
        """Why an output is not written among the columns of longer rows as its type has it; empty where it is."""
        if not is_among_columns(result.results[0].type):
            return ""
        boxes = all(op.opview.position != result.position for op in walk(self, WRITE_ROWS))
        return "" if boxes else f"lies among the columns of longer rows where {WRITE}s alone make it"

    def _verify_roles(self) -> bool:
        if self.agents or standing_in(self, TilesOp.OPERATION_NAME):
            return fail(self, f"has {ROLE}s beside agents or tiles of its own")
        if self.cluster > 1 or self.ctas_per_sm > 1 or self.has_single_tiles:
            return fail(self, f"has {ROLE}s, whose CTAs are one an SM and in no cluster, and go round the tiles")
        return unique(self, "ring", self.rings) and unique(self, "role", self.parts)


class AgentOp(Kitsune.Operation, name="agent", traits=[ir.NoTerminatorTrait]):
    """A role in every CTA of a kernel: `copies` times `warps` warps that run the body, each copy told its number by the
    block's argument; each thread of it has at most `registers` registers (a multiple of 8, 24 to 256).

    With `lanes` its tiles lie by rows: that many neighbouring threads of a copy have a row together, in turn vectors of
    `vector` neighbouring columns. Both are powers of two. A row of more than one warp is all that its copy has, and
    the copy the only one. With the unit attribute `turned` the threads of a warp have `vector` neighbouring rows each,
    1, 2 or 4, and `lanes` warps of a copy the same ones, in turn a column."""

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
        """Neighbouring columns that a lane has together, neighbouring rows where it is `turned`."""
        return integer(self, "vector") or 1

    @property
    def is_turned(self) -> bool:
        """Whether the threads of a warp have rows of their own, and a row's columns lie in `lanes` warps."""
        return TURNED in self.attributes

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
    def outboxes(self) -> int:
        """The boxes of each copy through which its tiles leave: one where all are stored as they are, and no wider."""
        found = walk(self, WRITE, FILL, WRITE_ROWS, SEND, COLLECT)
        if any(op.name in (WRITE_ROWS, SEND) or (op.name == FILL and op.opview.is_between_roles) for op in found):
            return MOST_OUTBOXES
        writes = [op.opview for op in found if op.name == WRITE]
        tiles = [ir.RankedTensorType(write.operands[0].type) for write in writes if write.engine_name is not None]
        return max([*map(outboxes_of, tiles), int(any(op.name == COLLECT for op in found))])

    @property
    def outbox_bytes(self) -> int:
        """Shared memory of the boxes through which its tiles leave."""
        return self.count * self.outboxes * OUTBOX_BYTES

    def verify_region_invariants(self) -> bool:
        if not all(check_integer(self, name, 1) for name in ("copies", "warps", "registers")):
            return False
        if self.register_count % 8 or not 24 <= self.register_count <= 256:
            return fail(self, f"registers must be a multiple of 8 from 24 to 256, found {self.register_count}")
        arguments = list(self.block.arguments)
        if len(arguments) != 1 or not isinstance(arguments[0].type, ir.IndexType):
            return fail(self, "has one block argument, the number of the copy, of type index")
        return self._verify_lanes() and inside(self, KernelOp.OPERATION_NAME)

    def _verify_lanes(self) -> bool:
        if not all(check_integer(self, name, 1) for name in ("lanes", "vector")):
            return False
        if ("lanes" in self.attributes) != ("vector" in self.attributes):
            return fail(self, "has both lanes and vector, or neither")
        for name, count in (("lanes", self.lanes or 1), ("vector", self.vector)):
            if count & (count - 1):
                return fail(self, f"{name} must be a power of two, found {count}")
        threads = self.warp_count * WARP
        if self.is_turned:
            if self.lanes != self.warp_count or self.lanes > 1 and self.count > 1:
                return fail(
                    self, f"of {self.warp_count} warps whose threads have rows of their own wants as many lanes"
                )
            if self.vector > MOST_ROWS:
                return fail(self, f"has threads of {self.vector} rows each, more than {MOST_ROWS}")
            return True
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
        return numbers(self, "tile")

    def verify_region_invariants(self) -> bool:
        if not has_numbers(self, "tile"):
            return False
        if len(self.sizes) != len(self.operands) or min(self.sizes, default=0) < 1:
            return fail(self, f"tile has a size from 1 on for each extent, found {self.sizes}")
        return inside(self, KernelOp.OPERATION_NAME)


def kernels(module: Any) -> Iterator[KernelOp]:
    """The kernels of a module, in program order; safe to erase while iterating."""
    for op in walk(module, KernelOp.OPERATION_NAME):
        yield op.opview


def standing_in(op: Any, name: str) -> list[Any]:
    """The operations of a name that stand in another one's body directly."""
    return [inner.operation.opview for inner in op.block.operations if inner.operation.name == name]


def unique(op: Any, what: str, members: Sequence[Any]) -> bool:
    """No two members have one name."""
    labels = [member.label for member in members]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    return not twice or fail(op, f"has two {what}s called '{twice[0]}'; names must be unique")


def verify_part(op: Any) -> bool:
    """What CTAs that do the same have: agents, and tiles dealt out once."""
    if not op.agents:
        return fail(op, "has no kitsune.agent")
    if len(standing_in(op, TilesOp.OPERATION_NAME)) != 1:
        return fail(op, "deals out its tiles by one kitsune.tiles")
    return unique(op, "ring", op.rings) and unique(op, "agent", op.agents)


def outboxes_of(tile: ir.RankedTensorType) -> int:
    """The boxes through which tiles of this type leave, of each copy."""
    wide = tile.shape[-1] * tile.element_type.width > BOX_BYTES * 8
    return MOST_OUTBOXES if wide else 1


def inside(op: Any, name: str) -> bool:
    return parent_of(op, name) is not None or fail(op, f"stands in no {name}")


def numbers(op: Any, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[name]))


def has_numbers(op: Any, name: str) -> bool:
    """The attribute is there, an array of i64; IRDL cannot say that of a field."""
    if name not in op.attributes or not isinstance(op.attributes[name], ir.DenseI64ArrayAttr):
        return fail(op, f"has an attribute {name}, an array of i64")
    return True
