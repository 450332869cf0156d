"""Sizes that are open until the call, as the example had them that the program was exported with.

What is fast depends on how many rows there are. The attribute `kitsune.example` of @main has the sizes that each of its
arguments had in the example, UNKNOWN where no example says them; the sizes of any tensor are computed of these as the
program computes them. Code is right for all sizes: these are for choices between forms, and for prices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from operator import eq, ge, gt, le, lt, ne

from kitsune_mlir.dialects.systems import SYSTEMS
from kitsune_mlir.mlir import attr_int, ir, walk
from kitsune_mlir.operations import made_by, operations_of, padding_of
from kitsune_mlir.planning.open_rows import UNKNOWN_ROWS
from kitsune_mlir.program import Argument

ATTRIBUTE, UNKNOWN = "kitsune.example", -1
# An attribute of the functions that stand for kernels: for each result, and each of its sizes that are open until the
# call, the number of the operand that has the same, and which of its dimensions that is, one pair behind the other.
SIZES_FROM = "kitsune.sizes_from"
_SIZED = ("tensor.empty", "memref.alloc", "tensor.expand_shape", "memref.expand_shape")  # by their operands, in order
_SLICES = ("tensor.extract_slice", "memref.subview")
_COLLAPSES = ("tensor.collapse_shape", "memref.collapse_shape")
_CASTS = ("tensor.cast", "memref.cast")
# Open is what the first operand has.
_ALIKE = ("kitsune.firsts", "kitsune.fourier", "kitsune.load", "kitsune.order", "kitsune.windows", *SYSTEMS)
_OTHER_WIDTHS = ("arith.index_cast", "arith.trunci", "arith.extsi", "arith.extui")  # sizes fit all of them
_CALLS_EACH = 5  # calls in one another for each operation that a size is followed through, with room to spare


def give(module: ir.Module, arguments: Sequence[Argument]) -> None:
    """Says in the module which sizes the arguments of @main had, where some are open until the call."""
    if all(None not in argument.spec.shape for argument in arguments):
        return
    main = next(op for op in walk(module, "func.func") if ir.StringAttr(op.attributes["sym_name"]).value == "main")
    sizes = [argument.example or argument.spec.shape for argument in arguments]
    found = [[UNKNOWN if size is None else size for size in own] for own in sizes]
    context = module.context
    main.attributes[ATTRIBUTE] = ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(own, context) for own in found], context)


def shape_of(value: ir.Value) -> list[int]:
    """A tensor's sizes, UNKNOWN_ROWS for one that no example says."""
    return [UNKNOWN_ROWS if size is None else size for size in known_shape(value)]


def known_shape(value: ir.Value) -> list[int | None]:
    """A tensor's sizes, None for one that no example says."""
    known = Known()
    return [known.size(value, d) for d in range(value.type.rank)]


def sizes_from(function: ir.Operation, result: int) -> list[tuple[int, int]]:
    """For each open size of a result of the kernel that a function stands for, in their order, the number of the
    operand that has the same, and which of its dimensions that is."""
    if SIZES_FROM not in function.attributes:
        return []
    numbers = list(ir.DenseI64ArrayAttr(ir.ArrayAttr(function.attributes[SIZES_FROM])[result]))
    return list(zip(numbers[::2], numbers[1::2]))


