"""Operators written on a block of rows. Which rows of its operands a row of the result needs, rows.py says."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.generics import set_iterators, set_maps
from kitsune_mlir.mlir import attr_int, i64, ir, linalg, tensor
from kitsune_mlir.operations import permutation_of, slice_of
from kitsune_mlir.rows import (
    DYNAMIC,
    RESHAPES,
    RESIDENT,
    STRUCTURED,
    Structured,
    dim_of,
    groups_of,
    init_of,
    operand_rows,
    reduces_rows,
    single_columns,
)


class RowCloner:
    """Clones operators onto a block of rows.

    `rows` is the block's size: a number, or an index value when it is not known. `values` maps a
    value's key to its clone; what is not mapped is resident and used as it is. `tiles` maps the key of
    a whole tensor to the block of its rows, for those operands that are read block by block: the same
    tensor may also be read whole, as in `x @ x.t()`.
    """

    def __init__(self, rows: int | ir.Value, values: dict[int, ir.Value] | None = None):
        self.rows = rows
        self.values: dict[int, ir.Value] = values if values is not None else {}
        self.tiles: dict[int, ir.Value] = {}

    def type_of(self, type_: ir.Type, p: int = 1) -> ir.RankedTensorType:
        """A tensor type with its p row dimensions replaced by the block's rows."""
        tensor_type = ir.RankedTensorType(type_)
        size = self.rows if isinstance(self.rows, int) else DYNAMIC
        return ir.RankedTensorType.get([size, *list(tensor_type.shape)[p:]], tensor_type.element_type)

    def __getitem__(self, value: ir.Value) -> ir.Value:
        """What stands for a value that is read block by block."""
        return self.tiles.get(hash(value)) or self.whole(value)

    def whole(self, value: ir.Value) -> ir.Value:
        """What stands for a value that is read whole."""
        return self.values.get(hash(value), value)

    def __setitem__(self, value: ir.Value, clone: ir.Value) -> None:
        self.values[hash(value)] = clone

    def clone(self, op: ir.Operation, p: int) -> None:
        """Clones `op`, whose results have p row dimensions (0: it sums over rows), at the insertion
        point and maps its results."""
        with op.location:
            if op.name in STRUCTURED:
                results = self._structured(op, p)
            elif op.name in RESHAPES:
                results = [self._reshape(op, p)]
            elif op.name == "tensor.concat":
                dim = attr_int(op, "dim") - p + 1
                type_ = self.type_of(op.results[0].type, p)
                results = [tensor.ConcatOp(type_, dim, [self._input(value, p) for value in op.operands]).result]
            elif op.name == "tensor.extract_slice":
                results = [self._slice(op, p)]
            else:
                raise AssertionError(f"{op.name} has no row form")  # operand_rows declined it
        for old, new in zip(op.results, results):
            self[old] = new

    def init(self, value: ir.Value, p: int) -> ir.Value:
        """What a result begins with, of p row dimensions: a tensor, one scalar everywhere, or nothing yet."""
        init = init_of(value)
        if init.tensor is not None:
            return self[value]
        type_ = self.type_of(value.type, p) if p else ir.RankedTensorType(value.type)
        dynamic = [self.rows] if DYNAMIC in list(type_.shape) else []
        empty = tensor.EmptyOp([*dynamic, *list(type_.shape)[1:]] if dynamic else list(type_.shape), type_.element_type)
        if init.scalar is None:
            return empty.result
        return linalg.fill(init.scalar, outs=[empty.result])

    def _input(self, value: ir.Value, p: int | None) -> ir.Value:
        """The clone of an operand with p row dimensions, RESIDENT where it is read whole; a tensor that is one scalar
        everywhere is filled anew."""
        if hash(value) in self.values or init_of(value).tensor is not None:
            return self.whole(value) if p is RESIDENT else self[value]
        return self.init(value, p or 0)

    def _structured(self, op: ir.Operation, p: int) -> list[ir.Value]:
        s = Structured(op)
        loops = s.row_loops(p) if p else []
        if op.name == "linalg.transpose":
            permutation = permutation_of(op)
            rest = [d - p + 1 for d in permutation[p:]]
            if rest == list(range(1, len(rest) + 1)):
                return [self[op.operands[0]]]
            out = self.init(op.operands[1], p)
            return list(linalg.transpose(self[op.operands[0]], outs=[out], permutation=[0, *rest]).results)
        outs = [self.init(value, p) for value in list(op.operands)[s.inputs :]]
        reading = operand_rows(op, p) if p else reduces_rows(op)
        inputs = [self._input(value, rows) for value, rows in zip(s.given, reading)]
        operands = [*inputs, *outs]
        new = op.clone(ir.InsertionPoint.current)
        for i, value in enumerate(operands):
            new.operands[i] = value
        for result, out in zip(new.results, outs):
            result.set_type(out.type)
        if op.name == "linalg.generic" and p > 1:
            _flatten_loops(Structured(new), loops)
        return list(new.results)

    def _reshape(self, op: ir.Operation, p: int) -> ir.Value:
        groups = groups_of(op)
        rows = operand_rows(op, p)
        source = self._input(op.operands[0], rows[0])
        if op.name == "tensor.collapse_shape" and (single := single_columns(op, p)):
            return tensor.CollapseShapeOp(self.type_of(op.results[0].type, p), source, [list(range(single + 1))]).result
        leading = p if op.name == "tensor.collapse_shape" else rows[0]
        rest, start = [], 1
        for group in groups[leading:]:
            rest.append(list(range(start, start + len(group))))
            start += len(group)
        if all(len(group) == 1 for group in rest):
            return source
        type_ = self.type_of(op.results[0].type, p)
        reassociation = [[0], *rest]
        if op.name == "tensor.collapse_shape":
            return tensor.CollapseShapeOp(type_, source, reassociation).result
        dynamic = [] if isinstance(self.rows, int) else [self.rows]
        return tensor.ExpandShapeOp(type_, source, reassociation, dynamic, list(type_.shape)).result

    def _slice(self, op: ir.Operation, p: int) -> ir.Value:
        offsets, sizes, strides = slice_of(op)
        dynamic = [] if isinstance(self.rows, int) else [self.rows]
        size = self.rows if isinstance(self.rows, int) else DYNAMIC
        type_ = self.type_of(op.results[0].type, p)
        return tensor.ExtractSliceOp(
            type_, self._input(op.operands[0], p), [], dynamic, [],
            [0, *offsets[p:]], [size, *sizes[p:]], [1, *strides[p:]],
        ).result  # fmt: skip


