"""Groups of operators over one space of rows and columns: elementwise, elementwise over rows alone, or a reduction over
all columns.

An operator fits the space whatever its loops are called: those of size 1 do not count, the others are first loops over
rows, whose sizes multiply to the space's rows, then loops over columns. In a space whose columns do not stand last, as
the channels of images do, more loops over rows follow, which multiply to its `inner` rows. Reshapes in between do not
move elements, so an edge from one operator to another leads through them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from operator import or_

from kitsune_mlir import rows
from kitsune_mlir.codegen.gpu_reduction import JOINS
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import is_generic
from kitsune_mlir.planning.open_sizes import is_open

from .block_order import Order
from .early_casts import rounds_windows
from .plain_bodies import is_brought, is_constant, is_plain

Shape = Callable[[ir.Value], Sequence[int | None]]


@dataclass(frozen=True)
class Space:
    """`rows` is what is known of their number: where `is_open`, the factor of a size that is open until the call. Of
    them `inner` neighbours have their elements of a column one behind the other; 1: columns stand last."""

    is_open: bool
    rows: int
    columns: int
    inner: int = 1


@dataclass(frozen=True)
class Role:
    """Which of an operator's loops over rows an operand has, and whether it has those over columns."""

    rows: tuple[int, ...]
    columns: bool


@dataclass(frozen=True, eq=False)
class Member:
    """An operator of a group. `kind` is "tile" (rows x columns), "scan" (likewise, of those before: row_scans.py),
    "rows" (rows alone) or "reduction" (from the first to the last); `row_loops` are those over rows, with `row_sizes`
    (None: open); `roles` those of its operands, None for what is a scalar constant."""

    op: ir.Operation
    s: rows.Structured
    kind: str
    row_loops: tuple[int, ...]
    row_sizes: tuple[int | None, ...]
    roles: tuple[Role | None, ...]

    @property
    def result(self) -> Role:
        return Role(self.row_loops, self.has_columns)

    @property
    def has_columns(self) -> bool:
        """Whether its result does."""
        return self.kind in ("tile", "scan")

    def is_whole(self, role: Role | None) -> bool:
        """Whether an operand has all the space's rows, as results of the group have."""
        return role is not None and role.rows == self.row_loops


@dataclass(frozen=True)
class Group:
    """`members` are in program order, by their results: an operation's hash changes with its operands. What those
    `beside` it take of its members makes no outputs of them."""

    space: Space
    members: dict[ir.Value, Member]
    beside: tuple[Member, ...] = ()

    @property
    def ordered(self) -> list[Member]:
        return list(self.members.values())

    @property
    def ops(self) -> list[ir.Operation]:
        return [member.op for member in self.ordered]

    @property
    def results(self) -> list[ir.Value]:
        """What is used outside of the group."""
        return [member.op.results[0] for member in self.outputs]

    @property
    def scans(self) -> set[ir.Operation]:
        return {member.op for member in self.ordered if member.kind == "scan"}

    def has(self, op: ir.Operation) -> bool:
        return any(result in self.members for result in op.results)

    @property
    def outputs(self) -> list[Member]:
        """The members whose results are used outside of the group."""
        apart = {member.op for member in self.beside}
        return [m for m in self.ordered if any(not self.has(op) and op not in apart for op in users(m.op.results[0]))]

    def for_one(self, result: ir.Value) -> Group:
        """Those members that serve this result alone: what others take too, such as a bias that all layers add, is
        computed beside the group."""
        group = self
        while others := [m for m in group.outputs if m.op.results[0] != result]:
            left = {value: m for value, m in group.members.items() if m not in others}
            group = replace(self, members=left)
        return group

    @property
    def edges(self) -> set[ir.Value]:
        """What linalg operations beside the group compute for it, and it for them."""
        taken = {root(value) for m in self.ordered for value, role in zip(m.op.operands, m.roles) if role is not None}
        taken = {v for v in taken - set(self.members) if _is_linalg(rows.producer(v))}
        return taken | {
            m.op.results[0]
            for m in self.ordered
            if any(_is_linalg(op) and not self.has(op) for op in users(m.op.results[0]))
        }