class Known:
    """Sizes of a program that does not change meanwhile: each is followed once, however many ways lead to it."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[ir.Value, int], int | None] = {}  # by tensor and dimension
        self._numbers: dict[ir.Value, int | None] = {}
        self._places: dict[ir.Operation, list[ir.Operation]] = {}  # tiles, or loads, or stores, by pipeline
        self._most_steps = sys.getrecursionlimit() // _CALLS_EACH  # deep programs have more room (deep_stack.py)
        self._went_too_far = False  # whether something is unknown for the number of its steps alone

    def size(self, value: ir.Value, d: int) -> int | None:
        """One of a tensor's sizes, None where no example says it."""
        return self._size(value, d, 0)

    def number(self, value: ir.Value) -> int | None:
        """An index that is a size, None where no example says it."""
        return self._number(value, 0)

    def _size(self, value: ir.Value, d: int, steps: int) -> int | None:
        """One of a tensor's sizes, which is reached through so many operations."""
        kind = value.type
        if not kind.is_dynamic_dim(d):
            return int(kind.shape[d])
        if (value, d) not in self._sizes:
            found = self._followed(value, d, steps)
            if found is None and self._went_too_far:
                return None
            self._sizes[value, d] = found
        return self._sizes[value, d]

    def _followed(self, value: ir.Value, d: int, steps: int) -> int | None:
        """An open size, from what makes the tensor."""
        kind = value.type
        if steps > self._most_steps:
            self._went_too_far = True
            return None
        if isinstance(value.owner, ir.Block):
            return _of_argument(ir.BlockArgument(value), d)
        op, after = value.owner.operation, steps + 1
        if op.name in _SIZED:
            first = op.name.endswith("expand_shape")
            return self._number(list(op.operands)[first + sum(map(kind.is_dynamic_dim, range(d)))], after)
        if op.name in _SLICES:
            return self._of_slice(op, d, after)
        if op.name in _COLLAPSES:
            group = [
                ir.IntegerAttr(axis).value for axis in ir.ArrayAttr(ir.ArrayAttr(op.attributes["reassociation"])[d])
            ]
            return _product([self._size(op.operands[0], axis, after) for axis in group])
        if op.name in _CASTS:
            return self._size(op.operands[0], d, after)
        if op.name == "tensor.insert_slice":
            return self._size(op.operands[1], d, after)
        if op.name in ("tensor.concat", "tensor.pad"):
            return self._of_longer(op, d, after)
        if op.name == "kitsune.result":
            return self._of_pipeline(op, d, after)
        if op.name == "func.call":
            return self._of_call(op, list(op.results).index(value), d, after)
        if op.name == "kitsune.windows" and len(op.operands) > 1:
            return self._size(op.operands[1], 0, after)
        if op.name in _ALIKE:
            return self._size(op.operands[0], d, after)
        if op.name.startswith(("linalg.", "tm_tensor.")):
            first = len(op.operands) - len(op.results)
            return self._size(op.operands[first + list(op.results).index(value)], d, after)
        return None

    def _of_slice(self, op: ir.Operation, d: int, steps: int) -> int | None:
        counts = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        sizes = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))
        if len(sizes) != op.results[0].type.rank:  # dimensions were dropped
            return None
        open_before = sum(size == ir.ShapedType.get_dynamic_size() for size in sizes[:d])
        return self._number(list(op.operands)[sum(counts[:2]) + open_before], steps)

    def _of_longer(self, op: ir.Operation, d: int, steps: int) -> int | None:
        """The size of tensors side by side, or of one with something around it."""
        if op.name == "tensor.concat":
            sizes = [self._size(operand, d, steps) for operand in op.operands]
            along = attr_int(op, "dim") == d
            return sizes[0] if not along else None if None in sizes else sum(filter(None, sizes))
        size = self._size(op.operands[0], d, steps)
        around = [each[d] for each in padding_of(op)]
        return None if size is None or min(around) < 0 else size + sum(around)

    def _of_pipeline(self, result: ir.Operation, d: int, steps: int) -> int | None:
        """An open size of what a pipeline or a kernel gives: what the result says, or the one that its tiles go over,
        or the rows that it loads."""
        pipeline, *sizes = result.operands
        if sizes:
            return self._number(sizes[sum(map(result.results[0].type.is_dynamic_dim, range(d)))], steps)
        holder = pipeline.owner.operation
        if holder not in self._places:
            tiles = _first(holder, "kitsune.tiles")
            self._places[holder] = [tiles] if tiles else walk(holder, "kitsune.load") or walk(holder, "kitsune.store")
        for op in self._places[holder]:
            if op.name == "kitsune.tiles":
                return next((self._number(extent, steps) for extent in op.operands if not _is_constant(extent)), None)
            if op.name == "kitsune.load":
                return self._size(op.operands[0], 0, steps)
            if op.attributes["index"] == result.attributes["index"]:
                return self._size(op.operands[0], d, steps)
        return None

    def _of_call(self, op: ir.Operation, result: int, d: int, steps: int) -> int | None:
        """An open size of what the kernel gives that a function stands for."""
        holder = op.parent.operation
        while holder.name != "builtin.module":
            holder = holder.parent.operation
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        own = operations_of(holder.regions[0].blocks[0], "func.func")
        function = next(one for one in own if ir.StringAttr(one.attributes["sym_name"]).value == name)
        before = sum(map(op.results[result].type.is_dynamic_dim, range(d)))
        sources = sizes_from(function, result)
        return self._size(op.operands[sources[before][0]], sources[before][1], steps) if sources else None

    def _number(self, value: ir.Value, steps: int) -> int | None:
        """An index that is a size, which is reached through so many operations."""
        if value not in self._numbers:
            found = self._computed(value, steps)
            if found is None and self._went_too_far:
                return None
            self._numbers[value] = found
        return self._numbers[value]

    def _computed(self, value: ir.Value, steps: int) -> int | None:
        """An index, from what computes it."""
        if steps > self._most_steps:
            self._went_too_far = True
        if isinstance(value.owner, ir.Block) or steps > self._most_steps:
            return None
        op, after = value.owner.operation, steps + 1
        if op.name == "arith.constant":
            return int(attr_int(op, "value"))
        if op.name in ("tensor.dim", "memref.dim"):
            axis = self._number(op.operands[1], after)
            return None if axis is None else self._size(op.operands[0], axis, after)
        if op.name in _OTHER_WIDTHS:
            return self._number(op.operands[0], after)
        if op.name == "arith.select":
            holds = self._holds(op.operands[0], after)
            return None if holds is None else self._number(op.operands[1 if holds else 2], after)
        if op.name == "affine.apply":
            map_ = ir.AffineMapAttr(op.attributes["map"]).value
            return evaluated(
                map_.results[0], map_.n_dims, [self._number(operand, after) for operand in op.operands], _calculated
            )
        if op.name.startswith("arith.") and len(op.operands) == 2:
            return _calculated(op.name[6:], *(self._number(operand, after) for operand in op.operands))
        return None

    def _holds(self, condition: ir.Value, steps: int) -> bool | None:
        """Whether a condition of two sizes holds, as torch-mlir asks of those of a view whether they are negative."""
        if made_by(condition, "arith.cmpi") is None:
            return None
        op = condition.owner.operation
        a, b = (self._number(operand, steps) for operand in op.operands)
        if a is None or b is None:
            return None
        return bool(_COMPARED[attr_int(op, "predicate")](a, b))


