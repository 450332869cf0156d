"""Buffers of a bufferized host function: what is a view of what, and fills that need not happen."""

from __future__ import annotations

from collections.abc import Iterator

from kitsune_mlir.mlir import ir, walk
from kitsune_mlir.operations import made_by, operations_of

VIEWS = (
    "memref.cast",
    "memref.collapse_shape",
    "memref.expand_shape",
    "memref.extract_strided_metadata",
    "memref.reinterpret_cast",
    "memref.reshape",
    "memref.subview",
    "memref.transpose",
)


def root_of(value: ir.Value) -> ir.Value:
    """The buffer that a memref is a view of."""
    while isinstance(value.type, ir.MemRefType) and not isinstance(value.owner, ir.Block):
        owner = value.owner.operation
        if owner.name not in VIEWS:
            break
        value = owner.operands[0]
    return value


def is_alloc(value: ir.Value) -> bool:
    """Whether a buffer is an allocation, and no view of one."""
    return made_by(value, "memref.alloc") is not None


def uses_of(buffer: ir.Value) -> Iterator[ir.OpOperand]:
    """Every use of a buffer and of its views, by views too."""
    waiting = [buffer]
    while waiting:
        for use in waiting.pop().uses:
            yield use
            op = use.owner.operation
            if op.name in VIEWS and use.operand_number == 0:
                waiting += [value for value in op.results if isinstance(value.type, ir.MemRefType)]


def written(op: ir.Operation) -> list[ir.Value]:
    """The buffers, or views of them, that an operation of a host function may write, itself or in its regions. Calls
    make results of their own."""
    return [v for one in walk(op) for v in _outputs(one) if isinstance(v.type, ir.MemRefType)]


def _outputs(op: ir.Operation) -> list[ir.Value]:
    operands, sizes = list(op.operands), "operandSegmentSizes"
    if op.name in (*VIEWS, "memref.alloc", "memref.dim", "memref.load", "func.call", "func.return"):
        return []
    if op.name in ("memref.copy", "memref.store"):
        return operands[1:2]
    if op.name.startswith(("linalg.", "tm_tensor.")):
        return operands[-(ir.DenseI32ArrayAttr(op.attributes[sizes])[1] if sizes in op.attributes else 1) :]
    return operands


def ancestor_in(block: ir.Block, op: ir.Operation) -> ir.Operation:
    """The operation of a block that an operation is, or stands in."""
    while op.block != block:
        op = op.parent.operation
    return op


def behind(first: ir.Operation, last: ir.Operation | None = None) -> list[ir.Operation]:
    """The operations of a block behind one of it, in front of another one if that is given."""
    operations = operations_of(first.block)
    return operations[operations.index(first) + 1 : None if last is None else operations.index(last)]


class Fills:
    """Fills that wait for a reduction into the same buffer, which then starts from the value itself."""

    def __init__(self) -> None:
        # By root buffer: what was filled, the launch that did it, the value.
        self._pending: dict[int, tuple[ir.Value, ir.Operation, ir.Value]] = {}

    def seen(self, op: ir.Operation) -> None:
        """An operation that stays: whatever it touches keeps its fill."""
        if op.name in VIEWS:
            return
        for inner in walk(op):
            for operand in inner.operands:
                self._pending.pop(hash(root_of(operand)), None)

    def add(self, buffer: ir.Value, launch: ir.Operation, value: ir.Value) -> None:
        """`launch` has filled all of `buffer` with `value`."""
        self._pending[hash(root_of(buffer))] = buffer, launch, value

    def take(self, op: ir.Operation, buffer: ir.Value) -> ir.Value | None:
        """The value that `buffer`, an output of `op` and no input, was filled with; the fill is erased."""
        root = root_of(buffer)
        filled, launch, value = self._pending.get(hash(root), (None, None, None))
        uses = sum(root_of(operand) == root for inner in walk(op) for operand in inner.operands)
        if launch is None or filled != buffer or uses > 1:
            return None
        del self._pending[hash(root)]
        launch.erase()
        return value
