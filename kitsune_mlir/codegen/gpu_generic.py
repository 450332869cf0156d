"""A linalg.generic on memrefs, read: its loops, sizes and what kind of computation it is."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir import rows
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.example_sizes import shape_of
from kitsune_mlir.mlir import attr_int, ir, location
from kitsune_mlir.operations import operations_of
from kitsune_mlir.planning.open_rows import UNKNOWN_ROWS

from .gpu_kernel import See, Size, delinearize, extent

# On an arith.select of an element of a tensor or of what is outside: the number of the line of memory that the element
# is in, of which neighbours along the last loop have others; how far these are apart; and where the first one is. The
# last two are 0 where neighbours' elements lie elsewhere.
COLUMN = "kitsune.column"


class Generic:
    """A linalg.generic on memrefs and what its parts are called here. Its only result is but the input of `after`,
    element by element, if there is one."""

    def __init__(self, op: ir.Operation, after: Generic | None = None):
        self.op, self.after = op, after
        self.block = op.regions[0].blocks[0]
        counts = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        self.maps = [ir.AffineMapAttr(map_).value for map_ in ir.ArrayAttr(op.attributes["indexing_maps"])]
        self.inputs, self.outputs = list(op.operands)[: counts[0]], list(op.operands)[counts[0] :]
        self.out_maps = self.maps[counts[0] :]
        kinds = [str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
        order = [dim for map_ in self.out_maps[:1] for dim in dims_of(map_)]
        parallel = [d for d, kind in enumerate(kinds) if "parallel" in kind]
        # The dimensions of the result last to first in memory: consecutive threads write consecutive elements.
        self.parallel = [d for d in parallel if d not in order] + [d for d in order if d in parallel]
        self.reduction = [d for d in range(len(kinds)) if d not in parallel]
        if any(d in self.reduction for map_ in self.out_maps for d in dims_of(map_)):
            raise UnsupportedError(
                f"{location(op.location)}: a result indexed by a reduced dimension cannot be compiled"
            )

    def size(self, dim: int, see: See) -> Size:
        """The size of loop `dim`, read off an operand that `see` brings to where it is needed."""
        if (found := self._axis(dim)) is None:
            raise UnsupportedError(f"{location(self.op.location)}: no operand gives the size of loop {dim}")
        return extent(see(found[0]), found[1])

    def place(self, index: ir.Value, sizes: Sequence[Size]) -> dict[int, ir.Value]:
        """The parallel loops' indices at point `index` of a space of these sizes."""
        return dict(zip(self.parallel, delinearize(index, sizes), strict=True))

    def known_size(self, dim: int) -> int | None:
        """The size of loop `dim` where it is known before the call. Builds nothing."""
        found = self._axis(dim)
        return None if found is None or found[0].type.is_dynamic_dim(found[1]) else found[0].type.shape[found[1]]

    def example_size(self, dim: int) -> int:
        """The same; where it is open until the call, the size that it has in the example."""
        found = self._axis(dim)
        return UNKNOWN_ROWS if found is None else shape_of(found[0])[found[1]]

    def _axis(self, dim: int) -> tuple[ir.Value, int] | None:
        """A buffer, and the dimension of it that loop `dim` goes along."""
        for operand, map_ in zip(self.op.operands, self.maps, strict=True):
            if isinstance(operand.type, ir.MemRefType):
                for position, result in enumerate(map_.results):
                    if isinstance(result, ir.AffineDimExpr) and result.position == dim:
                        return operand, position
        return None

    def reads(self, output: int) -> bool:
        """Whether what output `output` holds before matters."""
        argument = self.block.arguments[len(self.inputs) + output]
        return bool(self.reduction) or any(True for _ in argument.uses)

    def fill_value(self) -> ir.Value | None:
        """The host scalar that all of the only output becomes, if that is all that happens."""
        if len(self.outputs) != 1 or self.reduction or len(self.block.operations) != 1:
            return None
        yielded = self.block.operations[0].operands[0]
        for argument, operand in zip(self.block.arguments, self.inputs, strict=False):
            if argument == yielded:
                return None if isinstance(operand.type, ir.MemRefType) else operand
        return yielded if yielded.owner != self.block else None

    def label(self) -> str:
        """What to call its kernel."""
        names = {op.operation.name for op in self.block.operations}
        if self.fill_value() is not None:
            return "fill"
        if self.reduction:
            return "product" if "arith.mulf" in names and len(self.inputs) > 1 else "reduce"
        if any(COLUMN in op.operation.attributes for op in self.block.operations):
            return "windows"
        return "gather" if "memref.load" in names else "elementwise"

    def product_loops(self) -> tuple[int, ...]:
        """The two innermost parallel loops of which one runs through the first of two inputs only, the other
        through the second: the rows and columns of a matrix product. Empty for anything else."""
        if not self.reduction or len(self.inputs) != 2 or len(self.outputs) != 1:
            return ()
        left, right = (set(dims_of(map_)) for map_ in self.maps[:2])
        rows = [d for d in self.parallel if d in left and d not in right]
        columns = [d for d in self.parallel if d in right and d not in left]
        return (rows[-1], columns[-1]) if rows and columns else ()

    def along_memory(self) -> bool:
        """Whether every input that the reduction runs through lies along it: the warp reads whole lines."""
        last = self.reduction[-1]
        touched = [map_ for map_ in self.maps[: len(self.inputs)] if last in dims_of(map_)]
        along = bool(touched) and all(dims_of(map_)[-1:] == [last] for map_ in touched)
        return along and not {*self.gathers_along()} & {*self.parallel}

    def across_memory(self, shared: bool = False) -> bool:
        """Whether every input that the reduction runs through lies along the last parallel loop: lanes read lines.
        Some, not all, may be `shared` by all points of that loop, which is then the last one of more than one point."""
        loops = [d for d in self.parallel if not shared or self.known_size(d) != 1]
        touched = [dims_of(map_) for map_ in self.maps[: len(self.inputs)] if {*self.reduction} & {*dims_of(map_)}]
        gathered = [[dim] for dim in self.gathers_along()]
        touched = gathered or touched  # what numbers rows is the same for neighbours
        along = [dims[-1] == loops[-1] for dims in touched if loops]
        return any(along) and all(own or shared and loops[-1] not in dims for own, dims in zip(along, touched))

    def gathers_along(self) -> list[int]:
        """The loops that the last dimensions of buffers go along, of which the body takes elements by number."""
        loads = operations_of(self.block, "memref.load")
        ends = [rows.producer(load.operands[len(load.operands) - 1]) for load in loads if len(load.operands) > 1]
        return [attr_int(end, "dim") for end in ends if end is not None and end.name == "linalg.index"]


def dims_of(map_: ir.AffineMap) -> list[int]:
    """The dimensions that the results mention, in order."""
    found: list[int] = []

    def visit(expression: ir.AffineExpr) -> None:
        if isinstance(expression, ir.AffineDimExpr):
            found.append(expression.position)
        elif not isinstance(expression, ir.AffineConstantExpr):
            visit(expression.lhs)
            visit(expression.rhs)

    for result in map_.results:
        visit(result)
    return found
