"""What a stage holds and in which order: its body as a list of loop nests.

Products, row reductions, operands of products, and what leaves the stage are held, in registers or beside them;
everything else is computed where it is used (`evaluate.py`). A product takes its elementwise consumers along as its
epilogue as long as all uses go through one value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kitsune_mlir import rows
from kitsune_mlir.dialects import kitsune
from kitsune_mlir.mlir import ir
from kitsune_mlir.operations import users_of

PRODUCT, REDUCTION, MAP = "product", "reduction", "map"


@dataclass
class Nest:
    """Makes `value` (a reduction: all results of `op`). `op` is the product or reduction."""

    kind: str
    value: ir.Value
    op: ir.Operation | None = None
    local: bool = False  # held in the CTA
    puts: list[kitsune.PutOp] = field(default_factory=list)
    stores: list[kitsune.OutputOp] = field(default_factory=list)

    @property
    def values(self) -> list[ir.Value]:
        return list(self.op.results) if self.kind == REDUCTION and self.op is not None else [self.value]


def is_reduction(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and "reduction" in rows.Structured(op).iterators


def is_elementwise(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and not is_reduction(op) and len(op.results) == 1


class StageNests:
    """The nests of one stage in order. `on_chip` are the labels of queues that stay in the CTA."""

    def __init__(self, stage: kitsune.StageOp, on_chip: set[str]):
        self.stage = stage
        self.nests: dict[int, Nest] = {}
        self.order: list[int] = []
        for op in stage.block.operations:
            self._visit(op.operation, on_chip)

    def __iter__(self):
        return iter(self.nests[key] for key in self.order)

    def _visit(self, op: ir.Operation, on_chip: set[str]) -> None:
        if op.name == "linalg.matmul":
            self._operand(op.operands[0], on_chip)
            self._product(op)
        elif op.name == "linalg.generic" and is_reduction(op):
            self._add(Nest(REDUCTION, op.results[0], op, local=True))
        elif op.name == kitsune.PutOp.OPERATION_NAME:
            nest = self._nest(op.operands[1])
            if kitsune_label(op.operands[0]) in on_chip:
                nest.local = True
            else:
                nest.puts.append(op.opview)
        elif op.name in kitsune.OUTPUTS:
            self._nest(op.operands[0]).stores.append(op.opview)

    def _add(self, nest: Nest) -> Nest:
        for value in nest.values:
            self.nests[hash(value)] = nest
        self.order.append(hash(nest.value))
        return nest

    def _nest(self, value: ir.Value) -> Nest:
        """The nest that stores a value, made if there is none."""
        return self.nests.get(hash(value)) or self._add(Nest(MAP, value))

    def _operand(self, value: ir.Value, on_chip: set[str]) -> None:
        """What a product streams is held; the tile of an on-chip queue is already."""
        op = rows.producer(value)
        if op is None or op.name != kitsune.GetOp.OPERATION_NAME or kitsune_label(op.operands[0]) not in on_chip:
            self._nest(value).local = True

    def _product(self, op: ir.Operation) -> None:
        """The product with its epilogue; held when anything but a put or store reads the end."""
        value = self._end_of_epilogue(op)
        readers = [user.name for user in users_of(value)]
        outward = (kitsune.PutOp.OPERATION_NAME, *kitsune.OUTPUTS)
        self._add(Nest(PRODUCT, value, op, local=any(name not in outward for name in readers)))

    def _end_of_epilogue(self, product: ir.Operation) -> ir.Value:
        """The last value that elementwise operators make of a product alone and through which all uses of it go."""
        end, members = product.results[0], {product}
        keys, left = {hash(end)}, _readers(end)  # those that are not yet members
        for op in self.stage.block.operations:
            op = op.operation
            if not any(hash(operand) in keys for operand in op.operands) or op.name == "tensor.dim":
                continue
            if not self._joins_epilogue(op, keys):
                break
            left.discard(op)
            if not left:
                end = op.results[0]
            members.add(op)
            keys.add(hash(op.results[0]))
            left |= _readers(op.results[0]) - members
        return end

    def _joins_epilogue(self, op: ir.Operation, keys: set[int]) -> bool:
        """Whether an operator is elementwise on the values of `keys`; what else it reads must be stored before."""
        if not is_elementwise(op):
            return False
        s = rows.Structured(op)
        identity = ir.AffineMap.get_identity(2)
        for i, (operand, map_) in enumerate(zip(op.operands, s.maps)):
            if hash(operand) in keys and (i >= s.inputs or map_ != identity):
                return False
            if i < s.inputs and hash(operand) not in keys and not self._is_ready(operand):
                return False
        return s.maps[-1] == identity

    def _is_ready(self, value: ir.Value) -> bool:
        """Whether every stored value that `value` is computed from is stored already."""
        if hash(value) in self.nests:
            return True
        op = rows.producer(value)
        if op is None or op.name.startswith("kitsune.") or op.parent.operation != self.stage.operation:
            return True
        if op.name == "linalg.matmul" or is_reduction(op):
            return False
        return all(self._is_ready(operand) for operand in op.operands if rows.is_tensor(operand))

    def leaves(self, nest: Nest) -> set[int]:
        """Keys of the stored values, gets among them, that a nest reads. A value that leaves for an output or another
        CTA alone is computed again by whoever else reads it."""
        own = {hash(value) for value in nest.values}
        stack = list(nest.values)
        if nest.op is not None:
            stack += [operand for operand in nest.op.operands if rows.is_tensor(operand)]
        found: set[int] = set()
        seen: set[int] = set()
        while stack:
            value = stack.pop()
            key = hash(value)
            op = rows.producer(value)
            if key in seen or op is None:
                continue
            seen.add(key)
            stored = key not in own and key in self.nests and self.nests[key].local
            if stored or op.name == kitsune.GetOp.OPERATION_NAME:
                found.add(key)
            else:
                stack += [operand for operand in op.operands if rows.is_tensor(operand)]
        return found


def kitsune_label(queue: ir.Value) -> str:
    return rows.producer(queue).opview.label


def _readers(value: ir.Value) -> set[ir.Operation]:
    """Which operations read the elements of a value."""
    return {use.owner.operation for use in value.uses if use.owner.name != "tensor.dim"}
