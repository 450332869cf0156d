"""order-rows: rows that are summed at receivers are put into the order of these, once a call.

    %s = gather %x[%from]                              %k, %at, %f1, %t1 = "kitsune.order"(%to, %nodes, %from, %to)
    %m = ... %e, %s ...       // row by row            %e1 = gather %e[%k]
    %t = tm_tensor.scatter ins(%m, %to) outs(%zero)    %s = gather %x[%f1]
    return %t, %m                                 =>
                                                       %m = ... %e1, %s ...   // the same, its rows in that order
                                                       %t = tm_tensor.scatter ins(%m, %t1) outs(%zero)
                                                       %m1 = gather %m[%at]
                                                       return %t, %m1

A row space is all that operators that treat rows independently reach from the scatter. What comes into it is gathered,
and what leaves it for anything else is gathered back; sums over rows, by index or of all, do not depend on the order
but for rounding. The order is computed from the index tensor in each call, whatever was there before. An index that is
no row of the table stays what it is, and stands behind all others (kitsune.order).

Whether it pays is planning/row_order.py's; sizes that are open until the call are the example's, and taken to be
too small where no example says them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from kitsune_mlir import determinism, rows
from kitsune_mlir.chains.gathers import row_bytes
from kitsune_mlir.dialects.order import MOST_CARRIED, OrderOp
from kitsune_mlir.errors import UserError
from kitsune_mlir.example_sizes import known_shape
from kitsune_mlir.generics import constant_index, generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, clone_on, ir, linalg, tensor, walk
from kitsune_mlir.planning import row_order
from kitsune_mlir.planning import target as targets
from kitsune_mlir.planning.row_order import Moved, RowSpace, Sums

from .base import ModulePass
from .dataflow_graph import IN_ORDER
from .scatter_outputs import SCATTER, adds_rows, leaves_by_additions, rows_alone

AUTO, ALWAYS, NEVER = "auto", "always", "never"
# What a key, or the number of places, may be computed by: few operations, done twice.
_COPIED = ("linalg.generic", "linalg.fill", "linalg.transpose", *rows.RESHAPES, "tensor.extract_slice", "tensor.cast")
_COPIED += ("tensor.empty", "tensor.dim", "arith.", "affine.apply")


@dataclass(frozen=True)
class OrderRows(ModulePass):
    """when: auto, by cost; always, wherever it can be; never.
    target: what costs are of, a name or the path of a description.
    """

    name: ClassVar[str] = "order-rows"
    when: str = AUTO
    target: str = "sm_90a"

    def __post_init__(self) -> None:
        if self.when not in (AUTO, ALWAYS, NEVER):
            raise UserError(f"order-rows: when is {AUTO}, {ALWAYS} or {NEVER}, not '{self.when}'")

    def run(self, module: ir.Module) -> None:
        if self.when == NEVER or determinism.of(module):  # sums do not leave pipelines then
            return
        seen: list[ir.Operation] = []  # no set: an operation's hash changes with its operands
        for scatter in walk(module, SCATTER):
            if scatter in seen or not _is_sum_of_rows(scatter):
                continue
            space = _Space(scatter)
            seen += space.sums
            self._order(space)

    def _order(self, space: _Space) -> None:
        """Orders a row space by the index whose sums gain most, where it pays."""
        if not space.sums or not any(op.name == "linalg.matmul" for op in space.members):
            return  # nothing that would leave a pipeline
        target = targets.load(self.target)
        by_index: dict[int, list[ir.Operation]] = {}
        for op in space.sums:
            if _is_sum_of_rows(op):
                by_index.setdefault(hash(rows_alone(op.operands[1])), []).append(op)
        found = [(space.described(sums), sums) for sums in by_index.values()]
        known = [(plan, sums) for plan, sums in found if plan is not None]
        if known:
            plan, sums = max(known, key=lambda one: row_order.saved_us(one[0], target))
            if self.when == AUTO and not row_order.pays(plan, target):
                return
        elif self.when == AUTO:
            return
        else:
            sums = found[0][1]
        space.put_in_order(sums[0])


def _is_sum_of_rows(scatter: ir.Operation) -> bool:
    """Whether a scatter adds rows to zeros in a form that leaves a pipeline."""
    expanded = rows.producer(scatter.operands[0])
    if scatter.parent.name != "func.func" or expanded is None or not adds_rows(scatter):
        return False
    updates, to = (rows_alone(value) for value in list(scatter.operands)[:2])
    if updates is None or to is None:
        return False
    return leaves_by_additions(updates, to, scatter.results[0].type)


@dataclass
class _Space:
    """The row space of a scatter: values with its rows as dimension 0, and what treats these independently. `sums` are
    scatters of such values by such values, in whatever form."""

    scatter: ir.Operation
    block: ir.Block = field(init=False)
    values: dict[int, ir.Value] = field(default_factory=dict)
    members: dict[ir.Operation, list[int | None]] = field(default_factory=dict)  # with the rows of their operands
    sums: list[ir.Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.block = self.scatter.block
        work = self._scattered(self.scatter)
        while work:
            value = work.pop()
            if hash(value) in self.values:
                continue
            self.values[hash(value)] = value
            maker = rows.producer(value)
            if maker is not None and maker.block == self.block:
                work += self._joined(maker, None)
            for use in value.uses:
                work += self._joined(use.owner.operation, use.operand_number)

    def _joined(self, op: ir.Operation, operand: int | None) -> list[ir.Value]:
        """What an operation reads and makes of the row space, if it is one of it: through that operand, or, with None,
        as what makes a value."""
        if op in self.members or op.block != self.block or op.name in rows.SUPPORT:
            return []
        found: list[ir.Value] = []
        if operand is not None and op.name == "tensor.expand_shape":
            for use in op.results[0].uses:
                found += self._scattered(use.owner.operation)
            if self._is_of_sums(op):
                return found
        return found + self._member(op, operand)

    def _member(self, op: ir.Operation, operand: int | None) -> list[ir.Value]:
        """The same of an operation that treats rows independently, or sums all."""
        if not op.results or not all(rows.is_tensor(result) for result in op.results):
            return []
        streams = rows.operand_rows(op, 1) if rows.shape_of(op.results[0]) else ""
        results = list(op.results)
        if isinstance(streams, str) and operand is not None:
            streams, results = rows.reduces_rows(op) or "", []
        if isinstance(streams, str) or (operand is not None and streams[operand] != 1):
            return []
        if any(count not in (1, rows.RESIDENT) for count in streams):
            return []  # rows of several dimensions
        self.members[op] = streams
        return results + [op.operands[number] for number in _streamed(op, streams)]

    def _is_of_sums(self, expand: ir.Operation) -> bool:
        """Whether all that reads what an expand_shape makes takes it as updates or rows of a sum by index."""
        users = [(use.owner.operation, use.operand_number) for use in expand.results[0].uses]
        return bool(users) and all(user in self.sums and number < 2 for user, number in users)

    def _scattered(self, scatter: ir.Operation) -> list[ir.Value]:
        """The updates and the rows of what may be a sum by index, if it is one and was not seen before."""
        if scatter.name != SCATTER or scatter in self.sums or not adds_rows(scatter, to_zeros=False):
            return []
        found = [rows_alone(value) for value in list(scatter.operands)[:2]]
        if any(value is None for value in found):
            return []
        self.sums.append(scatter)
        return found

    def inputs(self) -> list[ir.Value]:
        """What comes into the row space."""
        return [value for value in self.values.values() if rows.producer(value) not in self.members]

    def leaving(self, value: ir.Value) -> list[ir.OpOperand]:
        """The uses of a value of the row space as what it was before."""
        return [use for use in value.uses if not self._takes(use.owner.operation, use.operand_number)]

    def _taking(self, value: ir.Value) -> list[ir.OpOperand]:
        """The uses of a value that want it in the order of the row space."""
        uses = [use for use in value.uses if use.owner.operation.name != "tensor.dim"]
        return [use for use in uses if self._takes(use.owner.operation, use.operand_number)]

    def _takes(self, op: ir.Operation, operand: int) -> bool:
        """Whether it takes an operand in whatever order the rows have."""
        if op in self.members:
            return operand in _streamed(op, self.members[op])
        if op.name == "tensor.dim":
            return True
        return op.block == self.block and op.name == "tensor.expand_shape" and self._is_of_sums(op)

    def described(self, sums: list[ir.Operation]) -> RowSpace | None:
        """The space as planning sees it, ordered for these sums; None where no example says its sizes."""
        tables = [known_shape(op.results[0]) for op in sums]
        count = known_shape(rows_alone(sums[0].operands[0]))[0]
        if None in (count, *(size for table in tables for size in table)):
            return None
        moved = [Moved(row_bytes(value)) for value in self.inputs()]
        for value in self.values.values():
            if rows.producer(value) in self.members and (left := self.leaving(value)):
                moved.append(Moved(row_bytes(value), len(left) == len(list(value.uses))))
        return RowSpace(count, tuple(Sums(table[1], table[0]) for table in tables), tuple(moved))

    def _separate(self) -> None:
        """Gives each sum by index updates and rows that nothing else reads."""
        for scatter in self.sums:
            for number in range(2):
                expand = scatter.operands[number].owner.operation
                if len(list(expand.results[0].uses)) > 1:
                    scatter.operands[number] = expand.clone(ir.InsertionPoint(expand)).results[0]

    def put_in_order(self, scatter: ir.Operation) -> None:
        """Rewrites the row space. All uses are looked at before the first is changed: `members` finds an operation by
        its hash, which depends on its operands."""
        self._separate()
        keys = rows_alone(scatter.operands[1])
        results = [value for value in self.values.values() if rows.producer(value) in self.members]
        leaving = [(value, uses) for value in results if (uses := self.leaving(value))]
        coming = [(value, self._taking(value)) for value in self.inputs()]
        with scatter.location:
            copies = _Copies(self.block)
            key, count = copies.of(keys), copies.count(scatter)
            if key is None or count is None:
                return
            of_keys = [value for value, _ in coming if copies.holds(value)]
            carried = _carried([value for value, _ in coming], keys, copies)
            i32 = ir.IntegerType.get_signless(32)
            kind = ir.RankedTensorType.get(rows.shape_of(keys), i32)
            with copies.point:
                order = OrderOp(key, count, [copy for _, copy in carried], kind, kind, [keys.type] * len(carried))
        moved = {hash(value): result for (value, _), result in zip(carried, list(order.results)[2:])}
        for value, uses in coming:
            ordered = moved.get(hash(value))
            if ordered is None:
                maker = rows.producer(value)
                point = ir.InsertionPoint.after(order.operation if maker is None else maker)
                with scatter.location, point:
                    ordered = _gathered(value, order.results[0])
                    if value in of_keys:
                        ordered.owner.attributes[IN_ORDER] = ir.UnitAttr.get()
            for use in uses:
                use.owner.operands[use.operand_number] = ordered
        for value, uses in leaving:
            maker = rows.producer(value)
            with maker.location, ir.InsertionPoint.after(maker):
                back = _gathered(value, order.results[1])
            for use in uses:
                use.owner.operands[use.operand_number] = back


def _streamed(op: ir.Operation, streams: list[int | None]) -> list[int]:
    """The operands that an operation reads row by row: those that are no tensor, or one number everywhere, are not."""
    return [
        number
        for number, (value, count) in enumerate(zip(op.operands, streams))
        if count == 1 and rows.is_tensor(value) and rows.init_of(value).tensor is not None
    ]


class _Copies:
    """Copies, at the beginning of a block, of what a few values are computed by."""

    def __init__(self, block: ir.Block):
        self._block = block
        self.point = ir.InsertionPoint.at_block_begin(block)
        self._copied: dict[ir.Value, ir.Value] = {}

    def of(self, value: ir.Value) -> ir.Value | None:
        """A value there; None where more than a few cheap operations make it."""
        if isinstance(value.owner, ir.Block):
            self._copied[value] = value
        if value in self._copied:
            return self._copied[value]
        op = value.owner.operation
        if op.block != self._block or not op.name.startswith(_COPIED):
            return None
        if any(self.of(used) is None for used in rows.used_values(op)):
            return None
        with self.point:
            clone_on(op, self._copied)
        return self._copied[value]

    def holds(self, value: ir.Value) -> bool:
        """Whether a value is among those."""
        return value in self._copied

    def count(self, scatter: ir.Operation) -> ir.Value | None:
        """The rows of the table that a scatter adds to zeros of."""
        size = rows.shape_of(scatter.results[0])[0]
        if size != rows.DYNAMIC:
            with self.point:
                return constant_index(size)
        fill = rows.producer(scatter.operands[2])
        empty = None if fill is None or fill.name != "linalg.fill" else rows.producer(fill.operands[1])
        return None if empty is None or empty.name != "tensor.empty" else self.of(empty.operands[0])


def _carried(coming: list[ir.Value], keys: ir.Value, copies: _Copies) -> list[tuple[ir.Value, ir.Value]]:
    """Of what comes into a row space, the vectors that the sort itself brings into order, and their copies."""
    free = MOST_CARRIED // row_bytes(keys)
    found = []
    for value in coming:
        if value.type == keys.type and (value == keys or free) and (copy := copies.of(value)) is not None:
            found.append((value, copy))
            free -= value != keys
    return found


def _gathered(value: ir.Value, order: ir.Value) -> ir.Value:
    """The rows of a tensor that an order's result names, one after another."""
    kind = ir.RankedTensorType(value.type)

    def element(number: ir.Value, _: ir.Value) -> ir.Value:
        row = arith.index_cast(ir.IndexType.get(), number)
        return tensor.extract(value, [row, *(linalg.IndexOp(d).result for d in range(1, kind.rank))])

    start = tensor.empty(sizes_of(value), kind.element_type)
    maps = [map_of(kind.rank, [0]), map_of(kind.rank, range(kind.rank))]
    return generic([order], [start], maps, ["parallel"] * kind.rank, element).results[0]
