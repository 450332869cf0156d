"""Results of @main that are views: where in which buffer they lie, so that no kernel copies them.

A result may be reached from a buffer through views (memref.subview and its like), through a copy that only the return
reads, and through operators that move elements without computing anything (linalg.transpose, a linalg.generic that
yields its input). All of these are an offset, sizes and strides:

    %t = memref.alloc() : memref<96x256xf32>
    linalg.transpose ins(%y) outs(%t) permutation = [1, 0]
    return %t
  =>
    %v = memref.reinterpret_cast %y to offset: [0], sizes: [96, 256], strides: [1, 96]
    return %v
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import arith, ir, memref
from kitsune_mlir.operations import operations_of, permutation_of
from kitsune_mlir.rows import groups_of

from .affine_index import linear
from .gpu_buffers import VIEWS, behind, is_alloc, root_of, uses_of, written
from .gpu_kernel import Size, as_value, extent, product

_MOVES = ("memref.copy", "linalg.transpose", "linalg.broadcast", "linalg.generic")


@dataclass(frozen=True)
class Layout:
    """A view of a buffer, in elements; what a call decides is a host value. It is `dense` when it is known to be all of
    the buffer in its order."""

    buffer: ir.Value
    offset: Size
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    dense: bool = False

    def emit(self, shape: Sequence[int]) -> ir.Value:
        """The view as a memref of this shape (which says what sizes are open) at the insertion point."""
        kind, mark = ir.MemRefType(self.buffer.type), ir.ShapedType.get_dynamic_size()
        sizes = [as_value(size) if wanted == mark else wanted for size, wanted in zip(self.sizes, shape, strict=True)]
        parts = [[self.offset], sizes, self.strides]
        static = [[size if isinstance(size, int) else mark for size in part] for part in parts]
        dynamic = [[size for size in part if not isinstance(size, int)] for part in parts]
        layout = ir.StridedLayoutAttr.get(static[0][0], static[2])
        type_ = ir.MemRefType.get(static[1], kind.element_type, layout, kind.memory_space)
        return memref.ReinterpretCastOp(type_, self.buffer, *dynamic, *static).result


def layout_of(value: ir.Value) -> Layout | None:
    """Where a returned memref lies, at the insertion point, which is the return's; None where that is not known."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name == "func.call":
        return _whole(value)
    op = value.owner.operation
    if op.name == "memref.alloc":
        move = moved_by(op)
        if move is None:
            return _whole(value)
        source = layout_of(move.operands[0])
        return None if source is None else _moved(source, move, value)
    if op.name not in VIEWS:
        return None
    source = layout_of(op.operands[0])
    if source is None:
        return None
    match op.name:
        case "memref.cast":
            return source
        case "memref.subview":
            return _part(source, op)
        case "memref.expand_shape":
            return _expanded(source, op)
        case "memref.collapse_shape":
            return _collapsed(source, op)
    return None


def moved_by(alloc: ir.Operation) -> ir.Operation | None:
    """The operation that only moves elements into a buffer which nothing but the return reads, from one that is not
    written from then on; None where there is no such thing."""
    buffer = alloc.results[0]
    writers = [use.owner.operation for use in buffer.uses if _may_move(use.owner) and use.operand_number == 1]
    if len(writers) != 1 or writers[0].block != alloc.block:
        return None
    (move,) = writers
    moves = move.operands[0] != buffer and _coefficients(move) is not None
    if moves and _is_only_returned(buffer, move) and not _is_written_behind(root_of(move.operands[0]), move):
        return move
    return None


def _may_move(op: ir.Operation) -> bool:
    return op.name in _MOVES and len(op.operands) == 2


def erase_unread(block: ir.Block) -> None:
    """Erases the buffers that results were moved to, and are not read any more."""
    for op in reversed(operations_of(block)):
        if op.name != "memref.alloc":
            continue
        users = [use.owner.operation for use in uses_of(op.results[0])]
        moves = [user for user in users if _may_move(user) and user.operands[1] == op.results[0]]
        sizes = [user for user in users if user.name == "memref.dim" and not list(user.results[0].uses)]
        if moves and all(user in moves or user in sizes or user.name in VIEWS for user in users):
            for user in [*reversed(users), op]:
                user.erase()


def _is_only_returned(buffer: ir.Value, but: ir.Operation) -> bool:
    """Whether all that reads a buffer is the return, or moves it into a buffer that is only returned."""
    for user in (use.owner.operation for use in uses_of(buffer)):
        if user == but or user.name in ("func.return", "memref.dim", *VIEWS):
            continue
        if not _may_move(user) or not is_alloc(target := user.operands[1]):
            return False
        moved = moved_by(target.owner.operation) if target != buffer else None
        if moved is None or moved != user:
            return False
    return True


def _is_written_behind(root: ir.Value, op: ir.Operation) -> bool:
    """Whether an operation behind `op` may write a buffer."""
    return any(root_of(v) == root for other in behind(op) for v in written(other))


def _whole(value: ir.Value) -> Layout:
    return _dense(value, _sizes(value))