def _of_argument(argument: ir.BlockArgument, d: int) -> int | None:
    holder = argument.owner.owner.operation
    if holder.name != "func.func" or ATTRIBUTE not in holder.attributes:
        return None
    sizes = list(ir.DenseI64ArrayAttr(ir.ArrayAttr(holder.attributes[ATTRIBUTE])[argument.arg_number]))
    return None if sizes[d] == UNKNOWN else sizes[d]


def _first(root: ir.Operation, name: str) -> ir.Operation | None:
    """The first operation of a name under `root` (pre-order)."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name != name:
            return ir.WalkResult.ADVANCE
        found.append(op)
        return ir.WalkResult.INTERRUPT

    root.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found[0] if found else None


def _is_constant(value: ir.Value) -> bool:
    return made_by(value, "arith.constant") is not None


def _calculated(name: str, a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return None
    if name in ("muli", "addi", "subi"):
        return {"muli": a * b, "addi": a + b, "subi": a - b}[name]
    if b and name in ("divsi", "divui", "floordivsi"):
        return a // b
    if b and name in ("ceildivsi", "ceildivui"):
        return -(-a // b)
    if b and name in ("remsi", "remui"):
        return a % b
    return {"maxsi": max, "maxui": max, "minsi": min, "minui": min}[name](a, b) if name[:3] in ("max", "min") else None


_COMPARED = (eq, ne, lt, le, gt, ge, lt, le, gt, ge)  # by arith.cmpi's predicates; no size is negative
_AFFINE = {
    ir.AffineAddExpr: "addi",
    ir.AffineMulExpr: "muli",
    ir.AffineFloorDivExpr: "floordivsi",
    ir.AffineCeilDivExpr: "ceildivsi",
    ir.AffineModExpr: "remsi",
}


def evaluated(
    expr: ir.AffineExpr,
    dims: int,
    numbers: Sequence[int | None],
    calculate: Callable[[str, int | None, int | None], int | None],
) -> int | None:
    """An affine expression of these numbers, those of its dimensions first, `calculate` being asked for what an
    operation of arith makes of two; None where one is not known."""
    if isinstance(expr, ir.AffineConstantExpr):
        return int(expr.value)
    if isinstance(expr, ir.AffineDimExpr):
        return numbers[expr.position]
    if isinstance(expr, ir.AffineSymbolExpr):
        return numbers[dims + expr.position]
    name = next(name for kind, name in _AFFINE.items() if isinstance(expr, kind))
    return calculate(name, *(evaluated(side, dims, numbers, calculate) for side in (expr.lhs, expr.rhs)))


def _product(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None