def _is_linalg(op: ir.Operation | None) -> bool:
    return op is not None and op.name.startswith("linalg.")


def root(value: ir.Value) -> ir.Value:
    """The tensor that a value is a reshape of, or the value."""
    while (op := rows.producer(value)) is not None and op.name in rows.RESHAPES:
        value = op.operands[0]
    return value


def users(value: ir.Value) -> Iterator[ir.Operation]:
    """The operations that use a value, also those that use a reshape of it."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in rows.RESHAPES:
            yield from users(op.results[0])
        else:
            yield op


def scalar_of(value: ir.Value) -> ir.Value | None:
    """The constant that an operand is everywhere, if it is one."""
    op = rows.producer(value)
    if op is not None and op.name == "linalg.fill":
        value = op.operands[0]
    return None if rows.is_tensor(value) or not is_constant(value) else value


def find(
    order: Order,
    shape: Shape = rows.known_sizes,
    of_lengths: bool = False,
    is_taken: Callable[[Group], bool] = lambda group: True,
    own: Callable[..., Space | None] | None = None,
    fits: Callable[..., Member | None] | None = None,
) -> list[Group]:
    """Groups with a reduction that are to be taken, each as large as may be, no operator in two. In the places of all
    of them operations may stand: no value leaves one and comes back, also by way of others. `shape` says the sizes of
    tensors. Where columns are open until the call, operators may use numbers computed of such sizes if `of_lengths`
    says so. `own` and `fits` are in the place of `space_of` and `fit`."""
    taken: set[ir.Operation] = set()
    growths: dict[Space, _Growth] = {}
    found = []
    for op in order.ops:
        if op in taken or (space := (own or space_of)(op, shape)) is None:
            continue
        lengths = of_lengths and is_open(space.columns)
        growth = growths.setdefault(space, _Growth(order, space, shape, lengths, fits or fit))
        if (seed := growth.fit(op)) is not None:
            group = growth.grown(seed, taken)
            if (scans := group.scans) and not is_taken(group):  # what is around them may be a kernel without them
                taken |= scans
                if op in taken:
                    continue
                group = growth.grown(seed, taken)
            if not is_taken(group):  # what is computed of rows alone, or of columns, may be of others, with other ones
                free = ("rows",) if group.space.inner == 1 else ("rows", "tile")
                taken |= {member.op for member in group.ordered if member.kind not in free}
                continue
            taken |= {member.op for member in group.ordered}
            order.join([member.op for member in group.ordered])
            found.append(group)
    return found


class _Growth:
    """How groups over a space grow in a block. What is known of an operator is kept."""

    def __init__(self, order: Order, space: Space, shape: Shape, of_lengths: bool, fits: Callable[..., Member | None]):
        self._order, self._space = order, space
        self.fit = cache(partial(fits, space=space, shape=shape, of_lengths=of_lengths))
        self._is_reduced = cache(self._leads_to_reduction)
        self._reduced, self._neighbours = cache(self._reduced_users), cache(self._neighbours_of)

    def grown(self, seed: Member, taken: set[ir.Operation]) -> Group:
        """The largest group around a reduction without operators that are taken."""
        order, members, new = self._order, {seed.op: seed}, [seed]
        closed, near = order.closed([seed.op]), set[ir.Operation]()
        while new:
            near = near.union(*map(self._neighbours, new))
            new = []
            for op in order.sorted(near - members.keys() - taken):
                member = self.fit(op)
                if member is None or not _joins(member, members):
                    continue
                own, before, after = map(or_, closed, order.closed([op]))
                if order.are_together((own, before, after)):
                    closed, members[op] = (own, before, after), member
                    new.append(member)
        return Group(self._space, {op.results[0]: members[op] for op in order.sorted(members)})

    def _neighbours_of(self, member: Member) -> set[ir.Operation]:
        """Who makes what a member reads, who reads what it gives, and who begins another reduction of what it reads."""
        found = set(users(member.op.results[0]))
        for value, role in zip(member.op.operands, member.roles):
            if member.is_whole(role):
                if (op := rows.producer(root(value))) is not None:
                    found.add(op)
                found |= self._reduced(root(value))
        return found

    def _reduced_users(self, value: ir.Value) -> set[ir.Operation]:
        """The users of a value that are reductions, or lead to one."""
        return {op for op in users(value) if self._is_reduced(op)}

    def _leads_to_reduction(self, op: ir.Operation) -> bool:
        """Whether an operator is a reduction, or goes into one through elementwise operators."""
        member = self.fit(op)
        if member is None or member.kind == "rows":
            return False
        return member.kind in ("reduction", "scan") or any(map(self._is_reduced, users(op.results[0])))


def _joins(member: Member, members: dict[ir.Operation, Member]) -> bool:
    """Whether what a member has of the others, and they of it, lies in the space as it was made."""
    readers = [members[op] for op in users(member.op.results[0]) if op in members]
    return all(
        _fits_edge(reader, role, maker)
        for reader in (member, *readers)
        for value, role in zip(reader.op.operands, reader.roles)
        if (maker := _maker(value, member, members)) is not None and member in (reader, maker)
    )


def _maker(value: ir.Value, member: Member, members: dict[ir.Operation, Member]) -> Member | None:
    op = rows.producer(root(value))
    if op is None:
        return None
    return member if op == member.op else members.get(op)


def _fits_edge(reader: Member, role: Role | None, maker: Member) -> bool:
    return role is not None and reader.is_whole(role) and role.columns == maker.result.columns


def space_of(op: ir.Operation, shape: Shape = rows.known_sizes) -> Space | None:
    """The space of a reduction over the last of its loops."""
    if op.name != "linalg.generic":
        return None
    s = rows.Structured(op)
    sizes = _sizes(s, shape)
    if sizes is None or "reduction" not in s.iterators:
        return None
    columns = prod(size or 0 for size, kind in zip(sizes, s.iterators) if kind == "reduction")
    own = [size for size, kind in zip(sizes, s.iterators) if kind == "parallel"]
    known = prod(size for size in own if size is not None)
    last = max(d for d, kind in enumerate(s.iterators) if kind == "reduction")
    inner = prod(size or 0 for size in sizes[last + 1 :])
    return Space(None in own, known, columns, inner) if columns > 1 and known and inner else None


def fit(op: ir.Operation, space: Space, shape: Shape = rows.known_sizes, of_lengths: bool = False) -> Member | None:
    """The operator as a member of groups over the space, if it can be one; `of_lengths` as of `find`."""
    if not is_generic(op) or not is_plain(op, of_lengths):
        return None
    if rounds_windows(op, op.operands[0]):  # as their own kernel does
        return None
    s = rows.Structured(op)
    sizes = _sizes(s, shape)
    if sizes is None:
        return None
    loops = [d for d, size in enumerate(sizes) if size != 1]
    if any(sizes[d] is None for d in loops[1:]):
        return None
    found = _kind(s, loops, sizes, space)
    if found is None:
        return None
    kind, first, end = found
    own, columns = (*loops[:first], *loops[end:]), loops[first:end]
    roles: list[Role | None] = []
    for value, map_ in zip(op.operands, s.maps):
        role = None
        if scalar_of(value) is None:
            role = _role(map_, shape(value), own, columns, sizes) if rows.is_tensor(value) else None
            if role is None:
                return None
        roles.append(role)
    result = _role(s.maps[-1], shape(op.results[0]), own, columns, sizes)
    if result != Role(own, kind == "tile") or not all(map(is_brought, s.given)):
        return None
    if kind == "reduction":
        start = scalar_of(op.operands[-1])
        if start is None or rows.producer(start).name != "arith.constant" or joined(op) is None:
            return None
    elif s.reads_start:
        return None
    return Member(op, s, kind, own, tuple(sizes[d] for d in own), tuple(roles[: s.inputs]))


def _kind(
    s: rows.Structured, loops: Sequence[int], sizes: Sequence[int | None], space: Space
) -> tuple[str, int, int] | None:
    """What an operator is in the space, and the places of its loops over columns, from the first to the end."""
    inside = [s.iterators[d] for d in loops]
    known = [sizes[d] or 1 for d in loops]
    if (bool(loops) and sizes[loops[0]] is None) != space.is_open:
        return None
    if "reduction" in s.iterators:
        first, count = inside.index("reduction") if "reduction" in inside else len(inside), inside.count("reduction")
        kind, end = "reduction", first + count
        if inside[first:end] != ["reduction"] * count:
            return None
    elif prod(known) == space.rows:
        return "rows", len(loops), len(loops)
    else:
        places = range(len(loops) + 1)
        end = next((i for i in reversed(places) if prod(known[i:]) == space.inner), 0)
        first = next((i for i in reversed(places[: end + 1]) if prod(known[i:end]) == space.columns), 0)
        kind = "tile"
    outer = prod(known[:first])
    fits = prod(known[first:end]) == space.columns and prod(known[end:]) == space.inner
    return (kind, first, end) if fits and outer * space.inner == space.rows else None


def _role(
    map_: ir.AffineMap,
    shape: Sequence[int | None],
    own: Sequence[int],
    columns: Sequence[int],
    sizes: Sequence[int | None],
) -> Role | None:
    """What an operand of a shape, all of whose elements are read, has of the loops, in their order."""
    found = []
    for expr, extent in zip(map_.results, shape, strict=True):
        if isinstance(expr, ir.AffineDimExpr):
            if sizes[expr.position] != 1:
                found.append(expr.position)
        elif not (isinstance(expr, ir.AffineConstantExpr) and expr.value == 0 and extent == 1):
            return None
    across = [d for d in found if d in columns]
    if found != sorted(set(found)) or across not in ([], list(columns)):
        return None
    return Role(tuple(d for d in found if d in own), bool(across))


def joined(op: ir.Operation) -> ir.Operation | None:
    """The operation of a reduction's body by which the next element is joined to those before, if it is one that may
    be done in any order: what it reads of them, and what it gives, perhaps rounded, has no other use."""
    s = rows.Structured(op)
    *_, end = s.body.operations
    argument, value = list(s.body.arguments)[-1], end.operands[0]
    if (made := rows.producer(value)) is not None and made.name == "arith.truncf":
        value = made.operands[0]
    uses = list(argument.uses)
    if len(uses) == 1 and uses[0].owner.operation.name == "arith.extf":
        uses = list(uses[0].owner.operation.results[0].uses)
    join = rows.producer(value)
    fits = join is not None and join.name in JOINS and len(uses) == 1 and uses[0].owner.operation == join
    word = isinstance(value.type, ir.F32Type) or (isinstance(value.type, ir.IntegerType) and value.type.width == 32)
    return join if fits and word and len(list(value.uses)) == 1 else None


def _sizes(s: rows.Structured, shape: Shape) -> list[int | None] | None:
    """The sizes of the loops; None where an operand does not say."""
    found: dict[int, int | None] = {}
    for value, map_ in zip(s.op.operands, s.maps):
        if rows.is_tensor(value):
            for size, expr in zip(shape(value), map_.results, strict=True):
                if isinstance(expr, ir.AffineDimExpr):
                    found[expr.position] = size
    if len(found) != len(s.iterators) or 0 in found.values():
        return None
    return [found[d] for d in range(len(s.iterators))]