def _flatten_loops(s: Structured, loops: Sequence[int]) -> None:
    """Rewrites a generic, whose operands are already in row form, to one row loop for `loops`."""
    others = [loop for loop in range(len(s.iterators)) if loop not in loops]
    number = {loop: i + 1 for i, loop in enumerate(others)}
    count = len(others) + 1
    maps = []
    for map_ in s.maps:
        exprs = list(map_.results)
        streams = [dim_of(expr) for expr in exprs[: len(loops)]] == list(loops)
        rest = [_renumber(expr, number) for expr in (exprs[len(loops) :] if streams else exprs)]
        maps.append(ir.AffineMap.get(count, 0, [ir.AffineDimExpr.get(0), *rest] if streams else rest))
    set_maps(s.op, maps)
    set_iterators(s.op, ["parallel", *(s.iterators[loop] for loop in others)])
    for index in s.index_ops():
        index.attributes["dim"] = i64(number[attr_int(index, "dim")])


def _renumber(expr: ir.AffineExpr, number: dict[int, int]) -> ir.AffineExpr:
    if isinstance(expr, ir.AffineDimExpr):
        return ir.AffineDimExpr.get(number[expr.position])
    if isinstance(expr, ir.AffineConstantExpr):
        return ir.AffineConstantExpr.get(expr.value)
    make = {
        ir.AffineAddExpr: ir.AffineAddExpr,
        ir.AffineMulExpr: ir.AffineMulExpr,
        ir.AffineModExpr: ir.AffineModExpr,
        ir.AffineFloorDivExpr: ir.AffineFloorDivExpr,
        ir.AffineCeilDivExpr: ir.AffineCeilDivExpr,
    }[type(expr)]
    return make.get(_renumber(expr.lhs, number), _renumber(expr.rhs, number))
