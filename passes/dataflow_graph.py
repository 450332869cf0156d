"""Reads a function's block into the plain operator graph that `planning` works on."""

from __future__ import annotations

from collections.abc import Iterator

from kitsune_mlir import rows
from kitsune_mlir.chains.gathers import is_gather, is_ordered, is_too_much, streams
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir
from kitsune_mlir.planning.graph import MOVE, PRODUCT, REDUCTION, SIMT, Node

from .attention_pairs import attention_products
from .long_chains import MOST_IN_A_ROW, far_from_products

_OF_ATTENTION = "is one of the two products of an attention, which are a kernel of their own"
_FAR = f"is made of more than {MOST_IN_A_ROW} elementwise operators in a row, which take too long to compile"
IN_ORDER = "kitsune.in_order"  # marks the gathers that put what an order's keys are computed from into order


class DataflowGraph:
    """The operators of a block as nodes; `rows[op]` is the number of row dimensions of its results. Products that sum
    over fewer than `min_summed` rows are in no row space."""

    def __init__(self, block: ir.Block, min_summed: int = 0):
        self.block, self._min_summed = block, min_summed
        self.ops = [op.operation for op in block.operations if is_operator(op.operation)]
        self.index = {op: i for i, op in enumerate(self.ops)}
        self.rows: dict[ir.Operation, int] = {}
        self.space: dict[ir.Operation, int] = {}
        self._known: dict[tuple[ir.Operation, int], list[int | None] | str] = {}
        self._attention, self._far = attention_products(self.ops), far_from_products(self.ops)
        self._grow_spaces()
        self.nodes = [self._node(i, op) for i, op in enumerate(self.ops)]

    def _grow_spaces(self) -> None:
        """Each product not reached yet opens a row space, those that sum over rows last; it spreads along operands
        and uses."""
        space = 0
        reached: set[tuple[int, int]] = set()
        for p in (1, 0):
            for op in self.ops:
                if op.name == "linalg.matmul" and op not in self.space and not isinstance(self._streams(op, p), str):
                    self._spread(op, p, space, reached)
                    space += 1

    def _spread(self, seed: ir.Operation, rows: int, space: int, reached: set[tuple[int, int]]) -> None:
        """Through every value once: `reached` are those, each with its row dimensions, whose neighbours were seen."""
        work = [(seed, rows)]
        while work:
            op, p = work.pop()
            if op in self.space:
                continue
            streams = self._streams(op, p)
            if isinstance(streams, str):
                continue
            self.space[op], self.rows[op] = space, p
            touched = [(value, rows_in) for value, rows_in in zip(op.operands, streams) if rows_in]
            touched += [(result, p) for result in op.results] if p else []
            for value, value_rows in touched:
                if (hash(value), value_rows) not in reached:
                    reached.add((hash(value), value_rows))
                    work.extend(self._neighbours(value, value_rows))

    def _streams(self, op: ir.Operation, p: int) -> list[int | None] | str:
        """`_operand_rows`, asked once for each operation and p."""
        if (op, p) not in self._known:
            apart = _OF_ATTENTION if op in self._attention else _FAR if op in self._far else ""
            self._known[op, p] = apart or _operand_rows(op, p, self._min_summed)
        return self._known[op, p]

    def _neighbours(self, value: ir.Value, p: int) -> Iterator[tuple[ir.Operation, int]]:
        """The operators that make or use `value`, whose first p dimensions are rows, with their rows."""
        source = rows.producer(value)
        if source in self.index:
            yield source, p
        for use in value.uses:
            user = use.owner.operation
            if user not in self.index:
                continue
            for result_rows in range(len(rows.shape_of(user.results[0])) + 1):
                streams = self._streams(user, result_rows)
                if not isinstance(streams, str) and streams[use.operand_number] == p:
                    yield user, result_rows
                    break

    def _node(self, index: int, op: ir.Operation) -> Node:
        streams, wholes = [], []
        if op in self.space:
            reading = self._streams(op, self.rows[op])
            for value, rows_in in zip(op.operands, reading):
                direct = rows.producer(value) in self.index  # through support operations a path leaves the pipeline
                for source in self._sources(value):
                    same = self.space.get(self.ops[source]) == self.space[op]
                    streamed = same and direct and bool(rows_in) and self.rows[self.ops[source]] == rows_in
                    (streams if streamed or not same else wholes).append(source)
            for source in (source for value in kitsune.captures(op) for source in self._sources(value)):
                (wholes if self.space.get(self.ops[source]) == self.space[op] else streams).append(source)
        else:
            streams = [source for value in rows.used_values(op) for source in self._sources(value)]
        name = op.name
        if op not in self.space:
            reason = self._streams(op, 0 if name == "linalg.matmul" and rows.reduces_rows(op) else 1)
            reason = reason if isinstance(reason, str) else "no matrix product streams these rows"
            return Node(index, name, _unique(streams), _unique(wholes), None, SIMT, reason)
        multiplies = name == "linalg.matmul"
        return Node(
            index, name, _unique(streams), _unique(wholes), self.space[op], self._kind(op), multiplies=multiplies
        )

    def _kind(self, op: ir.Operation) -> str:
        if self.rows[op] == 0:
            return REDUCTION
        if op.name == "linalg.matmul":
            return PRODUCT
        moves = op.name != "linalg.generic" or is_gather(op) or _begins_sums(op)
        return MOVE if moves else SIMT

    def _sources(self, value: ir.Value) -> list[int]:
        """The nodes a value depends on directly, seen through support operations. What stands around the block
        depends on none of its operators."""
        op = rows.producer(value)
        if op is None or op.block != self.block:
            return []
        if op in self.index:
            return [self.index[op]]
        return [source for used in rows.used_values(op) for source in self._sources(used)]


