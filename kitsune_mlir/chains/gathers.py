"""Whole rows that stages take out of tables, and those that come into slots as they are gathered."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import attr_int, ir
from kitsune_mlir.operations import end_of, is_generic, made_by, operations_of
from kitsune_mlir.traffic import element_bytes

MOST_GATHERED = 512  # bytes of a row that a product's operand in registers takes from tables
# The same with rows that are put into order (order-rows), where sums leave the registers for it: a kernel that does
# nothing else would read and write them once more.
MOST_ORDERED, ORDERED_COLUMNS = 768, 128
LEAST_STREAMED = 128  # bytes of a row that is gathered into slots: one of a slot
MOST_COLUMNS = 512  # of a product whose operand is: a cluster has them in one pass
ORDER, LOAD = "kitsune.order", "kitsune.load"
UNIT = 16  # bytes that rows are multiples of, which threads copy and requests name


@dataclass(frozen=True)
class Gather:
    """An operator that takes whole rows out of a table, by an extract in its body."""

    op: ir.Operation
    extract: ir.Operation

    @property
    def table(self) -> ir.Value:
        return self.extract.operands[0]

    @property
    def row_bytes(self) -> int:
        return prod(rows.shape_of(self.table)[1:]) * element_bytes(ir.RankedTensorType(self.table.type).element_type)

    @property
    def number(self) -> ir.Value:
        """What the row's number is computed as, an integer."""
        value = self.extract.operands[1]
        cast = rows.producer(value)
        return cast.operands[0] if cast is not None and cast.name == "arith.index_cast" else value

    @property
    def inputs(self) -> list[int]:
        """The operands that the row's number is computed of."""
        s = rows.Structured(self.op)
        used = {hash(operand) for op in self.computed for operand in op.operands} | {hash(self.number)}
        return [i for i in range(s.inputs) if hash(s.body.arguments[i]) in used]

    @property
    def computed(self) -> list[ir.Operation]:
        """The operations of the body that compute the row's number, in order."""
        body, found, stack = rows.Structured(self.op).body, set[ir.Operation](), [self.number]
        while stack:
            op = rows.producer(stack.pop())
            if op is not None and op.block == body and op not in found:
                found.add(op)
                stack += op.operands
        return [op.operation for op in body.operations if op.operation in found]

    @property
    def is_of_rows(self) -> bool:
        """Whether the number of a row depends on the row alone, and on tensors."""
        s = rows.Structured(self.op)
        if s.maps[-1] != ir.AffineMap.get_identity(2):
            return False
        of_rows = all(rows.loops_of(expr) <= {0} for i in self.inputs for expr in s.maps[i].results)
        return of_rows and all(one.name != "linalg.index" for one in self.computed)

    @property
    def may_stream(self) -> bool:
        """Whether threads can copy the rows into slots: of 16-bit elements, as they are."""
        yielded = end_of(rows.Structured(self.op).body).operands[0]
        element = ir.RankedTensorType(self.table.type).element_type
        copied = yielded == self.extract.results[0] and isinstance(element, ir.BF16Type | ir.F16Type)
        return copied and self.row_bytes >= LEAST_STREAMED and self.is_of_rows


def gather_of(op: ir.Operation | None) -> Gather | None:
    """An operation as a gather of whole rows of a table of two dimensions; None where it is none."""
    if not is_generic(op):
        return None
    s = rows.Structured(op)
    extracts = operations_of(s.body, "tensor.extract")
    if len(extracts) != 1 or s.iterators != ["parallel"] * 2:
        return None
    gather = Gather(op, extracts[0])
    if not is_column(gather.extract.operands[-1]) or len(rows.shape_of(gather.table)) != 2:
        return None
    same = rows.shape_of(gather.table)[1] == rows.shape_of(op.results[0])[1]
    return gather if same and gather.row_bytes % UNIT == 0 else None


def is_column(index: ir.Value) -> bool:
    """Whether an index is the number of the column that an operator computes."""
    op = made_by(index, "linalg.index")
    return op is not None and attr_int(op, "dim") == 1


def is_gather(op: ir.Operation | None) -> bool:
    """Whether an operation takes elements out of a tensor."""
    return op is not None and op.name == "linalg.generic" and rows.Structured(op).gathers()


def is_ordered(op: ir.Operation) -> bool:
    """Whether an operation is a gather of rows by the result of a kitsune.order."""
    by = rows.producer(op.operands[0]) if is_gather(op) else None
    return by is not None and by.name == ORDER


def _is_put_in_order(value: ir.Value) -> bool:
    """The same of a tensor, or of a tile whose row numbers a stage loads."""
    op = rows.producer(value)
    by = rows.producer(op.operands[0]) if is_gather(op) else None
    by = rows.producer(by.operands[0]) if by is not None and by.name == LOAD else by
    return by is not None and by.name == ORDER


def is_too_much(part: ir.Value) -> bool:
    """Whether a tensor that is gathered, and others beside it, are more of a row of a product's left operand than
    registers hold. Then rows that are put into order leave these, and need not be counted."""
    for product, parts in products_of(part):
        gathers = [one for one in parts if is_gather(rows.producer(one))]
        ordered = [one for one in gathers if _is_put_in_order(one)]
        few = ordered and rows.shape_of(product.results[0])[1] <= ORDERED_COLUMNS
        if sum(map(row_bytes, gathers)) <= (MOST_ORDERED if few else MOST_GATHERED):
            continue
        if part in ordered or sum(row_bytes(one) for one in gathers if one not in ordered) > MOST_GATHERED:
            return True
    return False


def streams(value: ir.Value) -> bool:
    """Whether a tensor that a product takes is rows of a table that threads gather into shared memory: what is too much
    for registers, of products that chain. The kernel that would gather them before stores each row and has it loaded
    once more, which takes DRAM longer than threads take to copy it, if these do nothing beside the kernel's work."""
    gather = gather_of(rows.producer(value))
    if gather is None or not gather.may_stream or not is_too_much(value):
        return False
    return all(rows.shape_of(product.results[0])[1] <= MOST_COLUMNS for product, _ in products_of(value))


def products_of(value: ir.Value) -> list[tuple[ir.Operation, list[ir.Value]]]:
    """The products whose left operand a tensor is, or is part of, with the parts of that."""
    found = []
    for use in value.uses:
        op = use.owner.operation
        parts = [value]
        readers = [(op, use.operand_number)]
        if op.name == "tensor.concat":
            parts = list(op.operands)
            readers = [(other.owner.operation, other.operand_number) for other in op.results[0].uses]
        found += [(user, parts) for user, number in readers if (user.name, number) == ("linalg.matmul", 0)]
    return found


def row_bytes(value: ir.Value) -> int:
    """Bytes of a tensor's row."""
    element = ir.RankedTensorType(value.type).element_type
    return prod(size for size in rows.shape_of(value)[1:] if size != rows.DYNAMIC) * element_bytes(element)