def _sizes(buffer: ir.Value) -> list[Size]:
    """The sizes of a buffer; those of an allocation do not ask it, so that it may go."""
    kind = ir.MemRefType(buffer.type)
    if not is_alloc(buffer):
        return [extent(buffer, d) for d in range(kind.rank)]
    rest = iter(buffer.owner.operation.operands)
    return [next(rest) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]


def _dense(buffer: ir.Value, sizes: Sequence[Size]) -> Layout:
    strides = tuple(product(sizes[d + 1 :]) for d in range(len(sizes)))
    return Layout(buffer, 0, tuple(sizes), strides, True)


def _mixed(op: ir.Operation, *names: str) -> list[list[Size]]:
    """The numbers of an operation's attributes, the dynamic ones from its operands behind the first, in order."""
    mark, rest = ir.ShapedType.get_dynamic_size(), iter(list(op.operands)[1:])
    static = [list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in names]
    return [[next(rest) if number == mark else number for number in part] for part in static]


def _sum(terms: Sequence[Size]) -> Size:
    """The sum, folded as far as it is known."""
    known, total = sum(term for term in terms if isinstance(term, int)), None
    for term in terms:
        if not isinstance(term, int):
            total = term if total is None else arith.addi(total, term)
    if total is None:
        return known
    return arith.addi(total, as_value(known)) if known else total


def _part(source: Layout, op: ir.Operation) -> Layout:
    offsets, sizes, steps = _mixed(op, "static_offsets", "static_sizes", "static_strides")
    offset = _sum([source.offset, *(product([at, by]) for at, by in zip(offsets, source.strides, strict=True))])
    mark, wanted = ir.ShapedType.get_dynamic_size(), list(ir.MemRefType(op.results[0].type).shape)
    kept = []  # dimensions of one element may be dropped
    for d, size in enumerate(sizes):
        if len(kept) < len(wanted) and wanted[len(kept)] == (size if isinstance(size, int) else mark):
            kept.append(d)
    strides = [product([source.strides[d], steps[d]]) for d in kept]
    return Layout(source.buffer, offset, tuple(sizes[d] for d in kept), tuple(strides))


def _expanded(source: Layout, op: ir.Operation) -> Layout:
    (sizes,) = _mixed(op, "static_output_shape")
    if source.dense:
        return _dense(source.buffer, sizes)
    strides: list[Size] = []
    for group, stride in zip(groups_of(op), source.strides, strict=True):
        strides += [product([stride, *(sizes[d] for d in group[at + 1 :])]) for at in range(len(group))]
    return Layout(source.buffer, source.offset, tuple(sizes), tuple(strides))


def _collapsed(source: Layout, op: ir.Operation) -> Layout | None:
    groups = groups_of(op)
    sizes = [product([source.sizes[d] for d in group]) for group in groups]
    if source.dense:
        return _dense(source.buffer, sizes)
    strides: list[Size] = []
    for group in groups:
        longer = [d for d in group if source.sizes[d] != 1] or group[-1:]
        for d, inner in zip(longer, longer[1:]):
            known = [source.strides[d], source.strides[inner], source.sizes[inner]]
            if not all(isinstance(number, int) for number in known) or known[0] != product(known[1:]):
                return None
        strides.append(source.strides[longer[-1]])
    return Layout(source.buffer, source.offset, tuple(sizes), tuple(strides))


def _moved(source: Layout, move: ir.Operation, target: ir.Value) -> Layout | None:
    """The layout of what is moved into a target, in terms of the source."""
    found = _coefficients(move)
    assert found is not None
    if move.name == "memref.copy":
        return source
    sizes, (firsts, steps) = _sizes(target), found
    offset = _sum([source.offset, *(product([at, by]) for at, by in zip(firsts, source.strides, strict=True))])
    strides = [
        _sum([product([row[d], by]) for row, by in zip(steps, source.strides, strict=True) if row[d]])
        for d in range(len(sizes))
    ]
    return Layout(source.buffer, offset, tuple(sizes), tuple(strides))


def _coefficients(move: ir.Operation) -> tuple[list[int], list[list[int]]] | None:
    """Which element of its source a move takes to (d0, d1, ...): for each dimension of the source a first index, and by
    how much each d adds to it. None for what is no move. Of a copy nothing is said."""
    if move.name == "memref.copy":
        return [], []
    rank = ir.MemRefType(move.operands[1].type).rank
    if move.name == "linalg.transpose":
        permutation = permutation_of(move)
        return [0] * rank, [[int(permutation[d] == j) for d in range(rank)] for j in range(rank)]
    if move.name == "linalg.broadcast":
        added = list(ir.DenseI64ArrayAttr(move.attributes["dimensions"]))
        kept = [d for d in range(rank) if d not in added]
        return [0] * len(kept), [[int(d == own) for d in range(rank)] for own in kept]
    maps = [ir.AffineMapAttr(entry).value for entry in ir.ArrayAttr(move.attributes["indexing_maps"])]
    body = move.regions[0].blocks[0]
    yields = len(body.operations) == 1 and list(body.operations[0].operands) == [body.arguments[0]]
    if len(maps) != 2 or not yields or maps[1] != ir.AffineMap.get_identity(rank):
        return None
    terms = [linear(expression, rank) for expression in maps[0].results]
    if any(term is None for term in terms):
        return None
    return [term[0] for term in terms if term], [term[1] for term in terms if term]