def _gathers_too_much(op: ir.Operation) -> bool:
    """Whether `op` and gathers beside it take more of a row of a product's left operand out of tables than registers
    hold, and its rows do not come through shared memory either."""
    return is_gather(op) and is_too_much(op.results[0]) and not streams(op.results[0])


def _begins_sums(op: ir.Operation) -> bool:
    """Whether products begin their sums with the results of an operator, and nothing else reads them."""
    uses = [use for result in op.results for use in result.uses]
    sums = [use for use in uses if use.owner.operation.name == "linalg.matmul" and use.operand_number == 2]
    return bool(sums) and len(sums) == len(uses)


def is_operator(op: ir.Operation) -> bool:
    """What counts as an operator of the model: tensor computations, not shapes, constants or fills."""
    return op.name not in rows.SUPPORT and any(rows.is_tensor(result) for result in op.results)


def _operand_rows(op: ir.Operation, p: int, min_summed: int) -> list[int | None] | str:
    """`rows.operand_rows`, with 0 result rows for a sum over rows and nothing dynamic but rows."""
    if any(not rows.is_tensor(result) for result in op.results):
        return "computes more than tensors"
    if p == 0:
        reduction = rows.reduces_rows(op)
        if reduction is not None and op.name == "linalg.matmul":
            count = next(rows.shape_of(value)[0] for value, rows_in in zip(op.operands, reduction) if rows_in)
            if count != rows.DYNAMIC and count < min_summed:
                return "sums so few rows that it is better a product of its own"
        return reduction if reduction is not None else "does not sum over rows"
    if p > len(rows.shape_of(op.results[0])):
        return "has fewer dimensions"
    if _gathers_too_much(op):
        return "gathers more of a row for a product than registers hold"
    if is_ordered(op) and len(rows.shape_of(op.results[0])) == 1:
        return "is put into order once, for all that read it"
    if op.name == "linalg.generic" and rows.Structured(op).asks_for_sizes():
        return "reads a number that is known at the call only"
    if any(rows.DYNAMIC in rows.shape_of(result)[p:] for result in op.results):
        return "has a dynamic dimension besides its rows"
    streams = rows.operand_rows(op, p)
    if isinstance(streams, str):
        return streams
    for value, rows_in in zip(op.operands, streams):
        if rows.is_tensor(value) and rows.DYNAMIC in rows.shape_of(value)[(rows_in or 0) :]:
            return "reads a dynamic dimension besides its rows"
    return streams


def _unique(values: list[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))
