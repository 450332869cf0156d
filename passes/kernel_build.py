"""Kernels at the schedule level, as passes build them at the insertion point: kernels, agents and loops, whose bodies
are built inside a `with`; rings and their slots; boxes that are copied into slots, read into registers, and written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from kitsune_mlir.dialects import kitsune, schedule
from kitsune_mlir.dialects.clusters import RankOp
from kitsune_mlir.mlir import i64, ir, scf
from kitsune_mlir.planning.target import Target


@contextlib.contextmanager
def new_kernel(
    name: str, target: Target, microseconds: float, limit: str | None = None, **counts: int | None
) -> Iterator[schedule.KernelOp]:
    """A kernel that is predicted to take so long, and what limits it; `counts` are attributes, of which it has those
    that are not None."""
    made = schedule.KernelOp(ir.StringAttr.get(name), kitsune.Outputs.get())
    made.attributes["target"] = ir.StringAttr.get(target.name)
    made.attributes["predicted_us"] = ir.FloatAttr.get(ir.F32Type.get(), microseconds)
    if limit is not None:
        made.attributes["limit"] = ir.StringAttr.get(limit)
    _give(made, counts)
    with ir.InsertionPoint(made.regions[0].blocks.append()):
        yield made


def empty_agent(name: str, copies: int, warps: int, registers: int, **counts: int) -> schedule.AgentOp:
    """An agent without a body; `counts` are attributes."""
    made = schedule.AgentOp(ir.StringAttr.get(name), *map(i64, (copies, warps, registers)))
    _give(made, counts)
    return made


@contextlib.contextmanager
def body_of(empty: schedule.AgentOp) -> Iterator[ir.Value]:
    """The body of an agent, built from the number of its copy on."""
    block = empty.regions[0].blocks.append(ir.IndexType.get())
    with ir.InsertionPoint(block):
        yield block.arguments[0]


@contextlib.contextmanager
def new_agent(name: str, copies: int, warps: int, registers: int, **counts: int) -> Iterator[ir.Value]:
    """An agent with its body."""
    with body_of(empty_agent(name, copies, warps, registers, **counts)) as copy:
        yield copy


def _give(op: ir.OpView, counts: dict[str, int | None]) -> None:
    for name, count in counts.items():
        if count is not None:
            op.attributes[name] = i64(count)


def deal_tiles(extents: Sequence[ir.Value], sizes: Sequence[int]) -> schedule.TilesOp:
    """The tiles of these sizes that CTAs are dealt out."""
    dealt = schedule.TilesOp(list(extents), *[ir.IndexType.get()] * 3)
    dealt.attributes["tile"] = ir.DenseI64ArrayAttr.get(list(sizes))
    return dealt


@contextlib.contextmanager
def turns(first: ir.Value, last: ir.Value, step: ir.Value) -> Iterator[ir.Value]:
    """A loop that carries nothing; its body is built from the turn's number on."""
    loop = scf.ForOp(first, last, step)
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variable
        scf.yield_([])


def cta_rank() -> ir.Value:
    """The CTA's number in its cluster."""
    return RankOp(ir.IndexType.get()).results[0]


def new_ring(
    name: str,
    tile: tuple[int, int],
    element: ir.Type,
    slots: int,
    share: str = "all",
    box: str = "rows",
    space: str = "smem",
) -> schedule.AllocRingOp:
    """A ring of slots of so many rows and columns of elements."""
    names = map(ir.StringAttr.get, (name, space, box, share))
    return schedule.AllocRingOp(*names, kitsune.ring_type(ir.RankedTensorType.get(list(tile), element), slots))


def acquire_slot(of: schedule.AllocRingOp, rows: int | None = None, columns: int | None = None) -> ir.Value:
    """A ring's next slot, to be filled, or its first rows or columns."""
    return schedule.AcquireOp(of.results[0], _slot_type(of, rows, columns)).results[0]


def wait_slot(of: schedule.AllocRingOp, rows: int | None = None, columns: int | None = None) -> ir.Value:
    """A ring's next slot, once it is full, or its first rows or columns."""
    return schedule.WaitOp(of.results[0], _slot_type(of, rows, columns)).results[0]


def _slot_type(of: schedule.AllocRingOp, rows: int | None, columns: int | None) -> ir.Type:
    shape = [rows or of.tile.shape[0], columns or of.tile.shape[1]]
    return schedule.Slot.get(ir.RankedTensorType.get(shape, of.tile.element_type))


def copy_box(
    slot: ir.Value, source: ir.Value, at: Sequence[ir.Value], dims: Sequence[int], engine: str
) -> schedule.CopyOp:
    """A box of a tensor, at these offsets and along these dimensions of it, on its way into a slot."""
    copy = schedule.CopyOp(slot, source, list(at), ir.StringAttr.get(engine), schedule.Token.get())
    copy.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(dims))
    return copy


def fill_slot(
    slot: ir.Value, source: ir.Value, at: Sequence[ir.Value], dims: Sequence[int], engine: str
) -> schedule.CopyOp:
    """The same of a slot that is full with it."""
    copy = copy_box(slot, source, at, dims, engine)
    schedule.CommitOp(slot, [copy.results[0]])
    return copy


def read_box(
    source: ir.Value,
    at: Sequence[ir.Value],
    shape: Sequence[int],
    dims: Sequence[int] | None = None,
    marks: Sequence[str] = (),
) -> ir.Value:
    """A box of a tensor as a tile in registers, of all dimensions of the tensor where none are named."""
    kind = ir.RankedTensorType(source.type)
    made = schedule.ReadOp(source, list(at), ir.RankedTensorType.get(list(shape), kind.element_type))
    made.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(range(kind.rank) if dims is None else dims))
    for mark in marks:
        made.attributes[mark] = ir.UnitAttr.get()
    return made.results[0]


def write_box(
    tile: ir.Value,
    at: Sequence[ir.Value],
    number: int,
    dims: Sequence[int],
    engine: str | None = None,
    marks: Sequence[str] = (),
) -> schedule.WriteOp:
    """Writes a tile to the output of this number, as `read_box` reads one."""
    made = schedule.WriteOp(tile, list(at), i64(number))
    made.attributes["dims"] = ir.DenseI64ArrayAttr.get(list(dims))
    if engine is not None:
        made.attributes["engine"] = ir.StringAttr.get(engine)
    for mark in marks:
        made.attributes[mark] = ir.UnitAttr.get()
    return made
