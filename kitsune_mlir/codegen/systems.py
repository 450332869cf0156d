"""Operations on systems of equations while tensors become buffers: calls, for both targets (cpu_systems.py,
gpu_systems.py).

    %x = "kitsune.solve"(%b, %a)   =>   %x = call @kitsune_system0(%b, %a)
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.dialects.systems import SYSTEMS
from kitsune_mlir.mlir import ir, replace_op, walk

from .outlined import Call, calls, outlined

CALL = "kitsune_system"  # what such an operation is a call of while tensors become buffers
CHOLESKY, SUBSTITUTE, SOLVE, PIVOTS = SYSTEMS
_KIND, _SAID = "kitsune.system", ("upper", "transposed", "unit")


@dataclass(frozen=True)
class System(Call):
    """What a call computes: the operation's `name`, and what is said of it."""

    name: str
    said: frozenset[str]

    @property
    def matrix(self) -> ir.Value:
        return self.parts[-1]

    @property
    def parts(self) -> list[ir.Value]:
        """What it is given: the right sides, where there are such, and the matrices."""
        return list(self.call.operands)

    @property
    def element(self) -> ir.Type:
        return ir.MemRefType(self.matrix.type).element_type

    @property
    def rows(self) -> int:
        """The number of rows, and of columns, of each matrix."""
        return int(ir.MemRefType(self.matrix.type).shape[-1])

    @property
    def batch(self) -> list[int]:
        """The dimensions before those of a matrix."""
        return list(range(ir.MemRefType(self.matrix.type).rank - 2))

    @property
    def is_upper(self) -> bool:
        """Whether the triangle, turned where it is, is an upper one, whose last row is the first to be solved."""
        return ("upper" in self.said) != ("transposed" in self.said)

    def place(self, row: ir.Value, column: ir.Value) -> list[ir.Value]:
        """Where an element of the triangle stands in its matrix."""
        return [column, row] if "transposed" in self.said else [row, column]


def outline_systems(module: ir.Module) -> None:
    """Makes calls of such operations, which bufferization takes for calls of code from elsewhere."""
    for position, op in enumerate(walk(module, *SYSTEMS)):
        own, call = outlined(module, op, f"{CALL}{position}", list(op.operands), [each.type for each in op.results])
        own.attributes[_KIND] = ir.StringAttr.get(op.name, op.context)
        for said in _SAID:
            if said in op.attributes:
                own.attributes[said] = op.attributes[said]
        replace_op(op, *call.results)


def systems(module: ir.Module) -> list[System]:
    """Those that calls stand for, after bufferization."""
    found = []
    for op, function in calls(module, CALL):
        said = frozenset(said for said in _SAID if said in function.attributes)
        found.append(System(op, function, ir.StringAttr(function.attributes[_KIND]).value, said))
    return found
