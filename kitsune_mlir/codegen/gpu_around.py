"""Elementwise operators around a kernel, computed in it: those that make what it alone reads, and those that alone read
what it gives. What stands between is in no memory then.

    linalg.generic ins(%x, %w) outs(%u)               kernel: reads f(x, w), and writes g(what it gives, s)
    %y = call @kitsune_fourier0(%u)            =>
    linalg.generic ins(%y, %s) outs(%z)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kitsune_mlir.mlir import ir, memref, walk
from kitsune_mlir.operations import users_of
from kitsune_mlir.rows import dim_of, loops_of

from .affine_index import evaluate
from .gpu_buffers import behind, is_alloc, root_of, written
from .gpu_generic import Generic, dims_of
from .gpu_kernel import Kernel, See, Size, as_value, extent
from .gpu_points import body_at
from .gpu_word_access import keeps_words, store_word

MOST_BESIDE = 4  # elements of what is behind a kernel that are made of one that it gives


@dataclass(frozen=True)
class Around:
    """The operators that the kernel of a call computes besides: what makes each part of what it reads, or None; and
    those behind, which have all that it gives."""

    before: list[ir.Operation | None]
    after: list[ir.Operation]

    @staticmethod
    def of(
        call: ir.Operation,
        parts: Sequence[ir.Value],
        most: int,
        taken: set[ir.Operation],
        behind: bool = True,
        results: Sequence[ir.Value] = (),
    ) -> Around:
        """Those of a call, which is moved behind them, but for those that others have `taken`; what makes a part has up
        to `most` operations. Those `behind` it are taken if it says so, of its `results`, or of the buffers that it
        writes for these."""
        writers = {use.owner.operation for part in parts for use in part.uses if use.owner.operation != call}
        read = [value for writer in writers for value in writer.operands if isinstance(value.type, ir.MemRefType)]
        given = list(results or call.results)
        after = [generic.op for generic in takers(given, call, [*parts, *read])] if behind else []
        after = [] if taken.intersection(after) else after
        if after:
            call.move_before(after[-1])
        before: list[ir.Operation | None] = [None] * len(parts)
        for group in ([*range(len(parts))], *([i] for i in range(len(parts)))):
            made = None if any(before[i] for i in group) else maker([parts[i] for i in group], call)
            if made is None or made.op in taken or len(list(made.block.operations)) > most:
                continue
            if _reads_neighbours(made):
                for i in group:
                    before[i] = made.op
        taken.update(after, (op for op in before if op is not None))
        return Around(before, after)

    def read(self, parts: Sequence[ir.Value]) -> Operators:
        """The operators, whose operands may be others than they were."""
        made = {op: Generic(op) for op in self.before if op is not None}
        pairs = zip(self.before, parts, strict=True)
        before = [None if op is None else (made[op], made[op].outputs.index(part)) for op, part in pairs]
        return Operators(before, list(map(Generic, self.after)))


@dataclass(frozen=True)
class Operators:
    """The same, read: what makes a part, and which of its results that is."""

    before: list[tuple[Generic, int] | None]
    after: list[Generic]

    def size(self, part: ir.Value, d: int, see: See) -> Size:
        """A size of the first of the parts, which need be in no memory."""
        kind, first = ir.MemRefType(part.type), self.before[0]
        if not kind.is_dynamic_dim(d):
            return int(kind.shape[d])
        return extent(see(part), d) if first is None else first[0].size(d, see)

    def take(self, kernel: Kernel, parts: dict[ir.Value, ir.Value], at: list[ir.Value]) -> None:
        """Has the operators behind take what a kernel gives at a place, by the buffers that it is of."""
        for generic in self.after:
            _take(generic, kernel, parts, at)

    def erase(self) -> None:
        """Behind the kernel: what the operators did is done there."""
        for op in dict.fromkeys(one.op for one in [*(own[0] for own in self.before if own), *self.after]):
            op.erase()


def _take(generic: Generic, kernel: Kernel, parts: dict[ir.Value, ir.Value], at: list[ir.Value]) -> None:
    held = {i: parts[value] for i, value in enumerate(generic.inputs) if value in parts}
    read = generic.maps[next(iter(held))]
    dims, more = dict(zip(dims_of(read), at, strict=True)), beside(generic, read)
    places = [dict.fromkeys(more, as_value(e)) for e in range(generic.known_size(more[0]) or 0)] if more else [{}]
    found = [body_at(generic, kernel, dims | place, [None] * len(generic.outputs), held) for place in places]
    first = dims | places[0]
    indices = [first[d] for d in range(len(first))]
    for number, (buffer, map_) in enumerate(zip(generic.outputs, generic.out_maps, strict=True)):
        values, into = [one[number] for one in found], kernel.inside(buffer)
        if len(values) == 1 or keeps_words(into, len(values)):
            store_word(values, into, evaluate(map_, indices))
            continue
        for place, value in zip(places, values, strict=True):
            own = dims | place
            memref.store(value, into, evaluate(map_, [own[d] for d in range(len(own))]))


def _reads_neighbours(made: Generic) -> bool:
    """Whether neighbours are made of neighbours, or of the same elements: windows of a line are such."""
    last = made.parallel[-1]
    read = [list(map_.results) for map_ in made.maps[: len(made.inputs)] if last in dims_of(map_)]
    return all(_is_step(exprs[-1], last) and not any(last in loops_of(expr) for expr in exprs[:-1]) for exprs in read)


def _is_step(expr: ir.AffineExpr, loop: int) -> bool:
    """Whether a place goes on by one as a loop does."""
    if isinstance(expr, ir.AffineAddExpr):
        sides = [side for side in (expr.lhs, expr.rhs) if loop in loops_of(side)]
        return len(sides) == 1 and _is_step(sides[0], loop)
    return dim_of(expr) == loop


def maker(buffers: Sequence[ir.Value], op: ir.Operation, views: Sequence[ir.Operation] = ()) -> Generic | None:
    """The elementwise operator that makes all elements of allocations, each in its place, which operation `op` alone
    reads, through `views` at most; None where there is none that may as well run where that stands."""
    readers = [op, *views]
    users = [user for buffer in buffers for user in users_of(buffer)]
    writers = list(dict.fromkeys(user for user in users if user not in readers))
    if not all(map(is_alloc, buffers)) or len(writers) != 1 or writers[0].name != "linalg.generic":
        return None
    generic = Generic(writers[0])
    identity = ir.AffineMap.get_identity(ir.MemRefType(buffers[0].type).rank)
    plain = set(generic.outputs) == set(buffers) and not {*generic.inputs} & {*buffers}
    if not plain or any(map_ != identity for map_ in generic.out_maps):
        return None
    if generic.reduction or any(map(generic.reads, range(len(generic.outputs)))) or writers[0].block != op.block:
        return None
    return generic if _may_come_down(writers[0], op, without={*buffers}) else None


def takers(results: Sequence[ir.Value], op: ir.Operation, read: Sequence[ir.Value]) -> list[Generic]:
    """The elementwise operators that are all that reads the results of an operation, each of which has to do with one
    element of them at a time, in their order; none where the operation, which reads the buffers `read`, and they may
    not run where the last one stands."""
    readers = {user for result in results for user in users_of(result)} - {op}
    if any(reader.name != "linalg.generic" or reader.block != op.block for reader in readers):
        return []
    found = [Generic(one.operation) for one in op.block.operations if one.operation in readers]
    if not found or not all(_takes(generic, results) for generic in found):
        return []
    made = [root_of(buffer) for generic in found for buffer in generic.outputs]
    used = [buffer for generic in found for buffer in _buffers(generic.op)]
    if any(used.count(buffer) > 1 or buffer in map(root_of, read) for buffer in made):
        return []
    moved = [op, *(generic.op for generic in found)]
    return found if all(_may_come_down(one, moved[-1], moved) for one in moved[:-1]) else []


def _takes(generic: Generic, results: Sequence[ir.Value]) -> bool:
    """Whether an operator has each element of what it reads of `results` at one point of its loops, and no other way;
    neighbours give neighbours."""
    own = [map_ for value, map_ in zip(generic.inputs, generic.maps, strict=False) if value in results]
    dims = list(own[0].results) if own else []
    plain = all(isinstance(dim, ir.AffineDimExpr) for dim in dims) and len({str(map_) for map_ in own}) == 1
    overwrites = not generic.reduction and not any(map(generic.reads, range(len(generic.outputs))))
    uses = [value for one in walk(generic.op) for value in one.operands if value in results]
    if not plain or not overwrites or len(uses) != len(own):
        return False
    dims, more = dims_of(own[0]), beside(generic, own[0])
    few = all((generic.known_size(d) or MOST_BESIDE + 1) <= MOST_BESIDE for d in more)
    if sorted([*dims, *more]) != sorted(generic.parallel) or not few:
        return False
    return all(dims_of(map_)[-1 - len(more) :] == [*dims[-1:], *more] for map_ in generic.out_maps)


def beside(generic: Generic, map_: ir.AffineMap) -> list[int]:
    """The last loop of an operator, if one of its operands, read by that map, is the same along it: that of elements
    that are stacked (passes/stacked_elements.py)."""
    return [d for d in generic.parallel[-1:] if d not in dims_of(map_)]


def _buffers(op: ir.Operation) -> list[ir.Value]:
    """What an operation has to do with, views by what they are views of; each as often as it is there."""
    return [root_of(v) for one in walk(op) for v in one.operands if isinstance(v.type, ir.MemRefType)]


def _may_come_down(
    op: ir.Operation, to: ir.Operation, moved: Sequence[ir.Operation] = (), without: Collection[ir.Value] = ()
) -> bool:
    """Whether an operation may as well run where one behind it stands, with what is `moved` there: nobody between
    writes what it reads, or has to do with what it writes, but for buffers that are in no memory then."""
    made, used = ({root_of(v) for v in written(op)}.difference(without), set(_buffers(op)).difference(without))
    for other in [*behind(op, to), to]:
        if other in moved or other.name in ("memref.alloc", "memref.dim"):
            continue
        if made.intersection(_buffers(other)) or used.intersection(map(root_of, written(other))):
            return False
    return op.is_before_in_block(to)
